"""The scene of tests, demo and bench: modelled nodes, TrainJobs, policies and a controller in its own process.

The control plane is real. The nodes are played by the kubelet model, whose trace says what really happened to the
training. The controller runs as users run it: `recovery run`, configured by flags alone.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from recovery import api_verbs
from recovery.controller.clock import SystemClock
from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import (
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    TRAIN_JOBS,
    ApiClient,
    ConflictError,
    NotFoundError,
    Propagation,
    Resource,
)
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.training import TrainingWorld
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.warm_start import ForkedProcess

Object = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 3
"""The Lease duration of the controllers here. A controller that takes over from a killed one waits that long."""
_CANCELLED_IN_SECONDS = 10.0


async def until(what: str, holds: Callable[[], bool], timeout_seconds: float = GUARD_SECONDS) -> None:
    """Poll until `holds`; the error says what did not happen."""
    try:
        async with asyncio.timeout(timeout_seconds):
            while not holds():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"within {timeout_seconds:.0f} s this did not happen: {what}") from None


@dataclass
class Fleet:
    """The modelled nodes, and the training that they run."""

    api: ApiClient
    kubelets: Kubelets
    world: TrainingWorld
    nodes: tuple[str, ...]
    """The names of the nodes."""
    model: asyncio.Task[None]
    """The task that plays the nodes. It ends only with an error, which `running` raises when its block ends."""
    clock: SystemClock = field(default_factory=SystemClock)

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        control_plane: ControlPlane,
        *,
        nodes: int,
        training: TrainingSettings | None = None,
        kubelet: KubeletSettings | None = None,
        seed: int = 1,
        prefix: str = "gpu",
        played_by: type[TrainingWorld] = TrainingWorld,
    ) -> AsyncIterator["Fleet"]:
        """`nodes` nodes of 8 GPUs, registered and Ready. `played_by` decides what the processes of all pods do."""
        clock, entropy = SystemClock(), random.Random(seed)
        async with open_session(kubeconfig=str(control_plane.kubeconfig)) as session:
            api = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=entropy)
            world = played_by(api, clock, entropy, training)
            kubelets = Kubelets(api, clock, entropy, world, kubelet)
            names = tuple(f"{prefix}-{number}" for number in range(nodes))
            for name in names:
                kubelets.add_node(NodeSpec(name=name))
            task = asyncio.create_task(kubelets.run())
            try:
                async with asyncio.timeout(GUARD_SECONDS):
                    await kubelets.nodes_ready()
                yield cls(api, kubelets, world, names, task)
                assert not task.done(), "the model has ended before the test; what ended it follows"
            finally:
                await _cancelled(task)


async def _cancelled(model: "asyncio.Task[None]") -> None:
    """Ends the model. While tests without it run, the loop of the session stands still, for minutes. When it goes on,
    each time-out in it has expired, and one of them has once taken the cancellation for its own (unexplained)."""
    while not model.done():
        model.cancel()
        _, left = await asyncio.wait({model}, timeout=_CANCELLED_IN_SECONDS)
        if left:
            for task in asyncio.all_tasks():
                task.print_stack(limit=4)
    with suppress(asyncio.CancelledError):
        await model


@dataclass
class Job:
    """One TrainJob of a test, and the questions that the tests ask about it."""

    control_plane: ControlPlane
    fleet: Fleet
    namespace: str
    name: str
    ranks: int

    @property
    def training(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def child(self) -> str:
        return f"{self.name}-node-0"

    async def get(self, *arguments: str) -> Object:
        found: Object = json.loads(
            await self.control_plane.kubectl("get", "-n", self.namespace, "-o", "json", *arguments)
        )
        return found

    async def items(self, resource: Resource, label_selector: str = "") -> list[Object]:
        """All objects of that kind in the job's namespace. A direct request costs a hundredth of a kubectl call."""
        body = await api_verbs.list_page(
            self.fleet.api, resource, namespace=self.namespace, label_selector=label_selector
        )
        return list(json.loads(body)["items"])

    async def remove(self, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Delete the TrainJob and everything made from it, hung ranks too, and wait until its nodes are free.

        It deletes from the top down, so that no controller creates a replacement. It deletes each object itself: for
        half a minute after a CRD was installed, the garbage collector deletes no dependents of objects of its kind.
        """
        async with asyncio.timeout(timeout_seconds):
            for resource in (TRAIN_JOBS, JOB_SETS, JOBS):
                for name in await self._names(resource):
                    await self._delete(resource, name)
            while pods := await self.pods():
                for pod in (pod["metadata"] for pod in pods):
                    if pod.get("deletionGracePeriodSeconds", 30) > 1:
                        await self._delete(PODS, pod["name"], grace_seconds=1)
                await asyncio.sleep(0.1)

    async def _names(self, resource: Resource) -> list[str]:
        names = [item["metadata"]["name"] for item in await self.items(resource)]
        return [name for name in names if name == self.name or name.startswith(f"{self.name}-")]

    async def _delete(self, resource: Resource, name: str, grace_seconds: int | None = None) -> None:
        with suppress(NotFoundError, ConflictError):
            await api_verbs.delete(
                self.fleet.api,
                resource,
                name,
                namespace=self.namespace,
                propagation=Propagation.BACKGROUND,
                grace_seconds=grace_seconds,
            )

    async def child_uid(self) -> str:
        job = json.loads(await api_verbs.get(self.fleet.api, JOBS, self.child, namespace=self.namespace))
        return str(job["metadata"]["uid"])

    async def pods(self) -> list[Object]:
        selector = f"jobset.sigs.k8s.io/jobset-name={self.name}"
        return await self.items(PODS, selector)

    async def pod_of_rank(self, rank: int) -> str:
        """The name of the pod of that rank that is not being deleted."""
        for pod in await self.pods():
            index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
            if index == str(rank) and "deletionTimestamp" not in pod["metadata"]:
                return str(pod["metadata"]["name"])
        raise AssertionError(f"rank {rank} of {self.training} has no pod")

    async def delete_pod(self, name: str) -> None:
        """Delete a pod as `kubectl delete pod --grace-period=1` does."""
        await self._delete(PODS, name, grace_seconds=1)

    async def groups(self) -> list[Object]:
        """The RecoveryGroups of the namespace that belong to this job."""
        items = await self.items(RECOVERY_GROUPS)
        return [item for item in items if item["spec"]["workloadRef"]["name"] == self.name]

    async def ledger(self) -> Object:
        """`status` of the job's one RecoveryGroup; empty before its first incident."""
        groups = await self.groups()
        assert len(groups) <= 1, "a workload has one RecoveryGroup"
        status: Object = groups[0].get("status", {}) if groups else {}
        return status

    async def trains(self, *, past: int = 0, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Wait until all ranks have met and the model counts more than `past` steps."""
        await until(
            f"{self.training} trains past step {past}",
            lambda: self.fleet.world.step_of(self.training) > past,
            timeout_seconds,
        )

    async def reaches(self, phase: str, timeout_seconds: float = GUARD_SECONDS) -> None:
        """Wait until the ledger has this phase."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while (await self.ledger()).get("phase") != phase:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"{self.training} did not reach {phase}; the ledger is {json.dumps(await self.ledger(), indent=1)}"
            ) from None

    async def closed_incidents(self, count: int, timeout_seconds: float = GUARD_SECONDS) -> list[Object]:
        """Wait until the ledger's history holds `count` incidents and none is open. Returns them, newest first."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    ledger = await self.ledger()
                    history: list[Object] = ledger.get("history", [])
                    if len(history) >= count and "incident" not in ledger:
                        return history
                    await asyncio.sleep(0.1)
        except TimeoutError:
            found = json.dumps(await self.ledger(), indent=1)
            objects = "\n".join(await self._states())
            raise AssertionError(
                f"{self.training}: {count} closed incidents expected; the ledger is {found}\n{objects}"
            ) from None

    async def _states(self) -> list[str]:
        """The TrainJob, JobSet, Jobs and pods of the job as they are now, a line each."""
        objects = [(kind, item) for kind in (TRAIN_JOBS, JOB_SETS, JOBS, PODS) for item in await self.items(kind)]
        return [
            f"{kind.plural} {item['metadata']['name']}: deleted {item['metadata'].get('deletionTimestamp')}, "
            f"status {json.dumps(item.get('status'))}"
            for kind, item in objects
        ]


def train_job(
    name: str,
    *,
    ranks: int,
    gpus: int = 8,
    runtime: str = "torch-distributed",
    deadline_seconds: int | None = None,
    queue: str = "",
) -> Object:
    """A TrainJob as a user writes it. `deadline_seconds` None: no deadline. `queue`: its Kueue queue. Empty: none."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    deadline = {} if deadline_seconds is None else {"activeDeadlineSeconds": deadline_seconds}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            **deadline,
            "runtimeRef": {"name": runtime},
            "trainer": {
                "numNodes": ranks,
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
            },
        },
    }


