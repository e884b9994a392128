"""Under Observe, consecutive crashes of one kind share a record, and each is counted."""

import msgspec
import pytest

from recovery.core.incident import folding
from recovery.core.incident.folding import folds_with, recorded_alone
from recovery.core.model.folded_incidents import FoldedIncidents, NumberRange
from recovery.core.model.ledger import Incident, Ledger
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.core.plan.actions import CountIncidents, RecordIncident
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

HALF_AN_HOUR = 1800


class CrashLoop:
    """A group whose ranks crash and are restarted in place. The policy is Observe unless `controller` is given."""

    def __init__(self, controller: Controller | None = None) -> None:
        self.controller = observing() if controller is None else controller
        self.world: World = training(restart_policy="OnFailure", backoff_limit=100)
        self.now = 0.0

    def crash(self, *, rank: int = 2, code: int = 1, after: float = 60) -> None:
        """A rank crashes `after` seconds after the previous crash has ended, and runs again a second later."""
        self.now += after
        self.world = self.world.container_restarted(rank, code, self.now)
        for seconds in (1, 4, 30):
            self.controller.settle(self.world, self.now + seconds)
        self.now += 30

    @property
    def records(self) -> list[RecordIncident]:
        return [each for each in self.controller.done if isinstance(each, RecordIncident)]

    @property
    def of_their_own(self) -> list[int]:
        """Numbers of the incidents that have a record of their own."""
        return [each.incident.number for each in self.records if each.fold is None]

    @property
    def latest(self) -> FoldedIncidents:
        fold = self.records[-1].fold
        assert fold is not None, "the latest one has a record of its own"
        return fold


def test_ten_crashes_of_one_rank_are_one_record_that_counts_ten() -> None:
    loop = CrashLoop()
    for _ in range(10):
        loop.crash()
    assert loop.of_their_own == [1]
    assert (loop.latest.count, loop.latest.numbers) == (10, (NumberRange(1, 10),))
    assert loop.latest.would == {"RecreateGroup": 10}
    assert loop.latest.latest_started_at == loop.records[-1].incident.started_at


def test_each_of_them_is_counted_and_the_sums_of_the_record_are_those_of_the_ledger() -> None:
    loop = CrashLoop()
    for _ in range(4):
        loop.crash()
    totals = loop.controller.ledger.totals
    assert (totals.incidents, sum(totals.failures.values())) == (4, 4)
    counted = [each for each in loop.controller.done if isinstance(each, CountIncidents)]
    closed = [each for action in counted for each in action.closed]
    assert [each.number for each in closed if not each.broken] == [1, 2, 3, 4]
    hung = sum(sum(each.idle_gpu_seconds.values()) for each in closed if each.broken)
    assert hung == pytest.approx(totals.idle_gpu_seconds.get(BROKEN_SECONDS, 0.0))
    in_incidents = {phase: spent for phase, spent in totals.idle_gpu_seconds.items() if phase != BROKEN_SECONDS}
    assert loop.latest.idle_gpu_seconds == pytest.approx(in_incidents)
    assert loop.latest.enforce_estimate == totals.enforce_estimate
    assert loop.latest.restarts == totals.restarts
    (node,) = loop.latest.nodes.values()
    assert node.incidents == 4
    assert node.idle_gpu_seconds == pytest.approx(sum(in_incidents.values()))


@pytest.mark.parametrize(
    "other", [{"rank": 1}, {"code": 139}, {"after": HALF_AN_HOUR + 60}], ids=["rank", "cause", "after resetAfter"]
)
def test_another_rank_or_cause_or_one_that_comes_late_has_a_record_of_its_own(other: dict[str, int]) -> None:
    loop = CrashLoop()
    loop.crash()
    loop.crash(**other)
    assert loop.of_their_own == [1, 2]


def test_two_ranks_that_crash_in_turn_fold_into_two_records() -> None:
    loop = CrashLoop()
    for rank in (1, 2, 1, 2, 1):
        loop.crash(rank=rank)
    assert loop.of_their_own == [1, 2]
    assert loop.latest.numbers == (NumberRange(1, 1), NumberRange(3, 3), NumberRange(5, 5))
    assert [loop.latest.covers(number) for number in range(7)] == [False, True, False, True, False, True, False]


def test_under_enforce_each_incident_has_a_record_of_its_own() -> None:
    loop = CrashLoop(Controller(policy(Mode.ENFORCE, rules=())))
    loop.world = training().pod_gone(2, 60)
    loop.controller.reconcile(loop.world, 61)
    back = loop.world.job_deleted(61).recreated(65).all_ready(80)
    loop.controller.settle(back, 81)
    assert [each.fold for each in loop.records] == [None]
    assert loop.controller.ledger.folds == ()


def test_the_same_incident_is_never_added_twice() -> None:
    """If the controller crashes between the writes of record and ledger, the plan repeats on the earlier ledger."""
    loop = CrashLoop()
    loop.crash()
    before = loop.controller.ledger
    loop.crash()
    latest = loop.records[-1].incident
    again, fold = folds_with(before, latest)
    assert (again, fold) == (loop.controller.ledger.folds, loop.latest)
    assert folds_with(loop.controller.ledger, latest) == (again, fold), "it is in the fold already"


def test_where_the_record_cannot_be_shared_the_next_ones_share_the_new_one() -> None:
    loop = CrashLoop()
    loop.crash()
    loop.crash()
    alone = recorded_alone(loop.controller.ledger, loop.records[-1].incident)
    loop.controller.ledger = alone
    loop.crash()
    assert (loop.latest.count, loop.latest.numbers) == (2, (NumberRange(2, 3),))


@pytest.mark.parametrize("bound", ["MAX_RANGES", "MAX_NODES"])
def test_a_fold_that_is_full_goes_on_in_another_record(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, bound, 2 if bound == "MAX_RANGES" else 0)
    loop = CrashLoop()
    for rank in (1, 2, 1, 2, 1):
        loop.crash(rank=rank)
    assert loop.of_their_own == ([1, 2, 5] if bound == "MAX_RANGES" else [1, 2, 3, 4, 5])


def test_of_many_kinds_the_ledger_remembers_so_many_and_old_ones_are_dropped() -> None:
    loop = CrashLoop()
    for code in range(1, 20):
        loop.crash(code=code, after=30)
    assert len(loop.controller.ledger.folds) == folding.MAX_FOLDS
    loop.crash(after=2 * HALF_AN_HOUR)
    assert len(loop.controller.ledger.folds) == 1


def test_ends_of_another_kind_are_not_folded() -> None:
    """A deleted or finished job is a single event, not a loop."""
    loop = CrashLoop()
    loop.crash()
    closed = loop.records[-1].incident
    assert closed.closing is not None
    superseded: Incident = msgspec.structs.replace(
        closed, closing=msgspec.structs.replace(closed.closing, outcome="Superseded")
    )
    assert folds_with(Ledger(), superseded) == ((), None)
    assert closed.started_at == at(60)
