"""Bars as SVG. They hold no text, so that they stretch to any width and the text beside them stays readable."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

from recovery.report.document import Bar
from recovery.report.words import printable

_WIDTH = 1000
_HEIGHT = 20
_VISIBLE = 4
"""A bar that is shorter is drawn that long: the shortest phase is still seen. Its figure stands beside it."""


def bar_chart(bars: Sequence[Bar], kind: str, description: str) -> Element:
    """`description` empty: the row that it stands in says the same in figures."""
    attributes = {"class": kind, "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "preserveAspectRatio": "none"}
    if not description:
        chart = Element("svg", attributes | {"aria-hidden": "true"})
    else:
        chart = Element("svg", attributes | {"role": "img"})
        SubElement(chart, "title").text = printable(description)
    for bar in bars:
        if bar.width <= 0:
            continue
        width = max(bar.width * _WIDTH, _VISIBLE)
        left = min(bar.start * _WIDTH, _WIDTH - width)
        SubElement(
            chart,
            "rect",
            {
                "class": f"tone-{bar.tone}",
                "x": f"{left:.2f}",
                "y": "0",
                "width": f"{width:.2f}",
                "height": str(_HEIGHT),
            },
        )
    return chart
