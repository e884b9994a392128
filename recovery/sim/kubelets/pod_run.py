"""The life of one pod on one node.

Three things go on at once. Living: the start, the init containers, the containers and their restarts, and the end of
the native sidecars once no container will run again. Ending: once the pod is being deleted or its object is gone,
nothing more is started, the processes get SIGTERM and, at the end of their grace, SIGKILL. Speaking: whatever state all
this has led to is written to the pod's status, one write at a time, and when the pod is over its object is deleted.
"""

import asyncio
import math
from collections.abc import Iterable

from recovery import api_verbs
from recovery.ports import PODS, NotFoundError, PatchKind
from recovery.sim.kubelets.kubelet_context import Host, KubeletContext, PodStart
from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.pod_faults import Crash
from recovery.sim.kubelets.pod_status import (
    NEVER_RAN,
    ContainerHistory,
    PodCondition,
    PodState,
    Running,
    Terminated,
    Waiting,
    container_id,
    is_sidecar,
    status_patch,
)
from recovery.sim.kubelets.processes import SIGKILL_CODE, ContainerProcess, Exit
from recovery.sim.timers import Timer

MINIMUM_GRACE_SECONDS = 1.0
"""A kubelet gives every process this long, however small a grace was asked for."""

NO_CONTAINERS = "failed to create containerd container: mkdir /var/lib/containerd: no space left on device"

POWER_LOSS = Exit(255, "Unknown", "the node lost power")


