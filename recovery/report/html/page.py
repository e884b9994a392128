"""The page: a head, the sections of a document, and a footer."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from recovery.report.document import (
    Block,
    Bullets,
    DataTable,
    KeyFigures,
    Paragraph,
    ReportDocument,
    StackedBar,
    TableColumn,
    TableRow,
    Verbatim,
)
from recovery.report.html.bars import bar_chart
from recovery.report.html.style import STYLE
from recovery.report.words import printable, verbatim

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser loads and runs nothing, whatever the page contains."""


_SHORT_ROWS = 15
"""A table with at most this many rows is printed on one sheet of paper."""


def html(document: ReportDocument) -> str:
    """The whole file."""
    root = Element("html", lang="en")
    head = SubElement(root, "head")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    SubElement(head, "meta", name="color-scheme", content="light dark")
    _text(head, "title", document.title)
    SubElement(head, "style").text = STYLE
    body = SubElement(root, "body")
    header = SubElement(body, "header")
    _text(header, "h1", document.title)
    _text(header, "p", document.subtitle)
    main = SubElement(body, "main")
    for number, each in enumerate(document.sections):
        name = f"section-{number}"
        part = SubElement(main, "section", {"aria-labelledby": name, "class": f"level-{each.level}"})
        _text(part, f"h{each.level}", each.title, id=name)
        for block in each.blocks:
            _block(part, block)
    footer = SubElement(body, "footer")
    _text(footer, "p", document.footer)
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def _text(parent: Element, tag: str, text: str, **attributes: str) -> Element:
    """All text of the page goes through here or through `verbatim`."""
    found = SubElement(parent, tag, attributes)
    found.text = printable(text)
    return found


def _block(parent: Element, block: Block) -> None:
    match block:
        case KeyFigures():
            _key_figures(parent, block)
        case Paragraph(text=text, quoted=quoted):
            _text(SubElement(parent, "blockquote") if quoted else parent, "p", text)
        case Bullets(items=items):
            listed = SubElement(parent, "ul")
            for item in items:
                _text(listed, "li", item)
        case Verbatim(title=title, lines=lines):
            _text(parent, "p", title)
            SubElement(parent, "pre").text = "\n".join(map(verbatim, lines))
        case StackedBar(title=title, description=description, bars=bars):
            figure = SubElement(parent, "figure")
            _text(figure, "figcaption", title)
            figure.append(bar_chart(bars, "stacked", f"{title}: {description}"))
        case DataTable():
            _table(parent, block)


def _key_figures(parent: Element, block: KeyFigures) -> None:
    listed = SubElement(parent, "dl", {"class": "figures"})
    for figure in block.figures:
        group = SubElement(listed, "div")
        _text(group, "dt", figure.label)
        _text(group, "dd", figure.value)
        if figure.note:
            _text(group, "dd", figure.note).set("class", "note")


def _table(parent: Element, block: DataTable) -> None:
    """The roles are explicit because a phone shows each row as a card, and a browser then no longer sees a table."""
    kind = "table short" if len(block.rows) <= _SHORT_ROWS else "table"
    table = SubElement(SubElement(parent, "div", {"class": kind}), "table", role="table")
    _text(table, "caption", block.title)
    columns = (*block.columns, TableColumn(block.bars_title)) if block.bars_title else block.columns
    header = SubElement(SubElement(table, "thead", role="rowgroup"), "tr", role="row")
    for column in columns:
        _text(header, "th", column.title, role="columnheader", scope="col").set("class", column.kind)
    body = SubElement(table, "tbody", role="rowgroup")
    for row in block.rows:
        _row(body, row, columns, with_bars=bool(block.bars_title))
    if block.note:
        _text(parent, "p", block.note).set("class", "note")


def _row(parent: Element, row: TableRow, columns: Sequence[TableColumn], *, with_bars: bool) -> None:
    found = SubElement(parent, "tr", role="row")
    for number, (cell, column) in enumerate(zip(row.cells, columns, strict=False)):
        attributes = {"role": "cell", "class": column.kind, "data-label": column.title}
        data = SubElement(found, "td", attributes)
        if number == 0 and row.tone is not None:
            SubElement(data, "span", {"class": f"key bg-{row.tone}", "aria-hidden": "true"})
        _text(data, "span", cell)
    if with_bars:
        attributes = {"role": "cell", "class": "bars", "data-label": columns[-1].title}
        SubElement(found, "td", attributes).append(bar_chart(row.bars, "line", ""))
