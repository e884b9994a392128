"""A crash loop that the JobSet keeps up: `explain` says what cannot be stopped and how a user stops it."""

import json

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOB_SETS
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_status import row
from tests.unit.fake_api import Object

RESTARTS = [f"2026-11-02T08:{minute}:00Z" for minute in (40, 45, 50)]


def looping(cluster: PlainCluster, *, adopted: list[str]) -> None:
    """A job that its JobSet restarted at these times, under a policy that allows two recoveries a day."""
    cluster.add_job("llm")
    rule = {"name": "again", "action": "RestartJobSetAndIgnoreMaxRestarts"}
    [jobset] = cluster.objects[JOB_SETS.plural]
    jobset["spec"]["failurePolicy"] = {"maxRestarts": 2, "rules": [rule]}
    cluster.add_policy(mode="Enforce", budget={"limit": 2, "window": "24h"})
    said: Object = {
        "type": "CrashLoop",
        "status": "True",
        "reason": "CrashLoop",
        "message": "it loops",
        "lastTransitionTime": adopted[-1],
    }
    budget: Object = {"adopted": adopted, "limit": 2, "remaining": 2}
    status = {"schemaVersion": SCHEMA_VERSION, "phase": "Healthy", "totals": {"incidents": 3, "restarts": 3}}
    cluster.add_group("llm", {**status, "epoch": 3, "budget": budget, "conditions": [said] if len(adopted) > 2 else []})


def test_explain_names_what_restarts_the_job_and_the_field_that_stops_it(cluster: PlainCluster) -> None:
    looping(cluster, adopted=RESTARTS)
    why, until = section(explain("llm"), "Crash loop")
    assert "a rule of the failurePolicy of JobSet llm has action RestartJobSetAndIgnoreMaxRestarts" in why
    assert "the controller cannot prevent that; to stop it, set spec.suspend: true in TrainJob llm" in why
    assert until == ("it counts as a crash loop until 2026-11-03 08:40:00Z, or until recovery reset-budget llm")
    assert json.loads(explain("llm", "-o", "json"))["crashLoop"] == [why, until]


def test_a_job_that_is_in_none_has_no_such_section(cluster: PlainCluster) -> None:
    looping(cluster, adopted=RESTARTS[:2])
    assert "Crash loop" not in explain("llm")
    assert json.loads(explain("llm", "-o", "json"))["crashLoop"] == []


def test_status_sends_a_person_to_explain(cluster: PlainCluster) -> None:
    looping(cluster, adopted=RESTARTS)
    assert row("llm")["NEXT"] == "recovery explain llm"
