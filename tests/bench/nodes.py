"""How long a group is down after one of its nodes has lost power, counted from when Kubernetes marks the node NotReady.

16 pods on a real control plane with stock request limits and modelled nodes. Four arms. Two use JobSet's own restart
(backoffLimit 0 and a failurePolicy): of pods with a grace of 0, and with the default of 30 s. Two use this controller:
one may assume that the node is dead; in the other it may not, and someone deletes the Node object as soon as it is
NotReady. Pods tolerate a silent node for 5 s instead of Kubernetes' 300 s, which would be added to JobSet's own arms.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from recovery import api_verbs
from recovery.ports import JOBS, NODES
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath
from recovery.sim.training.rounds import TrainingSettings
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, install, policy, train_job, until

NODE_COUNT = 24
PODS = 16
STRUCK_RANK = 5
TOLERATION_SECONDS = 5
PATIENCE_SECONDS = 180.0
MARKED_WITHIN_SECONDS = 120.0
ASSUME_AT_ONCE = {"mode": "AssumeDead", "assumeDeadAfter": "0s"}


@dataclass(frozen=True)
class Arm:
    """One row: what restarts the group, and the settings of its pods."""

    who: str
    grace_seconds: int
    own_restart: bool
    """JobSet restarts the group, and no controller runs."""
    assume_dead: bool = False
    node_deleted: bool = False
    """Someone deletes the Node object as soon as it is NotReady."""


@dataclass
class Row:
    """The measurements of one arm."""

    arm: Arm
    marked_seconds: float
    """From the power loss until NotReady."""
    seconds: float | None
    """From NotReady until all ranks train. None: they did not within the patience."""
    state: str
    """The state at the end, in words."""


ARMS = [
    Arm("JobSet's own restart", 0, own_restart=True),
    Arm("JobSet's own restart", 30, own_restart=True),
    Arm("controller, AssumeDead 0 s", 30, own_restart=False, assume_dead=True),
    Arm("controller, Proven: the Node is deleted", 30, own_restart=False, node_deleted=True),
]


def _runtime(name: str, arm: Arm) -> Object:
    """A runtime that differs between the arms only in the grace period and in what restarts the group."""
    lost = ("not-ready", "unreachable")
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": arm.grace_seconds,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{how}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            }
            for how in lost
        ],
        "containers": [{"name": "node", "image": "example.invalid/train"}],
    }
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0 if arm.own_restart else 1000, "template": {"spec": pod}},
    }
    template: Object = {"replicatedJobs": [{"name": "node", "template": job}]}
    if arm.own_restart:
        template["failurePolicy"] = {"maxRestarts": 100}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": template}},
    }


def _tell(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S}  {text}", file=sys.stderr, flush=True)


class Bench:
    """Runs the arms one after the other on one control plane."""

    def __init__(self, control_plane: ControlPlane, fleet: Fleet, folder: Path) -> None:
        self._control_plane = control_plane
        self._fleet = fleet
        self._folder = folder

    async def row(self, number: int, arm: Arm) -> Row:
        name = f"bench-node-{number}"
        async with self._training(name, arm) as job:
            if arm.own_restart:
                return await self._strike(job, arm)
            teardown: Object = {"graceSeconds": 1} | ({"fencing": ASSUME_AT_ONCE} if arm.assume_dead else {})
            await apply(self._control_plane, None, _config(arm))
            await apply(self._control_plane, job.namespace, policy(teardown=teardown))
            account = await self._control_plane.kubeconfig_for_service_account("recovery-system", "recovery-controller")
            async with ControllerProcess.running(account, self._folder / f"{name}.log"):
                return await self._strike(job, arm)

    @asynccontextmanager
    async def _training(self, name: str, arm: Arm) -> AsyncIterator[Job]:
        await self._control_plane.kubectl("create", "namespace", name)
        await apply(self._control_plane, None, _runtime(name, arm))
        job = Job(self._control_plane, self._fleet, name, "train", PODS)
        await apply(self._control_plane, name, train_job("train", ranks=PODS, runtime=name))
        await job.trains(timeout_seconds=PATIENCE_SECONDS)
        yield job
        await job.remove(PATIENCE_SECONDS)

    async def _strike(self, job: Job, arm: Arm) -> Row:
        """Cuts the power of one rank's node. It is back on return."""
        fleet = self._fleet
        pod = await job.pod_of_rank(STRUCK_RANK)
        node = next(each["spec"]["nodeName"] for each in await job.pods() if each["metadata"]["name"] == pod)
        lost_at = fleet.clock.now()
        fleet.kubelets.kill_node(node, NodeDeath.POWER_LOSS)
        try:
            marked_at = await self._marked(node)
            if arm.node_deleted:
                await api_verbs.delete(fleet.api, NODES, node)
            seconds = await self._trains_since(job, marked_at)
            state = await _state(job)
        finally:
            fleet.kubelets.revive_node(node)
            await fleet.kubelets.nodes_ready()
        return Row(arm, (marked_at - lost_at).total_seconds(), seconds, state)

    async def _marked(self, name: str) -> datetime:
        """Wait until the node lifecycle controller marks the node. Returns when that was seen."""
        async with asyncio.timeout(MARKED_WITHIN_SECONDS):
            while True:
                node = json.loads(await api_verbs.get(self._fleet.api, NODES, name))
                [ready] = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
                if ready["status"] == "Unknown":
                    return self._fleet.clock.now()
                await asyncio.sleep(0.1)

    async def _trains_since(self, job: Job, since: datetime) -> float | None:
        """Seconds until the first rendezvous after `since`, from the model's trace. None: not within the patience."""
        rounds = self._fleet.world.rounds
        try:
            await until(
                f"{job.training} trains",
                lambda: any(formed.formed_at > since for formed in rounds(job.training)),
                PATIENCE_SECONDS,
            )
        except AssertionError:
            return None
        return next((each.formed_at - since).total_seconds() for each in rounds(job.training) if each.formed_at > since)


