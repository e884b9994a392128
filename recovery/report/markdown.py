"""A document as Markdown that reads well in a terminal. Nothing that others wrote becomes markup."""

import re
from collections.abc import Iterator, Sequence

from recovery.report.document import (
    Bar,
    Block,
    Bullets,
    ColumnKind,
    DataTable,
    KeyFigures,
    Paragraph,
    ReportDocument,
    StackedBar,
    Verbatim,
)
from recovery.report.words import printable, verbatim

_BAR_CELLS = 24
_SPECIAL = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)")
_BEGINS_A_BLOCK = re.compile(r"^(?:#+|[+=-]+|\d+[.)])(?=\s|$|[-=])")


def markdown(document: ReportDocument) -> str:
    """The whole text, with a line break at its end."""
    lines = [f"# {escaped(document.title)}", "", _paragraph(document.subtitle)]
    for each in document.sections:
        lines += ["", f"{'#' * each.level} {escaped(each.title)}"]
        for block in each.blocks:
            lines += ["", *_block(block)]
    lines += ["", "---", "", _paragraph(document.footer)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Plain text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(_replacement, printable(text))


def _paragraph(text: str) -> str:
    """The same for the beginning of a line, where the text must not start a heading, list or rule."""
    return _BEGINS_A_BLOCK.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", escaped(text))


def _replacement(found: re.Match[str]) -> str:
    # These two become entities, because not all renderers support a backslash before `<` or `&`.
    return {"<": "&lt;", "&": "&amp;"}.get(found[0], f"\\{found[0]}")


def _block(block: Block) -> Iterator[str]:
    match block:
        case KeyFigures(figures=figures):
            for figure in figures:
                note = f" ({escaped(figure.note)})" if figure.note else ""
                yield f"- {escaped(figure.label)}: {escaped(figure.value)}{note}"
        case Paragraph(text=text, quoted=quoted):
            yield f"> {_paragraph(text)}" if quoted else _paragraph(text)
        case Bullets(items=items):
            yield from (f"- {_paragraph(item)}" for item in items)
        case Verbatim(title=title, lines=lines):
            yield f"{_paragraph(title)}:"
            yield ""
            # The fence is longer than any run of backticks in the lines, so that no tenant's line ends the block.
            fence = "`" * max(3, 1 + max((len(run) for line in lines for run in re.findall("`+", line)), default=0))
            yield from (f"{fence}text", *map(verbatim, lines), fence)
        case DataTable():
            yield from _table(block)
        case StackedBar(title=title, description=description):
            yield f"{escaped(title)}: {escaped(description)}."


def _table(table: DataTable) -> Iterator[str]:
    yield f"{_paragraph(table.title)}:"
    yield ""
    header = [escaped(column.title) for column in table.columns]
    rows = [[escaped(cell) for cell in row.cells] for row in table.rows]
    numeric = [column.kind is ColumnKind.NUMBER for column in table.columns]
    if table.bars_title:
        header.append(escaped(table.bars_title))
        rows = [[*cells, _bars(row.bars)] for cells, row in zip(rows, table.rows, strict=True)]
        numeric.append(False)
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    yield _line(header, widths, numeric)
    ruler = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)]
    yield f"| {' | '.join(ruler)} |"
    yield from (_line(row, widths, numeric) for row in rows)
    if table.note:
        yield ""
        yield _paragraph(table.note)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _bars(bars: Sequence[Bar]) -> str:
    """Each bar is at least one cell long, so that the shortest phase is visible."""
    cells = [" "] * _BAR_CELLS
    for bar in bars:
        first = min(int(bar.start * _BAR_CELLS), _BAR_CELLS - 1)
        last = max(first + 1, round((bar.start + bar.width) * _BAR_CELLS))
        for number in range(first, min(last, _BAR_CELLS)):
            cells[number] = "█" if bar.width else " "
    return "".join(cells).rstrip()
