"""One look: the ledger before the deeds, and what becomes of it when somebody else was faster or no answer came."""

import msgspec
import pytest

from recovery.controller import reconciler
from recovery.controller.reconciler import InvariantError, LedgerUnreadableError, Reconciler, RestlessGroupError
from recovery.core.facts import Snapshot
from recovery.core.ledger import Ledger, LedgerObject, Outcome, Phase
from recovery.core.plan import DeleteJob, Plan
from recovery.core.policy import BudgetSpec, Mode, Policy, PolicyError
from recovery.ports import (
    EVENTS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import KEY, Ears, FakeApi, FakeStore, SetClock
from tests.unit.core.world import World, at, training

NO_ANSWER = UnknownOutcomeError("the connection was lost")
STALE = ConflictError("the object has been modified", status=409)
TRIGGERED = [
    "create RecoveryGroup",
    "patch RecoveryGroup",
    "delete Job",
    "patch Job",
    "delete Pod",
    "delete Pod",
    "delete Pod",
    "create Event",
]
"""All that a lost member of four calls for, in this order."""


class Scene:
    """A group of four, a controller in Enforce that looks at it, and all that it is surrounded by."""

    def __init__(self, world: World | None = None, *, mode: Mode = Mode.ENFORCE) -> None:
        self.api = FakeApi()
        self.clock = SetClock(1)
        self.store = FakeStore(self.api, world if world is not None else lost(), mode=mode)
        self.ears = Ears()
        self.reconciler = self.new_process()

    def new_process(self) -> Reconciler:
        return Reconciler(api=self.api, store=self.store, clock=self.clock, observer=self.ears)

    async def look(self, seconds: float | None = None) -> float | None:
        """One look; returns in how many seconds the next is wanted."""
        if seconds is not None:
            self.clock.seconds = seconds
        again = await self.reconciler.look(KEY)
        return None if again is None else (again - self.clock.now()).total_seconds()

    @property
    def deeds(self) -> list[str]:
        """What was asked of the workload."""
        return [str(request) for request in self.api.requests if request.resource in {JOBS, PODS}]

    def one_recovery(self) -> bool:
        """One charge, one epoch, one trigger."""
        ledger = self.api.ledger
        attempts = ledger.incident.attempts if ledger.incident is not None else ()
        return (ledger.epoch, ledger.totals.restarts, ledger.totals.charged, len(attempts)) == (1, 1, 1, 1) and (
            len(ledger.budget.charges) == 1
        )


def lost() -> World:
    """Rank 2 is gone."""
    return training(4).pod_gone(2, 0)


async def closed() -> Scene:
    """A scene whose incident has closed, and is still to be recorded."""
    scene = Scene()
    await scene.look()
    scene.store.becomes(lost().job_deleted(1).recreated(5).all_ready(20))
    again = await scene.look(21)
    assert again == 0, "it is still to be recorded"
    incident = scene.api.ledger.incident
    assert incident is not None
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    scene.api.requests.clear()
    return scene


# --- the order of things ---------------------------------------------------------------------------------------------


async def test_a_group_that_is_whole_costs_no_request_and_no_live_read() -> None:
    scene = Scene(training(4))
    assert await scene.look() is None
    assert scene.api.said() == []
    assert scene.store.live_reads == 0
    assert len(scene.ears.plans) == 1


async def test_the_ledger_is_written_before_anything_is_deleted() -> None:
    scene = Scene()
    ledgers: list[Ledger] = []
    scene.api.next("delete", JOBS, meanwhile=lambda: ledgers.append(scene.api.ledger))
    await scene.look()
    assert scene.api.said() == TRIGGERED
    assert scene.one_recovery()
    (as_of_the_delete,) = ledgers
    assert as_of_the_delete == scene.api.ledger
    assert as_of_the_delete.incident is not None
    assert as_of_the_delete.incident.target.job_uids == ("job-1",)
    (trigger,) = scene.api.sent("delete", JOBS)
    assert (trigger.uid, trigger.resource_version) == ("job-1", "1000")


async def test_it_is_decided_on_facts_read_live() -> None:
    scene = Scene()
    scene.store.live = lost().with_job(active=3)
    await scene.look()
    assert scene.store.live_reads == 1
    (trigger,) = scene.api.sent("delete", JOBS)
    assert trigger.resource_version == "1001"


async def test_a_loss_that_only_the_cache_shows_writes_nothing() -> None:
    scene = Scene()
    scene.store.live = training(4)
    await scene.look()
    assert scene.store.live_reads == 1
    assert scene.api.said() == []


async def test_only_a_successful_write_is_told() -> None:
    scene = Scene()
    scene.api.next("patch", RECOVERY_GROUPS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await scene.look()
    assert scene.ears.writes == []
    assert scene.deeds == []
    await scene.look()
    assert [(before.epoch, after.epoch) for before, after in scene.ears.writes] == [(0, 1)]


async def test_observe_writes_the_ledger_and_touches_nothing() -> None:
    scene = Scene(mode=Mode.OBSERVE)
    await scene.look()
    assert scene.api.said() == ["create RecoveryGroup", "patch RecoveryGroup", "create Event"]
    assert scene.api.ledger.epoch == 0


async def test_a_switch_to_observe_counts_before_the_cache_has_seen_it() -> None:
    scene = Scene()
    spec = msgspec.structs.replace(scene.store.policy.spec, mode=Mode.OBSERVE)
    scene.store.live_policy = msgspec.structs.replace(scene.store.policy, spec=spec)
    await scene.look()
    assert scene.deeds == []
    assert scene.api.ledger.epoch == 0


async def test_nothing_is_decided_while_a_cache_is_not_in_sync() -> None:
    scene = Scene()
    scene.store.is_synced = False
    with pytest.raises(TryLaterError):
        await scene.look()
    assert scene.api.said() == []
    assert scene.ears.plans == []


# --- refused and lost writes of the ledger ---------------------------------------------------------------------------


async def test_a_refused_ledger_write_deletes_nothing_and_all_is_decided_again() -> None:
    """Another controller was faster: its trigger stands in the ledger, and it is carried out, not repeated."""
    other = Scene()
    await other.look()
    scene = Scene()
    scene.api.put_group(Ledger())
    seen: list[list[str]] = []

    def another_writes() -> None:
        seen.append(scene.deeds)
        scene.api.put_group(other.api.ledger)
        scene.store.live = lost().job_deleted(1)

    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=another_writes)
    await scene.look()
    assert seen == [[]], "nothing was done before the write"
    assert scene.api.sent("delete", JOBS) == [], "the other one has done it"
    assert scene.one_recovery()
    assert scene.store.live_reads == 2


async def test_a_write_that_was_refused_for_a_trifle_is_decided_again_with_the_new_version() -> None:
    scene = Scene()
    scene.api.put_group(Ledger())
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: scene.api.put_group(Ledger()))
    await scene.look()
    assert scene.api.said() == ["patch RecoveryGroup", *TRIGGERED[1:]]
    assert scene.one_recovery()


