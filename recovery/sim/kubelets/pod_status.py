"""The status of a pod as a kubelet words it: pure functions from container states to what is written.

Nothing is remembered between two writes except when each condition last changed, so a lost write costs nothing: the
next one says everything again. The patch is a strategic one, in which conditions merge by type: PodScheduled and
DisruptionTarget belong to others and stay as they are.
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
    """A container of a pod with its whole history: now, and the run before."""

    spec: PodContainer
    state: ContainerState
    last: Terminated | None = None
    """How the run before ended. None: there was none."""
    ready: bool = False
    process: ContainerProcess | None = None
    """The latest one. None: never started."""
    back_off: Waiting | None = None
    """What it waits for before it is restarted. None: for nothing."""
    waits: bool = False
    """Its status says so: the kubelet has looked at the pod since."""
    initializes: bool = False
    """A plain init container: the next one waits until it has succeeded."""

    @property
    def restarts(self) -> int:
        return self.process.restart_count if self.process else 0


@dataclass(frozen=True)
class PodCondition:
    """What a kubelet says in a pod's condition. `since` is when its status last changed."""

    status: bool
    since: datetime
    reason: str = ""
    message: str = ""


@dataclass
class PodState:
    """All that decides about a pod's status."""

    restart_policy: str
    containers: Sequence[ContainerHistory]
    init_containers: Sequence[ContainerHistory]
    """In the order of the spec, native sidecars among them."""
    over: bool = False
    """The kubelet will start nothing more of this pod: it was deleted and its processes have ended."""
    cut_short: bool = False
    """It was over before all its containers had begun."""

    @property
    def sidecars(self) -> list[ContainerHistory]:
        """The native ones: init containers that go on beside the containers."""
        return [container for container in self.init_containers if is_sidecar(container)]

    @property
    def phase(self) -> str:
        """Running while any container or native sidecar runs or will run again: `getPhase` in kubelet_pods.go."""
        if not self.over:
            if self.failed_to_initialize:
                # It ends only when nothing of it runs any more (status_manager.go `mergePodStatus`).
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
        """Nothing of it runs any more. What never ran counts as killed, as far as the pod had come

        (status_manager.go `TerminatePod`). `initialized`: it was when its end began.
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
        """It ended and its restart policy leaves it at that."""
        code = _exit_code(container)
        if container.initializes and code == 0:
            return True
        return code is not None and not container.spec.restarts(self.restart_policy, code)

    def initialized(self) -> bool:
        """Once a container has started, a native sidecar that restarts no longer counts (generate.go)."""
        if any(container.process for container in self.containers):
            return True
        return all(
            isinstance(container.state, Running) if is_sidecar(container) else _exit_code(container) == 0
            for container in self.init_containers
        )

    def conditions(self, before: Mapping[str, PodCondition], now: datetime) -> dict[str, PodCondition]:
        """By type; a condition whose status is what it was `before` keeps the moment since when."""
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
            uninitialized = "PodCompleted"  # Of all reasons this one goes with a condition that is true.
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
    """Of an init container: whether it is a native sidecar."""
    return container.spec.restart_policy == "Always"


def _never_ran(container: ContainerHistory) -> bool:
    return isinstance(container.state, Waiting) and container.process is None


def _exit_code(container: ContainerHistory) -> int | None:
    """None: it has not ended."""
    return container.state.exit.code if isinstance(container.state, Terminated) else None


NEVER_RAN = Terminated(
    Exit(SIGKILL_CODE, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")
)


def timestamp(moment: datetime) -> str:
    """As metav1.Time writes it: whole seconds, UTC."""
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
        # Those of the initialization stay in the order of the spec (kubelet_pods.go `convertToAPIContainerStatuses`).
        "containerStatuses": sorted(map(_container_body, state.containers), key=itemgetter("name")),
    }
    if state.init_containers:
        status["initContainerStatuses"] = [_container_body(container) for container in state.init_containers]
    return status


def _condition_body(kind: str, condition: PodCondition) -> dict[str, object]:
    # An explicit null takes away the reason of the time before; left out, a patch would keep it.
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
