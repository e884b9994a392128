"""The status of a pod as a kubelet writes it: pure functions from container states to the status.

The only memory between two writes is when each condition last changed. So a lost write does no harm, because the next
one contains everything. The patch is a strategic merge, which merges conditions by type: PodScheduled and
DisruptionTarget belong to other components and stay as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter

from recovery.sim.kubelets.objects import TERMINAL_PHASES, PodContainer
from recovery.sim.kubelets.processes import SIGKILL_CODE, ContainerProcess, Exit

IMAGE_DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    started_at: datetime


@dataclass(frozen=True)
class Terminated:
    exit: Exit
    container_id: str = ""
    """Empty: the container never ran."""
    started_at: datetime | None = None
    finished_at: datetime | None = None


ContainerState = Waiting | Running | Terminated


@dataclass
class ContainerHistory:
    """A container of a pod with its history: the present state and the previous run."""

    spec: PodContainer
    state: ContainerState
    last: Terminated | None = None
    """How the previous run ended. None: there was none."""
    ready: bool = False
    process: ContainerProcess | None = None
    """The latest process. None: the container never started."""
    back_off: Waiting | None = None
    """The backoff before its restart. None: it is not in backoff."""
    waits: bool = False
    """Its status reports the backoff, because the kubelet has synced the pod since."""
    initializes: bool = False
    """It is a plain init container: the next container waits until it has succeeded."""

    @property
    def restarts(self) -> int:
        return self.process.restart_count if self.process else 0


@dataclass(frozen=True)
class PodCondition:
    """A condition that a kubelet sets on a pod. `since` is when its status last changed."""

    status: bool
    since: datetime
    reason: str = ""
    message: str = ""


@dataclass
class PodState:
    """Everything that determines a pod's status."""

    restart_policy: str
    containers: Sequence[ContainerHistory]
    init_containers: Sequence[ContainerHistory]
    """The init containers in the order of the spec, with the native sidecars."""
    over: bool = False
    """The pod was deleted and its processes have ended. The kubelet starts no more containers of it."""
    cut_short: bool = False
    """The pod was over before all its containers had started."""

    @property
    def sidecars(self) -> list[ContainerHistory]:
        """The native sidecars: init containers that run beside the containers."""
        return [container for container in self.init_containers if is_sidecar(container)]

    @property
    def phase(self) -> str:
        """Running while any container or native sidecar runs or will run again: `getPhase` in kubelet_pods.go."""
        if not self.over:
            if self.failed_to_initialize:
                # The pod fails only when none of its containers runs any more (status_manager.go `mergePodStatus`).
                return "Pending" if any(isinstance(each.state, Running) for each in self.sidecars) else "Failed"
            if not all(is_sidecar(container) or _exit_code(container) == 0 for container in self.init_containers):
                return "Pending"
            if any(map(_never_ran, (*self.sidecars, *self.containers))):
                return "Pending"
            if not all(self.finished(container) for container in self.containers):
                return "Running"
            if any(isinstance(container.state, Running) for container in self.sidecars):
                return "Running"
        return "Succeeded" if all(_exit_code(container) == 0 for container in self.containers) else "Failed"

    @property
    def failed_to_initialize(self) -> bool:
        """An init container has failed and is not restarted, so no container will ever start."""
        return any(
            container.initializes and self.finished(container) and _exit_code(container) != 0
            for container in self.init_containers
        )

    def end(self, *, initialized: bool) -> None:
        """No container runs any more. Those that the pod had reached but never ran are reported as killed.

        Source: status_manager.go `TerminatePod`. `initialized`: the pod was initialized when its end began.
        """
        self.cut_short = not self.failed_to_initialize and any(map(_never_ran, (*self.sidecars, *self.containers)))
        started = [number for number, each in enumerate(self.init_containers) if each.process]
        reached = [*self.init_containers[: max(started, default=0) + 1]]
        if initialized:
            reached += self.containers
        for container in reached:
            if not isinstance(container.state, Terminated):
                container.state, container.last = container.last or NEVER_RAN, None
        for container in (*self.init_containers, *self.containers):
            container.back_off, container.waits = None, False
        self.over = True

    def finished(self, container: ContainerHistory) -> bool:
        """The container ended and its restart policy does not restart it."""
        code = _exit_code(container)
        if container.initializes and code == 0:
            return True
        return code is not None and not container.spec.restarts(self.restart_policy, code)

    def initialized(self) -> bool:
        """The pod is initialized. After a container has started, a restarting sidecar does not matter (generate.go)."""
        if any(container.process for container in self.containers):
            return True
        return all(
            isinstance(container.state, Running) if is_sidecar(container) else _exit_code(container) == 0
            for container in self.init_containers
        )

    def conditions(self, before: Mapping[str, PodCondition], now: datetime) -> dict[str, PodCondition]:
        """The conditions by type. A condition whose status is the same as `before` keeps its `since`."""
        initialized = self.initialized()
        phase = self.phase
        unready = [container.spec.name for container in (*self.sidecars, *self.containers) if not container.ready]
        ready = not unready and phase not in TERMINAL_PHASES
        message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
        reason = "ContainersNotReady" if unready else ""
        match phase:
            case "Succeeded":
                reason, message = "PodCompleted", ""
            case "Failed" if not self.cut_short:
                reason, message = "PodFailed", ""
            case "Pending" if self.failed_to_initialize:
                reason, message = "PodFailed", ""
        uninitialized = "" if initialized else "ContainersNotInitialized"
        if phase == "Succeeded":
            uninitialized = "PodCompleted"  # This is the only reason on a condition that is True.
        sandbox = any(container.process for container in (*self.init_containers, *self.containers))
        said = {
            "PodReadyToStartContainers": (sandbox and phase not in TERMINAL_PHASES, "", ""),
            "Initialized": (initialized, uninitialized, ""),
            "ContainersReady": (ready, reason, message),
            "Ready": (ready, reason, message),
        }
        after = {}
        for kind, (status, why, text) in said.items():
            known = before.get(kind)
            since = known.since if known and known.status == status else now
            after[kind] = PodCondition(status, since, why, text)
        return after