async def test_a_lost_answer_to_a_write_that_was_applied_goes_on_from_there() -> None:
    """Not at once: a server that gives no answer has trouble of its own."""
    scene = Scene()
    scene.store.lags = True  # only a live read shows what became of it
    scene.api.next("patch", RECOVERY_GROUPS, NO_ANSWER, applied=True)
    with pytest.raises(UnknownOutcomeError):
        await scene.look()
    assert scene.deeds == []
    await scene.look()
    assert scene.api.said() == TRIGGERED[:-1]
    assert scene.one_recovery()


async def test_a_lost_answer_to_a_write_that_was_not_applied_is_written_again() -> None:
    scene = Scene()
    scene.store.lags = True
    scene.api.next("patch", RECOVERY_GROUPS, NO_ANSWER, applied=False)
    with pytest.raises(UnknownOutcomeError):
        await scene.look()
    assert scene.deeds == []
    await scene.look()
    assert scene.api.said() == [*TRIGGERED[:2], *TRIGGERED[1:]]
    assert scene.one_recovery()


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_the_creation_of_the_ledger_makes_one_ledger(applied: bool) -> None:
    scene = Scene()
    scene.store.lags = True
    scene.api.next("create", RECOVERY_GROUPS, NO_ANSWER, applied=applied)
    with pytest.raises(UnknownOutcomeError):
        await scene.look()
    await scene.look()
    assert scene.one_recovery()
    assert scene.api.said() == [TRIGGERED[0], *TRIGGERED[1 if applied else 0 :]]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_the_trigger_is_followed_up_without_another_charge(applied: bool) -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, NO_ANSWER)
    with pytest.raises(UnknownOutcomeError):
        await scene.look()
    assert scene.deeds == ["delete Job"]
    if applied:
        scene.store.becomes(lost().job_deleted(1))
    await scene.look(2)
    assert len(scene.api.sent("delete", JOBS)) == (1 if applied else 2)
    assert len(scene.api.sent("delete", PODS)) == 3
    assert scene.one_recovery()


