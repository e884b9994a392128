"""The documents of a job and of the fleet. Both are sums over incidents, with the incidents below them."""

from collections.abc import Iterator, Mapping, Sequence

from recovery.core.model.ledger import IncidentHandling
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.report.document import (
    Bar,
    Block,
    ColumnKind,
    DataTable,
    DocumentSection,
    KeyFigure,
    KeyFigures,
    Paragraph,
    ReportDocument,
    TableColumn,
    TableRow,
    Tone,
    section,
)
from recovery.report.enforce_words import ENFORCE_BASIS, EnforceAccount, enforce_sentence
from recovery.report.group_totals import GroupTotals
from recovery.report.incident_account import drill_words, outcome_words
from recovery.report.incident_page import FOOTER, TONES, incident_sections
from recovery.report.platform_page import sums_table
from recovery.report.proof_account import ProofAccount
from recovery.report.reports import Coverage, DrillIncident, FleetReport, JobReport
from recovery.report.words import counted, duration_words, gpu_hours, moment_words, percent, utc_cell

IN_FULL_MAX = 20
"""Incidents of a job that are shown in full. Older ones have only a row."""


def job_document(report: JobReport) -> ReportDocument:
    """The report of a job as a document."""
    kind = report.workload_kind or "Job"
    sections: list[DocumentSection | None] = [
        section("Summary", *_summary(report.totals), _proof(report.proof), *_coverage(report.coverage)),
        *_cost_sections(report.totals),
        section("Incidents", _job_incidents(report)),
        section("Drills", _drills(report.drills)),
    ]
    for account in report.incidents[:IN_FULL_MAX]:
        outcome = outcome_words(account.outcome, still_broken=account.still_broken)
        heading = Paragraph(f"{account.failure_class}, {outcome}, {moment_words(account.started_at)}.")
        sections.append(section(f"Incident {account.id}", heading))
        sections += incident_sections(account, level=3)
    return ReportDocument(
        title=f"{kind} {report.namespace}/{report.job}",
        subtitle=f"{counted(report.totals.incidents, 'incident')}. Written {moment_words(report.generated_at)}.",
        sections=tuple(each for each in sections if each is not None),
        footer=FOOTER,
    )


def fleet_document(report: FleetReport) -> ReportDocument:
    """The report of the fleet as a document."""
    where = f"namespace {report.namespace}" if report.namespace else "all namespaces"
    length = duration_words((report.window_end - report.window_start).total_seconds())
    sections = (
        section("Summary", *_summary(report.totals), *_coverage(report.coverage)),
        section("Time to recovery", _times(report.totals)),
        *_cost_sections(report.totals),
        section("Worst jobs", _worst_jobs(report)),
        section("Worst nodes", _worst_nodes(report)),
        section("Incidents", _fleet_incidents(report)),
        section("Drills", _drills(report.drills)),
    )
    return ReportDocument(
        title=f"Recoveries in {where}",
        subtitle=(
            f"{moment_words(report.window_start)} to {moment_words(report.window_end)} ({length}). An incident counts, "
            "whole, if it ended in this time or is open."
        ),
        sections=tuple(each for each in sections if each is not None),
        footer=FOOTER,
    )


def _summary(totals: GroupTotals) -> Iterator[Block]:
    if not totals.incidents and not totals.idle_gpu_seconds:
        yield Paragraph("There are no incidents.")
        yield from _beside(totals)
        return
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in totals.by_outcome.items())
    automatic = totals.by_handling.get(IncidentHandling.AUTOMATIC, 0)
    others = ", ".join(
        f"{count:,} {handling}"
        for handling, count in totals.by_handling.items()
        if handling != IncidentHandling.AUTOMATIC
    )
    released = KeyFigure("Released GPU-hours", gpu_hours(totals.released_gpu_seconds), "free for other jobs")
    yield KeyFigures(
        (
            KeyFigure("Incidents", f"{totals.incidents:,}", outcomes),
            KeyFigure("Handled automatically", f"{automatic:,} of {totals.incidents:,}", others),
            KeyFigure("Idle GPU-hours", gpu_hours(totals.idle_gpu_seconds)),
            *((released,) if totals.released_gpu_seconds else ()),
            *_lost_steps(totals),
            KeyFigure("Restarts", f"{totals.restarts:,}", f"{totals.charged:,} charged to a budget"),
        )
    )
    if totals.still_broken_incidents:
        yield Paragraph(
            f"{counted(totals.still_broken_incidents, 'incident')} closed although ranks hung. What the groups lost "
            f"after that counts as {BROKEN_SECONDS}, except for jobs that have been deleted since."
        )
    yield from _beside(totals)


