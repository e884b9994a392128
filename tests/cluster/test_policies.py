"""The files in policies/ on a real control plane: they are accepted as written, and do what their comments say.

A job gets its policy as users do it: the file is applied to the namespace, and the job names it by annotation.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
import yaml

from recovery import api_verbs
from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.ports import JOB_SETS, NODES, PatchKind
from tests.cluster.acts import annotate, evict, incidents_of, until_condition
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, recovery
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object, apply, until
from tests.cluster.verdict import remember

pytestmark = pytest.mark.central

POLICIES = REPOSITORY / "policies"
PERMISSIONS = POLICIES / "permissions"
EXAMPLES = REPOSITORY / "examples" / "training"
CHOSEN = "recovery.trainjob.dev/policy"
GPU_CONDITION = "GpuMemWatch"
TRACEBACK = "Traceback (most recent call last):\nTypeError: forward() missing 1 required positional argument"
QUICK = "torch-quick"
RANKS = 4

quietly = pytest.mark.usefixtures("no_complaints", "quick_runtime")


class Grants(Protocol):
    """The type of the fixture `grant`. It applies the permissions of a policy. No RecoveryConfig is left afterwards."""

    async def __call__(self, policy: str) -> None: ...


@pytest_asyncio.fixture(loop_scope="session")
async def grant(installed: ControlPlane) -> AsyncIterator[Grants]:
    async def give(policy: str) -> None:
        await installed.kubectl("apply", "--server-side", "-f", str(PERMISSIONS / f"{policy}.yaml"))

    yield give
    await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quick_runtime(installed: ControlPlane) -> AsyncIterator[None]:
    """The prepared runtime with a grace of 1 s, because the shipped policies give hung ranks their whole grace."""
    body = yaml.safe_load((POLICIES / "runtime-prepared.yaml").read_text())
    body["metadata"]["name"] = QUICK
    [replicated] = body["spec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    await apply(installed, None, body)
    yield
    await installed.kubectl("delete", "clustertrainingruntime", QUICK, "--wait=false")


async def under(policy: str, training: StartsTraining, installed: ControlPlane) -> Job:
    """Start a training under that shipped policy."""
    job = await training(runtime=QUICK, ranks=RANKS, with_policy=False)
    await installed.kubectl(
        *("apply", "--server-side", "-n", job.namespace, "-f", str(POLICIES / f"{policy}.yaml")),
    )
    await annotate(job, CHOSEN, policy)
    return job


def shipped() -> list[Path]:
    return sorted((*POLICIES.glob("*.yaml"), *PERMISSIONS.glob("*.yaml")))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: str(path.relative_to(POLICIES)))
async def test_the_api_server_takes_it_as_it_is_written(installed: ControlPlane, namespace: str, path: Path) -> None:
    """Nothing is refused, and no field is pruned."""
    text = path.read_text()
    written = yaml.safe_load(text)
    where = ("-n", namespace) if written["kind"] == "RecoveryPolicy" else ()
    dry = ("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-o", "json", "-f-")
    kept = json.loads(await installed.kubectl(*dry, *where, stdin=text))
    assert_holds(kept["spec"], written["spec"], "spec")


def assert_holds(kept: Any, written: Any, path: str) -> None:
    """Everything that was written is there. The API server may add its defaults."""
    match written:
        case dict():
            for key, value in written.items():
                assert key in kept, f"{path}.{key} was pruned"
                assert_holds(kept[key], value, f"{path}.{key}")
        case list():
            assert len(kept) == len(written), path
            for number, (one, other) in enumerate(zip(kept, written, strict=True)):
                assert_holds(one, other, f"{path}[{number}]")
        case _:
            assert kept == written, path


async def test_the_example_trainings_are_taken_and_trainer_makes_what_they_ask_for(
    installed: ControlPlane, namespace: str
) -> None:
    """examples/training, applied as docs/training.md says. A unit test shows that lint finds nothing in it."""
    await installed.kubectl("apply", "-n", namespace, "-k", str(EXAMPLES))
    for name in ("ddp", "fsdp"):
        job_set = await job_set_of(f"example-{name}", installed, namespace)
        [replicated] = job_set["spec"]["replicatedJobs"]
        pod = replicated["template"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {"checkpoints": "/checkpoints", "scripts": "/scripts", "shm": "/dev/shm"}
        assert sorted(volume["name"] for volume in pod["volumes"]) == ["checkpoints", "scripts", "shm"]
        assert (container["command"][-1], container["args"][0]) == (
            f"/scripts/{name}.py",
            f"--checkpoint-dir=/checkpoints/{name}",
        )
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert (variables["PET_NNODES"], variables["PET_NPROC_PER_NODE"]) == ("2", "8")
        assert container["readinessProbe"]["exec"]["command"][-1] == "/tmp/recovery-joined"
        assert replicated["template"]["spec"]["backoffLimit"] == 1000
    scripts = json.loads(await installed.kubectl("get", "configmap", "example-training", "-n", namespace, "-o", "json"))
    assert (scripts["immutable"], sorted(scripts["data"])) == (True, ["ddp.py", "fsdp.py"])


async def job_set_of(name: str, installed: ControlPlane, namespace: str) -> Object:
    """Wait until Trainer has created the JobSet; returns it."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            found = await installed.kubectl("get", "jobset", name, "-n", namespace, "-o", "json", "--ignore-not-found")
            if found:
                job_set: Object = json.loads(found)
                return job_set
            await asyncio.sleep(0.1)


