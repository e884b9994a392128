"""The DDP example as a TrainJob with real ranks: torchrun on CPUs, and checkpoints in a folder that all nodes share.

Python, torch and the system's libraries come from read-only hostPath volumes: the nodes share this machine's disk.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.real_nodes.images import BUSYBOX_IMAGE
from tests.cluster.real_nodes.node import RealNode
from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.scene import REPOSITORY, apply

Object = dict[str, Any]

TORCH = (REPOSITORY / os.environ.get("EXAMPLES_VENV", ".venv-examples")).resolve()
"""The virtual environment of the examples. `make real-nodes` installs it."""
SCRIPTS = REPOSITORY / "examples" / "training"
PRECISION = Path(__file__).parent / "scripts"
EVERY = 20
"""Steps between two checkpoints."""
SHIPPED, PREPARED, JOINED = "torch-distributed", "torch-recoverable", "torch-recoverable-joined"
"""Names of runtimes: Trainer's own, and those of policies/."""
JOINED_FILE = "/tmp/recovery-joined"
GRACE_SECONDS = 2
"""The grace of each pod. A rank that has lost a peer waits in a collective and ends by itself 3 s after SIGTERM."""
CHECKPOINTS = "/checkpoints"
"""The folder of the training, in its containers."""
GPUS = 4
"""GPUs of each rank, so few that the ranks of a lost node fit on another one."""
RANK_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_STARTS = frozenset({"began", "resumed"})
"""Events that a training logs when its ranks have met."""
_SYSTEM = ("/usr", "/lib", "/lib64")


def script_arguments(folder: Path, ranks: int, steps: int, dropout: float = 0.1) -> list[str]:
    """The example, with everything that determines its curve. Checkpoints and `losses.jsonl` go to the folder.

    `dropout` 0: the curve does not depend on the number of ranks, and the reference is the run with `ranks`.
    """
    return [
        str(PRECISION / "double_precision.py"),
        str(SCRIPTS / "ddp.py"),
        f"--checkpoint-dir={folder}",
        f"--checkpoint-every={EVERY}",
        f"--steps={steps}",
        f"--batch-size={4 * ranks}",
        f"--dropout={dropout}",
        f"--loss-log={folder}/losses.jsonl",
    ]


