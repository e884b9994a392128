"""A report as a document: what every rendering shows, and in which order. Strings are plain text, never markup."""

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Tone(StrEnum):
    """What a bar stands for. A rendering gives each its colour; no figure is shown by colour alone."""

    DETECTED = "detected"
    DECIDED = "decided"
    STOPPING = "stopping"
    FENCING = "fencing"
    TEARING_DOWN = "tearing-down"
    BACKOFF = "backoff"
    SCHEDULING = "scheduling"
    STARTING = "starting"
    RENDEZVOUS = "rendezvous"
    RESUMING = "resuming"
    HELD = "held"
    RELEASED = "released"
    PLAIN = "plain"
    COMPUTED = "computed"


class Bar(msgspec.Struct, frozen=True):
    """Part of a line from 0 to 1."""

    start: float
    width: float
    tone: Tone = Tone.PLAIN


class KeyFigure(msgspec.Struct, frozen=True):
    """A figure at the top."""

    label: str
    value: str
    note: str = ""


class KeyFigures(msgspec.Struct, frozen=True):
    """The figures at the top."""

    figures: tuple[KeyFigure, ...]


class Paragraph(msgspec.Struct, frozen=True):
    """One or more sentences."""

    text: str
    quoted: bool = False
    """The text is the controller's own sentence, as in Events and status."""


class Bullets(msgspec.Struct, frozen=True):
    """An unordered list."""

    items: tuple[str, ...]


class Verbatim(msgspec.Struct, frozen=True):
    """Lines as a program wrote them."""

    title: str
    lines: tuple[str, ...]


class ColumnKind(StrEnum):
    """What the cells of a column hold, which decides where they may break."""

    NAME = "name"
    NUMBER = "number"
    """Numbers with their units, aligned to the right."""
    TIME = "time"
    PROSE = "prose"
    """Sentences. They get the width that the other columns leave."""


class TableColumn(msgspec.Struct, frozen=True):
    """A column and its head."""

    title: str
    kind: ColumnKind = ColumnKind.NAME


class TableRow(msgspec.Struct, frozen=True):
    """As many cells as the table has columns."""

    cells: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    tone: Tone | None = None
    """The tone that a chart uses for the subject of the row. None: no chart shows it."""


class DataTable(msgspec.Struct, frozen=True):
    """A table, with a bar for each row if `bars_title` is set."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    bars_title: str = ""
    note: str = ""


class StackedBar(msgspec.Struct, frozen=True):
    """One bar made of parts that fill it. The table below it has the same parts with their figures."""

    title: str
    description: str
    """The same in words, for readers who do not see the bar."""
    bars: tuple[Bar, ...]


Block: TypeAlias = KeyFigures | Paragraph | Bullets | Verbatim | DataTable | StackedBar


class DocumentSection(msgspec.Struct, frozen=True):
    """A heading and the blocks below it."""

    title: str
    blocks: tuple[Block, ...]
    level: int = 2


class ReportDocument(msgspec.Struct, frozen=True):
    """The whole report."""

    title: str
    subtitle: str
    sections: tuple[DocumentSection, ...]
    footer: str


def section(title: str, *blocks: Block | None, level: int = 2) -> DocumentSection | None:
    """A section of the blocks that are not None. None: there are no such blocks."""
    found = tuple(block for block in blocks if block is not None)
    return DocumentSection(title, found, level) if found else None
