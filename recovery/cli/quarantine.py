"""`recovery quarantine` and `release` for nodes, and `reset-breaker` for the circuit breaker.

Quarantine and release change the node itself, so they take effect at once, even if no controller runs. The controller's
ledger follows: its FleetReconciler adds the quarantines that it finds on nodes, and drops those that are gone.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from recovery import api_verbs
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, connect, error_words, execute
from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.cli.requests import login
from recovery.core.fleet.quarantine import Mark, claims_on_cordon, cordoned_by_us, cordons, own_taint, parsed_mark
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RESET_BREAKER_ANNOTATION
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, why_opened
from recovery.core.model.facts import NodeFacts
from recovery.core.model.fleet_ledger import BY_HAND, FleetLedger, Quarantined
from recovery.core.sentences import render
from recovery.decoding import decoded
from recovery.executors import node_quarantine
from recovery.kube.kubeconfig import context_user
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.recovery import decode_config
from recovery.ports import (
    NODES,
    RECOVERY_CONFIGS,
    ApiError,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    PatchKind,
    TryLaterError,
    UnauthorizedError,
    UntrustedServerError,
)

_SECONDS = 30
"""The controller sees a change within this time (`controller.fleet_reconciler.REVIEW_SECONDS`)."""


def quarantine(server: ServerOptions, nodes: Sequence[str], reason: str) -> None:
    """Taint and annotate the nodes for a person. They are cordoned as well if the RecoveryConfig says so. Exit code 1:
    this failed for one of them."""

    async def work() -> int:
        async with connect(server) as connection:
            by = await context_user(server.kubeconfig, server.context) or login()
            return await _each(nodes, lambda name: _quarantine(connection, name, reason, by))

    execute(work())


def release(server: ServerOptions, nodes: Sequence[str]) -> None:
    """Remove our quarantine from the nodes. The controller's ledger follows. Exit codes as `quarantine`."""

    async def work() -> int:
        async with connect(server) as connection:
            return await _each(nodes, lambda name: _release(connection, name))

    execute(work())


def reset_breaker(server: ServerOptions) -> None:
    """Annotate the RecoveryConfig, so that the leader closes the circuit breaker."""

    async def work() -> int:
        async with connect(server) as connection:
            print(await _reset_breaker(connection))
        return 0

    execute(work())


async def _each(nodes: Sequence[str], one: Callable[[str], Awaitable[str]]) -> int:
    """Print the result of `one` for each node, or its error on stderr. An error that all nodes share is raised."""
    code = 0
    for name in dict.fromkeys(nodes):
        try:
            print(await one(name), flush=True)
        except CommandError as error:
            print_error(str(error))
            code = EXIT_FAILURE
        except (TryLaterError, UnauthorizedError, UntrustedServerError, ForbiddenError, NoSuchResourceError):
            raise
        except ApiError as error:
            print_error(f"node {name}: {error_words(error)}")
            code = EXIT_FAILURE
    return code


async def _quarantine(connection: Connection, name: str, reason: str, by: str) -> str:
    node = await _node(connection, name)
    taint, mark = own_taint(node), _mark(node)
    if taint == BY_HAND and mark is not None and mark.reason == reason:
        return f"node {name} is quarantined already{_who(mark)}: {reason}"
    config = await _readable_config(connection)
    entry = Quarantined(
        node=name,
        node_uid=node.uid,
        reason=reason,
        since=connection.clock.now(),
        by=by,
        cordoned=cordons(node, wanted=config is not None and config.spec.quarantine.cordon),
    )
    await node_quarantine.quarantine_by_hand(connection.client, entry)
    before = f"; it was already{_who(mark)}: {mark.reason}" if taint is not None and mark is not None else ""
    return (
        f"node {name} is quarantined{before}; no new pod comes to it, those that run there stay, "
        f"and only `recovery release {name}` ends it"
    )


