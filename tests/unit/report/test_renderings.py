"""Markdown, HTML and JSON: the same for the same record, complete, and safe against text from others."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from recovery.core.model.facts import GroupKey
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import Considered, Phase, Suspect
from recovery.core.model.reason import Reason
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.report.document import Tone
from recovery.report.formats import ReportFormat
from recovery.report.html.style import STYLE
from recovery.report.incident_page import TONES
from recovery.report.markdown import escaped
from recovery.report.rendering import rendered
from recovery.report.reports import AnyReport, fleet_report, incident_report, job_report
from tests.unit.report.records import FOLDER, LLM, NOW, attempt, found, killed_rank, phase, record

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><iframe src=//x>",
    "javascript:alert(1)",
    "[click](javascript:alert(1)) ![x](http://x/y.png)",
    "a | b `c` **d** _e_ ~~f~~ &lt; &copy;",
    "# heading\n- item\n1. one\n---\n> quote",
    "\x1b[31mred\x1b[0m \u202eback \x00 \u2028",
)
VOID = {"meta"}
WINDOW = timedelta(days=7)


def reports_of(one: IncidentRecord) -> Iterator[AnyReport]:
    yield incident_report(one, NOW)
    yield job_report(one.job, found(one), NOW)
    yield fleet_report(None, found(one), WINDOW, NOW)


def hostile_record(text: str) -> IncidentRecord:
    return record(
        GroupKey(text, text),
        id=text,
        cause=text,
        disruption_class=text,
        rule=text,
        message=text,
        evidence=(text,),
        suspects=(Suspect(pod=text, node=text, index=1),),
        considered=(Considered(action=text, reason=Reason.QUARANTINE_CAP, message=text, node=text),),
        attempts=(attempt(message=text, nodes=(text,)),),
    )


class Page(HTMLParser):
    """The elements, attributes and text of a page, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "every element is closed"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("wanted", ReportFormat)
