"""Each alert has a runbook, each runbook has an alert, and every command in them exists."""

import re
import shlex

import pytest
import typer
from typer.core import TyperGroup

from recovery.cli.main import app
from recovery.dashboards.alerts import ALERTS
from recovery.dashboards.rules import KUBE_STATE_METRICS_LABELS
from recovery.generated_files import REPOSITORY

RUNBOOKS = REPOSITORY / "docs" / "runbooks"
PAGES = {path.stem: path.read_text() for path in RUNBOOKS.glob("*.md") if path.stem != "README"}
INDEX = (RUNBOOKS / "README.md").read_text()
_SECTIONS = ["What it means", "How to look", "What to do", "When to ignore it"]
_COMMAND = re.compile(r"(?:^|`)(recovery [a-z][^`\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def commands() -> list[tuple[str, str]]:
    """The commands of the pages and of the alerts' descriptions, each with the page or alert that has it."""
    texts = {**PAGES, "README": INDEX}
    found = [(name, text) for name, page in texts.items() for text in _COMMAND.findall(page)]
    return found + [(alert.name, text) for alert in ALERTS for text in _COMMAND.findall(alert.description)]


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    assert sorted(PAGES) == sorted(alert.name for alert in ALERTS)
    for alert in ALERTS:
        assert f"- [{alert.name}]({alert.name}.md) ({alert.severity}): " in INDEX


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_the_four_sections(name: str) -> None:
    page = PAGES[name]
    (alert,) = (each for each in ALERTS if each.name == name)
    assert page.startswith(f"# {name}\n\nSeverity: {alert.severity}.\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == _SECTIONS
    assert [line for line in page.splitlines() if len(line) > 120] == []
    assert [link for link in _LINK.findall(page) if not (RUNBOOKS / link).exists()] == []


def test_the_index_says_what_explains_what() -> None:
    for alert in ALERTS:
        if alert.explained_by:
            assert f"- {alert.name} is explained by {', '.join(alert.explained_by)}." in " ".join(INDEX.split())


@pytest.mark.parametrize(("where", "text"), commands(), ids=lambda each: each)
def test_a_command_parses(where: str, text: str) -> None:
    _, name, *arguments = shlex.split(text.replace("{{ ", "").replace(" }}", ""))
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    command = root.commands[name]
    if arguments or command.name in {"status", "reset-breaker"}:
        command.make_context(name, [each.replace("FILE", "README.md") for each in arguments])


def test_every_annotation_is_there() -> None:
    for alert in ALERTS:
        assert alert.summary.endswith(".")
        assert "Run `" in alert.description or "Apply " in alert.description, alert.name
        assert alert.runbook_url == f"https://runbooks.invalid/{alert.name}.md"


def test_the_page_about_monitoring_states_the_allowlist_and_links_what_exists() -> None:
    page = (REPOSITORY / "docs" / "monitoring.md").read_text()
    assert f"--metric-labels-allowlist=pods=[{','.join(KUBE_STATE_METRICS_LABELS)}]" in page
    assert [link for link in _LINK.findall(page) if not (REPOSITORY / "docs" / link).exists()] == []
    assert [line for line in page.splitlines() if len(line) > 120] == []
