"""The report on the demo: the tables and sentences at the end, and the phases of each incident as it closes."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.box import SIMPLE_HEAD
from rich.console import ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from recovery.core.model.ledger import Incident, Phase, PhaseSpan
from recovery.sim.demo.alternatives import WATCHED_SECONDS, Downtimes
from recovery.sim.demo.objects import GRACE_SECONDS, Restarter, runtime_for
from recovery.sim.demo.scene import ReportedIncident
from recovery.sim.demo.stage import GPUS_PER_RANK, StageFailure
from recovery.sim.demo.verdict import Course, started_between, trained_again
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.trace import Trace


def phases_of(reported: ReportedIncident) -> str:
    """The seconds that each phase of an incident bills."""
    seconds: dict[Phase, float] = {}
    for span in reported.incident.phases:
        if span.ended_at is not None:
            seconds[span.phase] = seconds.get(span.phase, 0.0) + _seconds(span)
    phases = ", ".join(f"{phase} {each:.1f}" for phase, each in seconds.items())
    return f"{reported.label:<2} {_billed_seconds(reported):.1f} s: {phases}"


def kind_of(incident: Incident) -> str:
    """The class of an incident, with the cause in brackets where it says more."""
    if incident.cause == incident.disruption_class:
        return incident.cause
    return f"{incident.disruption_class} ({incident.cause})"


def bill(incidents: Sequence[ReportedIncident], trace: Trace, course: Course) -> ConsoleRenderable:
    """A table with one row for each incident, which shows how its bill follows from the trace.

    It fits a terminal of 80 columns.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    for column in (
        "",
        "class (cause)",
        "lost",
        "made",
        "trace",
        "+ early",
        "+ late",
        "= bill s",
        "GPU-h",
        "outcome",
    ):
        words = column in {"", "class (cause)", "outcome"}
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for each, failed_at in zip_longest(incidents, (*course.failures, *course.crashes)):
        if each is None or failed_at is None:
            continue  # The incident has not been closed. The verdict says so.
        incident, closing = each.incident, each.closing
        made = started_between(trace, course, incident.detected_at, closing.ended_at if closing is not None else None)
        again_at = trained_again(trace, course, failed_at)
        sums = ["-", "-", "-", "-"]
        if closing is not None and again_at is not None:
            terms = (again_at - failed_at, failed_at - incident.started_at, closing.ended_at - again_at)
            sums = [f"{term.total_seconds():.2f}" for term in terms] + [f"{_billed_seconds(each):.2f}"]
        table.add_row(
            each.label,
            kind_of(incident),
            str(len(incident.suspects)),
            str(made),
            *sums,
            f"{_idle_gpu_seconds(each) / 3600:.2f}",
            closing.outcome if closing is not None else Phase.HELD,
        )
    return Group(Text("What each incident cost", style="bold"), table)


def bill_words(incidents: Sequence[ReportedIncident]) -> str:
    """Why the trace and the bill differ, and what the words of the table mean."""
    words = (
        "trace: seconds from the failure until all ranks train again, as only the model knows. bill: what the"
        " controller sees, and its metrics say. early: Kubernetes dates failures in whole seconds, rounded down; a"
        " silent node counts from NotReady on (negative). late: the joined probe looks once a second. In brackets: the"
        " cause, where it is another word than the class."
    )
    slow = [each.label for each in incidents if _kept_its_own_grace(each)]
    if not slow:
        return words
    return (
        f"{words} {' and '.join(slow)}: while a job waits for its backoff it is suspended, and then Kubernetes deletes"
        f" its pods with their own grace of {_grace_seconds()} s."
    )


def _kept_its_own_grace(reported: ReportedIncident) -> bool:
    """Most pods of the old group got their own grace period, not the policy's."""
    phases = [span.phase for span in reported.incident.phases]
    torn_down_seconds = sum(_seconds(span) for span in reported.incident.phases if span.phase is Phase.TEARING_DOWN)
    return Phase.BACKOFF in phases and torn_down_seconds > _grace_seconds() - 1


def comparison(found: Downtimes, ranks: int) -> ConsoleRenderable:
    """A table with one row for each failure, and two columns for each restarter.

    It fits a terminal of 80 columns.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("until all train again", no_wrap=True)
    for restarter in Restarter:
        table.add_column(restarter, justify="right", no_wrap=True)
        table.add_column("GPU-h", justify="right", no_wrap=True)
    for failure in StageFailure:
        costs = (_cost(found[failure, each], ranks * GPUS_PER_RANK) for each in Restarter)
        table.add_row(failure, *(cell for cost in costs for cell in cost))
    return table


def comparison_words() -> str:
    """Explains why the other restarters take so long."""
    timeout = _time(TrainingSettings().nccl_timeout_seconds)
    return (
        "JobSet: its own restart, by failurePolicy and backoffLimit 0. Hung ranks sit out the pods' grace of"
        f" {_grace_seconds()} s (our policy asks for {GRACE_SECONDS} s), and a Job with a pod on a dead node fails only"
        " when a person deletes that node. No restart: only the lost pods are replaced; the others hang until NCCL's"
        f" timeout ({timeout} in PyTorch) and fail, and the Job waits out its own backoff."
    )


def _cost(seconds: float | None, gpus: int) -> tuple[str, str]:
    """Time and GPU-hours, as text. None: longer than `WATCHED_SECONDS`."""
    if seconds is None:
        return f"> {_time(WATCHED_SECONDS)}", f"> {gpus * WATCHED_SECONDS / 3600:,.0f}"
    return _time(seconds), f"{gpus * seconds / 3600:,.1f}"


def _time(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.1f} s"


def _grace_seconds() -> int:
    """The grace period of the job's pods."""
    (replicated,) = runtime_for(Restarter.JOBSET)["spec"]["template"]["spec"]["replicatedJobs"]
    return int(replicated["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def _seconds(span: PhaseSpan) -> float:
    return (span.ended_at - span.started_at).total_seconds() if span.ended_at is not None else 0.0


def _billed_seconds(reported: ReportedIncident) -> float:
    return sum(_seconds(span) for span in reported.incident.phases)


def _idle_gpu_seconds(reported: ReportedIncident) -> float:
    """The idle GPU-seconds of the phases that have ended."""
    return sum(span.idle_gpu_seconds for span in reported.incident.phases if span.ended_at is not None)