def test_the_report_of_a_real_incident_is_as_it_was_looked_at(wanted: ReportFormat) -> None:
    """To accept a change, run `.venv/bin/python -m tests.unit.report.golden` and look at the pages."""
    text = rendered(incident_report(killed_rank(), NOW), wanted)
    assert text == (FOLDER / f"golden/incident.{wanted}").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_becomes_an_element_or_an_attribute(text: str) -> None:
    for mine, harmless in zip(reports_of(hostile_record(text)), reports_of(hostile_record("x")), strict=True):
        page = Page(rendered(mine, ReportFormat.HTML))
        plain = Page(rendered(harmless, ReportFormat.HTML))
        assert page.tags == plain.tags
        assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
        assert page.open == []
        assert not any(value and value.startswith(("javascript:", "http")) for _, value in page.attributes)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_moves_a_cursor_or_turns_the_writing(text: str) -> None:
    for report in reports_of(hostile_record(text)):
        for wanted in (ReportFormat.MD, ReportFormat.HTML):
            shown = rendered(report, wanted)
            assert all(each.isprintable() or each == "\n" for each in shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_becomes_markdown(text: str) -> None:
    for mine, harmless in zip(reports_of(hostile_record(text)), reports_of(hostile_record("x")), strict=True):
        lines = rendered(mine, ReportFormat.MD).splitlines()
        plain = rendered(harmless, ReportFormat.MD).splitlines()
        assert len(lines) == len(plain)
        for line, other in zip(lines, plain, strict=True):
            assert len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", other)), "cells"
            assert re.findall(r"^[#>-]* ?", line) == re.findall(r"^[#>-]* ?", other), "blocks"
            assert not re.search(r"(?<!\\)[`*\[\]<~]", line)


def test_names_stay_as_they_are_in_a_terminal() -> None:
    for name in (
        "llm-node-0-5-hghrn",
        "NCCL_TIMEOUT",
        "gpu-15.example.org",
        "3 of 10 (rank 5)",
        "14.0 s",
        "team-a/llm",
    ):
        assert escaped(name) == name


def test_a_page_needs_nothing_but_itself() -> None:
    for report in reports_of(killed_rank()):
        page = Page(rendered(report, ReportFormat.HTML))
        assert not {"script", "link", "img", "iframe", "object", "a", "form"} & set(page.tags)
        assert not {"src", "href", "style"} & {name for name, _ in page.attributes}
        assert "url(" not in STYLE
        assert "@import" not in STYLE
        assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_every_chart_has_its_figures_beside_it() -> None:
    """A chart that stands alone has a title. One in a row is hidden from screen readers: the row says the same."""
    page = rendered(incident_report(killed_rank(), NOW), ReportFormat.HTML)
    charts = re.findall(r"<svg[^>]*>", page)
    assert len(charts) > 5
    assert all('role="img"' in chart or 'aria-hidden="true"' in chart for chart in charts)
    assert page.count('role="img"') == page.count("<title>Phases in proportion to their duration: ") == 1


def test_every_table_has_a_caption_and_heads() -> None:
    for report in reports_of(killed_rank()):
        page = Page(rendered(report, ReportFormat.HTML))
        assert page.tags.count("table") == page.tags.count("caption") == page.tags.count("thead") > 0


def test_the_style_has_light_and_dark_phone_and_paper() -> None:
    assert "@media screen and (prefers-color-scheme:dark)" in STYLE
    assert "@media screen and (max-width:44rem)" in STYLE
    assert "@media print" in STYLE


def test_every_phase_of_an_incident_has_a_colour_of_its_own() -> None:
    assert set(TONES) >= set(Phase) - {Phase.HEALTHY}
    assert len(set(TONES.values())) == len(TONES)
    for tone in Tone:
        assert STYLE.count(f"--{tone}:") == 2, "on light and on dark"
        assert f".tone-{tone}{{" in STYLE


def test_the_shortest_phase_is_seen() -> None:
    phases = (phase(Phase.DETECTED, 0, 0.001), phase(Phase.STARTING, 0.001, 3600))
    shown = rendered(incident_report(record(phases=phases, seconds=3600), NOW), ReportFormat.HTML)
    widths = [float(width) for width in re.findall(r'tone-detected" x="[^"]*" y="0" width="([^"]*)"', shown)]
    assert widths
    assert min(widths) >= 4


def test_json_says_what_it_is_with_codes_and_units() -> None:
    told: dict[str, Any] = json.loads(rendered(job_report(LLM, found(killed_rank()), NOW), ReportFormat.JSON))
    assert (told["report"], told["schemaVersion"]) == ("Job", 1)
    [incident] = told["incidents"]
    assert incident["outcomeReason"] == "AllRanksReady"
    assert incident["attempts"][0]["reason"] == "DefaultRestart"
    assert incident["idleGpuSeconds"] == pytest.approx(230.618)


def test_every_number_of_json_that_measures_has_its_unit_in_its_name() -> None:
    counts = {"gpus", "ranks", "number", "rank", "exitCode", "restarts", "charged", "incidents", "openIncidents"}
    counts |= {"stillBrokenIncidents", "drillIncidents", "lostSteps", "reworkKnownFor"}
    counts |= {"recovered", "replaced", "jobsEnded", "schemaVersion", "policyGeneration", "budgetLimit"}
    counts |= {"missingRecords", "unreadableRecords", "value", "byClass", "byOutcome", "byHandling"}
    for report in reports_of(killed_rank()):
        for name in numbers(json.loads(rendered(report, ReportFormat.JSON))):
            assert name in counts or name.endswith("Seconds"), name


def numbers(value: Any, name: str = "") -> Iterator[str]:
    """The name of each field that holds a number. In a map by phase or class the map's name has the unit."""
    match value:
        case dict():
            for key, each in value.items():
                yield from numbers(each, name if "SecondsBy" in name or name.startswith("by") else key)
        case list():
            for each in value:
                yield from numbers(each, name)
        case bool():
            pass
        case int() | float():
            yield name.partition("By")[0] if "SecondsBy" in name else name


def test_what_is_missing_is_told_in_words() -> None:
    holes = found(unreadable=2, ledgers_read=False)
    text = rendered(fleet_report(None, holes, WINDOW, NOW), ReportFormat.MD)
    assert "There are no incidents." in text
    assert "2 records cannot be read. The figures are too low." in text
    assert "RecoveryGroups may not be listed, so open incidents are missing." in text


def logged(text: str, **changes: object) -> AnyReport:
    """The report of an incident whose suspect wrote that text."""
    log = SuspectLog(text, text, previous=True, termination_message=text, tail=text)
    return incident_report(record(suspect_log=msgspec.structs.replace(log, **changes)), NOW)


@pytest.mark.parametrize("text", [*HOSTILE, "```\n# heading", "</pre><script>", "`````` ```"])
def test_no_line_of_a_log_becomes_markup(text: str) -> None:
    page, plain = (Page(rendered(logged(each), ReportFormat.HTML)) for each in (text, "x"))
    assert page.tags == plain.tags
    assert page.open == []
    lines = rendered(logged(text), ReportFormat.MD).splitlines()
    fences = [line for line in lines if re.fullmatch(r"`{3,}(text)?", line)]
    opening, closing = fences[0], fences[-1]
    assert opening == f"{closing}text"
    assert not any(line.lstrip().startswith(closing) for line in text.splitlines()), "no line ends the block"
    for wanted in (ReportFormat.MD, ReportFormat.HTML):
        assert all(each.isprintable() or each == "\n" for each in rendered(logged(text), wanted))


def test_a_log_keeps_its_indentation_and_stands_after_the_termination_message() -> None:
    report = logged(
        "x", pod="llm-5", container="node", termination_message="CUDA error", tail="Traceback:\n    raise X"
    )
    for wanted in (ReportFormat.MD, ReportFormat.HTML):
        text = rendered(report, wanted)
        assert "Traceback:\n    raise X\n" in text.replace("</pre>", "\n")
        assert text.index("Termination message of pod llm-5") < text.index("CUDA error")
        assert text.index("CUDA error") < text.index("Last 2 lines of container node in pod llm-5, before it restarted")
    told = json.loads(rendered(report, ReportFormat.JSON))["incident"]["log"]
    assert (told["terminationMessage"], told["lines"]) == ("CUDA error", ["Traceback:", "    raise X"])


def test_a_log_that_was_not_read_is_a_reason() -> None:
    report = logged("x", pod="llm-5", termination_message="", tail="", absent=LogAbsence.TIMED_OUT)
    assert "The log of pod llm-5 was not read: TimedOut." in rendered(report, ReportFormat.MD)
    told = json.loads(rendered(report, ReportFormat.JSON))["incident"]["log"]
    assert (told["lines"], told["absent"]) == ([], "TimedOut")


def test_without_the_right_to_read_logs_the_report_has_none() -> None:
    report = incident_report(record(), NOW)
    assert json.loads(rendered(report, ReportFormat.JSON))["incident"]["log"] is None
    assert "log of pod" not in rendered(report, ReportFormat.MD)
