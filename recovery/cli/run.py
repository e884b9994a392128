"""`recovery run`: assembles the controller and runs it until a signal ends it."""

import asyncio
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Any, TypeVar

import msgspec
import structlog

from recovery.admission.settings import AdmissionSettings
from recovery.background import BackgroundTaskError, endless, first_of
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, execute
from recovery.cli.exit_codes import EXIT_FAILURE
from recovery.cli.preflight import (
    ACCOUNTING,
    DRILLS,
    ENFORCE,
    LOGS,
    NODE_LEASES,
    OBSERVE,
    POLICY_STATUS,
    QUARANTINE,
    RECORDS,
    WATCHED,
    Permission,
    absent_resources,
    denied,
    install_words,
    needed,
    permission_words,
    to_lead,
)
from recovery.controller.clock import SystemClock
from recovery.controller.heap import spare_the_caches
from recovery.controller.leadership import Elector, Leadership, SoleLeader
from recovery.manager import Manager
from recovery.ports import NODE_LEASE_NAMESPACE, RECOVERY_DRILLS, TRAIN_JOBS, ApiClient, Clock, Resource
from recovery.program import EXIT_INTERRUPTED
from recovery.rendezvous.settings import AgentSettings
from recovery.telemetry.event_loop_lag import measure_lag
from recovery.telemetry.logs import configure_logs
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.server import serve

T = TypeVar("T")

_log = structlog.get_logger("recovery.cli")


