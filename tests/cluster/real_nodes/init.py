"""Process 1 of a node. It sets up the namespaces as a machine, then starts and ends the node's programs.

    python -I init.py SETTINGS.json

It imports only the standard library, because it is run by its path. Lines on standard input: `start NAME`, `kill NAME`.
The end of standard input ends the node. With `import` in the settings it imports images into containerd, and ends.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 30.0
# The kubelet would change these for the whole machine, as they are not namespaced. So it finds them as it wants them.
_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Here containerd, kubelet and CNI plugins leave files, whatever their settings.
_COVERED = ("/etc", "/opt", "/var/lib", "/var/log")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    if _LIBC.mount(source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {source} on {target} ({kind or flags}): {os.strerror(error)}")


def make_machine(settings: dict[str, Any]) -> None:
    mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    mount("sysfs", "/sys", "sysfs")
    mount("cgroup", "/sys/fs/cgroup", "tmpfs")
    for name in settings["controllers"]:
        _mount_cgroup(name, name)
    _mount_cgroup(settings["named_hierarchy"], f"none,name={settings['named_hierarchy']}")
    mount("run", "/run", "tmpfs")
    for place in _COVERED:
        layer = Path("/run/covered") / place.lstrip("/")
        for part in ("upper", "work"):
            (layer / part).mkdir(parents=True)
        mount("overlay", place, "overlay", 0, f"lowerdir={place},upperdir={layer}/upper,workdir={layer}/work")
    for name, value in _SYSCTLS.items():
        file = Path("/run/sysctls") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value)
        mount(str(file), f"/proc/sys/{name}", "", _MS_BIND)


def _mount_cgroup(name: str, data: str) -> None:
    folder = Path("/sys/fs/cgroup") / name
    folder.mkdir()
    mount("cgroup", str(folder), "cgroup", 0, data)


def join_network(address: str, gateway: str) -> None:
    """Waits for eth0 and configures it. `network.connect` adds it from outside, by this process's outer id."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while not Path("/sys/class/net/eth0").exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError("nobody has given this node an eth0")
        time.sleep(0.02)
    for arguments in ("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *arguments.split()], check=True)
    subprocess.run(["ip", "route", "add", "default", "via", gateway], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Traffic between pods of one node crosses a bridge. The rules for Services apply to it only with this setting.
    bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridged.exists():
        bridged.write_text("1")


class Programs:
    """The node's programs by name. This process reaps everything, so it cannot use `subprocess`."""

    def __init__(self, commands: dict[str, list[str]], logs: Path) -> None:
        self._commands = commands
        self._logs = logs
        self._pids: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Starts a program. Does nothing if it runs."""
        if name in self._pids:
            return
        pid = os.fork()
        if pid == 0:
            try:
                log = os.open(self._logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                for target in (1, 2):
                    os.dup2(log, target)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.execv(self._commands[name][0], self._commands[name])
            finally:
                os._exit(127)
        self._pids[name] = pid

    def kill(self, name: str) -> None:
        """Kills a program. It is gone on return, so it can be started again."""
        pid = self._pids.pop(name, None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def reap(self) -> None:
        """Reaps everything that has ended: the node's programs, and the orphans of containers."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for name in [name for name, pid in self._pids.items() if pid == ended[0]]:
                    del self._pids[name]
                    print(f"{name} ended: {os.waitstatus_to_exitcode(ended[1])}", flush=True)


def wait_for_containerd(ctr: str) -> None:
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while subprocess.run([ctr, "version"], capture_output=True, check=False).returncode:
        if time.monotonic() > give_up_at:
            raise TimeoutError("containerd does not answer; see containerd.log")
        time.sleep(0.05)


def name_by_digest(images: list[str]) -> None:
    """Gives each image the name NAME@DIGEST as well, as a pull does. An import does not."""
    listed = subprocess.run([*images, "list"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines()[1:]:
        reference, _, digest = line.split()[:3]
        subprocess.run([*images, "tag", reference, f"{reference.rpartition(':')[0]}@{digest}"], check=True)


def serve(programs: Programs) -> None:
    """Carries out the commands on standard input until it ends."""
    pending = b""
    while True:
        programs.reap()
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            continue
        received = os.read(0, 4096)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            verb, name = line.decode().split()
            {"start": programs.start, "kill": programs.kill}[verb](name)


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    make_machine(settings)
    programs = Programs(settings["commands"], Path(settings["logs"]))
    if "address" in settings:
        join_network(settings["address"], settings["gateway"])
    programs.start("containerd")
    wait_for_containerd(settings["ctr"])
    if settings["import"]:
        for archive in settings["import"]:
            command = [settings["ctr"], "--namespace=k8s.io", "images", "import", "--local", archive]
            subprocess.run(command, check=True)
        name_by_digest([settings["ctr"], "--namespace=k8s.io", "images"])
        programs.kill("containerd")
        return
    for name in settings["commands"]:
        programs.start(name)
    print("started", flush=True)
    serve(programs)


if __name__ == "__main__":
    main()
