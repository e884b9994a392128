"""`make pictures`: draws the dashboards on their recording, and takes screenshots of reports, into docs/images.

The dashboards are drawn from the answers of Prometheus. The reports are pages in headless Chromium: one of a rank that
was killed on a real control plane, and one of a week of a fleet, with the incidents of simulated trials.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from recovery.core.model.incident_record import IncidentRecord
from recovery.generated_files import REPOSITORY
from recovery.kube.incident_records import decode_record
from recovery.ports import RECOVERY_INCIDENTS
from recovery.report.formats import ReportFormat
from recovery.report.rendering import rendered
from recovery.report.reports import AnyReport, RecordsFound, fleet_report, incident_report
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.trial import run_trial
from recovery.sim.virtual_time import BEGIN
from tests.cluster.controlplane.build import MONITORING, provide
from tests.prometheus.board_queries import BOARDS, Viewed
from tests.prometheus.drawing import draw
from tests.prometheus.laid import lay
from tests.prometheus.scenario import record
from tests.unit.report.records import NOW, killed_rank

CHOSEN = {"fleet": {}, "job": {"namespace": "team-a", "job_name": "llm"}}
IMAGES = REPOSITORY / "docs/images"
TRIALS = 40
"""Each trial is the history of one job's cluster; together they are the fleet of the report."""
WEEK = timedelta(days=7)
SIZES = {"incident": (900, 2920), "fleet": (900, 4800)}
"""The pages in pixels: width, and a height that shows the whole page."""


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("Chromium, which photographs reports, is not here: install Debian's package chromium", file=sys.stderr)
        return 1
    structlog.configure(processors=[_drop])
    with tempfile.TemporaryDirectory(prefix="recovery-pictures-") as folder:
        _dashboards(Path(folder))
        _reports(chromium, Path(folder))
    return 0


def _drop(*_: object) -> str:
    raise structlog.DropEvent


def _dashboards(folder: Path) -> None:
    recording = record()
    toolbox = provide(print, MONITORING)
    programs = {"prometheus": toolbox.binary("prometheus"), "promtool": toolbox.binary("promtool")}
    laid = lay(recording, **programs, folder=folder, honors_labels=True)
    with laid.served() as server:
        for board in BOARDS:
            view = Viewed(recording.evidence.began_at, recording.ends_at, CHOSEN[board])
            (IMAGES / f"dashboard-{board}.svg").write_text(draw(board, server, view))


def _reports(chromium: str, folder: Path) -> None:
    fleet = RecordsFound(tuple(each for seed in range(TRIALS) for each in _history(seed)))
    pages: dict[str, AnyReport] = {
        "incident": incident_report(killed_rank(), NOW),
        "fleet": fleet_report(None, fleet, WEEK, NOW),
    }
    for name, report in pages.items():
        page = folder / f"{name}.html"
        page.write_text(rendered(report, ReportFormat.HTML))
        width, height = SIZES[name]
        profile = f"--user-data-dir={folder / name}"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", profile]
        shot = [f"--window-size={width},{height}", f"--screenshot={IMAGES / f'report-{name}.png'}", page.as_uri()]
        subprocess.run([chromium, *options, *shot], check=True, timeout=120, capture_output=True)


def _history(seed: int) -> list[IncidentRecord]:
    """The incidents of a trial, moved to a moment of the week before `NOW`. Each trial has its own namespace."""
    begins = NOW - timedelta(hours=random.Random(seed).uniform(6, WEEK.total_seconds() / 3600))
    found = []
    for body in run_trial(draw_plan(seed)).evidence.server.objects(RECOVERY_INCIDENTS):
        moved = _moved(body, begins - BEGIN)
        moved["metadata"]["namespace"] = f"team-{'abc'[seed % 3]}"
        found.append(decode_record(json.dumps(moved).encode()).value)
    return found


def _moved(value: Any, by: timedelta) -> Any:
    """The value with all of its dates shifted."""
    if isinstance(value, dict):
        return {key: _moved(each, by) for key, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, by) for each in value]
    if not isinstance(value, str) or not value.endswith("Z") or value[4:5] != "-":
        return value
    return (datetime.fromisoformat(value).astimezone(UTC) + by).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    sys.exit(main())