def _beside(totals: GroupTotals) -> Iterator[Paragraph]:
    """What the drills have cost beside the failures. Nothing where there was no drill."""
    if totals.drill_incidents or totals.drill_idle_gpu_seconds:
        cost = gpu_hours(totals.drill_idle_gpu_seconds)
        yield Paragraph(
            f"Drills left another {cost} GPU-hours idle, in {counted(totals.drill_incidents, 'incident')}. They are no "
            "failures, so no other figure contains them."
        )


def _proof(proof: ProofAccount | None) -> Paragraph | None:
    """None: nothing is known of a proof."""
    if proof is None:
        return None
    counts = "proves that the job recovers" if proof.counts else "no longer proves that the job recovers"
    if not proof.verified:
        counts = "does not prove that the job recovers"
    return Paragraph(f"The recovery that ended at {moment_words(proof.proven_at)} {counts}: {proof.message}.")


def _lost_steps(totals: GroupTotals) -> tuple[KeyFigure, ...]:
    """None where no agent has measured them."""
    if not totals.rework_known_for:
        return ()
    cost = f"{gpu_hours(totals.rework_gpu_seconds)} GPU-hours, computed"
    measured = f"measured in {totals.rework_known_for:,} of {totals.incidents:,}"
    return (KeyFigure("Steps made twice", f"{totals.lost_steps:,}", f"{measured}; {cost}"),)


def _coverage(coverage: Coverage) -> Iterator[Paragraph]:
    if coverage.oldest_record_at is None:
        yield Paragraph("No record of any incident was found, so it is not known since when incidents are recorded.")
    elif not coverage.whole_window:
        yield Paragraph(
            f"The oldest record begins at {moment_words(coverage.oldest_record_at)}. Whether "
            "the time before it was free of incidents, or had no controller, is not known."
        )
    if coverage.missing_records:
        yield Paragraph(
            f"The numbers of the incidents have gaps: {counted(coverage.missing_records, 'record')} missing. "
            "The figures are too low."
        )
    if coverage.unreadable_records:
        yield Paragraph(f"{counted(coverage.unreadable_records, 'record')} cannot be read. The figures are too low.")
    if not coverage.open_incidents_read:
        yield Paragraph(
            "RecoveryGroups may not be listed, so open incidents are missing. So is what groups lost as Broken."
        )


def _cost_sections(totals: GroupTotals) -> Iterator[DocumentSection | None]:
    if not totals.incidents and not totals.idle_gpu_seconds:
        return
    yield section(
        "Where GPU time went",
        _split("Idle GPU-hours by phase", "Phase", totals.idle_gpu_seconds_by_phase, TONES),
        _split("Idle GPU-hours by cause", "Class", totals.idle_gpu_seconds_by_class, {}, totals.by_class),
        _split("Idle GPU-hours by badput type", "Type (ml-goodput-measurement)", totals.idle_gpu_seconds_by_badput, {}),
    )
    yield section("Without the controller", sums_table(totals.platform))
    yield section("With Enforce", _with_enforce(totals.with_enforce))


def _with_enforce(estimate: EnforceAccount) -> Paragraph | None:
    """None: no incident in mode Observe called for a restart."""
    return Paragraph(f"{enforce_sentence(estimate)} {ENFORCE_BASIS}") if estimate.restarts else None


