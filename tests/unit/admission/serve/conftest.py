from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.admission.serve.webhook_client import Cluster127, Folder


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster127]:
    made = Cluster127()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def folder(cluster: Cluster127, tmp_path: Path) -> Folder:
    return Folder(tmp_path, cluster.url)
