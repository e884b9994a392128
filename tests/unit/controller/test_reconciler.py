"""One reconcile: the ledger is written before the actions. Covers conflicts with another writer, and writes without an
answer."""

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from recovery.controller.reconciler import RestlessGroupError
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import Mode
from recovery.ports import (
    EVENTS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    TRAIN_JOBS,
    ForbiddenError,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import KEY
from tests.unit.controller.scene import NO_ANSWER, STALE, TRIGGERED, Scene, lost
from tests.unit.core.groups import training
from tests.unit.core.world import at

# --- the order of writes ---------------------------------------------------------------------------------------------


async def test_a_group_that_is_whole_costs_no_request_and_no_live_read() -> None:
    scene = Scene(training(4))
    assert await scene.reconcile() is None
    assert scene.api.said() == []
    assert scene.store.live_reads == 0
    assert len(scene.ears.plans) == 1


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(Mode.ENFORCE, ProtectionReason.PROTECTED), (Mode.OBSERVE, ProtectionReason.OBSERVE)],
)
async def test_each_reconcile_tells_whether_the_job_is_protected(mode: Mode, reason: ProtectionReason) -> None:
    scene = Scene(training(4), mode=mode)
    await scene.reconcile()
    assert [found.reason for found in scene.ears.protections] == [reason]


async def test_the_ledger_is_written_before_anything_is_deleted() -> None:
    scene = Scene()
    ledgers: list[Ledger] = []
    scene.api.next("delete", JOBS, meanwhile=lambda: ledgers.append(scene.api.ledger))
    await scene.reconcile()
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
    await scene.reconcile()
    assert scene.store.live_reads == 1
    (trigger,) = scene.api.sent("delete", JOBS)
    assert trigger.resource_version == "1001"


async def test_a_loss_that_only_the_cache_shows_writes_nothing() -> None:
    scene = Scene()
    scene.store.live = training(4)
    await scene.reconcile()
    assert scene.store.live_reads == 1
    assert scene.api.said() == []


async def test_only_a_successful_write_is_told() -> None:
    scene = Scene()
    scene.api.next("patch", RECOVERY_GROUPS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert scene.ears.writes == []
    assert scene.actions == []
    await scene.reconcile()
    assert [(before.epoch, after.epoch) for before, after in scene.ears.writes] == [(0, 1)]


async def test_observe_writes_the_ledger_and_touches_nothing() -> None:
    scene = Scene(mode=Mode.OBSERVE)
    await scene.reconcile()
    assert scene.api.said() == ["create RecoveryGroup", "patch RecoveryGroup", "create Event"]
    assert scene.api.ledger.epoch == 0


async def test_a_switch_to_observe_counts_before_the_cache_has_seen_it() -> None:
    scene = Scene()
    spec = msgspec.structs.replace(scene.store.policy.spec, mode=Mode.OBSERVE)
    scene.store.live_policy = msgspec.structs.replace(scene.store.policy, spec=spec)
    await scene.reconcile()
    assert scene.actions == []
    assert scene.api.ledger.epoch == 0


async def test_nothing_is_decided_while_a_cache_is_not_in_sync() -> None:
    scene = Scene()
    scene.store.is_synced = False
    with pytest.raises(TryLaterError):
        await scene.reconcile()
    assert scene.api.said() == []
    assert scene.ears.plans == []


# --- refused and lost writes of the ledger ---------------------------------------------------------------------------


async def test_a_refused_ledger_write_deletes_nothing_and_all_is_decided_again() -> None:
    """Another controller was faster. Its trigger is in the ledger, and is carried out, not repeated."""
    other = Scene()
    await other.reconcile()
    scene = Scene()
    scene.api.put_group(Ledger())
    seen: list[list[str]] = []

    def another_writes() -> None:
        seen.append(scene.actions)
        scene.api.put_group(other.api.ledger)
        scene.store.live = lost().job_deleted(1)

    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=another_writes)
    await scene.reconcile()
    assert seen == [[]], "nothing was done before the write"
    assert scene.api.sent("delete", JOBS) == [], "the other one has done it"
    assert scene.one_recovery()
    assert scene.store.live_reads == 2


async def test_a_write_that_was_refused_for_a_trifle_is_decided_again_with_the_new_version() -> None:
    scene = Scene()
    scene.api.put_group(Ledger())
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: scene.api.put_group(Ledger()))
    await scene.reconcile()
    assert scene.api.said() == ["patch RecoveryGroup", *TRIGGERED[1:]]
    assert scene.one_recovery()


async def test_a_lost_answer_to_a_write_that_was_applied_goes_on_from_there() -> None:
    """The retry is not immediate, because a server that gives no answer has trouble of its own."""
    scene = Scene()
    scene.store.lags = True  # only a live read shows whether it was applied
    scene.api.next("patch", RECOVERY_GROUPS, NO_ANSWER, applied=True)
    with pytest.raises(UnknownOutcomeError):
        await scene.reconcile()
    assert scene.actions == []
    await scene.reconcile()
    assert scene.api.said() == TRIGGERED[:-1]
    assert scene.one_recovery()


