"""A closed incident is read from its record by its id. Of records with the same id, the newest counts."""

from typing import Any

import pytest

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import SCHEMA_VERSION, Outcome
from recovery.kube.incident_records import read_incident, read_records
from tests.unit.kube.store_world import Body, listed
from tests.unit.kube.testing import ScriptedApi

LLM = GroupKey("default", "llm")


def record(began_at: str, *, group: str = "llm", **changes: Any) -> Body:
    spec = {
        "schemaVersion": SCHEMA_VERSION,
        "group": group,
        "id": "4f2f1c0a-1",
        "step": {"type": "Returning"},
        "number": 1,
        "startedAt": began_at,
        "detectedAt": began_at,
        "class": "PodDeleted",
        "cause": "rank 2 was deleted",
        "mode": "Enforce",
        "terms": {
            "policyName": "default",
            "policyUID": "policy-1",
            "policyGeneration": 1,
            "restart": "None",
            "budgetLimit": 10,
            "budgetWindowSeconds": 86400,
            "startTimeoutSeconds": 900,
        },
        "outcome": "Recovered",
        "outcomeReason": "AllRanksReady",
        "endedAt": "2026-11-02T12:00:00Z",
        "idleGpuSeconds": 1,
        **changes,
    }
    name = f"{group}-4f2f1c0a-1-{began_at}"
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": began_at,
    }
    return {"metadata": metadata, "spec": spec}


async def test_of_several_records_of_one_id_the_newest_is_meant() -> None:
    """The RecoveryGroup was deleted in between, and its incidents count from 1 again."""
    api = ScriptedApi()
    api.objects["recoveryincidents", ""] = listed(
        "RecoveryIncident",
        record("2026-11-02T09:00:00Z", message="older"),
        record("2026-11-02T11:00:00Z", message="newest", outcome="Superseded"),
        record("2026-11-02T10:00:00Z", message="old"),
        record("2026-11-02T11:30:00Z", message="of another job", group="other"),
    )
    found = await read_incident(api, LLM, "4f2f1c0a-1")
    assert found is not None
    assert found.closing is not None
    assert (found.message, found.closing.outcome) == ("newest", Outcome.SUPERSEDED)
    assert await read_incident(api, LLM, "4f2f1c0a-2") is None


def shared(*numbers: tuple[int, int], **changes: Any) -> Body:
    """The record of the incidents with these numbers."""
    status = {
        "fingerprint": "PodDeleted/PodDeleted//llm-2",
        "numbers": [{"first": first, "last": last} for first, last in numbers],
        "count": sum(last - first + 1 for first, last in numbers),
        "startedAt": "2026-11-02T09:00:00Z",
        "latestStartedAt": "2026-11-02T11:00:00Z",
        "latestEvidence": "pod-2/lost",
        "endedAt": "2026-11-02T12:00:00Z",
        **changes,
    }
    return record("2026-11-02T09:00:00Z") | {"status": status}


async def test_one_that_shares_a_record_is_found_in_it() -> None:
    api = ScriptedApi()
    api.objects["recoveryincidents", ""] = listed("RecoveryIncident", shared((1, 3), (7, 7)))
    for number in (1, 2, 3, 7):
        found = await read_incident(api, LLM, f"4f2f1c0a-{number}")
        assert found is not None
        assert found.id == "4f2f1c0a-1"
    for other in ("4f2f1c0a-4", "ffffffff-2", "4f2f1c0a-", "4f2f1c0a-" + "9" * 30):
        assert await read_incident(api, LLM, other) is None


@pytest.mark.parametrize(
    "wrong",
    [{"numbers": []}, {"count": "many"}, {"endedAt": "0001-01-01T00:00:00Z"}],
    ids=lambda each: next(iter(each)),
)
async def test_a_status_that_cannot_be_read_is_reported_and_nothing_is_made_of_it(wrong: dict[str, Any]) -> None:
    api = ScriptedApi()
    api.objects["recoveryincidents", ""] = listed("RecoveryIncident", shared((1, 3), **wrong))
    found = await read_records(api, "default")
    assert (found.records, len(found.undecodable)) == ((), 1)
