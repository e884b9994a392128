"""The loop around the reconciles: when it begins, what it survives, and how it ends; and whether this process leads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from recovery import api_verbs
from recovery.background import BackgroundTaskError
from recovery.controller import runner
from recovery.controller.fleet_reconciler import FleetReconciler
from recovery.controller.incident_sweeper import FIRST_AFTER_SECONDS, SWEEP_SECONDS
from recovery.controller.leadership import Leadership, SoleLeader
from recovery.controller.leadership_guard import LeadershipTerm
from recovery.controller.reconciler import InvariantError, LedgerUnreadableError, RestlessGroupError
from recovery.controller.runner import Controller
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Progress, Snapshot, UndecodableObject
from recovery.core.model.ledger import Ledger, LedgerObject
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.ports import (
    JOBS,
    RECOVERY_INCIDENTS,
    ApiClient,
    ForbiddenError,
    NamespaceTerminatingError,
    NotLeadingError,
    TryLaterError,
    UnknownOutcomeError,
)
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.fakes import Ears, LedgersApi
from tests.unit.controller.test_queue import Chance

ONE, OTHER = GroupKey("ml", "one"), GroupKey("ml", "other")


class Keys:
    """`ports.GroupStore` that knows which groups there are, and no more."""

    def __init__(self, *keys: GroupKey) -> None:
        self.known = list(keys)
        self.ledgers: list[LedgerObject] = []
        self.ledgers_gone: list[GroupKey] = []
        self.is_synced = True
        self.changed: Callable[[GroupKey], None] | None = None

    def change(self, key: GroupKey) -> None:
        assert self.changed is not None, "nobody listens yet"
        self.changed(key)

    def synced(self) -> bool:
        return self.is_synced

    def keys(self) -> Iterable[GroupKey]:
        return iter(self.known)

    def subscribe(self, changed: Callable[[GroupKey], None]) -> None:
        self.changed = changed

    def snapshot(self, key: GroupKey) -> Snapshot:
        raise NotImplementedError

    def progress(self, key: GroupKey) -> Progress | None:
        raise NotImplementedError

    def policies(self, namespace: str) -> PolicySet:
        raise NotImplementedError

    def every_policy(self) -> Iterable[PolicyFacts]:
        return ()

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        raise NotImplementedError

    def stale(self) -> Mapping[str, datetime]:
        return {}

    def undecodable(self) -> Mapping[str, int]:
        return {}

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        return ()

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return self.ledgers

    def collected(self) -> Iterable[GroupKey]:
        return self.ledgers_gone

    def nodes(self) -> Mapping[str, NodeFacts]:
        return {}

    def config(self) -> ConfigFacts | None:
        return None

    async def read_config_live(self) -> ConfigFacts | None:
        return None

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return None

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        raise NotImplementedError

    async def read_live(self, key: GroupKey) -> Snapshot:
        raise NotImplementedError

    async def read_policies_live(self, namespace: str) -> PolicySet:
        raise NotImplementedError

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        raise NotImplementedError


class FakeReconciler:
    """Stands in for the Reconciler: takes as long as it is told, and fails when it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[GroupKey, float]] = []
        self.ended: list[tuple[GroupKey, float]] = []
        self.seconds = 0.0
        self.failures: dict[GroupKey, list[BaseException]] = {}
        self.again_in: dict[GroupKey, list[float]] = {}
        self.at_once = 0
        self.most_at_once = 0

    async def reconcile(self, key: GroupKey) -> datetime | None:
        clock = VirtualClock()
        self.begun.append((key, clock.monotonic_seconds()))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if self.failures.get(key):
            raise self.failures[key].pop(0)
        self.ended.append((key, clock.monotonic_seconds()))
        again = self.again_in.get(key)
        return clock.now() + timedelta(seconds=again.pop(0)) if again else None

    def ledgers_written(self) -> Iterator[LedgerObject]:
        return iter(())

    def log_keys(self, key: GroupKey) -> dict[str, str]:
        return {"job": str(key), "incident": "i-1"}

    def of(self, key: GroupKey) -> list[float]:
        """When reconciles of that group began."""
        return [at for reconciled, at in self.begun if reconciled == key]


