"""The document of one incident."""

from collections.abc import Iterator, Mapping, Sequence

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.model.ledger import RESTARTS_A_TRAINING, IncidentHandling, Outcome, Phase
from recovery.report.document import (
    Bar,
    Block,
    Bullets,
    ColumnKind,
    DataTable,
    DocumentSection,
    KeyFigure,
    KeyFigures,
    Paragraph,
    ReportDocument,
    StackedBar,
    TableColumn,
    TableRow,
    Tone,
    Verbatim,
    section,
)
from recovery.report.incident_account import STILL_BROKEN, ApiWrite, IncidentAccount, LogAccount, drill_words
from recovery.report.phase_accounts import PhaseAccount
from recovery.report.platform_page import comparison_blocks
from recovery.report.reports import IncidentReport
from recovery.report.words import duration_words, gpu_hours, moment_words, percent, utc_cell

TONES: Mapping[str, Tone] = {
    Phase.DETECTED: Tone.DETECTED,
    Phase.DECIDED: Tone.DECIDED,
    Phase.STOPPING: Tone.STOPPING,
    Phase.FENCING: Tone.FENCING,
    Phase.TEARING_DOWN: Tone.TEARING_DOWN,
    Phase.BACKOFF: Tone.BACKOFF,
    Phase.SCHEDULING: Tone.SCHEDULING,
    Phase.STARTING: Tone.STARTING,
    Phase.RENDEZVOUS: Tone.RENDEZVOUS,
    "Resuming": Tone.RESUMING,
    Phase.HELD: Tone.HELD,
}
"""The tone of each phase, by its name."""

HANDLING_WORDS = {
    IncidentHandling.AUTOMATIC: "handled automatically",
    IncidentHandling.MANUAL: "restarted by a person",
    IncidentHandling.HELD: "waited for a person",
}

_VERIFIED_BY = {
    "joined-probe": "every rank has said itself that it joined",
    "agent": "the agents in all pods have reported that their processes run",
    "progress": "the training has reported progress",
    "ready": "all pods were Ready, which does not prove that the ranks have met",
}

FOOTER = (
    "Measured: dated by the objects of the Kubernetes API, which write whole seconds. Computed: follows from the "
    "inputs beside it. Idle GPU-hours count all GPUs of the group, because one missing rank stops all of them."
)


def incident_document(report: IncidentReport) -> ReportDocument:
    """The report of one incident as a document."""
    account = report.incident
    return ReportDocument(
        title=f"Incident {account.id}",
        subtitle=f"{subject(account)}. Written {moment_words(report.generated_at)}.",
        sections=tuple(incident_sections(account)),
        footer=FOOTER,
    )


def subject(account: IncidentAccount) -> str:
    """`TrainJob team-a/llm`."""
    return f"{account.workload_kind or 'Job'} {account.namespace}/{account.job}"


def incident_sections(account: IncidentAccount, *, level: int = 2) -> Iterator[DocumentSection]:
    """The sections of one incident, under headings of that level."""
    found = (
        section(
            "Summary",
            key_figures(account),
            _drill(account),
            Paragraph(account.message, quoted=True),
            _shared(account),
            _verification(account),
            _still_broken(account),
        ),
        section("Timeline", *_timeline(account)),
        section(
            "Evidence", Bullets(account.evidence) if account.evidence else None, _suspects(account), *_log(account.log)
        ),
        section("Decision", Paragraph(_decision(account)), _alternatives(account)),
        section("Attempts and writes", _attempts(account), _writes(account.writes)),
        section("Without the controller", *comparison_blocks(account)),
    )
    for each in found:
        if each is not None:
            yield DocumentSection(each.title, each.blocks, level)


def key_figures(account: IncidentAccount) -> KeyFigures:
    """The figures that a reader sees first."""
    ended = account.ended_at is not None
    lost = KeyFigure("Idle GPU-hours", gpu_hours(account.idle_gpu_seconds), f"{account.gpus:,} GPUs")
    released = KeyFigure("Released GPU-hours", gpu_hours(account.released_gpu_seconds), "free for other jobs")
    return KeyFigures(
        (
            KeyFigure("Outcome", account.outcome, _handling(account)),
            KeyFigure("Duration", duration_words(account.duration_seconds), "" if ended else "so far"),
            lost,
            *((released,) if account.released_gpu_seconds else ()),
            *_lost_steps(account),
            KeyFigure("Class", account.failure_class, account.cause),
            KeyFigure("Budget", "charged" if account.charged else "not charged", f"limit {_budget(account)}"),
        )
    )


