"""A pod as data: what its containers do, and what happens to it. The same plan is walked in both worlds."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tests.cluster.real_nodes.images import BUSYBOX_IMAGE

Json = dict[str, Any]

OOM_CODE = 137
MEMORY_LIMIT = "20Mi"


@dataclass(frozen=True)
class Script:
    """What the process of a container does."""

    lasts_seconds: int | None = None
    """None: until it receives SIGTERM."""
    code: int = 0
    """Its exit code after that."""
    out_of_memory: bool = False
    """It then exceeds its memory limit instead of exiting."""
    term_code: int | None = 143
    """Its exit code after SIGTERM. None: it ignores SIGTERM."""
    leaves_seconds: float = 0.0
    """From SIGTERM to that exit."""

    def is_slow(self, seconds: float) -> bool:
        """It does not exit within this many seconds of SIGTERM."""
        return self.term_code is None or self.leaves_seconds >= seconds

    def shell(self) -> str:
        """The same as a busybox script. A process 1 without a trap would ignore SIGTERM."""
        end = "head -c 100m /dev/zero | tail; exit $?" if self.out_of_memory else f"exit {self.code}"
        lasts = "while true; do {}; done" if self.lasts_seconds is None else "{}; " + end
        if self.term_code is None:
            return f"trap '' TERM; {lasts.format(f'sleep {self.lasts_seconds or 3600}')}"
        leave = f"sleep {self.leaves_seconds:g}; " if self.leaves_seconds else ""
        wait = f"sleep {self.lasts_seconds or 3600} & wait $!"
        return f"trap '{leave}exit {self.term_code}' TERM; {lasts.format(wait)}"

    def __str__(self) -> str:
        end = "exceeds its memory" if self.out_of_memory else f"exits {self.code}"
        told = "runs" if self.lasts_seconds is None else f"{end} after {self.lasts_seconds} s"
        if self.term_code is None:
            return f"{told}, deaf"
        return f"{told}, exits {self.term_code} {self.leaves_seconds:g} s after TERM"


@dataclass(frozen=True)
class Container:
    name: str
    script: Script
    native: bool = False
    """A native sidecar: an init container with restartPolicy Always."""


class ActKind(StrEnum):
    DELETE = "delete"
    EVICT = "evict"
    KILL = "kill the process of"


@dataclass(frozen=True)
class Act:
    kind: ActKind
    grace_seconds: int | None = None
    """For DELETE. None: the pod's own grace; 0: by force."""
    container: str = ""
    """For KILL."""
    after_seconds: float | None = None
    """Seconds after the previous act. None: once the pod has come to rest."""

    def __str__(self) -> str:
        told = f"{self.kind} {self.container}".rstrip()
        told += "" if self.grace_seconds is None else f" with grace {self.grace_seconds}"
        return told if self.after_seconds is None else f"{told}, {self.after_seconds:g} s later"


@dataclass(frozen=True)
class PodPlan:
    name: str
    restart_policy: str
    grace_seconds: int
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    acts: tuple[Act, ...] = ()

    @property
    def everything(self) -> tuple[Container, ...]:
        """All its containers, init containers first."""
        return (*self.init_containers, *self.containers)

    def named(self, name: str) -> "PodPlan":
        """The same plan under another name."""
        return replace(self, name=name)

    def body(self, node: str) -> Json:
        """The manifest. The pod is already bound, so it needs no scheduler."""
        return {
            "metadata": {"name": self.name},
            "spec": {
                "nodeName": node,
                "restartPolicy": self.restart_policy,
                "terminationGracePeriodSeconds": self.grace_seconds,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "initContainers": [_container(each) for each in self.init_containers],
                "containers": [_container(each) for each in self.containers],
            },
        }

    def lines(self) -> list[str]:
        """The pod and what happens to it, for readers of a report."""
        told = [f"pod {self.name}: {self.restart_policy}, grace {self.grace_seconds} s"]
        told += [
            f"  {'sidecar' if each.native else 'init'} {each.name}: {each.script}" for each in self.init_containers
        ]
        told += [f"  {each.name}: {each.script}" for each in self.containers]
        return [*told, *(f"  then {act}" for act in self.acts)]


def _container(container: Container) -> Json:
    body: Json = {
        "name": container.name,
        "image": BUSYBOX_IMAGE,
        "command": ["sh", "-c", container.script.shell()],
    }
    if container.native:
        body["restartPolicy"] = "Always"
    if container.script.out_of_memory:
        body["resources"] = {"limits": {"memory": MEMORY_LIMIT}}
    return body
