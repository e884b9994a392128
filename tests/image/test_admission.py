"""The image serves the webhooks under any user: kopf asks for the user's name, which may not exist."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.held_port import held_port
from tests.image.rootfs import NAMELESS, Rootfs
from tests.unit.admission.serve.webhook_client import BAD, Cluster127, asked

INSIDE = Path(__file__).with_name("inside_admission.py").read_text()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster127]:
    made = Cluster127()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.mark.parametrize("user", [None, NAMELESS], ids=["own user", "user without a name"])
async def test_a_bad_policy_is_refused(rootfs: Rootfs, cluster: Cluster127, user: str | None) -> None:
    with held_port() as port:
        given = json.dumps({"url": cluster.url, "port": port, "request": asked(BAD)})
        done = await asyncio.to_thread(rootfs.run, "-c", INSIDE, entrypoint=["python"], user=user, stdin=given)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["allowed"] is False
    assert "budget" in answer["status"]["message"]
