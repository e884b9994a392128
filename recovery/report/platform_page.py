"""The section on the platform's own ways: what they would have cost, from which inputs, by which formula."""

from collections.abc import Iterator, Sequence

from recovery.report.document import Bar, Block, ColumnKind, DataTable, Paragraph, TableColumn, TableRow, Tone
from recovery.report.group_totals import WaySum
from recovery.report.incident_account import IncidentAccount
from recovery.report.platform_ways import NOT_COMPARED_MESSAGES, FigureInput, PlatformWay, Way
from recovery.report.words import counted, duration_words, gpu_hours

WAY_WORDS = {
    Way.SHIPPED_RUNTIME: "Trainer's shipped runtime",
    Way.JOB_SET_FAILURE_POLICY: "JobSet with a failurePolicy and backoffLimit 0",
}

_LOWER_BOUND = (
    "Computed. It favours the platform: the time in which a person notices a job that has failed for good is left out, "
    "and so are pods that wait for a dead node. Pods end, get nodes and start as fast as they did here."
)


def comparison_blocks(account: IncidentAccount) -> Iterator[Block]:
    """The ways beside what happened, with inputs and formulas, or the reason why they are not compared."""
    found = account.platform
    if found.not_compared is not None:
        yield Paragraph(f"Not compared. {NOT_COMPARED_MESSAGES[found.not_compared]}")
        return
    yield Paragraph(_LOWER_BOUND)
    largest = max((account.idle_gpu_seconds, *(way.idle_gpu_seconds for way in found.ways)))
    yield DataTable(
        title="Idle GPU-hours of this incident, and what the platform alone would have cost",
        columns=(
            TableColumn("Way"),
            TableColumn("Basis"),
            TableColumn("Duration", ColumnKind.NUMBER),
            TableColumn("Idle GPU-hours", ColumnKind.NUMBER),
            TableColumn("Saved GPU-hours", ColumnKind.NUMBER),
        ),
        rows=(
            TableRow(
                (
                    "This controller",
                    "measured",
                    duration_words(account.duration_seconds),
                    gpu_hours(account.idle_gpu_seconds),
                    "-",
                ),
                (_bar(account.idle_gpu_seconds, largest, Tone.PLAIN),),
            ),
            *(
                TableRow(
                    (
                        WAY_WORDS[way.way],
                        way.basis,
                        duration_words(way.duration_seconds),
                        gpu_hours(way.idle_gpu_seconds),
                        gpu_hours(way.saved_gpu_seconds),
                    ),
                    (_bar(way.idle_gpu_seconds, largest, Tone.COMPUTED),),
                )
                for way in found.ways
            ),
        ),
        bars_title="Idle",
        note=_ended(found.ways),
    )
    yield _inputs(found.ways)


def _ended(ways: Sequence[PlatformWay]) -> str:
    return " ".join(
        f"{WAY_WORDS[way.way]} fails the job for good when so many ranks exit (8 restarts did, measured): a person has "
        "to start it again, and that time is not counted."
        for way in ways
        if way.ends_job
    )


def _inputs(ways: Sequence[PlatformWay]) -> DataTable:
    inputs: dict[tuple[str, float], FigureInput] = {}
    for way in ways:
        inputs |= {(each.name, each.value): each for each in way.inputs}
    return DataTable(
        title="Inputs and formulas",
        columns=(
            TableColumn("Name"),
            TableColumn("Value", ColumnKind.NUMBER),
            TableColumn("Basis"),
            TableColumn("Source", ColumnKind.PROSE),
        ),
        rows=(
            *(
                TableRow((each.name, f"{each.value:g} {each.unit}", each.basis, each.source))
                for each in inputs.values()
            ),
            *(TableRow((WAY_WORDS[way.way], "-", way.basis, f"GPU-seconds = {way.formula}")) for way in ways),
        ),
    )


def sums_table(sums: Sequence[WaySum]) -> DataTable | None:
    """The platform's ways over many incidents. None: no incident can be compared."""
    if not sums:
        return None
    largest = max(max(each.idle_gpu_seconds, each.measured_idle_gpu_seconds) for each in sums)
    return DataTable(
        title="What the platform alone would have cost (computed), and what the same incidents did cost (measured)",
        columns=(
            TableColumn("Way"),
            TableColumn("Incidents", ColumnKind.NUMBER),
            TableColumn("Computed GPU-hours", ColumnKind.NUMBER),
            TableColumn("Measured GPU-hours", ColumnKind.NUMBER),
            TableColumn("Saved GPU-hours", ColumnKind.NUMBER),
            TableColumn("Jobs failed for good", ColumnKind.NUMBER),
        ),
        rows=tuple(
            TableRow(
                (
                    WAY_WORDS[each.way],
                    f"{each.incidents:,}",
                    gpu_hours(each.idle_gpu_seconds),
                    gpu_hours(each.measured_idle_gpu_seconds),
                    gpu_hours(each.saved_gpu_seconds),
                    f"{each.jobs_ended:,}",
                ),
                (_bar(each.idle_gpu_seconds, largest, Tone.COMPUTED),),
            )
            for each in sums
        ),
        bars_title="Computed",
        note=f"{_LOWER_BOUND} The report of one incident has the inputs and formulas. Compared: "
        f"{counted(max(each.incidents for each in sums), 'incident')} that the controller's restart brought back.",
    )


def _bar(value: float, largest: float, tone: Tone) -> Bar:
    return Bar(0.0, value / largest if largest else 0.0, tone)
