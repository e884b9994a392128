"""Findings as people, scripts, GitHub Actions and code scanning read them."""

import json
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recovery.cli.formatting import is_coloured, printable
from recovery.cli.manifest_files import Located
from recovery.launch.findings import Code, Severity
from recovery.launch.lint import CODES

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
"""Of GitHub Actions."""


def print_text(found: Sequence[Located]) -> None:
    """`file:line: severity: code: message (mend)`, a line for each."""
    if not is_coloured():
        for each in found:
            print(printable(f"{each.where}: {each.finding.code.severity}: {each.told}"))
        return
    # Loaded here: what writes into a pipe does not need it.
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    for each in found:
        severity = each.finding.code.severity
        styled = (str(severity), _STYLES[severity])
        console.print(Text.assemble(printable(each.where), ": ", styled, ": ", printable(each.told)), soft_wrap=True)


def as_data(found: Sequence[Located]) -> list[dict[str, Any]]:
    """`file` and `line` null: the object came from the cluster."""
    return [
        {
            "file": each.document.file or None,
            "line": each.line or None,
            "kind": each.document.kind,
            "path": each.path,
            "severity": str(each.finding.code.severity),
            "code": each.finding.code.name,
            "message": each.finding.message,
            "mend": each.finding.mend,
        }
        for each in found
    ]


def print_github(found: Sequence[Located]) -> None:
    """Workflow commands, which Actions shows at the line of the change (`packages/core/src/command.ts` of its toolkit
    has the escapes). A finding in an object of the cluster is shown without a line."""
    for each in found:
        properties = {"title": each.finding.code.name}
        if each.document.file:
            file = os.path.normpath(each.document.file)  # `./llm.yaml` is not found in the repository
            properties = {"file": file, "line": str(each.line)} | properties
        told = each.sentence if each.document.file else f"{each.where}: {each.sentence}"
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        print(printable(f"::{_COMMANDS[each.finding.code.severity]} {listed}::{_escaped(told)}"))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(found: Sequence[Located]) -> dict[str, Any]:
    """SARIF 2.1.0. All codes are rules, so that an alert which is gone is known to have been looked for."""
    turns = {code.name: turn for turn, code in enumerate(CODES)}
    driver = {
        "name": "recovery-lint",
        "semanticVersion": version("trainjob-recovery"),
        "rules": [_rule(code) for code in CODES],
    }
    results = [_result(each, turns[each.finding.code.name]) for each in found]
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(code: Code) -> dict[str, Any]:
    """The page is told in `help`: `helpUri` has to be absolute (SARIF 2.1.0, 3.49.12), and where this repository lies
    is not ours to say."""
    page = f"docs/lint/{code.name}.md"
    return {
        "id": code.name,
        "shortDescription": {"text": code.title},
        "help": {"text": f"See {page}", "markdown": f"[{page}]({page})"},
        "defaultConfiguration": {"level": str(code.severity)},
    }


def _result(each: Located, turn: int) -> dict[str, Any]:
    return {
        "ruleId": each.finding.code.name,
        "ruleIndex": turn,
        "level": str(each.finding.code.severity),
        "message": {"text": each.sentence.replace("{", "{{").replace("}", "}}")},  # else a placeholder (3.11.5)
        "locations": [dict(_location(each))],
    }


def _location(each: Located) -> Iterator[tuple[str, Any]]:
    if each.document.file:
        physical = {"artifactLocation": {"uri": _uri(each.document.file)}, "region": {"startLine": max(1, each.line)}}
        yield "physicalLocation", physical
    field = each.path if each.document.file else each.where
    if field:
        yield "logicalLocations", [{"fullyQualifiedName": field}]


def _uri(file: str) -> str:
    """Relative paths stay relative: code scanning looks for them in the repository."""
    return Path(file).as_uri() if os.path.isabs(file) else quote(os.fsencode(os.path.normpath(file)))


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))
