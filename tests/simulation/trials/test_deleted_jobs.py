"""A user deletes the Job that trains. The group is down until JobSet has created it again, and that time is booked."""

from recovery.ports import JOBS, PODS, RECOVERY_INCIDENTS
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.injected import FAULT, found, recreated, runs_at_the_end
from tests.simulation.trials.small import in_world, outcome_of, writes


def test_it_is_one_uncharged_incident_of_the_platform() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_DELETE_JOB, FAULT))
    (record,) = (each["spec"] for each in found(outcome, RECOVERY_INCIDENTS))
    assert (record["class"], record["cause"], record["outcome"]) == ("PodDeleted", "JobDeleted", "Recovered")
    assert [attempt["action"] for attempt in record["attempts"]] == ["Adopted"]
    assert "charged" not in record
    assert not {write.request.resource for write in writes(outcome)} & {JOBS, PODS}, "the platform restarts it"
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()


def test_its_seconds_are_booked_from_the_deletion_until_all_run_again() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_DELETE_JOB, FAULT))
    (record,) = (each["spec"] for each in found(outcome, RECOVERY_INCIDENTS))
    down = record["idleGpuSeconds"] / record["gpus"]
    assert recreated(outcome, JOBS) - FAULT < down < 2.5
