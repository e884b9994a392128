"""`recovery status --watch`: all jobs at first, then only changes."""

import json
from unittest.mock import AsyncMock

import pytest

from recovery.ports import TRAIN_JOBS, TryLaterError
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_status import Watched, cells_of, open_incident


def test_watch_prints_all_and_then_what_changes(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_job("calm")
    job = cluster.add_job("llm")
    cluster.add_policy()
    watched = Watched(
        monkeypatch,
        lambda: None,
        lambda: cluster.add_group("llm", open_incident("TearingDown")),
        lambda: cluster.objects[TRAIN_JOBS.plural].remove(job),
    )
    lines = [line.split()[:2] for line in watched.status().stdout.splitlines()]
    assert lines == [
        ["JOB", "PHASE"],
        ["calm", "Healthy"],
        ["llm", "Healthy"],
        ["llm", "TearingDown"],
        ["llm", "Deleted"],
    ]


def test_watch_prints_a_change_of_protection_but_not_each_wording_of_it(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    annotations = cluster.add_job("llm")["metadata"].setdefault("annotations", {})
    cluster.add_policy(mode="Enforce")
    paused = "recovery.trainjob.dev/paused"
    watched = Watched(
        monkeypatch, lambda: annotations.update({paused: "new image"}), lambda: annotations.update({paused: "old"})
    )
    lines = [cells_of(line)[-2] for line in watched.status().stdout.splitlines()]
    assert lines == ["PROTECTED", "yes", "no: PausedByAnnotation"]


def test_watch_gives_json_a_line_each(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_job("llm")
    watched = Watched(monkeypatch, lambda: cluster.add_group("llm", open_incident("TearingDown")))
    lines = [json.loads(line)["phase"] for line in watched.status("-o", "json").stdout.splitlines()]
    assert lines == ["NoPolicy", "TearingDown"]


def test_watch_outlasts_an_api_server_that_is_away_and_says_so_once(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_job("llm")
    reading = cluster.send
    away = AsyncMock(side_effect=TryLaterError("list trainjobs: refused"))
    watched = Watched(
        monkeypatch,
        lambda: monkeypatch.setattr(cluster, "send", away),
        lambda: None,
        lambda: monkeypatch.setattr(cluster, "send", reading),
        lambda: cluster.add_group("llm", open_incident("TearingDown")),
    )
    result = watched.status()
    assert result.stderr == (
        "recovery: no cluster: the API server does not answer: list trainjobs: refused; asking again\n"
    )
    assert result.stdout.splitlines()[-1].split()[:2] == ["llm", "TearingDown"]
