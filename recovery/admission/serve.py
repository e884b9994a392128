"""Runs admission beside the controller, in a thread with its own event loop, because kopf needs a loop for itself.

kopf cancels foreign tasks in its loop and, in the main thread, replaces signal handlers. Nothing here can end or block
the controller: a failure is logged, shown as a gauge and retried, and a thread that does not end is left behind.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from recovery.admission.accepted import Register
from recovery.admission.births import SettingsAtBirth
from recovery.admission.certificates import SelfMade, expires_at
from recovery.admission.reviews import Reviewed
from recovery.admission.runtimes import Runtimes
from recovery.admission.settings import AdmissionSettings
from recovery.admission.webhooks import WEBHOOKS, not_counted, serve_webhooks
from recovery.background import endless
from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import Session, open_session
from recovery.ports import Clock, Entropy

RETRY_SECONDS = 30.0
"""From a failure until everything is started again."""
HEARTBEAT_SECONDS = 1.0
HANGS_AFTER_SECONDS = 10.0
"""Without a heartbeat. The API server waits 5 s for a review."""
KOPF_END_SECONDS_MAX = 8.0
"""kopf waits 5 s for tasks that do not end by themselves."""
THREAD_END_SECONDS_MAX = 10.0

__all__ = ["WEBHOOKS", "AdmissionServer", "ClusterAccess", "serve_admission"]

_log = structlog.get_logger("recovery.admission")


class EndedError(Exception):
    """The server has ended without an error."""


class ClusterAccess(msgspec.Struct, frozen=True):
    """How to reach the cluster. `open_session` describes `kubeconfig` and `context`."""

    namespace: str
    """Our namespace, which has the Secret with the self-made certificate."""
    kubeconfig: str | None = None
    context: str | None = None


class AdmissionServer:
    """Admission as the controller sees it."""

    def __init__(
        self,
        settings: AdmissionSettings,
        cluster: ClusterAccess,
        clock: Clock,
        entropy: Entropy,
        reviewed: Reviewed = not_counted,
    ) -> None:
        """`reviewed` is called in the thread of the webhooks."""
        self._settings = settings
        self._reviewed = reviewed
        self._certificate: Path | None = None
        """The file of the serving certificate. None: nothing has been served yet."""
        self._cluster = cluster
        self._clock = clock
        self._entropy = entropy
        self._listening = False
        self._reasons: tuple[str, ...] = ()
        """What ended the last attempt. Empty: none has failed since the webhooks were last served."""
        self._logged: set[str] = set()
        """The reasons that were logged since then."""
        self._beat_at_seconds = 0.0
        """The last heartbeat, by our monotonic clock."""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # A daemon, so that the process can end even if this thread hangs.
        self._thread = threading.Thread(target=self._live, name="admission", daemon=True)

    @property
    def up(self) -> bool:
        """The webhooks are served."""
        return self.why_not_served is None

    @property
    def why_not_served(self) -> str | None:
        """The reason in one line. None: the webhooks are served."""
        if not self._listening or not self._thread.is_alive():
            return "; ".join(self._reasons) or "not listening yet"
        silent_seconds = self._clock.monotonic_seconds() - self._beat_at_seconds
        if silent_seconds >= HANGS_AFTER_SECONDS:
            return f"the event loop of its thread has not run for {silent_seconds:.0f} s"
        expires = self.certificate_expires_at()
        if expires is not None and expires <= self._clock.now():
            return f"the certificate expired at {expires:%Y-%m-%d %H:%M:%S} UTC"
        return None

    def certificate_expires_at(self) -> datetime | None:
        """When the serving certificate expires. None: there is none yet, or it cannot be read."""
        return None if self._certificate is None else expires_at(self._certificate)

    def start(self) -> None:
        self._thread.start()

    async def end(self) -> None:
        """Stop. Returns when the thread has ended, or after THREAD_END_SECONDS_MAX."""
        with suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, THREAD_END_SECONDS_MAX)
        if self._thread.is_alive():
            _log.warning("admission has not ended in time; leaving it behind", seconds=THREAD_END_SECONDS_MAX)

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._go_on())

    def _beat(self) -> None:
        """Record a heartbeat. A timer repeats it, not a task: kopf cancels tasks that were created after its start."""
        self._beat_at_seconds = self._clock.monotonic_seconds()
        self._loop.call_later(HEARTBEAT_SECONDS, self._beat)

    async def _go_on(self) -> None:
        self._beat()
        while not self._stop.is_set():
            try:
                await self._serve_until_stopped()
            except Exception as error:  # noqa: BLE001 - the boundary: the controller goes on, whatever it was
                self._failed(error)
            if not self._stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), RETRY_SECONDS)

    async def _serve_until_stopped(self) -> None:
        serving, stopping = asyncio.create_task(self._serve()), asyncio.create_task(self._stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await asyncio.wait((serving,), timeout=KOPF_END_SECONDS_MAX if self._listening else 0)
        if serving.cancelled() and not self._stop.is_set():
            raise EndedError("the webhook server was cancelled")
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    async def _serve(self) -> None:
        """Run everything until it is stopped or a part of it fails."""
        folder = self._settings.certificates
        async with open_session(kubeconfig=self._cluster.kubeconfig, context=self._cluster.context) as session:
            client = KubeApiClient(HttpTransport(session, clock=self._clock), clock=self._clock, entropy=self._entropy)
            if folder is not None:
                await self._serve_with(session, client, folder / "tls.crt", folder / "tls.key")
                return
            with tempfile.TemporaryDirectory(prefix="recovery-admission-") as own:
                made = SelfMade(
                    client,
                    clock=self._clock,
                    namespace=self._cluster.namespace,
                    listening_host=self._settings.host,
                    folder=Path(own),
                )
                await made.reconcile()
                await self._serve_with(session, client, made.file, made.file, made)

    async def _serve_with(
        self, session: Session, client: KubeApiClient, certificate: Path, key: Path, made: SelfMade | None = None
    ) -> None:
        self._certificate = certificate
        register = Register(client, clock=self._clock, entropy=self._entropy)
        async with asyncio.TaskGroup() as group:
            # Made before kopf starts, because kopf does not cancel tasks that exist already.
            works = {f"watch of {resource.plural}": each.run for resource, each in register.informers.items()}
            works["conditions"] = register.keep_conditions
            if made is not None:
                works["certificate keeper"] = made.keep
            beside = [group.create_task(endless(name, work)) for name, work in works.items()]
            await serve_webhooks(
                register.judge,
                Runtimes(client, self._clock),
                SettingsAtBirth(client, self._clock),
                session,
                host=self._settings.host,
                port=self._settings.port,
                certificate=certificate,
                key=key,
                listening=self._listens,
                reviewed=self._reviewed,
                stop=self._stop,
            )
            if not self._stop.is_set():
                raise EndedError("the webhook server ended by itself")
            for task in beside:
                task.cancel()

    def _failed(self, error: Exception) -> None:
        """Log the error if one of its reasons was not logged yet. If there are several, each retry may meet others."""
        self._reasons = tuple(_reasons(error))
        if not self._logged.issuperset(self._reasons):
            _log.error(
                "admission has failed: objects are admitted unchecked until it is back",
                error="; ".join(self._reasons),
                retry_seconds=RETRY_SECONDS,
            )
        self._logged.update(self._reasons)

    def _listens(self, listening: bool) -> None:
        if listening and not self._listening:
            _log.info("serving admission webhooks", address=f"{self._settings.host}:{self._settings.port}")
            self._reasons = ()
            self._logged.clear()
        self._listening = listening


@asynccontextmanager
async def serve_admission(
    settings: AdmissionSettings,
    cluster: ClusterAccess,
    clock: Clock,
    entropy: Entropy,
    reviewed: Reviewed = not_counted,
) -> AsyncIterator[AdmissionServer]:
    """Run admission while the context is open. A failure of admission raises nothing here.

    `reviewed` is called in the thread of the webhooks.
    """
    admission = AdmissionServer(settings, cluster, clock, entropy, reviewed)
    admission.start()
    try:
        yield admission
    finally:
        await admission.end()


def _reasons(error: BaseException) -> list[str]:
    """What went wrong, in one line for each exception of a group."""
    if isinstance(error, BaseExceptionGroup):
        return [reason for part in error.exceptions for reason in _reasons(part)]
    return [" ".join(f"{type(error).__name__}: {error}".split())]