def policy(name: str = "default", **spec: Any) -> Object:
    """A RecoveryPolicy in mode Enforce, unless `spec` says otherwise."""
    return {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryPolicy",
        "metadata": {"name": name},
        "spec": {"mode": "Enforce", **spec},
    }


async def apply(control_plane: ControlPlane, namespace: str | None, *objects: Object) -> None:
    """Server-side apply."""
    text = yaml.safe_dump_all(objects)
    where = ("-n", namespace) if namespace else ()
    await control_plane.kubectl("apply", "--server-side", "--force-conflicts", *where, "-f", "-", stdin=text)


async def install(control_plane: ControlPlane) -> None:
    """Apply what a user applies before the first job: the shipped manifests and the prepared runtimes.

    The Deployment has no replicas. Modelled kubelets start no containers, so the controller runs outside the cluster,
    as the ServiceAccount.
    """
    runtimes = ("policies/runtime-prepared.yaml", "policies/runtime-joined-probe.yaml")
    for given in (("-k", "tests/cluster/without_replicas"), *(("-f", runtime) for runtime in runtimes)):
        await control_plane.kubectl("apply", "--server-side", given[0], str(REPOSITORY / given[1]))
    await control_plane.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", "--all")


async def install_component(control_plane: ControlPlane, name: str) -> None:
    """Apply each file of `manifests/components/NAME`: kubectl takes a component only within a kustomization."""
    for file in component_files(name):
        await control_plane.kubectl("apply", "--server-side", "-f", str(file))


