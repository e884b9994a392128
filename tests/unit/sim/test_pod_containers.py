"""Pods of several containers: their phase, what a native sidecar does, and restart rules of single containers.

Source: Kubernetes 1.36 `pkg/kubelet/kubelet_pods.go` (getPhase), `pkg/kubelet/status/generate.go`, KEP-753, KEP-5307.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from recovery import api_verbs
from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import QUICK, Cluster, Obedient, obedient_cluster, pod

LEAVES_SECONDS = 2.0
"""How long a process of `Obedient` takes to leave after SIGTERM."""
NATIVE: Body = {"restartPolicy": "Always"}
"""What makes an init container a native sidecar."""


async def bind(
    c: Cluster[Obedient],
    *containers: str,
    init: tuple[tuple[str, Body], ...] = (),
    special: dict[str, Body] | None = None,
    volumes: Sequence[Body] = (),
    **details: Any,
) -> None:
    """Create a pod `p`. `init`: name and more fields of each init container. `special`: more fields by container."""
    body = pod("p", "node-0", containers=containers, **details)
    body["spec"]["volumes"] = list(volumes)
    body["spec"]["initContainers"] = [{"name": name, "image": "init:1", **more} for name, more in init]
    for container in body["spec"]["containers"]:
        container.update((special or {}).get(container["name"], {}))
    c.api.put(PODS, body)
    await c.pass_seconds(QUICK)


def states(c: Cluster[Obedient]) -> dict[str, str]:
    """What each container does: the only key of its `state`."""
    status = c.status("p")
    told = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    return {each["name"]: next(iter(each["state"])) for each in told}


def restarts(c: Cluster[Obedient], container: str) -> int:
    status = c.status("p")
    told = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    return next(int(each["restartCount"]) for each in told if each["name"] == container)


def ready(c: Cluster[Obedient]) -> tuple[str, str]:
    """Status and reason of the pod's Ready condition."""
    found = c.condition("p", "Ready")
    return found["status"], found.get("reason", "")


@virtual_time
async def test_a_pod_runs_while_any_of_its_containers_does() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", "shipper")
        c.kubelets.exit_container("p", 42, container="node")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"
        assert states(c) == {"node": "terminated", "shipper": "running"}
        assert ready(c) == ("False", "ContainersNotReady")
        c.kubelets.exit_container("p", 0, container="shipper")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Failed"


@virtual_time
async def test_a_native_sidecar_starts_before_the_containers_and_runs_beside_them() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), init_container_seconds=5.0)) as c:
        await bind(c, "node", init=(("proxy", NATIVE), ("fetch", {})))
        assert states(c) == {"proxy": "running", "fetch": "running", "node": "waiting"}
        assert c.phase("p") == "Pending"
        assert c.condition("p", "Initialized")["status"] == "False"
        await c.pass_seconds(5.0)
        assert states(c) == {"proxy": "running", "fetch": "terminated", "node": "running"}
        assert c.phase("p") == "Running"
        assert ready(c) == ("True", "")
        assert c.condition("p", "Initialized")["status"] == "True"


@virtual_time
async def test_a_native_sidecar_holds_up_the_end_of_its_pod_for_as_long_as_it_takes_to_leave() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", init=(("proxy", NATIVE),))
        c.kubelets.exit_container("p", 42, container="node")
        await c.pass_seconds(QUICK)
        assert (c.phase("p"), states(c)) == ("Running", {"proxy": "running", "node": "terminated"})
        await c.pass_seconds(LEAVES_SECONDS)
        assert (c.phase("p"), states(c)) == ("Failed", {"proxy": "terminated", "node": "terminated"})
        assert ready(c) == ("False", "PodFailed")
        assert restarts(c, "proxy") == 0


