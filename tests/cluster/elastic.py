"""Helpers for tests of elastic groups: the admission policy, racks that come and go, and the size of a group."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from recovery import api_verbs
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, NODES_ANNOTATION
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOBS, NODES, RECOVERY_GROUPS, PatchKind
from tests.cluster import scene
from tests.cluster.acts import INDEX, set_room
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply

COMPONENT = "birth-settings"
ELASTIC: dict[str, Any] = {
    "backoff": {"initial": "0s"},
    "elastic": {"minNodes": 8, "maxNodes": 16, "shrinkAfter": "4s", "growBackAfter": "5s"},
}
"""Fields of a policy with which 16 ranks soon continue with as few as 8."""
ELASTIC_FOR_LONG = {**ELASTIC, "elastic": {**ELASTIC["elastic"], "growBackAfter": "1h"}}
"""The same, but a smaller group that has room does not grow within a test."""
AVOID_43 = {"name": "ecc", "when": {"onExitCodes": {"operator": "In", "values": [43]}}, "action": "AvoidNode"}
"""A rule: ranks that exit with 43 blame their node."""
RACK = (12, 13, 14, 15)
"""The ranks that the training loses with a rack."""
PREPARED = "torch-recoverable"


async def add_component(control_plane: ControlPlane) -> None:
    """Install the component, as an overlay that contains it does."""
    await scene.install_component(control_plane, COMPONENT)


async def remove_component(control_plane: ControlPlane) -> None:
    await scene.remove_component(control_plane, COMPONENT)


@asynccontextmanager
async def room_for(fleet: Fleet, job: Job, extra: int = 0) -> AsyncIterator[Sequence[str]]:
    """Only the job's own nodes and `extra` others take new pods. Yields the names of these others."""
    used = {pod["spec"]["nodeName"] for pod in await job.pods()}
    others = [name for name in fleet.nodes if name not in used]
    try:
        await set_room(fleet, others[extra:], room=False)
        yield others[:extra]
    finally:
        await set_room(fleet, fleet.nodes, room=True)


async def take_away(job: Job, ranks: Sequence[int]) -> list[str]:
    """Close the nodes of these ranks to new pods, and delete their pods. Returns the names of the nodes."""
    pods = {pod["metadata"]["annotations"][INDEX]: pod for pod in await job.pods()}
    nodes = [pods[str(rank)]["spec"]["nodeName"] for rank in ranks]
    await set_room(job.fleet, nodes, room=False)
    for rank in ranks:
        await job.delete_pod(pods[str(rank)]["metadata"]["name"])
    return nodes


async def child(job: Job) -> Object | None:
    """The child Job. None: there is none, or it is being deleted."""
    found = [each for each in await job.items(JOBS) if each["metadata"]["name"] == job.child]
    living = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    return living[0] if living else None


async def runs_with(job: Job, nodes: int, *, since_uid: str = "") -> Object:
    """Wait until a new child Job has `nodes` pods that are all Ready and get this number. Returns the Job."""
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                found = await child(job)
                if found is not None and found["metadata"]["uid"] != since_uid and await _is_whole(job, found, nodes):
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        ledger = json.dumps(await job.ledger(), indent=1)
        raise AssertionError(f"{job.training} does not run with {nodes} nodes; the ledger is {ledger}") from None


async def _is_whole(job: Job, found: Object, nodes: int) -> bool:
    spec = found["spec"]
    if (spec["parallelism"], spec["completions"]) != (nodes, nodes) or found["status"].get("ready") != nodes:
        return False
    pods = [pod for pod in await job.pods() if _owner(pod) == found["metadata"]["uid"]]
    told = {variable["value"] for pod in pods for variable in _variables(pod) if variable["name"] == "PET_NNODES"}
    assert told == {str(nodes)}, told
    return len(pods) == nodes


