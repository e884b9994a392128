"""Free TCP ports, claimed for the life of a control plane.

They are below the range that the kernel uses for outgoing connections. Otherwise a client that retries while the
apiserver restarts could get, as its own port, the port that it dials, and would talk to itself. Each port is claimed by
a name in the abstract socket namespace, so that two control planes on one machine do not pick the same one. Such a name
is not a file, and the kernel drops it with its owner.
"""

import random
import socket
from pathlib import Path

_LOWEST = 10_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortClaims:
    """Claims ports until closed."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def claim(self) -> int:
        highest = max(int(_EPHEMERAL_RANGE.read_text().split()[0]), _LOWEST + 10_000)
        for port in random.sample(range(_LOWEST, highest), 1_000):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0trainjob-recovery-port-{port}")
                with socket.socket() as probe:
                    # The servers set this too. With it a port with connections in TIME_WAIT is free.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            return port
        raise OSError(f"no free TCP port on 127.0.0.1 among 1,000 tried between {_LOWEST} and {highest}")

    def close(self) -> None:
        for claim in self._claims:
            claim.close()
        self._claims.clear()
