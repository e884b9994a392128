"""What `status` and `explain` say about a failed job that trains again, or is about to."""

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOB_SETS
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_status import row
from tests.unit.fake_api import Object

MESSAGE = "The job had failed, and its JobSet was deleted by a client."
LEDGER: Object = {
    "schemaVersion": SCHEMA_VERSION,
    "cause": "Exit1",
    "message": "closed",
    "totals": {"incidents": 1, "restarts": 3},
    "handled": {"terminalJobSetUID": "failed-before"},
    "conditions": [
        {
            "type": "TrainsAgain",
            "status": "True",
            "reason": "JobSetCreatedAgain",
            "message": MESSAGE,
            "lastTransitionTime": "2026-11-02T08:59:00Z",
        }
    ],
}


def jobset(cluster: PlainCluster) -> Object:
    found: Object = cluster.objects[JOB_SETS.plural][0]
    return found


def test_status_shows_it_as_the_cause_and_its_totals_go_on(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", LEDGER)
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["CAUSE"], cells["RESTARTS"]) == ("Healthy", "TrainsAgain", "3")
    assert (cells["NEXT"], cells["REASON"]) == ("recovery explain llm", MESSAGE)


def test_explain_says_how_to_stop_it(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    jobset(cluster)["spec"]["ttlSecondsAfterFinished"] = 60
    cluster.add_group("llm", LEDGER)
    [line] = [each for each in section(explain("llm"), "Now") if "had failed" in each]
    assert line.startswith("The job had failed, and its JobSet was deleted by its ttlSecondsAfterFinished (60) or by a")
    assert "To stop it, suspend or delete the TrainJob" in line


def test_explain_of_a_failed_job_says_when_it_will(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    jobset(cluster)["spec"]["ttlSecondsAfterFinished"] = 60
    jobset(cluster)["status"] = {"terminalState": "Failed"}
    assert (
        "ttlSecondsAfterFinished deletes the JobSet 60 s after its end, and Trainer then trains the job again: remove "
        "the field from the JobSet to keep the job failed"
    ) in section(explain("llm"), "Now")


def test_a_failed_job_without_a_ttl_stays_failed(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    jobset(cluster)["status"] = {"terminalState": "Failed"}
    assert "again" not in " ".join(section(explain("llm"), "Now"))
