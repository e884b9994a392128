"""The controller in the cluster as shipped: its user and restrictions, what it refuses, and who leads after a loss."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.webhooks import config
from tests.real_nodes.installation import LEASE, SYSTEM, Installation

NO_CAPABILITIES = "0000000000000000"
FILTERED = "2"
"""Value of the field Seccomp in /proc: system calls are filtered."""


async def test_both_replicas_run_without_privileges_on_nodes_of_their_own(installation: Installation) -> None:
    pods = await installation.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        process = installation.processes_of(pod)[0]
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
        assert set(status["Uid"].split()) == {"65532"}
        assert status["CapEff"] == status["CapBnd"] == NO_CAPABILITIES
        assert (status["Seccomp"], status["NoNewPrivs"]) == (FILTERED, "1")
        mounts = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
        assert next(mount[5] for mount in mounts if mount[4] == "/").split(",")[0] == "ro"


async def test_the_webhooks_are_asked_through_the_service(installation: Installation) -> None:
    assert "pauses all recoveries" in await said_of_a_pause(installation)


async def said_of_a_pause(installation: Installation) -> str:
    """The API server's answer when someone tries to pause the controller. Only our webhook answers with these words.

    Empty: the request was admitted without a review, as happens while no replica serves the webhook.
    """
    try:
        await installation.cluster.control_plane.kubectl(
            "apply",
            "--server-side",
            "--dry-run=server",
            "--warnings-as-errors",
            "--filename=-",
            stdin=json.dumps(config(paused=True)),
        )
    except KubectlError as error:
        return error.stderr
    return ""


async def test_both_replicas_serve_the_webhooks(installation: Installation) -> None:
    """test_monitors checks that Prometheus finds both."""
    kubectl = installation.cluster.control_plane.kubectl
    slices = json.loads(await kubectl("get", "endpointslices", "-n", SYSTEM, "-o", "json"))["items"]
    ready = [
        (slice_["metadata"]["labels"]["kubernetes.io/service-name"], port["port"], endpoint["conditions"]["ready"])
        for slice_ in slices
        for port in slice_["ports"]
        for endpoint in slice_["endpoints"]
    ]
    assert ready.count(("recovery-admission", 9443, True)) == 2


async def test_a_leader_whose_pod_is_deleted_gives_the_lease_up(installation: Installation) -> None:
    former = await installation.leader()
    pod = await installation.leading_pod()
    before = await transitions(installation)
    await installation.cluster.control_plane.kubectl(
        "delete", "pod", pod["metadata"]["name"], "-n", SYSTEM, "--wait=false"
    )
    await installation.next_leader(former)
    assert await transitions(installation) == before + 1
    await installation.whole_again()


async def test_a_killed_leader_stands_again_under_another_identity(installation: Installation) -> None:
    former = await installation.leader()
    os.kill(installation.processes_of(await installation.leading_pod())[0], signal.SIGKILL)
    await installation.next_leader(former)
    await installation.whole_again()


@pytest.mark.parametrize("silent", ["without power", "cut off"])
async def test_when_the_leader_s_node_is_lost_the_other_leads_and_both_do_their_part_once_it_is_back(
    installation: Installation, silent: str
) -> None:
    former, node = await installation.leader(), await installation.leading_node()
    (node.lose_power if silent == "without power" else node.unplug)()
    try:
        await installation.next_leader(former)
        await installation.cluster.not_ready(node)
    finally:
        (node.start if silent == "without power" else node.plug_in)()
        await installation.cluster.ready(node)
    await installation.whole_again()
    assert "pauses all recoveries" in await said_of_a_pause(installation)


async def transitions(installation: Installation) -> int:
    """How often the Lease has changed hands."""
    printed = await installation.cluster.control_plane.kubectl(
        "get", "lease", LEASE, "-n", SYSTEM, "-o", "jsonpath={.spec.leaseTransitions}"
    )
    return int(printed or 0)
