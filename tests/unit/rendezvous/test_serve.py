"""The endpoint in its thread, over TLS: it starts beside the controller, answers, starts again and ends."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from recovery.ports import CONFIG_MAPS, ApiClient, ApiRequest
from recovery.rendezvous import serve
from recovery.rendezvous.authority import CA_KEY, NAME, SECRETS, AgentCertificates
from recovery.rendezvous.endpoint import PATH
from recovery.rendezvous.serve import AgentServer, serve_agents
from recovery.rendezvous.settings import AgentSettings
from tests.unit.fake_api import ObjectsApi
from tests.unit.patience import GUARD_SECONDS, comes
from tests.unit.rendezvous.test_reports import REPORT
from tests.unit.rendezvous.world import NOW, ReviewApi, World, token

WHERE = "recovery-system"


class WholeApi(ObjectsApi):
    """The objects of the component, and reviews of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = ReviewApi()
        meta = {"name": NAME, "namespace": WHERE}
        self.put(SECRETS, {"kind": "Secret", "metadata": dict(meta)})
        self.put(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": dict(meta)})

    async def answer(self, request: ApiRequest) -> bytes:
        if request.resource.plural == "tokenreviews":
            return await self.reviews.answer(request)
        return await super().answer(request)

    def authority(self) -> str:
        found = self.find("configmaps", WHERE, NAME)
        assert found is not None
        return str(found["data"][CA_KEY])


def server(world: World, api: WholeApi) -> AgentServer:
    @asynccontextmanager
    async def connect() -> AsyncIterator[ApiClient]:
        yield api

    return AgentServer(
        AgentSettings("127.0.0.1", 0), connect, world.side(), namespace=WHERE, clock=world.clock, observer=world
    )


async def post(port: int, authority: str, bearer: str) -> tuple[int, Any]:
    trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))
    async with (
        asyncio.timeout(GUARD_SECONDS),
        aiohttp.ClientSession(connector=trusting) as session,
        session.post(
            f"https://127.0.0.1:{port}{PATH}", json=REPORT, headers={"Authorization": f"Bearer {bearer}"}
        ) as response,
    ):
        return response.status, json.loads(await response.text()) if response.status == 200 else None


async def test_an_agent_that_trusts_the_published_authority_is_answered() -> None:
    world, api = World(), WholeApi()
    # The serving certificate is dated by the clock of the world, and checked by that of the system.
    world.clock.seconds = (datetime.now(UTC) - NOW).total_seconds()
    async with serve_agents(server(world, api)) as agents:
        await comes(lambda: agents.port is not None)
        assert agents.port is not None
        bearer = token(expires_in=world.clock.seconds + 3600)
        status, said = await post(agents.port, api.authority(), bearer)
        assert (status, said["alone"]) == (200, 3)
        assert agents.certificate_expires_at() is not None
    assert agents.port is None
    assert len(world.taken) == 1


async def test_what_hinders_it_is_logged_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    world, api = World(), WholeApi()
    secret = api.find("secrets", WHERE, NAME)
    assert secret is not None
    api.remove("secrets", WHERE, NAME)
    with capture_logs() as logs:
        async with serve_agents(server(world, api)) as agents:
            await comes(lambda: len(api.sent("get", SECRETS)) > 3)
            api.put(SECRETS, secret)
            await comes(lambda: agents.port is not None)
    [line] = [line for line in logs if line["log_level"] == "error"]
    assert "apply manifests/components/agent" in line["error"]


async def test_reports_are_not_older_than_those_before_a_failure_of_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exchange ignores a report with a lower number, and answers it as it answered the higher one."""
    fails = [False]

    async def keep(_: object) -> None:
        while not fails[0]:
            await asyncio.sleep(0.01)
        fails[0] = False
        raise OSError("no space left for a certificate")

    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(AgentCertificates, "keep", keep)
    world, api = World(), WholeApi()
    world.clock.seconds = (datetime.now(UTC) - NOW).total_seconds()
    bearer = token(expires_in=world.clock.seconds + 3600)
    async with serve_agents(server(world, api)) as agents:
        for failure in (True, False):
            await comes(lambda: agents.port is not None)
            assert agents.port is not None
            port = agents.port
            assert (await post(port, api.authority(), bearer))[0] == 200
            fails[0] = failure
            await comes(lambda port=port, failure=failure: not failure or agents.port not in (None, port))  # type: ignore[misc]
    assert [facts.sequence for _, facts in world.taken] == [1, 2]
