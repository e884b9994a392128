"""Who may report, and what everybody else is told before it costs anything."""

import asyncio
import gzip
import json
from contextlib import closing
from datetime import timedelta

import pytest

from recovery.core.model.agent_facts import AgentState
from recovery.ports import TryLaterError
from recovery.rendezvous.endpoint import ADDRESS_BURST, LIMITS, PATH, POD_BURST
from tests.unit.patience import GUARD_SECONDS, comes, time_passes
from tests.unit.rendezvous.test_reports import REPORT
from tests.unit.rendezvous.world import KEY, NOW, answering, pod, token


async def test_the_report_of_slot_0_is_taken_in_and_answered() -> None:
    async with answering() as world:
        status, text, headers = await world.post()
    assert status == 200
    assert json.loads(text)["alone"] == 3
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Connection"] == "close"
    [(key, facts)] = world.taken
    assert (key, facts.job_uid, facts.pod_uid, facts.state) == (
        KEY,
        "job-1",
        "uid-of-llm-node-0-0-x",
        AgentState.RUNNING,
    )
    assert facts.state_since == NOW - timedelta(seconds=1.5)
    assert world.results == ["accepted"]


async def test_each_report_has_a_higher_sequence_number() -> None:
    async with answering() as world:
        for _ in range(3):
            assert (await world.post())[0] == 200
    assert [facts.sequence for _, facts in world.taken] == [1, 2, 3]
    assert len(world.api.requests) == 1, "the API server is asked once about a token"


# --- the head ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), [("/", 404), (f"{PATH}/", 404), ("/metrics", 404)])
async def test_there_is_nothing_elsewhere(path: str, status: int) -> None:
    async with answering() as world:
        assert (await world.post(path=path))[0] == status
    assert world.results == []


