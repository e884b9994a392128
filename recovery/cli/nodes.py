"""`recovery nodes`: lists the quarantined and suspected nodes with the evidence, one line each.

The nodes show the quarantines in force, even without a RecoveryConfig. The ledger in its status adds suspicions, and
quarantines that are decided but not in force yet.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from recovery import api_verbs
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import Connection, connect, execute
from recovery.cli.exit_codes import print_error
from recovery.cli.formatting import AccountOutput, Cell, TerminalTable, age, moment, print_data
from recovery.core.fleet import suspicion
from recovery.core.fleet.quarantine import own_taint, parsed_mark, signs_of
from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import NodeFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined, Suspicion
from recovery.core.policy.resolved import fleet_limits
from recovery.core.policy.validation import config_problems
from recovery.core.sentences import render
from recovery.decoding import decoded
from recovery.kube.cluster_reader import Listing, read_all
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.recovery import decode_config
from recovery.ports import NODES, RECOVERY_CONFIGS, ForbiddenError, NoSuchResourceError, NotFoundError

_SUSPECTED = "Suspected"
_HEADER = ("NODE", "STATE", "SINCE", "BY", "ENDS", "EVIDENCE")


class NodeRow(msgspec.Struct, frozen=True, rename="camel"):
    """A quarantined or suspected node."""

    node: str
    state: str
    """Quarantined; Quarantining or Releasing, while the node does not show it yet; or Suspected."""
    since: datetime | None
    """None: the node does not show it."""
    by: str
    """The user, or the incidents."""
    ends: tuple[str, ...]
    """What ends it. Each of them is enough."""
    evidence: tuple[str, ...]
    """Why, in sentences."""
    suspicions: int = 0
    """How many incidents suspect it and still count."""
    suspicions_needed: int = 0
    """How many of them would quarantine it."""


def show_nodes(server: ServerOptions, output: AccountOutput) -> None:
    """Print the list. Exit code 0, even if there is nothing to list."""
    execute(_show(server, output))


async def _show(server: ServerOptions, output: AccountOutput) -> int:
    async with connect(server) as connection:
        config = await _config(connection)
        nodes = await _nodes(connection)
        now = connection.clock.now()
    if config is not None and config.stop is not None:
        print_error(render(config.stop))
    rows = node_rows(nodes, config, now)
    if output is not AccountOutput.TEXT:
        print_data(msgspec.to_builtins(rows), as_yaml=output is AccountOutput.YAML)
    elif rows:
        TerminalTable(_HEADER).print(_cells(row, now) for row in rows)
    else:
        print_error("no node is quarantined or suspected")
    return 0


async def _config(connection: Connection) -> ConfigFacts | None:
    try:
        body = await api_verbs.get(connection.client, RECOVERY_CONFIGS, CONFIG_NAME)
    except NotFoundError:
        return None
    except NoSuchResourceError:
        print_error("the definitions of recovery are not installed, so no suspicions are known")
        return None
    except ForbiddenError as error:
        print_error(f"RecoveryConfig {CONFIG_NAME} may not be read, so suspicions are not shown: {error}")
        return None
    return decoded(RECOVERY_CONFIGS, decode_config, body).value


async def _nodes(connection: Connection) -> Sequence[NodeFacts] | None:
    """The nodes. None: the user may not list them."""
    try:
        listed: Listing[NodeFacts] = await read_all(connection.client, NODES, None, decode_node)
    except ForbiddenError as error:
        print_error(f"nodes may not be listed, so only what the RecoveryConfig has of them is shown: {error}")
        return None
    for line in listed.unreadable:
        print_error(line)
    return [entry.value for entry in listed.entries]


def node_rows(nodes: Iterable[NodeFacts] | None, config: ConfigFacts | None, now: datetime) -> tuple[NodeRow, ...]:
    """The rows: quarantined nodes, then suspected ones, each sorted by name. `nodes` None: they were not read."""
    fleet, limits = (config.fleet, _limits(config)) if config is not None else (FleetLedger(), FleetLimits())
    entries = {entry.node: entry for entry in fleet.quarantined}
    held = [each for each in fleet.suspicions if suspicion.counts(each.at, limits, now)]
    against = {name: [each for each in held if each.node == name] for name in sorted({each.node for each in held})}
    tainted = {node.name: node for node in nodes or () if own_taint(node) is not None}
    unseen = frozenset(name for name in entries if name not in tainted) if nodes is not None else frozenset()
    found = []
    for name in sorted({*entries, *tainted}):
        row = _by_ledger(entries[name], unseen=name in unseen) if name in entries else _by_node(tainted[name])
        found.append(
            msgspec.structs.replace(
                row, suspicions=_incidents(against.get(name, ())), suspicions_needed=limits.suspicions
            )
        )
    suspected = [_suspected(name, of_node, limits) for name, of_node in against.items()]
    quarantined = {row.node for row in found}
    return (*found, *(row for row in suspected if row.node not in quarantined))


def _limits(config: ConfigFacts) -> FleetLimits:
    """The defaults if the spec cannot be used: the controller then pauses and reports why."""
    return FleetLimits() if config.unreadable or any(config_problems(config.spec)) else fleet_limits(config.spec)


def _by_ledger(entry: Quarantined, *, unseen: bool) -> NodeRow:
    """`unseen`: the node does not have the taint."""
    state = "Quarantining" if unseen and not entry.applied else "Quarantined"
    return NodeRow(
        node=entry.node,
        state="Releasing" if entry.releasing else state,
        since=entry.since,
        by=_by(entry.by, entry.incident),
        ends=(entry.releasing,) if entry.releasing else _ends(signs_of(entry), entry.release_at),
        evidence=(entry.reason,),
    )


def _by_node(node: NodeFacts) -> NodeRow:
    """The row of a node that is in no ledger: a person quarantined it a moment ago, or there is no RecoveryConfig."""
    mark = parsed_mark(node.annotations.get(QUARANTINE_ANNOTATION))
    if mark is None:
        why = f"it has the taint of a quarantine, and its annotation {QUARANTINE_ANNOTATION} cannot be read"
        return NodeRow(node.name, "Quarantined", None, own_taint(node) or "", _ends((), None), (why,))
    signs = tuple(sign.strip() for sign in mark.release_when.split(",") if sign.strip())
    ends = _ends(signs, mark.release_at)
    return NodeRow(node.name, "Quarantined", mark.since, _by(mark.by, mark.incident), ends, (mark.reason,))


def _suspected(name: str, held: Sequence[Suspicion], limits: FleetLimits) -> NodeRow:
    last = max(each.at for each in held) + timedelta(seconds=limits.suspected_within_seconds)
    return NodeRow(
        node=name,
        state=_SUSPECTED,
        since=min(each.at for each in held),
        by=", ".join(dict.fromkeys(each.incident for each in held)),
        ends=_ends((), last),
        evidence=tuple(each.reason or f"suspect of incident {each.incident}" for each in held),
        suspicions=_incidents(held),
        suspicions_needed=limits.suspicions,
    )


def _incidents(held: Sequence[Suspicion]) -> int:
    return len({each.incident for each in held})


def _by(person: str, incident: str) -> str:
    return person or (incident and f"incident {incident}") or "the controller"


def _ends(signs: Sequence[str], at: datetime | None) -> tuple[str, ...]:
    ends = "ends" if len(signs) == 1 else "have ended"
    by_health = (f"when {' and '.join(signs)} {ends}",) if signs else ()
    return (*by_health, *((f"at {moment(at)}",) if at is not None else ()), "by hand")


def _cells(row: NodeRow, now: datetime) -> tuple[Cell, ...]:
    count = f" {row.suspicions}/{row.suspicions_needed}" if row.state == _SUSPECTED else ""
    return (
        Cell(row.node),
        Cell(f"{row.state}{count}"),
        Cell(age(row.since, now) if row.since is not None else ""),
        Cell(row.by),
        Cell(" or ".join(row.ends)),
        Cell("; ".join(row.evidence)),
    )
