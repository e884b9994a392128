"""One real node, and what can happen to it: a dead kubelet, a partition, the loss of power."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.controlplane.processes import ControlPlaneError, die_with_parent
from tests.cluster.real_nodes import cgroups, network
from tests.cluster.real_nodes.images import INIT, NODE_NAMESPACES, lay_template
from tests.cluster.real_nodes.settings import NodePlan

# A machine that has lost its power cannot use what is left on its disk, because containerd's tasks are gone.
_WIPED = ("containerd", "kubelet", "kubelet-certificates", "pod-logs")
_END_SECONDS = 30.0


class RealNode:
    """The processes of one node. Made by `RealCluster.start`."""

    def __init__(self, plan: NodePlan, template: Path, cgroup_name: str) -> None:
        self.plan = plan
        self.name = plan.name
        self._template = template
        self._cgroup_name = cgroup_name
        self._settings = plan.write()
        self._cgroups: list[Path] = []
        self._outer: subprocess.Popen[bytes] | None = None
        self._init_pid: int | None = None

    @property
    def started(self) -> bool:
        """It was started and has not lost its power since. It may have ended by itself; then its cgroups remain."""
        return self._outer is not None

    @property
    def running(self) -> bool:
        return self._outer is not None and self._outer.poll() is None

    def start(self) -> None:
        """Starts with only the images on disk, like a newly installed machine. It is not Ready yet on return."""
        for name in _WIPED:
            shutil.rmtree(self.plan.folder / name, ignore_errors=True)
        lay_template(self._template, self.plan.folder)
        self._cgroups = cgroups.make_cgroups(self._cgroup_name)
        die = die_with_parent()

        def enter() -> None:
            die()
            for folder in self._cgroups:
                (folder / "cgroup.procs").write_text(str(os.getpid()))

        with (self.plan.logs / "init.log").open("ab") as log:
            self._outer = subprocess.Popen(
                [*NODE_NAMESPACES, sys.executable, "-I", str(INIT), str(self._settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=enter,  # noqa: PLW1509 (files of the cgroups only, before there is a second thread)
            )
        self._init_pid = self._only_child(self._outer.pid)
        network.connect(self.plan.number, self._init_pid)

    def lose_power(self) -> None:
        """Everything on the node ends at once, without any message. Its processes are gone on return."""
        assert self._outer is not None
        assert self._outer.stdin is not None
        if self._outer.poll() is None and self._init_pid is not None:
            os.kill(self._init_pid, signal.SIGKILL)
        try:
            self._outer.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            left = cgroups.processes_in(self._cgroups)
            raise ControlPlaneError(f"{self.name} does not end; its processes: {sorted(left)}") from None
        self._outer.stdin.close()
        self._outer = self._init_pid = None
        network.disconnect(self.plan.number)
        cgroups.remove_cgroups(self._cgroups)

    def kill_kubelet(self) -> None:
        """Containers keep running, and the node stops reporting."""
        self._tell("kill kubelet")

    def start_kubelet(self) -> None:
        self._tell("start kubelet")

    def unplug(self) -> None:
        """A partition: everything on the node keeps running, but neither it nor its pods can reach others."""
        network.set_link(self.plan.number, up=False)

    def plug_in(self) -> None:
        network.set_link(self.plan.number, up=True)

    def processes_of(self, pod_uid: str, container_id: str) -> list[int]:
        """The process ids of a container, in the machine's PID namespace, its first process first.

        `container_id`: from the container's status, without `containerd://`.
        """
        found = []
        for pid in cgroups.processes_in(self._cgroups):
            try:
                belongs = Path(f"/proc/{pid}/cgroup").read_text()
                if pod_uid in belongs and container_id in belongs:
                    found.append((_id_within(pid), pid))
            except OSError:  # It has ended in the meantime.
                continue
        return [pid for _, pid in sorted(found)]

    def last_words(self, lines: int = 15) -> str:
        """The last lines of the log of each program."""
        words = []
        for log in sorted(self.plan.logs.glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            words.append("\n".join((f"-- {self.name} {log.name}", *tail)))
        return "\n".join(words)

    def _tell(self, line: str) -> None:
        assert self._outer is not None
        assert self._outer.stdin is not None
        self._outer.stdin.write(f"{line}\n".encode())
        self._outer.stdin.flush()

    def _only_child(self, pid: int) -> int:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        while self.running:
            if found := children.read_text().split():
                return int(found[0])
        raise ControlPlaneError(f"{self.name} has ended while it started:\n{self.last_words()}")


def _id_within(pid: int) -> int:
    """The id of a process in its container's PID namespace, where the first process is 1.

    Ids of the machine do not show which process is first: after `kernel.pid_max` they begin again with low ones.
    """
    [ids] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid:")]
    return int(ids.split()[-1])