async def test_a_lost_answer_to_a_write_that_was_not_applied_is_written_again() -> None:
    scene = Scene()
    scene.store.lags = True
    scene.api.next("patch", RECOVERY_GROUPS, NO_ANSWER, applied=False)
    with pytest.raises(UnknownOutcomeError):
        await scene.reconcile()
    assert scene.actions == []
    await scene.reconcile()
    assert scene.api.said() == [*TRIGGERED[:2], *TRIGGERED[1:]]
    assert scene.one_recovery()


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_the_creation_of_the_ledger_makes_one_ledger(applied: bool) -> None:
    scene = Scene()
    scene.store.lags = True
    scene.api.next("create", RECOVERY_GROUPS, NO_ANSWER, applied=applied)
    with pytest.raises(UnknownOutcomeError):
        await scene.reconcile()
    await scene.reconcile()
    assert scene.one_recovery()
    assert scene.api.said() == [TRIGGERED[0], *TRIGGERED[1 if applied else 0 :]]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_the_trigger_is_followed_up_without_another_charge(applied: bool) -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, NO_ANSWER)
    with pytest.raises(UnknownOutcomeError):
        await scene.reconcile()
    assert scene.actions == ["delete Job"]
    if applied:
        scene.store.becomes(lost().job_deleted(1))
    await scene.reconcile(2)
    assert len(scene.api.sent("delete", JOBS)) == (1 if applied else 2)
    assert len(scene.api.sent("delete", PODS)) == 3
    assert scene.one_recovery()


async def test_a_recovery_group_that_another_has_created_is_used() -> None:
    scene = Scene()
    scene.api.next("create", RECOVERY_GROUPS, meanwhile=lambda: scene.api.put_group(Ledger()))
    await scene.reconcile()
    assert scene.api.said() == TRIGGERED
    assert scene.one_recovery()


async def test_a_recovery_group_that_our_cache_has_not_seen_is_read_before_anything_is_decided() -> None:
    scene = Scene()
    scene.store.lags = True
    scene.api.put_group(Ledger())
    await scene.reconcile()
    assert scene.api.said() == TRIGGERED[1:], "it is not created again"
    assert scene.one_recovery()


async def test_a_recovery_group_that_was_deleted_under_us_is_created_again() -> None:
    scene = Scene()
    scene.store.lags, scene.store.lagging = True, scene.api.put_group(Ledger())
    scene.api.groups.clear()
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: setattr(scene.store, "lagging", None))
    await scene.reconcile()
    assert scene.api.said() == ["patch RecoveryGroup", *TRIGGERED]
    assert scene.one_recovery()


async def test_an_api_server_that_asks_to_wait_is_not_pressed() -> None:
    scene = Scene()
    scene.api.next("patch", RECOVERY_GROUPS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.reconcile()
    assert scene.api.said() == TRIGGERED[:2]
    await scene.reconcile()
    assert scene.one_recovery()


# --- a cache that lags -----------------------------------------------------------------------------------------------


async def test_a_cache_that_lags_behind_our_own_write_does_not_decide_on_the_past() -> None:
    scene = Scene()
    scene.store.lags = True
    await scene.reconcile()
    scene.api.requests.clear()
    scene.store.live = lost().job_deleted(1)  # the cached facts lag as well
    await scene.reconcile(2)
    assert scene.api.sent("create", RECOVERY_GROUPS) == []
    assert scene.api.sent("delete", JOBS) == []
    assert scene.api.sent("delete", PODS) == [], "they have been asked a second ago"
    assert scene.api.sent("create", EVENTS) == []
    assert scene.one_recovery()


async def test_a_cache_that_is_ahead_of_our_own_write_is_believed() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.api.put_group(msgspec.structs.replace(scene.api.ledger, epoch=7))
    scene.api.groups = {name: msgspec.structs.replace(group, uid="group-1") for name, group in scene.api.groups.items()}
    await scene.reconcile(2)
    assert scene.ears.plans[-1].ledger.epoch == 7


async def test_versions_are_compared_as_numbers() -> None:
    """As text, 99 is newer than 100: our own last write would hide newer ones, or an older one would hide ours."""
    scene = Scene()
    await scene.reconcile()
    (group,) = scene.api.groups.values()
    assert len(group.resource_version) == 3
    old = msgspec.structs.replace(group, resource_version="99", ledger=Ledger())
    scene.store.lags, scene.store.lagging = True, old
    scene.api.requests.clear()
    scene.store.live = lost().job_deleted(1)
    await scene.reconcile(2)
    assert scene.one_recovery()
    assert scene.api.sent("delete", JOBS) == []


async def test_a_new_process_with_the_ledger_alone_repeats_nothing() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.reconciler = scene.new_process()
    scene.store.becomes(lost().job_deleted(1))
    scene.api.requests.clear()
    await scene.reconcile(2)
    assert scene.api.sent("delete", JOBS) == []
    assert len(scene.api.sent("delete", PODS)) == 3, "a new process does not know who has been asked"
    assert scene.one_recovery()


async def test_no_incident_opens_for_a_job_that_is_replaced_while_its_policies_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()

    async def slow(namespace: str) -> PolicySet:
        await asyncio.sleep(0)  # the group is read first
        scene.store.becomes(training(4, born=100).with_workload(uid="second"))
        return scene.store.policies(namespace)

    monkeypatch.setattr(scene.store, "read_policies_live", slow)
    await scene.reconcile()
    assert scene.api.writes == []


async def test_a_ledger_of_an_earlier_job_of_that_name_is_not_taken_for_this_ones() -> None:
    scene = Scene()
    await scene.reconcile()
    again = training(4, born=100).with_workload(uid="second")
    scene.store.becomes(again)
    await scene.reconcile(200)
    assert scene.ears.plans[-1].ledger == Ledger()


# --- refused and lost actions -----------------------------------------------------------------------------------------


async def test_a_stale_trigger_is_reissued_with_the_new_version_and_charged_once() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, STALE, meanwhile=lambda: scene.store.becomes(lost().with_job(active=3)))
    await scene.reconcile()
    assert [request.resource_version for request in scene.api.sent("delete", JOBS)] == ["1000", "1001"]
    assert {request.uid for request in scene.api.sent("delete", JOBS)} == {"job-1"}
    assert scene.one_recovery()
    assert scene.store.live_reads == 2
    assert len(scene.api.sent("create", EVENTS)) == 1


