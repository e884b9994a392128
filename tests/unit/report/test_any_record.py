"""Every readable record gets a report, whatever it holds, and the sums are right."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import AttemptAction, IncidentHandling, Outcome, Phase, PhaseSpan, Suspect
from recovery.core.model.reason import Reason
from recovery.kube.incident_records import decode_record
from recovery.report.formats import ReportFormat
from recovery.report.incident_account import account_of
from recovery.report.rendering import rendered
from recovery.report.reports import RecordsFound, fleet_report, incident_report, job_report
from tests.unit.report.records import BEGAN, FOLDER, GPUS, NOW, RECORDED, attempt, record

texts = st.text(max_size=30)
lengths = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=8)


@st.composite
def contiguous(draw: st.DrawFn) -> tuple[PhaseSpan, ...]:
    """Phases as the controller writes them: each begins where the one before it ends."""
    at, spans = BEGAN, []
    for seconds in draw(lengths):
        end = at + timedelta(seconds=seconds)
        released = draw(st.booleans())
        booked = (end - at).total_seconds() * GPUS
        spans.append(
            PhaseSpan(
                phase=draw(st.sampled_from(sorted(set(Phase) - {Phase.HEALTHY}))),
                started_at=at,
                ended_at=end,
                idle_gpu_seconds=0.0 if released else booked,
                released=released,
                released_gpu_seconds=booked if released else 0.0,
            )
        )
        at = end
    return tuple(spans)


@st.composite
def incidents(draw: st.DrawFn) -> IncidentRecord:
    phases = draw(contiguous())
    ended_at = phases[-1].ended_at
    assert ended_at is not None
    lasts = draw(st.booleans())
    if lasts:
        open_span = msgspec.structs.replace(phases[-1], ended_at=None, idle_gpu_seconds=0.0, released_gpu_seconds=0.0)
        phases = (*phases[:-1], open_span)
    return record(
        outcome=None if lasts else draw(st.sampled_from(Outcome)),
        seconds=(ended_at - BEGAN).total_seconds(),
        phases=phases,
        disruption_class=draw(texts),
        cause=draw(texts),
        message=draw(texts),
        rule=draw(texts),
        would=draw(texts),
        handling=draw(st.sampled_from(IncidentHandling)),
        evidence=tuple(draw(st.lists(texts, max_size=3))),
        suspects=tuple(Suspect(pod=pod, node=pod) for pod in draw(st.lists(texts, max_size=3))),
        attempts=tuple(
            attempt(action, message=draw(texts), reason=draw(st.sampled_from(Reason)))
            for action in draw(st.lists(st.sampled_from(AttemptAction), max_size=4))
        ),
    )


@settings(max_examples=150)
@given(incidents(), st.datetimes(datetime(2026, 11, 1), datetime(2026, 12, 31)))
def test_phases_tile_the_incident_and_gpu_seconds_are_idle_or_released(one: IncidentRecord, at: datetime) -> None:
    now = max(at.replace(tzinfo=UTC), one.incident.phases[-1].started_at)
    account = account_of(one, now)
    seconds = sum(phase.duration_seconds for phase in account.phases)
    assert seconds == pytest.approx(account.duration_seconds, abs=1e-3)
    assert account.unaccounted_seconds == pytest.approx(0, abs=1e-3)
    held = account.idle_gpu_seconds + account.released_gpu_seconds
    assert held == pytest.approx(seconds * account.gpus, abs=0.1)
    for split in (account.idle_gpu_seconds_by_phase, account.idle_gpu_seconds_by_badput):
        assert sum(split.values()) == pytest.approx(account.idle_gpu_seconds, abs=0.1)


@settings(max_examples=60)
@given(st.lists(incidents(), max_size=4))
def test_every_report_can_be_written_in_every_format(records: list[IncidentRecord]) -> None:
    found = RecordsFound(tuple(records))
    for wanted in ReportFormat:
        for one in records:
            assert rendered(incident_report(one, NOW), wanted).endswith("\n")
            assert rendered(job_report(one.job, found, NOW), wanted).endswith("\n")
        assert rendered(fleet_report(None, found, timedelta(days=30), NOW), wanted).endswith("\n")


REAL = [json.loads(path.read_text()) for path in (FOLDER / "killed_rank.json", *RECORDED)]
METADATA = {"uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-11-21T12:00:00Z"}
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(allow_nan=False), texts, st.just([]), st.just({})
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A real record, with some fields removed or changed."""
    body: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(REAL))))
    body["metadata"] |= METADATA
    for _ in range(draw(st.integers(0, 4))):
        place: Any = body["spec"]
        while isinstance(place, dict | list) and place:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
            elif draw(st.booleans()):
                del place[key]
                break
            else:
                place[key] = draw(values)
                break
    return body


@settings(max_examples=200)
@given(damaged())
def test_a_record_that_can_be_read_gets_a_report(body: dict[str, Any]) -> None:
    try:
        one = decode_record(json.dumps(body).encode()).value
    except (ValueError, OverflowError):  # such a record is named on stderr, and counted
        return
    found = RecordsFound((one,))
    for wanted in ReportFormat:
        rendered(incident_report(one, NOW), wanted)
        rendered(job_report(one.job, found, NOW), wanted)
        rendered(fleet_report(None, found, timedelta(days=7), NOW), wanted)
