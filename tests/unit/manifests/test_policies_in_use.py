"""What each shipped policy does, with its permissions and without: facts go in, plan and sentence come out."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from recovery.core.incident import lifecycle
from recovery.core.model.annotations import HOSTNAME_LABEL
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.model.facts import Condition, FleetFacts, NodeFacts, Snapshot, Taint
from recovery.core.model.fleet_ledger import Quarantined
from recovery.core.model.ledger import AttemptAction, Considered, Incident, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import ChangeFleet, ClaimJob, FailJobSet, ForceDeletePods, Plan
from recovery.core.policy.resolved import Policy, PolicyFacts, resolve
from recovery.core.policy.spec import PolicySpec
from tests.unit.core.driver import Controller
from tests.unit.core.elastic import born, rack_lost, reconciled, sixteen, with_room
from tests.unit.core.groups import training
from tests.unit.core.world import World, at, whole

POLICIES = Path(__file__).resolve().parents[3] / "policies"
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
TRACEBACK = "Traceback (most recent call last):\n  File \"train.py\", line 7\nTypeError: forward() missing 'mask'"
XID_79 = "NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus."


def shipped(name: str, *, permitted: bool = True) -> Policy:
    """The policy of the file, with the RecoveryConfig of its permissions or without any RecoveryConfig."""
    spec = msgspec.convert(_read(f"{name}.yaml"), PolicySpec)
    config = None
    if permitted and (POLICIES / "permissions" / f"{name}.yaml").exists():
        allowed = msgspec.convert(_read(f"permissions/{name}.yaml"), ConfigSpec)
        config = ConfigFacts(CONFIG_NAME, "config-1", 1, allowed)
    return resolve(PolicyFacts(name, "ml", f"policy-{name}", 1, spec, LONG_AGO, LONG_AGO), config)


def _read(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((POLICIES / name).read_text())["spec"]
    return spec


class Story:
    """One group of four under one policy, in a cluster of the nodes gpu-0 to gpu-23."""

    def __init__(self, policy: Policy) -> None:
        self.world = training()
        self.controller = Controller(policy)
        self.nodes: dict[str, NodeFacts] = {
            f"gpu-{number}": NodeFacts(f"gpu-{number}", ready=True, uid=f"node-{number}") for number in range(24)
        }

    def change_node(self, name: str, **changes: object) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **changes)

    def lose_contact(self, name: str, seconds: float) -> None:
        """The node lifecycle controller has marked the node, and what runs there is unknown."""
        self.change_node(
            name, ready=False, reachable=False, ready_since=whole(seconds), ready_reason="NodeStatusUnknown"
        )

    def exits(self, index: int, code: int, message: str, seconds: float) -> None:
        """The pod of that rank fails with this code and message."""
        failed = self.world.pod_failed(index, code, seconds)
        [container] = failed.pod(index).containers
        assert container.exit is not None
        told = msgspec.structs.replace(container, exit=msgspec.structs.replace(container.exit, message=message))
        self.world = failed.with_pod(index, containers=(told,))

    def reconcile(self, seconds: float) -> Plan:
        """Reconcile once, and carry out the plan."""
        controller = self.controller
        plan = controller.plan_on(self._snapshot(live=False), self._snapshot(live=True), seconds)
        controller.done += plan.first
        controller.write(plan)
        controller.done += plan.actions
        return plan

    def _snapshot(self, *, live: bool) -> Snapshot:
        snapshot = self.world.snapshot(live=live)
        named = {pod.node for pod in snapshot.pods}
        nodes: Mapping[str, NodeFacts] = {name: node for name, node in self.nodes.items() if name in named}
        feasible = tuple(sorted(name for name, node in self.nodes.items() if node.ready and not node.unschedulable))
        fleet = FleetFacts(nodes=len(self.nodes), feasible=feasible) if live else None
        return msgspec.structs.replace(snapshot, nodes=nodes, fleet=fleet)

    @property
    def incident(self) -> Incident:
        return self.controller.incident

    @property
    def restarted(self) -> bool:
        """Whether its Job was deleted."""
        return [each.uid for each in self.controller.triggers] == ["job-1"]

    @property
    def claimed(self) -> bool:
        """Whether its pods are deleted before its Job."""
        return [each.uid for each in self.controller.done if isinstance(each, ClaimJob)] == ["job-1"]

    @property
    def quarantined(self) -> list[Quarantined]:
        changes = [action.change for action in self.controller.done if isinstance(action, ChangeFleet)]
        return [entry for change in changes for entry in change.quarantine]

    @property
    def made_to_fail(self) -> list[FailJobSet]:
        return [action for action in self.controller.done if isinstance(action, FailJobSet)]

    @property
    def forced(self) -> list[str]:
        """Names of the pods that were deleted by force, in order."""
        actions = [action for action in self.controller.done if isinstance(action, ForceDeletePods)]
        return [pod.name for action in actions for pod in action.pods]


def story(name: str, *, permitted: bool = True) -> Story:
    return Story(shipped(name, permitted=permitted))


# --- default, observe-only -----------------------------------------------------------------------------------------


def test_default_recreates_the_group_whatever_the_cause() -> None:
    told = story("default")
    told.exits(2, 1, "CUDA error: an illegal memory access was encountered", 0)
    told.reconcile(1)
    assert told.restarted
    assert told.incident.charged
    assert told.incident.rule == ""
    assert told.incident.reason is Reason.DEFAULT_RESTART


def test_default_waits_for_proof_that_a_silent_node_is_dead() -> None:
    told = story("default")
    told.lose_contact("gpu-2", 0)
    for seconds in (1, 60, 3600):
        told.reconcile(seconds)
    assert told.controller.workload_actions == []
    assert told.forced == []


def test_observe_only_says_what_it_would_do_and_does_nothing() -> None:
    told = story("observe-only")
    told.exits(2, 1, "", 0)
    told.reconcile(1)
    assert told.controller.workload_actions == []
    assert told.incident.message.endswith(
        "policy observe-only was in mode Observe: Enforce would have deleted Job train-node-0, so that all 4 ranks "
        "restart together"
    )


# --- gpu-faults ----------------------------------------------------------------------------------------------------


def broken(type_: str, status: str = "True", reason: str = "", since: float = 0) -> Condition:
    return Condition(type_, status, reason, "", whole(since))


def test_gpu_faults_replaces_a_node_that_a_monitor_calls_broken_though_its_rank_still_runs() -> None:
    told = story("gpu-faults")
    told.change_node("gpu-2", conditions=(broken("GpuPcieWatch"),))
    told.reconcile(1)
    assert told.restarted
    [entry] = told.quarantined
    assert (entry.node, entry.node_uid, entry.incident) == ("gpu-2", "node-2", told.incident.id)
    assert entry.release_when == "GpuPcieWatch"
    assert entry.release_at == at(1 + 24 * 3600)
    assert (told.incident.rule, told.incident.disruption_class) == ("nvsentinel-condition", "HardwareFault")
    assert told.incident.attempts[-1].action is AttemptAction.REPLACE_NODE
    assert (
        "rule nvsentinel-condition (node gpu-2 has condition GpuPcieWatch=True) says ReplaceNode"
        in told.incident.message
    )
    assert "quarantining node gpu-2 and deleting Job train-node-0" in told.incident.message


def test_gpu_faults_reads_the_reason_of_the_eks_agent() -> None:
    """The agent's condition is also False when the agent has lost its own DCGM, which breaks no training."""
    told = story("gpu-faults")
    told.change_node("gpu-2", conditions=(broken("AcceleratedHardwareReady", "False", "DCGMError"),))
    told.reconcile(1)
    assert told.controller.workload_actions == []
    told.change_node("gpu-2", conditions=(broken("AcceleratedHardwareReady", "False", "NvidiaXID79Error"),))
    told.reconcile(2)
    assert [entry.node for entry in told.quarantined] == ["gpu-2"]
    assert told.incident.rule == "eks-accelerated-hardware"


