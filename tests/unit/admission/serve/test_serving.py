"""When the webhooks are served, why they are not, and how the thread that serves them ends."""

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from recovery.admission import serve, webhooks
from recovery.admission.certificates import Certificates, SelfMade, make_certificates
from recovery.ports import ApiError
from tests.unit.admission.api import recovery_policy
from tests.unit.admission.serve.webhook_client import (
    BAD,
    Cluster127,
    Folder,
    asked,
)
from tests.unit.patience import GUARD_SECONDS, comes


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "admission"]


async def test_kopf_only_reads_with_our_credentials_and_leaves_signals_to_us(
    cluster: Cluster127, folder: Folder
) -> None:
    folder.certify()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
        assert [thread.daemon for thread in threads()] == [True], "the process could not end without it"
    assert threads() == []
    assert {(method, authorization) for method, _, authorization in cluster.requests} == {("GET", "Bearer secret")}
    assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" not in {path for _, path, _ in cluster.requests}


@pytest.mark.usefixtures("nameless_user")
async def test_a_user_without_a_name_serves_too(folder: Folder) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert not (await folder.review(made, asked(BAD)))["allowed"]


async def test_the_expiry_is_that_of_the_certificate_that_is_served(folder: Folder) -> None:
    async with folder.admission() as admission:
        assert admission.certificate_expires_at() is None
        made = folder.certify()
        await comes(lambda: admission.certificate_expires_at() is not None)
        expected = x509.load_pem_x509_certificate(made.serving).not_valid_after_utc
        assert admission.certificate_expires_at() == expected


