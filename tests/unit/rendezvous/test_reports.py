"""What a report may say: every field has its bounds, and a report that breaks one is refused with the field's name."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.core.model.agent_facts import (
    AgentAction,
    AgentAnswer,
    AgentFacts,
    AgentOrder,
    AgentRendezvous,
    AgentState,
    AgentSteps,
    EndedEpoch,
    RestartedBy,
)
from recovery.rendezvous.reports import AGE_SECONDS_MAX, ReportError, read_report, written_answer

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
BARRIER = "0123456789abcdef"
FAILED = {
    "epoch": 1,
    "slot": 1,
    "rank": 9,
    "exitCode": 1,
    "signal": None,
    "message": "TypeError: no",
    "step": 120,
    "pod": "llm-node-0-1-x",
    "node": "gpu-7",
    "ageSeconds": 13.0,
    "by": "Alone",
}
REPORT = {
    "v": 1,
    "barrier": BARRIER,
    "epoch": 2,
    "state": "running",
    "stateAgeSeconds": 1.5,
    "epochAgeSeconds": 12.5,
    "slots": 4,
    "missing": [3],
    "restarted": [],
    "stuck": [],
    "ended": [FAILED],
}


def read(body: bytes) -> AgentFacts:
    return read_report(body, job_uid="job-1", pod_uid="pod-1", received_at=NOW, sequence=7)


def changed(**fields: Any) -> bytes:
    return json.dumps({**REPORT, **fields}).encode()


def test_a_report_becomes_facts_with_dates_by_our_clock() -> None:
    assert read(changed()) == AgentFacts(
        job_uid="job-1",
        pod_uid="pod-1",
        barrier=BARRIER,
        epoch=2,
        state=AgentState.RUNNING,
        state_since=NOW - timedelta(seconds=1.5),
        epoch_since=NOW - timedelta(seconds=12.5),
        slots=4,
        received_at=NOW,
        sequence=7,
        missing=(3,),
        missing_count=1,
        ended=(
            EndedEpoch(
                epoch=1,
                slot=1,
                rank=9,
                exit_code=1,
                signal=None,
                ended_at=NOW - timedelta(seconds=13),
                message="TypeError: no",
                step=120,
                pod="llm-node-0-1-x",
                node="gpu-7",
                by=RestartedBy.ALONE,
            ),
        ),
    )


def test_a_field_of_a_later_agent_is_ignored() -> None:
    assert read(changed(phase="checkpoint", deep=[[[{}]]])).epoch == 2


def test_more_slots_may_be_missing_than_are_listed() -> None:
    assert read(changed(slots=40, missing=list(range(16)), missingCount=24)).missing_count == 24
    assert read(changed(missing=[1, 2], missingCount=0)).missing_count == 2


STEPS = {"lowest": 10, "highest": 12, "first": 8, "absolute": True, "ageSeconds": 0.4, "stepSeconds": 0.3}


def test_the_rendezvous_of_an_epoch_lasts_from_its_first_arrival_until_all_have_joined() -> None:
    ended = {"epoch": 1, "firstAgeSeconds": 30.0, "joinedAgeSeconds": 28.5}
    facts = read(changed(meets=True, rendezvous=[ended, {"epoch": 2, "firstAgeSeconds": 4.0}], waiting=[3]))
    assert facts.rendezvous == (
        AgentRendezvous(1, NOW - timedelta(seconds=30), NOW - timedelta(seconds=28.5)),
        AgentRendezvous(2, NOW - timedelta(seconds=4)),
    )
    assert facts.present_rendezvous == facts.rendezvous[1]
    assert (facts.meets, facts.waiting, facts.waiting_count) == (True, (3,), 1)


def test_without_an_arrival_the_present_epoch_has_no_rendezvous() -> None:
    facts = read(changed(meets=True, rendezvous=[{"epoch": 1, "firstAgeSeconds": 30.0, "joinedAgeSeconds": 28.5}]))
    assert facts.present_rendezvous is None


def test_steps_are_those_of_the_slowest_and_the_fastest_rank() -> None:
    assert read(changed(steps=STEPS)).steps == AgentSteps(
        lowest=10, highest=12, at=NOW - timedelta(seconds=0.4), first=8, absolute=True, step_seconds=0.3
    )
    assert read(changed(steps={"lowest": 1, "highest": 1, "ageSeconds": 0})).steps == AgentSteps(1, 1, NOW)


@pytest.mark.parametrize(("said", "counted"), [(-5, 0), (0, 0), (1e300, AGE_SECONDS_MAX), (2**62, AGE_SECONDS_MAX)])
def test_ages_are_clamped(said: float, counted: float) -> None:
    facts = read(changed(stateAgeSeconds=said, epochAgeSeconds=said, ended=[{**FAILED, "ageSeconds": said}]))
    since = NOW - timedelta(seconds=counted)
    assert (facts.state_since, facts.epoch_since, facts.ended[0].ended_at) == (since, since, since)


def test_what_a_terminal_would_obey_is_taken_out_of_a_message() -> None:
    hostile = "\x1b[2J\x00a\nb\u202ec\u2028d\x85"
    [ended] = read(changed(ended=[{**FAILED, "message": hostile}])).ended
    assert ended.message == " [2J a b c d "


HOSTILE = [
    ({"v": 2}, "$.v"),
    ({"v": "1"}, "$.v"),
    ({"barrier": "0123456789ABCDEF"}, "$.barrier"),
    ({"barrier": BARRIER + "0"}, "$.barrier"),
    ({"barrier": BARRIER + "\n"}, "$.barrier"),
    ({"barrier": None}, "$.barrier"),
    ({"epoch": 0}, "$.epoch"),
    ({"epoch": -1}, "$.epoch"),
    ({"epoch": 10**30}, "$.epoch"),
    ({"epoch": 1.5}, "$.epoch"),
    ({"epoch": True}, "$.epoch"),
    ({"state": "Running"}, "$.state"),
    ({"state": ["running"]}, "$.state"),
    ({"stateAgeSeconds": "1"}, "$.stateAgeSeconds"),
    ({"stateAgeSeconds": None}, "$.stateAgeSeconds"),
    ({"slots": 0}, "$.slots"),
    ({"slots": 100_001}, "$.slots"),
    ({"missing": [4]}, "$.missing[0]"),
    ({"missing": [-1]}, "$.missing"),
    ({"missing": list(range(17)), "slots": 20}, "$.missing"),
    ({"missing": {"0": 1}}, "$.missing"),
    ({"missingCount": -1}, "$.missingCount"),
    ({"missingCount": 5}, "$.missingCount"),
    ({"restarted": [0, 9]}, "$.restarted[1]"),
    ({"stuck": [9]}, "$.stuck[0]"),
    ({"ended": [FAILED] * 17}, "$.ended"),
    ({"ended": [{**FAILED, "epoch": 3}]}, "$.ended[0].epoch"),
    ({"ended": [{**FAILED, "slot": 4}]}, "$.ended[0].slot"),
    ({"ended": [FAILED, {**FAILED, "rank": -1}]}, "$.ended[1].rank"),
    ({"ended": [{**FAILED, "exitCode": 256}]}, "$.ended[0].exitCode"),
    ({"ended": [{**FAILED, "exitCode": None}]}, "$.ended[0].exitCode"),
    ({"ended": [{**FAILED, "signal": 9}]}, "$.ended[0].exitCode"),
    ({"ended": [{**FAILED, "exitCode": None, "signal": 0}]}, "$.ended[0].signal"),
    ({"ended": [{**FAILED, "message": "x" * 301}]}, "$.ended[0].message"),
    ({"ended": [{**FAILED, "step": -1}]}, "$.ended[0].step"),
    ({"ended": [{**FAILED, "pod": "A"}]}, "$.ended[0].pod"),
    ({"ended": [{**FAILED, "node": "x" * 254}]}, "$.ended[0].node"),
    ({"ended": [{**FAILED, "by": "alone"}]}, "$.ended[0].by"),
    ({"ended": [None]}, "$.ended[0]"),
    ({"meets": 1}, "$.meets"),
    ({"rendezvous": [{"epoch": 1, "firstAgeSeconds": 1}] * 9}, "$.rendezvous"),
    ({"rendezvous": [{"epoch": 3, "firstAgeSeconds": 1}]}, "$.rendezvous[0].epoch"),
    ({"rendezvous": [{"epoch": 1}]}, "$.rendezvous[0]"),
    ({"arrived": 5}, "$.arrived"),
    ({"joined": 5}, "$.joined"),
    ({"waiting": [0, 4]}, "$.waiting[1]"),
    ({"waitingCount": 5}, "$.waitingCount"),
    ({"steps": {**STEPS, "lowest": 13}}, "$.steps.lowest"),
    ({"steps": {**STEPS, "highest": 2**53 + 1}}, "$.steps.highest"),
    ({"steps": {**STEPS, "first": -1}}, "$.steps.first"),
    ({"steps": {"lowest": 1}}, "$.steps"),
]


@pytest.mark.parametrize(("fields", "named"), HOSTILE, ids=[f"{named}-{n}" for n, (_, named) in enumerate(HOSTILE)])
def test_a_value_out_of_bounds_refuses_the_whole_report_and_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ReportError) as refused:
        read(changed(**fields))
    assert f"`{named}" in str(refused.value)
    assert len(str(refused.value)) <= 300


@pytest.mark.parametrize("missing", [name for name in REPORT if name not in {"missing", "restarted", "stuck", "ended"}])
def test_a_field_that_is_not_there_is_named(missing: str) -> None:
    with pytest.raises(ReportError, match=missing):
        read(json.dumps({key: value for key, value in REPORT.items() if key != missing}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"v":1',
        b"[" * 30_000,
        b'{"a":' * 6_000 + b"1" + b"}" * 6_000,
        changed().replace(b"1.5", b"NaN"),
        changed().replace(b"1.5", b"Infinity"),
        changed().replace(b"1.5", b"1e999"),
        changed().replace(b'"slots": 4', b'"slots": ' + b"9" * 20_000),
    ],
)
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(ReportError) as refused:
        read(body)
    assert 0 < len(str(refused.value)) <= 300


def test_the_answer_says_what_is_permitted_and_what_to_do() -> None:
    assert json.loads(written_answer(AgentAnswer())) == {
        "v": 1,
        "permitted": False,
        "alone": 0,
        "inPlaceSeconds": 60.0,
        "everySeconds": 30.0,
        "action": None,
    }
    answer = AgentAnswer(permitted=True, alone=3, action=AgentAction(BARRIER, 2, AgentOrder.RESTART))
    said = json.loads(written_answer(answer))
    assert (said["permitted"], said["alone"]) == (True, 3)
    assert said["action"] == {"barrier": BARRIER, "epoch": 2, "do": "Restart"}