def test_gpu_faults_gives_a_driver_that_restarts_a_minute() -> None:
    told = story("gpu-faults")
    told.change_node("gpu-2", conditions=(broken("GPUMissing"),))
    assert told.reconcile(30).requeue_at == at(60)
    assert told.controller.workload_actions == []
    told.reconcile(60)
    assert [entry.node for entry in told.quarantined] == ["gpu-2"]
    assert told.incident.rule == "aks-gpu-condition"


def test_gpu_faults_reads_the_taint_of_nvsentinel() -> None:
    told = story("gpu-faults")
    told.change_node("gpu-2", taints=(Taint("AggregatedNodeHealth", "False", since=whole(0)),), unschedulable=True)
    told.reconcile(1)
    assert told.quarantined == [], "NVSentinel keeps pods off it already, and gives it back when it is fixed"
    assert told.restarted
    assert told.incident.rule == "nvsentinel-taint"


@pytest.mark.parametrize("confirmed", [True, False])
def test_gpu_faults_replaces_a_node_whose_failure_tells_that_it_is_broken(confirmed: bool) -> None:
    """Only where the node reports it too: anyone can write a message."""
    told = story("gpu-faults")
    if confirmed:
        told.change_node("gpu-2", conditions=(broken("XIDErrors"),))
    told.exits(2, 1, XID_79, 0)
    told.reconcile(1)
    assert [entry.node for entry in told.quarantined] == (["gpu-2"] if confirmed else [])
    assert told.restarted
    assert told.incident.rule == "hardware-fault"


