"""A controller of this version takes over from one that wrote schemaVersion 3, in the middle of an incident.

The fixtures are what commit 3338a6b wrote and did in `scenarios`. This version reads the ledger after each step,
continues from there, and must do what that version did: no second trigger, no second decision, no Event twice.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recovery.core.model.config import why_opened
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.group_totals import BudgetState
from recovery.core.model.ledger import (
    WITHOUT_RESUMING,
    Considered,
    IncidentHandling,
    Ledger,
    MessageRelation,
    Phase,
    PhaseSpan,
)
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.model.waits import Held
from recovery.core.plan.status_conditions import BUDGET_EXHAUSTED
from recovery.core.sentences import render
from recovery.kube.incident_records import read_incident
from recovery.kube.projections.recovery import decode_config, decode_recovery_group
from tests.unit.core.driver import Controller
from tests.unit.kube.store_world import listed
from tests.unit.kube.testing import ScriptedApi
from tests.unit.upgrade.scenarios import BREAKER, FIXTURES, RECORDS, SCENARIOS, group_of, reconcile

STEPS: dict[str, list[dict[str, Any]]] = {
    name: json.loads((FIXTURES / f"{name}.json").read_text()) for name in SCENARIOS
}


SENTENCES = {"message", "wouldMessage", "then", "stormWhat", "held", "answer"}


def without_words(ledger: Ledger) -> Ledger:
    """The ledger with each sentence reduced to its presence: this version words the same reasons differently."""
    return msgspec.convert(_without_words(msgspec.to_builtins(ledger, builtin_types=(datetime,))), type=Ledger)


def _without_words(node: Any) -> Any:
    if isinstance(node, list | tuple):
        return [_without_words(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: _without_words(each) for name, each in node.items()}
    found |= {name: bool(node[name]) * "said" for name in SENTENCES & node.keys() if isinstance(node[name], str)}
    if "evidence" in found:
        found["evidence"] = ["seen"] * len(node["evidence"])
    if "failures" in found:  # the words of containers
        found["failures"] = node["failures"]
    return found


def read(status: dict[str, Any]) -> Ledger:
    """Read the ledger as the reader of RecoveryGroups does."""
    found = decode_recovery_group(group_of(status)).value
    assert found.readable
    return found.ledger


TAKEN_OVER = [(name, step) for name, steps in STEPS.items() for step in range(len(steps))]


@pytest.mark.parametrize(("name", "taken_over_after"), TAKEN_OVER)
def test_what_began_under_version_3_goes_on_as_it_would_have(name: str, taken_over_after: int) -> None:
    steps = STEPS[name]
    controller = Controller(ledger=read(steps[taken_over_after]["status"]))
    for step, then in list(zip(SCENARIOS[name](), steps, strict=True))[taken_over_after + 1 :]:
        actions = reconcile(controller, step)
        assert actions == then["actions"], f"at {then['seconds']} s"
        before, now = then["status"], controller.ledger
        assert now.phase == before.get("phase", "Healthy")
        assert now.epoch == before.get("epoch", 0)
        assert now.reason == read(before).reason
        assert bool(now.message) == bool(before.get("reason", ""))
        assert (now.incident is None) == (before.get("incident") is None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_ledger_is_the_one_that_this_version_would_have_written(name: str) -> None:
    """So the codes that are read from its sentences are those of the decisions behind the sentences."""
    controller = Controller()
    for step, then in zip(SCENARIOS[name](), STEPS[name], strict=True):
        reconcile(controller, step)
        found, expected = read(then["status"]), as_read(controller.ledger)
        found, expected = as_accounted_then(found), as_accounted_then(expected)
        if name == "adopted":
            found, expected = without_charges(found), without_charges(expected)
        assert found == expected, f"at {then['seconds']} s"
        if found.phase is Phase.HELD:
            assert exhausted(found) == exhausted(expected), f"at {then['seconds']} s"


def without_charges(ledger: Ledger) -> Ledger:
    """Version 3 charged a restart of the JobSet's own."""
    return msgspec.structs.replace(
        ledger,
        totals=msgspec.structs.replace(ledger.totals, charged=0),
        budget=BudgetState(),
        history=tuple(msgspec.structs.replace(each, charged=False) for each in ledger.history),
        incident=None if ledger.incident is None else msgspec.structs.replace(ledger.incident, charged=False),
    )


