"""Reads HTTP_PROXY, HTTPS_PROXY and NO_PROXY as client-go does, so that kubectl and the controller use the same proxy.

It follows golang.org/x/net/http/httpproxy. Python's own functions support no CIDRs and prefer the lower-case names.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_SCHEMES = ("http", "https")
_PORTS = {"http": 80, "https": 443}


def environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """The proxy's URL for this server's URL. None: the connection is direct."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    if not proxy or parts.scheme not in _SCHEMES or not parts.hostname:
        return None
    if _goes_directly(parts.hostname, parts.port or _PORTS[parts.scheme], _no_proxy(environment)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _no_proxy(environment: Mapping[str, str]) -> list[str]:
    value = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return [entry for part in value.split(",") if (entry := part.strip().lower())]


def _goes_directly(host: str, port: int, entries: list[str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(entry == "*" or _names(entry, host, address, port) for entry in entries)


def _names(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    """The entry is a CIDR, an address or a domain. An address or a domain may have a port, which then has to match."""
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    named, named_port = _split_port(entry)
    if named_port not in ("", str(port)):
        return False
    if (named_address := _address(named)) is not None:
        return named_address == address
    domain = named.removeprefix("*")
    if domain.startswith("."):
        return host.endswith(domain)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split_port(entry: str) -> tuple[str, str]:
    """The host and the port of the entry; the port is empty if there is none."""
    if entry.startswith("["):
        named, _, rest = entry[1:].partition("]")
        return named, rest.removeprefix(":")
    if entry.count(":") == 1:
        named, _, port = entry.partition(":")
        return named, port
    return entry, ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in `text`, or None. An IPv4-mapped IPv6 address counts as IPv4, as in Go."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
