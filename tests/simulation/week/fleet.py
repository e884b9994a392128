"""A fleet of 200 training jobs with one controller, in virtual time: jobs come and go, nodes and programs fail.

Each day is like the one before: at the same minute the same kind of failure hits a job of the same age. So anything
that grows from one day to the next is being kept, and does not come from chance.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.controller.leadership import Elector
from recovery.kube.client import KubeApiClient
from recovery.manager import Manager
from recovery.ports import (
    EVENTS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiRequest,
    PatchKind,
    Propagation,
)
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES
from recovery.sim.api.metadata import timestamp
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.trials.manifests import JOBSET_LABEL, runtime_of, workload_of
from recovery.sim.trials.plan import JobPlan
from recovery.sim.virtual_time import VirtualClock
from recovery.telemetry.observer import Telemetry

DAY_SECONDS = 86_400.0
JOBS = 200
PODS_PER_JOB = 2
GPUS_PER_POD = 4
SPARE_NODES = 12
NAMESPACE_COUNT = 10
TURNOVERS_PER_DAY = 100
"""How often a job ends and another one begins. Each trains for two days."""
KEPT_SECONDS = 3600.0
"""A user deletes a job this long after it has ended."""
FAILURES_PER_DAY = 48
"""On 200 nodes. Llama 3 had 419 in 54 days on 2,048 nodes, which is less than one a day on 200. What does not grow at
fifty times that rate does not grow at that rate either."""
CRASHES_AFTER_SECONDS = 60.0
GIVEN_UP_SECONDS = 6 * 3600.0
"""A user deletes a job that crashes again and again after this long."""
REPAIR_SECONDS = 4 * 3600.0
REBOOT_SECONDS = 600.0
EVENT_TTL = timedelta(hours=1)
"""--event-ttl of kube-apiserver, which the model lacks."""
RECORD_TTL = timedelta(hours=24)
"""How long RecoveryIncidents are kept: short enough for seven days to show their deletion."""
COMPACTION_SECONDS = 300.0
"""--etcd-compaction-interval of kube-apiserver."""
GPU_CONDITION = "GpuUnhealthy"

POLICY: Body = {
    "mode": "Enforce",
    "rules": [
        {
            "name": "bad-gpu",
            "when": {"onNodeConditions": [{"type": GPU_CONDITION, "status": "True"}]},
            "action": "ReplaceNode",
        }
    ],
}
CONFIG: Body = {
    "allow": {"cordon": True},
    "quarantine": {"releaseAfter": "12h"},
    "incidents": {"ttl": f"{RECORD_TTL // timedelta(hours=1)}h"},
}


class Failure(StrEnum):
    """A failure that affects a job."""

    GPU = "gpu"
    """The GPU has fallen off the bus: a node condition says so, and a rank exits."""
    ILLEGAL_ACCESS = "illegal-access"
    NETWORK = "network"
    OUT_OF_MEMORY = "out-of-memory"
    SEGMENTATION_FAULT = "segmentation-fault"
    MAINTENANCE = "maintenance"
    """Someone deletes a pod."""
    NODE_POWER = "node-power"
    USER_ERROR = "user-error"
    """A program that crashes a minute after each start."""


FAILURES = (
    Failure.GPU,
    Failure.ILLEGAL_ACCESS,
    Failure.MAINTENANCE,
    Failure.GPU,
    Failure.NETWORK,
    Failure.USER_ERROR,
    Failure.GPU,
    Failure.OUT_OF_MEMORY,
    Failure.MAINTENANCE,
    Failure.ILLEGAL_ACCESS,
    Failure.NODE_POWER,
    Failure.SEGMENTATION_FAULT,
)
"""Repeated in this order. The shares are about those that Llama 3 and ByteRobust report."""
EXITS = {
    Failure.GPU: (14, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."),
    Failure.ILLEGAL_ACCESS: (1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    Failure.NETWORK: (1, "NCCL error: remote process exited or there was a network error: connection reset by peer"),
    Failure.OUT_OF_MEMORY: (137, ""),
    Failure.SEGMENTATION_FAULT: (139, ""),
}


class CountingClient(ModelClient):
    """The controller's connection to the server."""

    requests = 0
    """Requests sent so far, without watches."""

    async def send(self, request: ApiRequest) -> bytes:
        self.requests += 1
        return await super().send(request)


