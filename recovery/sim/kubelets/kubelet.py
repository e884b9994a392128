"""The kubelets of many nodes, and the faults of nodes and pods.

One object drives all of them, with one watch, one limit on the writes in flight and one task group. So `run` raises any
error of the model. The workload decides what the containers do.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.ports import NODES, ApiClient, Clock, Entropy, ReadAgainError, TryLaterError
from recovery.sim.kubelets.kubelet_context import Host, KubeletContext, KubeletSettings, PodStart
from recovery.sim.kubelets.node_run import NodeDeath, NodeRun, NodeSpec
from recovery.sim.kubelets.objects import Node, Pod
from recovery.sim.kubelets.pod_faults import Crash, PodFaults
from recovery.sim.kubelets.pod_run import PodRun
from recovery.sim.kubelets.pod_watch import PodWatch
from recovery.sim.kubelets.processes import Exit, Workload
from recovery.sim.kubelets.retried_writes import Writes
from recovery.sim.timers import Timers

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
TAINT_POLL_SECONDS = 0.25


class Kubelets:
    """Adds, removes, kills and revives nodes, and injects faults into pods. Everything happens while `run` is running.

    Pods are identified by namespace and name. If a name was reused, it means the newest pod. `LookupError` means that
    there is no such node, pod or process. Pods that were running before `run` started begin from scratch.
    """

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        entropy: Entropy,
        workload: Workload,
        settings: KubeletSettings | None = None,
    ) -> None:
        settings = settings or KubeletSettings()
        self._timers = Timers(clock)
        self._context = KubeletContext(
            api,
            clock,
            entropy,
            self._timers,
            Writes(clock, settings.writes_in_flight),
            workload,
            settings,
            PodFaults(),
        )
        self._watch = PodWatch(api, clock, self._pod_changed, self._pod_gone)
        self._nodes: dict[str, NodeRun] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._nodes_made = 0
        self._pods_made = 0

    async def run(self) -> None:
        """Run until cancelled. Raises an exception group with permanent errors of a write or of the watch."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._timers.run())
            self._tasks.create_task(self._context.workload.run())
            self._tasks.create_task(self._watch.run())
            for node in self._nodes.values():
                node.start()

    # Nodes.

    def add_node(self, spec: NodeSpec) -> None:
        """Add a machine to the cluster. Pods that are already bound to its name start."""
        if spec.name in self._nodes:
            raise LookupError(f"there is a node {spec.name} already")
        self._nodes_made += 1
        high, low = divmod(self._nodes_made, 250)
        host = Host(spec.name, f"172.16.{high}.{low + 1}")
        node = NodeRun(spec, host, self._context, self._spawn, self._start_of)
        self._nodes[spec.name] = node
        for pod in self._watch.on_node(spec.name):
            node.pod_changed(pod)
        if self._tasks:
            node.start()

    async def remove_node(self, name: str) -> None:
        """Remove the machine permanently: its processes die, its Node and Lease are deleted, its pods stay."""
        node = self._node(name)
        del self._nodes[name]
        await node.remove()

    async def nodes_ready(self) -> None:
        """Wait until every node added so far has its Node and Lease, and has no `not-ready` taint any more.

        A controller-manager with stock limits needs 28 s to remove the `not-ready` taints from 128 new nodes. Pods that
        the scheduler cannot place before that are delayed by its backoff.
        """
        for name, node in list(self._nodes.items()):
            await node.registered.wait()
            while await self._tainted(name):
                await self._context.clock.sleep(TAINT_POLL_SECONDS)

    def renewed_seconds(self, name: str) -> float | None:
        """When the node last renewed its Lease, in the clock's monotonic time. None: never, or no such node exists."""
        node = self._nodes.get(name)
        return node.renewed_seconds() if node else None

    def kill_node(self, name: str, how: NodeDeath) -> None:
        """The node's kubelet falls silent: it sends no heartbeats or status and sees no changes. No object changes."""
        self._node(name).lose(how)

    def revive_node(self, name: str) -> None:
        """The node returns and handles missed changes. After a power loss it restarts containers by their policy."""
        self._node(name).start()

    def reset_node(self, name: str, seconds: float) -> None:
        """Power-cycle the node: all its processes die. It returns after `seconds`, unless it was removed."""
        node = self._node(name)
        node.lose(NodeDeath.POWER_LOSS)

        def boot() -> None:
            if self._nodes.get(name) is node and not node.connected:
                node.start()

        self._timers.after(seconds, boot)

    def refuse_devices(self, name: str, refused: bool) -> None:
        """Its device plugin has no healthy device: each pod bound to the node meanwhile fails at admission."""
        self._node(name).refuses_devices = refused

    def break_runtime(self, name: str, broken: bool) -> None:
        """Its disk is full: no container is created, in old or new pods. Running containers continue."""
        self._node(name).break_runtime(broken)

    # Faults of pods.

    def exit_container(  # the parts of a termination, as in `state.terminated`
        self,
        pod: str,
        code: int,
        reason: str = "",
        message: str = "",
        *,
        namespace: str = "default",
        container: str = "",
    ) -> None:
        """End a running process of the pod. `container` empty: the first running one, native sidecars last."""
        running = self._pod(namespace, pod).processes()
        process = next((process for process in running if container in {"", process.container.name}), None)
        if process is None:
            raise LookupError(f"no process runs in pod {namespace}/{pod} {container}".rstrip())
        process.end(Exit(code, reason, message))

    def exit_all(  # the parts of a termination, as in `state.terminated`
        self,
        pods: Iterable[str],
        code: int,
        reason: str = "",
        message: str = "",
        *,
        namespace: str = "default",
        container: str = "",
    ) -> list[str]:
        """End these processes of the pods at the same instant. `container` empty: all running processes.

        Returns the names of the pods in which a process was ended.
        """
        newest = {run.pod.name: run for run in self._runs() if run.pod.metadata.namespace == namespace}
        struck = []
        for name in pods:
            running = newest[name].processes() if name in newest else []
            running = [process for process in running if container in {"", process.container.name}]
            for process in running:
                process.end(Exit(code, reason, message))
            if running:
                struck.append(name)
        return struck

    def stuck_termination(self, pod: str, *, namespace: str = "default") -> None:
        """The pod's processes ignore every signal, so it never finishes terminating until its node loses power."""
        self._pod(namespace, pod).refuse_to_end()

    def delay_start(self, name_prefix: str, seconds: float, *, namespace: str = "default") -> None:
        """New pods with this name prefix take so much longer to start. 0 removes the fault."""
        self._context.faults.start_delays_seconds[namespace, name_prefix] = seconds

    def delay_ready(self, name_prefix: str, seconds: float, *, namespace: str = "default") -> None:
        """New pods with this name prefix run for so much longer before they are ready. 0 removes the fault."""
        self._context.faults.ready_delays_seconds[namespace, name_prefix] = seconds

    def delay_restart(self, name_prefix: str, seconds: float, *, namespace: str = "default") -> None:
        """Containers that end in pods with this name prefix take so much longer to restart. 0 removes the fault."""
        self._context.faults.restart_delays_seconds[namespace, name_prefix] = seconds

    def crash_loop(
        self,
        name_prefix: str,
        seconds: float,
        code: int,
        message: str = "",
        *,
        namespace: str = "default",
        container: str = "",
    ) -> None:
        """From now on each process that starts in a pod with this name prefix exits `seconds` after its start.

        `container` empty: the processes of all containers.
        """
        crash = Crash(seconds, Exit(code, message=message), container)
        self._context.faults.crashes[namespace, name_prefix] = crash

    def end_crash_loop(self, name_prefix: str, *, namespace: str = "default") -> None:
        """End the crash loop: the current process does not crash any more. No effect without a crash loop."""
        self._context.faults.crashes.pop((namespace, name_prefix), None)

    def withhold_image(self, image: str) -> None:
        """No registry has the image: a container that needs it, or mounts it, and has not yet run in its pod does not
        start."""
        self._context.faults.missing_images.setdefault(image, asyncio.Event())

    def provide_image(self, image: str) -> None:
        """The image is available: waiting containers start. No effect on an image that was not withheld."""
        missing = self._context.faults.missing_images.pop(image, None)
        if missing:
            missing.set()

    # Internals.

    async def _tainted(self, name: str) -> bool:
        try:
            body = await api_verbs.get(self._context.api, NODES, name)
        except (ReadAgainError, TryLaterError):
            return True  # Unknown: read again.
        taints = msgspec.json.decode(body, type=Node).spec.taints
        return any(taint.key == NOT_READY_TAINT for taint in taints)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None, "nodes work while run() is under way"
        return self._tasks.create_task(work)

    def _node(self, name: str) -> NodeRun:
        if name not in self._nodes:
            raise LookupError(f"there is no node {name}")
        return self._nodes[name]

    def _pod(self, namespace: str, name: str) -> PodRun:
        found = [run for run in self._runs() if (run.pod.metadata.namespace, run.pod.name) == (namespace, name)]
        if not found:
            raise LookupError(f"no kubelet has a pod {namespace}/{name}")
        return found[-1]

    def _runs(self) -> list[PodRun]:
        """All pods, the newest last."""
        runs = [run for node in self._nodes.values() for run in node.runs.values()]
        return sorted(runs, key=lambda run: run.start.serial)

    def _start_of(self, pod: Pod) -> PodStart:
        self._pods_made += 1
        start_seconds = self._context.entropy.uniform(*self._context.settings.start_seconds)
        start_seconds += self._context.faults.start_delay_seconds(pod)
        ready_seconds = self._context.settings.ready_seconds + self._context.faults.ready_delay_seconds(pod)
        high, rest = divmod(self._pods_made, 62_500)
        middle, low = divmod(rest, 250)
        return PodStart(self._pods_made, f"10.{high}.{middle}.{low + 1}", start_seconds, ready_seconds)

    def _pod_changed(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name)
        if node:
            node.pod_changed(pod)

    def _pod_gone(self, pod: Pod) -> None:
        node = self._nodes.get(pod.spec.node_name)
        if node:
            node.pod_gone(pod.uid)