class PodRun:
    """One pod, from the moment its kubelet sees it bound until its object is gone and its processes have ended."""

    def __init__(self, pod: Pod, host: Host, context: KubeletContext, start: PodStart) -> None:
        self.pod = pod
        self.start = start
        self.vanished = asyncio.Event()
        """The object is gone from the API server."""
        self._host = host
        self._context = context
        self._accepted_at = context.clock.now()
        self._state = PodState(
            restart_policy=pod.spec.restart_policy,
            containers=[ContainerHistory(spec) for spec in pod.spec.containers],
            init_containers=[ContainerHistory(spec, Waiting("PodInitializing")) for spec in pod.spec.init_containers],
        )
        self._conditions: dict[str, PodCondition] = {}
        self._written: dict[str, object] = {}
        """The status that the server has taken last."""
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._killable = asyncio.Event()
        self._killable.set()
        self._kill_at_seconds = math.inf
        self._kill: Timer | None = None

    # What the kubelet is told.

    def observe(self, pod: Pod) -> None:
        """The object as it is now."""
        self.pod = pod
        if pod.metadata.deletion_timestamp is not None:
            self._end_within(pod.metadata.deletion_grace_period_seconds or 0)

    def vanish(self) -> None:
        """The object is gone, by force if the kubelet did not delete it: the processes are still to be ended."""
        self.vanished.set()
        self._changed.set()
        self._end_within(0)

    def reassert(self) -> None:
        """Write the status again: while the kubelet was not heard, others have marked the pod as not ready."""
        self._written = {}
        self._note()

    def lose_power(self) -> None:
        """All its processes are dead, those that could not be killed too."""
        for process in self.processes():
            process.end(POWER_LOSS)
        self._killable.set()

    def refuse_to_end(self) -> None:
        """From now on neither SIGTERM nor SIGKILL ends its processes and its clean-up hangs, until power is lost."""
        self._killable.clear()

    def processes(self) -> list[ContainerProcess]:
        """Those that run: of the containers, then of the native sidecars."""
        return _running([*self._state.containers, *self._state.sidecars])

    # Living.

    async def run(self) -> None:
        """Returns when the processes have ended after a deletion and the kubelet has done its part with the object."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._speak())
            living = tasks.create_task(self._live())
            await self._ending.wait()
            living.cancel()
            await asyncio.wait([living])
            await self._end_processes()
            for container in (*self._state.init_containers, *self._state.containers):
                if not isinstance(container.state, Terminated):
                    container.state, container.last = container.last or NEVER_RAN, None
            self._state.over = True
            self._note()

    async def _live(self) -> None:
        await self._context.clock.sleep(self.start.seconds)
        async with asyncio.TaskGroup() as tasks:
            sidecars = []
            for container in self._state.init_containers:
                if is_sidecar(container):
                    started = asyncio.Event()
                    sidecars.append(tasks.create_task(self._keep_running(container, started)))
                    await started.wait()
                else:
                    await self._initialize(container)
            containers = [
                tasks.create_task(self._keep_running(container, asyncio.Event()))
                for container in self._state.containers
            ]
            await asyncio.wait(containers)
            for sidecar in sidecars:
                sidecar.cancel()  # none is restarted any more
        await self._leave_sidecars()

    async def _leave_sidecars(self) -> None:
        """No container will run again: the kubelet ends the pod, which goes on running until its sidecars have left."""
        if not _running(self._state.sidecars):
            return
        grace_seconds = max(MINIMUM_GRACE_SECONDS, self.pod.spec.termination_grace_period_seconds)
        self._kill_within(grace_seconds)
        await self._end_sidecars()

    async def _initialize(self, container: ContainerHistory) -> None:
        """Init containers run one after another and succeed: what they do is not modelled."""
        await self._host.powered.wait()
        started_at = self._context.clock.now()
        container.state = Running(started_at)
        self._note()
        await self._context.clock.sleep(self._context.settings.init_container_seconds)
        container.state = Terminated(Exit(0), started_at=started_at, finished_at=self._context.clock.now())
        container.ready = True
        self._note()

    async def _keep_running(self, container: ContainerHistory, started: asyncio.Event) -> None:
        """Sets `started` each time that it runs. Returns when it has ended for good."""
        settings = self._context.settings
        clock = self._context.clock
        back_off_seconds = 0.0
        while True:
            await self._host.powered.wait()
            if self._ending.is_set():
                return  # Learned in the same instant as the power came back.
            missing = self._context.faults.missing_images.get(container.spec.image)
            if missing and container.process is None:
                await self._wait_for_image(container, missing)
                continue
            if not self._host.runtime.is_set():
                await self._wait_for_runtime(container)
                continue
            started_seconds = clock.monotonic_seconds()
            process = self._start(container)
            started.set()
            await process.exited.wait()
            if self._state.finished(container):
                return
            if clock.monotonic_seconds() - started_seconds > 2 * settings.longest_back_off_seconds:
                back_off_seconds = 0.0
            await self._wait_to_restart(container, back_off_seconds)
            back_off_seconds = min(
                max(settings.back_off_seconds, 2 * back_off_seconds), settings.longest_back_off_seconds
            )

    async def _wait_for_image(self, container: ContainerHistory, there: asyncio.Event) -> None:
        """The kubelet alternates between ErrImagePull and this; the one that stays is told."""
        container.state = Waiting("ImagePullBackOff", f'Back-off pulling image "{container.spec.image}"')
        self._note()
        await there.wait()

    async def _wait_for_runtime(self, container: ContainerHistory) -> None:
        """The kubelet tries again and again (kuberuntime_container.go `startContainer`)."""
        if isinstance(container.state, Terminated):
            container.last = container.state
        container.state = Waiting("CreateContainerError", NO_CONTAINERS)
        self._note()
        await self._host.runtime.wait()

    async def _wait_to_restart(self, container: ContainerHistory, back_off_seconds: float) -> None:
        if back_off_seconds == 0.0:
            await self._context.clock.sleep(self._context.settings.restart_seconds)
            return
        assert isinstance(container.state, Terminated)
        container.last = container.state
        where = f"container={container.spec.name} pod={self.pod.name}_{self.pod.metadata.namespace}({self.pod.uid})"
        message = f"back-off {back_off_seconds:g}s restarting failed {where}"
        container.state = Waiting("CrashLoopBackOff", message)
        self._note()
        await self._context.clock.sleep(back_off_seconds)

    def _start(self, container: ContainerHistory) -> ContainerProcess:
        if isinstance(container.state, Terminated):
            container.last = container.state
        process = ContainerProcess(
            self.pod,
            container.spec,
            self._host.name,
            container.restarts + 1 if container.process else 0,
            answers=lambda process: self._answers_probe(container, process),
            ended=lambda process: self._ended(container, process),
        )
        container.process = process
        container.state = Running(self._context.clock.now())
        unprobed = container.spec.readiness_probe is None
        container.ready = unprobed and self.start.ready_seconds == 0
        if unprobed and not container.ready:
            self._context.timers.after(self.start.ready_seconds, lambda: self._become_ready(container, process))
        self._note()
        self._context.workload.process_started(process)
        crash = self._context.faults.crash(self.pod)
        if crash and crash.container in {"", container.spec.name}:
            self._context.timers.after(crash.seconds, lambda: self._crash(process, crash))
        return process

    def _crash(self, process: ContainerProcess, crash: Crash) -> None:
        if self._context.faults.crash(self.pod) is crash:  # Else the loop has ended meanwhile.
            process.end(crash.exit)

    def _answers_probe(self, container: ContainerHistory, process: ContainerProcess) -> None:
        """The next run of the probe finds it; the first was at the start of the container."""
        probe = container.spec.readiness_probe
        if probe is None:
            return
        assert isinstance(container.state, Running)
        ran_seconds = (self._context.clock.now() - container.state.started_at).total_seconds()
        probed_seconds = math.ceil(ran_seconds / probe.period_seconds) * probe.period_seconds
        left_seconds = max(probed_seconds, self.start.ready_seconds) - ran_seconds
        self._context.timers.after(left_seconds, lambda: self._become_ready(container, process))

    def _become_ready(self, container: ContainerHistory, process: ContainerProcess) -> None:
        if container.process is process and process.exit is None:
            container.ready = True
            self._note()

    def _ended(self, container: ContainerHistory, process: ContainerProcess) -> None:
        assert isinstance(container.state, Running)
        assert process.exit is not None
        container.state = Terminated(
            process.exit, container_id(process), container.state.started_at, self._context.clock.now()
        )
        container.ready = False
        self._note()
        self._context.workload.process_exited(process)

    # Ending.

    def _end_within(self, grace_seconds: float) -> None:
        """The first grace holds: `SyncTerminatingPod` hears of no shorter one (kubelet.go, kubernetes#113606)."""
        if self._state.over or self._ending.is_set():
            return
        self._kill_within(max(MINIMUM_GRACE_SECONDS, grace_seconds))
        self._ending.set()

    def _kill_within(self, seconds: float) -> None:
        kill_at_seconds = self._context.clock.monotonic_seconds() + seconds
        if kill_at_seconds >= self._kill_at_seconds:
            return
        self._kill_at_seconds = kill_at_seconds
        if self._kill:
            self._kill.cancel()
        self._kill = self._context.timers.after(seconds, self._kill_processes)

    def _kill_processes(self) -> None:
        if self._killable.is_set():
            for process in self.processes():
                process.end(Exit(SIGKILL_CODE))

    async def _end_processes(self) -> None:
        await self._end(_running(self._state.containers))
        await self._end_sidecars()
        await self._killable.wait()
        if self._kill:
            self._kill.cancel()

    async def _end_sidecars(self) -> None:
        """One after the other, the last one first (kuberuntime_termination_order.go)."""
        for sidecar in reversed(self._state.sidecars):
            await self._end(_running([sidecar]))

    async def _end(self, processes: list[ContainerProcess]) -> None:
        if self._killable.is_set():
            for process in processes:
                self._context.workload.process_termed(process)
        for process in processes:
            await process.exited.wait()

    # Speaking.

    def _note(self) -> None:
        """The state has changed: date what that changes in the conditions, and have it written."""
        self._conditions = self._state.conditions(self._conditions, self._context.clock.now())
        self._changed.set()

    async def _speak(self) -> None:
        writes = self._context.writes
        while not self.vanished.is_set():
            await self._changed.wait()
            self._changed.clear()
            over = self._state.over
            await writes.until_applied(self._host.connected, self._write_status)
            if over:
                await writes.until_applied(self._host.connected, self._delete)
                return

    async def _write_status(self) -> None:
        status = status_patch(
            state=self._state,
            conditions=self._conditions,
            start_time=self._accepted_at,
            pod_ip=self.start.ip,
            host_ip=self._host.ip,
        )
        if self.vanished.is_set() or status == self._written:
            return
        metadata = self.pod.metadata
        await api_verbs.patch(
            self._context.api,
            PODS,
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": status},
            kind=PatchKind.STRATEGIC,
            namespace=metadata.namespace,
            subresource="status",
        )
        self._written = status

    async def _delete(self) -> None:
        # Deleted with no grace already: the object waits for finalizers, which are others' business.
        if self.vanished.is_set() or self.pod.metadata.deletion_grace_period_seconds == 0:
            return
        metadata = self.pod.metadata
        try:
            await api_verbs.delete(
                self._context.api, PODS, metadata.name, namespace=metadata.namespace, uid=metadata.uid, grace_seconds=0
            )
        except NotFoundError:
            return


def _running(containers: Iterable[ContainerHistory]) -> list[ContainerProcess]:
    latest = (container.process for container in containers)
    return [process for process in latest if process and process.exit is None]