async def remove_component(control_plane: ControlPlane, name: str) -> None:
    for file in component_files(name):
        await control_plane.kubectl("delete", "--ignore-not-found", "-f", str(file))


def component_files(name: str) -> list[Path]:
    files = sorted((REPOSITORY / "manifests" / "components" / name).rglob("*.yaml"))
    return [file for file in files if file.name != "kustomization.yaml"]


CONTAINER_USER = ("unshare", "--user", "--map-user=65532", "--map-group=65532")
"""Runs a command as the shipped image does: without privileges, under a UID that has no passwd entry. It is a UID of a
user namespace, so that the process may read the checkout and the interpreter wherever they are."""


class ControllerProcess:
    """`recovery run` in its own process. Its log is a file of JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        kubeconfig: Path,
        log: Path,
        *,
        standby: bool = False,
        options: Sequence[str] = (),
        in_container: bool = False,
        warm: bool = False,
    ) -> AsyncIterator["ControllerProcess"]:
        """A controller that has started and leads. It is ended with SIGTERM, or with SIGKILL if that takes too long.

        If another controller was killed before, this one leads when the other's Lease has expired. `standby`: wait only
        until it knows who leads. `in_container`: it runs as the user of the shipped image (CONTAINER_USER). `warm`: it
        is forked from a process that has loaded the program.
        """
        arguments = (
            *("run", "--kubeconfig", str(kubeconfig), "--metrics-address", "127.0.0.1:0"),
            *("--lease-namespace", "recovery-system", "--lease-seconds", str(LEASE_SECONDS), *options),
        )
        assert not (warm and in_container), "a fork has the user of the process that it is forked from"
        if warm:
            process: asyncio.subprocess.Process | ForkedProcess = await asyncio.to_thread(ForkedProcess, arguments, log)
        else:
            process = await _started(arguments, log, in_container=in_container)
        controller = cls(process, log)
        try:
            await until("the controller watches", controller.watches)
            if standby:
                await until("the controller stands by", controller.stands_by)
            else:
                await until("the controller leads", controller.leads)
            yield controller
        finally:
            await controller.end()

    def watches(self) -> bool:
        """Its log says that its caches are synced."""
        assert self._process.returncode is None, f"the controller ended: {self._log.read_text()[-2000:]}"
        return any(line.get("msg", "").startswith("all caches are synced") for line in self.lines())

    def leads(self) -> bool:
        """The last log line about its leadership says that it leads."""
        return self._standing() == "leading"

    def stands_by(self) -> bool:
        """The last log line about its leadership says that it stands by, and who leads."""
        return self._standing().startswith("standing by, ")

    def _standing(self) -> str:
        said = (str(line.get("msg", "")) for line in reversed(self.lines()))
        return next((text for text in said if text.startswith(("leading", "standing by, ", "no longer leading: "))), "")

    def identity(self) -> str:
        """The name under which it stands for election."""
        return str(next(line["identity"] for line in self.lines() if line.get("msg") == "standing for election"))

    def lines(self) -> list[Mapping[str, Any]]:
        """Its log so far."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def metrics_url(self) -> str:
        """Where it serves /metrics, /healthz and /readyz."""
        said = next(line for line in self.lines() if line.get("msg", "").startswith("serving /metrics"))
        return f"http://{said['address']}"

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL: it finishes nothing and logs nothing."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing from now on, and does not know it."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it continues as if nothing had happened."""
        os.kill(self._process.pid, signal.SIGCONT)

    async def end(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise AssertionError(f"the controller did not end within {GUARD_SECONDS:.0f} s of SIGTERM") from None


async def _started(arguments: Sequence[str], log: Path, *, in_container: bool) -> asyncio.subprocess.Process:
    """Start `recovery` as users do."""
    with log.open("ab") as sink:
        return await asyncio.create_subprocess_exec(
            *(CONTAINER_USER if in_container else ()),
            *(sys.executable, "-m", "recovery.cli.entry", *arguments),
            stdout=sink,
            stderr=sink,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": "/"} if in_container else None,
            preexec_fn=die_with_parent(),
        )
