"""The invariant of the standing, with cases that break it and nearly break it.

The job has two ranks, of pods pod-1 and pod-2, which met at 20. Rank 1 is lost at 1000, and rank 0 hangs.
"""

import msgspec

from recovery.core.model.ledger import Ledger, Outcome
from recovery.core.model.standing import Broken, Standing
from recovery.ports import PODS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.standing import StandingConfirmed
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import GPUS, Case, closed, opened, replaces


def loses_a_rank(case: Case) -> None:
    """Its pod is deleted, and its Job replaces it."""
    case.lose_a_pod()
    case.trace(EventKind.RANK_LOST, "job-1", 1, "pod-2")
    case.trace(EventKind.RANK_HUNG, "job-1", 0, "pod-1")
    replaces(case)


def case_that_hangs(*, policy: bool = True) -> Case:
    case = Case(StandingConfirmed, policy=policy)
    loses_a_rank(case)
    return case


def saying(standing: Standing, ledger: Ledger | None = None) -> Ledger:
    return msgspec.structs.replace(ledger if ledger is not None else Ledger(), standing=standing)


def closes(case: Case, standing: Standing, outcome: Outcome = Outcome.OBSERVED, why: str = "LeftToKubernetes") -> None:
    """An incident about the loss is open from 1001, and closes at 1010."""
    case.now = 1001
    case.ledger(saying(Standing.BROKEN, opened(1000)))
    case.now = 1010
    after = closed(opened(1000), 1010, outcome, why)
    if standing is Standing.BROKEN and outcome is not Outcome.HELD:
        ended_at = after.current_incident.closing.ended_at if after.current_incident.closing is not None else None
        assert ended_at is not None
        broken = Broken(ended_at, ended_at, after.current_incident.id, "PodDeleted", GPUS)
        after = msgspec.structs.replace(after, broken=broken)
    case.ledger(saying(standing, after))


def stops_hanging(case: Case, seconds: float) -> None:
    case.now = seconds
    case.trace(EventKind.PROCESS_EXITED, "job-1", 0, "pod-1")
    case.fails(0, 134)


def books(case: Case, seconds: float) -> None:
    """The group was broken from 1010 on, between its incidents, and is no more. The ledger books that time."""
    ledger = closed(opened(1000), 1010, Outcome.OBSERVED, "LeftToKubernetes")
    idle = {**ledger.totals.idle_gpu_seconds, "Broken": seconds * GPUS}
    totals = msgspec.structs.replace(ledger.totals, idle_gpu_seconds=idle)
    case.ledger(saying(Standing.FORMING, msgspec.structs.replace(ledger, totals=totals)))


def test_a_group_that_hangs_without_an_incident_is_found() -> None:
    assert "no ledger says that the group is broken" in case_that_hangs().end()[0]


def test_an_incident_that_leaves_a_hanging_group_healthy_is_found() -> None:
    case = case_that_hangs()
    closes(case, Standing.UNKNOWN)
    assert "no ledger says that the group is broken" in case.end()[0]


def test_a_group_that_is_called_broken_is_no_violation() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN)
    assert case.end() == []


def test_a_group_that_stops_hanging_soon_is_no_violation() -> None:
    case = case_that_hangs()
    stops_hanging(case, 1004)
    assert case.end() == []


def test_a_group_without_a_policy_is_not_judged() -> None:
    assert case_that_hangs(policy=False).end() == []


def test_an_end_from_before_the_policy_is_not_judged() -> None:
    case = Case(StandingConfirmed, policy=False)
    loses_a_rank(case)
    case.now = 1001
    case.policy("Enforce")
    assert case.end() == []


def test_an_end_that_an_incident_witnessed_is_judged_after_the_policy_has_changed() -> None:
    case = case_that_hangs()
    case.now = 1001
    case.ledger(saying(Standing.BROKEN, opened(1000, mode="Observe")))
    case.now = 1002
    case.policy("Observe")
    case.now = 1010
    case.ledger(closed(opened(1000, mode="Observe"), 1010, Outcome.OBSERVED, "ObserveMode"))
    assert "no ledger says that the group is broken" in case.end()[0]


def test_an_end_while_the_controllers_were_held_up_is_not_judged() -> None:
    case = Case(StandingConfirmed)
    case.hits(FaultKind.PROCESS_FREEZE, actor="controller-0", seconds=30)
    loses_a_rank(case)
    assert case.end() == []


def test_ranks_that_a_terminating_one_had_met_are_not_judged() -> None:
    """The pod of rank 1 was asked to terminate at 30. It met rank 0 at 40."""
    case = Case(StandingConfirmed)
    case.now = 30
    case.delete(PODS, "llm-node-0-1", by="user")
    case.now = 40
    case.trace(EventKind.ROUND_FORMED, "job-1")
    case.now = 1000
    loses_a_rank(case)
    assert case.end() == []