def test_gpu_faults_without_its_permission_recreates_and_says_why_the_node_stays() -> None:
    told = story("gpu-faults", permitted=False)
    told.exits(2, 1, XID_79, 0)
    told.reconcile(1)
    assert told.restarted
    assert told.quarantined == []
    assert told.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    refused = "node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"
    assert refused in told.incident.message
    assert told.incident.considered == (Considered("ReplaceNode", Reason.QUARANTINE_NOT_ALLOWED, refused, "gpu-2"),)


def test_gpu_faults_without_its_permission_leaves_a_group_that_still_runs() -> None:
    """A restart could gain nothing: the group may land on the same node, whose monitor still reports the same."""
    told = story("gpu-faults", permitted=False)
    told.change_node("gpu-2", conditions=(broken("GpuPcieWatch"),))
    told.reconcile(1)
    assert "the member on it still runs, so the group is not restarted" in told.incident.message
    for seconds in (5, 10, 60, 3600):
        told.reconcile(seconds)
    assert not told.restarted
    assert told.controller.phase() is Phase.HEALTHY


def test_gpu_faults_leaves_other_failures_to_the_default() -> None:
    told = story("gpu-faults")
    told.exits(2, 1, TRACEBACK, 0)
    told.reconcile(1)
    assert told.restarted
    assert told.quarantined == []
    assert told.incident.rule == ""


# --- spot ----------------------------------------------------------------------------------------------------------


def test_spot_takes_a_preemption_or_a_drain_for_free_as_often_as_it_happens() -> None:
    for reason in ("PreemptionByScheduler", "EvictionByEvictionAPI"):
        told = story("spot")
        told.world = told.world.evicted(2, 0, reason=reason)
        told.reconcile(1)
        assert told.restarted
        assert not told.incident.charged
        assert told.controller.ledger.budget.remaining == 10
        assert told.incident.rule == "capacity-taken-back"
        assert "(not charged to the budget)" in told.incident.message


def test_spot_recreates_for_free_when_the_provider_has_deleted_the_node() -> None:
    told = story("spot")
    told.lose_contact("gpu-2", 0)
    told.reconcile(1)
    assert told.controller.workload_actions == []
    del told.nodes["gpu-2"]
    gone = frozenset({"gpu-2"})
    snapshots = [msgspec.structs.replace(told._snapshot(live=live), gone_nodes=gone) for live in (False, True)]
    plan = told.controller.plan_on(snapshots[0], snapshots[1], 30)
    told.controller.write(plan)
    told.controller.done += plan.actions
    assert told.restarted
    assert not told.incident.charged
    assert told.incident.disruption_class == "NodeLost"


def test_spot_charges_what_the_job_does_to_itself() -> None:
    told = story("spot")
    told.exits(2, 1, TRACEBACK, 0)
    told.reconcile(1)
    assert told.restarted
    assert told.incident.charged
    assert told.incident.rule == ""


# --- elastic -------------------------------------------------------------------------------------------------------


def test_elastic_goes_on_with_whole_replicas_when_lost_nodes_are_not_replaced() -> None:
    controller, lost = Controller(shipped("elastic")), (13, 14, 15)
    world = rack_lost(sixteen(), 0, lost)
    reconciled(controller, world, 0.5)
    world = born(controller, world, 3, unplaced=lost)
    reconciled(controller, world, 179)
    assert [attempt.action for attempt in controller.incident.attempts] == [AttemptAction.RECREATE_GROUP]
    reconciled(controller, world, 181)
    assert controller.incident.attempts[-1].action is AttemptAction.SHRINK
    assert controller.ledger.elastic is not None
    assert (controller.ledger.elastic.nodes, controller.ledger.elastic.wanted_nodes) == (12, 16)


def test_elastic_does_not_wait_for_nodes_that_someone_more_important_has() -> None:
    controller = Controller(shipped("elastic"))
    world = sixteen().evicted(15, 0, reason="PreemptionByScheduler")
    reconciled(controller, world, 0.5)
    assert (controller.incident.rule, controller.incident.charged) == ("preempted", False)
    world = born(controller, world, 3, unplaced=(15,))
    reconciled(controller, world, 4)
    reconciled(controller, world, 10)
    assert controller.incident.attempts[-1].action is AttemptAction.SHRINK
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == 14


def test_elastic_has_the_job_alone_avoid_a_node_with_a_broken_gpu() -> None:
    told = story("elastic")
    told.world = with_room(sixteen(), 2)
    told.exits(2, 1, XID_79, 0)
    labelled = told.world.with_node("gpu-2", labels={HOSTNAME_LABEL: "host-2"})
    reconciled(told.controller, labelled, 1)
    assert told.restarted
    assert told.quarantined == []
    assert (told.incident.rule, told.incident.charged) == ("bad-gpu", True)
    assert [each.host for each in told.controller.ledger.avoided] == ["host-2"]


