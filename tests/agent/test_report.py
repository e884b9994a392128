"""Reports to the controller, and what their answers may be."""

import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.agent._trainjob_recovery import report
from recovery.agent._trainjob_recovery.messages import Action, Failed, Failure, ReportAnswer
from recovery.agent._trainjob_recovery.report import NoAnswer, controller_of, send
from recovery.agent._trainjob_recovery.wire import MalformedLineError
from tests.unit.patience import comes

from .fake_controller import TOKEN, FakeController, answer_body, answer_response, certificate, fake_controller, response
from .groups import IDENTITY, Group


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeController]:
    async with fake_controller(tmp_path) as made:
        yield made


async def test_a_report_brings_the_token_and_returns_the_answer(fake: FakeController) -> None:
    action = {"barrier": IDENTITY, "epoch": 2, "do": "Restart"}
    fake.respond = lambda _: answer_response(action=action, inPlaceSeconds=45.5)
    got = await send(fake.controller, {"v": 1, "state": "asking"})
    assert got == ReportAnswer(True, 3, 45.5, 30.0, Action(IDENTITY, 2, restart=True))
    assert fake.reports == [{"v": 1, "state": "asking"}]
    assert (fake.tokens, fake.paths) == ([f"Bearer {TOKEN}"], ["/agent/v1/report"])


async def test_the_token_is_read_for_each_report(fake: FakeController) -> None:
    await send(fake.controller, {})
    Path(fake.controller.token_file).write_text("renewed")
    await send(fake.controller, {})
    assert fake.tokens == [f"Bearer {TOKEN}", "Bearer renewed"]


@pytest.mark.parametrize("content", [None, "", "x" * 20_000, "two\nlines", "\xff"])
async def test_without_a_usable_token_nothing_is_sent(fake: FakeController, content: str | None) -> None:
    if content is None:
        Path(fake.controller.token_file).unlink()
    else:
        Path(fake.controller.token_file).write_text(content)
    assert isinstance(await send(fake.controller, {}), NoAnswer)
    assert fake.tokens == []


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "403 No", "413 Big", "500 Oh", "503 Standby"])
async def test_another_status_is_no_answer(fake: FakeController, status: str) -> None:
    fake.respond = lambda _: response(b"why", status)
    assert await send(fake.controller, {}) == NoAnswer(f"status {status[:3]}", stands_by=status.startswith("503"))


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("99999999", 300.0), ("-1", None), ("Wed, 21 Oct", None)])
async def test_a_busy_controller_says_when(fake: FakeController, text: str, seconds: float | None) -> None:
    fake.respond = lambda _: response(b"", "429 Busy", f"Retry-After: {text}")
    assert await send(fake.controller, {}) == NoAnswer("status 429", seconds)


async def test_a_redirect_is_not_followed(fake: FakeController) -> None:
    fake.respond = lambda _: response(b"", "307 There", "Location: /agent/v1/report")
    assert await send(fake.controller, {}) == NoAnswer("status 307")
    assert len(fake.reports) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"permitted": "yes"},
        {"permitted": 1},
        {"alone": -1},
        {"alone": 1.5},
        {"alone": True},
        {"inPlaceSeconds": "60"},
        {"everySeconds": None},
        {"action": []},
        {"action": {"barrier": IDENTITY, "epoch": 1, "do": "Wait"}},
        {"action": {"barrier": "short", "epoch": 1, "do": "Exit"}},
        {"action": {"barrier": IDENTITY, "epoch": 0, "do": "Exit"}},
    ],
)
def test_a_malformed_answer_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(MalformedLineError):
        report.answer_of(json.dumps(answer_body(**changed)).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff\xfe", b"[" * 8000, b'{"v":1,"inPlaceSeconds":NaN}'])
async def test_an_answer_that_is_not_json_is_no_answer(fake: FakeController, body: bytes) -> None:
    fake.respond = lambda _: response(body)
    got = await send(fake.controller, {})
    assert isinstance(got, NoAnswer)
    assert "malformed" in got.why


def test_seconds_out_of_bounds_are_taken_as_the_bound() -> None:
    got = report.answer_of(json.dumps(answer_body(inPlaceSeconds=1e9, everySeconds=0)).encode())
    assert (got.in_place_seconds, got.every_seconds) == (3600.0, 1.0)


async def test_a_long_answer_is_no_answer(fake: FakeController) -> None:
    fake.respond = lambda _: response(b" " * 9000)
    assert await send(fake.controller, {}) == NoAnswer("the answer is longer than 8 KiB")


async def test_a_slow_answer_is_given_up_and_leaves_no_thread(
    fake: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.respond, fake.respond_slowly = lambda _: b"HTTP/1.1 200 OK\r\n\r\n", True
    monkeypatch.setattr(report, "TIMEOUT_SECONDS", 2.0)
    assert await send(fake.controller, {}) == NoAnswer("no answer within 2 s")
    await comes(lambda: not [each for each in threading.enumerate() if each.name == "report"])


async def test_another_certificate_is_no_answer(fake: FakeController, tmp_path: Path) -> None:
    pem, _ = certificate(tmp_path / "other")
    got = await send(replace(fake.controller, ca_pem=pem), {})
    assert isinstance(got, NoAnswer)
    assert "SSLCertVerificationError" in got.why
    assert isinstance(await send(replace(fake.controller, ca_pem="no PEM"), {}), NoAnswer)
    assert fake.tokens == []


async def test_a_controller_that_is_away_is_no_answer(tmp_path: Path) -> None:
    async with fake_controller(tmp_path) as fake:
        pass
    assert isinstance(await send(fake.controller, {}), NoAnswer)


def test_the_longest_report_stays_within_its_limit() -> None:
    group = Group(1, alone=100)
    longest = Failure(10**8, -(2**31), 128, "\U0001f600" * 300, 2**53, "p" * 253, "n" * 253)
    for epoch in range(1, 21):
        group.say(0, Failed(epoch, longest))
        group.stop_all()
        group.start_all()
    body = json.dumps(group.barrier.report(1e9), ensure_ascii=False, separators=(",", ":")).encode()
    assert 20_000 < len(body) <= report.REPORT_LIMIT_BYTES


@pytest.mark.parametrize("url", ["", "http://controller:1", "https://", "https://c:port", "https://[::1"])
def test_without_an_https_address_nothing_is_reported(url: str) -> None:
    environ = {"RECOVERY_AGENT_URL": url, "RECOVERY_AGENT_CA": "pem", "RECOVERY_AGENT_TOKEN_FILE": "/token"}
    assert controller_of(environ) is None
    assert controller_of(environ | {"RECOVERY_AGENT_URL": "https://c:8443"}) is not None
    assert controller_of({"RECOVERY_AGENT_URL": "https://c:8443"}) is None