def exhausted(ledger: Ledger) -> list[tuple[str, str]]:
    """Status and reason of the BudgetExhausted condition."""
    return [(each.status, each.reason) for each in ledger.conditions if each.type == BUDGET_EXHAUSTED]


def without_standing(ledger: Ledger) -> Ledger:
    """The ledger as version 3 left it: a group whose ranks hung after its incident was Healthy."""
    incident = ledger.incident
    closing = incident.closing if incident is not None else None
    return msgspec.structs.replace(
        ledger,
        standing=Standing.UNKNOWN,
        met_at=None,
        restart_ended_at=None,
        broken=None,
        idle_gpus=0 if ledger.broken is not None else ledger.idle_gpus,
        conditions=tuple(
            msgspec.structs.replace(each, message="" if ledger.broken is not None else each.message)
            for each in ledger.conditions
        ),
        history=tuple(msgspec.structs.replace(each, still_broken=False) for each in ledger.history),
        incident=msgspec.structs.replace(incident, closing=msgspec.structs.replace(closing, still_broken=False))
        if incident is not None and closing is not None
        else incident,
    )


def as_accounted_then(ledger: Ledger) -> Ledger:
    """The ledger without its words and without what version 3 does not write: the standing, classes of GPU time,
    released time, handling, the counts of restarts, adopted restarts and evidence, and what lets incidents share a
    record. Version 3 also does not report an exhausted budget for a group that is not held, and calls a group that
    hangs Healthy."""
    ledger = without_words(without_standing(ledger))
    totals, incident = ledger.totals, ledger.incident
    spans = incident.phases if incident is not None else ()
    # Released spans of a forgotten incident look like idle ones.
    idle = round(sum(totals.idle_gpu_seconds.values()) + totals.released_gpu_seconds, 3)
    merged: list[PhaseSpan] = []
    for span in spans:
        one = merged.pop() if merged and merged[-1].phase is span.phase else span
        joined = one.idle_gpu_seconds + one.released_gpu_seconds
        if one is not span:
            joined += span.idle_gpu_seconds + span.released_gpu_seconds
        merged.append(PhaseSpan(one.phase, one.started_at, span.ended_at, joined))
    return msgspec.structs.replace(
        ledger,
        folds=(),
        budget=msgspec.structs.replace(ledger.budget, adopted=()),
        conditions=tuple(each for each in ledger.conditions if each.type not in {BUDGET_EXHAUSTED, "Healthy"}),
        idle_gpus=0 if ledger.phase in {Phase.BACKOFF, Phase.HELD} else ledger.idle_gpus,
        totals=msgspec.structs.replace(
            totals,
            idle_gpu_seconds={"all": idle},
            idle_gpu_seconds_by_class={},
            released_gpu_seconds=0.0,
            enforce_estimate=EnforceEstimate(),
        ),
        history=tuple(
            msgspec.structs.replace(
                each,
                idle_gpu_seconds=each.idle_gpu_seconds + each.released_gpu_seconds,
                released_gpu_seconds=0.0,
                handling=IncidentHandling.AUTOMATIC,
            )
            for each in ledger.history
        ),
        incident=msgspec.structs.replace(
            incident,
            restarts=0,
            evidence_counts=(),
            handling=IncidentHandling.AUTOMATIC,
            phases=tuple(merged),
            fingerprint="",
            opened_by="",
            lost_at=None,
            enforce_estimate=EnforceEstimate(),
            pinned=msgspec.structs.replace(incident.pinned, reset_after_seconds=0.0),
        )
        if incident is not None
        else None,
    )


def as_read(ledger: Ledger) -> Ledger:
    """A closed incident no longer shows what Enforce would have done, and nothing reads that any more."""
    closed = ledger.incident is not None and ledger.incident.closing is not None
    return ledger.with_incident(would_message="") if closed else ledger


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_ledger_that_was_taken_over_is_the_same_when_it_is_read_back(name: str) -> None:
    for step in STEPS[name]:
        ledger = read(step["status"])
        written = msgspec.json.encode(ledger)
        assert json.loads(written)["schemaVersion"] == WITHOUT_RESUMING
        assert msgspec.json.decode(written, type=Ledger) == ledger