class PinnedPolicy:
    """`Leadership` by the test's word."""

    def __init__(self) -> None:
        self.won = asyncio.Event()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.released_at: list[float] = []
        self.term: LeadershipTerm | None = None

    def follow(self, current: Callable[[], bool]) -> None: ...

    async def acquire(self) -> LeadershipTerm:
        await self.won.wait()
        self.won.clear()
        self.lost = asyncio.get_running_loop().create_future()
        self.term = LeadershipTerm(VirtualClock(), renewed_at=VirtualClock().monotonic_seconds())
        return self.term

    async def hold(self, term: LeadershipTerm) -> str:
        why = await self.lost
        term.end()
        return why

    async def release(self) -> None:
        self.released_at.append(VirtualClock().monotonic_seconds())


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *keys: GroupKey, leadership: Leadership | None = None) -> None:
        """`leadership` None: it leads from the beginning."""
        self.reconciles = FakeReconciler()
        self.apis: list[ApiClient] = []
        """What each term's reconciles write through."""
        monkeypatch.setattr(runner, "Reconciler", self._reconciler)
        self.store = Keys(*keys)
        self.ears = Ears()
        self.stop = asyncio.Event()
        self.api = LedgersApi()
        self.controller = Controller(
            api=self.api,
            store=self.store,
            clock=VirtualClock(),
            entropy=Chance(),
            observer=self.ears,
            leadership=leadership or SoleLeader(VirtualClock()),
        )

    def _reconciler(self, *, api: ApiClient, **_: object) -> FakeReconciler:
        self.apis.append(api)
        return self.reconciles

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.controller.run(self.stop))
        try:
            yield task
        finally:
            self.stop.set()
            await asyncio.wait({task}, timeout=60)
            ended = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert ended, "it does not end"
        await task


# --- the beginning ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_reconciled_before_all_caches_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.is_synced = False
    async with scene.running():
        await asyncio.sleep(30)
        assert scene.reconciles.begun == []
        assert scene.store.changed is None
        scene.store.is_synced = True
        await asyncio.sleep(1)
        assert len(scene.reconciles.of(ONE)) == 1


@virtual_time
async def test_a_stop_before_the_caches_are_synced_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.is_synced = False
    async with scene.running() as task:
        await asyncio.sleep(30)
        scene.stop.set()
        await asyncio.sleep(1)
        assert task.done()
    assert scene.reconciles.begun == []


# --- beside the reconciles -------------------------------------------------------------------------------------------


@virtual_time
async def test_who_leads_sweeps_the_records_of_incidents_and_who_stands_by_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE, leadership=(elected := PinnedPolicy()))
    async with scene.running():
        await asyncio.sleep(2 * FIRST_AFTER_SECONDS)
        assert scene.api.sent("list", RECOVERY_INCIDENTS) == []
        elected.won.set()
        await asyncio.sleep(FIRST_AFTER_SECONDS + 1)
        assert len(scene.api.sent("list", RECOVERY_INCIDENTS)) == 1
        elected.lost.set_result("another one leads")
        await asyncio.sleep(2 * SWEEP_SECONDS)
        assert len(scene.api.sent("list", RECOVERY_INCIDENTS)) == 1


# --- level-triggered -------------------------------------------------------------------------------------------------


@virtual_time
async def test_every_group_is_reconciled_at_first_and_every_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE, OTHER)
    async with scene.running():
        await asyncio.sleep(1)
        scene.store.known.append(late := GroupKey("ml", "late"))
        await asyncio.sleep(1300)
        for key, reconciles in ((ONE, 3), (OTHER, 3), (late, 2)):
            assert [round(at / 600) for at in scene.reconciles.of(key)] == [0, 1, 2][-reconciles:]


