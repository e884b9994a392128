"""The network of the cluster: one bridge with the control plane and the nodes, in the test run's own namespace.

No traffic leaves the namespace, which has no other interface. Addresses: the control plane 10.77.0.1, node N
10.77.0.1N, its pods 10.78.N.0/24, Services 10.96.0.0/16.
"""

import ctypes
import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

CONTROL_PLANE_ADDRESS = "10.77.0.1"
POD_RANGE = "10.78.0.0/16"
_BRIDGE = "br0"
_CLONE_NEWNET = 0x40000000
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LIBC = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """The network namespace, or something in it, cannot be made. The text has the answer of the kernel or of `ip`."""


def node_address(number: int) -> str:
    return f"10.77.0.{10 + number}"


def pod_range(number: int) -> str:
    return f"10.78.{number}.0/24"


def enter_network() -> None:
    """Moves this thread, and all threads and processes that it starts later, into a new network namespace.

    Call it before the process has another thread, which would stay outside. Afterwards the process can reach only the
    cluster: no package index, no Go module.
    """
    if threading.active_count() > 1:
        raise NetworkError("this process has threads already, which would stay outside of the new network")
    if _LIBC.unshare(_CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise NetworkError(f"no network namespace can be made: {os.strerror(error)}; real nodes need root")
    run_ip("link set lo up")
    run_ip(f"link add {_BRIDGE} type bridge")
    run_ip(f"addr add {CONTROL_PLANE_ADDRESS}/24 dev {_BRIDGE}")
    run_ip(f"link set {_BRIDGE} up")
    _FORWARDING.write_text("1")


def connect(number: int, init_pid: int) -> None:
    """Gives the network namespace of that process an `eth0` on the bridge. The other end is on the bridge already."""
    link = _link(number)
    run_ip(f"link add {link} type veth peer name eth0 netns {init_pid}")
    run_ip(f"link set {link} master {_BRIDGE} up")
    run_ip(f"route replace {pod_range(number)} via {node_address(number)} dev {_BRIDGE}")


def set_link(number: int, *, up: bool) -> None:
    """Down: a partition. Everything on the node keeps running, and no one can reach it."""
    run_ip(f"link set {_link(number)} {'up' if up else 'down'}")


def disconnect(number: int) -> None:
    """Removes what `connect` made. The kernel may do this at the same time, when the node's namespace ends."""
    for made in (f"link del {_link(number)}", f"route del {pod_range(number)}"):
        with suppress(NetworkError):
            run_ip(made)
    assert _link(number) not in run_ip("-o link")


def run_ip(arguments: str) -> str:
    """Returns what `ip` prints."""
    result = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if result.returncode:
        raise NetworkError(f"`ip {arguments}` ended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def _link(number: int) -> str:
    return f"veth-node-{number}"