class StopSignal:
    """SIGTERM and SIGINT as an event. After the first signal, Ctrl-C has its previous effect again."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.exit_code = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Handle the signals within the context."""
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)

        def stop(name: str, exit_code: int) -> None:
            _log.info("stopping", signal=name)
            self.exit_code = exit_code
            self.event.set()
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

        loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM", 0)
        loop.add_signal_handler(signal.SIGINT, stop, "SIGINT", EXIT_INTERRUPTED)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    async def result_before(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work. None: the stop signal came first."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self.event.wait())
        await first_of(doing, stopping)
        return None if self.event.is_set() else doing.result()


class Election(msgspec.Struct, frozen=True):
    """How replicas elect a leader."""

    lease_namespace: str | None
    """None: the pod's own namespace, or that of the context."""
    lease_seconds: int


class LogSettings(msgspec.Struct, frozen=True):
    """What is logged, and how."""

    level: str
    """debug, info, warning or error."""
    shown: str | None = None
    """console or json; None: console where stderr is a terminal, else json."""


def run_controller(
    kubeconfig: str | None,
    context: str | None,
    metrics_host: str,
    metrics_port: int,
    logs: LogSettings,
    election: Election | None,
    admission: AdmissionSettings | None,
    agents: AgentSettings | None,
) -> None:
    """Run until SIGTERM (exit code 0) or SIGINT (130). A failure to start or to continue is one line, and exit code 1.

    `election` None: this is the only controller. `admission` None: no webhooks are served. `agents` None: no agent is
    answered.
    """
    configure_logs(logs.level, shown=logs.shown)
    execute(_run(kubeconfig, context, metrics_host, metrics_port, election, admission, agents))


async def _run(
    kubeconfig: str | None,
    context: str | None,
    metrics_host: str,
    metrics_port: int,
    election: Election | None,
    admission: AdmissionSettings | None,
    agents: AgentSettings | None = None,
) -> int:
    stop, server = StopSignal(), ServerOptions(kubeconfig, context)
    telemetry = Telemetry(clock=SystemClock(), version=version("trainjob-recovery"))
    telemetry.follow_process()
    # A credential plugin may take long. Until it is done, a signal ends the process as usual.
    async with connect(server, telemetry) as connection, stop.listening():
        namespace = await chosen_namespace(server, election.lease_namespace) if election else None
        watched = await stop.result_before(check(connection, namespace, telemetry))
        if watched is None:
            return stop.exit_code
        reads_logs = await stop.result_before(may_read_logs(connection))
        if reads_logs is None:
            return stop.exit_code
        own_namespace = await chosen_namespace(server, namespace)
        lease_seconds = election.lease_seconds if election is not None else None
        async with (
            standing(kubeconfig, context, namespace, lease_seconds, telemetry) as leadership,
            _admitting(admission, kubeconfig, context, own_namespace, connection, telemetry) as unserved,
        ):
            try:
                await _control(
                    connection,
                    telemetry,
                    leadership,
                    watched,
                    unserved,
                    stop.event,
                    metrics_host,
                    metrics_port,
                    None if agents is None else AgentPort(agents, server, own_namespace),
                    reads_logs=reads_logs,
                )
            except BackgroundTaskError as error:
                _log.error(
                    "ending: a background task has ended", task=error.task, error=error.why, exc_info=error.__cause__
                )
                return EXIT_FAILURE
    _log.info("stopped")
    return stop.exit_code


async def check(
    connection: Connection, lease_namespace: str | None = None, telemetry: Telemetry | None = None
) -> tuple[Resource, ...]:
    """The resources to watch. Raises CommandError if a needed one is missing, before anything is watched or served.

    `lease_namespace`: where the election is held. None: there is none. `telemetry` exports the missing permissions that
    the start does not need. None: they are not exported.
    """
    absent = await absent_resources(connection.client)
    if words := install_words(absent):
        raise CommandError(words)
    train_jobs = TRAIN_JOBS not in absent
    lacking = []
    if refused := await denied(connection.client, needed(OBSERVE, train_jobs=train_jobs)):
        lacking.append(f"in all namespaces (manifests/rbac grants them): {permission_words(refused)}")
    if lease_namespace is not None and (refused := await denied(connection.client, to_lead(lease_namespace))):
        grants = "manifests/rbac grants them where it is applied; or run it --no-leader-election if no other one runs"
        lacking.append(f"in namespace {lease_namespace} ({grants}): {permission_words(refused)}")
    if lacking:
        raise CommandError(f"permissions are missing, {'; and '.join(lacking)}")
    lacked = await _not_needed_for_a_start(connection, train_jobs=train_jobs)
    if telemetry is not None:
        telemetry.permissions_missing((each.verb, each.target) for each in lacked)
    watched = (*WATCHED, RECOVERY_DRILLS) if _may_watch_drills(absent, lacked) else WATCHED
    if train_jobs:
        return watched
    _log.info(
        "Trainer is not installed: JobSets are watched, TrainJobs are not; restart the controller after installing it"
    )
    return tuple(resource for resource in watched if resource != TRAIN_JOBS)


def _may_watch_drills(absent: Sequence[Resource], lacked: Sequence[Permission]) -> bool:
    """An older installation lacks the definition or the permission. Recoveries do not need them."""
    if RECOVERY_DRILLS in absent:
        _log.warning("no failure will count as a drill: recoverydrills are not installed (manifests/crd)")
        return False
    return not {each.verb for each in lacked if each.resource == RECOVERY_DRILLS} & {"list", "watch"}


async def may_read_logs(connection: Connection) -> bool:
    """The permission alone switches the evidence from logs on, so nothing warns if it is missing."""
    allowed = not await denied(connection.client, LOGS)
    if allowed:
        _log.info("the logs of suspects are read and kept in their incidents")
    return allowed


_OPTIONAL = (
    (ACCOUNTING, "", "the totals of the fleet will be incomplete (manifests/rbac)"),
    (RECORDS, "", "records of incidents will only become more (manifests/rbac)"),
    (POLICY_STATUS, "", "an edit of a policy will make earlier losses a baseline (manifests/rbac)"),
    (DRILLS, "", "no failure will count as a drill (manifests/rbac)"),
    (
        NODE_LEASES,
        f" in {NODE_LEASE_NAMESPACE}",
        "fencing AssumeDead will go by the Ready condition of nodes alone",
    ),
)
"""Permissions that no recovery needs: which ones, where, and what is missing without them."""


async def _not_needed_for_a_start(connection: Connection, *, train_jobs: bool) -> list[Permission]:
    """The missing permissions that the start does not need. Each is logged."""
    to_enforce = await denied(connection.client, needed(ENFORCE, train_jobs=train_jobs))
    to_quarantine = await denied(connection.client, QUARANTINE)
    if to_enforce:
        _log.warning("policies in mode Enforce will be refused", missing_permissions=permission_words(to_enforce))
    elif to_quarantine:
        _log.warning("no node will be quarantined", missing_permissions=permission_words(to_quarantine))
    missing = [*to_enforce, *to_quarantine]
    for permissions, where, words in _OPTIONAL:
        if refused := await denied(connection.client, permissions):
            _log.warning(words, missing_permissions=f"{permission_words(refused)}{where}")
            missing.extend(refused)
    return missing


@asynccontextmanager
async def standing(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    lease_seconds: int | None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Leadership]:
    """Take part in the election. `namespace` or `lease_seconds` None: this is the only controller.

    The session is separate, because a renewal has only seconds. In the session of the recoveries it would wait for a
    connection and a place among the requests in flight, behind everything that the groups read in a storm.
    """
    if namespace is None or lease_seconds is None:
        yield SoleLeader(SystemClock())
        return
    async with connect(ServerOptions(kubeconfig, context), telemetry) as own:
        yield _candidate(own, namespace, lease_seconds)


def _candidate(connection: Connection, namespace: str, lease_seconds: int) -> Elector:
    """The identity is random, so that a process that restarts in the same pod is another candidate."""
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    _log.info("standing for election", identity=identity, lease_namespace=namespace, lease_seconds=lease_seconds)
    return Elector(
        api=connection.client,
        clock=connection.clock,
        entropy=connection.entropy,
        namespace=namespace,
        identity=identity,
        lease_seconds=lease_seconds,
    )


@asynccontextmanager
async def _admitting(
    settings: AdmissionSettings | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    connection: Connection,
    telemetry: Telemetry,
) -> AsyncIterator[Callable[[], str | None]]:
    """Serve the webhooks within the context, whether this process leads or not.

    Yields a function that returns why they are not served. None: they are, or none are asked for.
    """
    if settings is None:
        yield lambda: None
        return
    from recovery.admission.serve import WEBHOOKS, ClusterAccess, serve_admission  # noqa: PLC0415 - kopf loads slowly

    cluster = ClusterAccess(namespace, kubeconfig, context)
    metrics = telemetry.admission(WEBHOOKS)
    async with serve_admission(settings, cluster, connection.clock, connection.entropy, metrics.reviewed) as admission:
        metrics.follow(lambda: admission.up, admission.certificate_expires_at)
        yield lambda: admission.why_not_served


class AgentPort(msgspec.Struct, frozen=True):
    """Where agents are answered, and what the endpoint opens a session of its own with."""

    settings: AgentSettings
    server: ServerOptions
    namespace: str
    """Our own, which has the Secret and the ConfigMap of the endpoint."""


@asynccontextmanager
async def _answering_agents(
    port: AgentPort | None, program: Manager, clock: Clock, telemetry: Telemetry
) -> AsyncIterator[None]:
    """Answer agents within the context. `port` None: no agent is answered."""
    if port is None:
        yield
        return
    from recovery.rendezvous.endpoint import ControllerSide  # noqa: PLC0415 - only this endpoint and admission
    from recovery.rendezvous.serve import AgentServer, serve_agents  # noqa: PLC0415   need cryptography

    @asynccontextmanager
    async def own_client() -> AsyncIterator[ApiClient]:
        async with connect(port.server) as connection:
            yield connection.client

    program.agents.parameters_in = port.namespace
    side = ControllerSide(program.store, program.agents, lambda: program.leads, asyncio.get_running_loop())
    metrics = telemetry.agents()
    server = AgentServer(port.settings, own_client, side, namespace=port.namespace, clock=clock, observer=metrics)
    metrics.follow(server.certificate_expires_at)
    async with serve_agents(server):
        yield


async def _control(
    connection: Connection,
    telemetry: Telemetry,
    leadership: Leadership,
    watched: Sequence[Resource],
    unserved: Callable[[], str | None],
    stop: asyncio.Event,
    host: str,
    port: int,
    agents: AgentPort | None,
    *,
    reads_logs: bool,
) -> None:
    clock = connection.clock
    program = Manager(
        connection.client,
        clock=clock,
        entropy=connection.entropy,
        telemetry=telemetry,
        leadership=leadership,
        train_jobs=TRAIN_JOBS in watched,
        drills=RECOVERY_DRILLS in watched,
        reads_logs=reads_logs,
    )

    def missing() -> Sequence[str]:
        synced, listed = program.store.synced(), telemetry.listed_resources
        return waits_for(watched, listed, synced=synced, stale=program.store.stale(), unserved=unserved())

    def alive() -> tuple[bool, str]:
        if connection.contact is None:
            return True, "ok"
        health = connection.contact.health()
        return not health.restart_helps, health.words

    async with (
        serve(host, port, exposed=telemetry, clock=clock, missing=missing, alive=alive),
        _answering_agents(agents, program, clock, telemetry),
    ):
        _log.info("starting", server=connection.server, version=version("trainjob-recovery"))
        await first_of(
            asyncio.create_task(program.run(stop), name="controller"),
            asyncio.create_task(endless("heap", lambda: spare_the_caches(program.store.synced, clock))),
            asyncio.create_task(endless("event loop lag", lambda: measure_lag(clock, telemetry.event_loop_lagged))),
        )


def waits_for(
    watched: Sequence[Resource],
    listed: Collection[str],
    *,
    synced: bool,
    stale: Mapping[str, datetime],
    unserved: str | None,
) -> Sequence[str]:
    """What keeps this process from being ready, for `/readyz`. Empty: it is ready.

    A Service sends webhooks to ready pods only, so a replica that serves none must not be ready. Nothing else depends
    on this answer: a process that is not ready can still lead and recover jobs, and `/healthz` does not restart it.

    `listed`: plurals of the listed resources. `stale`: plurals of those whose watch is silent, and since when.
    `unserved`: why no webhooks are served. None: they are, or none are asked for.
    """
    unlisted = [] if synced else [resource.plural for resource in watched if resource.plural not in listed]
    if not synced and not unlisted:
        unlisted = ["a watch that was refused"]
    unlisted += [f"{plural} (nothing heard since {since:%H:%M:%S})" for plural, since in stale.items()]
    return unlisted if unserved is None else [*unlisted, f"admission webhooks ({unserved})"]