async def test_a_recovery_group_that_another_has_created_is_used() -> None:
    scene = Scene()
    scene.store.lags = True  # our cache has not seen it
    scene.api.put_group(Ledger())
    await scene.look()
    assert scene.api.said() == TRIGGERED
    assert scene.one_recovery()


async def test_a_recovery_group_that_was_deleted_under_us_is_created_again() -> None:
    scene = Scene()
    scene.store.lags, scene.store.lagging = True, scene.api.put_group(Ledger())
    scene.api.groups.clear()
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: setattr(scene.store, "lagging", None))
    await scene.look()
    assert scene.api.said() == ["patch RecoveryGroup", *TRIGGERED]
    assert scene.one_recovery()


async def test_an_api_server_that_asks_to_wait_is_not_pressed() -> None:
    scene = Scene()
    scene.api.next("patch", RECOVERY_GROUPS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.look()
    assert scene.api.said() == TRIGGERED[:2]
    await scene.look()
    assert scene.one_recovery()


# --- a cache that lags -----------------------------------------------------------------------------------------------


async def test_a_cache_that_lags_behind_our_own_write_does_not_decide_on_the_past() -> None:
    scene = Scene()
    scene.store.lags = True
    await scene.look()
    scene.api.requests.clear()
    scene.store.live = lost().job_deleted(1)  # the facts in the cache lag as well
    await scene.look(2)
    assert scene.api.sent("create", RECOVERY_GROUPS) == []
    assert scene.api.sent("delete", JOBS) == []
    assert scene.api.sent("delete", PODS) == [], "they have been asked a second ago"
    assert scene.api.sent("create", EVENTS) == []
    assert scene.one_recovery()


async def test_a_cache_that_is_ahead_of_our_own_write_is_believed() -> None:
    scene = Scene()
    await scene.look()
    scene.api.put_group(msgspec.structs.replace(scene.api.ledger, epoch=7))
    scene.api.groups = {name: msgspec.structs.replace(group, uid="group-1") for name, group in scene.api.groups.items()}
    await scene.look(2)
    assert scene.ears.plans[-1].ledger.epoch == 7


async def test_versions_are_compared_as_numbers() -> None:
    """As text, 99 would be newer than 100: our own last write would then hide all later ones, or be hidden."""
    scene = Scene()
    await scene.look()
    (group,) = scene.api.groups.values()
    assert len(group.resource_version) == 3
    old = msgspec.structs.replace(group, resource_version="99", ledger=Ledger())
    scene.store.lags, scene.store.lagging = True, old
    scene.api.requests.clear()
    scene.store.live = lost().job_deleted(1)
    await scene.look(2)
    assert scene.one_recovery()
    assert scene.api.sent("delete", JOBS) == []


async def test_a_new_process_with_the_ledger_alone_repeats_nothing() -> None:
    scene = Scene()
    await scene.look()
    scene.reconciler = scene.new_process()
    scene.store.becomes(lost().job_deleted(1))
    scene.api.requests.clear()
    await scene.look(2)
    assert scene.api.sent("delete", JOBS) == []
    assert len(scene.api.sent("delete", PODS)) == 3, "a new process does not know who has been asked"
    assert scene.one_recovery()


async def test_a_ledger_of_an_earlier_job_of_that_name_is_not_taken_for_this_ones() -> None:
    scene = Scene()
    await scene.look()
    again = training(4, born=100).with_workload(uid="second")
    scene.store.becomes(again)
    await scene.look(200)
    assert scene.ears.plans[-1].ledger == Ledger()


# --- refused and lost deeds ------------------------------------------------------------------------------------------


async def test_a_stale_trigger_is_reissued_with_the_new_version_and_charged_once() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, STALE, meanwhile=lambda: scene.store.becomes(lost().with_job(active=3)))
    await scene.look()
    assert [request.resource_version for request in scene.api.sent("delete", JOBS)] == ["1000", "1001"]
    assert {request.uid for request in scene.api.sent("delete", JOBS)} == {"job-1"}
    assert scene.one_recovery()
    assert scene.store.live_reads == 2
    assert len(scene.api.sent("create", EVENTS)) == 1


