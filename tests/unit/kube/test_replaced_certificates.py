"""Certificates that are replaced on disk are used without a restart, at both ends of a real TLS connection."""

import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from recovery.admission.certificates import Certificates, make_certificates
from recovery.kube import session as session_module
from recovery.kube.session import Session, open_session


class Server:
    """A TLS server that asks for a client certificate and answers with the name in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.renew_server()
        self.renew_client("first")

    def renew_server(self) -> None:
        made = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
        (self.folder / "server.pem").write_bytes(made.serving + made.key)
        self.context.load_cert_chain(self.folder / "server.pem")
        (self.folder / "ca.crt").write_bytes(made.authorities)

    def renew_client(self, name: str) -> None:
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        start, end = now - timedelta(hours=1), now + timedelta(hours=1)
        signed = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), start, end)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        none = serialization.NoEncryption()
        (self.folder / "tls.crt").write_bytes(signed.public_bytes(pem))
        (self.folder / "tls.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
        self.context.load_verify_locations(self.folder / "tls.crt")

    @property
    def kubeconfig(self) -> str:
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": "ca.crt"}
        text = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"client-certificate": "tls.crt", "client-key": "tls.key"}}],
        }
        path = self.folder / "config"
        path.write_text(json.dumps(text))
        return str(path)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        [[[_, name]]] = request.transport.get_extra_info("peercert")["subject"]
        return web.Response(text=name, headers={"Connection": "close"})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=made.context).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CERTIFICATE_CHECK_SECONDS", 0.0)


async def asks(session: Session) -> str:
    """The name under which the server knows the client."""
    async with session.pool.get(session.server, **session.connection_arguments()) as response:
        return await response.text()


async def test_a_replaced_ca_file_is_trusted_and_the_one_before_is_not(server: Server) -> None:
    async with open_session(kubeconfig=server.kubeconfig) as session:
        assert await asks(session) == "first"
        old = (server.folder / "ca.crt").read_bytes()
        server.renew_server()
        assert await asks(session) == "first"
        (server.folder / "ca.crt").write_bytes(old)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asks(session)


async def test_a_replaced_client_certificate_is_presented(server: Server) -> None:
    async with open_session(kubeconfig=server.kubeconfig) as session:
        assert await asks(session) == "first"
        server.renew_client("second")
        assert await asks(session) == "second"


async def test_half_a_pair_is_said_once_and_the_old_one_goes_on_until_the_other_half_is_there(server: Server) -> None:
    async with open_session(kubeconfig=server.kubeconfig) as session:
        key = (server.folder / "tls.key").read_bytes()
        server.renew_client("second")
        new = (server.folder / "tls.key").read_bytes()
        (server.folder / "tls.key").write_bytes(key)
        with capture_logs() as lines:
            assert [await asks(session) for _ in range(3)] == ["first"] * 3
        assert [line["event"] for line in lines] == ["replaced certificates cannot be read; the old ones are used"]
        (server.folder / "tls.key").write_bytes(new)
        assert await asks(session) == "second"


async def test_unchanged_files_keep_the_connections_in_the_pool(server: Server) -> None:
    async with open_session(kubeconfig=server.kubeconfig) as session:
        assert session.connection_arguments()["ssl"] is session.connection_arguments()["ssl"]
