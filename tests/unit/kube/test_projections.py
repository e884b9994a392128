"""Real objects in, facts out."""

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest

from recovery.core.model.config import AllowSpec, ConfigSpec
from recovery.core.model.facts import (
    Condition,
    ContainerFacts,
    Demand,
    ExitCodesRequirement,
    ExitFacts,
    FailurePolicyFacts,
    FailurePolicyRule,
    GroupKey,
    LabelRequirement,
    NodeFacts,
    PodConditionPattern,
    PodFacts,
    PodFailureRule,
    Progress,
    ReplicatedJobFacts,
    Taint,
    Toleration,
    WorkloadFacts,
)
from recovery.core.model.fleet_ledger import FleetLedger, Suspicion
from recovery.core.model.ledger import (
    SCHEMA_VERSION,
    WITHOUT_RESUMING,
    WITHOUT_SIZES,
    Ledger,
    Outcome,
    Phase,
    Suspension,
    Target,
)
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.recovery import (
    UNREADABLE_SCHEMA_VERSION,
    decode_config,
    decode_policy,
    decode_recovery_group,
)
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from tests.unit.kube.store_world import Body
from tests.unit.kube.testing import fixture, message

JOB_UID = "88fa8d43-97ac-40cc-91e9-2a692a749c32"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21T{clock}+00:00")


def changed(name: str, **paths: Any) -> bytes:
    """A fixture with some values replaced; `status__phase` is a path, and None removes what it leads to."""
    body = json.loads(fixture(name))
    for path, value in paths.items():
        *parents, last = path.split("__")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return json.dumps(body).encode()


WHILE_SILENT = tuple(
    Toleration(f"node.kubernetes.io/{how}", "Exists", "", "NoExecute") for how in ("not-ready", "unreachable")
)
H100 = {"key": "gpu", "operator": "In", "values": ["h100"]}
CDI_GPU = "k8s.gpu.nvidia.com/claim=dab5ab50-gpu-0"
BY_NAME = {"key": "metadata.name", "operator": "In", "values": ["gpu-0001"]}