async def test_no_pod_is_deleted_unless_its_job_was() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError):
        await scene.look()
    assert scene.deeds == ["delete Job"]


async def test_events_are_emitted_even_if_the_deed_was_refused() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError, match="jobs is forbidden"):
        await scene.look()
    (event,) = scene.api.sent("create", EVENTS)
    assert event.body["reason"] == "RecreatingGroup"
    assert scene.one_recovery()


async def test_a_deed_that_is_refused_for_good_does_not_stand_in_the_ledger_as_if_it_were_done() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError):
        await scene.look()
    assert "the API server refuses it: jobs is forbidden" in scene.api.ledger.reason
    await scene.look(2)
    assert "refuses" not in scene.api.ledger.reason
    assert scene.one_recovery()


async def test_the_deed_that_was_refused_is_done_at_the_next_look_without_another_charge() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.look()
    scene.api.requests.clear()
    await scene.look(2)
    assert scene.deeds == ["delete Job", "patch Job", "delete Pod", "delete Pod", "delete Pod"]
    assert scene.one_recovery()


async def test_the_first_refusal_is_the_one_that_is_raised() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs", status=403))
    scene.api.next("create", EVENTS, TryLaterError("events", status=429))
    with pytest.raises(ForbiddenError):
        await scene.look()


async def test_an_event_that_is_refused_does_not_stop_the_deeds() -> None:
    scene = Scene()
    scene.api.next("create", EVENTS, ForbiddenError("events", status=403))
    with pytest.raises(ForbiddenError):
        await scene.look()
    assert scene.api.said() == TRIGGERED
    assert "refuses" not in scene.api.ledger.reason


async def test_a_group_that_never_rests_is_left_to_the_backoff() -> None:
    scene = Scene()
    for _ in range(4):
        scene.api.next("delete", JOBS, STALE)
    with pytest.raises(RestlessGroupError, match="ml/train"):
        await scene.look()
    assert len(scene.api.sent("delete", JOBS)) == 3, "the first of four rounds asked for a live read"
    assert scene.one_recovery()


# --- ledgers that are not to be touched ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, -1])
async def test_a_ledger_of_another_schema_holds_everything(version: int) -> None:
    scene = Scene()
    before = scene.api.put_group(Ledger(), schema_version=version)
    with pytest.raises(LedgerUnreadableError, match=f"schemaVersion {version}"):
        await scene.look()
    assert scene.api.said() == []
    assert list(scene.api.groups.values()) == [before]


async def test_a_newer_controller_that_takes_over_within_a_look_holds_it() -> None:
    scene = Scene()
    scene.api.put_group(Ledger())
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: scene.api.put_group(Ledger(), schema_version=2))
    with pytest.raises(LedgerUnreadableError):
        await scene.look()
    assert scene.api.said() == ["patch RecoveryGroup"]


