"""A node fails that a waiting job cannot do without. It is not quarantined, and the ledger says for which job."""

import pytest

from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.ledger_history import ledger_writes
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.test_storm import DEAD, ILL, fleets

pytestmark = pytest.mark.long

ILL_AT_SECONDS = 600.0
"""Long after `large` began to wait, so a controller must know of it by then."""


def trial(nodes_that_die: int) -> TrialOutcome:
    """Five nodes: `large` has four of them, `small` has one. Some of the four lose power, and later the node of `small`
    fails."""
    jobs = (
        JobPlan(namespace="team-a", name="large", runtime=PlannedRuntime.PREPARED, pods=4, policy=DEAD),
        JobPlan(namespace="team-a", name="small", runtime=PlannedRuntime.PREPARED, pods=1, policy=ILL),
    )
    die, ill = FaultKind.NODE_POWER_LOSS, FaultKind.NODE_UNHEALTHY
    faults = (
        *(
            TrialFault(
                FaultKey("world", rank, die), seconds=1200.0, at_seconds=120.0, job="team-a/large", indexes=(rank,)
            )
            for rank in range(nodes_that_die)
        ),
        TrialFault(
            FaultKey("world", 9, ill), seconds=300.0, at_seconds=ILL_AT_SECONDS, job="team-a/small", indexes=(0,)
        ),
    )
    return run_trial(
        TrialPlan(
            seed=7,
            jobs=jobs,
            faults=faults,
            active_seconds=1500.0,
            healing_seconds=900.0,
            config={"allow": {"cordon": True, "assumeDead": True}, "quarantine": {"maxPercent": 60}},
            spare_nodes=0,
        )
    )


def quarantined(outcome: TrialOutcome) -> set[str]:
    return {entry.node for fleet in fleets(outcome) for entry in fleet.quarantined}


def said_of_small(outcome: TrialOutcome) -> set[str]:
    return {write.after.message for write in ledger_writes(outcome.evidence) if write.group.name == "small"}


def test_a_node_that_another_group_waits_for_is_spared() -> None:
    outcome = trial(nodes_that_die=1)
    assert not outcome.violations, str(outcome.violations[0])
    assert quarantined(outcome) == set()
    told = [reason for reason in said_of_small(outcome) if "waiting group team-a/large needs this node" in reason]
    assert told
    assert all("4 nodes fit its pods, and it takes 4" in reason for reason in told)


def test_where_all_nodes_are_well_it_is_quarantined() -> None:
    outcome = trial(nodes_that_die=0)
    assert not outcome.violations, str(outcome.violations[0])
    assert len(quarantined(outcome)) == 1


def test_a_controller_that_takes_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.core.fleet.quarantine.spared", lambda *_: None)
    found = {(violation.invariant, str(violation.group)) for violation in trial(nodes_that_die=1).violations}
    assert found == {("LastNodesSpared", "team-a/large")}
