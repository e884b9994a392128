"""Findings as SARIF 2.1.0, for code scanning. Numbers in comments are sections of that specification."""

import os
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recovery.cli.lint_formats import NOT_JUDGED
from recovery.cli.lint_pages import page, prose
from recovery.cli.manifests import Located, Problem
from recovery.launch.findings import Code
from recovery.launch.lint import CODES

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(
    found: Sequence[Located] | None, problems: Sequence[Problem], exit_code: int, ignored: Collection[str]
) -> dict[str, Any]:
    """All codes are listed as rules, which shows that a closed alert was checked for. `found` None: nothing was judged.
    Then `results` is absent (3.14.23), because an empty list would close all alerts."""
    turns = {code.name: turn for turn, code in enumerate(CODES)}
    driver = {
        "name": "recovery-lint",
        "semanticVersion": version("trainjob-recovery"),
        "rules": [_rule(code) for code in CODES],
        "notifications": [{"id": NOT_JUDGED, "shortDescription": {"text": "something that was named is not judged"}}],
    }
    invocation = {
        "executionSuccessful": not problems,
        "exitCode": exit_code,
        "toolExecutionNotifications": [_notification(each) for each in problems],
        "ruleConfigurationOverrides": [
            {"descriptor": {"id": code.name, "index": turns[code.name]}, "configuration": {"enabled": False}}
            for code in CODES
            if code.name in ignored
        ],
    }
    run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "unicodeCodePoints"}
    if found is not None:
        run["results"] = [_result(each, turns[each.finding.code.name]) for each in found]
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: Code) -> dict[str, Any]:
    """The page is in `help`, because `helpUri` must be absolute (3.49.12), and this repository has no fixed address."""
    first, *_ = paragraphs = prose(code)
    return {
        "id": code.name,
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": first},
        "help": {"text": "\n\n".join(paragraphs), "markdown": page(code)},
        "defaultConfiguration": {"level": str(code.severity)},
    }


def _result(each: Located, turn: int) -> dict[str, Any]:
    return {
        "ruleId": each.finding.code.name,
        "ruleIndex": turn,
        "level": str(each.finding.code.severity),
        "message": _message(each.sentence),
        "locations": [dict(_location(each))],
    }


def _location(each: Located) -> Iterator[tuple[str, Any]]:
    if each.document.file:
        physical = {"artifactLocation": {"uri": _uri(each.document.file)}, "region": {"startLine": max(1, each.line)}}
        yield "physicalLocation", physical
    field = each.path if each.document.file else each.where
    if field:
        yield "logicalLocations", [{"fullyQualifiedName": field}]


def _notification(problem: Problem) -> dict[str, Any]:
    notification: dict[str, Any] = {
        "descriptor": {"id": NOT_JUDGED, "index": 0},
        "level": "error",
        "message": _message(problem.message),
    }
    if problem.file:
        artifact = {"artifactLocation": {"uri": _uri(problem.file)}}
        notification["locations"] = [{"physicalLocation": artifact}]
    return notification


def _message(text: str) -> dict[str, str]:
    return {"text": text.replace("{", "{{").replace("}", "}}")}  # a single brace begins a placeholder (3.11.5)


def _uri(file: str) -> str:
    """Relative paths stay relative: code scanning looks for them in the repository."""
    return Path(file).as_uri() if os.path.isabs(file) else quote(os.fsencode(os.path.normpath(file)))
