"""Marks the tests that need an IPv6 loopback address. Containers often have none."""

import socket

import pytest


def _is_there() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6_loopback = pytest.mark.skipif(not _is_there(), reason="no IPv6 loopback here")
