"""What a walk has shown of one pod. Dates are left out: two worlds differ in their pace, not in their behaviour."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.contract.scene import Event, Object, deleting, ended

OTHERS_CONDITIONS = frozenset({"PodScheduled", "AllContainersRestarting"})
"""The scheduler sets the first, and it has no part in pods that are already bound. The second is not modelled."""


@dataclass(frozen=True)
class PodHistory:
    stood: tuple[str, ...]
    """The state of the pod each time that it had come to rest."""
    acts: tuple[str, ...]
    """What was done, or that its target did not exist."""
    there: bool
    """The object still exists at the end."""
    last: str
    """The state of the pod at the end, or before it was deleted."""
    phases: tuple[str, ...]
    """In order of appearance."""
    ends: tuple[str, ...]
    """For each container: exit code and reason of each run. If no one saw a run end, `lastState` has its end."""
    waits: frozenset[str]
    """Every reason for which a container has waited."""
    order: dict[str, float] = field(default_factory=dict)
    """For the phases, first starts and the end of the object: the clock's seconds when each was first reported."""


@dataclass(frozen=True)
class Told:
    """One line of the watch, and when it came."""

    seconds: float
    event: Event


def history_of(told: Sequence[Told], stood: Sequence[str], acts: Sequence[str]) -> PodHistory:
    bodies = [each.event.object for each in told]
    order: dict[str, float] = {}
    ends: dict[tuple[str, int], str] = {}
    waits = set()
    for each in told:
        for fact in _facts(each.event):
            order.setdefault(fact, each.seconds)
        for status in statuses(each.event.object):
            if "waiting" in status["state"]:
                waits.add(status["state"]["waiting"].get("reason", ""))
            for restart, end in _ends(status):
                ends.setdefault((status["name"], restart), f"{status['name']} r{restart} {end}")
    phases = [str(body["status"].get("phase")) for body in bodies]
    return PodHistory(
        stood=tuple(stood),
        acts=tuple(acts),
        there=told[-1].event.type != "DELETED",
        last=stands(bodies[-1]),
        phases=tuple(phase for number, phase in enumerate(phases) if not number or phase != phases[number - 1]),
        ends=tuple(ends[key] for key in sorted(ends)),
        waits=frozenset(waits),
        order=order,
    )


def statuses(pod: Object) -> Iterator[Object]:
    """The statuses of all its containers, init containers first."""
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def stands(pod: Object) -> str:
    """The part of a status that is compared."""
    status = pod["status"]
    told = [f"{status.get('phase')} {status.get('reason', '')}".rstrip()]
    told += sorted(map(_condition, _of_kubelet(status.get("conditions", ()))))
    told += [_container(each) if ended(pod) else _unended(each) for each in statuses(pod)]
    return " | ".join(told)


def _of_kubelet(conditions: Iterable[Object]) -> list[Object]:
    return [each for each in conditions if each["type"] not in OTHERS_CONDITIONS]


def _condition(condition: Object) -> str:
    return f"{condition['type']}={condition['status']} {condition.get('reason') or ''}".rstrip()


def _container(status: Object) -> str:
    ready = " ready" if status["ready"] else ""
    last = f", before: {_state(status['lastState'])}" if status.get("lastState") else ""
    return f"{status['name']} r{status['restartCount']} {_state(status['state'])}{ready}{last}"


def _unended(status: Object) -> str:
    """A kubelet may or may not report a container's back-off. In both cases the end of the last run is compared."""
    state = status["state"]
    if state.get("waiting", {}).get("reason") == "CrashLoopBackOff":
        state = status["lastState"]
    return _container({**status, "state": state, "lastState": {}})


def _state(state: Object) -> str:
    match state:
        case {"running": _}:
            return "runs"
        case {"waiting": waiting}:
            return f"waits {waiting.get('reason', '')}".rstrip()
        case {"terminated": terminated}:
            return _end(terminated)
        case _:
            raise AssertionError(f"a container in no state: {state}")


def _end(terminated: Any) -> str:
    return f"exit {terminated['exitCode']} {terminated['reason']}"


def _ends(status: Object) -> Iterator[tuple[int, str]]:
    """Restart count of a run, and how it ended. While a container waits, its count is that of the last run."""
    count = status["restartCount"]
    if "terminated" in status["state"]:
        yield count, _end(status["state"]["terminated"])
    if "terminated" in status.get("lastState", {}):
        yield count - (0 if "waiting" in status["state"] else 1), _end(status["lastState"]["terminated"])


def _facts(event: Event) -> Iterator[str]:
    pod = event.object
    yield f"phase {pod['status'].get('phase')}"
    if deleting(pod):
        yield "asked to go"
    if event.type == "DELETED":
        yield "gone"
    for status in statuses(pod):
        if "running" in status["state"] and not status["restartCount"]:
            yield f"{status['name']} runs"
