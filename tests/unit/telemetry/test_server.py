"""The HTTP endpoints, over a real socket."""

import asyncio
from datetime import timedelta

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from recovery.controller.clock import SystemClock
from recovery.kube.contact import SILENCE_SECONDS, ApiContact
from recovery.kube.observer import NoObserver
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.server import METRICS_LIMITS, serve
from recovery.telemetry.server_error import ServerError
from tests.held_port import held_port
from tests.unit.admission.api import StillClock
from tests.unit.ipv6 import needs_ipv6_loopback
from tests.unit.patience import GUARD_SECONDS, comes


async def get(port: int, path: str, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_metrics_are_prometheus_text(metrics: Telemetry) -> None:
    async with serve("127.0.0.1", 0, exposed=metrics, clock=SystemClock(), missing=tuple) as port:
        status, text, content_type = await get(port, "/metrics")
        _, _, open_metrics = await get(port, "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert status == 200
    assert content_type.startswith("text/plain; version=0.0.4")
    assert open_metrics.startswith("application/openmetrics-text")
    assert {family.name for family in text_string_to_metric_families(text)} >= {"recovery_build_info"}


async def test_it_is_healthy_before_it_is_ready_and_says_what_is_missing(metrics: Telemetry) -> None:
    missing = ["pods", "nodes"]
    async with serve("127.0.0.1", 0, exposed=metrics, clock=SystemClock(), missing=lambda: missing) as port:
        assert (await get(port, "/healthz"))[0] == 200
        assert (await get(port, "/readyz"))[:2] == (503, "not ready, waiting for: pods, nodes\n")
        missing.clear()
        assert (await get(port, "/readyz"))[:2] == (200, "ok\n")


@needs_ipv6_loopback
async def test_health_is_what_the_process_says_of_itself(metrics: Telemetry) -> None:
    health = (False, "at fault")
    async with serve("::1", 0, exposed=metrics, clock=SystemClock(), missing=tuple, alive=lambda: health) as port:
        assert (await get(port, "/healthz", host="[::1]"))[:2] == (503, "at fault\n")


async def test_during_an_outage_the_probe_is_answered_whoever_else_asks(metrics: Telemetry) -> None:
    """The API server is silent, so the trial of a new session takes seconds. No probe waits for it."""
    clock, never = StillClock(), asyncio.Event()
    contact = ApiContact(clock, never.wait, NoObserver())
    contact.request_finished("get", "pods", "timeout", 5.0)
    clock.time += timedelta(seconds=SILENCE_SECONDS)

    asked = 0

    def alive() -> tuple[bool, str]:
        nonlocal asked
        asked += 1
        health = contact.health()
        return not health.restart_helps, health.words

    async with (
        asyncio.timeout(GUARD_SECONDS),
        serve("127.0.0.1", 0, exposed=metrics, clock=SystemClock(), missing=tuple, alive=alive) as port,
    ):
        others = [asyncio.create_task(get(port, "/healthz")) for _ in range(METRICS_LIMITS.connections)]
        await comes(lambda: asked == len(others))
        assert (await get(port, "/healthz"))[0] == 200
        assert [status for status, _, _ in await asyncio.gather(*others)] == [200] * len(others)


async def test_a_port_in_use_is_one_clear_error(metrics: Telemetry) -> None:
    async with serve("127.0.0.1", 0, exposed=metrics, clock=SystemClock(), missing=tuple) as port:
        with pytest.raises(ServerError, match=f"^cannot serve metrics on 127.0.0.1:{port}: Address already in use$"):
            async with serve("127.0.0.1", port, exposed=metrics, clock=SystemClock(), missing=tuple):
                pass


async def test_the_port_is_free_again_afterwards(metrics: Telemetry) -> None:
    with held_port() as port:
        for _ in range(2):
            async with serve("127.0.0.1", port, exposed=metrics, clock=SystemClock(), missing=tuple) as bound:
                assert (await get(bound, "/healthz"))[0] == 200
