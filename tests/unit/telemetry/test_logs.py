"""Lines that machines parse, and the same lines for people."""

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeletePods, Plan
from recovery.ports import WatchEnd
from recovery.telemetry.logs import configure_logs
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import KEY


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_its_keys_in_order() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    structlog.get_logger().info(
        "deleting\nJob llm", epoch=3, decision="RecreateGroup", job="team-a/llm", incident="i-1"
    )
    (line,) = lines(stream)
    assert list(line) == ["ts", "level", "msg", "incident", "job", "decision", "epoch"]
    assert (line["level"], line["msg"]) == ("info", "deleting\nJob llm")
    assert line["ts"].endswith("Z")


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    configure_logs("warning", stream)
    structlog.get_logger().info("a")
    structlog.get_logger().warning("b")
    assert [line["msg"] for line in lines(stream)] == ["b"]


def test_what_libraries_log_takes_the_same_shape() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    logging.getLogger("asyncio").error("Task %s was destroyed", "x")
    logging.getLogger("aiohttp.access").info("GET /metrics")
    (line,) = lines(stream)
    assert (line["level"], line["msg"], line["logger"]) == ("error", "Task x was destroyed", "asyncio")


def test_a_traceback_stays_within_its_line() -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    try:
        raise ValueError("no")
    except ValueError as error:
        structlog.get_logger().error("a bug", exc_info=error)
    (line,) = lines(stream)
    assert "ValueError: no" in line["exception"]


def test_people_get_readable_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure_logs("info", stream)
    structlog.get_logger().info("watching", job="team-a/llm")
    assert "watching" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_each_decision_is_a_debug_line(metrics: Telemetry) -> None:
    stream = io.StringIO()
    configure_logs("debug", stream)
    metrics.decided(KEY, Ledger(), Plan(Ledger(), Reason.NO_FAILURE, "no failure", actions=(DeletePods(1, (), None),)))
    (line,) = lines(stream)
    assert line["msg"] == "no failure"
    assert (line["job"], line["decision"], line["writes"]) == ("team-a/llm", ["DeletePods"], False)


def test_what_kube_cannot_read_and_lost_watches_are_told(metrics: Telemetry) -> None:
    stream = io.StringIO()
    configure_logs("info", stream)
    metrics.listed("pods", 3)
    metrics.watch_restarted("pods", WatchEnd.EXPIRED, "watch pods: gone")
    metrics.undecodable("recoverypolicies", "team-a/x", "bad mode")
    assert [(line["level"], line["resource"]) for line in lines(stream)] == [
        ("info", "pods"),
        ("warning", "pods"),
        ("error", "recoverypolicies"),
    ]
    assert metrics.listed_resources == {"pods"}


@pytest.mark.parametrize(("shown", "terminal", "is_json"), [("json", True, True), ("console", False, False)])
def test_the_format_that_is_asked_for_goes_before_what_the_stream_is(shown: str, terminal: bool, is_json: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream = Stream()
    configure_logs("info", stream, shown)
    structlog.get_logger().info("watching", job="team-a/llm")
    assert stream.getvalue().startswith("{") is is_json
    assert terminal or "\x1b" not in stream.getvalue(), "no colours in a file"


@pytest.mark.parametrize("shown", ["json", "console"])
def test_the_example_in_the_docs_is_a_line_of_that_format(shown: str) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "monitoring.md").read_text()
    [shown_line] = re.findall(rf"```{shown}\n(.*)\n```", page)
    [data] = re.findall(r"```json\n(.*)\n```", page)
    line = json.loads(data)
    stream = io.StringIO()
    configure_logs("info", stream, shown)
    log = structlog.get_logger()
    log.info(line["msg"], **{key: value for key, value in line.items() if key not in {"ts", "level", "msg"}})
    assert re.sub(r"2\d{3}-\S+Z", line["ts"], stream.getvalue()).rstrip() == shown_line
