"""What the controller keeps of pods and nodes: real objects in, facts out."""

import json
from datetime import datetime

import msgspec
import pytest

from recovery.core.model.demand import Demand, LabelRequirement, Toleration
from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, GroupKey, NodeFacts, PodFacts, Taint
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.kube.projections.pods import decode_pod
from tests.unit.kube.projected import JOB_UID, at, changed
from tests.unit.kube.testing import fixture

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
            containers=(ContainerFacts(name="node", ready=True, running_since=at("09:27:54"), image="sha256:1"),),
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

    @pytest.mark.parametrize(("written", "read"), [(1000, 1000), (None, 0)])
    def test_the_priority_is_what_the_api_server_has_made_of_its_class(self, written: int | None, read: int) -> None:
        assert decode_pod(changed("pod_pending", spec__priority=written)).value.facts.priority == read

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

    @pytest.mark.parametrize(
        ("image_id", "digest"),
        [
            ("docker.io/library/train@sha256:1a2b", "sha256:1a2b"),
            ("docker-pullable://train@sha256:1a2b", "sha256:1a2b"),
            ("sha256:1a2b", "sha256:1a2b"),
            ("", ""),
        ],
    )
    def test_the_digest_of_an_image_is_kept_whatever_its_repository(self, image_id: str, digest: str) -> None:
        (status,) = json.loads(fixture("pod_running"))["status"]["containerStatuses"]
        raw = changed("pod_running", status__containerStatuses=[status | {"imageID": image_id}])
        assert decode_pod(raw).value.facts.containers[0].image == digest

    def test_devices_that_its_kubelet_calls_unhealthy(self) -> None:
        """KEP-4680; Unknown is the state after a device plugin has stopped."""
        gpus = [{"resourceID": "GPU-1", "health": "Healthy"}, {"resourceID": "GPU-2", "health": "Unhealthy"}]
        claimed = [{"resourceID": "gpu.example.com/pool/0", "health": "Unhealthy"}, {"resourceID": "x"}]
        status = [{"name": "nvidia.com/gpu", "resources": gpus}, {"name": "claim:gpu/req-0", "resources": claimed}]
        status.append({"name": "nvidia.com/nic", "resources": [{"resourceID": "n-1", "health": "Unknown"}]})
        running = {"name": "node", "allocatedResourcesStatus": status}
        (container,) = decode_pod(changed("pod_pending", status__containerStatuses=[running])).value.facts.containers
        assert container.unhealthy_devices == ("nvidia.com/gpu: GPU-2", "claim:gpu/req-0: gpu.example.com/pool/0")

    def test_what_a_driver_says_of_an_unhealthy_device_is_kept_and_bounded(self) -> None:
        """Kubernetes 1.36, gate ResourceHealthStatusMessage. The message is null if the driver gives none."""
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
        "request_",
        [
            "required-topology",
            "preferred-topology",
            "unconstrained-topology",
            "slice-required-topology",
            "slice-required-topology-constraints",
        ],
    )
    def test_the_node_that_kueue_has_chosen_by_topology_is_no_demand(self, request_: str) -> None:
        """Kueue would choose another node. A rack that it has chosen stays: Kueue replaces no rack of a running job."""
        selector = {"kubernetes.io/hostname": "gpu-3", "rack": "1", "gpu": "h100"}
        annotations = {f"kueue.x-k8s.io/podset-{request_}": "true"}
        raw = changed("pod_running", metadata__annotations=annotations, spec__nodeSelector=selector)
        assert decode_pod(raw).value.facts.demand.selector == (("gpu", "h100"), ("rack", "1"))

    def test_the_node_that_a_user_has_chosen_is_a_demand(self) -> None:
        """Neither the queue nor the size of slices makes Kueue place pods by topology."""
        annotations = {"kueue.x-k8s.io/podset-slice-size": "2", "kueue.x-k8s.io/workload": "w"}
        selector = {"kubernetes.io/hostname": "gpu-3"}
        raw = changed("pod_running", metadata__annotations=annotations, spec__nodeSelector=selector)
        assert decode_pod(raw).value.facts.demand.selector == (("kubernetes.io/hostname", "gpu-3"),)

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
        """Preferences and names of nodes are ignored."""
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
            # As the kubelet reports it: the claim of the first container has two GPUs and a network card.
            ([{"claims": [{"name": "gpus"}]}], {"claim:gpus": [CDI_GPU, f"{CDI_GPU}-b", "dra.net/node-1/eth1"]}, 2),
            ([{"claims": [{"name": "gpus", "request": "a"}]}], {"claim:gpus/a": ["gpu.amd.com/gpu-0001/0"]}, 1),
            ([{"claims": [{"name": "gaudi"}]}], {"claim:gaudi": ["gaudi.intel.com/node-1/card0"]}, 1),
            ([{"claims": [{"name": "nics"}]}], {"claim:nics": ["dra.net/gpu/eth1"]}, 0),
            # Before its report, as many as there are claims.
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
        """Such as a compute domain or a network card."""
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