def _lost_steps(account: IncidentAccount) -> tuple[KeyFigure, ...]:
    """None where no agent has measured them."""
    if account.lost_steps is None:
        return ()
    took = (
        "measured"
        if account.rework_seconds is None
        else f"measured; {duration_words(account.rework_seconds)}, computed"
    )
    return (KeyFigure("Steps made twice", f"{account.lost_steps:,}", took),)


def _shared(account: IncidentAccount) -> Paragraph | None:
    """None: the record has one incident only."""
    if account.incidents == 1:
        return None
    return Paragraph(
        f"{account.incidents:,} incidents of this kind share the record, the latest began at "
        f"{moment_words(account.latest_started_at)}. Duration and GPU-hours are of all of them, the details below of "
        "the first."
    )


def _drill(account: IncidentAccount) -> Paragraph | None:
    """None: it is no drill."""
    if account.drill is None:
        return None
    return Paragraph(
        f"Drill {drill_words(account.drill)} caused this incident. No figure about failures contains it: neither those "
        "of the job, nor those of the fleet."
    )


def _budget(account: IncidentAccount) -> str:
    decided = account.decided_by
    return f"{decided.budget_limit} in {duration_words(decided.budget_window_seconds)}"


def _verification(account: IncidentAccount) -> Paragraph | None:
    if account.outcome != Outcome.RECOVERED:
        return None
    how = _VERIFIED_BY.get(account.verified_by, "the record does not say how its end is known")
    return Paragraph(f"{'Verified' if account.verified else 'Not verified'}: {how}.")


def _handling(account: IncidentAccount) -> str:
    words = HANDLING_WORDS[account.handling]
    return f"closed, {STILL_BROKEN}; {words}" if account.still_broken else words


def _still_broken(account: IncidentAccount) -> Paragraph | None:
    if not account.still_broken:
        return None
    return Paragraph(
        "The incident closed without repairing the group: its ranks hung, and no one restarted them. The figures here "
        "end with the incident. What the group has lost since is in the sums of the job, as Broken."
    )


def _timeline(account: IncidentAccount) -> Iterator[Block]:
    yield Paragraph(
        f"The failure happened at {moment_words(account.started_at)}. The controller knew of it "
        f"{duration_words(account.detection_seconds)} later."
    )
    if not account.phases:
        return
    whole = sum(phase.duration_seconds for phase in account.phases)
    bars = tuple(_bars(account.phases, whole))
    released = account.released_gpu_seconds > 0
    yield StackedBar(
        title="Phases in proportion to their duration",
        description="; ".join(f"{phase.phase} {duration_words(phase.duration_seconds)}" for phase in account.phases),
        bars=bars,
    )
    yield DataTable(
        title="Phases",
        columns=(
            TableColumn("Phase"),
            TableColumn("Began (UTC)", ColumnKind.TIME),
            TableColumn("Took", ColumnKind.NUMBER),
            TableColumn("Share", ColumnKind.NUMBER),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
            *((TableColumn("Released GPU-hours", ColumnKind.NUMBER),) if released else ()),
        ),
        rows=tuple(
            TableRow(_phase_cells(phase, whole, with_released=released), (bar,), TONES.get(phase.phase, Tone.PLAIN))
            for phase, bar in zip(account.phases, bars, strict=True)
        ),
        bars_title="When",
        note=_unaccounted(account),
    )


def _bars(phases: Sequence[PhaseAccount], whole: float) -> Iterator[Bar]:
    begun = 0.0
    for phase in phases:
        width = phase.duration_seconds / whole if whole else 0.0
        tone = Tone.RELEASED if phase.released_gpu_seconds else TONES.get(phase.phase, Tone.PLAIN)
        yield Bar(begun, width, tone)
        begun += width