def _split(
    title: str,
    what: str,
    values: Mapping[str, float],
    tones: Mapping[str, Tone],
    incidents: Mapping[str, int] | None = None,
) -> DataTable:
    """`incidents` None: the table has no column for them."""
    whole = sum(values.values())
    largest = max(values.values(), default=0.0)
    names = dict.fromkeys((*values, *(incidents or {})))
    return DataTable(
        title=title,
        columns=(
            TableColumn(what),
            *((TableColumn("Incidents", ColumnKind.NUMBER),) if incidents is not None else ()),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
            TableColumn("Share", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow(
                (
                    name,
                    *((f"{incidents.get(name, 0):,}",) if incidents is not None else ()),
                    gpu_hours(values.get(name, 0.0)),
                    percent(values.get(name, 0.0), whole),
                ),
                (Bar(0.0, values.get(name, 0.0) / largest if largest else 0.0, tones.get(name, Tone.PLAIN)),),
            )
            for name in names
        ),
        bars_title="Idle",
    )


def _times(totals: GroupTotals) -> DataTable | None:
    if not totals.incidents:
        return None
    return DataTable(
        title="From the failure to the recovery, of recovered incidents",
        columns=(
            TableColumn("Handling"),
            TableColumn("Recovered", ColumnKind.NUMBER),
            TableColumn("Mean", ColumnKind.NUMBER),
            TableColumn("Median", ColumnKind.NUMBER),
            TableColumn("95% within", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow(
                (
                    each.handling,
                    f"{each.recovered:,}",
                    *(
                        "-" if seconds is None else duration_words(seconds)
                        for seconds in (each.mean_seconds, each.median_seconds, each.p95_seconds)
                    ),
                )
            )
            for each in totals.recovery_times
        ),
        note="Incidents that waited for a person are kept apart: they would hide how fast the others were.",
    )


def _worst_jobs(report: FleetReport) -> DataTable | None:
    if not report.worst_jobs:
        return None
    largest = max(each.idle_gpu_seconds for each in report.worst_jobs)
    released = report.totals.released_gpu_seconds > 0
    return DataTable(
        title="Jobs that lost most",
        columns=(
            TableColumn("Job"),
            TableColumn("Incidents", ColumnKind.NUMBER),
            TableColumn("Restarts", ColumnKind.NUMBER),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
            *((TableColumn("Released GPU-hours", ColumnKind.NUMBER),) if released else ()),
        ),
        rows=tuple(
            TableRow(
                (
                    f"{each.namespace}/{each.job}",
                    f"{each.incidents:,}",
                    f"{each.restarts:,}",
                    gpu_hours(each.idle_gpu_seconds),
                    *((gpu_hours(each.released_gpu_seconds),) if released else ()),
                ),
                (Bar(0.0, each.idle_gpu_seconds / largest if largest else 0.0),),
            )
            for each in report.worst_jobs
        ),
        bars_title="Idle",
    )


def _worst_nodes(report: FleetReport) -> DataTable | None:
    if not report.worst_nodes:
        return None
    most = max(each.incidents for each in report.worst_nodes)
    return DataTable(
        title="Nodes on which failures showed first",
        columns=(
            TableColumn("Node"),
            TableColumn("Incidents", ColumnKind.NUMBER),
            TableColumn("Quarantined", ColumnKind.NUMBER),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow(
                (each.node, f"{each.incidents:,}", f"{each.replaced:,}", gpu_hours(each.idle_gpu_seconds)),
                (Bar(0.0, each.incidents / most if most else 0.0),),
            )
            for each in report.worst_nodes
        ),
        bars_title="Incidents",
        note="An incident with suspects on two nodes counts for both, so the sum may exceed the total.",
    )


_INCIDENT_COLUMNS = (
    TableColumn("Began (UTC)", ColumnKind.TIME),
    TableColumn("Incident"),
    TableColumn("Count", ColumnKind.NUMBER),
    TableColumn("Class"),
    TableColumn("Outcome"),
    TableColumn("Handling"),
    TableColumn("Duration", ColumnKind.NUMBER),
    TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
)


def _job_incidents(report: JobReport) -> DataTable | None:
    if not report.incidents:
        return None
    older = len(report.incidents) - IN_FULL_MAX
    return DataTable(
        title="Incidents, the newest first",
        columns=_INCIDENT_COLUMNS,
        rows=tuple(
            TableRow(
                (
                    utc_cell(each.started_at),
                    each.id,
                    f"{each.incidents:,}",
                    each.failure_class,
                    outcome_words(each.outcome, still_broken=each.still_broken),
                    each.handling,
                    duration_words(each.duration_seconds),
                    gpu_hours(each.idle_gpu_seconds),
                )
            )
            for each in report.incidents
        ),
        note=f"The newest {IN_FULL_MAX} follow in full. --incident ID shows one of the others." if older > 0 else "",
    )


def _drills(drills: Sequence[DrillIncident]) -> DataTable | None:
    if not drills:
        return None
    return DataTable(
        title="Incidents that drills have caused, the newest first",
        columns=(
            TableColumn("Began (UTC)", ColumnKind.TIME),
            TableColumn("Job"),
            TableColumn("Drill"),
            TableColumn("Incident"),
            TableColumn("Class"),
            TableColumn("Outcome"),
            TableColumn("Duration", ColumnKind.NUMBER),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow(
                (
                    utc_cell(each.started_at),
                    f"{each.namespace}/{each.job}",
                    drill_words(each.drill),
                    each.id,
                    each.failure_class,
                    each.outcome,
                    duration_words(each.duration_seconds),
                    gpu_hours(each.idle_gpu_seconds),
                )
            )
            for each in drills
        ),
        note="With --incident ID, the report of the job shows one of them in full.",
    )


def _fleet_incidents(report: FleetReport) -> DataTable | None:
    if not report.incidents:
        return None
    return DataTable(
        title="Incidents, the newest first",
        columns=(_INCIDENT_COLUMNS[0], TableColumn("Job"), *_INCIDENT_COLUMNS[1:]),
        rows=tuple(
            TableRow(
                (
                    utc_cell(each.started_at),
                    f"{each.namespace}/{each.job}",
                    each.id,
                    f"{each.incidents:,}",
                    each.failure_class,
                    outcome_words(each.outcome, still_broken=each.still_broken),
                    each.handling,
                    duration_words(each.duration_seconds),
                    gpu_hours(each.idle_gpu_seconds),
                )
            )
            for each in report.incidents
        ),
    )
