"""The parts of objects that decisions depend on: a change of anything else wakes no group."""

import msgspec

from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import NodeFacts
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.policy.enforcement import Enforcement
from recovery.core.policy.resolved import PolicyFacts


def what_counts(node: NodeFacts) -> object:
    """What decisions read of a node. Messages of conditions are left out, because some monitors write times there."""
    conditions = tuple((each.type, each.status, each.reason, each.since) for each in node.conditions)
    return node.uid, node.ready, node.reachable, node.unschedulable, node.taints, conditions, node.deleting_since


def but_status(policy: PolicyFacts) -> PolicyFacts:
    """Of what the status records, decisions depend only on the moment since which evidence counts."""
    return msgspec.structs.replace(policy, resource_version="", recorded=Enforcement(), mode_since=policy.since)


def but_totals(config: ConfigFacts) -> ConfigFacts:
    fleet = msgspec.structs.replace(config.fleet, totals=FleetTotals())
    return msgspec.structs.replace(config, fleet=fleet, resource_version="")