def _phase_cells(phase: PhaseAccount, whole: float, *, with_released: bool) -> tuple[str, ...]:
    took = duration_words(phase.duration_seconds)
    return (
        phase.phase,
        utc_cell(phase.started_at),
        took if phase.ended_at is not None else f"{took} so far",
        percent(phase.duration_seconds, whole),
        gpu_hours(phase.idle_gpu_seconds),
        *((gpu_hours(phase.released_gpu_seconds),) if with_released else ()),
    )


def _unaccounted(account: IncidentAccount) -> str:
    seconds = account.unaccounted_seconds
    return f"The record's phases differ from the whole duration by {seconds:.3f} s." if seconds else ""


def _suspects(account: IncidentAccount) -> DataTable | None:
    if not account.suspects:
        return None
    return DataTable(
        title="Suspects: where the failure showed first",
        columns=(
            TableColumn("Pod"),
            TableColumn("Node"),
            TableColumn("Rank", ColumnKind.NUMBER),
            TableColumn("Exit code", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow((each.pod, each.node or "-", _number(each.rank), _number(each.exit_code)))
            for each in account.suspects
        ),
    )


def _log(log: LogAccount | None) -> Iterator[Block]:
    """What the suspect wrote about its end comes first, then the last lines of its log."""
    if log is None:
        return
    if log.termination_message:
        yield Verbatim(f"Termination message of pod {log.pod}", tuple(log.termination_message.split("\n")))
    if log.absent is not None:
        yield Paragraph(f"The log of pod {log.pod} was not read: {log.absent}.")
        return
    whose = f"container {log.container} in pod {log.pod}{', before it restarted' if log.previous else ''}"
    yield Verbatim(f"Last {len(log.lines)} lines of {whose}", log.lines)
    if log.incomplete:
        yield Paragraph("The log went on after these lines: only its first 256 KiB of the last 64 lines were read.")


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _decision(account: IncidentAccount) -> str:
    """One sentence; in mode Observe a second one."""
    decided = account.decided_by
    policy = f"policy {decided.policy} (generation {decided.policy_generation}, mode {account.mode})"
    would = f" In mode Observe, the controller would have done: {account.would}." if account.would else ""
    if account.failure_class == DisruptionClass.MANUAL:
        return f"A person asked for the restart.{would}"
    if account.failure_class == DisruptionClass.GROWTH:
        return f"There was room for more nodes, as elastic of {policy} has it."
    if decided.rule:
        return f"Rule {decided.rule} of {policy} decided.{would}"
    if account.would or any(each.action in RESTARTS_A_TRAINING for each in account.attempts):
        return f"No rule matched, so the default of {policy} decided: {decided.restart}.{would}"
    return f"The controller restarted nothing under {policy}: {account.reason}."


def _alternatives(account: IncidentAccount) -> DataTable | None:
    if not account.alternatives:
        return None
    return DataTable(
        title="Considered, and not done",
        columns=(
            TableColumn("Action"),
            TableColumn("Node"),
            TableColumn("Reason"),
            TableColumn("Why not", ColumnKind.PROSE),
        ),
        rows=tuple(
            TableRow((each.action, each.node or "-", each.reason, each.message)) for each in account.alternatives
        ),
    )


def _attempts(account: IncidentAccount) -> Block:
    if not account.attempts:
        return Paragraph("Nothing was restarted.")
    return DataTable(
        title="Attempts",
        columns=(
            TableColumn("No.", ColumnKind.NUMBER),
            TableColumn("Action"),
            TableColumn("Began (UTC)", ColumnKind.TIME),
            TableColumn("Reason"),
            TableColumn("Message", ColumnKind.PROSE),
        ),
        rows=tuple(
            TableRow((str(each.number), each.action, utc_cell(each.started_at), each.reason, each.message))
            for each in account.attempts
        ),
    )


def _writes(writes: Sequence[ApiWrite]) -> DataTable | None:
    if not writes:
        return None
    return DataTable(
        title="Writes to the cluster",
        columns=(
            TableColumn("At (UTC)", ColumnKind.TIME),
            TableColumn("Verb"),
            TableColumn("Resource"),
            TableColumn("Of", ColumnKind.PROSE),
        ),
        rows=tuple(
            TableRow((utc_cell(each.at), each.verb, each.resource, ", ".join(each.names) or "-")) for each in writes
        ),
        note="The triggers that the record keeps. The audit log of the API server has every write.",
    )