@virtual_time
async def test_a_native_sidecar_that_does_not_leave_is_killed_after_the_pods_grace() -> None:
    async with obedient_cluster(deaf=True) as c:
        await bind(c, "node", init=(("proxy", NATIVE),), grace_seconds=7)
        c.kubelets.exit_container("p", 0, container="node")
        await c.pass_seconds(6.9)
        assert c.phase("p") == "Running"
        await c.pass_seconds(0.3)
        assert c.phase("p") == "Succeeded"


@virtual_time
async def test_a_native_sidecar_restarts_whatever_the_pods_policy_and_the_pod_keeps_running() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", init=(("proxy", NATIVE),), restart_policy="Never")
        c.kubelets.exit_container("p", 1, container="proxy")
        await c.pass_seconds(QUICK)
        assert (c.phase("p"), states(c)["proxy"]) == ("Running", "terminated")
        assert ready(c) == ("False", "ContainersNotReady")
        assert c.condition("p", "Initialized")["status"] == "True"
        await c.pass_seconds(1.0)
        assert (c.phase("p"), restarts(c, "proxy")) == ("Running", 1)
        assert ready(c) == ("True", "")


@virtual_time
async def test_a_native_sidecar_that_waits_to_restart_does_not_hold_up_the_end() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", init=(("proxy", NATIVE),))
        for _ in range(2):
            c.kubelets.exit_container("p", 1, container="proxy")
            await c.pass_seconds(1.0)
        assert (states(c)["proxy"], restarts(c, "proxy")) == ("terminated", 1)
        c.kubelets.exit_container("p", 0, container="node")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Succeeded"
        await c.pass_seconds(60.0)
        assert restarts(c, "proxy") == 1


@virtual_time
async def test_native_sidecars_are_asked_to_leave_after_the_containers_the_last_one_first() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", init=(("proxy", NATIVE), ("mesh", NATIVE)))
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        for left in (("proxy", "mesh"), ("proxy",)):
            await c.pass_seconds(LEAVES_SECONDS + QUICK / 2)
            assert [each.container.name for each in c.workload.running] == list(left)
            # The kubelet reports no container's end before all have ended.
            assert states(c) == {"proxy": "running", "mesh": "running", "node": "running"}
        await c.pass_seconds(LEAVES_SECONDS)
        assert c.gone("p")