# --- user-errors-fail-fast -----------------------------------------------------------------------------------------


def test_user_errors_end_the_job_once_late_evidence_has_had_its_time() -> None:
    told = story("user-errors-fail-fast")
    told.exits(2, 1, TRACEBACK, 0)
    assert told.reconcile(1).requeue_at == at(6)
    assert told.made_to_fail == []
    told.reconcile(6)
    [action] = told.made_to_fail
    assert action.uid == "jobset-1"
    assert told.incident.rule == "user-error"
    assert not told.controller.triggers
    assert told.incident.reason is Reason.RULE_FAIL_JOB


def test_user_errors_without_the_permission_are_held_and_say_so() -> None:
    told = story("user-errors-fail-fast", permitted=False)
    told.exits(2, 1, TRACEBACK, 0)
    told.reconcile(1)
    told.reconcile(6)
    assert told.controller.workload_actions == []
    assert told.controller.phase() is Phase.HELD
    assert told.incident.reason is Reason.RULE_FAIL_JOB_NOT_ALLOWED


@pytest.mark.parametrize(("code", "rule"), [(127, "user-error"), (78, "said-by-the-script")])
def test_a_script_may_say_by_its_exit_code_alone_that_it_is_its_own_error(code: int, rule: str) -> None:
    told = story("user-errors-fail-fast")
    told.exits(2, code, "", 0)
    told.reconcile(1)
    told.reconcile(6)
    assert len(told.made_to_fail) == 1
    assert told.incident.rule == rule


def test_user_errors_fail_fast_does_not_end_a_job_for_a_lost_node_or_the_exits_that_follow() -> None:
    told = story("user-errors-fail-fast")
    told.world = told.world.evicted(2, 0)
    told.exits(1, 2, "", 2)
    told.reconcile(3)
    told.reconcile(9)
    assert told.made_to_fail == []
    assert told.restarted
    assert told.incident.rule == "not-the-jobs-fault"
    assert not told.incident.charged


# --- large-1000-gpus -----------------------------------------------------------------------------------------------


def test_large_takes_a_silent_node_for_dead_after_a_minute_and_forces_its_pod_only() -> None:
    told = story("large-1000-gpus")
    dead = told.world.pod(2).name
    told.lose_contact("gpu-2", 0)
    assert told.reconcile(10).requeue_at == at(60)
    assert told.controller.workload_actions == []
    told.reconcile(60)
    assert not told.incident.charged
    assert (told.incident.rule, told.incident.disruption_class) == ("node-taken-away", "NodeLost")
    assert told.claimed, "the 5 s of the policy are less than the pods' own 30"
    told.world = told.world.with_job(torn_down_by=lifecycle.attempt_id(told.incident)).all_deleted(60, grace_seconds=5)
    told.reconcile(60.5)
    assert told.restarted
    told.world = told.world.job_deleted(60)
    told.reconcile(61)
    assert set(told.forced) == {dead}
    assert told.incident.pinned.grace_seconds == 5


def test_large_without_its_permission_waits_for_proof() -> None:
    told = story("large-1000-gpus", permitted=False)
    told.lose_contact("gpu-2", 0)
    told.reconcile(10)
    told.reconcile(3600)
    assert told.controller.workload_actions == []
    assert told.forced == []


def test_large_replaces_a_broken_node() -> None:
    told = story("large-1000-gpus")
    told.change_node("gpu-2", conditions=(broken("XIDErrors"),))
    told.exits(2, 1, XID_79, 0)
    told.reconcile(1)
    assert [entry.node for entry in told.quarantined] == ["gpu-2"]
    assert (told.incident.rule, told.incident.charged) == ("hardware-fault", True)


# --- runtime-failure-policy ----------------------------------------------------------------------------------------


def test_the_runtime_with_a_failure_policy_leaves_a_failed_pod_to_its_job_set() -> None:
    spec = _read("runtime-failure-policy.yaml")["template"]["spec"]
    [job] = spec["replicatedJobs"]
    told = story("default")
    native: World = training(
        backoff_limit=job["template"]["spec"]["backoffLimit"],
        failure_policy=FailurePolicyFacts(max_restarts=spec["failurePolicy"]["maxRestarts"]),
    )
    told.world = native
    told.exits(2, 1, "", 0)
    told.reconcile(1)
    assert told.controller.workload_actions == []
    assert "standing aside, because Job train-node-0 has backoffLimit 0" in told.incident.message
