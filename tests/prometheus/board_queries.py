"""The queries of a committed dashboard, as Grafana would send them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from recovery.dashboards.rules import INTERVAL_SECONDS
from recovery.generated_files import REPOSITORY
from tests.prometheus.laid import Queries, Series

BOARDS = ("fleet", "job")
_LEGEND = re.compile(r"{{\s*(\w+)\s*}}")
RATE_SECONDS = 4 * INTERVAL_SECONDS
"""Grafana's value for `$__rate_interval` if the minimum step is the interval of the rules."""


@dataclass(frozen=True)
class Viewed:
    """The time range and the values of the variables that a person has chosen. A missing variable means All."""

    begin: datetime
    end: datetime
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    expr: str
    legend: str
    ref: str
    instant: bool

    def answered(self, server: Queries, view: Viewed) -> list[Series]:
        expr = substituted(self.expr, view)
        if self.instant:
            return server.instant(expr, view.end)
        return server.over(expr, view.begin, view.end, INTERVAL_SECONDS)

    def name(self, series: Series) -> str:
        """The name of a series in the legend."""
        return self.named(series.labels)

    def named(self, labels: Mapping[str, str]) -> str:
        """The name of a series with these labels in the legend."""
        return _LEGEND.sub(lambda found: labels.get(found.group(1), ""), self.legend)


@dataclass(frozen=True)
class Panel:
    """One panel of a dashboard. Rows are left out."""

    board: str
    title: str
    body: Mapping[str, Any]

    @property
    def targets(self) -> list[Target]:
        return [
            Target(each["expr"], each["legendFormat"], each["refId"], bool(each.get("instant")))
            for each in self.body["targets"]
        ]

    def __str__(self) -> str:
        return f"{self.board}: {self.title}"


def body_of(board: str, root: Path = REPOSITORY) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((root / "dashboards" / f"{board}.json").read_text())
    return found


def panels(board: str) -> Iterator[Panel]:
    for body in body_of(board)["panels"]:
        if body["type"] != "row":
            yield Panel(board, body["title"], body)


def substituted(expr: str, view: Viewed) -> str:
    """The query with its variables replaced. Raises ValueError if a variable is left that Grafana would not know."""
    seconds = round((view.end - view.begin).total_seconds())
    values = {"__rate_interval": f"{RATE_SECONDS}s", "__range": f"{seconds}s", "namespace": ".*", "job_name": ".*"}
    for name, value in {**values, **view.variables}.items():
        expr = expr.replace(f"${name}", value)
    if "$" in expr:
        raise ValueError(f"Grafana has no value for a variable of {expr}")
    return expr
