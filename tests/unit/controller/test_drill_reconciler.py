"""The controller answers drills: which pods count as named, and the verdict. A crash in between changes nothing."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from recovery.controller.drill_reconciler import SWEEP_SECONDS, TAKE_BACK_SECONDS, DrillReconciler
from recovery.core.drill.node_marks import CORDON_MANAGER, marking
from recovery.core.model.config import ConfigFacts, ConfigSpec, DrillsSpec
from recovery.core.model.drill import (
    DrillAction,
    DrilledWorkload,
    DrillEnd,
    DrillFacts,
    DrillRef,
    DrillSpec,
    DrillVerdict,
    MarkedTaint,
    NamedPod,
    NodeMark,
)
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot
from recovery.core.model.ledger import Closing, Incident, Ledger, Outcome, Phase, PhaseSpan
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.reason import Reason
from recovery.core.model.step import WAITING
from recovery.core.policy.pinned import pinned_policy_of
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.core.policy.spec import PolicySpec
from recovery.kube.projections.drills import decode_drill
from recovery.kube.projections.nodes import decode_node
from recovery.ports import NODES, RECOVERY_DRILLS, ConflictError, ForbiddenError, PatchKind, UnknownOutcomeError
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.fakes import KEY, FakeStore, LedgersApi, SetClock
from tests.unit.core.groups import training
from tests.unit.core.world import World, at
from tests.unit.executors.fleet import ServerApi

DRILL = "lose-a-rank-x7k2p"
POLICY = PolicyFacts("default", KEY.namespace, "policy-1", 1, PolicySpec(), at(0), at(0))


def plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


class Drills:
    """RecoveryDrills on the modelled API server, of a group of four pods that trains."""

    def __init__(self, world: World | None = None) -> None:
        self.clock = SetClock(10)
        self.server = ApiServer((*core_kinds(), *recovery_kinds()), clock=self.clock, entropy=Random(1))
        self.client = ServerApi(self.server)
        self.store = Store(self, world or training(4))
        self.reconciler = DrillReconciler(api=self.client, store=self.store, clock=self.clock)

    @property
    def workload_uid(self) -> str:
        workload = self.store.cached.snapshot().workload
        assert workload is not None
        return workload.uid

    def pods(self, *indexes: int, repeat: int = 1, first: int = 1) -> tuple[NamedPod, ...]:
        """The pods of these ranks, as a client names them."""
        found = {pod.index: pod for pod in self.store.cached.snapshot().pods}
        return tuple(
            NamedPod(
                first + place,
                repeat,
                DrillAction.POD_KILL,
                found[index].name,
                found[index].uid,
                found[index].node,
                index,
            )
            for place, index in enumerate(indexes)
        )

    def create(self, *pods: NamedPod, name: str = DRILL, lasts: int = 600, **changes: Any) -> None:
        workload = DrilledWorkload("TrainJob", KEY.name, self.workload_uid)
        spec = DrillSpec(workload, "lose-a-rank", at(int(self.clock.seconds) + lasts), pods=pods, **changes)
        body = {"apiVersion": RECOVERY_DRILLS.api_version, "kind": RECOVERY_DRILLS.kind, "metadata": {"name": name}}
        self.server.create(RECOVERY_DRILLS, {**body, "spec": plain(spec)}, namespace=KEY.namespace)

    def patch(self, spec: dict[str, Any], name: str = DRILL) -> None:
        body = {"spec": plain(spec)}
        self.server.patch(RECOVERY_DRILLS, name, body, kind=PatchKind.MERGE, namespace=KEY.namespace)

    def end(self, reason: Reason = Reason.DRILL_DONE) -> None:
        self.patch({"end": DrillEnd(self.clock.now(), reason, "because")})

    def facts(self, name: str = DRILL) -> DrillFacts:
        return next(each for each in self.all() if each.name == name)

    def uid(self) -> str:
        """Of a drill that has been created, and has ended."""
        self.create(*self.pods(1), name="over")
        self.patch({"end": DrillEnd(self.clock.now(), Reason.DRILL_DONE)}, "over")
        self.server.patch(
            RECOVERY_DRILLS,
            "over",
            {"status": {"verdict": "Aborted"}},
            kind=PatchKind.MERGE,
            namespace=KEY.namespace,
            subresource="status",
        )
        return self.facts("over").uid

    def mark_node(self, mark: NodeMark) -> dict[str, Any]:
        """The node before a client marks it."""
        self.server.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0"}})
        before = self.server.get(NODES, "gpu-0")
        patch = json.loads(msgspec.json.encode(list(marking(before, mark).operations)))
        with self.server.acting(CORDON_MANAGER):
            self.server.patch(NODES, "gpu-0", patch, kind=PatchKind.JSON)
        return before

    def all(self) -> tuple[DrillFacts, ...]:
        bodies = self.server.objects(RECOVERY_DRILLS)
        return tuple(decode_drill(json.dumps(body).encode()).value for body in bodies)


class Store(FakeStore):
    def __init__(self, drills: Drills, world: World) -> None:
        super().__init__(LedgersApi(), world)
        self._drills = drills
        self.frozen: tuple[DrillFacts, ...] | None = None
        """What a lagging cache shows. None: the cache does not lag."""
        self.seen: list[DrillFacts] = []
        self.recorded: tuple[Incident, ...] = ()
        self.limits = DrillsSpec()
        self.opened: LedgerObject | None = None
        self.asked = 0
        """How often the drills were listed."""

    def opens(self, incident: Incident) -> None:
        """The ledger has this incident."""
        uid = self._drills.workload_uid
        self.opened = LedgerObject("group", KEY.namespace, "uid-group", "1", uid, KEY.name, Ledger(incident=incident))

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self.opened

    def drills(self) -> Iterable[DrillFacts]:
        self.asked += 1
        return self._drills.all() if self.frozen is None else self.frozen

    def saw_drill(self, body: bytes) -> None:
        self.seen.append(decode_drill(body).value)

    def config(self) -> ConfigFacts | None:
        return ConfigFacts("default", "config-1", 1, ConfigSpec(drills=self.limits))

    def nodes(self) -> Mapping[str, NodeFacts]:
        bodies = self._drills.server.objects(NODES)
        return {body["metadata"]["name"]: decode_node(json.dumps(body).encode()).value for body in bodies}

    async def read_live(self, key: GroupKey) -> Snapshot:
        return self.live.snapshot()

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        return self.recorded


def closed(drill: DrillFacts, *, number: int = 1, outcome: Outcome = Outcome.RECOVERED, seconds: int = 40) -> Incident:
    """A recorded incident that the drill caused, 8 GPUs idle for that long."""
    span = PhaseSpan(Phase.RENDEZVOUS, at(20), at(20 + seconds), idle_gpu_seconds=8.0 * seconds)
    return Incident(
        id=f"uid-{number}",
        number=number,
        started_at=at(20),
        detected_at=at(20),
        disruption_class="Deleted",
        cause="Deleted",
        mode="Enforce",
        pinned=pinned_policy_of(
            resolve(PolicyFacts("default", KEY.namespace, "policy-1", 1, PolicySpec(), at(0), at(0)))
        ),
        step=WAITING,
        drill=DrillRef(drill.name, drill.uid),
        gpus=8,
        phases=(span,),
        closing=Closing(outcome, Reason.ALL_RANKS_READY, at(20 + seconds), verified=True),
    )


async def test_running_members_count_as_named_and_the_cache_knows_it_at_once() -> None:
    drills = Drills()
    drills.create(*drills.pods(1, 3))
    await drills.reconciler.reconcile()
    assert drills.facts().status.named == 2
    assert [each.status.named for each in drills.store.seen] == [2]
    await drills.reconciler.reconcile()
    assert len(drills.client.patched) == 1, "an answered drill costs no write"


async def test_pods_that_are_named_later_count_too() -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    await drills.reconciler.reconcile()
    drills.patch({"pods": (*drills.pods(1), *drills.pods(2, first=2))})
    await drills.reconciler.reconcile()
    assert drills.facts().status.named == 2


async def test_a_pod_that_has_failed_before_is_refused() -> None:
    drills = Drills()
    pods = drills.pods(1)
    drills.create(*pods)
    drills.store.becomes(drills.store.cached.pod_deleted(1, 9))
    await drills.reconciler.reconcile()
    status = drills.facts().status
    assert status.refusal is not None
    assert (status.named, status.refusal.reason) == (0, Reason.DRILL_NAMES_NO_MEMBER)


async def test_a_pod_that_only_the_cache_lacks_counts() -> None:
    drills = Drills()
    pods = drills.pods(1)
    drills.create(*pods)
    drills.store.cached = drills.store.cached.pod_gone(1, 9)
    await drills.reconciler.reconcile()
    assert drills.facts().status.named == 1


async def test_the_second_drill_of_a_job_is_refused_while_the_first_runs() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), name="first")
    drills.clock.seconds += 1
    drills.create(*drills.pods(2), name="second")
    await drills.reconciler.reconcile()
    refusal = drills.facts("second").status.refusal
    assert refusal is not None
    assert (refusal.reason, drills.facts("first").status.named) == (Reason.DRILL_OVERLAPS, 1)


async def test_the_repeats_of_a_day_are_limited() -> None:
    drills = Drills()
    drills.store.limits = DrillsSpec(per_job_and_day=1)
    drills.create(*drills.pods(1), name="first")
    await drills.reconciler.reconcile()
    drills.patch({"end": DrillEnd(drills.clock.now(), Reason.DRILL_DONE)}, "first")
    drills.clock.seconds += 60
    drills.create(*drills.pods(2), name="second")
    await drills.reconciler.reconcile()
    refusal = drills.facts("second").status.refusal
    assert refusal is not None
    assert refusal.reason is Reason.DRILL_LIMIT_OF_DAY


async def test_a_drill_may_not_last_longer_than_four_hours() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), lasts=4 * 3600 + 60)
    await drills.reconciler.reconcile()
    refusal = drills.facts().status.refusal
    assert refusal is not None
    assert refusal.reason is Reason.DRILL_TOO_LONG


async def test_the_verdict_is_written_once_after_the_end() -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    await drills.reconciler.reconcile()
    drills.store.recorded = (closed(drills.facts()),)
    await drills.reconciler.reconcile()
    assert drills.facts().status.verdict is None, "the client still runs"
    drills.clock.seconds = 100
    drills.end()
    await drills.reconciler.reconcile()
    status = drills.facts().status
    assert status.verdict is DrillVerdict.PASSED
    [case] = status.cases
    assert (case.incidents, case.recovery_seconds, case.idle_gpu_seconds) == (("uid-1",), 40.0, 320.0)
    await drills.reconciler.reconcile()
    assert len(drills.client.patched) == 2


async def test_a_drill_whose_client_is_gone_is_aborted_when_its_time_is_over() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), lasts=60)
    await drills.reconciler.reconcile()
    drills.clock.seconds += 59
    await drills.reconciler.reconcile()
    assert drills.facts().status.verdict is None
    drills.clock.seconds += 1
    await drills.reconciler.reconcile()
    status = drills.facts().status
    assert (status.verdict, status.cases[0].reason) == (DrillVerdict.ABORTED, Reason.DRILL_ABANDONED)


@pytest.mark.parametrize("failure", [ConflictError("changed", status=409), UnknownOutcomeError("no answer")])
async def test_a_write_that_fails_is_decided_again(failure: Exception) -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    drills.client.next("patch", RECOVERY_DRILLS, failure)
    if isinstance(failure, ConflictError):
        await drills.reconciler.reconcile()
    else:
        with pytest.raises(UnknownOutcomeError):
            await drills.reconciler.reconcile()
    await drills.reconciler.reconcile()
    assert drills.facts().status.named == 1


async def test_a_right_that_one_drill_lacks_delays_no_other() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), name="first")
    drills.client.next("patch", RECOVERY_DRILLS, ForbiddenError("no", status=403))
    drills.clock.seconds += 1
    drills.create(*drills.pods(1), name="second")
    with pytest.raises(ForbiddenError):
        await drills.reconciler.reconcile()
    assert drills.facts("second").status.refusal is not None


async def test_a_review_that_fails_keeps_no_other_drill_from_its_answer() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), name="first")
    drills.client.next("patch", RECOVERY_DRILLS, RuntimeError("a bug"))
    drills.clock.seconds += 1
    drills.create(*drills.pods(1), name="second")
    with pytest.raises(RuntimeError):
        await drills.reconciler.reconcile()
    assert drills.facts("second").status.refusal is not None


async def test_a_refused_drill_is_over_four_hours_after_its_creation_whatever_it_says() -> None:
    drills = Drills()
    drills.create(*drills.pods(1), lasts=10**9)
    await drills.reconciler.reconcile()
    drills.clock.seconds += 4 * 3600
    await drills.reconciler.reconcile()
    assert drills.facts().status.verdict is DrillVerdict.ABORTED, "and it can be deleted"


async def test_drills_that_wait_for_no_answer_are_not_compared_with_the_others() -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    await drills.reconciler.reconcile()
    answered = drills.facts()
    drills.store.frozen = (answered,) * 2
    asked = drills.store.asked
    await drills.reconciler.reconcile()
    assert drills.store.asked == asked + 1, "thousands of drills cost no more than one list of them"


async def test_an_incident_that_is_recorded_meanwhile_counts_once() -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    await drills.reconciler.reconcile()
    drills.clock.seconds = 100
    drills.end()
    recorded = closed(drills.facts())
    drills.store.opens(msgspec.structs.replace(recorded, closing=None))
    drills.store.recorded = (recorded,)
    await drills.reconciler.reconcile()
    status = drills.facts().status
    assert (status.verdict, len(status.cases[0].incidents)) == (DrillVerdict.PASSED, 1)


async def test_old_drills_are_deleted_and_those_without_a_verdict_stay() -> None:
    drills = Drills()
    drills.store.limits = DrillsSpec(ttl="1h")
    drills.create(*drills.pods(1), name="over")
    drills.patch({"end": DrillEnd(drills.clock.now(), Reason.DRILL_INTERRUPTED)}, "over")
    await drills.reconciler.reconcile()
    drills.clock.seconds += 24 * 3600 + SWEEP_SECONDS
    drills.create(*drills.pods(2), name="runs")
    await drills.reconciler.reconcile()
    assert [each.name for each in drills.all()] == ["runs"]


@pytest.mark.parametrize("change", [{"cordon": True}, {"taint": MarkedTaint("example.com/bad", "NoSchedule")}])
async def test_what_a_dead_client_has_left_on_a_node_is_taken_back_when_its_time_is_over(
    change: dict[str, Any],
) -> None:
    drills = Drills()
    mark = NodeMark(KEY.namespace, "over", drills.uid(), at(60), **change)
    before = drills.mark_node(mark)
    await drills.reconciler.reconcile()
    assert drills.server.get(NODES, "gpu-0")["spec"] != before.get("spec", {}), "the drill runs"
    drills.clock.seconds = 10 + TAKE_BACK_SECONDS + 20
    await drills.reconciler.reconcile()
    after = drills.server.get(NODES, "gpu-0")
    assert after.get("spec", {}) == before.get("spec", {})
    assert "annotations" not in after["metadata"]
    drills.clock.seconds += TAKE_BACK_SECONDS
    await drills.reconciler.reconcile()
    assert len(drills.client.patched) == 1


async def test_a_take_back_that_the_server_did_not_answer_is_tried_again() -> None:
    drills = Drills()
    drills.mark_node(NodeMark(KEY.namespace, "over", drills.uid(), at(5), cordon=True))
    drills.client.next("patch", NODES, UnknownOutcomeError("no answer"))
    with pytest.raises(UnknownOutcomeError):
        await drills.reconciler.reconcile()
    drills.clock.seconds += TAKE_BACK_SECONDS
    await drills.reconciler.reconcile()
    assert "annotations" not in drills.server.get(NODES, "gpu-0")["metadata"]


async def test_a_condition_is_left_to_a_person_and_tried_once() -> None:
    drills = Drills()
    drills.mark_node(NodeMark(KEY.namespace, "over", drills.uid(), at(20), condition=True))
    condition = {"type": "RecoveryDrill", "status": "True"}
    status = {"status": {"conditions": [condition]}}
    drills.server.patch(NODES, "gpu-0", status, kind=PatchKind.MERGE, subresource="status")
    drills.clock.seconds = 30
    with capture_logs() as said:
        await drills.reconciler.reconcile()
        drills.clock.seconds += TAKE_BACK_SECONDS
        await drills.reconciler.reconcile()
    assert [line["log_level"] for line in said] == ["warning"]
    assert drills.client.patched == []


@virtual_time
async def test_while_a_drill_runs_a_change_of_its_group_is_reviewed_at_once() -> None:
    drills = Drills()
    clock = VirtualClock()
    reconciler = DrillReconciler(api=drills.client, store=drills.store, clock=clock)
    drills.create(*drills.pods(1))
    running = asyncio.create_task(reconciler.run())
    await asyncio.sleep(0.1)
    assert drills.facts().status.named == 1
    drills.patch({"pods": (*drills.pods(1), *drills.pods(2, first=2))})
    reconciler.changed(GroupKey("other", "group"))
    await asyncio.sleep(0.1)
    assert drills.facts().status.named == 1, "of another group"
    reconciler.changed(KEY)
    await asyncio.sleep(0.1)
    assert drills.facts().status.named == 2
    running.cancel()


async def test_a_mark_of_no_drill_is_left_alone() -> None:
    """A kubelet may write any annotation of its own node."""
    drills = Drills()
    drills.mark_node(NodeMark(KEY.namespace, "over", "invented", at(5), cordon=True))
    with capture_logs() as said:
        await drills.reconciler.reconcile()
    assert [line["log_level"] for line in said] == ["warning"]
    assert drills.server.get(NODES, "gpu-0")["spec"]["unschedulable"]


async def test_the_pods_of_another_job_of_the_same_name_do_not_count() -> None:
    drills = Drills()
    drills.create(*drills.pods(1))
    drills.store.becomes(drills.store.cached.with_workload(uid="another"))
    await drills.reconciler.reconcile()
    refusal = drills.facts().status.refusal
    assert refusal is not None
    assert refusal.reason is Reason.DRILL_NAMES_NO_MEMBER


def test_no_pod_can_be_taken_out_of_a_drill_or_replaced() -> None:
    drills = Drills()
    drills.create(*drills.pods(1, 2))
    swapped = drills.pods(3)[0], *drills.pods(2, first=2)
    for pods in (drills.pods(1), swapped, (*drills.pods(1), *drills.pods(3, first=3))):
        with pytest.raises(StatusError):
            drills.patch({"pods": pods})
