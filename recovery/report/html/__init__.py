"""A document as one self-contained HTML file: no script, no request, charts as inline SVG.

It is built as a tree of elements, so that every string is escaped when it is written, and none can become markup.
"""

from recovery.report.html.page import html

__all__ = ["html"]
