"""`recovery chaos` on a real API server: the experiments of examples/chaos, and who may run one.

The commands run as a person runs them. The nodes are modelled, the controller is the shipped one with its own rights.
"""

import asyncio
import json
import signal
from pathlib import Path

import pytest
import yaml

from recovery.core.drill.node_marks import CORDON_MANAGER
from recovery.core.model.drill import NODE_MARK_ANNOTATION
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.drills import EXAMPLES, Drills, nodes
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Object, apply

pytestmark = pytest.mark.usefixtures("no_complaints")
JOINED = "torch-recoverable-joined"
RANKS = 8
ENOUGH_FOR_ONE_PERCENT = 100
CENTRAL = {"one-pod", "cordon-and-evict-rank-0", "kill-while-they-meet"}
"""CI runs these. The others differ from them in nothing that only a real API server shows."""
KILL: Object = {"kind": "PodChaos", "action": "pod-kill", "mode": "one"}
ON_FAST_NODES: dict[str, Object] = {"two-faults-5s-apart": {"chaos": [KILL, KILL | {"at": "500ms"}]}}
"""A group of modelled pods is back within two seconds. The second fault must hit it before that."""
VERDICTS = {path.stem: "Passed" for path in sorted(EXAMPLES.glob("*.yaml"))}


@pytest.fixture
async def drills(
    installed: ControlPlane, training: StartsTraining, namespace: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Drills:
    """Of a job that trains, in a namespace that allows drills."""
    ranks = getattr(request, "param", RANKS)
    await installed.kubectl("label", "namespace", namespace, "recovery.trainjob.dev/drills=allowed")
    job = await training(runtime=JOINED, ranks=ranks, gpus=1)
    return Drills(installed, job.namespace, job.name, tmp_path)


@pytest.mark.parametrize(
    ("name", "drills"),
    [
        pytest.param(
            name,
            ENOUGH_FOR_ONE_PERCENT if name == "one-percent" else RANKS,
            id=name,
            marks=pytest.mark.central if name in CENTRAL else (),
        )
        for name in VERDICTS
    ],
    indirect=["drills"],
)
async def test_an_example(name: str, drills: Drills, controller: StartsController, installed: ControlPlane) -> None:
    before = await nodes(installed)
    async with controller():
        ended, said = await drills.judged("modelled nodes", name, **ON_FAST_NODES.get(name, {}))
    print(name, json.dumps(said.get("cases"), indent=1))
    assert (said["verdict"], ended.exit_code) == (VERDICTS[name], 0), ended.err + ended.out
    assert await nodes(installed) == before
    [drill] = await drills.objects("recoverydrills")
    assert drill["status"]["verdict"] == VERDICTS[name]
    assert drill["spec"]["end"]["reason"] == "DrillDone"
    for group in await drills.objects("recoverygroups"):
        assert not group["status"].get("budget", {}).get("charges"), "a drill costs no budget"
    for incident in await drills.objects("recoveryincidents"):
        assert incident["spec"]["drill"]["uid"] == drill["metadata"]["uid"]


@pytest.mark.central
async def test_ctrl_c_takes_everything_back(
    drills: Drills, controller: StartsController, installed: ControlPlane
) -> None:
    before = await nodes(installed)
    async with controller(), drills.running("health-agent-mark") as process:
        async with asyncio.timeout(GUARD_SECONDS):
            while (await nodes(installed)) == before:
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(GUARD_SECONDS):
            assert await process.wait() == 130
        assert await nodes(installed) == before
        [drill] = await drills.objects("recoverydrills")
        assert drill["spec"]["end"]["reason"] == "DrillInterrupted"


@pytest.mark.central
async def test_after_a_client_that_was_killed_abort_takes_everything_back(
    drills: Drills, controller: StartsController, installed: ControlPlane
) -> None:
    before = await nodes(installed)
    async with controller(), drills.running("cordon-and-evict-rank-0") as process:
        async with asyncio.timeout(GUARD_SECONDS):
            while not any(each["unschedulable"] for each in (await nodes(installed)).values()):
                await asyncio.sleep(0.05)
        process.kill()
        await process.wait()
        [drill] = await drills.objects("recoverydrills")
        ended = await drills.command("abort", drill["metadata"]["name"])
        assert ended.exit_code == 0, ended.err
        assert await nodes(installed) == before
        again = await drills.command("abort", "--all")
        assert again.exit_code == 0, again.err


@pytest.mark.central
async def test_a_cordon_that_another_client_sets_meanwhile_stays(
    drills: Drills, controller: StartsController, installed: ControlPlane
) -> None:
    async with controller(), drills.running("cordon-and-evict-rank-0") as process:
        async with asyncio.timeout(GUARD_SECONDS):
            while not (marked := [name for name, each in (await nodes(installed)).items() if each["mark"]]):
                await asyncio.sleep(0.05)
        process.kill()
        await process.wait()
        await installed.kubectl("uncordon", marked[0])
        await installed.kubectl("cordon", marked[0])
        ended = await drills.command("abort", "--all")
        assert ended.exit_code == 0, ended.err
        node = (await nodes(installed))[marked[0]]
        assert (node["unschedulable"], node["mark"]) == (True, None)
        await installed.kubectl("uncordon", marked[0])


FORGED_MARK = json.dumps(
    {"namespace": "default", "drill": "d", "uid": "u", "expiresAt": "2026-01-01T00:00:00Z", "cordon": True}
)


@pytest.mark.central
async def test_who_has_only_edit_can_neither_run_a_drill_nor_have_the_controller_change_a_node(
    drills: Drills, controller: StartsController, installed: ControlPlane, fleet: Fleet, namespace: str
) -> None:
    node = fleet.nodes[-1]
    await installed.kubectl("create", "serviceaccount", "editor", "-n", namespace)
    bound = ("create", "rolebinding", "editor", "--clusterrole=edit", f"--serviceaccount={namespace}:editor")
    await installed.kubectl(*bound, "-n", namespace)
    editor = f"--as=system:serviceaccount:{namespace}:editor"
    await installed.kubectl("cordon", node)
    async with controller():
        drill = await _drill_of_an_administrator(drills, installed)
        forbidden = {
            "a drill of its own": ("create", "-f", _file(drills, "forged", await _like(drills, drill))),
            "more pods in a drill": _patch("recoverydrill", drill, {"spec": {"pods": []}}),
            "a verdict": (*_patch("recoverydrill", drill, {"status": {"named": 9}}), "--subresource=status"),
            "the end of a drill": ("delete", "recoverydrill", drill),
            "a ledger": ("create", "-f", _file(drills, "ledger", _ledger(drills, drill))),
            "a mark on a node": ("annotate", "node", node, f"{NODE_MARK_ANNOTATION}={FORGED_MARK}"),
        }
        refused = {
            what: await _refused(installed, *arguments, "-n", namespace, editor)
            for what, arguments in forbidden.items()
        }
        assert all(refused.values()), refused
        # What the role may write, the controller does not read as a drill.
        pod = (await drills.objects("pods"))[0]["metadata"]["name"]
        said = f"{NODE_MARK_ANNOTATION}={FORGED_MARK}"
        await installed.kubectl("annotate", "pod", pod, said, "-n", namespace, editor)
        await asyncio.sleep(1)
        await installed.kubectl("delete", "pod", pod, "-n", namespace, editor, "--wait=false")
        incident = await _recorded(drills)
    assert "drill" not in incident["spec"]
    assert incident["spec"].get("charged") is True
    found = (await nodes(installed))[node]
    assert (found["unschedulable"], found["mark"]) == (True, None), CORDON_MANAGER
    await installed.kubectl("uncordon", node)


async def _refused(control_plane: ControlPlane, *arguments: str) -> bool:
    """Whether the API server has forbidden it. Another failure is none of a right."""
    try:
        await control_plane.kubectl(*arguments)
    except KubectlError as error:
        return "cannot" in str(error) or "orbidden" in str(error)
    return False


def _patch(kind: str, name: str, body: Object) -> tuple[str, ...]:
    return ("patch", kind, name, "--type=merge", "-p", json.dumps(body))


def _file(drills: Drills, name: str, body: Object) -> str:
    path = drills.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(body))
    return str(path)