@virtual_time
async def test_a_ledger_whose_job_went_while_nobody_led_is_reconciled_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    for key in (ONE, OTHER):
        ledger = LedgerObject(f"{key.name}-uid", key.namespace, "group", "1", "uid", key.name, Ledger())
        scene.store.ledgers.append(ledger)
    async with scene.running():
        await asyncio.sleep(1)
        assert sorted(key for key, _ in scene.reconciles.begun) == [ONE, OTHER]


@virtual_time
async def test_a_group_whose_ledger_vanished_as_well_is_reconciled_by_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.ledgers_gone.append(OTHER)
    async with scene.running():
        await asyncio.sleep(1)
        assert sorted(key for key, _ in scene.reconciles.begun) == [ONE, OTHER]


@virtual_time
async def test_a_change_is_reconciled_within_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    async with scene.running():
        await asyncio.sleep(10)
        scene.store.change(ONE)
        scene.store.change(ONE)
        await asyncio.sleep(1)
        assert [round(at, 3) for at in scene.reconciles.of(ONE)] == [0.005, 10.005]


@virtual_time
async def test_a_reconcile_is_repeated_when_it_asked_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.again_in[ONE] = [60.0, -5.0]
    async with scene.running():
        await asyncio.sleep(100)
        assert [round(at) for at in scene.reconciles.of(ONE)] == [0, 60, 60], "a time that has passed is now"


