"""The formats of a report. The code that writes them is elsewhere, because every command loads this module."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """How a report is printed."""

    MD = "md"
    HTML = "html"
    JSON = "json"
