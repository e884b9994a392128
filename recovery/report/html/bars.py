"""Bars as SVG. They contain no text, so they can stretch to any width, and the text beside them stays readable."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

from recovery.report.document import Bar
from recovery.report.words import printable

_WIDTH = 1000
_HEIGHT = 20
_VISIBLE = 4
"""A shorter bar is drawn this long, so that the shortest phase is visible too. Its figure is beside it."""


def bar_chart(bars: Sequence[Bar], kind: str, description: str) -> Element:
    """`description` empty: the table row of the chart has the same figures."""
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
