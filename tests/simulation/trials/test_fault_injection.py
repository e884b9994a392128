"""World faults in places that an earlier fault has already changed."""

from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.small import happening, in_world, outcome_of


def test_a_machine_is_taken_away_once_though_its_pod_is_there_for_longer() -> None:
    first = in_world(FaultKind.NODE_REMOVE, 100.0, 20.0, number=0)
    outcome = outcome_of(first, in_world(FaultKind.NODE_REMOVE, 100.1, 20.0, number=1))
    assert happening(outcome, FaultKind.NODE_REMOVE).fault.key == first.key
    assert outcome.violations == ()