def test_met_while_ranks_hang_is_found() -> None:
    case = case_that_hangs()
    closes(case, Standing.MET)
    assert any("says that all ranks have met" in each for each in case.end())


def test_met_before_the_loss_is_no_violation() -> None:
    case = Case(StandingConfirmed)
    case.ledger(saying(Standing.MET))
    case.now = 1100
    loses_a_rank(case)
    case.now = 1104
    case.ledger(saying(Standing.BROKEN))
    assert case.end() == []


def test_a_held_incident_that_closes_while_ranks_hang_is_found() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN, Outcome.HELD, "RunsWholeAgain")
    assert "closes as if the group ran whole again" in case.end()[0]


def test_a_held_incident_that_closes_once_no_rank_hangs_is_no_violation() -> None:
    case = case_that_hangs()
    case.now = 1001
    case.ledger(saying(Standing.BROKEN, opened(1000)))
    stops_hanging(case, 1600)
    case.now = 1603
    case.ledger(saying(Standing.FORMING, closed(opened(1000), 1603, Outcome.HELD, "RunsWholeAgain")))
    assert case.end() == []


def test_broken_where_no_rank_hangs_is_found() -> None:
    case = Case(StandingConfirmed)
    case.ledger(saying(Standing.BROKEN))
    assert "no rank hangs" in case.end()[0]


def test_broken_after_the_last_rank_that_hung_has_ended_is_found() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN)
    stops_hanging(case, 1600)
    assert "no rank hangs" in case.end()[0]


def test_broken_until_the_end_of_the_hang_is_seen_is_no_violation() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN)
    case.now = 1600
    case.trace(EventKind.PROCESS_EXITED, "job-1", 0, "pod-1")
    case.now = 1700  # Its node was silent.
    case.fails(0, 134)
    case.now = 1704
    books(case, 690)
    assert case.end() == []


def test_a_wrong_word_of_a_moment_is_found() -> None:
    case = Case(StandingConfirmed)
    case.ledger(saying(Standing.BROKEN))
    case.now = 1001
    case.ledger(saying(Standing.MET))
    assert "no rank hangs" in case.end()[0]


def test_broken_while_a_process_outlives_its_pod_is_no_violation() -> None:
    """A pod on a node that is cut off was removed from the API server, and its process trains on."""
    case = Case(StandingConfirmed)
    case.trace(EventKind.PROCESS_STARTED, "job-1", 1, "pod-2")
    case.drop(PODS, "llm-node-0-1", by="controller-0")
    case.ledger(saying(Standing.BROKEN))
    assert case.end() == []


def test_idle_seconds_of_a_broken_group_that_are_not_booked_are_found() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN)
    stops_hanging(case, 1600)
    books(case, 0)
    assert "0.000 GPU-seconds are booked as Broken, and 16 GPUs hung for 590.000 s" in case.end()[0]


def test_idle_seconds_of_a_broken_group_that_are_booked_are_no_violation() -> None:
    case = case_that_hangs()
    closes(case, Standing.BROKEN)
    stops_hanging(case, 1600)
    books(case, 590)
    assert case.end() == []


def seems_to_break(met_at: float) -> Case:
    """The ranks had met at that time. Rank 0 hangs until 1600, beside the pod that replaces rank 1, and then seems to
    have left that one alone."""
    case = Case(StandingConfirmed, policy=True)
    case.now = met_at
    case.trace(EventKind.ROUND_FORMED, "job-1")
    case.now = 1000
    loses_a_rank(case)
    case.now = 1001
    case.ledger(saying(Standing.BROKEN))
    case.runs(1)
    case.trace(EventKind.PROCESS_STARTED, "job-1", 1, "pod-3")
    stops_hanging(case, 1600)
    return case


def test_a_set_that_only_seems_to_break_is_no_violation() -> None:
    """The API dates the meeting and the loss with one second, so rank 0 seems to have waited for the new pod."""
    assert seems_to_break(999.5).end() == []


def test_broken_after_the_end_of_ranks_that_had_met_for_longer_is_found() -> None:
    assert "no rank hangs" in seems_to_break(998.5).end()[0]


def test_broken_after_the_last_process_of_a_set_that_only_seems_to_break_is_found() -> None:
    case = seems_to_break(999.5)
    case.now = 1700
    case.trace(EventKind.PROCESS_EXITED, "job-1", 1, "pod-3")
    case.fails(1, 1)
    case.now = 1710
    case.ledger(saying(Standing.UNKNOWN))
    case.now = 1720
    case.ledger(saying(Standing.BROKEN))
    assert "no rank hangs" in case.end()[0]