@dataclass
class Training:
    """One TrainJob with a rank on each of its pods. Its files outlive pods and nodes."""

    cluster: RealCluster
    namespace: str
    folder: Path
    ranks: int
    runtime: str
    name: str = "llm"
    gpus: int = GPUS
    """GPUs of each rank."""
    dropout: float = 0.1
    annotations: dict[str, str] = field(default_factory=dict)

    async def start(self, *, steps: int = 1_000_000) -> None:
        self.folder.mkdir(exist_ok=True)
        await apply(self.cluster.control_plane, self.namespace, self._train_job(steps))

    def lines(self) -> list[Object]:
        """The log lines of rank 0 from all its incarnations, oldest first."""
        log = self.folder / "losses.jsonl"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]

    def step(self) -> int:
        """The last step that was logged; 0: none."""
        return next((line["step"] for line in reversed(self.lines()) if "loss" in line), 0)

    def starts(self) -> int:
        """How often the ranks have met and started, from step 0 or from a checkpoint."""
        return sum(line.get("event") in _STARTS for line in self.lines())

    def steps_since_start(self) -> int:
        """How many steps the ranks have logged since they last started."""
        logged = ["loss" in line for line in self.lines() if "loss" in line or line.get("event") in _STARTS]
        return logged[::-1].index(False) if False in logged else 0

    def resumed_at(self) -> int:
        """The step of the checkpoint from which the last start resumed."""
        starts = [line for line in self.lines() if line.get("event") in _STARTS]
        return int(starts[-1]["step"])

    async def trains(self, *, starts: int, past: int = 0) -> None:
        """Wait until the group has started that often and has logged a step beyond `past` since its last start."""
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while not (self.starts() >= starts and "loss" in self.lines()[-1] and self.step() > past):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(
                f"start {starts} of the training did not get past step {past} ({self.starts()} starts, "
                f"step {self.step()})\n{await self.describe()}"
            ) from None

    async def amid_an_interval(self) -> None:
        """Wait until the last checkpoint is some steps ago and the next one is some steps ahead."""
        async with asyncio.timeout(GUARD_SECONDS):
            while not EVERY // 4 <= self.step() % EVERY <= EVERY // 2:
                await asyncio.sleep(0.01)

    async def describe(self) -> str:
        """Details for a failed test: pods, the ledger, and the last lines of each rank."""
        kubectl = self.cluster.control_plane.kubectl
        said = [await kubectl("get", "pods,recoverygroups", "-n", self.namespace, "-o", "wide")]
        for pod in await self.pods():
            name = pod["metadata"]["name"]
            said.append(f"-- {name}: {json.dumps(pod['status'].get('containerStatuses'))}")
        said.append(json.dumps(await self.ledger(), indent=1))
        return "\n".join(said)

    async def joined(self) -> list[Object]:
        """What each rank has printed when it last joined the others, by rank."""
        found = []
        for rank in range(self.ranks):
            pod = (await self.pod_of_rank(rank))["metadata"]["name"]
            printed = await self.cluster.control_plane.kubectl("logs", pod, "-n", self.namespace, "-c", "node")
            lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"event": "joined"')]
            found.append(lines[-1])
        return found

    async def pods(self) -> list[Object]:
        return await self._list("pods", f"--selector=jobset.sigs.k8s.io/jobset-name={self.name}")

    async def pod_of_rank(self, rank: int) -> Object:
        """The pod of that rank which is not being deleted."""
        for pod in await self.pods():
            index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
            if index == str(rank) and "deletionTimestamp" not in pod["metadata"]:
                return pod
        raise AssertionError(f"rank {rank} of {self.namespace}/{self.name} has no pod")

    async def node_of_rank(self, rank: int) -> RealNode:
        name = (await self.pod_of_rank(rank))["spec"]["nodeName"]
        return next(node for node in self.cluster.nodes if node.name == name)

    async def processes_of_rank(self, rank: int) -> list[int]:
        """Process ids in the machine's own PID namespace: torchrun first, then the worker."""
        pod = await self.pod_of_rank(rank)
        [status] = [each for each in pod["status"]["containerStatuses"] if each["name"] == "node"]
        container = status["containerID"].partition("://")[2]
        return (await self.node_of_rank(rank)).processes_of(pod["metadata"]["uid"], container)

    async def ledger(self) -> Object:
        """`status` of the job's RecoveryGroup; empty before its first incident."""
        groups = await self._list("recoverygroups")
        mine = [group for group in groups if group["spec"]["workloadRef"]["name"] == self.name]
        return dict(mine[0].get("status", {})) if mine else {}

    async def closed_incidents(self, count: int) -> list[Object]:
        """Wait until the ledger's history holds `count` incidents and none is open. Returns them, newest first."""
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while True:
                    ledger = await self.ledger()
                    history: list[Object] = ledger.get("history", [])
                    if len(history) >= count and "incident" not in ledger:
                        return history
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"{count} closed incidents expected\n{await self.describe()}") from None

    async def record(self) -> Object:
        """The record of the job's only incident, which has ended. It is written after the ledger."""
        async with asyncio.timeout(GUARD_SECONDS):
            while not (records := await self.incidents()):
                await asyncio.sleep(0.1)
        [record] = records
        return record

    async def incidents(self) -> list[Object]:
        """The records in the job's namespace, oldest first."""
        return sorted(
            (dict(each["spec"]) for each in await self._list("recoveryincidents")), key=lambda spec: int(spec["number"])
        )

    async def fences(self) -> None:
        """Wait until the controller waits for the proof that an old rank is dead."""
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                while (await self.ledger()).get("reason") != "Fencing":
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"the controller does not fence\n{await self.describe()}") from None

    def losses(self) -> dict[int, list[float]]:
        """Step -> the losses that were logged for it; more than one if it was trained again."""
        found: dict[int, list[float]] = {}
        for line in self.lines():
            if "loss" in line:
                found.setdefault(line["step"], []).append(line["loss"])
        return found

    async def suspend(self, suspended: bool) -> None:
        """Change `spec.suspend` of the TrainJob, as a user does."""
        patch = json.dumps({"spec": {"suspend": suspended}})
        kubectl = self.cluster.control_plane.kubectl
        await kubectl("patch", "trainjob", self.name, "-n", self.namespace, "--type=merge", "-p", patch)

    async def remove(self) -> None:
        """Delete the TrainJob and everything made for it. The nodes are free on return."""
        kubectl = self.cluster.control_plane.kubectl
        await kubectl("delete", "trainjob", self.name, "-n", self.namespace, "--ignore-not-found", "--wait=false")
        for kind in ("jobset", "job", "pod"):
            await kubectl("delete", kind, "--all", "-n", self.namespace, "--grace-period=1", "--wait=false")
        await kubectl("wait", "--for=delete", "pod", "--all", "-n", self.namespace, f"--timeout={GUARD_SECONDS:.0f}s")

    async def _list(self, *arguments: str) -> list[Object]:
        printed = await self.cluster.control_plane.kubectl("get", *arguments, "-n", self.namespace, "-o", "json")
        return list(json.loads(printed)["items"])

    def _train_job(self, steps: int) -> Object:
        mounts = self._mounted() | {path[1:]: Path(path) for path in _SYSTEM}
        volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in mounts.items()]
        volume_mounts = [{"name": name, "mountPath": str(path), "readOnly": True} for name, path in mounts.items()]
        pod = {
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [
                {
                    "name": "node",
                    "volumeMounts": [*volume_mounts, {"name": "checkpoints", "mountPath": CHECKPOINTS}],
                }
            ],
            "volumes": [*volumes, {"name": "checkpoints", "hostPath": {"path": str(self.folder)}}],
        }
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        patch = {"template": {"spec": {"replicatedJobs": jobs}}}
        asked = {"nvidia.com/gpu": self.gpus}
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": self.name, "annotations": self.annotations},
            "spec": {
                "runtimeRef": {"name": self.runtime},
                "runtimePatches": [{"manager": "example.com/training", "trainingRuntimeSpec": patch}],
                "trainer": {
                    "image": BUSYBOX_IMAGE,
                    "numNodes": self.ranks,
                    "numProcPerNode": 1,
                    "resourcesPerNode": {"limits": asked, "requests": asked},
                    **self._launch(steps),
                },
            },
        }

    def _mounted(self) -> dict[str, Path]:
        """The folders of this machine that the containers have too, beside those of the system."""
        assert TORCH.exists(), f"{TORCH} is not there: `make real-nodes` installs it"
        return {"python": Path(sys.base_prefix), "torch": TORCH, "scripts": SCRIPTS, "precision": PRECISION}

    def _launch(self, steps: int) -> Object:
        """`env`, `command` and `args` of the trainer."""
        return {
            "env": [{"name": name, "value": value} for name, value in RANK_ENVIRONMENT.items()],
            "command": [str(TORCH / "bin" / "python"), "-m", "torch.distributed.run"],
            "args": [
                *script_arguments(Path(CHECKPOINTS), self.ranks, steps, self.dropout),
                f"--joined-file={JOINED_FILE}",
            ],
        }