async def test_a_decision_that_breaks_an_invariant_is_stopped_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bad(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: object) -> Plan:
        trigger = DeleteJob(epoch=5, name="train-node-0", uid="job-1", resource_version="1000")
        return Plan(Ledger(epoch=5), "because", actions=(trigger,))

    scene = Scene()
    monkeypatch.setattr(reconciler, "decide", bad)
    with pytest.raises(InvariantError, match="ml/train: Epoch: goes from 0 to 5"):
        await scene.look()
    assert scene.api.said() == []
    assert scene.ears.writes == []


async def test_a_policy_that_cannot_be_used_does_nothing_and_says_which() -> None:
    scene = Scene()
    spec = msgspec.structs.replace(scene.store.policy.spec, budget=BudgetSpec(window="a day"))
    scene.store.policy = msgspec.structs.replace(scene.store.policy, spec=spec)
    await scene.look()
    assert scene.api.said() == []
    assert "RecoveryPolicy ml/default: spec.budget.window: 'a day'" in scene.ears.plans[-1].reason


async def test_without_a_policy_nothing_happens() -> None:
    scene = Scene()
    scene.store.policy = msgspec.structs.replace(scene.store.policy, deleting=True)
    await scene.look()
    assert scene.api.said() == []


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_train_job_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.store.lags = True
    await scene.look()
    scene.api.requests.clear()
    scene.store.becomes(msgspec.structs.replace(lost(), workload=None))
    assert await scene.look() is None
    assert scene.api.said() == []
    scene.store.becomes(training(4))
    await scene.look()
    assert scene.ears.plans[-1].ledger == Ledger(), "our last write is not remembered beyond the job"


async def test_a_train_job_that_goes_within_a_look_ends_it() -> None:
    scene = Scene()
    scene.store.live = msgspec.structs.replace(lost(), workload=None)
    assert await scene.look() is None
    assert scene.api.said() == []


async def test_a_closed_incident_is_recorded_before_the_ledger_forgets_it() -> None:
    scene = await closed()
    found: list[LedgerObject] = []
    scene.api.next("create", RECOVERY_INCIDENTS, meanwhile=lambda: found.extend(scene.api.groups.values()))
    assert await scene.look() is None
    assert scene.api.said() == ["create RecoveryIncident", "patch RecoveryGroup"]
    assert found[0].ledger.incident is not None
    (request,) = scene.api.sent("create", RECOVERY_INCIDENTS)
    assert request.name == "train-0d2f5c9e-1"
    assert request.body["spec"]["outcome"] == "Recovered"
    assert scene.api.ledger.incident is None
    assert scene.api.ledger.phase is Phase.HEALTHY
    assert [entry.id for entry in scene.api.ledger.history] == ["0d2f5c9e-1"]


async def test_an_incident_that_cannot_be_recorded_is_kept() -> None:
    scene = await closed()
    scene.api.next("create", RECOVERY_INCIDENTS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await scene.look()
    assert scene.api.said() == ["create RecoveryIncident"]
    assert scene.api.ledger.incident is not None
    await scene.look()
    assert scene.api.ledger.incident is None


async def test_an_incident_that_was_recorded_before_is_forgotten_all_the_same() -> None:
    scene = await closed()
    scene.api.next("create", RECOVERY_INCIDENTS, AlreadyExistsError("it exists", status=409))
    await scene.look()
    assert scene.api.said() == ["create RecoveryIncident", "patch RecoveryGroup"]
    assert scene.api.ledger.incident is None
    assert len(scene.api.ledger.history) == 1


async def test_a_look_says_when_the_next_one_is_wanted() -> None:
    scene = Scene()
    await scene.look()
    scene.store.becomes(lost().job_deleted(1))
    assert await scene.look(2) == 60, "30 s of grace and 30 s more: then the pods that are left are named"
    assert scene.clock.now() == at(2)
