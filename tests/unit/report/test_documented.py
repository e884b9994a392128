"""docs/reports.md names every field of the JSON and every code of ours in it. The files that it names exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from recovery.core.model.ledger import IncidentHandling
from recovery.report.platform_ways import Basis, NotCompared, Way
from recovery.report.reports import FleetReport, IncidentReport, JobReport

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reports.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([\w./-]+)`", PAGE))


def fields(struct: Any) -> Iterator[str]:
    """The wire names of the struct's fields and of those of the structs in it."""
    for field in msgspec.structs.fields(struct):
        yield field.encode_name
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from fields(inner)


@pytest.mark.parametrize("report", [IncidentReport, JobReport, FleetReport])
def test_every_field_is_documented(report: type[msgspec.Struct]) -> None:
    found = set(fields(report))
    assert {"schemaVersion", "generatedAt"} < found
    assert found - NAMED == set()


def test_every_code_of_the_report_is_documented() -> None:
    assert {*map(str, Way), *map(str, NotCompared), *map(str, Basis), *map(str, IncidentHandling)} - NAMED == set()


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 2
    assert all((DOCS / picture).is_file() for picture in pictures)
