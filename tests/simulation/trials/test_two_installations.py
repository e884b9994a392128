"""Two installations of the controller in two namespaces, each with a Lease and a leader of its own, on one cluster."""

import msgspec
import pytest

from recovery.controller.lease import LEASE_NAME
from recovery.ports import JOBS, LEASES, RECOVERY_CONFIGS, RECOVERY_GROUPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import QUIET, in_world, second, states, with_faults, writes

LOST, LOST_AGAIN = in_world(FaultKind.POD_KILL, 100.0), in_world(FaultKind.POD_KILL, 200.0, number=1)
HELD_SECONDS = 3 * 15
TWO = msgspec.structs.replace(QUIET, replicas=2, installations=2)


def elections(outcome: TrialOutcome) -> list[str]:
    """The namespaces of the Leases, oldest first."""
    leases = (outcome.evidence.server.find(LEASES, LEASE_NAME, f"recovery-system-{number}") for number in range(2))
    made = [lease["metadata"] for lease in leases if lease is not None]
    return [each["namespace"] for each in sorted(made, key=lambda each: (each["creationTimestamp"], each["uid"]))]


def conditions(outcome: TrialOutcome) -> list[Body]:
    """The conditions of the RecoveryConfig as they were before the controllers stopped."""
    found = [body for at, _, body in states(outcome, RECOVERY_CONFIGS) if at < 900.0]
    return list(found[-1].get("status", {}).get("conditions", ()))


def replica_of(namespace: str) -> str:
    return f"controller-{namespace.rpartition('-')[2]}"


def writers(outcome: TrialOutcome, since: float, until: float = 900.0) -> set[str]:
    return {each.actor for each in writes(outcome) if since <= second(each.at) <= until}


def restarts(outcome: TrialOutcome) -> int:
    """How many Jobs of the group were deleted."""
    return sum(type_ == "DELETED" for _, type_, _ in states(outcome, JOBS))


def test_both_see_the_loss_and_one_restarts_the_group_while_the_other_holds() -> None:
    outcome = run_trial(with_faults(LOST, LOST_AGAIN, plan=TWO))
    older, younger = map(replica_of, elections(outcome))
    assert outcome.violations == ()
    assert restarts(outcome) == 2, "one for each loss"
    assert writers(outcome, since=101.0) == {older}
    [said] = conditions(outcome)
    assert (said["type"], said["status"], said["reason"]) == ("SecondInstallation", "True", "OlderLeaseActs")
    assert f"the Lease of namespace {elections(outcome)[1]}, " in said["message"]
    samples = outcome.evidence.metrics
    assert [samples[each]["recovery_leader"] for each in (older, younger)] == [1, 0]
    assert [samples[each]["recovery_holds_for_another_controller"] for each in (older, younger)] == [0, 1]


def test_each_ledger_names_the_lease_of_its_writer() -> None:
    outcome = run_trial(with_faults(LOST, plan=TWO))
    named = [body["status"]["writer"] for _, _, body in states(outcome, RECOVERY_GROUPS) if body.get("status")]
    assert named[-1]["namespace"] == elections(outcome)[0]
    assert set(named[-1]) == {"namespace", "uid", "createdAt", "durationSeconds"}


@pytest.mark.parametrize("index", [0, 1])
def test_the_other_installation_takes_over_when_one_is_gone_for_long(index: int) -> None:
    gone = in_world(FaultKind.PROCESS_KILL, 150.0, 200.0, number=1, indexes=(index,))
    late = in_world(FaultKind.POD_KILL, 150.0 + HELD_SECONDS + 15.0, number=2)
    outcome = run_trial(with_faults(LOST, gone, late, plan=TWO))
    assert outcome.violations == ()
    assert restarts(outcome) == 2
    assert writers(outcome, since=215.0, until=300.0) == {f"controller-{1 - index}"}


def test_replicas_of_one_installation_hand_over_without_a_hold() -> None:
    killed = in_world(FaultKind.PROCESS_KILL, 150.0, 100.0, number=1, indexes=(0, 1))
    outcome = run_trial(with_faults(LOST, killed, LOST_AGAIN, replicas=2))
    assert outcome.violations == ()
    assert restarts(outcome) == 2
