"""The status of a policy keeps the time of its switch to Enforce, across edits and changes of leader."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.controller.policy_reconciler import REFUSED_SECONDS, PolicyReconciler
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.kube.projections.recovery import decode_policy
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_POLICIES,
    ForbiddenError,
    NotLeadingError,
    PatchKind,
    UnknownOutcomeError,
)
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from tests.unit.controller.fakes import FakeStore, LedgersApi, SetClock
from tests.unit.core.groups import training
from tests.unit.core.world import at
from tests.unit.executors.fleet import ServerApi

NAMESPACE = "ml"
FORBIDDEN = ForbiddenError('recoverypolicies "standard" is forbidden: cannot patch', status=403)
NOTHING = {"enforcedSince": None, "enforcedGeneration": None}


class Policies:
    """A namespaced policy and a cluster-wide one, on the modelled API server."""

    def __init__(self) -> None:
        self.clock = SetClock(10)
        self.server = ApiServer(recovery_kinds(), clock=self.clock, entropy=Random(1))
        self.client = ServerApi(self.server)
        for resource in (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES):
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "standard"}}
            namespace = NAMESPACE if resource.namespaced else None
            self.server.create(resource, {**body, "spec": {"mode": "Observe"}}, namespace=namespace)

    def edit(self, seconds: int, patch: dict[str, Any], *, manager: str = "chart") -> None:
        """Another field manager edits the namespaced policy at that time."""
        self.clock.seconds = seconds
        with self.server.acting(manager):
            self.server.patch(RECOVERY_POLICIES, "standard", patch, kind=PatchKind.MERGE, namespace=NAMESPACE)

    def mode(self, seconds: int, mode: str, *, manager: str = "chart") -> None:
        self.edit(seconds, {"spec": {"mode": mode}}, manager=manager)

    @property
    def status(self) -> dict[str, Any]:
        found = self.server.get(RECOVERY_POLICIES, "standard", namespace=NAMESPACE).get("status") or {}
        return {key: value for key, value in found.items() if key in NOTHING}

    def facts(self) -> tuple[PolicyFacts, ...]:
        kinds = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES)
        bodies = (body for resource in kinds for body in self.server.objects(resource))
        return tuple(decode_policy(json.dumps(body).encode()).value for body in bodies)


class Store(FakeStore):
    def __init__(self, policies: Policies) -> None:
        super().__init__(LedgersApi(), training(1))
        self._policies = policies
        self.frozen: tuple[PolicyFacts, ...] | None = None
        """What a lagging cache shows. None: the cache does not lag."""

    def every_policy(self) -> Iterable[PolicyFacts]:
        return self._policies.facts() if self.frozen is None else self.frozen


def leader(policies: Policies, store: Store | None = None) -> PolicyReconciler:
    """The PolicyReconciler of a process that has just begun to lead."""
    return PolicyReconciler(api=policies.client, store=store or Store(policies), clock=policies.clock)


def recorded(seconds: int, generation: int) -> dict[str, Any]:
    return {"enforcedSince": f"2026-11-21T12:{seconds // 60:02}:{seconds % 60:02}Z", "enforcedGeneration": generation}


async def test_a_policy_that_observes_costs_no_write() -> None:
    policies = Policies()
    await leader(policies).reconcile()
    assert policies.client.patched == []


async def test_the_switch_is_taken_over_once_and_no_other_edit_moves_it() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    await leader(policies).reconcile()
    assert policies.status == recorded(20, 2)
    policies.edit(100, {"metadata": {"labels": {"chart": "2"}}})
    policies.mode(110, "Enforce", manager="argo")
    policies.edit(120, {"spec": {"budget": {"limit": 3}}})
    await leader(policies).reconcile()
    assert policies.status == recorded(20, 3)
    assert resolve(policies.facts()[0]).since == at(20)
    written = len(policies.client.patched)
    await leader(policies).reconcile()
    assert len(policies.client.patched) == written == 2


async def test_enforce_observe_enforce_moves_it() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    await leader(policies).reconcile()
    policies.mode(40, "Observe")
    await leader(policies).reconcile()
    assert policies.status == {}
    policies.mode(60, "Enforce")
    await leader(policies).reconcile()
    assert policies.status == recorded(60, 4)


async def test_the_clusters_policy_has_it_as_well() -> None:
    policies = Policies()
    policies.clock.seconds = 30
    patch = {"spec": {"mode": "Enforce"}}
    policies.server.patch(CLUSTER_RECOVERY_POLICIES, "standard", patch, kind=PatchKind.MERGE)
    await leader(policies).reconcile()
    assert policies.client.patched == ["clusterrecoverypolicies standard"]
    assert policies.facts()[1].recorded == policies.facts()[1].enforcement


async def test_what_was_decided_on_a_cache_that_lags_is_not_written() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    store = Store(policies)
    store.frozen = policies.facts()
    policies.mode(30, "Observe")
    await leader(policies, store).reconcile()
    assert policies.status == {}


async def test_a_second_writer_and_one_that_crashed_say_the_same() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    policies.client.next("patch", RECOVERY_POLICIES, UnknownOutcomeError("the connection was lost"))
    with pytest.raises(UnknownOutcomeError):
        await leader(policies).reconcile()
    policies.edit(25, {"spec": {"budget": {"limit": 3}}}, manager="somebody-else")
    await leader(policies).reconcile()
    assert policies.status == recorded(20, 3)


async def test_without_the_right_it_is_tried_later() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    one = leader(policies)
    policies.client.next("patch", RECOVERY_POLICIES, FORBIDDEN)
    with pytest.raises(ForbiddenError):
        await one.reconcile()
    assert resolve(policies.facts()[0]).since == at(20)
    policies.clock.seconds += REFUSED_SECONDS - 1
    await one.reconcile()
    assert policies.status == {}
    policies.clock.seconds += 1
    await one.reconcile()
    assert policies.status == recorded(20, 2)


async def test_a_right_that_one_policy_lacks_delays_no_other() -> None:
    """A Role may grant the right in some namespaces only, and each review has the same order of policies."""
    policies = Policies()
    policies.mode(20, "Enforce")
    enforce = {"spec": {"mode": "Enforce"}}
    policies.clock.seconds = 30
    policies.server.patch(CLUSTER_RECOVERY_POLICIES, "standard", enforce, kind=PatchKind.MERGE)
    one = leader(policies)
    policies.client.next("patch", RECOVERY_POLICIES, FORBIDDEN)
    with pytest.raises(ForbiddenError):
        await one.reconcile()
    assert policies.client.patched == ["recoverypolicies standard", "clusterrecoverypolicies standard"]
    policies.clock.seconds = 40
    policies.server.patch(CLUSTER_RECOVERY_POLICIES, "standard", {"spec": {"mode": "Observe"}}, kind=PatchKind.MERGE)
    await one.reconcile()
    assert policies.client.patched[2:] == ["clusterrecoverypolicies standard"]


async def test_what_is_forbidden_for_long_is_one_warning() -> None:
    policies = Policies()
    policies.mode(20, "Enforce")
    policies.client.next("patch", RECOVERY_POLICIES, FORBIDDEN, times=3)
    over = NotLeadingError("the term is over")
    policies.client.next("patch", RECOVERY_POLICIES, over)
    with capture_logs() as said:
        await leader(policies).run()
    assert [(line["log_level"], line["retry_in_seconds"]) for line in said] == [
        ("warning", REFUSED_SECONDS),
        *[("info", REFUSED_SECONDS)] * 2,
    ]
    assert policies.clock.seconds >= 3 * REFUSED_SECONDS
