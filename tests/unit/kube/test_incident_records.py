"""A closed incident is read from its record, by its id; where ids repeat, the newest is meant."""

from typing import Any

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Outcome
from recovery.kube.incident_records import read_incident
from tests.unit.kube.store_world import Body, listed
from tests.unit.kube.testing import ScriptedApi

LLM = GroupKey("default", "llm")


def record(began_at: str, *, group: str = "llm", **changes: Any) -> Body:
    spec = {
        "group": group,
        "id": "4f2f1c0a-1",
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
    """Somebody deleted the RecoveryGroup in between, and its incidents count from 1 again."""
    api = ScriptedApi()
    api.objects["recoveryincidents", ""] = listed(
        "RecoveryIncident",
        record("2026-11-02T09:00:00Z", reason="older"),
        record("2026-11-02T11:00:00Z", reason="newest", outcome="Superseded"),
        record("2026-11-02T10:00:00Z", reason="old"),
        record("2026-11-02T11:30:00Z", reason="of another job", group="other"),
    )
    found = await read_incident(api, LLM, "4f2f1c0a-1")
    assert found is not None
    assert found.closing is not None
    assert (found.message, found.closing.outcome) == ("newest", Outcome.SUPERSEDED)
    assert await read_incident(api, LLM, "4f2f1c0a-2") is None
