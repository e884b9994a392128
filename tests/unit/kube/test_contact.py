"""When `/healthz` says that the API server cannot be reached, and when a restart would help."""

import asyncio
import json
import socket
from pathlib import Path

import pytest
from aiohttp import web

from recovery.kube import contact
from recovery.kube.contact import (
    SILENCE_SECONDS,
    TRIAL_INTERVAL_SECONDS,
    TRIAL_VALID_SECONDS,
    ApiContact,
    Health,
    reaches_with_new_session,
)
from recovery.kube.observer import NoObserver
from tests.unit.admission.api import StillClock
from tests.unit.patience import GUARD_SECONDS


class Cluster:
    """The API server as a new session would find it."""

    def __init__(self) -> None:
        self.answers = False
        self.trials = 0
        self.silent = False
        """A trial gets no answer and waits."""

    async def reaches(self) -> bool:
        self.trials += 1
        if self.silent:
            await asyncio.Event().wait()
        return self.answers


class Process:
    """A process whose requests fail from the start."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.seconds = 0.0
        self.clock.monotonic_seconds = lambda: self.seconds  # type: ignore[method-assign]
        self.cluster = Cluster()
        self.contact = ApiContact(self.clock, self.cluster.reaches, NoObserver())
        self.gets("timeout")

    def gets(self, code: str) -> None:
        self.contact.request_finished("get", "pods", code, 0.1)

    async def is_asked(self) -> Health:
        """The health from before the trial that this query starts. The trial has ended on return."""
        health = self.contact.health()
        await asyncio.sleep(0)  # one step of the trial, which waits for nothing unless the cluster is silent
        return health


async def test_one_whose_requests_are_answered_is_healthy_whatever_the_answer() -> None:
    process = Process()
    process.gets("503")
    process.seconds = 10 * SILENCE_SECONDS
    assert await process.is_asked() == Health(False, "ok")
    assert process.cluster.trials == 0


async def test_a_short_outage_is_not_mentioned() -> None:
    process = Process()
    process.seconds = SILENCE_SECONDS - 1
    process.gets("connection")
    assert await process.is_asked() == Health(False, "ok")


async def test_while_no_one_reaches_the_server_it_says_so_and_stays_healthy() -> None:
    process = Process()
    for process.seconds in (SILENCE_SECONDS, SILENCE_SECONDS + 1):
        health = await process.is_asked()
        assert not health.restart_helps
        assert f"no request has reached the API server for {process.seconds:.0f} s" in health.words


async def test_it_is_at_fault_if_a_new_session_reaches_what_it_does_not() -> None:
    process = Process()
    process.seconds, process.cluster.answers = SILENCE_SECONDS, True
    assert not (await process.is_asked()).restart_helps, "nothing has been tried yet"
    assert (await process.is_asked()).restart_helps
    process.gets("200")
    assert await process.is_asked() == Health(False, "ok")


async def test_a_request_that_was_given_up_says_nothing() -> None:
    process = Process()
    process.gets("cancelled")
    process.seconds, process.cluster.answers = SILENCE_SECONDS, True
    await process.is_asked()
    assert (await process.is_asked()).restart_helps


async def test_many_who_ask_cause_one_trial() -> None:
    process = Process()
    process.seconds = SILENCE_SECONDS
    for _ in range(50):
        await process.is_asked()
    assert process.cluster.trials == 1
    process.seconds += TRIAL_INTERVAL_SECONDS
    await process.is_asked()
    assert process.cluster.trials == 2


async def test_until_the_next_trial_is_over_the_last_one_counts() -> None:
    process = Process()
    process.seconds, process.cluster.answers = SILENCE_SECONDS, True
    await process.is_asked()
    process.seconds += TRIAL_INTERVAL_SECONDS
    process.cluster.silent = True
    for _ in range(3):
        assert (await process.is_asked()).restart_helps
    assert process.cluster.trials == 2, "one at a time"


async def test_what_was_tried_long_ago_says_nothing() -> None:
    """There was no query in between, so the API server may have come and gone."""
    process = Process()
    process.seconds, process.cluster.answers = SILENCE_SECONDS, True
    await process.is_asked()
    process.seconds += TRIAL_VALID_SECONDS
    assert not (await process.is_asked()).restart_helps
    assert (await process.is_asked()).restart_helps


def kubeconfig(folder: Path, port: int) -> str:
    text = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(json.dumps(text))
    return str(folder / "config")


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_a_new_session_reaches_a_server_that_answers_anything(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "TRIAL_SECONDS_MAX", GUARD_SECONDS)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/version", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    assert await reaches_with_new_session(kubeconfig(tmp_path, runner.addresses[0][1]), None)
    await runner.cleanup()


async def test_a_new_session_reaches_no_one_where_no_one_listens_or_no_kubeconfig_is(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert not await reaches_with_new_session(kubeconfig(tmp_path, closed.getsockname()[1]), None)
    assert not await reaches_with_new_session(str(tmp_path / "none"), None)