async def test_permissions_add_up_under_names_of_their_own(installed: ControlPlane) -> None:
    """They are applied as the comments in policies/permissions/ say, on top of the shipped RecoveryConfig."""
    name = ("recoveryconfig", "default")
    try:
        await installed.kubectl("apply", "--server-side", "-f", str(POLICIES / "recovery-config.yaml"))
        for path in sorted(PERMISSIONS.glob("*.yaml")):
            told = f"--field-manager={path.stem}"
            assert told in path.read_text()
            await installed.kubectl("apply", "--server-side", told, "-f", str(path))
        spec = json.loads(await installed.kubectl("get", *name, "-o", "json"))["spec"]
        assert spec["allow"] == {"failJob": True, "cordon": True, "assumeDead": True}
        assert spec["paused"] is False
        assert (spec["quarantine"]["maxNodes"], spec["quarantine"]["maxPercent"]) == (8, 5)
        for path in sorted(PERMISSIONS.glob("*.yaml")):
            assert_holds(spec, yaml.safe_load(path.read_text())["spec"], "spec")
        none: Object = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
        taken_back = yaml.safe_dump(none | {"metadata": {"name": "default"}, "spec": {}})
        await installed.kubectl(
            *("apply", "--server-side", "--field-manager=user-errors-fail-fast", "-f-"), stdin=taken_back
        )
        spec = json.loads(await installed.kubectl("get", *name, "-o", "json"))["spec"]
        assert (spec["allow"].get("failJob", False), spec["allow"]["cordon"]) == (False, True)
    finally:
        await installed.kubectl("delete", *name, "--ignore-not-found")


async def test_two_opinions_on_one_cap_are_a_conflict_and_not_a_race(installed: ControlPlane) -> None:
    try:
        for policy in ("gpu-faults", "large-1000-gpus"):
            path = PERMISSIONS / f"{policy}.yaml"
            await installed.kubectl("apply", "--server-side", f"--field-manager={policy}", "-f", str(path))
        other = (PERMISSIONS / "gpu-faults.yaml").read_text().replace("maxPercent: 5", "maxPercent: 50")
        with pytest.raises(KubectlError, match=r"conflict with \"large-1000-gpus\".*maxPercent"):
            await installed.kubectl("apply", "--server-side", "--field-manager=gpu-faults", "-f-", stdin=other)
    finally:
        await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


@quietly
async def test_spot_recreates_an_evicted_group_for_free(
    training: StartsTraining, controller: StartsController, installed: ControlPlane
) -> None:
    job = await under("spot", training, installed)
    async with controller():
        before = await remember(job)
        await evict(job, 1)
        [closed] = await job.closed_incidents(1)
    await until("it trains", lambda: job.fleet.world.passed(job.training, before.step, before.at))
    [incident] = await incidents_of(job)
    assert (closed["outcome"], incident["rule"], incident.get("charged", False)) == (
        *("Recovered", "capacity-taken-back"),
        False,
    )
    assert "(not charged to the budget)" in incident["message"]
    ledger = await job.ledger()
    assert (ledger["totals"]["restarts"], ledger["totals"].get("charged", 0)) == (1, 0)
    assert ledger["budget"]["remaining"] == 10


