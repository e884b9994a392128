"""A user deletes the Job that trains, or its JobSet. The time until all ranks run again is booked."""

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


def test_so_is_the_deletion_of_its_jobset() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_DELETE_JOBSET, FAULT))
    (record,) = (each["spec"] for each in found(outcome, RECOVERY_INCIDENTS))
    assert (record["class"], record["cause"], record["outcome"]) == ("PodDeleted", "JobDeleted", "Recovered")
    assert [attempt["action"] for attempt in record["attempts"]] == ["Adopted"]
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()


def test_an_incident_outlasts_its_jobset() -> None:
    """The JobSet is deleted while the lost group is on its way down."""
    lost = in_world(FaultKind.POD_KILL, FAULT - 0.5, number=1)
    outcome = outcome_of(lost, in_world(FaultKind.USER_DELETE_JOBSET, FAULT))
    (record,) = (each["spec"] for each in found(outcome, RECOVERY_INCIDENTS))
    assert record["outcome"] == "Recovered"
    assert [attempt["action"] for attempt in record["attempts"]] == ["RecreateGroup", "Adopted"]
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()