async def _release(connection: Connection, name: str) -> str:
    node = await _node(connection, name)
    taint, mark, config = own_taint(node), _mark(node), await _readable_config(connection)
    fleet = config.fleet if config is not None else FleetLedger()
    entry = next((each for each in fleet.quarantined if each.node == name), None)
    suspicions = sum(each.node == name for each in fleet.suspicions)
    quarantined = taint is not None or mark is not None or entry is not None
    if not quarantined and not suspicions:
        cordon = "; its cordon was set by others, and stays" if node.unschedulable else ""
        return f"node {name} is not quarantined by recovery{cordon}"
    await node_quarantine.release_by_hand(connection.client, name, _moment(connection.clock.now()))
    if not quarantined:
        were = "1 suspicion" if suspicions == 1 else f"{suspicions} suspicions"
        return f"node {name} was not quarantined; the controller forgets {were} against it within {_SECONDS} s"
    cordon = _cordon_that_stays(node, mark)
    ledger = f"; the controller drops it from its ledger within {_SECONDS} s" if entry is not None else ""
    was = f": it was quarantined{_who(mark)}: {mark.reason}" if mark is not None else ""
    return f"node {name} is released{cordon}{ledger}{was}"


def _cordon_that_stays(node: NodeFacts, mark: Mark | None) -> str:
    """What a release says of the node's cordon. Empty: the node has none afterwards."""
    if not node.unschedulable:
        return ""
    if mark is None or not cordoned_by_us(node):
        return "; its cordon is not ours, and stays"
    claims = claims_on_cordon(mark, node.taints, node.annotations)
    return f"; its cordon stays for {' and '.join(claims)}" if claims else ""


async def _reset_breaker(connection: Connection) -> str:
    config = await _config(connection)
    if config is None:
        raise CommandError(f"there is no RecoveryConfig {CONFIG_NAME}, and so no circuit breaker")
    breaker = config.fleet.breaker
    if breaker is None:
        return f"RecoveryConfig {CONFIG_NAME}: the circuit breaker is closed, so there is nothing to reset"
    asked = _moment(connection.clock.now())
    body = {"metadata": {"uid": config.uid, "annotations": {RESET_BREAKER_ANNOTATION: asked}}}
    await api_verbs.patch(connection.client, RECOVERY_CONFIGS, CONFIG_NAME, body, kind=PatchKind.MERGE)
    return (
        f"RecoveryConfig {CONFIG_NAME}: the controller closes the circuit breaker within {_SECONDS} s, and enforces "
        f"again; it opened at {_moment(breaker.opened_at)}: {render(why_opened(breaker))}"
    )


async def _node(connection: Connection, name: str) -> NodeFacts:
    try:
        return decoded(NODES, decode_node, await api_verbs.get(connection.client, NODES, name)).value
    except NotFoundError as error:
        raise CommandError(f"there is no node {name}; `kubectl get nodes` lists those that there are") from error


async def _readable_config(connection: Connection) -> ConfigFacts | None:
    """The RecoveryConfig. None: there is none, or the user may not read it."""
    try:
        return await _config(connection)
    except (ForbiddenError, NoSuchResourceError):
        return None


async def _config(connection: Connection) -> ConfigFacts | None:
    try:
        body = await api_verbs.get(connection.client, RECOVERY_CONFIGS, CONFIG_NAME)
    except NotFoundError:
        return None
    config = decoded(RECOVERY_CONFIGS, decode_config, body).value
    if config.unreadable:
        print_error(f"RecoveryConfig {CONFIG_NAME} cannot be read: {config.unreadable}")
    return config


def _mark(node: NodeFacts) -> Mark | None:
    return parsed_mark(node.annotations.get(QUARANTINE_ANNOTATION))


def _who(mark: Mark | None) -> str:
    if mark is None:
        return ""
    return f" by {mark.by}" if mark.by else f" by the controller (incident {mark.incident})"


def _moment(at: datetime) -> str:
    """RFC 3339, to the microsecond, so that a quarantine of the same second counts as older."""
    return str(msgspec.to_builtins(at))