async def raw(port: int, sent: bytes) -> bytes:
    """All that the server answers to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(sent)
        async with asyncio.timeout(GUARD_SECONDS):
            return await reader.read()


def head(*lines: str, method: str = "POST") -> bytes:
    all_lines = (f"{method} {PATH} HTTP/1.1", "Host: a", f"Authorization: Bearer {token()}", *lines, "", "")
    return "\r\n".join(all_lines).encode()


@pytest.mark.parametrize(
    ("sent", "status", "result"),
    [
        (head("Connection: close", method="GET"), 405, None),
        (head("Transfer-Encoding: chunked"), 411, "malformed"),
        (head("Content-Length: 32769"), 413, "too_large"),
        (head("Content-Length: 99999999999"), 413, "too_large"),
        (head("Content-Length: 10", "Content-Encoding: gzip"), 415, "malformed"),
        (head("Content-Length: 10", "Content-Encoding: deflate"), 415, "malformed"),
    ],
)
async def test_the_head_alone_refuses_and_no_body_is_waited_for(sent: bytes, status: int, result: str | None) -> None:
    async with answering() as world:
        answer = await raw(world.port, sent)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert world.results == ([] if result is None else [result])
    assert world.api.requests == []


async def test_a_compressed_body_is_refused_and_never_unpacked() -> None:
    async with answering() as world:
        bomb = gzip.compress(b"0" * 20_000_000)
        assert len(bomb) < LIMITS.body_bytes
        assert (await world.post(body=bomb, Content_Encoding="gzip"))[0] == 415
    assert world.taken == []


async def test_the_largest_body_is_read() -> None:
    padded = json.dumps(REPORT).encode()
    padded += b" " * (LIMITS.body_bytes - len(padded))
    async with answering() as world:
        assert (await world.post(body=padded))[0] == 200
        assert (await world.post(body=padded + b" "))[0] == 413


async def test_a_body_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering() as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        with closing(writer):
            writer.write(head("Content-Length: 100") + b"{")
            assert (await world.post())[0] == 200  # by now the server has begun to wait
            time_passes(LIMITS.request_seconds, monkeypatch)
            async with asyncio.timeout(GUARD_SECONDS):
                assert b" 408 " in await reader.read()
    assert len(world.taken) == 1


@pytest.mark.parametrize(
    "bearer",
    [
        "",
        "abc",
        "a.b",
        "a.b.c",
        "a.!!!.c",
        "a." + "W10" + ".s",
        "a.b." + "c" * 8000,
        token(aud="https://kubernetes.default.svc"),
        token(aud=["other", "another"]),
        token(expires_in=-1),
        token(exp="soon"),
        token(exp=None),
    ],
)
async def test_a_token_that_is_not_for_us_costs_no_review(bearer: str) -> None:
    async with answering() as world:
        status, _, _ = await world.post(bearer)
    assert (status, world.results, world.api.requests) == (401, ["unauthenticated"], [])


async def test_a_report_without_a_token_is_refused() -> None:
    async with answering() as world:
        assert (await world.post(Authorization="Basic Zm9v"))[0] == 401


async def test_an_address_that_asks_too_often_waits_and_others_do_not() -> None:
    async with answering() as world:
        for _ in range(int(ADDRESS_BURST)):
            await world.post("abc")
        status, _, headers = await world.post()
        assert (status, headers["Retry-After"]) == (429, "1")
        assert (await world.post(address="127.0.0.2"))[0] == 200
        world.clock.seconds += 1
        assert (await world.post())[0] == 200


# --- who leads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"leading": False}, {"lists": False}])
async def test_a_replica_that_cannot_answer_sends_agents_away_without_a_review(fields: dict[str, bool]) -> None:
    async with answering(**fields) as world:
        status, _, headers = await world.post()
    assert (status, headers["Retry-After"], world.results) == (503, "1", ["standby"])
    assert world.api.requests == []


async def test_a_report_that_nothing_decides_about_is_not_answered() -> None:
    async with answering(answer=None) as world:
        status, _, headers = await world.post()
    assert (status, headers["Retry-After"], world.results) == (503, "1", ["unanswered"])


async def test_an_answer_of_a_term_that_has_ended_meanwhile_is_not_given() -> None:
    async with answering() as world:
        world.leads_for_answers = 0
        status, _, _ = await world.post()
    assert (status, len(world.taken), world.results) == (503, 1, ["standby"])


# --- who reports ---------------------------------------------------------------------------------------------------


async def test_a_forged_token_is_refused_and_asked_about_once_for_some_seconds() -> None:
    async with answering() as world:
        forged = token().removesuffix(".s") + ".forged"
        for _ in range(3):
            assert (await world.post(forged))[0] == 401
        assert len(world.api.requests) == 1
        world.clock.seconds += 11
        assert (await world.post(forged))[0] == 401
    assert len(world.api.requests) == 2
    assert world.taken == []


@pytest.mark.parametrize(
    "bearer", [token(unbound=True), token(account="admin"), token(account="system:serviceaccount:team")]
)
async def test_a_token_that_is_bound_to_no_pod_is_refused(bearer: str) -> None:
    async with answering() as world:
        assert (await world.post(bearer))[0] == 401


@pytest.mark.parametrize(
    ("bearer", "why"),
    [
        (token("llm-node-0-1-x"), "completion index 0"),
        (token("llm-node-0-2-x"), "completion index 0"),
        (token("other"), "no member"),
        (token(uid="uid-of-an-earlier-pod"), "no member"),
        (token(account="system:serviceaccount:elsewhere:default"), "no member"),
    ],
)
async def test_only_the_pod_of_slot_0_reports_for_its_job(bearer: str, why: str) -> None:
    async with answering() as world:
        status, text, _ = await world.post(bearer)
    assert (status, world.results, world.taken) == (403, ["forbidden"], [])
    assert why in text


async def test_the_token_of_a_deleted_pod_is_refused_although_its_review_is_kept() -> None:
    async with answering() as world:
        assert (await world.post())[0] == 200
        world.pods.clear()
        assert (await world.post())[0] == 403
        assert len(world.api.requests) == 1


async def test_a_review_is_kept_for_five_minutes_and_never_longer_than_the_token() -> None:
    async with answering() as world:
        short, long = token(expires_in=100), token()
        for bearer in (short, long):
            assert (await world.post(bearer))[0] == 200
        world.clock.seconds += 99
        assert (await world.post(long))[0] == 200
        assert len(world.api.requests) == 2
        world.clock.seconds += 2
        assert (await world.post(short))[0] == 401
        world.clock.seconds += 200
        assert (await world.post(long))[0] == 200
        assert len(world.api.requests) == 3


async def test_reports_with_the_same_new_token_share_one_review() -> None:
    async with answering() as world:
        world.api.held.clear()
        posts = [asyncio.create_task(world.post()) for _ in range(5)]
        await comes(lambda: len(world.api.requests) == 1)
        world.api.held.set()
        assert [status for status, _, _ in await asyncio.gather(*posts)] == [200] * 5
    assert len(world.api.requests) == 1


async def test_while_the_api_server_checks_no_tokens_known_ones_are_answered() -> None:
    async with answering() as world:
        assert (await world.post())[0] == 200
        world.api.error = TryLaterError("the API server is away")
        status, _, headers = await world.post(token(aud=[token.__name__, "recovery-agent.recovery.trainjob.dev"]))
        assert (status, headers["Retry-After"]) == (503, "1")
        assert (await world.post())[0] == 200
    assert world.results == ["accepted", "unavailable", "accepted"]


async def test_a_pod_that_reports_too_often_waits_and_others_do_not() -> None:
    async with answering() as world:
        world.pods["team", "b"] = KEY, pod("b", 0)
        for _ in range(int(POD_BURST)):
            assert (await world.post())[0] == 200
        status, _, headers = await world.post()
        assert (status, headers["Retry-After"], world.results[-1]) == (429, "1", "limited")
        assert (await world.post(token("b")))[0] == 200
        world.clock.seconds += 1
        assert (await world.post())[0] == 200


# --- what is said --------------------------------------------------------------------------------------------------


async def test_a_malformed_report_is_refused_with_the_field() -> None:
    async with answering() as world:
        status, text, _ = await world.post(body=json.dumps({**REPORT, "epoch": 0}).encode())
    assert (status, world.results, world.taken) == (400, ["malformed"], [])
    assert "$.epoch" in text


async def test_garbage_connections_keep_no_agent_out() -> None:
    async with answering() as world:
        garbage = []
        for number in range(1500):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(b"\x16\x03\x01\xff" * (number % 5) or b"POST /")
            garbage.append(writer)
            if number % 500 == 499:
                assert (await world.post())[0] == 200
        for writer in garbage:
            writer.close()
    assert world.results == ["accepted"] * 3