async def test_a_new_certificate_is_served_without_a_restart(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    old = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert (await folder.review(old, asked(recovery_policy())))["allowed"]
        assert await folder.comes_to_serve(folder.certify())


async def test_a_new_certificate_ends_no_connection_that_is_there(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes new connections and those between two reviews. If one ended, its client would think that the
    webhook does not answer, and the API server would admit the object unchecked."""
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    old = folder.certify()
    trusting = ssl.create_default_context(cadata=old.authorities.decode())
    asks = b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        open_ = [await asyncio.open_connection("127.0.0.1", folder.port, ssl=trusting) for _ in range(2)]
        open_[0][1].write(asks)
        assert (await open_[0][0].readline()).startswith(b"HTTP/1.1 400")
        assert await folder.comes_to_serve(folder.certify())
        for reader, writer in open_:
            writer.write(asks)
            assert b"HTTP/1.1 400" in await reader.readuntil(b"HTTP/1.1 400")
            writer.close()


async def test_a_certificate_that_is_replaced_while_it_is_loaded_is_noticed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the server keeps the old one until the next replacement, possibly months later."""
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    old, load = folder.certify(), ssl.SSLContext.load_cert_chain
    new: list[Certificates] = []

    def load_and_replace(context: ssl.SSLContext, *files: Any) -> None:
        load(context, *files)
        if not new:
            new.append(folder.certify())

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_replace)
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert await folder.comes_to_serve(new[0])
    assert new[0].serving != old.serving


async def test_files_that_are_read_in_the_middle_of_their_replacement_are_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs write one file after the other. The old certificate is served in between."""
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    new = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    load, misfits = ssl.SSLContext.load_cert_chain, 0

    def load_and_go_on(context: ssl.SSLContext, *files: Any) -> None:
        nonlocal misfits
        try:
            load(context, *files)
        except ssl.SSLError:
            misfits += 1
            folder.replace("tls.key", new.key)
            raise

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_go_on)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            folder.replace("tls.crt", new.serving)
            assert await folder.comes_to_serve(new)
    assert misfits == 1
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_files_that_never_fit_together_are_the_reason(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    new = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        folder.replace("tls.crt", new.serving)
        await comes(lambda: not admission.up)
        await comes(lambda: "SSLError" in str(admission.why_not_served))


async def test_a_certificate_that_comes_later_is_waited_for(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: any("admission has failed" in line["event"] for line in lines))
            assert "No such file" in str(admission.why_not_served)
            made = folder.certify()
            await comes(lambda: admission.up)
            assert (await folder.review(made, asked(recovery_policy())))["allowed"]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kopf")] == []


async def test_each_reason_for_not_serving_is_logged_once_until_the_webhooks_are_served(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.01)
    one, other = OSError("no disk"), ApiError("no right")
    attempts = iter([one, one, ExceptionGroup("", [one, other]), other, None, None, "serves", one, one, "serves"])
    answers: list[str | None] = []
    serves, begun, fails = asyncio.Event(), threading.Event(), threading.Event()

    async def attempt(*_: Any, listening: Callable[[bool], None], stop: asyncio.Event, **__: Any) -> None:
        begun.wait(GUARD_SECONDS)  # this thread may arrive before `admission` is assigned
        answers.append(admission.why_not_served)
        outcome = next(attempts)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "serves":
            listening(True)
            answers.append(admission.why_not_served)
            loop.call_soon_threadsafe(serves.set)
            while not stop.is_set() and not fails.is_set():
                await asyncio.sleep(0.01)
            fails.clear()
            listening(False)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(serve, "serve_webhooks", attempt)
    folder.certify()
    with capture_logs() as lines:
        async with asyncio.timeout(GUARD_SECONDS), folder.admission() as admission:
            begun.set()
            await serves.wait()
            serves.clear()
            fails.set()
            await serves.wait()
    ended = "EndedError: the webhook server ended by itself"
    assert [line["error"] for line in lines if line["log_level"] == "error"] == [
        "OSError: no disk",
        "OSError: no disk; ApiError: no right",
        ended,
        ended,
        "OSError: no disk",
    ]
    assert answers == [
        "not listening yet",
        "OSError: no disk",
        "OSError: no disk",
        "OSError: no disk; ApiError: no right",
        "ApiError: no right",
        ended,
        ended,
        None,
        ended,
        "OSError: no disk",
        "OSError: no disk",
        None,
    ]


async def test_a_certificate_keeper_that_ends_is_named_and_admission_begins_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the server would keep a certificate that is no longer renewed."""
    ends = threading.Event()

    async def keep(_: SelfMade) -> None:
        while not ends.is_set():
            await asyncio.sleep(0.01)
        ends.clear()

    async def reconcile(made: SelfMade) -> None:
        each = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
        made.file.write_bytes(each.serving + each.key)

    monkeypatch.setattr(SelfMade, "keep", keep)
    monkeypatch.setattr(SelfMade, "reconcile", reconcile)
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with capture_logs() as lines:
        async with folder.admission(self_made=True) as admission:
            await comes(lambda: admission.up)
            ends.set()
            await comes(lambda: any(line["log_level"] == "error" for line in lines) and admission.up)
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["error"] == "BackgroundTaskError: the background task 'certificate keeper' has ended: it returned"


async def test_it_is_not_up_when_its_certificate_has_gone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        (folder.path / "tls.crt").unlink()
        await comes(lambda: not admission.up)
        assert threads()


async def test_a_port_that_is_taken_is_the_reason_until_it_is_free(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", folder.port))
        other.listen()
        async with folder.admission() as admission:
            await comes(lambda: admission.why_not_served not in (None, "not listening yet"))
            assert "Address already in use" in str(admission.why_not_served)
            assert not admission.up
            other.close()
            await comes(lambda: admission.up)
            assert admission.why_not_served is None


async def test_an_expired_certificate_serves_no_one(folder: Folder) -> None:
    """The API server would end the handshake and admit the object unchecked."""
    made = folder.certify(days_ago=400)
    async with folder.admission() as admission:
        await comes(lambda: "expired" in str(admission.why_not_served))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await folder.review(made, asked(recovery_policy()))
        assert not admission.up


async def test_it_is_not_up_while_its_thread_hangs(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(serve, "HANGS_AFTER_SECONDS", 0.5)
    made = folder.certify()
    hangs, released = threading.Event(), threading.Event()

    def hang(*_: Any) -> Any:
        hangs.set()
        released.wait(GUARD_SECONDS)

    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        monkeypatch.setattr(webhooks, "from_request", hang)
        review = asyncio.create_task(folder.review(made, asked(recovery_policy())))
        await comes(hangs.is_set)
        await comes(lambda: not admission.up)
        assert "has not run for" in str(admission.why_not_served)
        released.set()
        await comes(lambda: admission.up)
        await review


async def test_a_server_that_is_cancelled_by_no_one_of_ours_is_said_and_begins_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    served = webhooks.serve_webhooks
    attempts = 0

    async def cancelled_at_first(*arguments: Any, **options: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncio.CancelledError
        await served(*arguments, **options)

    monkeypatch.setattr(serve, "serve_webhooks", cancelled_at_first)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["error"] == "EndedError: the webhook server was cancelled"


async def test_an_api_server_that_refuses_us_is_said_and_tried_again(
    cluster: Cluster127, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    cluster.refuses = True
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: any("admission has failed" in line["event"] for line in lines))
            assert not admission.up
            cluster.refuses = False
            await comes(lambda: admission.up)
    assert any(line["log_level"] == "error" for line in lines)


async def test_a_thread_that_hangs_is_left_behind(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, released = threading.Event(), threading.Event()

    async def hang(*_: Any, **__: Any) -> None:
        hangs.set()
        released.wait()

    monkeypatch.setattr(serve, "serve_webhooks", hang)
    monkeypatch.setattr(serve, "THREAD_END_SECONDS_MAX", 0.05)
    folder.certify()
    try:
        with capture_logs() as lines:
            async with folder.admission():
                await comes(hangs.is_set)
        assert any("leaving it behind" in line["event"] for line in lines)
    finally:
        released.set()
    await comes(lambda: threads() == [])


async def test_an_api_server_that_does_not_answer_delays_no_end(cluster: Cluster127, folder: Folder) -> None:
    cluster.silent = True
    with capture_logs() as lines:
        async with folder.admission(self_made=True):
            await comes(lambda: bool(cluster.requests))
    cluster.silent = False
    assert threads() == []
    assert [line for line in lines if "leaving it behind" in line["event"]] == []


async def test_stopping_before_it_has_begun_is_no_failure(folder: Folder) -> None:
    with capture_logs() as lines:
        async with folder.admission():
            pass
    assert threads() == []
    assert [line for line in lines if line["log_level"] != "info"] == []
