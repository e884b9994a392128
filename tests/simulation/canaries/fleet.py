"""Bugs in what is done about nodes, and in what is remembered about all of them."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from recovery.core.diagnosis.classify import Finding
from recovery.core.fleet import quarantine
from recovery.core.incident import fencing
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import NodeFacts
from recovery.core.model.fleet_ledger import FleetLedger, Quarantined
from recovery.core.model.reason import Explanation
from recovery.core.model.rules import Rule
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.executors import node_quarantine
from recovery.kube.projections import recovery as projections
from recovery.kube.projections.metadata import ObjectEntry


def lets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """To release a node is to let pods in again: every taint and any cordon is removed, no matter who has set it."""
    release = node_quarantine._release

    def let_in(node: Any, value: str, cordon_is_ours: bool) -> list[dict[str, Any]]:
        operations = release(node, value, cordon_is_ours)
        if not any("/spec/" in operation["path"] for operation in operations):
            return operations
        return [
            {"op": "add", "path": "/spec/taints", "value": []},
            {"op": "add", "path": "/spec/unschedulable", "value": False},
        ]

    monkeypatch.setattr("recovery.executors.node_quarantine._release", let_in)


def cordons_have_one_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cordon that the mark of the quarantine calls ours is removed with it, no matter who has come to the node."""
    monkeypatch.setattr("recovery.executors.node_quarantine.claims_on_cordon", lambda *_: ())


def entries_outlive_their_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that had its taint once stays in the ledger as quarantined until it is released, by time or by a person:
    the taint is only there for the scheduler."""
    review = quarantine._reviewed

    def kept(entry: Quarantined, node: NodeFacts | None, now: datetime) -> Quarantined | None:
        if node is not None and entry.applied and not entry.releasing and quarantine.own_taint(node) is None:
            return entry
        return review(entry, node, now)

    monkeypatch.setattr("recovery.core.fleet.quarantine._reviewed", kept)


def assumes_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's words on fencing are enough: the RecoveryConfig was checked when the policy was admitted."""
    assumed = fencing._assumed

    def by_policy(
        node: NodeFacts, policy: Policy | PolicyError | None, now: datetime, *, unseen: Explanation | None
    ) -> fencing.Fate:
        if isinstance(policy, Policy):
            policy = msgspec.structs.replace(policy, may_assume_dead=True)
        return assumed(node, policy, now, unseen=unseen)

    monkeypatch.setattr("recovery.core.incident.fencing._assumed", by_policy)


def next_leader_starts_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the spec of the RecoveryConfig is kept in memory: its status is the controller's own, and the writer knows
    it. The next leader does not: it finds room for as many nodes again, and its compare-and-swap succeeds."""
    decode = projections.decode_config

    def spec_alone(raw: bytes | msgspec.Raw) -> ObjectEntry[ConfigFacts]:
        entry = decode(raw)
        return msgspec.structs.replace(entry, value=msgspec.structs.replace(entry.value, fleet=FleetLedger()))

    monkeypatch.setattr("recovery.kube.group_store.decode_config", spec_alone)
    monkeypatch.setattr("recovery.kube.live_reader.decode_config", spec_alone)


def messages_are_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a message says about a node is true: a process only writes an XID that it has seen."""

    def by_message(finding: Finding, rule: Rule | None) -> bool:
        return False

    monkeypatch.setattr("recovery.core.fleet.suspicion.decided_by_message", by_message)


def first_come_first_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap of the cluster is the only one: the first namespace to come may use all of it."""
    monkeypatch.setattr("recovery.core.fleet.quarantine.namespace_cap", quarantine.cap)


def every_futile_recovery_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery in vain counts, no matter which workload or namespace it belongs to."""

    def whole(limit: int) -> int:
        return limit

    monkeypatch.setattr("recovery.core.fleet.breaker._workload_share", whole)
    monkeypatch.setattr("recovery.core.fleet.breaker._namespace_share", whole)
