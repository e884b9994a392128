"""`recovery run`: puts the controller together and runs it until a signal ends it."""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from importlib.metadata import version
from typing import Any

import structlog

from recovery.cli.connection import EXIT_INTERRUPTED, CommandError, Connection, connect, execute
from recovery.cli.preflight import ENFORCE, OBSERVE, WATCHED, absent_resources, denied, install_words, permission_words
from recovery.controller.clock import SystemClock
from recovery.controller.runner import Controller
from recovery.kube.store import KubeGroupStore
from recovery.telemetry.event_loop import measure_lag
from recovery.telemetry.logs import configure_logs
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.server import serve
from recovery.workloads.trainjob import TrainJobAdapter

_log = structlog.get_logger("recovery.cli")


class Stop:
    """SIGTERM and SIGINT as an event. After the first of them the next Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.exit_code = 0

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop, "SIGTERM", 0)
        loop.add_signal_handler(signal.SIGINT, self._stop, "SIGINT", EXIT_INTERRUPTED)

    def _stop(self, name: str, exit_code: int) -> None:
        _log.info("stopping", signal=name)
        self.exit_code = exit_code
        self.event.set()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def cuts_short(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work, unless the stop comes first."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self.event.wait())
        await first_of(doing, stopping)
        return self.event.is_set()


def run_controller(
    kubeconfig: str | None, context: str | None, metrics_host: str, metrics_port: int, log_level: str
) -> None:
    """Run until SIGTERM (exit code 0) or SIGINT (130); whatever keeps it from running is one line and 1."""
    configure_logs(log_level)
    execute(_run(kubeconfig, context, metrics_host, metrics_port))


async def _run(kubeconfig: str | None, context: str | None, metrics_host: str, metrics_port: int) -> int:
    stop = Stop()
    stop.listen()
    telemetry = Telemetry(clock=SystemClock(), version=version("trainjob-recovery"))
    async with connect(kubeconfig, context, telemetry) as connection:
        if await stop.cuts_short(check(connection)):
            return stop.exit_code
        await _control(connection, telemetry, stop.event, metrics_host, metrics_port)
    _log.info("stopped")
    return stop.exit_code


async def check(connection: Connection) -> None:
    """Raise CommandError for what is not there, before anything is watched or served."""
    absent = await absent_resources(connection.client)
    if absent:
        raise CommandError(install_words(absent))
    lacking = await denied(connection.client, OBSERVE)
    if lacking:
        words = permission_words(lacking)
        raise CommandError(f"permissions are missing, in all namespaces (manifests/rbac grants them): {words}")
    withheld = await denied(connection.client, ENFORCE)
    if withheld:
        _log.warning("policies in mode Enforce will be refused", missing_permissions=permission_words(withheld))


async def _control(connection: Connection, telemetry: Telemetry, stop: asyncio.Event, host: str, port: int) -> None:
    client, clock, entropy = connection.client, connection.clock, connection.entropy
    store = KubeGroupStore(client, TrainJobAdapter(), clock=clock, entropy=entropy, observer=telemetry)
    controller = Controller(api=client, store=store, clock=clock, entropy=entropy, observer=telemetry)
    telemetry.follow(store)
    telemetry.follow_queue(lambda: controller.queue_depth)

    def missing() -> Sequence[str]:
        if store.synced():
            return ()
        waiting = [resource.plural for resource in WATCHED if resource.plural not in telemetry.listed_resources]
        return waiting or ["a watch that was refused"]

    async with serve(host, port, registry=telemetry.registry, missing=missing):
        _log.info("starting", server=connection.server, version=version("trainjob-recovery"))
        await first_of(
            asyncio.create_task(controller.run(stop)),
            asyncio.create_task(store.run()),
            asyncio.create_task(measure_lag(clock, telemetry.event_loop_lagged)),
        )


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks ends, then end the others. Raises what the first one raised."""
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