class TestPods:
    def test_a_running_pod(self) -> None:
        entry = decode_pod(fixture("pod_running"))
        assert (entry.namespace, entry.name, entry.resource_version) == ("default", "llm-node-0-0-dqwlh", "573")
        assert entry.value.group == GroupKey("default", "llm")
        assert entry.value.replicated_job == "node"
        assert entry.value.facts == PodFacts(
            name="llm-node-0-0-dqwlh",
            uid="f82517e8-973e-4253-b94f-c78982807d93",
            job_uid=JOB_UID,
            job_name="llm-node-0",
            index=0,
            created_at=at("09:25:46"),
            resource_version="573",
            node="gpu-0001",
            scheduled_at=at("09:27:49"),
            accepted_at=at("09:27:54"),
            phase="Running",
            gpus=8,
            ready=True,
            ready_since=at("09:27:54"),
            grace_seconds=30,
            containers=(ContainerFacts(name="node", ready=True, running_since=at("09:27:54")),),
            demand=Demand(tolerations=WHILE_SILENT, gpus=8),
        )
        assert entry.value.facts.running

    def test_a_container_that_was_restarted_keeps_its_last_exit(self) -> None:
        (container,) = decode_pod(fixture("pod_restarted")).value.facts.containers
        assert container.restarts == 1
        assert container.last_exit == ExitFacts(
            code=137,
            reason="OOMKilled",
            message="CUDA error: out of memory",
            started_at=at("09:27:56"),
            finished_at=at("09:27:56"),
        )

    def test_a_failed_pod_keeps_the_conditions_that_tell_of_trouble_and_no_others(self) -> None:
        pod = decode_pod(fixture("pod_failed_disrupted")).value.facts
        assert (pod.phase, pod.ready, pod.ready_since, pod.running) == ("Failed", False, None, False)
        assert [container.exit.code for container in pod.containers if container.exit] == [1]
        assert pod.conditions == (
            Condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting", at("09:27:56")),
        )

    def test_a_pod_that_finds_no_node_says_so(self) -> None:
        reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
        raw = changed("pod_pending", spec__nodeName=None, status__conditions=[reason])
        pod = decode_pod(raw).value.facts
        assert (pod.node, pod.containers) == ("", ())
        assert pod.conditions == (Condition("PodScheduled", "False", "Unschedulable", "no nodes", None),)

    def test_a_deletion_is_dated_when_it_was_asked_for(self) -> None:
        pod = decode_pod(fixture("pod_deleting")).value.facts
        assert pod.deleting_since == at("09:27:56")
        assert pod.deletion_grace_seconds == 30
        assert pod.running, "its processes live"

    def test_a_waiting_container_and_init_containers(self) -> None:
        waiting = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}}
        init = {"name": "init", "restartCount": 2, "state": {"terminated": {"exitCode": 0, "finishedAt": None}}}
        pod = decode_pod(
            changed("pod_pending", status__containerStatuses=[waiting], status__initContainerStatuses=[init])
        ).value.facts
        assert pod.containers == (ContainerFacts("node", waiting_reason="ImagePullBackOff"),)
        assert pod.init_containers == (ContainerFacts("init", restarts=2, exit=ExitFacts(0)),)

    def test_what_the_pod_says_of_its_own_end(self) -> None:
        why = "Pod was rejected: Allocate failed due to device plugin"
        raw = changed("pod_running", status__reason="UnexpectedAdmissionError", status__message=why + "." * 2000)
        pod = decode_pod(raw).value.facts
        assert pod.reason == "UnexpectedAdmissionError"
        assert pod.message.startswith(why)
        assert len(pod.message) == 1024

    def test_conditions_that_only_tell_how_far_it_is_are_left_out(self) -> None:
        left_out = ["Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"]
        told = [(type_, status) for type_ in left_out for status in ("True", "False")]
        told += [("PodScheduled", "True"), ("PodScheduled", "False"), ("example.com/Joined", "False")]
        raw = changed("pod_running", status__conditions=[{"type": type_, "status": status} for type_, status in told])
        conditions = decode_pod(raw).value.facts.conditions
        assert [(each.type, each.status) for each in conditions] == told[-2:]

    def test_why_a_container_waits(self) -> None:
        message = 'Back-off pulling image "ghcr.io/x"' + "." * 2000
        waiting = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}}
        (container,) = decode_pod(changed("pod_pending", status__containerStatuses=[waiting])).value.facts.containers
        assert container.waiting_message == message[:1024]

    def test_of_a_long_last_word_the_end_is_kept(self) -> None:
        ended = {"name": "node", "state": {"terminated": {"exitCode": 1, "message": "x" * 5000 + "CUDA error"}}}
        (container,) = decode_pod(changed("pod_pending", status__containerStatuses=[ended])).value.facts.containers
        assert container.exit is not None
        assert (len(container.exit.message), container.exit.message[-10:]) == (4096, "CUDA error")

    def test_devices_that_its_kubelet_calls_unhealthy(self) -> None:
        """KEP-4680; Unknown is what a device plugin leaves behind that has gone away."""
        gpus = [{"resourceID": "GPU-1", "health": "Healthy"}, {"resourceID": "GPU-2", "health": "Unhealthy"}]
        claimed = [{"resourceID": "gpu.example.com/pool/0", "health": "Unhealthy"}, {"resourceID": "x"}]
        status = [{"name": "nvidia.com/gpu", "resources": gpus}, {"name": "claim:gpu/req-0", "resources": claimed}]
        status.append({"name": "nvidia.com/nic", "resources": [{"resourceID": "n-1", "health": "Unknown"}]})
        running = {"name": "node", "allocatedResourcesStatus": status}
        (container,) = decode_pod(changed("pod_pending", status__containerStatuses=[running])).value.facts.containers
        assert container.unhealthy_devices == ("nvidia.com/gpu: GPU-2", "claim:gpu/req-0: gpu.example.com/pool/0")

    def test_what_a_driver_says_of_an_unhealthy_device_is_kept_and_bounded(self) -> None:
        """Kubernetes 1.36, gate ResourceHealthStatusMessage; null where the driver says nothing."""
        devices = [
            {"resourceID": "GPU-1", "health": "Unhealthy", "message": "ECC error count exceeded threshold"},
            {"resourceID": "GPU-2", "health": "Unhealthy", "message": None},
            {"resourceID": "GPU-3", "health": "Unhealthy", "message": "x" * 5000},
        ]
        running = {"name": "node", "allocatedResourcesStatus": [{"name": "claim:gpu/req-0", "resources": devices}]}
        (container,) = decode_pod(changed("pod_pending", status__containerStatuses=[running])).value.facts.containers
        one, two, three = container.unhealthy_devices
        assert one == "claim:gpu/req-0: GPU-1 (ECC error count exceeded threshold)"
        assert two == "claim:gpu/req-0: GPU-2"
        assert len(three) < 200

    def test_where_it_could_run_is_kept_once_for_all_that_ask_for_the_same(self) -> None:
        tolerations = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"tolerationSeconds": 5},
        ]
        raw = changed("pod_running", spec__nodeSelector={"gpu": "h100"}, spec__tolerations=tolerations)
        one, two = decode_pod(raw).value.facts.demand, decode_pod(raw).value.facts.demand
        tolerated = (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"), Toleration())
        assert one == Demand(selector=(("gpu", "h100"),), tolerations=tolerated, gpus=8)
        assert one is two

    @pytest.mark.parametrize(
        ("terms", "affinity"),
        [
            (None, None),
            ([], ()),
            ([{"matchExpressions": [H100]}, {}], ((LabelRequirement("gpu", "In", ("h100",)),), ())),
            ([{"matchExpressions": [H100], "matchFields": [BY_NAME]}], ((LabelRequirement("gpu", "In", ("h100",)),),)),
            ([{"matchExpressions": [H100]}, {"matchFields": [BY_NAME]}], None),
        ],
    )
    def test_the_affinity_that_it_requires(self, terms: list[object] | None, affinity: object) -> None:
        """What it prefers decides nothing, and names of nodes are not looked at."""
        preferred = {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}
        by_node: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
        if terms is not None:
            by_node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        raw = changed("pod_running", spec__affinity={"nodeAffinity": by_node, "podAntiAffinity": {}})
        assert decode_pod(raw).value.facts.demand.affinity == affinity

    @pytest.mark.parametrize(("value", "joined"), [("readiness", True), ("none", False), ("", False)])
    def test_ready_means_joined_only_where_the_runtime_was_prepared_for_it(self, value: str, joined: bool) -> None:
        raw = changed("pod_running", metadata__annotations={"recovery.trainjob.dev/joined-probe": value})
        assert decode_pod(raw).value.facts.joined_probe is joined
        assert not decode_pod(fixture("pod_running")).value.facts.joined_probe

    def test_a_pod_of_no_job_and_no_index(self) -> None:
        labels = {"jobset.sigs.k8s.io/jobset-name": "llm"}
        pod = decode_pod(changed("pod_running", metadata__ownerReferences=None, metadata__labels=labels)).value.facts
        assert (pod.job_uid, pod.job_name, pod.index) == ("", "", None)

    @pytest.mark.parametrize(
        ("containers", "gpus"),
        [
            ([{"limits": {"nvidia.com/gpu": "8", "cpu": "32"}, "requests": {"nvidia.com/gpu": "8"}}], 8),
            ([{"requests": {"amd.com/gpu": "4"}}, {"limits": {"amd.com/gpu": "2"}}], 6),
            ([{"limits": {"habana.ai/gaudi": "8", "nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-3g.20gb": "1"}}], 11),
            ([{"limits": {"google.com/tpu": "4", "gpu.intel.com/i915": "1", "gpu.intel.com/xe": "2"}}], 7),
            ([{"limits": {"nvidia.com/gpu.shared": "2"}}], 2),
            ([{"limits": {"nvidia.com/gpumem": "3000", "gpu.intel.com/memory.max": "8"}}], 0),
            ([{"limits": {"cpu": "500m", "memory": "2Gi"}}, {}], 0),
        ],
    )
    def test_accelerators_are_counted(self, containers: list[dict[str, object]], gpus: int) -> None:
        raw = changed("pod_running", spec__containers=[{"name": "c", "resources": each} for each in containers])
        facts = decode_pod(raw).value.facts
        assert (facts.gpus, facts.demand.gpus) == (gpus, gpus)

    @pytest.mark.parametrize(
        ("resources", "told", "gpus"),
        [
            # What the kubelet tells of: the claim of the first container has two GPUs and a network card.
            ([{"claims": [{"name": "gpus"}]}], {"claim:gpus": [CDI_GPU, f"{CDI_GPU}-b", "dra.net/node-1/eth1"]}, 2),
            ([{"claims": [{"name": "gpus", "request": "a"}]}], {"claim:gpus/a": ["gpu.amd.com/gpu-0001/0"]}, 1),
            ([{"claims": [{"name": "gaudi"}]}], {"claim:gaudi": ["gaudi.intel.com/node-1/card0"]}, 1),
            ([{"claims": [{"name": "nics"}]}], {"claim:nics": ["dra.net/gpu/eth1"]}, 0),
            # It has not told yet: so many claims.
            ([{"claims": [{"name": "gpus"}]}], {"rdma/hca": ["mlx5_0"]}, 1),
            ([{"claims": [{"name": "gpus"}]}, {"claims": [{"name": "gpus"}]}], {}, 1),
            ([{"claims": [{"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}]}], {}, 2),
            ([{"limits": {"cpu": "4"}}], {"rdma/hca": ["mlx5_0"]}, 0),
        ],
    )
    def test_devices_of_claims_are_accelerators(
        self, resources: list[dict[str, object]], told: dict[str, list[str]], gpus: int
    ) -> None:
        status = [{"name": name, "resources": [{"resourceID": each} for each in ids]} for name, ids in told.items()]
        raw = changed(
            "pod_running",
            spec__containers=[{"name": f"c{number}", "resources": each} for number, each in enumerate(resources)],
            status__containerStatuses=[{"name": "c0", "allocatedResourcesStatus": status}],
        )
        facts = decode_pod(raw).value.facts
        assert (facts.gpus, facts.demand.gpus) == (gpus, 0), "no node tells of them among its resources"

    def test_a_claim_beside_gpus_that_are_resources_is_about_something_else(self) -> None:
        """A compute domain, or a network card."""
        resources = {"limits": {"nvidia.com/gpu": "4"}, "claims": [{"name": "domain"}]}
        raw = changed("pod_running", spec__containers=[{"name": "node", "resources": resources}])
        facts = decode_pod(raw).value.facts
        assert (facts.gpus, facts.demand.gpus) == (4, 4)

    def test_gpus_that_a_driver_of_dra_provides_are_not_looked_for_among_those_that_nodes_tell_of(self) -> None:
        claim = {"resourceClaimName": "made-by-the-scheduler", "requestMappings": []}
        facts = decode_pod(changed("pod_running", status__extendedResourceClaimStatus=claim)).value.facts
        assert (facts.gpus, facts.demand.gpus) == (8, 0)

    def test_strings_that_pods_share_are_shared(self) -> None:
        one, two = (decode_pod(fixture(name)).value for name in ("pod_running", "pod_restarted"))
        assert one.facts.job_uid is two.facts.job_uid
        assert one.facts.node is two.facts.node
        assert one.facts.containers[0].name is two.facts.containers[0].name

    def test_what_is_no_pod_is_refused_with_the_path(self) -> None:
        with pytest.raises(msgspec.ValidationError, match=r"\$\.metadata"):
            decode_pod(b'{"metadata": {"name": "x"}}')
        with pytest.raises(ValueError, match="abc"):
            decode_pod(changed("pod_running", metadata__labels={"batch.kubernetes.io/job-completion-index": "abc"}))


class TestWorkloads:
    def test_a_train_job_brings_all_labels_and_only_our_annotations(self) -> None:
        job = decode_train_job(fixture("trainjob")).value
        assert (job.kind, job.name, job.generation, job.suspended) == ("TrainJob", "llm", 1, False)
        assert job.labels == {"team": "a"}
        assert job.annotations == {"recovery.trainjob.dev/paused": "false"}

    def test_a_train_job_that_is_suspended_and_finished(self) -> None:
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
        job = decode_train_job(changed("trainjob", spec__suspend=True, status__conditions=[condition])).value
        assert job.suspended
        assert job.condition("Complete") == Condition("Complete", "True", since=at("10:00:00"))

    def test_who_has_patched_the_runtime_of_a_train_job(self) -> None:
        pods = {"spec": {"nodeSelector": {"cloud.example.com/pool": "a"}}}
        node = {"name": "node", "template": {"spec": {"template": pods}}}
        spec = {"template": {"spec": {"replicatedJobs": [node]}}}
        patches = [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}, {"manager": "example.com/team"}]
        assert decode_train_job(changed("trainjob", spec__runtimePatches=patches)).value.patched_by == (
            "kueue.x-k8s.io/manager",
        )

    def test_an_entry_that_says_nothing_is_no_patch(self) -> None:
        """The webhook of Kueue 0.19 adds this one to every TrainJob, also to those that Kueue does not manage."""
        patches = [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}]
        assert decode_train_job(changed("trainjob", spec__runtimePatches=patches)).value.patched_by == ()

    @pytest.mark.parametrize(
        ("percentage", "ratio"), [({"progressPercentage": 45}, 0.45), ({"progressPercentage": 0}, 0.0), ({}, None)]
    )
    def test_how_far_a_training_has_come(self, percentage: dict[str, object], ratio: float | None) -> None:
        told = {"lastUpdatedTime": "2026-11-21T10:00:00Z", "metrics": [{"name": "loss", "value": "0.1"}], **percentage}
        job = decode_train_job(changed("trainjob", status__trainerStatus=told)).value
        assert job.progress == Progress(at("10:00:00"), ratio)
        assert decode_train_job(fixture("trainjob")).value.progress is None

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            "far",
            {},
            {"progressPercentage": 45},
            {"progressPercentage": 45, "lastUpdatedTime": None},
            {"progressPercentage": 45, "lastUpdatedTime": "0001-01-01T00:00:00Z"},
            {"progressPercentage": 45, "lastUpdatedTime": "today"},
            {"progressPercentage": 101, "lastUpdatedTime": "2026-11-21T10:00:00Z"},
            {"progressPercentage": -1, "lastUpdatedTime": "2026-11-21T10:00:00Z"},
            {"progressPercentage": "45", "lastUpdatedTime": "2026-11-21T10:00:00Z"},
        ],
        ids=str,
    )
    def test_a_progress_that_makes_no_sense_is_none_and_the_job_is_read(self, wrong: object) -> None:
        job = decode_train_job(changed("trainjob", status__trainerStatus=wrong)).value
        assert (job.name, job.progress) == ("llm", None)

    @pytest.mark.parametrize(("written", "deadline"), [(3600, 3600), (0, None), (None, None)], ids=str)
    def test_the_deadline_of_a_train_job_or_a_job_set(self, written: int | None, deadline: int | None) -> None:
        """Trainer omits a deadline of 0. JobSet 0.12 has no such field; jobset#1320 adds it under the same name."""
        train_job = decode_train_job(changed("trainjob", spec__activeDeadlineSeconds=written)).value
        assert train_job.active_deadline_seconds == deadline
        raw = changed("jobset", spec__activeDeadlineSeconds=written, metadata__ownerReferences=None)
        record = decode_job_set(raw).value
        assert record.facts.active_deadline_seconds == deadline
        assert record.workload is not None
        assert record.workload.active_deadline_seconds == deadline

    def test_the_deadline_and_the_limit_per_index_of_a_job(self) -> None:
        job = decode_job(changed("job", spec__activeDeadlineSeconds=600, spec__backoffLimitPerIndex=1)).value.facts
        assert (job.active_deadline_seconds, job.backoff_limit_per_index) == (600, 1)
        job = decode_job(fixture("job")).value.facts
        assert (job.active_deadline_seconds, job.backoff_limit_per_index) == (None, None)

    def test_a_job_set(self) -> None:
        record = decode_job_set(fixture("jobset")).value
        assert record.owner_uid == "1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert record.facts.replicated_jobs == (
            ReplicatedJobFacts("node", 1, "trainer", size_known=True, parallelism=4, completions=4, accelerators=8),
        )
        assert (record.facts.restarts, record.facts.terminal_state, record.facts.failure_policy) == (0, "", None)
        assert record.workload is None, "it is its TrainJob's"

    def test_the_targets_of_a_success_policy(self) -> None:
        policy = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
        assert decode_job_set(changed("jobset", spec__successPolicy=policy)).value.facts.success_targets == (
            "launcher",
        )
        assert (
            decode_job_set(changed("jobset", spec__successPolicy={"operator": "All"})).value.facts.success_targets == ()
        )

    def test_a_job_set_that_nothing_controls_is_a_workload_of_its_own(self) -> None:
        labels = {"kueue.x-k8s.io/queue-name": "gpus"}
        annotations = {"recovery.trainjob.dev/paused": "true", "team.example/notes": "long"}
        raw = changed(
            "jobset",
            metadata__ownerReferences=[{"uid": "u", "name": "a group of experiments", "controller": False}],
            metadata__labels=labels,
            metadata__annotations=annotations,
            metadata__deletionTimestamp="2026-11-21T10:00:00Z",
            spec__suspend=True,
        )
        record = decode_job_set(raw).value
        assert record.owner_uid == ""
        assert record.workload == WorkloadFacts(
            kind="JobSet",
            name="llm",
            uid=record.facts.uid,
            resource_version="587",
            generation=1,
            created_at=at("09:25:46"),
            suspended=True,
            labels=labels,
            annotations={"recovery.trainjob.dev/paused": "true"},
            deleting_since=at("10:00:00"),
        )

    def test_one_that_has_finished_is_complete_as_a_train_job_is(self) -> None:
        finished = [{"type": "Completed", "status": "True"}, {"type": "Suspended", "status": "False"}]
        raw = changed("jobset", metadata__ownerReferences=None, status__conditions=finished)
        record = decode_job_set(raw).value
        assert record.workload is not None
        assert record.workload.conditions == (Condition("Complete", "True"), Condition("Suspended", "False"))
        assert record.facts.condition("Completed") is not None, "its own facts keep its own words"

    def test_what_a_replicated_job_waits_for(self) -> None:
        depends_on = [{"name": "load", "status": "Complete"}, {"name": "sshd", "status": "Ready"}]
        replicated = [{"name": "load", "replicas": 2}, {"name": "sshd"}, {"name": "train", "dependsOn": depends_on}]
        facts = decode_job_set(changed("jobset", spec__replicatedJobs=replicated)).value.facts
        assert facts.replicated_jobs == (
            ReplicatedJobFacts("load", 2, size_known=True),
            ReplicatedJobFacts("sshd", size_known=True),
            ReplicatedJobFacts("train", waits_for_complete=("load",), size_known=True),
        )

    def test_a_job_set_with_a_failure_policy_in_the_middle_of_its_life(self) -> None:
        rule = {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        policy = {"maxRestarts": 3, "restartStrategy": "Recreate", "rules": [rule, {"action": "RestartJobSet"}]}
        status = {"restarts": 2, "restartsCountTowardsMax": 1, "terminalState": "Failed"}
        facts = decode_job_set(changed("jobset", spec__failurePolicy=policy, status=status)).value.facts
        assert facts.failure_policy == FailurePolicyFacts(
            3,
            (FailurePolicyRule("r", "FailJobSet", ("PodFailurePolicy",)), FailurePolicyRule("", "RestartJobSet")),
        )
        assert (facts.restarts, facts.restarts_counted, facts.terminal_state) == (2, 1, "Failed")

    def test_a_job(self) -> None:
        record = decode_job(fixture("job")).value
        job = record.facts
        assert record.group == GroupKey("default", "llm")
        assert (job.uid, job.replicated_job, job.restart_attempt) == (JOB_UID, "node", 0)
        assert job.jobset_uid == "0960e724-676e-452b-8e2e-6b0ceae771f6"
        assert (job.parallelism, job.completions, job.backoff_limit, job.pod_restart_policy) == (4, 4, 6, "OnFailure")
        assert (job.suspended, job.pod_failure_rules, job.touched) == (False, (), "")
        assert record.ready == 4

    def test_a_job_with_policies_of_its_own(self) -> None:
        rules = [
            {"action": "FailJob", "onExitCodes": {"containerName": "node", "operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
        job = decode_job(
            changed(
                "job",
                spec__podFailurePolicy={"rules": rules},
                spec__successPolicy={"rules": []},
                metadata__annotations={"recovery.trainjob.dev/touched": "i-1"},
                metadata__deletionTimestamp="2026-11-21T10:00:00Z",
                metadata__deletionGracePeriodSeconds=0,
            )
        ).value.facts
        assert job.pod_failure_rules == (
            PodFailureRule("FailJob", on_exit_codes=ExitCodesRequirement("In", (42,), "node")),
            PodFailureRule("Ignore", on_pod_conditions=(PodConditionPattern("DisruptionTarget", "True"),)),
        )
        assert (job.touched, job.deleting_since) == ("i-1", at("10:00:00"))

    @pytest.mark.parametrize(
        ("nodes", "born"), [("12", 12), ("0", 0), ("", None), ("-1", None), ("12.5", None), ("1" * 11, None)]
    )
    def test_a_job_says_with_which_settings_it_was_born(self, nodes: str, born: int | None) -> None:
        own = {"recovery.trainjob.dev/birth-settings": "3", "recovery.trainjob.dev/nodes": nodes}
        job = decode_job(changed("job", metadata__annotations=own)).value.facts
        assert (job.birth_revision, job.born_nodes) == ("3", born)
        plain = decode_job(fixture("job")).value.facts
        assert (plain.birth_revision, plain.born_nodes, plain.gang, plain.pinned) == ("", None, "", False)

    @pytest.mark.parametrize(
        ("part", "name", "value"),
        [
            ("metadata__labels", "scheduling.x-k8s.io/pod-group", "llm"),
            ("metadata__labels", "pod-group.scheduling.sigs.k8s.io", "llm"),
            ("metadata__labels", "pod-group.scheduling.sigs.k8s.io/name", "llm"),
            ("metadata__annotations", "scheduling.k8s.io/group-name", "llm"),
            ("metadata__annotations", "scheduling.volcano.sh/group-name", "llm"),
            ("metadata__annotations", "gang.scheduling.koordinator.sh/name", "llm"),
            ("spec", "schedulingGroup", {"podGroupName": "llm"}),
            ("spec", "workloadRef", {"name": "llm", "podGroup": "ranks"}),
        ],
    )
    def test_a_job_whose_pods_are_a_gang_says_by_what(self, part: str, name: str, value: object) -> None:
        template = json.loads(fixture("job"))["spec"]["template"]
        path = part.split("__")
        inner = template.setdefault(path[0], {})
        if len(path) > 1:
            inner = inner.setdefault(path[1], {})
        inner[name] = value
        job = decode_job(changed("job", spec__template=template)).value.facts
        assert job.gang == (f"spec.{name}" if part == "spec" else name)

    @pytest.mark.parametrize(("gate", "pinned"), [("kueue.x-k8s.io/topology", True), ("example.com/later", False)])
    def test_a_job_says_whether_kueue_chooses_the_node_of_each_pod(self, gate: str, pinned: bool) -> None:
        template = json.loads(fixture("job"))["spec"]["template"]
        template["spec"]["schedulingGates"] = [{"name": gate}]
        assert decode_job(changed("job", spec__template=template)).value.facts.pinned is pinned


class TestNodes:
    def test_a_ready_node(self) -> None:
        assert decode_node(fixture("node")).value == NodeFacts(
            name="gpu-0001",
            ready=True,
            ready_since=at("09:27:48"),
            ready_reason="KubeletReady",
            uid="340eb04a-e688-4b94-9019-61c0e3392f75",
            resource_version="563",
            gpus=64,
        )

    def test_a_silent_and_cordoned_node(self) -> None:
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        node = decode_node(changed("node", status__conditions=[lost], spec__unschedulable=True)).value
        assert (node.ready, node.reachable, node.ready_reason) == (False, False, "NodeStatusUnknown")
        assert (node.ready_since, node.unschedulable) == (None, True)

    def test_one_that_says_itself_that_it_is_not_ready_is_reachable(self) -> None:
        not_ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
        node = decode_node(changed("node", status__conditions=[not_ready])).value
        assert (node.ready, node.reachable) == (False, True)

    def test_a_node_that_never_reported(self) -> None:
        node = decode_node(changed("node", status__conditions=[])).value
        assert (node.ready, node.ready_since, node.ready_reason, node.reachable) == (False, None, "", True)

    def test_conditions_that_say_something(self) -> None:
        told = [("MemoryPressure", "False"), ("DiskPressure", "True"), ("PIDPressure", "Unknown")]
        told += [("Ready", "True"), ("GpuUnhealthy", "False"), ("KernelDeadlock", "True")]
        raw = changed("node", status__conditions=[{"type": type_, "status": status} for type_, status in told])
        assert [(each.type, each.status) for each in decode_node(raw).value.conditions] == [
            ("DiskPressure", "True"),
            ("PIDPressure", "Unknown"),
            ("GpuUnhealthy", "False"),
            ("KernelDeadlock", "True"),
        ]

    def test_taints_labels_and_of_the_annotations_ours(self) -> None:
        taints = [
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
            | {"timeAdded": "2026-11-21T10:00:00Z"},
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        ]
        raw = changed(
            "node",
            metadata__labels={"topology.kubernetes.io/rack": "r7"},
            metadata__annotations={"csi.volume.kubernetes.io/nodeid": "{}", "recovery.trainjob.dev/release": "now"},
            metadata__deletionTimestamp="2026-11-21T10:00:05Z",
            spec__taints=taints,
        )
        node = decode_node(raw).value
        assert node.taints == (
            Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute", at("10:00:00")),
            Taint("nvidia.com/gpu", "", "NoSchedule"),
        )
        assert node.labels == {"topology.kubernetes.io/rack": "r7"}
        assert node.annotations == {"recovery.trainjob.dev/release": "now"}
        assert node.deleting_since == at("10:00:05")

    def test_accelerators_are_those_that_can_be_had(self) -> None:
        raw = changed("node", status__allocatable={"nvidia.com/gpu": "7", "cpu": "96", "amd.com/gpu": "1"})
        assert decode_node(raw).value.gpus == 8

    @pytest.mark.parametrize(
        ("spec", "renewed_at"), [({"renewTime": "2026-11-21T10:00:00.250000Z"}, at("10:00:00.250000")), ({}, None)]
    )
    def test_a_lease_tells_when_the_kubelet_was_last_heard(
        self, spec: dict[str, str], renewed_at: datetime | None
    ) -> None:
        assert decode_renewal(json.dumps({"spec": spec}).encode()) == renewed_at


class TestPolicies:
    def test_the_mode_dates_from_the_newest_write_of_its_owner(self) -> None:
        policy = decode_policy(fixture("recoverypolicy")).value
        assert policy.spec.mode is Mode.ENFORCE
        assert policy.spec.selector.match_labels == {"team": "a"}
        assert (policy.spec.priority, policy.spec.budget.limit, policy.generation) == (5, 3, 3)
        assert policy.created_at == at("09:51:09")
        assert policy.mode_since == at("09:51:11"), "not 09:51:13, when another owner wrote the priority"
        assert not policy.deleting

    def test_a_mode_that_nobody_owns_dates_from_the_creation(self) -> None:
        policy = decode_policy(changed("recoverypolicy", metadata__managedFields=None)).value
        assert policy.mode_since == policy.created_at

    def test_a_status_write_does_not_date_the_mode(self) -> None:
        owner = {"time": "2026-11-21T12:00:00Z", "subresource": "status", "fieldsV1": {"f:spec": {"f:mode": {}}}}
        policy = decode_policy(changed("recoverypolicy", metadata__managedFields=[owner])).value
        assert policy.mode_since == policy.created_at

    def test_what_this_version_does_not_know_is_refused_with_its_path(self) -> None:
        with pytest.raises(msgspec.ValidationError, match=r"'Automatic' - at `\$\.spec\.mode`"):
            decode_policy(changed("recoverypolicy", spec__mode="Automatic"))

    def test_one_of_the_cluster_has_no_namespace(self) -> None:
        policy = decode_policy(changed("recoverypolicy", metadata__namespace=None)).value
        assert (policy.namespace, policy.title) == ("", "ClusterRecoveryPolicy standard")


class TestConfigs:
    def test_what_the_platform_allows_and_pauses(self) -> None:
        spec = {"paused": True, "pauseReason": "maintenance", "allow": {"failJob": True}}
        config = decode_config(recovery_config(spec)).value
        assert (config.name, config.uid, config.generation) == ("default", "c-1", 2)
        assert config.spec == ConfigSpec(paused=True, pause_reason="maintenance", allow=AllowSpec(fail_job=True))
        assert config.unreadable == ""

    def test_its_status_is_the_ledger_of_the_fleet(self) -> None:
        suspicion = {"node": "gpu-3", "incident": "i-1", "at": "2026-11-21T10:00:00Z"}
        config = decode_config(recovery_config({}, {"suspicions": [suspicion]})).value
        assert config.fleet == FleetLedger(suspicions=(Suspicion("gpu-3", "i-1", at("10:00:00")),))
        assert config.resource_version == "7"
        assert decode_config(recovery_config({})).value.fleet == FleetLedger()

    def test_a_status_that_cannot_be_read_is_never_taken_for_an_empty_one(self) -> None:
        config = decode_config(recovery_config({"paused": False}, {"quarantined": [{"node": 3}]})).value
        assert "at `$.status.quarantined[0].node" in config.unreadable
        assert "so all recoveries are paused" in message(config.pause)

    @pytest.mark.parametrize("spec", [{"paused": "yes"}, {"allow": None}, []])
    def test_one_that_cannot_be_read_pauses_everything(self, spec: object) -> None:
        config = decode_config(recovery_config(spec)).value
        assert "at `$.spec" in config.unreadable
        assert "so all recoveries are paused" in message(config.pause)


def with_an_unknown_class(status: Body) -> Body:
    """The status as it is written again: what was booked without a class counts as of class Unknown."""
    totals = status["totals"]
    if "idleGpuSecondsByClass" in totals:
        return status
    return {**status, "totals": {**totals, "idleGpuSecondsByClass": {"Unknown": totals["idleGpuSeconds"]}}}


def in_sentences(status: Body) -> Body:
    """What is written of a ledger today, as the versions before wrote it: without codes."""
    incident = dict(status["incident"])
    for name in ("told", "tooLate", "wouldMessage", "heldReason"):
        incident.pop(name, None)
    attempts = [in_one_sentence(each) for each in incident.get("attempts", [])]
    considered = [f"{each['action']}: {each['message']}" for each in incident.pop("alternatives", [])]
    incident |= {name: found for name, found in (("attempts", attempts), ("considered", considered)) if found}
    requests = [
        {name: value for name, value in each.items() if name != "reason"} for each in status.get("requests", [])
    ]
    told = in_one_sentence(status | {"incident": in_one_sentence(incident)})
    history = [in_one_sentence(each) for each in status.get("history", [])]
    return told | {name: found for name, found in (("requests", requests), ("history", history)) if found}


def in_one_sentence(record: Body) -> Body:
    message, then = record["message"], record.get("then")
    told = record | {"reason": f"{message}; then {then}" if then else message}
    return {name: value for name, value in told.items() if name not in ("message", "then")}


def recovery_config(spec: object, status: object = None) -> bytes:
    metadata = {"name": "default", "uid": "c-1", "resourceVersion": "7", "generation": 2}
    body = {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": spec}
    return json.dumps(body if status is None else {**body, "status": status}).encode()


class TestLedgers:
    def test_what_a_controller_of_version_1_wrote_is_read_and_its_incident_goes_on(self) -> None:
        """Written by the code of the commit before version 2."""
        found = decode_recovery_group(fixture("recoverygroup-v1")).value
        assert not found.labelled
        assert found.schema_version == 1, "as found"
        assert found.ledger.schema_version == WITHOUT_RESUMING, "as it is written next"
        incident = found.ledger.incident
        assert incident is not None
        assert incident.closing is None
        assert (found.ledger.phase, found.ledger.epoch, incident.charged) == (Phase.TEARING_DOWN, 2, True)
        assert incident.target == Target("0960e724-676e-452b-8e2e-6b0ceae771f6", (JOB_UID,))
        assert (incident.pinned.backoff_initial_seconds, incident.pinned.on_exhausted) == (0.0, "Hold")
        assert (incident.suspension, found.ledger.requests) == (None, ())
        assert [closed.outcome for closed in found.ledger.history] == [Outcome.RECOVERED]

    def test_the_label_of_birth_settings_counts_by_its_value(self) -> None:
        for value, labelled in (("true", True), ("false", False), ("", False)):
            labels = {"recovery.trainjob.dev/birth-settings": value, "a": "b"}
            assert decode_recovery_group(changed("recoverygroup", metadata__labels=labels)).value.labelled is labelled

    def test_what_a_controller_of_version_2_wrote_is_read(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup-v2")).value
        assert (found.schema_version, found.ledger.phase) == (2, Phase.BACKOFF)
        incident = found.ledger.incident
        assert incident is not None
        assert incident.suspension == Suspension(until=found.ledger.next_attempt_at, landed=True)
        assert [(answer.verb, answer.accepted) for answer in found.ledger.requests] == [
            ("reset-budget", True),
            ("restart", False),
        ]

    def test_what_a_controller_of_version_3_wrote_is_read(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup-v3")).value
        incident = found.ledger.incident
        assert (found.schema_version, found.ledger.phase) == (3, Phase.HELD)
        assert incident is not None
        assert incident.held is not None
        assert incident.held.reason is Reason.BAD_CHECKPOINT
        assert "a suspected bad checkpoint" in incident.held.message
        assert [rule.name for rule in incident.pinned.rules] == ["preempted"]
        assert [mark.node for mark in found.ledger.failures] == ["gpu-2"]

    @pytest.mark.parametrize(
        ("name", "version"), [("v4", WITHOUT_RESUMING), ("v5", WITHOUT_SIZES), ("v6", SCHEMA_VERSION)]
    )
    def test_nothing_that_stands_in_a_ledger_is_lost_when_it_is_written_again(self, name: str, version: int) -> None:
        raw = fixture(f"recoverygroup-{name}")
        status = json.loads(raw)["status"]
        assert status["schemaVersion"] == version
        written = json.loads(msgspec.json.encode(decode_recovery_group(raw).value.ledger))
        assert written == with_an_unknown_class(status)

    @pytest.mark.parametrize("version", range(1, 4))
    def test_nothing_that_stands_in_an_earlier_ledger_is_lost_when_it_is_written_again(self, version: int) -> None:
        raw = fixture(f"recoverygroup-v{version}")
        status = json.loads(raw)["status"]
        assert status["schemaVersion"] == version
        written = json.loads(msgspec.json.encode(decode_recovery_group(raw).value.ledger))
        assert written["schemaVersion"] == WITHOUT_RESUMING
        assert in_sentences(written) == {**with_an_unknown_class(status), "schemaVersion": WITHOUT_RESUMING}

    @pytest.mark.parametrize("version", range(1, 4))
    def test_every_sentence_of_the_earlier_versions_is_known(self, version: int) -> None:
        ledger = decode_recovery_group(fixture(f"recoverygroup-v{version}")).value.ledger
        assert ledger.incident is not None
        reasons = [ledger.reason, ledger.incident.reason, *(each.reason for each in ledger.incident.attempts)]
        reasons += [*(each.reason for each in ledger.history), *(each.reason for each in ledger.requests)]
        assert Reason.UNKNOWN not in reasons

    def test_a_ledger_as_the_controller_wrote_it(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup")).value
        assert found.workload_uid == "1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert found.name == "llm-1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert (found.group, found.resource_version, found.schema_version) == ("llm", "958", 1)
        assert (found.ledger.epoch, found.ledger.phase) == (2, Phase.HELD)

    def test_a_ledger_of_a_bare_job_set_says_so(self) -> None:
        reference = {"kind": "JobSet", "name": "llm", "uid": "bare"}
        found = decode_recovery_group(changed("recoverygroup", spec={"workloadRef": reference})).value
        assert (found.workload_kind, found.group, found.workload_uid) == ("JobSet", "llm", "bare")
        assert decode_recovery_group(fixture("recoverygroup")).value.workload_kind == "TrainJob"

    def test_no_status_is_an_empty_ledger(self) -> None:
        found = decode_recovery_group(changed("recoverygroup", status=None)).value
        assert (found.ledger, found.schema_version) == (Ledger(), WITHOUT_RESUMING)

    def test_a_newer_ledger_keeps_its_version_and_nothing_else(self) -> None:
        status = {"schemaVersion": 7, "epoch": 9, "phase": "Levitating"}
        found = decode_recovery_group(changed("recoverygroup", status=status)).value
        assert (found.ledger, found.schema_version) == (Ledger(), 7)

    @pytest.mark.parametrize("status", [{"phase": "Levitating"}, {"schemaVersion": "one"}, {"epoch": None}, []])
    def test_a_ledger_that_cannot_be_read_is_never_taken_for_an_empty_one(self, status: object) -> None:
        body = json.loads(fixture("recoverygroup"))
        body["status"] = status
        found = decode_recovery_group(json.dumps(body).encode()).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION != SCHEMA_VERSION
        assert found.ledger.message.startswith("status is not a ledger of this version: ")

    def test_nor_is_one_of_a_version_that_never_was(self) -> None:
        found = decode_recovery_group(changed("recoverygroup", status={"schemaVersion": 0, "epoch": 9})).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION
        assert found.ledger.message == "status has schemaVersion 0, which never was"
