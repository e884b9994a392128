from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from recovery.admission import serve
from tests.held_port import held_port
from tests.unit.admission.serve.webhook_client import Cluster127, Folder
from tests.unit.patience import GUARD_SECONDS


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


@pytest.fixture(autouse=True)
def no_thread_is_left_behind_because_the_machine_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "THREAD_END_SECONDS_MAX", GUARD_SECONDS)


@pytest.fixture
def folder(cluster: Cluster127, tmp_path: Path) -> Iterator[Folder]:
    with held_port() as port:
        yield Folder(tmp_path, cluster.url, port)