async def test_no_pod_is_deleted_unless_its_job_was() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert scene.actions == ["delete Job"]


async def test_events_are_emitted_even_if_the_action_was_refused() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError, match="jobs is forbidden"):
        await scene.reconcile()
    (event,) = scene.api.sent("create", EVENTS)
    assert event.body["reason"] == "RecreatingGroup"
    assert scene.one_recovery()


async def test_a_action_that_is_refused_for_good_does_not_stand_in_the_ledger_as_if_it_were_done() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs is forbidden", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert scene.api.ledger.reason is Reason.API_REFUSES
    await scene.reconcile(2)
    assert "refuses" not in scene.api.ledger.message
    assert scene.one_recovery()


async def test_the_action_that_was_refused_is_done_at_the_next_reconcile_without_another_charge() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.reconcile()
    scene.api.requests.clear()
    await scene.reconcile(2)
    assert scene.actions == ["delete Job", "patch Job", "delete Pod", "delete Pod", "delete Pod"]
    assert scene.one_recovery()


async def test_the_first_refusal_is_the_one_that_is_raised() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, ForbiddenError("jobs", status=403))
    scene.api.next("create", EVENTS, TryLaterError("events", status=429))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()


async def test_an_event_that_is_refused_does_not_stop_the_actions() -> None:
    scene = Scene()
    scene.api.next("create", EVENTS, ForbiddenError("events", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert scene.api.said() == TRIGGERED
    assert "refuses" not in scene.api.ledger.message


async def test_a_group_that_never_rests_is_left_to_the_backoff() -> None:
    scene = Scene()
    for _ in range(4):
        scene.api.next("delete", JOBS, STALE)
    with pytest.raises(RestlessGroupError, match="ml/train"):
        await scene.reconcile()
    assert len(scene.api.sent("delete", JOBS)) == 3, "the first of four rounds asked for a live read"
    assert scene.one_recovery()


async def test_a_suspension_that_is_refused_for_good_does_not_keep_the_old_pods() -> None:
    """Backoff can be skipped, but old pods must go: hung ranks would use their whole grace."""
    scene = Scene()
    scene.api.put_group(Ledger(attempts_in_row=1, handled=Handled(until=at(-60))))
    metadata = {"name": "train", "uid": lost().workload.uid, "resourceVersion": "1"}  # type: ignore[union-attr]
    scene.api.objects[TRAIN_JOBS, "train"] = {"metadata": metadata, "spec": {}}
    scene.api.next("patch", TRAIN_JOBS, ForbiddenError("may not", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert [action for action in scene.actions if action.startswith("delete Pod")] != []
    assert scene.api.ledger.reason is Reason.API_REFUSES


# --- what it logs ----------------------------------------------------------------------------------------------------


async def test_each_line_about_a_group_names_its_open_incident_and_none_before_or_after() -> None:
    scene = Scene(training(4))
    await scene.reconcile()
    assert scene.reconciler.log_keys(KEY) == {"job": "ml/train"}
    scene.store.becomes(lost())
    scene.api.next("delete", JOBS, STALE)
    with capture_logs() as said:
        await scene.reconcile()
    assert "reading again" in {line["event"] for line in said}
    assert scene.api.ledger.incident is not None
    incident = scene.api.ledger.incident.id
    assert {(line["job"], line["incident"]) for line in said} == {("ml/train", incident)}
    assert scene.reconciler.log_keys(KEY) == {"job": "ml/train", "incident": incident}
    scene.store.becomes(lost().job_deleted(1).recreated(5).all_ready(20))
    await scene.reconcile(21)
    assert scene.reconciler.log_keys(KEY) == {"job": "ml/train"}


async def test_a_ledger_that_cannot_be_read_names_no_incident() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.api.put_group(scene.api.ledger, schema_version=99)
    assert scene.new_process().log_keys(KEY) == {"job": "ml/train"}
