"""What the report of one incident says, given its record."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.model.ledger import AttemptAction, IncidentHandling, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.core.model.training_steps import TrainingSteps
from recovery.report.formats import ReportFormat
from recovery.report.incident_account import OPEN, account_of
from recovery.report.phase_accounts import BADPUT
from recovery.report.rendering import rendered
from recovery.report.reports import fleet_report, incident_report, job_report
from recovery.telemetry.catalogue.label_values import BOOKED_REASONS, badput_of
from tests.unit.report.records import BEGAN, GPUS, LLM, NOW, attempt, found, killed_rank, phase, record


def test_a_real_record_is_told_whole() -> None:
    account = account_of(killed_rank(), NOW)
    assert (account.namespace, account.job, account.workload_kind) == ("team-a", "llm", "TrainJob")
    assert (account.failure_class, account.cause, account.outcome) == ("Killed", "Exit137", Outcome.RECOVERED)
    assert account.unaccounted_seconds == 0
    assert account.idle_gpu_seconds == 230.618
    assert sum(account.idle_gpu_seconds_by_phase.values()) == pytest.approx(230.618)
    assert (account.verified, account.verified_by, account.charged, account.restarts) == (False, "ready", True, 1)


def test_gpu_seconds_are_split_by_phase_and_by_badput() -> None:
    no_recovery = (phase(Phase.DECIDED, 1, 2), phase(Phase.BACKOFF, 2, 4), phase(Phase.HELD, 4, 9))
    phases = (phase(Phase.DETECTED, 0, 1), *no_recovery, phase(Phase.STARTING, 9, 20))
    account = account_of(record(phases=phases, seconds=20), NOW)
    assert account.idle_gpu_seconds_by_phase == {
        "Starting": 11 * GPUS,
        "Held": 5 * GPUS,
        "Backoff": 2 * GPUS,
        "Decided": GPUS,
        "Detected": GPUS,
    }
    assert account.idle_gpu_seconds_by_badput == {
        "infrastructure_recovery_from_disruption": 12 * GPUS,
        "other": 8 * GPUS,
    }


@pytest.mark.parametrize(
    ("steps", "lost", "seconds"),
    [
        (None, None, None),
        (TrainingSteps(before=1200, absolute=True, step_seconds=0.5, resumed=1000), 200, 100.0),
        (TrainingSteps(before=1200, absolute=True, resumed=1000), 200, None),
        (TrainingSteps(before=1200, absolute=True, step_seconds=0.5, resumed=1201), 0, 0.0),
        (TrainingSteps(before=1200, absolute=True, step_seconds=50.0, resumed=1000), 200, 118.0),
        (TrainingSteps(before=1200, absolute=True, step_seconds=0.5), None, None),
        (TrainingSteps(before=1200, step_seconds=0.5, resumed=0), None, None),
    ],
    ids=[
        "no agent",
        "measured",
        "no time of a step",
        "nothing lost",
        "no more than Resuming",
        "not resumed",
        "cannot be compared",
    ],
)
def test_steps_made_twice_are_measured_or_not_known(
    steps: TrainingSteps | None, lost: int | None, seconds: float | None
) -> None:
    phases = (phase(Phase.RENDEZVOUS, 0, 2), phase(Phase.RESUMING, 2, 120))
    account = account_of(record(training_steps=steps, phases=phases, seconds=120), NOW)
    assert (account.lost_steps, account.rework_seconds) == (lost, seconds)
    totals = job_report(LLM, found(record(training_steps=steps, phases=phases, seconds=120)), NOW).totals
    known = (totals.lost_steps, totals.rework_gpu_seconds, totals.rework_known_for)
    assert known == (lost or 0, (seconds or 0) * GPUS, int(lost is not None))


def test_the_report_and_the_metrics_give_a_phase_the_same_badput() -> None:
    of_metrics = {phase: badput_of(reason) for phase, reason in BOOKED_REASONS.items()}
    assert {phase: BADPUT[Phase(phase)] for phase in of_metrics} == of_metrics
    assert set(Phase) - of_metrics.keys() == {Phase.HEALTHY}  # nothing is booked between incidents


def test_released_gpus_are_not_idle() -> None:
    phases = (phase(Phase.BACKOFF, 0, 2), phase(Phase.BACKOFF, 2, 10, released=True))
    account = account_of(record(phases=phases, seconds=10), NOW)
    assert (account.idle_gpu_seconds, account.released_gpu_seconds) == (2 * GPUS, 8 * GPUS)


@pytest.mark.parametrize(("released", "idle", "free"), [(False, 90, 0), (True, 0, 90)])
def test_what_lasts_is_counted_up_to_now(released: bool, idle: int, free: int) -> None:
    lasting = (phase(Phase.BACKOFF, 0, None, released=released),)
    account = account_of(record(phases=lasting, outcome=None), BEGAN + timedelta(seconds=90))
    assert (account.outcome, account.outcome_reason, account.ended_at) == (OPEN, None, None)
    assert account.duration_seconds == 90
    assert (account.idle_gpu_seconds, account.released_gpu_seconds) == (idle * GPUS, free * GPUS)


def test_a_clock_behind_the_record_makes_nothing_negative() -> None:
    lasting = (phase(Phase.DETECTED, 0, None),)
    account = account_of(record(phases=lasting, outcome=None), BEGAN - timedelta(hours=1))
    assert (account.duration_seconds, account.idle_gpu_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "handling"),
    [
        ({}, IncidentHandling.AUTOMATIC),
        ({"handling": IncidentHandling.MANUAL}, IncidentHandling.MANUAL),
        ({"handling": IncidentHandling.HELD, "disruption_class": "Manual"}, IncidentHandling.HELD),
    ],
    ids=["no person", "by a person", "held"],
)
def test_handling_is_that_of_the_ledger(changes: dict[str, Any], handling: IncidentHandling) -> None:
    assert account_of(record(**changes), NOW).handling is handling


def test_the_triggers_are_told_as_writes() -> None:
    attempts = (
        attempt(),
        attempt(AttemptAction.ADOPTED, number=2, started_at=BEGAN + timedelta(seconds=1)),
        attempt(AttemptAction.REPLACE_NODE, number=3, started_at=BEGAN + timedelta(seconds=2), nodes=("gpu-5",)),
    )
    writes = account_of(record(attempts=attempts), NOW).writes
    assert [(each.verb, each.resource, each.names) for each in writes] == [
        ("delete", "jobs", ()),
        ("patch", "nodes", ("gpu-5",)),
        ("delete", "jobs", ("job-1",)),
    ]


def test_a_job_set_that_is_recreated_or_made_to_fail_is_a_write() -> None:
    attempts = (attempt(AttemptAction.RECREATE_JOB_SET, job_set_uid="old"),)
    writes = account_of(
        record(attempts=attempts, step=Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, fails_job=True)), NOW
    ).writes
    assert [(each.verb, each.resource, each.names) for each in writes] == [
        ("delete", "jobsets", ("old",)),
        ("patch", "jobsets/status", ("jobset-1",)),
    ]


def test_an_incident_that_closed_while_ranks_hung_says_so_and_that_its_figures_end_with_it() -> None:
    closed = record(outcome=Outcome.HELD)
    assert closed.incident.closing is not None
    closing = msgspec.structs.replace(closed.incident.closing, still_broken=True)
    hung = msgspec.structs.replace(closed, incident=msgspec.structs.replace(closed.incident, closing=closing))
    assert account_of(hung, NOW).still_broken
    assert account_of(hung, NOW).idle_gpu_seconds == account_of(closed, NOW).idle_gpu_seconds
    page = rendered(incident_report(hung, NOW), ReportFormat.MD)
    assert "closed, still broken" in page
    assert "closed, still broken" not in rendered(incident_report(closed, NOW), ReportFormat.MD)
    for report in (job_report(LLM, found(hung), NOW), fleet_report(None, found(hung), timedelta(days=7), NOW)):
        assert report.totals.still_broken_incidents == 1
        page = rendered(report, ReportFormat.MD)
        assert "Held, still broken" in page
        assert "1 incident closed although ranks hung." in page