def _config(arm: Arm) -> Object:
    return {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryConfig",
        "metadata": {"name": "default"},
        "spec": {"allow": {"assumeDead": arm.assume_dead}},
    }


async def _state(job: Job) -> str:
    """Conditions of the Job, and how many of its pods are in each state."""
    [child] = [each for each in await job.items(JOBS) if each["metadata"]["name"] == job.child]
    conditions = [each["type"] for each in child["status"].get("conditions", []) if each["status"] == "True"]
    pods = Counter(
        "Terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"]["phase"] for pod in await job.pods()
    )
    counted = ", ".join(f"{count} {how}" for how, count in sorted(pods.items()))
    return f"Job {'+'.join(conditions) or 'well'}; pods: {counted or 'none'}"


def table(rows: list[Row]) -> str:
    """A Markdown table for the README."""
    lines = ["| who restarts it | grace s | NotReady after s | trains again s | then |", "|---|---|---|---|---|"]
    for row in rows:
        again = f"> {PATIENCE_SECONDS:.0f}" if row.seconds is None else f"{row.seconds:.1f}"
        arm = row.arm
        lines.append(f"| {arm.who} | {arm.grace_seconds} | {row.marked_seconds:.0f} | {again} | {row.state} |")
    return "\n".join(lines)


async def measure() -> list[Row]:
    """All arms. Builds the control plane, which needs Go."""
    rows: list[Row] = []
    training = TrainingSettings(step_seconds=0.1, nccl_timeout_seconds=3600.0)
    kubelet = KubeletSettings(start_seconds=(0.0, 0.1))
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        async with ControlPlane.start(ControlPlaneSettings(request_limits="stock"), provide()) as control_plane:
            await install(control_plane)
            async with Fleet.running(control_plane, nodes=NODE_COUNT, training=training, kubelet=kubelet) as fleet:
                bench = Bench(control_plane, fleet, Path(folder))
                for number, arm in enumerate(ARMS):
                    _tell(f"{arm.who}, grace {arm.grace_seconds} s")
                    rows.append(await bench.row(number, arm))
                    _tell(table(rows[-1:]).splitlines()[-1])
    return rows