def is_sidecar(container: ContainerHistory) -> bool:
    """Whether an init container is a native sidecar."""
    return container.spec.restart_policy == "Always"


def _never_ran(container: ContainerHistory) -> bool:
    return isinstance(container.state, Waiting) and container.process is None


def _exit_code(container: ContainerHistory) -> int | None:
    """The exit code. None: the container has not ended."""
    return container.state.exit.code if isinstance(container.state, Terminated) else None


NEVER_RAN = Terminated(
    Exit(SIGKILL_CODE, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")
)


def timestamp(moment: datetime) -> str:
    """The moment in the format of `metav1.Time`: whole seconds, UTC."""
    return moment.isoformat(timespec="seconds")[: -len("+00:00")] + "Z"


def container_id(process: ContainerProcess) -> str:
    return f"containerd://{process.pod.uid}-{process.container.name}-{process.restart_count}"


def status_patch(
    *, state: PodState, conditions: Mapping[str, PodCondition], start_time: datetime, pod_ip: str, host_ip: str
) -> dict[str, object]:
    """`status` for a strategic merge patch."""
    status: dict[str, object] = {
        "phase": state.phase,
        "startTime": timestamp(start_time),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": [_condition_body(kind, condition) for kind, condition in conditions.items()],
        # Init containers stay in the order of the spec (kubelet_pods.go `convertToAPIContainerStatuses`).
        "containerStatuses": sorted(map(_container_body, state.containers), key=itemgetter("name")),
    }
    if state.init_containers:
        status["initContainerStatuses"] = [_container_body(container) for container in state.init_containers]
    return status


def _condition_body(kind: str, condition: PodCondition) -> dict[str, object]:
    # An explicit null removes the earlier reason. Without it, the patch would keep that reason.
    return {
        "type": kind,
        "status": "True" if condition.status else "False",
        "reason": condition.reason or None,
        "message": condition.message or None,
        "lastTransitionTime": timestamp(condition.since),
    }


def _container_body(container: ContainerHistory) -> dict[str, object]:
    running = isinstance(container.state, Running)
    state: ContainerState = container.state
    last = container.last
    if container.back_off and container.waits and isinstance(container.state, Terminated):
        state, last = container.back_off, container.state
    body: dict[str, object] = {
        "name": container.spec.name,
        "image": container.spec.image,
        "imageID": "",
        "ready": container.ready,
        "started": running,
        "restartCount": container.restarts,
        "state": _state_body(state),
        "lastState": _state_body(last) if last else {},
    }
    if container.process:
        body |= {"containerID": container_id(container.process), "imageID": f"{container.spec.image}@{IMAGE_DIGEST}"}
    return body


def _state_body(state: ContainerState) -> dict[str, object]:
    match state:
        case Waiting(reason, message):
            return {"waiting": {"reason": reason, "message": message}}
        case Running(started_at):
            return {"running": {"startedAt": timestamp(started_at)}}
        case Terminated(exit_, id_, started_at, finished_at):
            return {
                "terminated": {
                    "exitCode": exit_.code,
                    "reason": exit_.reason or ("Error" if exit_.code else "Completed"),
                    "message": exit_.message,
                    "startedAt": timestamp(started_at) if started_at else None,
                    "finishedAt": timestamp(finished_at) if finished_at else None,
                    "containerID": id_,
                }
            }
