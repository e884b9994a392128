"""Renders the objects of a fleet from captured ones, fast enough for tens of thousands of pods.

A shape has named places: `"@NAME@"` stands for a string or a part of one, `"#SIZE#"` for a whole JSON value.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_SHAPES = Path(__file__).parent / "shapes"
_PLACE = re.compile(r"@([A-Z_]+)@")


class Template:
    """The JSON of an object, with places to fill."""

    def __init__(self, shape: Object) -> None:
        text = re.sub(r'"#([A-Z_]+)#"', r"@\1@", json.dumps(shape, separators=(",", ":")))
        self._parts = _PLACE.split(text)

    def filled(self, values: Mapping[str, str]) -> bytes:
        parts = self._parts[:]
        for at in range(1, len(parts), 2):
            parts[at] = values[parts[at]]
        return "".join(parts).encode()

    def partly(self, values: Mapping[str, str]) -> "Template":
        """A template in which these places are filled: those that are the same for all pods of a Job."""
        filled = Template.__new__(Template)
        text = "".join(part if at % 2 == 0 else values.get(part, f"@{part}@") for at, part in enumerate(self._parts))
        filled._parts = _PLACE.split(text)
        return filled


def _shape(name: str) -> Object:
    shape: Object = json.loads((_SHAPES / f"{name}.json").read_text())
    return shape


@cache
def template(name: str) -> Template:
    return Template(_shape(name))


@cache
def pod_template(state: str, deletion: str) -> Template:
    """`state`: pending, bound, running, unready or failed. `deletion`: empty, `tracked` or `counted`."""
    pod = _shape("pod")
    _STATES[state](pod)
    if deletion:
        pod["metadata"].update(deletionTimestamp="@DELETION@", deletionGracePeriodSeconds="#GRACE#")
    if deletion == "counted":  # by the Job controller, which then removes its finalizer
        del pod["metadata"]["finalizers"]
    return Template(pod)


def _pending(pod: Object) -> None:
    del pod["spec"]["nodeName"]
    pod["metadata"]["managedFields"] = pod["metadata"]["managedFields"][:1]
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}


def _bound(pod: Object) -> None:
    _pending(pod)
    pod["spec"]["nodeName"] = "@NODE@"
    scheduled = {"lastProbeTime": None, "lastTransitionTime": "@SINCE@", "status": "True", "type": "PodScheduled"}
    pod["status"]["conditions"] = [scheduled]


def _running(pod: Object) -> None:
    """The captured state."""


def _unready(pod: Object) -> None:
    _not_ready(pod, "ContainersNotReady")
    pod["status"]["containerStatuses"][0]["ready"] = False


def _silent(pod: Object) -> None:
    """As the node lifecycle controller marks the pods of a silent node."""
    [ready] = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
    ready.update(status="False", reason="NodeNotReady")


def _failed(pod: Object) -> None:
    _not_ready(pod, "PodFailed")
    pod["status"]["phase"] = "Failed"
    container = pod["status"]["containerStatuses"][0]
    ended = {"exitCode": 143, "reason": "Error", "startedAt": "@CREATED@", "finishedAt": "@SINCE@"}
    container.update(ready=False, started=False, state={"terminated": ended})


def _not_ready(pod: Object, reason: str) -> None:
    for condition in pod["status"]["conditions"]:
        if condition["type"] in ("Ready", "ContainersReady"):
            condition.update(status="False", reason=reason)


_STATES: Mapping[str, Callable[[Object], None]] = {
    "pending": _pending,
    "bound": _bound,
    "running": _running,
    "unready": _unready,
    "silent": _silent,
    "failed": _failed,
}
