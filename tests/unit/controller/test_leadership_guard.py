"""No write is sent or continues once the lease may belong to another process."""

import asyncio

import pytest

from recovery import api_verbs
from recovery.controller.leadership_guard import LeadershipGuard, LeadershipTerm
from recovery.ports import JOBS, ApiClient, ApiRequest, NotLeadingError, PatchKind
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.fake_api import FakeApi


class SlowApi(FakeApi):
    """Takes `seconds` for a write, and records the writes that were applied."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.done: list[str] = []

    async def answer(self, request: ApiRequest) -> bytes:
        if request.verb == "get":
            return b"read"
        await asyncio.sleep(self._seconds)
        self.done.append(request.verb)
        return b"{}"


async def all_writes(api: ApiClient) -> list[str]:
    """The outcome of each kind of write."""
    writes = {
        "create": api_verbs.create(api, JOBS, {}, namespace="ml"),
        "patch": api_verbs.patch(api, JOBS, "train", [], kind=PatchKind.JSON, namespace="ml"),
        "delete": api_verbs.delete(api, JOBS, "train", namespace="ml"),
    }
    results = await asyncio.gather(*writes.values(), return_exceptions=True)
    return [
        f"{verb} {'done' if result == b'{}' else type(result).__name__}"
        for verb, result in zip(writes, results, strict=True)
    ]


DONE = ["create done", "patch done", "delete done"]
STOPPED = ["create NotLeadingError", "patch NotLeadingError", "delete NotLeadingError"]


@virtual_time
async def test_writes_pass_while_the_term_lasts_and_none_afterwards() -> None:
    api = SlowApi(seconds=0)
    guard = LeadershipGuard(api, LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10))
    await asyncio.sleep(9.9)
    assert await all_writes(guard) == DONE
    await asyncio.sleep(0.1)
    assert await all_writes(guard) == STOPPED
    assert api.done == ["create", "patch", "delete"]
    assert await api_verbs.get(guard, JOBS, "train", namespace="ml") == b"read", "reading harms nobody"


@virtual_time
async def test_a_write_under_way_is_given_up_when_the_term_ends() -> None:
    """Otherwise the API client might wait and retry it after the term."""
    api = SlowApi(seconds=5)
    guard = LeadershipGuard(api, LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10))
    await asyncio.sleep(8)
    assert await all_writes(guard) == STOPPED
    assert VirtualClock().monotonic_seconds() == 10
    await asyncio.sleep(60)
    assert api.done == []


@virtual_time
async def test_a_renewal_carries_on_the_writes_under_way() -> None:
    api, term = SlowApi(seconds=5), LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10)
    asyncio.get_running_loop().call_at(9, term.extend, 8.5)
    await asyncio.sleep(8)
    assert await all_writes(LeadershipGuard(api, term)) == DONE


@virtual_time
async def test_a_term_is_counted_from_when_the_renewal_was_sent() -> None:
    term = LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10)
    await asyncio.sleep(9)
    term.extend(renewed_at=4)
    await asyncio.sleep(4.9)
    assert term.lasts
    await asyncio.sleep(0.2)
    assert not term.lasts


@virtual_time
async def test_a_renewal_that_comes_too_late_revives_nothing() -> None:
    term = LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10)
    await asyncio.sleep(10)
    term.extend(renewed_at=9.9)
    assert not term.lasts
    with pytest.raises(NotLeadingError, match="create jobs ml: not sent"):
        await api_verbs.create(LeadershipGuard(SlowApi(0), term), JOBS, {}, namespace="ml")


@virtual_time
async def test_a_term_that_was_ended_stays_ended() -> None:
    term = LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10)
    term.end()
    term.extend(renewed_at=0)
    assert await all_writes(LeadershipGuard(SlowApi(0), term)) == STOPPED


@virtual_time
async def test_a_term_without_a_lease_does_not_end_by_itself() -> None:
    term = LeadershipTerm(VirtualClock(), renewed_at=0)
    await asyncio.sleep(1e6)
    assert await all_writes(LeadershipGuard(SlowApi(100), term)) == DONE


@virtual_time
async def test_being_cancelled_is_not_taken_for_the_end_of_the_term() -> None:
    guard = LeadershipGuard(SlowApi(seconds=5), LeadershipTerm(VirtualClock(), renewed_at=0, seconds=10))
    writing = asyncio.create_task(api_verbs.create(guard, JOBS, {}, namespace="ml"))
    await asyncio.sleep(1)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
