"""The life of one pod on one node.

Three activities run concurrently. Living: the start, the init containers, the containers and their restarts, and the
end of the native sidecars when no container will run again. Ending: when the pod is being deleted or its object is
gone, nothing more is started, and the processes get SIGTERM and at the end of their grace period SIGKILL. Speaking: the
resulting state is written to the pod's status, one write at a time, and the object is deleted when the pod has ended.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence

from recovery import api_verbs
from recovery.ports import PODS, NotFoundError, PatchKind
from recovery.sim.api.metadata import grace_of
from recovery.sim.kubelets.kubelet_context import Host, KubeletContext, PodStart
from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.pod_faults import Crash
from recovery.sim.kubelets.pod_status import (
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
from recovery.sim.timers import SAME_INSTANT_SECONDS

LEAST_GRACE_SECONDS = 1.0
"""Minimum grace period of a pod (pod_workers.go `calculateEffectiveGracePeriod`)."""
LEAST_WINDOW_SECONDS = 2.0
"""Minimum time from SIGTERM to SIGKILL (kuberuntime_manager.go `minimumGracePeriodInSeconds`)."""

RESYNC_SECONDS = 60.0
"""A kubelet syncs each pod at least this often."""

NO_CONTAINERS = "failed to create containerd container: mkdir /var/lib/containerd: no space left on device"

POWER_LOSS = Exit(255, "Unknown", "the node lost power")


class PodRun:
    """One pod, from when its kubelet sees it bound until its object is gone and its processes have ended."""

    def __init__(self, pod: Pod, host: Host, context: KubeletContext, start: PodStart) -> None:
        self.pod = pod
        self.start = start
        self.vanished = asyncio.Event()
        """Set when the object is gone from the API server."""
        self._host = host
        self._context = context
        self._accepted_at = context.clock.now()
        first = Waiting("PodInitializing" if pod.spec.init_containers else "ContainerCreating")
        self._state = PodState(
            restart_policy=pod.spec.restart_policy,
            containers=[ContainerHistory(spec, first) for spec in pod.spec.containers],
            init_containers=[
                ContainerHistory(spec, first, initializes=spec.restart_policy != "Always")
                for spec in pod.spec.init_containers
            ],
        )
        self._conditions: dict[str, PodCondition] = {}
        self._written: dict[str, object] = {}
        """The status of the last successful write."""
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._killable = asyncio.Event()
        self._killable.set()
        self._grace_seconds = LEAST_GRACE_SECONDS
        """Grace period of the deletion."""
        self._leaving = False
        """The pod ends by itself: its remaining native sidecars are being ended."""
        self._is_busy = False
        """The kubelet is ending processes and waits for them."""

    # Changes of the object.

    def observe(self, pod: Pod) -> None:
        """Take over the object's current state."""
        self.pod = pod
        if pod.metadata.deletion_timestamp is not None:
            self._end_within(pod.metadata.deletion_grace_period_seconds or 0)

    def vanish(self) -> None:
        """The object is gone, by a forced delete unless the kubelet deleted it. The processes must still be ended.

        If the kubelet was cut off and saw no deletion before, it uses the grace period of the pod's spec.
        """
        self.vanished.set()
        self._changed.set()
        self._end_within(self.pod.spec.termination_grace_period_seconds)

    def reassert(self) -> None:
        """Write the status again: while the kubelet was silent, the pod was marked as not ready."""
        self._written = {}
        self._note()

    def lose_power(self) -> None:
        """End all its processes, even those that could not be killed."""
        for process in self.processes():
            process.end(POWER_LOSS)
        self._killable.set()

    def refuse_to_end(self) -> None:
        """From now on neither SIGTERM nor SIGKILL ends its processes, and its cleanup hangs, until power is lost."""
        self._killable.clear()

    def processes(self) -> list[ContainerProcess]:
        """The running processes: of the containers, then of the native sidecars, then of the init containers."""
        return _running([*self._state.containers, *self._state.sidecars, *self._initializing])

    @property
    def _initializing(self) -> list[ContainerHistory]:
        return [container for container in self._state.init_containers if container.initializes]

    # Living.

    async def run(self) -> None:
        """Run the pod until its processes have ended after a deletion and the kubelet is done with the object."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._speak())
            living = tasks.create_task(self._live())
            await self._ending.wait()
            if not self._leaving:
                living.cancel()
            # A kubelet does one step at a time with a pod: if it is already ending processes, their grace stays.
            await asyncio.wait([living])
            initialized = self._state.initialized()
            await self._end_processes(self._grace_seconds)
            await self._killable.wait()
            self._state.end(initialized=initialized)
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
                    await self._keep_running(container, asyncio.Event())
                    if self._state.failed_to_initialize:
                        break
            if not self._state.failed_to_initialize:
                await asyncio.wait(
                    [
                        tasks.create_task(self._keep_running(container, asyncio.Event()))
                        for container in self._state.containers
                    ]
                )
            for sidecar in sidecars:
                sidecar.cancel()  # sidecars are not restarted any more
        await self._leave_sidecars()

    async def _leave_sidecars(self) -> None:
        """No container will run again, so the kubelet ends the pod. It stays Running until its sidecars have ended."""
        self._leaving = True
        await self._end_processes(self.pod.spec.termination_grace_period_seconds)

    async def _keep_running(self, container: ContainerHistory, started: asyncio.Event) -> None:
        """Run a container and restart it. Sets `started` at each start. Returns when it will not be restarted."""
        settings = self._context.settings
        clock = self._context.clock
        back_off_seconds = 0.0
        while True:
            await self._host.powered.wait()
            if self._ending.is_set():
                return  # The deletion was seen at the instant when power returned.
            missing = self._missing_image(container)
            if missing is not None and container.process is None:
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

    def _missing_image(self, container: ContainerHistory) -> str | None:
        """The first of the container's images that no registry has. None: there are all of them."""
        images = self.pod.spec.images_of(container.spec)
        return next((image for image in images if image in self._context.faults.missing_images), None)

    async def _wait_for_image(self, container: ContainerHistory, image: str) -> None:
        """A kubelet alternates between ErrImagePull and ImagePullBackOff. Only the longer-lasting one is reported.

        For the image of a volume it says the same (kuberuntime_manager.go `toKubeContainerImageVolumes`).
        """
        container.state = Waiting("ImagePullBackOff", f'Back-off pulling image "{image}"')
        self._note()
        await self._context.faults.missing_images[image].wait()

    async def _wait_for_runtime(self, container: ContainerHistory) -> None:
        """A kubelet retries without end (kuberuntime_container.go `startContainer`)."""
        if isinstance(container.state, Terminated):
            container.last = container.state
        container.state = Waiting("CreateContainerError", NO_CONTAINERS)
        self._note()
        await self._host.runtime.wait()

    async def _wait_to_restart(self, container: ContainerHistory, back_off_seconds: float) -> None:
        """Wait for the backoff. The state stays Terminated until the next sync of the pod, at most for the backoff.

        Source: kuberuntime_manager.go `doBackOff`, pod_workers.go `completeWork`, `reasonCache` in kubelet_pods.go.
        """
        clock, settings = self._context.clock, self._context.settings
        delay_seconds = self._context.faults.restart_delay_seconds(self.pod)
        if back_off_seconds > 0.0:
            where = f"container={container.spec.name} pod={self.pod.name}_{self.pod.metadata.namespace}({self.pod.uid})"
            message = f"back-off {back_off_seconds:g}s restarting failed {where}"
            container.back_off = Waiting("CrashLoopBackOff", message)
            unseen_seconds = min(back_off_seconds, RESYNC_SECONDS)
            await clock.sleep(unseen_seconds)
            self._look()
            self._note()
            await clock.sleep(back_off_seconds - unseen_seconds)
        await clock.sleep(settings.restart_seconds + delay_seconds)

    def _look(self) -> None:
        """The kubelet syncs the whole pod: containers that wait for their backoff report it from now on."""
        for container in (*self._state.init_containers, *self._state.containers):
            container.waits = container.back_off is not None

    def _start(self, container: ContainerHistory) -> ContainerProcess:
        if isinstance(container.state, Terminated):
            container.last = container.state
        container.back_off, container.waits = None, False
        self._look()
        process = ContainerProcess(
            self.pod,
            container.spec,
            self._host.name,
            container.restarts + 1 if container.process else 0,
            pod_ip=self.start.ip,
            host_ip=self._host.ip,
            answers=lambda process: self._answers_probe(container, process),
            ended=lambda process: self._ended(container, process),
        )
        container.process = process
        container.state = Running(self._context.clock.now())
        unprobed = container.spec.readiness_probe is None and not container.initializes
        container.ready = unprobed and self.start.ready_seconds == 0
        if unprobed and not container.ready:
            self._context.timers.after(self.start.ready_seconds, lambda: self._become_ready(container, process))
        self._note()
        self._context.workload.process_started(process)
        if container.initializes and self._context.settings.init_container_seconds is not None:
            self._context.timers.after(self._context.settings.init_container_seconds, lambda: process.end(Exit(0)))
        crash = self._context.faults.crash(self.pod)
        if crash and crash.container in ({container.spec.name} if container.initializes else {"", container.spec.name}):
            self._context.timers.after(crash.seconds, lambda: self._crash(process, crash))
        return process

    def _crash(self, process: ContainerProcess, crash: Crash) -> None:
        if self._context.faults.crash(self.pod) is crash:  # Otherwise the crash loop has ended.
            process.end(crash.exit)

    def _answers_probe(self, container: ContainerHistory, process: ContainerProcess) -> None:
        """The next run of the probe succeeds. Its runs are counted from the start of the container."""
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
        self._look()
        container.state = Terminated(
            process.exit, container_id(process), container.state.started_at, self._context.clock.now()
        )
        container.ready = container.initializes and process.exit.code == 0
        if not self._is_busy:
            self._note()
        self._context.workload.process_exited(process)

    # Ending.

    def _end_within(self, grace_seconds: float) -> None:
        """The first grace period stays: `SyncTerminatingPod` sees no shorter one (kubelet.go, kubernetes#113606)."""
        if self._state.over or self._ending.is_set():
            return
        self._grace_seconds = max(LEAST_GRACE_SECONDS, grace_seconds)
        self._ending.set()

    async def _end_processes(self, grace_seconds: float) -> None:
        """End all containers together, then native sidecars in reverse order (kuberuntime_termination_order.go).

        Until all have ended the kubelet does not sync the pod, so it reports no end (pod_workers.go `podWorkerLoop`).
        """
        self._is_busy = True
        async with asyncio.TaskGroup() as tasks:
            before = [
                tasks.create_task(self._end(process, grace_seconds))
                for process in _running([*self._state.containers, *self._initializing])
            ]
            for process in _running(reversed(self._state.sidecars)):
                before = [*before, tasks.create_task(self._end_in_turn(process, grace_seconds, before))]
        self._is_busy = False
        self._note()

    async def _end_in_turn(
        self, process: ContainerProcess, grace_seconds: float, before: Sequence[asyncio.Task[None]]
    ) -> None:
        """End a process after those in `before`, or when the grace is over. It gets the rest, in whole seconds."""
        began_seconds = self._context.clock.monotonic_seconds()
        if before:
            await asyncio.wait(before, timeout=grace_seconds)
        waited_seconds = self._context.clock.monotonic_seconds() - began_seconds + SAME_INSTANT_SECONDS
        await self._end(process, grace_seconds - math.floor(waited_seconds))

    async def _end(self, process: ContainerProcess, grace_seconds: float) -> None:
        window_seconds = grace_of(int(max(LEAST_WINDOW_SECONDS, grace_seconds))).total_seconds()
        # If the grace wraps to zero or less, the process gets no SIGTERM (containerd's container_stop.go).
        if self._killable.is_set() and window_seconds > 0:
            self._context.workload.process_termed(process)
        kill = self._context.timers.after(window_seconds, lambda: self._kill(process))
        await process.exited.wait()
        kill.cancel()

    def _kill(self, process: ContainerProcess) -> None:
        if self._killable.is_set():
            process.end(Exit(SIGKILL_CODE))

    # Speaking.

    def _note(self) -> None:
        """The state has changed: update the conditions with their times, and request a status write."""
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
        # It is already deleted with grace 0: the object only waits for finalizers of other components.
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