async def _like(drills: Drills, drill: str) -> Object:
    """That drill under another name."""
    [found] = [each for each in await drills.objects("recoverydrills") if each["metadata"]["name"] == drill]
    return {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "forged"}}


def _ledger(drills: Drills, uid: str) -> Object:
    spec = {"workloadRef": {"kind": "TrainJob", "name": drills.job, "uid": uid}, "group": drills.job}
    head = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryGroup", "metadata": {"name": "forged"}}
    return head | {"spec": spec}


async def _drill_of_an_administrator(drills: Drills, control_plane: ControlPlane) -> str:
    """A drill that has ended, and names a pod that is gone."""
    [job] = await drills.objects("trainjobs")
    spec = {
        "workloadRef": {"kind": "TrainJob", "name": drills.job, "uid": job["metadata"]["uid"]},
        "experiment": "of-an-administrator",
        "expiresAt": "2026-01-01T00:00:00Z",
    }
    body = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryDrill", "metadata": {"name": "theirs"}}
    await apply(control_plane, drills.namespace, body | {"spec": spec})
    return "theirs"


async def _recorded(drills: Drills) -> Object:
    async with asyncio.timeout(GUARD_SECONDS):
        while not (found := await drills.objects("recoveryincidents")):
            await asyncio.sleep(0.2)
    return found[0]