# --- what was a sentence -------------------------------------------------------------------------------------------


def after(name: str, seconds: float) -> Ledger:
    """The ledger that version 3 wrote at that moment, as this version reads it."""
    return read(next(step["status"] for step in STEPS[name] if step["seconds"] == seconds))


@pytest.mark.parametrize(
    ("name", "seconds", "reason", "relation"),
    [
        ("enforced", 1, Reason.DEFAULT_RESTART, MessageRelation.ATTEMPT),
        ("stood_aside", 300, Reason.POD_FAILURE_POLICY, MessageRelation.ATTEMPT),
        ("stood_aside_said_more", 20.1, Reason.SETTLING, MessageRelation.ELSE),
        ("stood_aside_twice", 9, Reason.POD_FAILURE_POLICY, MessageRelation.ATTEMPT),
        ("adopted", 9, Reason.PLATFORM_RESTART, MessageRelation.ATTEMPT),
        ("adopted_under_observe", 16, Reason.PLATFORM_RESTART, MessageRelation.ATTEMPT),
        ("held_by_budget", 32, Reason.BUDGET_EXHAUSTED, MessageRelation.ELSE),
        ("suspended_by_budget", 30, Reason.BUDGET_EXHAUSTED, MessageRelation.ELSE),
        ("held_by_verdict", 62, Reason.SAME_ERROR_AGAIN, MessageRelation.ELSE),
        ("held_by_verdict", 4001.7, Reason.RESTARTED_BY_HAND, MessageRelation.ATTEMPT),
        ("held_by_fail_job", 5, Reason.RULE_FAIL_JOB, MessageRelation.ELSE),
        ("fail_job_not_allowed", 60, Reason.RULE_FAIL_JOB_NOT_ALLOWED, MessageRelation.ELSE),
        ("observed", 60, Reason.DEFAULT_RESTART, MessageRelation.ELSE),
        ("observed_too_late", 12, Reason.ENFORCED_TOO_LATE, MessageRelation.ELSE),
        ("too_late_without_a_verdict", 4, Reason.ENFORCED_TOO_LATE, MessageRelation.ELSE),
        ("backoff_suspended", 33, Reason.DEFAULT_RESTART, MessageRelation.ATTEMPT),
        ("backoff_withheld", 50, Reason.DEFAULT_RESTART, MessageRelation.ELSE),
        ("storm", 3, Reason.STORM, MessageRelation.ELSE),
        ("waits_for_capacity", 41, Reason.WAITING_FOR_CAPACITY, MessageRelation.MORE),
    ],
)
def test_a_sentence_becomes_the_code_of_what_it_tells(
    name: str, seconds: float, reason: Reason, relation: MessageRelation
) -> None:
    ledger = after(name, seconds)
    incident = ledger.current_incident
    assert (ledger.reason, incident.reason, incident.told) == (reason, reason, relation)
    assert incident.message == ledger.message != ""


def test_what_was_said_since_an_attempt_that_stood_aside_is_a_field_of_it() -> None:
    (attempt,) = after("stood_aside_twice", 60).current_incident.attempts
    aside = (
        "standing aside, because podFailurePolicy rule 0 of Job train-node-0 (action Ignore) matches pod train-node-0"
    )
    assert attempt.message == f"pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 42; {aside}-2-10"
    assert attempt.then == f"pod train-node-0-0-10 (rank 0, node gpu-0) failed with exit code 42; {aside}-0-10"


@pytest.mark.parametrize(
    ("name", "seconds", "reason"),
    [
        ("held_by_verdict", 62, Reason.SAME_ERROR_AGAIN),
        ("held_by_fail_job", 4, Reason.RULE_FAIL_JOB),
        ("fail_job_not_allowed", 4, Reason.RULE_FAIL_JOB_NOT_ALLOWED),
        ("held_by_budget", 31, None),
    ],
)
def test_the_verdict_for_which_a_group_is_held_has_its_code(name: str, seconds: float, reason: Reason | None) -> None:
    held = after(name, seconds).current_incident.held
    assert (held.reason if held is not None else None) == reason


