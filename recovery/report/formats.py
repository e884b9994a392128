"""The formats of a report, apart from what writes them: a command line is loaded for every command."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """How a report is printed."""

    MD = "md"
    HTML = "html"
    JSON = "json"
