"""What it came to: the tables and sentences at the end, and the phases of each incident as it closes."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich.box import SIMPLE_HEAD
from rich.console import ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from recovery.core.model.ledger import Phase, PhaseSpan
from recovery.sim.demo.scene import GPUS_PER_RANK, ReportedIncident
from recovery.sim.demo.verdict import Course, started_between
from recovery.sim.training.trace import Trace

NCCL_TIMEOUT = timedelta(minutes=10)
"""PyTorch's default for NCCL process groups (`torch.distributed.init_process_group`; pytorch/pytorch#110947)."""


def phases_of(told: ReportedIncident) -> ConsoleRenderable:
    """Seconds and idle GPU-seconds of each phase of one incident."""
    outcome = told.closing.outcome if told.closing is not None else "open, Held"
    incident = told.incident
    title = Text(f"incident {told.label}, {incident.disruption_class} ({incident.cause}): {outcome}", style="bold")
    table = Table(box=SIMPLE_HEAD)
    for column in ("phase", "seconds", "idle GPU-seconds"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for span in incident.phases:
        if span.ended_at is None:
            table.add_row(span.phase, "lasts", "")
        else:
            table.add_row(span.phase, f"{_seconds(span):.2f}", f"{span.idle_gpu_seconds:,.0f}")
    table.add_section()
    table.add_row("in all", f"{_total_seconds(told):.2f}", f"{_idle_gpu_seconds(told):,.0f}")
    return Group(title, table)


def incidents_table(told: Sequence[ReportedIncident], trace: Trace, course: Course) -> ConsoleRenderable:
    """A line for each incident, as the controller's own records have it; the pods made, as the trace has them.

    It fits a terminal of 80 columns.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("", "class", "cause", "tries", "lost", "made", "seconds", "idle GPU-s", "outcome"):
        words = column in {"", "class", "cause", "outcome"}
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for each in told:
        incident, closing = each.incident, each.closing
        made = started_between(trace, course, incident.detected_at, closing.ended_at if closing is not None else None)
        table.add_row(
            each.label,
            incident.disruption_class,
            incident.cause,
            str(incident.attempt.number if incident.attempt is not None else 0),
            str(len(incident.suspects)),
            str(made),
            f"{_total_seconds(each):.2f}" if closing is not None else "-",
            f"{_idle_gpu_seconds(each):,.0f}",
            closing.outcome if closing is not None else Phase.HELD,
        )
    return Group(Text("Incidents", style="bold"), table)


def phases_table(told: Sequence[ReportedIncident]) -> ConsoleRenderable:
    """Idle GPU-seconds by phase, a column for each incident."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase", no_wrap=True)
    for each in told:
        table.add_column(each.label, justify="right", no_wrap=True)
    passed = {span.phase for each in told for span in each.incident.phases if span.ended_at is not None}
    for phase in Phase:
        if phase in passed:
            table.add_row(phase, *(_cell(each, phase) for each in told))
    table.add_section()
    table.add_row("in all", *(f"{_idle_gpu_seconds(each):,.0f}" for each in told))
    return Group(Text("Idle GPU-seconds by phase", style="bold"), table)


def closing_words(told: Sequence[ReportedIncident], ranks: int) -> Iterator[str]:
    """How exact the figures are, and what they compare with."""
    yield (
        "Kubernetes dates failures and Ready in whole seconds, and the controller counts against itself: the first and"
        " the last phase of an incident may each be up to 1 s too long"
    )
    gpus = ranks * GPUS_PER_RANK
    hang_hours = gpus * NCCL_TIMEOUT.total_seconds() / 3600
    recovered = [each for each in told if each.closing is not None]
    here_hours = sum(_idle_gpu_seconds(each) for each in recovered) / len(recovered) / 3600 if recovered else 0.0
    yield (
        "computed, not played: without the controller the survivors hang until NCCL's timeout, 10 min by PyTorch's"
        f" default (pytorch/pytorch#110947): {gpus:,} GPUs x 10 min = {hang_hours:.1f} idle GPU-hours for each"
        f" incident, before anything begins to recover; those recovered here took {here_hours:.1f} on average"
    )


def _cell(told: ReportedIncident, phase: Phase) -> str:
    spans = [span for span in told.incident.phases if span.phase is phase and span.ended_at is not None]
    return f"{sum(span.idle_gpu_seconds for span in spans):,.0f}" if spans else ""


def _seconds(span: PhaseSpan) -> float:
    return (span.ended_at - span.started_at).total_seconds() if span.ended_at is not None else 0.0


def _total_seconds(told: ReportedIncident) -> float:
    return sum(_seconds(span) for span in told.incident.phases)


def _idle_gpu_seconds(told: ReportedIncident) -> float:
    """Of the phases that are over."""
    return sum(span.idle_gpu_seconds for span in told.incident.phases if span.ended_at is not None)
