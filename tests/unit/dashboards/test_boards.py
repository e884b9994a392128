"""The committed dashboards have not drifted, are complete, and query series that exist."""

import json
import math
import re
from itertools import combinations

import pytest

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.ledger import Phase
from recovery.dashboards import palette
from recovery.dashboards.alert import Alert
from recovery.dashboards.alerts import ALERTS
from recovery.dashboards.boards import dashboard_files
from recovery.dashboards.rules import recording_groups
from recovery.generated_files import REPOSITORY
from recovery.telemetry.catalogue import CATALOGUE
from tests.prometheus.board_queries import BOARDS, Panel, body_of, panels

PANELS = [panel for board in BOARDS for panel in panels(board)]
ROWS = ["Now", "Incidents", "Where GPU time goes", "Rendezvous", "Nodes", "Controller"]
_NAME = re.compile(r"(?:\w+:)?recovery_\w+(?::\w+)?|cluster:recovery\w+(?::\w+)?")
_OF_HISTOGRAMS = re.compile(r"_(bucket|count|sum)$")

_SEEN_BY = {
    "everybody": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
"""How each kind of eyes sees linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.0."""


def test_nothing_has_drifted() -> None:
    for path, text in dashboard_files().items():
        assert (REPOSITORY / path).read_text() == text, f"{path}: run `make manifests`"


@pytest.mark.parametrize("board", BOARDS)
def test_rows_and_variables_are_those_that_people_know(board: str) -> None:
    body = body_of(board)
    assert body["uid"] == f"recovery-{board}"
    assert [panel["title"] for panel in body["panels"] if panel["type"] == "row"] == ROWS
    variables = {each["name"]: each for each in body["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job_name"]
    assert all(variables[name]["multi"] and variables[name]["includeAll"] for name in ("namespace", "job_name"))


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_a_panel_has_a_title_a_description_and_a_unit(panel: Panel) -> None:
    assert panel.title
    assert len(panel.body["description"]) > 20
    assert panel.body["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_a_panel_reads_only_series_that_are_recorded_or_told(panel: Panel) -> None:
    known = {rule.record for group in recording_groups() for rule in group.rules} | {each.name for each in CATALOGUE}
    for target in panel.targets:
        for name in _NAME.findall(target.expr):
            assert _OF_HISTOGRAMS.sub("", name) in known or name in known, name


_OF_FAILURES = re.compile(
    r"recovery_(?:failures_total|fleet_incidents_total|incident_duration_seconds|(?:fleet_)?gpu_idle_(?:by_class_)?seconds"
    r"_total)\w*(?::\w+)?(?:\{([^}]*)\})?"
)
"""A series that counts failures and drills, and the matchers after it."""
_SAYS = re.compile(r"""(?:failure_class!?="Drill"|failure_class=~"Unknown\|unknown"|reason!?="drill")""")


def unsaid(expr: str) -> list[str]:
    """The series in the expression that mix failures and drills."""
    return [found.group() for found in _OF_FAILURES.finditer(expr) if not _SAYS.search(found.group(1) or "")]


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_a_panel_about_failures_leaves_out_drills(panel: Panel) -> None:
    assert [each for target in panel.targets for each in unsaid(target.expr)] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_about_failures_leaves_out_drills(alert: Alert) -> None:
    assert unsaid(alert.expr) == []


def test_the_ratios_and_sums_of_the_rules_leave_out_drills() -> None:
    [goodput] = (group for group in recording_groups() if group.name == "recovery-goodput")
    assert [each for rule in goodput.rules for each in unsaid(rule.expr)] == []
    assert len(goodput.rules) == 6


def test_both_boards_show_the_drills_beside_the_failures() -> None:
    for board in BOARDS:
        assert {"Drills", "GPU time of drills"} <= {panel.title for panel in PANELS if panel.board == board}


def test_titles_are_unique_on_a_board() -> None:
    for board in BOARDS:
        titles = [panel.title for panel in PANELS if panel.board == board]
        assert len(titles) == len(set(titles))


def test_panels_do_not_overlap() -> None:
    for board in BOARDS:
        cells = [
            (x, y)
            for body in body_of(board)["panels"]
            for x in range(body["gridPos"]["x"], body["gridPos"]["x"] + body["gridPos"]["w"])
            for y in range(body["gridPos"]["y"], body["gridPos"]["y"] + body["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) == 23


def test_a_job_of_the_fleet_leads_to_its_own_dashboard_and_an_alert_to_its_runbook() -> None:
    text = json.dumps(body_of("fleet"))
    assert "/d/recovery-job?var-namespace=${__data.fields.namespace}" in text
    assert "/d/recovery-job?var-namespace=${__field.labels.namespace}" in text
    assert "https://runbooks.invalid/${__data.fields.alertname}.md" in text


def test_every_phase_and_every_class_has_a_colour() -> None:
    assert set(palette.PHASE_REASONS) >= set(map(str, Phase)) - {"Healthy"}
    assert set(palette.PHASE_REASONS.values()) == set(palette.REASON_COLORS)
    assert set(palette.CLASS_COLORS) == {*map(str, DisruptionClass), "unknown"}


@pytest.mark.parametrize(
    ("colors", "apart"), [(palette.REASON_COLORS, 0.10), (palette.CLASS_COLORS, 0.07)], ids=["phases", "classes"]
)
@pytest.mark.parametrize("eyes", _SEEN_BY)
def test_colours_stay_apart_for_the_colour_blind(eyes: str, colors: dict[str, str], apart: float) -> None:
    """The distance is in OKLab, where 0.02 is just visible."""
    for one, other in combinations(colors, 2):
        assert math.dist(_seen(colors[one], eyes), _seen(colors[other], eyes)) >= apart, (one, other)


def _seen(color: str, eyes: str) -> tuple[float, float, float]:
    """The color as these eyes see it, in OKLab (Ottosson 2020)."""
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * value for weight, value in zip(row, linear, strict=True))))
        for row in _SEEN_BY[eyes]
    )
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )
