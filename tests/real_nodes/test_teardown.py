"""How long an old incarnation may take to go: kubelets keep to the first grace that they see."""

import json
import os
import secrets
import signal
from typing import Any

import pytest

from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.images import BUSYBOX_IMAGE
from tests.cluster.scene import apply, policy
from tests.real_nodes.installation import Installation
from tests.real_nodes.pods import eventually

pytestmark = pytest.mark.usefixtures("token_reader")

DEAF = "trap '' TERM; while true; do sleep 0.2; done"
OWN_GRACE_SECONDS = 86_400
RANKS = 3


def job_set() -> dict[str, Any]:
    container = {
        "name": "node",
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", DEAF],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": OWN_GRACE_SECONDS,
        "containers": [container],
    }
    job = {"parallelism": RANKS, "completions": RANKS, "backoffLimit": 1, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "deaf"},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]},
    }


def kill(installation: Installation, pod: dict[str, Any]) -> None:
    """Kill the container's first process. The kernel then kills all others in its PID namespace."""
    node = next(each for each in installation.cluster.nodes if each.name == pod["spec"]["nodeName"])
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    os.kill(node.processes_of(pod["metadata"]["uid"], container)[0], signal.SIGKILL)


async def test_hung_ranks_that_give_themselves_a_day_are_gone_after_the_grace_of_the_policy(
    installation: Installation,
) -> None:
    """The Job, which survives one failed pod but not a second, must not fail because of the pods deleted before it."""
    cluster, namespace = installation.cluster, f"deaf-{secrets.token_hex(3)}"
    kubectl = cluster.control_plane.kubectl
    await kubectl("create", "namespace", namespace)
    await apply(cluster.control_plane, namespace, policy(teardown={"graceSeconds": 1}), job_set())

    async def ready_pods() -> list[dict[str, Any]]:
        pods = json.loads(await kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return [
            pod
            for pod in pods
            for each in pod["status"].get("conditions", [])
            if (each["type"], each["status"]) == ("Ready", "True") and "deletionTimestamp" not in pod["metadata"]
        ]

    async def all_ready() -> bool:
        return len(await ready_pods()) == RANKS

    await eventually("all ranks run", all_ready)
    old = await ready_pods()
    kill(installation, old[0])

    async def recovered() -> bool:
        found = json.loads(await kubectl("get", "recoverygroups", "-n", namespace, "-o", "json"))["items"]
        history = [each for group in found for each in group.get("status", {}).get("history", [])]
        return [each["outcome"] for each in history] == ["Recovered"] and await all_ready()

    await eventually("a recovery, once", recovered)
    new = await ready_pods()
    assert not {pod["metadata"]["uid"] for pod in old} & {pod["metadata"]["uid"] for pod in new}
    await kubectl("delete", "jobset", "--all", "-n", namespace, "--wait=false")
    for pod in new:
        kill(installation, pod)
    await kubectl("wait", "--for=delete", "pod", "--all", "-n", namespace, f"--timeout={GUARD_SECONDS:.0f}s")
