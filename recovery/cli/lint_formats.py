"""Findings for scripts, GitHub Actions and GitLab. `lint_sarif` has those for code scanning, `lint_text` for people."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from recovery.cli.formatting import printable
from recovery.cli.manifests import Located, Problem, title
from recovery.launch.findings import Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
"""Workflow commands of GitHub Actions."""
_GRADES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.NOTE: "info"}
"""Severities in GitLab's code quality report. A problem is a `blocker`."""
NOT_JUDGED = "not-judged"
"""The name of a problem in formats that need one. A problem is no finding, so no code has this name."""


def as_data(found: Sequence[Located]) -> list[dict[str, Any]]:
    """The findings as data. `file` and `line` null: the object came from the cluster."""
    return [
        {
            "file": each.document.file or None,
            "line": each.line or None,
            "kind": each.document.kind,
            "path": each.path,
            "severity": str(each.finding.code.severity),
            "code": each.finding.code.name,
            "message": each.finding.message,
            "fix": each.finding.fix,
        }
        for each in found
    ]


def problem_data(problem: Problem) -> dict[str, Any]:
    """A problem with the fields of a finding. `code` is null, because it is none. `file` null: it is about no file."""
    return {
        "file": problem.file or None,
        "line": None,
        "kind": "",
        "path": "",
        "severity": str(Severity.ERROR),
        "code": None,
        "message": problem.message,
        "fix": "",
    }


def print_github(found: Sequence[Located], problems: Sequence[Problem]) -> None:
    """Print workflow commands, which Actions shows at the line of the change (`packages/core/src/command.ts` of its
    toolkit has the escapes). A finding in an object of the cluster has no line."""
    for problem in problems:
        properties = {"file": _relative(problem.file)} if problem.file else {}
        _print_command("error", properties | {"title": NOT_JUDGED}, problem.message)
    for each in found:
        properties = {"title": each.finding.code.name}
        if each.document.file:
            properties = {"file": _relative(each.document.file), "line": str(each.line)} | properties
        message = each.sentence if each.document.file else f"{each.where}: {each.sentence}"
        _print_command(_COMMANDS[each.finding.code.severity], properties, message)


def _print_command(command: str, properties: dict[str, str], message: str) -> None:
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    print(printable(f"::{command} {listed}::{_escaped(message)}"))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _relative(file: str) -> str:
    """The normalized path: `./llm.yaml` is not found in the repository."""
    return os.path.normpath(file)


def as_gitlab(found: Sequence[Located], problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """A code quality report. GitLab shows no finding without a file, so the title of an object of the cluster stands
    for its file."""
    return list(_gitlab(found, problems))


def _gitlab(found: Sequence[Located], problems: Sequence[Problem]) -> Iterator[dict[str, Any]]:
    for problem in problems:
        file = problem.file or NOT_JUDGED
        yield _issue(problem.message, NOT_JUDGED, "blocker", (file, 1), _fingerprint(problem.message))
    times: Counter[str] = Counter()
    for each in found:
        code, file = each.finding.code, each.document.file or title(each.document)
        # Without the line, so that a finding keeps its fingerprint when the lines above it change.
        identity = f"{code.name}\n{_relative(file)}\n{title(each.document)}\n{each.path}\n{each.finding.message}"
        times[identity] += 1
        fingerprint = _fingerprint(f"{identity}\n{times[identity]}")
        yield _issue(each.sentence, code.name, _GRADES[code.severity], (file, max(1, each.line)), fingerprint)


def _issue(description: str, name: str, grade: str, at: tuple[str, int], fingerprint: str) -> dict[str, Any]:
    file, line = at
    return {
        "description": description,
        "check_name": name,
        "fingerprint": fingerprint,
        "severity": grade,
        "location": {"path": _relative(file), "lines": {"begin": line}},
    }


def _fingerprint(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2))
