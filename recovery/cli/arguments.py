"""Parses arguments of the command line: addresses, seeds, time spans."""

import re
from datetime import timedelta
from typing import NamedTuple

import typer

from recovery.core.model.durations import DURATION_MAX


class Address(NamedTuple):
    """Where a server listens. Port 0: the system chooses."""

    host: str
    """Empty: all addresses, of IPv4 and of IPv6."""
    port: int


class ServerOptions(NamedTuple):
    """Which API server a command talks to, and how long it waits for an answer."""

    kubeconfig: str | None = None
    """None: as `open_session` finds it."""
    context: str | None = None
    """None: the current one."""
    request_seconds: float | None = None
    """The time limit of one request. 0: no limit. None: no option sets it, and the transport's own limit applies."""


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `[::1]:PORT`, or `:PORT` for all addresses. Raises typer.BadParameter."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare) != bracketed:
        raise typer.BadParameter(f"{text!r} is not an address like 127.0.0.1:8080, [::1]:8080 or :8080")
    return Address(bare, int(port))


def parse_seeds(text: str) -> range:
    """`A-B`, both included. Raises typer.BadParameter."""
    first, dash, last = text.partition("-")
    if not dash or not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise typer.BadParameter(f"{text!r} are not seeds like 0-99")
    if int(last) < int(first):
        raise typer.BadParameter(f"{text!r} are no seeds at all: the last comes before the first")
    return range(int(first), int(last) + 1)


REQUEST_SECONDS = 10.0
"""How long a command waits for an answer if no option sets it."""

_NUMBER = r"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})"
_REQUEST_TIMEOUT = re.compile(rf"\d{{1,9}}|(?:{_NUMBER}(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PART = re.compile(rf"({_NUMBER})(\D+)", re.ASCII)
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_request_timeout(text: str) -> float:
    """Seconds, of what kubectl takes for `--request-timeout`: `30`, `30s`, `500ms`, `1m30s`, `0` for no limit.

    As ParseTimeout of client-go's `tools/clientcmd/helpers.go`, but for negative durations, which it takes and which no
    answer can meet. Raises typer.BadParameter.
    """
    if _REQUEST_TIMEOUT.fullmatch(text) is None:
        raise typer.BadParameter(f"{text!r} is not a time-out like 30s, 500ms, 1m30s or 30 (seconds); 0 is no limit")
    if text.isdigit():
        return float(text)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))


_WINDOW = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?", re.ASCII)


def parse_window(text: str) -> timedelta:
    """`7d`, `12h`, `1d12h`, `90m`; longer than nothing. Raises typer.BadParameter."""
    found = _WINDOW.fullmatch(text)
    days, hours, minutes = (int(part or 0) for part in found.groups()) if found is not None else (0, 0, 0)
    window = timedelta(days=days, hours=hours, minutes=minutes)
    if not timedelta(0) < window <= DURATION_MAX:
        raise typer.BadParameter(f"{text!r} is not a time span like 7d, 12h or 90m")
    return window
