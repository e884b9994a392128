"""An HTTPS server in the controller's place, with a certificate of its own."""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from recovery.agent._trainjob_recovery.report import ReportEndpoint

TOKEN = "the-token"  # not a secret: of tests


def answer_body(**changed: object) -> dict[str, object]:
    body = {"v": 1, "permitted": True, "alone": 3, "inPlaceSeconds": 60, "everySeconds": 30, "action": None}
    return body | changed


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def answer_response(**changed: object) -> bytes:
    return response(json.dumps(answer_body(**changed)).encode())


@dataclass
class FakeController:
    controller: ReportEndpoint
    """What the agent knows of this endpoint."""
    respond: Callable[[dict[str, Any]], bytes] = lambda _: answer_response()
    """The response to a report, byte for byte."""
    respond_slowly: bool = False
    """One byte a moment, without end."""
    reports: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            self.paths.append(head.split(" ")[1])
            self.tokens.append(fields["Authorization"])
            self.reports.append(json.loads(await reader.readexactly(int(fields["Content-Length"]))))
            writer.write(self.respond(self.reports[-1]))
            while self.respond_slowly:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def certificate(folder: Path) -> tuple[str, ssl.SSLContext]:
    """The PEM of a certificate for 127.0.0.1 that signs itself, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "controller")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    folder.mkdir(exist_ok=True)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return pem.decode(), context


@asynccontextmanager
async def fake_controller(folder: Path) -> AsyncIterator[FakeController]:
    pem, context = certificate(folder)
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    fake = FakeController(ReportEndpoint("127.0.0.1", 0, pem, str(token)))
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=context)
    fake.controller = ReportEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], pem, str(token))
    try:
        yield fake
    finally:
        server.close()
