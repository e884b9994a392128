"""Limits how often each client may ask: a token bucket for each, and a bound on how many clients are remembered."""

import ipaddress
import math
from collections import OrderedDict
from typing import Generic, TypeVar

from recovery.ports import Clock

K = TypeVar("K")

CLIENTS_MAX = 8192
"""When more clients ask, the one that has been silent for longest is forgotten. It has the whole burst again then."""
_IPV6_NETWORK_BITS = 64
"""A client with an IPv6 address mostly has a whole network of this size."""


class Rates(Generic[K]):
    """A bucket of `burst` requests for each client. It fills at `per_second`."""

    def __init__(self, clock: Clock, *, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._left: OrderedDict[K, tuple[float, float]] = OrderedDict()
        """What is left for each client, and when that was counted. The client that asked last comes last."""

    def wait_seconds(self, client: K) -> float:
        """0: the client may ask, and this is counted. Otherwise: how long it has to wait."""
        now = self._clock.monotonic_seconds()
        left, counted_at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - counted_at) * self._per_second)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second

    def __len__(self) -> int:
        return len(self._left)


def retry_after(seconds: float) -> dict[str, str]:
    """The header that names this delay, in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def network_of(address: str | None) -> str:
    """What a client is counted as: its IPv4 address, or the network of its IPv6 address. Empty: not known."""
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_NETWORK_BITS), strict=False))
