"""Runs the endpoint beside the controller, in a thread with its own event loop and its own session.

A flood of handshakes takes processor time from this thread, and delays no trigger of a recovery. Nothing here can end
the controller: a failure is logged and everything is started again.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path

import structlog

from recovery.background import endless
from recovery.http_server import listen
from recovery.ports import ApiClient, Clock
from recovery.rendezvous.authority import AgentCertificates
from recovery.rendezvous.endpoint import LIMITS, ControllerSide, Endpoint, EndpointObserver
from recovery.rendezvous.settings import AgentSettings
from recovery.rendezvous.tokens import Tokens

RETRY_SECONDS = 30.0
"""From a failure until everything is started again."""
THREAD_END_SECONDS_MAX = 10.0
_CLOSE_SECONDS = 1.0
"""How long the shutdown waits for reports in progress."""

_log = structlog.get_logger("recovery.rendezvous")

Connect = Callable[[], AbstractAsyncContextManager[ApiClient]]
"""Opens a session of the endpoint's own, in its event loop."""


class AgentServer:
    """The endpoint as the controller sees it."""

    def __init__(
        self,
        settings: AgentSettings,
        connect: Connect,
        controller: ControllerSide,
        *,
        namespace: str,
        clock: Clock,
        observer: EndpointObserver,
    ) -> None:
        """`namespace`: our own, which has the Secret and the ConfigMap."""
        self._settings = settings
        self._connect = connect
        self._controller = controller
        self._namespace = namespace
        self._clock = clock
        self._observer = observer
        self._certificates: AgentCertificates | None = None
        self._logged = ""
        """The failure that was logged last."""
        self.port: int | None = None
        """Where it listens. None: it does not."""
        self._numbers = count(1)
        """Of the reports. They go on where the endpoint is started again."""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # A daemon, so that the process can end even if this thread hangs.
        self._thread = threading.Thread(target=self._live, name="agents", daemon=True)

    def certificate_expires_at(self) -> datetime | None:
        """When the serving certificate expires. None: there is none yet."""
        return None if self._certificates is None else self._certificates.expires_at()

    def start(self) -> None:
        self._thread.start()

    async def end(self) -> None:
        """Stop. Returns when the thread has ended, or after THREAD_END_SECONDS_MAX."""
        with suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, THREAD_END_SECONDS_MAX)
        if self._thread.is_alive():
            _log.warning("the agents' endpoint has not ended in time; leaving it behind")

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._go_on())

    async def _go_on(self) -> None:
        while not self._stop.is_set():
            try:
                await self._serve()
            except Exception as error:  # noqa: BLE001 - the boundary: the controller goes on, whatever it was
                self._failed(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), RETRY_SECONDS)

    async def _serve(self) -> None:
        """Serve until it is stopped, or a part fails."""
        with tempfile.TemporaryDirectory(prefix="recovery-agents-") as folder:
            async with self._connect() as client:
                certificates = AgentCertificates(
                    client,
                    clock=self._clock,
                    namespace=self._namespace,
                    listening_host=self._settings.host,
                    folder=Path(folder),
                    leads=self._controller.leads,
                )
                await certificates.reconcile()
                self._certificates = certificates
                await self._listen(client, certificates)

    async def _listen(self, client: ApiClient, certificates: AgentCertificates) -> None:
        tokens = Tokens(client, self._clock)
        endpoint = Endpoint(tokens, self._controller, self._clock, self._observer, self._numbers)
        keeping = asyncio.create_task(endless("certificates of agents", certificates.keep))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            async with listen(
                endpoint.routes(),
                self._settings.host,
                self._settings.port,
                limits=LIMITS,
                close_seconds=_CLOSE_SECONDS,
                context=certificates.context,
                check_head=endpoint.check_head,
            ) as self.port:
                _log.info("serving agents", address=f"{self._settings.host}:{self.port}")
                self._logged = ""
                await asyncio.wait({keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if keeping.done():
                    keeping.result()
        finally:
            self.port = None
            for task in (keeping, stopping):
                task.cancel()
            await asyncio.gather(keeping, stopping, return_exceptions=True)

    def _failed(self, error: Exception) -> None:
        """Log the error, unless it is the same as the last one."""
        words = " ".join(f"{type(error).__name__}: {error}".split())
        if words != self._logged:
            _log.error("agents are not answered until it is back", error=words, retry_seconds=RETRY_SECONDS)
        self._logged = words


@asynccontextmanager
async def serve_agents(server: AgentServer) -> AsyncIterator[AgentServer]:
    """Answer agents while the context is open. A failure of the endpoint raises nothing here."""
    server.start()
    try:
        yield server
    finally:
        await server.end()