class FleetWeek:
    """The cluster, the controller and the events of the jobs. Time passes within `running`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.struck: list[Failure] = []
        """The failures that have affected jobs so far."""
        entropy = random.Random("a week")
        node_count = JOBS * PODS_PER_JOB * GPUS_PER_POD // 8 + SPARE_NODES
        self.cluster = EmbeddedCluster(
            clock=self.clock,
            entropy=entropy,
            nodes=[NodeSpec(name=f"node-{number}") for number in range(node_count)],
            # One checkpoint an hour, so that training costs little.
            training=TrainingSettings(step_seconds=10.0, checkpoint_every_steps=360),
            settings=ClusterSettings(
                manager_requests_per_second=500.0,
                manager_burst=500,
                kubelets=KubeletSettings(writes_leases=False, node_status_seconds=3600.0),
            ),
        )
        self.client = CountingClient(self.cluster.server, "recovery")
        self.telemetry = Telemetry(clock=self.clock, version="week")
        api = KubeApiClient(self.client, clock=self.clock, entropy=entropy)
        elector = Elector(
            api=api, clock=self.clock, entropy=entropy, namespace="recovery-system", identity="week", lease_seconds=60
        )
        self.manager = Manager(api, clock=self.clock, entropy=entropy, telemetry=self.telemetry, leadership=elector)
        self._jobs: deque[JobPlan] = deque()
        """The jobs that train, oldest first."""
        self._made = 0
        self._compacted_next = 0
        """The newest revision at the time of the last compaction."""
        self._shared_runtime = JobPlan("shared", "week", runtime=PlannedRuntime.PREPARED)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All jobs train when the block begins, and the first day starts."""
        stop = asyncio.Event()
        async with self.cluster.running():
            await self.cluster.kubelets.nodes_ready()
            self._create_shared()
            for _ in range(JOBS):
                self._begin_job()
            self.cluster.start(self.manager.run(stop))
            await self.clock.sleep(600.0)
            everything = [
                asyncio.create_task(work)
                for work in (
                    self._every(DAY_SECONDS / TURNOVERS_PER_DAY, self._turn_over),
                    self._every(DAY_SECONDS / FAILURES_PER_DAY, self._strike),
                    self._every(COMPACTION_SECONDS, self._compact),
                    self._every(EVENT_TTL.total_seconds(), self._expire_events),
                )
            ]
            try:
                yield
            finally:
                for task in everything:
                    task.cancel()
                await asyncio.gather(*everything, return_exceptions=True)
                stop.set()
                await self.clock.sleep(60.0)

    # What exists.

    def _create_shared(self) -> None:
        with self.cluster.server.acting("user"):
            create = self.cluster.server.create
            about: Body = {"apiVersion": RECOVERY_CONFIGS.api_version, "kind": RECOVERY_CONFIGS.kind}
            create(RECOVERY_CONFIGS, {**about, "metadata": {"name": "default"}, "spec": CONFIG})
            create(CLUSTER_TRAINING_RUNTIMES, runtime_of(self._shared_runtime))
            for number in range(NAMESPACE_COUNT):
                about = {"apiVersion": RECOVERY_POLICIES.api_version, "kind": RECOVERY_POLICIES.kind}
                policy = {**about, "metadata": {"name": "default", "namespace": f"team-{number}"}, "spec": POLICY}
                create(RECOVERY_POLICIES, policy, namespace=f"team-{number}")

    def _begin_job(self) -> JobPlan:
        self._made += 1
        namespace = f"team-{self._made % NAMESPACE_COUNT}"
        job = JobPlan(namespace, f"llm-{self._made:05}", pods=PODS_PER_JOB, gpus_per_pod=GPUS_PER_POD)
        resource, body = workload_of(job)
        body["spec"]["runtimeRef"] = {"name": f"{self._shared_runtime.namespace}-{self._shared_runtime.name}"}
        with self.cluster.server.acting("user"):
            self.cluster.server.create(resource, body, namespace=namespace)
        self._jobs.append(job)
        return job

    def _delete_job(self, job: JobPlan) -> None:
        with self.cluster.server.acting("user"):
            self.cluster.server.delete(
                TRAIN_JOBS, job.name, namespace=job.namespace, propagation=Propagation.BACKGROUND
            )

    def _pods(self, job: JobPlan) -> list[Body]:
        """Its running pods, in the order of their ranks."""
        pods = [
            pod
            for pod in self.cluster.server.objects(PODS, job.namespace)
            if pod["metadata"]["labels"].get(JOBSET_LABEL) == job.name
            and pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    # What happens.

    async def _every(self, seconds: float, act: Callable[[int], None]) -> None:
        number = 0
        while True:
            await self.clock.sleep(seconds)
            act(number)
            number += 1

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait_and_act() -> None:
            await self.clock.sleep(seconds)
            act()

        self.cluster.start(wait_and_act())

    def _turn_over(self, _: int) -> None:
        """The oldest job finishes, and another one begins."""
        job = self._jobs.popleft()
        names = [str(pod["metadata"]["name"]) for pod in self._pods(job)]
        self.cluster.kubelets.exit_all(names, 0, namespace=job.namespace)
        self._later(KEPT_SECONDS, lambda: self._delete_job(job))
        self._begin_job()

    def _strike(self, number: int) -> None:
        """A failure hits a job. The time of day decides the job's age."""
        failure = FAILURES[number % len(FAILURES)]
        if failure is Failure.USER_ERROR:
            self._begin_broken_job()
            self.struck.append(failure)
            return
        place = random.Random(f"failure {number % FAILURES_PER_DAY}").randrange(1, len(self._jobs) - 1)
        job = self._jobs[place]
        pods = self._pods(job)
        if len(pods) < PODS_PER_JOB:
            return
        self.struck.append(failure)
        pod, node = str(pods[0]["metadata"]["name"]), str(pods[0]["spec"]["nodeName"])
        match failure:
            case Failure.MAINTENANCE:
                with self.cluster.server.acting("user"):
                    self.cluster.server.delete(PODS, pod, namespace=job.namespace)
            case Failure.NODE_POWER:
                self.cluster.kubelets.reset_node(node, REBOOT_SECONDS)
            case Failure.GPU:
                self._say_unhealthy(node, unhealthy=True)
                self._later(REPAIR_SECONDS, lambda: self._say_unhealthy(node, unhealthy=False))
        if failure in EXITS:
            code, message = EXITS[failure]
            reason = "OOMKilled" if failure is Failure.OUT_OF_MEMORY else ""
            self.cluster.kubelets.exit_container(pod, code, reason, message, namespace=job.namespace)

    def _begin_broken_job(self) -> None:
        """Replace the newest job, which its user deletes, by one that crashes after each start."""
        self._delete_job(self._jobs.pop())
        job = self._begin_job()
        self._jobs.pop()
        prefix = f"{job.name}-"
        self.cluster.kubelets.crash_loop(
            prefix, CRASHES_AFTER_SECONDS, 1, "KeyError: 'learning_rate'", namespace=job.namespace
        )

        def give_up() -> None:
            self._delete_job(job)
            self.cluster.kubelets.end_crash_loop(prefix, namespace=job.namespace)
            self._begin_job()

        self._later(GIVEN_UP_SECONDS, give_up)

    def _say_unhealthy(self, node: str, *, unhealthy: bool) -> None:
        """Set the node's condition as a node monitor does."""
        condition = {
            "type": GPU_CONDITION,
            "status": "True" if unhealthy else "False",
            "reason": "XidError" if unhealthy else "NoErrors",
            "lastTransitionTime": timestamp(self.clock.now()),
        }
        with self.cluster.server.acting("monitor"):
            self.cluster.server.patch(
                NODES, node, {"status": {"conditions": [condition]}}, kind=PatchKind.STRATEGIC, subresource="status"
            )

    def _compact(self, _: int) -> None:
        """Compact revisions older than five minutes, as the API server does. Drop the history that only models keep."""
        self.cluster.server.compact(self._compacted_next)
        self._compacted_next = self.cluster.server.revision
        self.cluster.trace.records.clear()

    def _expire_events(self, _: int) -> None:
        """Delete old events, as the API server does."""
        oldest = self.clock.now() - EVENT_TTL
        with self.cluster.server.acting("apiserver"):
            for event in self.cluster.server.objects(EVENTS):
                if datetime.fromisoformat(event["metadata"]["creationTimestamp"]) < oldest:
                    self.cluster.server.delete(
                        EVENTS, event["metadata"]["name"], namespace=event["metadata"]["namespace"]
                    )