def _owner(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


def _variables(pod: Object) -> list[Object]:
    return [variable for container in pod["spec"]["containers"] for variable in container.get("env", [])]


async def labelled(job: Job) -> bool:
    """The RecoveryGroup has the label that marks it as one with birth settings."""
    [group] = await job.groups()
    return bool(group["metadata"].get("labels", {}).get(BIRTH_SETTINGS_LABEL) == "true")


async def until_unlabelled(job: Job) -> None:
    """Wait until the label is gone. It is removed in its own write, after the settings."""
    async with asyncio.timeout(GUARD_SECONDS):
        while await labelled(job):
            await asyncio.sleep(0.1)


async def until_room_is(seen: bool, job: Job) -> str:
    """Wait until the controller has seen that there is room for more nodes, or none. Returns since when; empty: none.

    `growBackAfter` counts from this time.
    """
    async with asyncio.timeout(GUARD_SECONDS):
        while bool(since := (await job.ledger())["elastic"].get("roomSince", "")) != seen:
            await asyncio.sleep(0.1)
    return str(since)


async def settings(job: Job) -> Object:
    """`status.birthSettings`. Empty: there are none."""
    found: Object = (await job.ledger()).get("birthSettings", {})
    return found


async def shrunk(job: Job, incidents: int = 1) -> list[str]:
    """Take the rack away, and wait until the group runs with twelve nodes. Returns the names of the rack's nodes.

    `incidents`: how many incidents have then closed.
    """
    before = await job.child_uid()
    rack = await take_away(job, RACK)
    await runs_with(job, 12, since_uid=before)
    await job.closed_incidents(incidents)
    return rack


def actions(incident: Object) -> list[str]:
    return [attempt["action"] for attempt in incident["attempts"]]


async def resize_child(job: Job, nodes: int) -> None:
    """Change the size of the child Job, as a user may."""
    change = {"spec": {"parallelism": nodes, "completions": nodes}}
    await api_verbs.patch(job.fleet.api, JOBS, job.child, change, kind=PatchKind.MERGE, namespace=job.namespace)


async def nodes_said(job: Job) -> set[str]:
    """The numbers of nodes in the pods' annotation."""
    return {pod["metadata"].get("annotations", {}).get(NODES_ANNOTATION, "") for pod in await job.pods()}


@asynccontextmanager
async def stale_group(job: Job) -> AsyncIterator[None]:
    """The labelled RecoveryGroup of an earlier job of the same name, which is not garbage-collected yet."""
    name = f"{job.name}-earlier"
    body = {
        "apiVersion": RECOVERY_GROUPS.api_version,
        "kind": RECOVERY_GROUPS.kind,
        "metadata": {"name": name, "labels": {BIRTH_SETTINGS_LABEL: "true"}},
        "spec": {"workloadRef": {"kind": "TrainJob", "name": job.name, "uid": "of-an-earlier-one"}, "group": job.name},
    }
    earlier = {
        "revision": 1,
        "jobSetUID": "of-an-earlier-one",
        "replicatedJob": "node",
        "since": "2026-11-24T00:00:00Z",
        "nodes": 3,
    }
    status = {"status": {"schemaVersion": SCHEMA_VERSION, "birthSettings": earlier}}
    await api_verbs.create(job.fleet.api, RECOVERY_GROUPS, body, namespace=job.namespace)
    await api_verbs.patch(
        job.fleet.api,
        RECOVERY_GROUPS,
        name,
        status,
        kind=PatchKind.MERGE,
        namespace=job.namespace,
        subresource="status",
    )
    try:
        yield
    finally:
        await api_verbs.delete(job.fleet.api, RECOVERY_GROUPS, name, namespace=job.namespace)


@asynccontextmanager
async def only_sixteen(control_plane: ControlPlane, namespace: str) -> AsyncIterator[None]:
    """A foreign admission policy that refuses Jobs of any other size in the namespace."""
    name = f"only-sixteen-{namespace[-6:]}"
    refusal = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
                ]
            },
            "validations": [{"expression": "object.spec.parallelism == 16", "message": "sixteen or nothing"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    }
    await apply(control_plane, None, refusal, binding)
    try:
        async with asyncio.timeout(GUARD_SECONDS):  # the API server notices the policy a little later
            while not await _refused(control_plane, namespace):
                await asyncio.sleep(0.1)
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            await control_plane.kubectl("delete", kind, name)


async def _refused(control_plane: ControlPlane, namespace: str) -> bool:
    """A Job of one pod is refused in a dry run."""
    try:
        await control_plane.kubectl("create", "job", "one", "--image=one", "--dry-run=server", "-n", namespace)
    except KubectlError as error:
        return "sixteen or nothing" in str(error)
    return False


async def node_of_rank(job: Job, rank: int) -> str:
    [pod] = [pod for pod in await job.pods() if pod["metadata"]["annotations"][INDEX] == str(rank)]
    return str(pod["spec"]["nodeName"])


async def takes_pods(fleet: Fleet, name: str) -> bool:
    """The node is neither cordoned nor tainted."""
    node = json.loads(await api_verbs.get(fleet.api, NODES, name))
    return not node["spec"].get("unschedulable") and not node["spec"].get("taints")