def test_what_was_considered_and_not_done_becomes_a_record() -> None:
    (considered,) = after("quarantine_refused", 4).current_incident.considered
    assert considered == Considered(
        action="ReplaceNode",
        node="gpu-2",
        reason=Reason.QUARANTINE_NOT_ALLOWED,
        message="node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)",
    )
    (considered,) = after("held_by_verdict", 62).current_incident.considered
    assert (considered.action, considered.reason, considered.node) == ("RecreateGroup", Reason.SAME_ERROR_AGAIN, "")


def test_what_enforce_would_have_done_is_told_without_the_restarts_that_were_adopted_since() -> None:
    decided, adopted = (after("adopted_under_observe", seconds).current_incident for seconds in (2, 16))
    assert decided.would_message == decided.message
    assert adopted.would_message == decided.message != adopted.message


@pytest.mark.parametrize("name", ["observed_too_late", "too_late_without_a_verdict"])
def test_what_came_too_late_was_said_already(name: str) -> None:
    assert after(name, 60).current_incident.too_late
    assert not after("observed", 60).current_incident.too_late


def test_answers_to_requests_and_history_have_codes() -> None:
    ledger = after("requests_answered", 16)
    assert [(answer.verb, answer.accepted, answer.reason) for answer in ledger.requests] == [
        ("retry", False, Reason.NO_INCIDENT),
        ("restart", True, Reason.RESTARTED_BY_HAND),
        ("reset-budget", True, Reason.BUDGET_RESET),
    ]
    (closed,) = ledger.history
    assert (closed.reason, closed.outcome_reason) == (Reason.ALL_RANKS_READY, Reason.ALL_RANKS_READY)
    assert closed.message.endswith("all 4 ranks are Ready (source: ready, verified: false)")


def test_a_sentence_that_no_one_knows_is_kept_as_the_message() -> None:
    status = json.loads(json.dumps(STEPS["held_by_verdict"][5]["status"]))
    status["incident"]["reason"] = status["incident"]["held"] = "the moon is full"
    incident = read(status).current_incident
    assert (incident.reason, incident.message) == (Reason.UNKNOWN, "the moon is full")
    assert incident.held == Held(Reason.UNKNOWN, "the moon is full")


# --- records and the fleet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
async def test_a_record_of_version_3_tells_the_incident_that_its_ledger_told(path: Path) -> None:
    body = json.loads(path.read_text())
    body["metadata"] |= {"uid": "record-1", "resourceVersion": "1", "creationTimestamp": "2026-11-21T12:00:00Z"}
    api = ScriptedApi()
    api.objects["recoveryincidents", ""] = listed("RecoveryIncident", body)
    closed = next(
        ledger.incident
        for ledger in (read(step["status"]) for step in STEPS[path.stem])
        if ledger.incident is not None and ledger.incident.closing is not None
    )
    assert await read_incident(api, GroupKey("ml", "train"), closed.id) == closed


def test_a_breaker_that_version_3_opened_keeps_its_sentence() -> None:
    status = json.loads(BREAKER.read_text())
    sentence = "2 recoveries within 60 minutes brought no progress (RecoveryConfig spec.circuitBreaker.recoveries 2)"
    assert status["breaker"]["reason"] == sentence
    breaker = decode_config(config_of(status)).value.fleet.breaker
    assert breaker is not None
    assert (breaker.reason, render(why_opened(breaker))) == (Reason.RECOVERIES_IN_VAIN, sentence)
    again = json.loads(msgspec.json.encode(FleetLedger(breaker=breaker)))
    assert decode_config(config_of(again)).value.fleet.breaker == breaker


def config_of(status: dict[str, Any]) -> bytes:
    metadata = {"name": "default", "uid": "config-1", "resourceVersion": "1", "generation": 1}
    metadata["creationTimestamp"] = "2026-11-21T12:00:00Z"
    return json.dumps({"metadata": metadata, "spec": {}, "status": status}).encode()