@virtual_time
async def test_reconciles_at_once_are_bounded_and_never_two_at_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [GroupKey("ml", f"job-{number}") for number in range(300)]
    scene = Scene(monkeypatch, *keys)
    scene.reconciles.seconds = 1
    async with scene.running():
        await asyncio.sleep(0.5)
        scene.store.change(keys[0])
        assert scene.reconciles.at_once == 256
        await asyncio.sleep(10)
        assert scene.reconciles.most_at_once == 256
        assert {key for key, _ in scene.reconciles.ended} == set(keys)
        first, second = scene.reconciles.of(keys[0])
        assert second >= first + 1


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        ZeroDivisionError("a bug"),
        InvariantError("Epoch: goes from 0 to 5"),
        LedgerUnreadableError("schemaVersion 2"),
        RestlessGroupError("changed"),
        TryLaterError("later", status=429),
        ForbiddenError("no", status=403),
        UnknownOutcomeError("lost"),
        asyncio.CancelledError("of a future that it waited for"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_one_groups_failure_never_stops_the_others_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    @virtual_time
    async def play() -> None:
        scene = Scene(monkeypatch, ONE, OTHER)
        scene.reconciles.failures[ONE] = [failure, failure]
        async with scene.running() as task:
            await asyncio.sleep(10)
            scene.store.change(OTHER)
            await asyncio.sleep(10)
            assert not task.done()
            assert [round(at, 3) for at in scene.reconciles.of(ONE)] == [0.005, 0.105, 0.305]
            assert len([key for key, _ in scene.reconciles.ended if key == OTHER]) == 2
            name = type(failure).__name__
            assert [error for key, error in scene.ears.finished if key == ONE] == [name, name, None]

    play()


@virtual_time
async def test_what_is_forbidden_is_a_warning_and_what_stays_so_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that has just started has not read the roles yet, however long there was none before."""
    scene = Scene(monkeypatch, ONE)
    failures: list[Exception] = [TryLaterError("gone")] * 20
    scene.reconciles.failures[ONE] = [*failures, *[ForbiddenError("no", status=403)] * 4]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(900)
    # A group that fails is reconciled every half minute.
    assert [line["log_level"] for line in said if line.get("error") == "no"] == ["warning", "warning", "error", "error"]


@virtual_time
async def test_what_goes_with_its_namespace_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [NamespaceTerminatingError("it is being terminated", status=403)]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(5)
    assert [line["log_level"] for line in said if line.get("error")] == ["info"]


@virtual_time
async def test_the_line_of_a_reconcile_that_failed_names_the_job_and_its_open_incident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [
        TryLaterError("gone"),
        RestlessGroupError("it changes"),
        LedgerUnreadableError("it is newer"),
        InvariantError("no"),
        ValueError("a bug"),
        NotLeadingError("the term is over"),
    ]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(300)
    lines = [line for line in said if "error" in line]
    assert [(line["job"], line["incident"]) for line in lines] == 6 * [("ml/one", "i-1")]


@virtual_time
async def test_success_makes_the_next_failure_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [ValueError("one"), ValueError("two"), ValueError("three")]
    async with scene.running():
        await asyncio.sleep(5)
        scene.reconciles.failures[ONE] = [ValueError("another")]
        scene.store.change(ONE)
        await asyncio.sleep(5)
        assert [round(at, 3) for at in scene.reconciles.of(ONE)][-2:] == [5.005, 5.105]


# --- the end ---------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_stop_lets_the_reconcile_in_progress_finish_and_begins_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.store.change(OTHER)
        scene.store.change(ONE)
        scene.stop.set()
        await asyncio.sleep(4)
        assert not task.done()
        await asyncio.sleep(2)
        assert task.done()
    assert scene.reconciles.ended == [(ONE, 10.005)]
    assert scene.reconciles.of(OTHER) == []


@virtual_time
async def test_a_reconcile_that_never_ends_is_cut_off_before_the_process_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 1e6
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(21)
        assert task.done()
    assert scene.reconciles.ended == []


@virtual_time
async def test_the_same_when_more_groups_wait_than_may_be_reconciled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *(GroupKey("ml", f"job-{number}") for number in range(300)))
    scene.reconciles.seconds = 1e6
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(21)
        assert task.done()
    assert len(scene.reconciles.begun) == 256


@virtual_time
async def test_depth_is_that_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *(GroupKey("ml", f"job-{number}") for number in range(300)))
    scene.reconciles.seconds = 100
    async with scene.running():
        await asyncio.sleep(1)
        assert scene.controller.queue_depth == 300 - 257, "256 are looked at, one waits for its turn"
        scene.reconciles.seconds = 0
        await asyncio.sleep(150)
        assert scene.controller.queue_depth == 0


# --- standing by and leading -----------------------------------------------------------------------------------------


@virtual_time
async def test_a_standby_reconciles_nothing_and_at_everything_once_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    scene = Scene(monkeypatch, ONE, OTHER, leadership=terms)
    async with scene.running():
        await asyncio.sleep(60)
        scene.store.change(ONE)
        await asyncio.sleep(3600)
        assert (scene.reconciles.begun, scene.controller.queue_depth, scene.ears.leads) == ([], 0, [])
        terms.won.set()
        await asyncio.sleep(1)
        assert {key for key, _ in scene.reconciles.ended} == {ONE, OTHER}
        assert scene.ears.leads == [True]
        scene.store.change(ONE)
        await asyncio.sleep(1)
        assert len(scene.reconciles.of(ONE)) == 2
    assert scene.ears.leads == [True, False]


@virtual_time
async def test_nobody_stands_for_election_before_its_caches_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.store.is_synced = False
    async with scene.running():
        await asyncio.sleep(60)
        assert terms.term is None
        scene.store.is_synced = True
        await asyncio.sleep(1)
        assert scene.ears.leads == [True]


@virtual_time
async def test_who_loses_the_lease_drops_everything_at_once_and_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, OTHER, leadership=terms)
    scene.reconciles.seconds = 100
    with capture_logs() as said:
        async with scene.running() as task:
            await asyncio.sleep(5)
            scene.store.change(ONE)
            assert scene.reconciles.at_once == 2
            terms.lost.set_result("two holds the lease")
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            assert scene.reconciles.at_once == 0
            assert not task.done()
            scene.store.change(ONE)
            await asyncio.sleep(3600)
            assert (len(scene.reconciles.begun), scene.reconciles.ended, scene.controller.queue_depth) == (2, [], 0)
            assert scene.ears.leads == [True, False]
            terms.won.set()
            await asyncio.sleep(1)
            assert scene.reconciles.at_once == 2, "every group is looked at in the new term"
            scene.stop.set()
    events = [line["event"] for line in said]
    assert events == [
        "all caches are synced; watching",
        "leading",
        "no longer leading: two holds the lease",
        "leading",
        "no longer leading: asked to stop",
    ]


@virtual_time
async def test_what_a_reconcile_of_an_ended_term_still_writes_is_stopped_even_in_the_next_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    async with scene.running():
        await asyncio.sleep(1)
        await api_verbs.delete(scene.apis[0], JOBS, "train", namespace="ml")
        terms.lost.set_result("two holds the lease")
        terms.won.set()
        await asyncio.sleep(1)
        first, second = scene.apis
        with pytest.raises(NotLeadingError):
            await api_verbs.delete(first, JOBS, "train", namespace="ml")
        await api_verbs.delete(second, JOBS, "train", namespace="ml")


@virtual_time
async def test_a_reconcile_that_may_not_write_any_more_is_no_failure_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [NotLeadingError("patch recoverygroups: not sent")]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(60)
            assert len(scene.reconciles.of(ONE)) == 1
            assert scene.ears.finished == [(ONE, None)]
    assert {line["log_level"] for line in said} == {"info"}


@virtual_time
async def test_the_lease_is_released_when_the_reconciles_in_progress_are_over_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(5)
        assert terms.released_at == []
        assert terms.term is not None
        assert terms.term.lasts, "the look may write to its end"
        await asyncio.sleep(1)
        assert task.done()
        assert not terms.term.lasts
    [(_, ended_at)] = scene.reconciles.ended
    assert terms.released_at == [ended_at]


@virtual_time
async def test_a_lease_that_is_lost_during_the_stop_ends_the_reconciles_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(1)
        terms.lost.set_result("two holds the lease")
        await asyncio.sleep(1)
        assert task.done()
    assert scene.reconciles.ended == []


@virtual_time
async def test_a_standby_that_is_told_to_stop_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE, leadership=PinnedPolicy())
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(0.001)
        assert task.done()
    assert scene.ears.leads == []


# --- what runs beside the reconciles ---------------------------------------------------------------------------------


async def _ended(scene: Scene) -> BackgroundTaskError:
    """What the controller ends with, by itself."""
    with pytest.raises(BackgroundTaskError) as raised:
        await asyncio.wait_for(scene.controller.run(scene.stop), 60)
    return raised.value


@virtual_time
async def test_a_resync_that_fails_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    monkeypatch.setattr(scene.store, "collected", lambda: 1 / 0)
    error = await _ended(scene)
    assert (error.task, error.why) == ("resync", "ZeroDivisionError: division by zero")


@virtual_time
async def test_a_resync_that_fails_ends_the_reconciles_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 3600
    asyncio.get_running_loop().call_later(5, lambda: monkeypatch.setattr(scene.store, "collected", lambda: 1 / 0))
    with pytest.raises(BackgroundTaskError):
        await asyncio.wait_for(scene.controller.run(scene.stop), 601)
    assert scene.reconciles.at_once == 0


@virtual_time
async def test_a_review_of_the_fleet_that_fails_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: FleetReconciler) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(FleetReconciler, "run", fails)
    assert (await _ended(Scene(monkeypatch, ONE))).task == "fleet review"


@virtual_time
async def test_a_review_that_finds_its_term_over_leaves_the_end_to_the_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def returns(_: FleetReconciler) -> None:
        return

    monkeypatch.setattr(FleetReconciler, "run", returns)
    scene = Scene(monkeypatch, ONE)
    async with scene.running():
        await asyncio.sleep(700)
    assert len(scene.reconciles.of(ONE)) == 2


@virtual_time
async def test_a_bug_around_a_reconcile_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group would not be queued again, and nobody would know."""
    scene = Scene(monkeypatch, ONE)
    monkeypatch.setattr(scene.ears, "reconcile_finished", lambda *_: 1 / 0)
    assert (await _ended(scene)).task == "reconciles"
