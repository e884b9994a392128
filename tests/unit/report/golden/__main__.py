"""Regenerates the files: `.venv/bin/python -m tests.unit.report.golden`."""

from recovery.report.formats import ReportFormat
from recovery.report.rendering import rendered
from recovery.report.reports import incident_report
from tests.unit.report.records import FOLDER, NOW, killed_rank

for wanted in ReportFormat:
    text = rendered(incident_report(killed_rank(), NOW), wanted)
    (FOLDER / f"golden/incident.{wanted}").write_text(text, encoding="utf-8")