@quietly
@pytest.mark.parametrize("permitted", [True, False], ids=["permitted", "not-permitted"])
async def test_user_errors_fail_fast_ends_a_job_where_it_may_and_holds_it_where_not(
    permitted: bool,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    installed: ControlPlane,
    grant: Grants,
) -> None:
    if permitted:
        await grant("user-errors-fail-fast")
    job = await under("user-errors-fail-fast", training, installed)
    async with controller() as process:
        pod = await job.pod_of_rank(2)
        job.fleet.kubelets.exit_container(pod, 1, message=TRACEBACK, namespace=job.namespace)
        if permitted:
            [closed] = await job.closed_incidents(1)
            await until_condition(job, JOB_SETS, "Failed")
            assert closed["outcome"] == "Failed", closed
            reason = closed["message"]
        else:
            await job.reaches("Held")
            await has_reconciled(process, job)
            reason = (await job.ledger())["message"]
            assert "which RecoveryConfig does not allow (spec.allow.failJob)" in reason
            [job_set] = await job.items(JOB_SETS)
            assert not job_set["status"].get("terminalState")
    assert f"pod {pod} (rank 2, node " in reason
    assert "rule user-error" in reason
    assert proxy.writes(lambda seen: (seen.method, seen.resource) == ("DELETE", "jobs")) == [], "it was not retried"
    assert len(job.fleet.world.rounds(job.training)) == 1


@quietly
async def test_gpu_faults_quarantines_a_node_and_the_group_comes_back_on_others_until_it_is_released(
    training: StartsTraining,
    controller: StartsController,
    installed: ControlPlane,
    grant: Grants,
) -> None:
    """The node's monitor reports the fault while the rank still runs. `recovery release` frees the node by hand."""
    await grant("gpu-faults")
    job = await under("gpu-faults", training, installed)
    fleet = job.fleet
    async with controller():
        before = await remember(job)
        node = before[1].node
        try:
            await say_of(fleet, node, GPU_CONDITION, "True")
            [closed] = await job.closed_incidents(1)
            await until("it trains", lambda: fleet.world.passed(job.training, before.step, before.at))
            assert node not in {pod["spec"]["nodeName"] for pod in await job.pods()}
            [incident] = await incidents_of(job)
            assert (closed["outcome"], incident["rule"]) == ("Recovered", "nvsentinel-condition")
            assert [each["action"] for each in incident["attempts"]] == ["ReplaceNode"]
            assert_quarantined(await get_node(fleet, node), incident["id"])
            assert [entry["node"] for entry in await quarantined(installed)] == [node]

            await say_of(fleet, node, GPU_CONDITION, "False")
            told = await recovery("release", node, "--kubeconfig", str(installed.kubeconfig))
            assert told.exit_code == 0, told.err
            await until_free(fleet, node)
        finally:
            await say_of(fleet, node, GPU_CONDITION, "False")
            await as_it_was(fleet, node)


async def get_node(fleet: Fleet, name: str) -> Object:
    found: Object = json.loads(await api_verbs.get(fleet.api, NODES, name))
    return found


async def say_of(fleet: Fleet, node: str, type_: str, status: str) -> None:
    """Set a condition of the node, as a node monitor does."""
    now = fleet.clock.now().isoformat().replace("+00:00", "Z")
    said = {"type": type_, "status": status, "reason": "HardwareFailure", "lastTransitionTime": now}
    patch = {"status": {"conditions": [said]}}
    await api_verbs.patch(fleet.api, NODES, node, patch, kind=PatchKind.STRATEGIC, subresource="status")


def assert_quarantined(node: Object, incident: str) -> None:
    """The node has the taint, and the annotation with the incident and the reason, but no cordon."""
    assert not node["spec"].get("unschedulable")
    taints = [(each["key"], each.get("value", ""), each["effect"]) for each in node["spec"]["taints"]]
    assert (QUARANTINE_TAINT, incident, "NoSchedule") in taints
    told = json.loads(node["metadata"]["annotations"][QUARANTINE_ANNOTATION])
    assert told["incident"] == incident
    assert GPU_CONDITION in told["reason"]


async def quarantined(installed: ControlPlane) -> list[Object]:
    config = json.loads(await installed.kubectl("get", "recoveryconfig", "default", "-o", "json"))
    found: list[Object] = config.get("status", {}).get("quarantined", [])
    return found


async def until_free(fleet: Fleet, name: str) -> None:
    """Wait until nothing of ours is left on the node, and it takes pods."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            node = await get_node(fleet, name)
            ours = QUARANTINE_ANNOTATION in node["metadata"].get("annotations", {})
            tainted = any(each["key"] == QUARANTINE_TAINT for each in node["spec"].get("taints", []))
            if not ours and not tainted and not node["spec"].get("unschedulable"):
                return
            await asyncio.sleep(0.1)


async def as_it_was(fleet: Fleet, name: str) -> None:
    """Remove whatever a test has left on the node, so that the next test finds it free."""
    node = await get_node(fleet, name)
    kept = [each for each in node["spec"].get("taints", []) if each["key"] != QUARANTINE_TAINT]
    patch = {
        "spec": {"taints": kept, "unschedulable": None},
        "metadata": {"annotations": {QUARANTINE_ANNOTATION: None}},
    }
    await api_verbs.patch(fleet.api, NODES, name, patch, kind=PatchKind.MERGE)
