"""Health agents, which cordon and taint nodes as the controller does. They cannot see who else relies on a cordon."""

import asyncio
from contextlib import suppress

import pytest

from recovery import api_verbs
from recovery.core.model.annotations import NVSENTINEL_CORDON_ANNOTATION, QUARANTINE_ANNOTATION, STATE_TAINTS
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.ports import NODES, ConflictError, PatchKind
from tests.cluster.acts import second_is_over
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Object
from tests.cluster.test_policies import GPU_CONDITION, as_it_was, get_node, quarantined, say_of, until_free
from tests.cluster.test_runbooks import with_config

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]

AGENT_TAINT = {"key": "AggregatedNodeHealth", "value": "False", "effect": "NoSchedule"}
REPLACE = {
    "name": "bad-gpu",
    "when": {"onNodeConditions": [{"type": GPU_CONDITION, "status": "True"}]},
    "action": "ReplaceNode",
}


@pytest.mark.parametrize("cordon", [False, True], ids=["by the agent", "by the quarantine"])
async def test_a_node_that_an_agent_holds_stays_cordoned_after_our_release(
    installed: ControlPlane, training: StartsTraining, controller: StartsController, fleet: Fleet, cordon: bool
) -> None:
    """NVSentinel reads an uncordon by another client as that of a person, and cancels its repair."""
    job = await training(runtime="torch-recoverable", ranks=2, rules=[REPLACE])
    node = (await job.pods())[0]["spec"]["nodeName"]
    limits = {"maxNodes": 1, "cordon": cordon}
    async with with_config(installed, allow={"cordon": True}, quarantine=limits), controller():
        try:
            await second_is_over()  # a fault of the second in which the pods were created counts as older than they
            await say_of(fleet, node, GPU_CONDITION, "True")
            await job.closed_incidents(1)
            # The taint may follow the restart: while a node changes, its patch meets conflicts and is sent again.
            body = await until_tainted(fleet, node)
            assert bool(body["spec"].get("unschedulable")) is cordon

            await hold(fleet, node)
            await say_of(fleet, node, GPU_CONDITION, "False")
            async with asyncio.timeout(GUARD_SECONDS):
                while await quarantined(installed):
                    await asyncio.sleep(0.1)
            body = await get_node(fleet, node)
            assert (keys(body), body["spec"].get("unschedulable")) == ([AGENT_TAINT["key"]], True)
            assert QUARANTINE_ANNOTATION not in body["metadata"]["annotations"]
        finally:
            await as_it_was(fleet, node)
            await let_in(fleet, node)
        await until_free(fleet, node)


def keys(node: Object) -> list[str]:
    """The taints that clients have set, without those for the node's state."""
    return [each["key"] for each in node["spec"].get("taints", []) if not each["key"].startswith(STATE_TAINTS)]


async def until_tainted(fleet: Fleet, name: str) -> Object:
    async with asyncio.timeout(GUARD_SECONDS):
        while QUARANTINE_TAINT not in keys(node := await get_node(fleet, name)):
            await asyncio.sleep(0.1)
    return node


async def hold(fleet: Fleet, name: str) -> None:
    """Set the marks of NVSentinel: cordon, taint and annotation."""
    await mark(fleet, name, [AGENT_TAINT], cordoned=True)


async def let_in(fleet: Fleet, name: str) -> None:
    """Remove them, as after the repair."""
    await mark(fleet, name, [], cordoned=None)


async def mark(fleet: Fleet, name: str, ours: list[Object], *, cordoned: bool | None) -> None:
    """Taints of others stay, even those that change between read and patch."""
    held = "True" if cordoned else None
    while True:
        found = await get_node(fleet, name)
        taints = [each for each in found["spec"].get("taints", []) if each != AGENT_TAINT] + ours
        version = found["metadata"]["resourceVersion"]
        patch = {
            "spec": {"taints": taints, "unschedulable": cordoned},
            "metadata": {"resourceVersion": version, "annotations": {NVSENTINEL_CORDON_ANNOTATION: held}},
        }
        with suppress(ConflictError):
            await api_verbs.patch(fleet.api, NODES, name, patch, kind=PatchKind.MERGE)
            return