@virtual_time
async def test_native_sidecars_have_two_seconds_of_their_own_when_the_grace_is_over() -> None:
    """They get SIGTERM only then, all at once (`waitForTurn` in kuberuntime_termination_order.go)."""
    async with obedient_cluster(deaf=True) as c:
        await bind(c, "node", init=(("proxy", NATIVE), ("mesh", NATIVE)), grace_seconds=10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(9.9)
        assert len(c.workload.running) == 3
        await c.pass_seconds(2.0)
        assert [each.container.name for each in c.workload.running] == ["proxy", "mesh"]
        await c.pass_seconds(0.2)
        assert c.gone("p")


@virtual_time
async def test_a_delete_does_not_shorten_the_end_of_a_pod_that_ends_by_itself() -> None:
    """A kubelet does one thing at a time with a pod (pod_workers.go `podWorkerLoop`)."""
    async with obedient_cluster(deaf=True) as c:
        await bind(c, "node", init=(("proxy", NATIVE),), grace_seconds=30)
        c.kubelets.exit_container("p", 0, container="node")
        await c.pass_seconds(QUICK)
        await api_verbs.delete(c.api, PODS, "p", namespace="default", grace_seconds=3)
        await c.pass_seconds(29.0)
        assert len(c.workload.running) == 1
        await c.pass_seconds(1.0)
        assert c.gone("p")


@virtual_time
async def test_a_container_whose_image_is_nowhere_keeps_its_pod_pending_whatever_the_others_do() -> None:
    async with obedient_cluster() as c:
        c.kubelets.withhold_image("gone:1")
        await bind(c, "node", "shipper", special={"shipper": {"image": "gone:1"}})
        assert states(c) == {"node": "running", "shipper": "waiting"}
        assert c.status("p")["containerStatuses"][1]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        assert c.phase("p") == "Pending"
        c.kubelets.exit_container("p", 1, container="node")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Pending"
        c.kubelets.provide_image("gone:1")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"


@pytest.mark.parametrize(("mounted", "phase"), [("files", "Pending"), ("data", "Running"), (None, "Running")])
@virtual_time
async def test_a_container_waits_for_the_image_of_a_volume_that_it_mounts(mounted: str | None, phase: str) -> None:
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "files", "image": {"reference": "gone:1"}}]
    mounts = [{"name": mounted, "mountPath": "/files"}] if mounted is not None else []
    async with obedient_cluster() as c:
        c.kubelets.withhold_image("gone:1")
        await bind(c, "node", special={"node": {"volumeMounts": mounts}}, volumes=volumes)
        assert c.phase("p") == phase
        if phase == "Pending":
            waiting = c.status("p")["containerStatuses"][0]["state"]["waiting"]
            assert waiting == {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "gone:1"'}
        c.kubelets.provide_image("gone:1")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"


@virtual_time
async def test_a_container_with_a_policy_of_its_own_does_not_follow_the_pods() -> None:
    async with obedient_cluster() as c:
        await bind(c, "node", "shipper", restart_policy="Never", special={"shipper": {"restartPolicy": "Always"}})
        c.kubelets.exit_container("p", 1, container="shipper")
        await c.pass_seconds(1.0)
        assert (c.phase("p"), restarts(c, "shipper"), states(c)["shipper"]) == ("Running", 1, "running")


@virtual_time
async def test_a_restart_rule_that_names_the_exit_code_goes_before_every_policy() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    own: Body = {"restartPolicy": "Never", "restartPolicyRules": rules}
    async with obedient_cluster() as c:
        await bind(c, "node", restart_policy="Never", special={"node": own})
        c.kubelets.exit_container("p", 42)
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"
        await c.pass_seconds(1.0)
        assert restarts(c, "node") == 1
        c.kubelets.exit_container("p", 1)
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Failed"


@virtual_time
async def test_statuses_are_sorted_by_name_but_for_those_of_the_initialization() -> None:
    """Kubernetes 1.36 `pkg/kubelet/kubelet_pods.go`, convertToAPIContainerStatuses."""
    async with obedient_cluster() as c:
        await bind(c, "node", "helper", init=(("proxy", NATIVE), ("mesh", NATIVE)))
        assert list(states(c)) == ["proxy", "mesh", "helper", "node"]


@virtual_time
async def test_an_init_container_that_fails_ends_a_pod_that_never_restarts_and_its_sidecars() -> None:
    async with obedient_cluster() as c:
        c.kubelets.crash_loop("p", QUICK, 2, container="fetch")
        await bind(c, "node", init=(("proxy", NATIVE), ("fetch", {})), restart_policy="Never")
        await c.pass_seconds(QUICK)
        assert (c.phase("p"), ready(c)) == ("Pending", ("False", "PodFailed"))
        await c.pass_seconds(LEAVES_SECONDS)
        assert (c.phase("p"), ready(c)) == ("Failed", ("False", "PodFailed"))
        assert states(c) == {"proxy": "terminated", "fetch": "terminated", "node": "waiting"}
        assert c.workload.started == 2


@virtual_time
async def test_an_init_container_that_fails_is_restarted_until_it_succeeds() -> None:
    async with obedient_cluster() as c:
        c.kubelets.crash_loop("p", QUICK, 2, container="fetch")
        await bind(c, "node", init=(("fetch", {}),), restart_policy="Always")
        await c.pass_seconds(1.0)
        assert (c.phase("p"), restarts(c, "fetch"), states(c)["node"]) == ("Pending", 1, "waiting")
        c.kubelets.end_crash_loop("p")
        await c.pass_seconds(11.0)
        assert (c.phase("p"), restarts(c, "fetch"), states(c)["node"]) == ("Running", 2, "running")
