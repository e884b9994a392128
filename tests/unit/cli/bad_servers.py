"""Servers on 127.0.0.1 that are no API server: they answer with something else, hang, or break the connection."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

PAGE = b"<!DOCTYPE html>\n<html><title>Sign in</title></html>"


def answer(status: str, content_type: str, body: bytes, header: str = "") -> bytes:
    """A whole response. `Connection: close` says that the client must not send another request on the connection."""
    lines = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}{header}\r\n".encode() + body


LOGIN_PAGE = answer("200 OK", "text/html; charset=utf-8", PAGE)
NOTHING = answer("200 OK", "application/json", b"")
OTHER_JSON = answer("200 OK", "application/json", b'{"hello": "world"}')
REDIRECT = answer("302 Found", "text/html", PAGE, "Location: https://login.example/\r\n")
UNKNOWN_PAGE = answer("404 Not Found", "text/html", PAGE)
NO_HTTP = b"SSH-2.0-OpenSSH_9.9\r\n"
HANGS_UP = b""
CUT_OFF = answer("200 OK", "application/json", b'{"kind": "PodList"}')[:-5]
BEGINS = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"kind"'
NOT_FOUND = answer(
    "404 Not Found",
    "application/json",
    b'{"kind": "Status", "code": 404, "reason": "NotFound", "message": "no", "details": {"name": "default"}}',
)


class BadServer:
    """Answers each request with the same bytes and closes the connection, or holds it."""

    def __init__(self, response: bytes, *, holds: bool = False, after_seconds: float = 0.0) -> None:
        """`holds`: the server sends nothing after the bytes and keeps the connection open."""
        self._response, self._holds, self._after_seconds = response, holds, after_seconds
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._over = threading.Event()
        self.asked = threading.Event()
        """Set once a request has come."""

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        """Serve; yields the address. `tls` None: plain TCP."""
        accepting = threading.Thread(target=self._accept, args=(tls,), daemon=True)
        accepting.start()
        try:
            yield self.address
        finally:
            self._over.set()
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            accepting.join()

    def _accept(self, tls: ssl.SSLContext | None) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection, tls), daemon=True).start()

    def _serve(self, connection: socket.socket, tls: ssl.SSLContext | None) -> None:
        with suppress(OSError), connection if tls is None else tls.wrap_socket(connection, server_side=True) as wire:
            while not (received := wire.recv(65536)).endswith((b"\r\n\r\n", b"}", b"]")):
                if not received:
                    return
            self.asked.set()
            self._over.wait(self._after_seconds)
            wire.sendall(self._response)
            if self._holds:
                self._over.wait()


@contextmanager
def refusing() -> Iterator[str]:
    """An address where nothing listens. The port stays reserved inside the block."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        yield f"{host}:{port}"


def kubeconfig(folder: Path, server: str, user: Mapping[str, object] | None = None) -> str:
    """Write a kubeconfig; returns its path. `user` None: a user with a token."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)
