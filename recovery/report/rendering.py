"""Renders a report as the text that is printed."""

import msgspec

from recovery.report.document import ReportDocument
from recovery.report.formats import ReportFormat
from recovery.report.html import html
from recovery.report.incident_page import incident_document
from recovery.report.markdown import markdown
from recovery.report.reports import AnyReport, FleetReport, IncidentReport
from recovery.report.totals_page import fleet_document, job_document


def rendered(report: AnyReport, wanted: ReportFormat) -> str:
    """The text, with a line break at its end."""
    match wanted:
        case ReportFormat.JSON:
            return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        case ReportFormat.HTML:
            return html(document_of(report))
        case ReportFormat.MD:
            return markdown(document_of(report))


def document_of(report: AnyReport) -> ReportDocument:
    """The document that Markdown and HTML show."""
    if isinstance(report, IncidentReport):
        return incident_document(report)
    return fleet_document(report) if isinstance(report, FleetReport) else job_document(report)
