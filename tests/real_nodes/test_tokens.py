"""The kubelet replaces the token of a replica while its process runs, and the old token is refused.

A projected token lives 600 s or more, and neither the kubelet nor the API server has a setting for less;
test_token_rotation waits that long. Here the old tokens become invalid at once, because their ServiceAccount is deleted
and created again with another UID. A kubelet that starts has no cached tokens. It requests new ones and writes them
into the volume of the running pod.
"""

import json
from typing import Any

from tests.cluster.scene import apply, policy
from tests.real_nodes.installation import LEASE, SYSTEM, Installation
from tests.real_nodes.pods import eventually
from tests.real_nodes.tokens import is_accepted, token_of

ACCOUNT = "recovery-controller"


async def test_replicas_whose_tokens_are_refused_go_on_with_those_that_their_kubelets_bring(
    installation: Installation,
) -> None:
    cluster = installation.cluster
    await installation.whole_again()  # the tests before this one take nodes and kubelets down
    pods = await installation.pods()
    processes = [installation.processes_of(pod)[0] for pod in pods]
    old = [token_of(process) for process in processes]
    assert [await is_accepted(cluster.control_plane, token) for token in old] == [True, True]

    await recreate_account(installation)

    async def old_ones_are_refused() -> bool:
        return not any([await is_accepted(cluster.control_plane, token) for token in old])

    await eventually("the old tokens are refused", old_ones_are_refused)
    for node in cluster.nodes:
        if node.name in {pod["spec"]["nodeName"] for pod in pods}:
            node.kill_kubelet()
            node.start_kubelet()

    async def new_ones_are_there() -> bool:
        new = [token_of(process) for process in processes]
        return not set(new) & set(old) and all([await is_accepted(cluster.control_plane, token) for token in new])

    await eventually("the kubelets have brought other tokens", new_ones_are_there)
    before = await renewed_at(installation)

    async def leads_again() -> bool:
        return await renewed_at(installation) > before

    await eventually("a leader renews the Lease", leads_again)
    await watches_and_writes(installation)
    for node in cluster.nodes:
        await cluster.ready(node)
    await installation.whole_again()
    assert [installation.processes_of(pod)[0] for pod in await installation.pods()] == processes


async def recreate_account(installation: Installation) -> None:
    """The new account has the same name, labels and permissions."""
    kubectl = installation.cluster.control_plane.kubectl
    account: dict[str, Any] = json.loads(await kubectl("get", "serviceaccount", ACCOUNT, "-n", SYSTEM, "-o", "json"))
    for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        account["metadata"].pop(name, None)
    await kubectl("delete", "serviceaccount", ACCOUNT, "-n", SYSTEM)
    await kubectl("create", "-f", "-", stdin=json.dumps(account))


async def renewed_at(installation: Installation) -> str:
    """The times have one format, so they sort in order of time."""
    return await installation.cluster.control_plane.kubectl(
        "get", "lease", LEASE, "-n", SYSTEM, "-o", "jsonpath={.spec.renewTime}"
    )


async def watches_and_writes(installation: Installation) -> None:
    """Wait until the leader has reported that it knows a new policy."""
    control_plane = installation.cluster.control_plane
    await control_plane.kubectl("create", "namespace", "after-tokens")
    await apply(control_plane, "after-tokens", policy())

    async def is_known() -> bool:
        printed = await control_plane.kubectl("get", "recoverypolicies", "-n", "after-tokens", "-o", "json")
        return all("status" in each for each in json.loads(printed)["items"])

    await eventually("the policy has a status", is_known)
    await control_plane.kubectl("delete", "namespace", "after-tokens", "--wait=false")
