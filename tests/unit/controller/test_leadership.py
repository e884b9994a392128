"""The election: who leads, for how long, and what each candidate says when that is unknown."""

import asyncio
from collections.abc import Iterator, MutableMapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.controller.leadership import ROLES_READ_WITHIN_SECONDS, SoleLeader
from recovery.ports import ApiRequest, ForbiddenError, TryLaterError, UnknownOutcomeError
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.candidates import LEASE, RETRY_MAX, TERM, Candidate, OwnClock, running
from tests.unit.controller.leases import LeaseServer
from tests.unit.fake_api import Object

Said = list[MutableMapping[str, Any]]


@pytest.fixture
def said() -> Iterator[Said]:
    with capture_logs() as lines:
        yield lines


def sentences(said: Said, level: str) -> list[str]:
    return [line["event"] for line in said if line["log_level"] == level]


# --- one candidate ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_first_candidate_creates_the_lease_and_keeps_renewing_it() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        assert one.leads
        assert server.spec == {
            "holderIdentity": "one",
            "leaseDurationSeconds": LEASE,
            "acquireTime": "2026-11-02T08:00:00.000000Z",
            "renewTime": "2026-11-02T08:00:00.000000Z",
            "leaseTransitions": 0,
        }
        await asyncio.sleep(3600)
        assert one.leads
        assert one.led_at == [0]
        assert server.spec["acquireTime"] == "2026-11-02T08:00:00.000000Z"
        assert server.spec["renewTime"] == "2026-11-02T09:00:00.000000Z"
    assert one.way.sent == ["get", "create", *["patch"] * 1800], "a renewal is one request"


@virtual_time
async def test_a_lease_that_cannot_be_renewed_ends_the_term_before_others_may_take_it(
    said: Said,
) -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        await asyncio.sleep(29.5)
        one.way.refusal = TryLaterError("connection refused")
        await asyncio.sleep(60)
        assert one.lost == [(40, "the lease was not renewed for 10 s: connection refused")]
        assert not one.leads
        one.way.refusal = None
        await asyncio.sleep(RETRY_MAX)
        assert one.leads, "nobody has taken it meanwhile"
        assert (server.spec["leaseTransitions"], server.holders) == (0, ["one"])
    assert "cannot stand for election: connection refused" in sentences(said, "warning")


@pytest.mark.parametrize(("renewals", "lost_at"), [(0, 10), (1, 15.5)])
def test_a_term_is_counted_from_when_its_request_was_sent_and_not_from_the_answer(
    renewals: int, lost_at: float
) -> None:
    """The others count from when they saw the record, and that may be as early as the moment the request was sent."""

    @virtual_time
    async def play() -> None:
        server = LeaseServer()
        one = Candidate(server, "one")
        answers = iter([0.0, *[3.5] * (1 + renewals)])  # the first read, the election, and each renewal
        one.way.back = lambda: next(answers, 0.0)
        asyncio.get_running_loop().call_at(3.6 + renewals * 5.5, one.way.refuse, TryLaterError("connection refused"))
        async with running(one):
            await asyncio.sleep(30)
            assert one.lost == [(lost_at, "the lease was not renewed for 10 s: connection refused")]

    play()


@virtual_time
async def test_a_request_that_hangs_leaves_time_for_another() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        await asyncio.sleep(10)
        hangs = iter([1e6])
        one.way.there = lambda: next(hangs, 0.0)
        await asyncio.sleep(60)
        assert (one.leads, one.lost) == (True, [])


@virtual_time
async def test_a_renewal_whose_answer_was_lost_is_read_again_and_is_no_transition() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        losses = iter([True] * 3)
        one.way.loses_answer = lambda: next(losses, False)
        await asyncio.sleep(60)
        assert (one.leads, one.lost) == (True, [])
        assert server.spec["leaseTransitions"] == 0


@virtual_time
async def test_a_candidate_leads_after_the_answer_to_its_election_was_lost() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    losses = iter([True])
    one.way.loses_answer = lambda: next(losses, False)
    async with running(one):
        await asyncio.sleep(RETRY_MAX)
        assert one.leads
        assert server.spec["leaseTransitions"] == 0


@virtual_time
async def test_a_lease_that_someone_deletes_is_made_again() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        server.delete()
        await asyncio.sleep(10)
        assert (one.leads, one.lost) == (True, [])
        assert (server.spec["holderIdentity"], server.spec["acquireTime"]) == ("one", "2026-11-02T08:00:00.000000Z")


@pytest.mark.parametrize(("holder", "why"), [("other", "other holds the lease"), ("", "the lease was released")])
def test_a_lease_that_is_someone_elses_ends_the_term_at_once(holder: str, why: str) -> None:
    @virtual_time
    async def play() -> None:
        server = LeaseServer()
        one = Candidate(server, "one")
        async with running(one):
            server.put({**server.spec, "holderIdentity": holder})
            await asyncio.sleep(1.5)
            assert [reason for _, reason in one.lost] == [why]

    play()


# --- what it logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_a_missing_permission_is_named_as_an_error_once_it_has_lasted_and_is_waited_for(verb: str, said: Said) -> None:
    """An API server that has just started forbids everything until it has loaded its roles."""

    @virtual_time
    async def play() -> None:
        server = LeaseServer()
        if verb == "patch":
            server.put({})
        one = Candidate(server, "one")
        allowed = one.way.send

        async def refused(request: ApiRequest) -> bytes:
            if request.verb == verb:
                raise ForbiddenError('leases is forbidden: User "x" cannot', status=403)
            return await allowed(request)

        one.way.send = refused  # type: ignore[method-assign]
        async with running(one):
            right = f"{verb} leases.coordination.k8s.io in namespace recovery-system"
            missing = f"cannot stand for election: a permission is missing: {right}"
            await asyncio.sleep(ROLES_READ_WITHIN_SECONDS - 2)
            assert (sentences(said, "warning"), sentences(said, "error")) == ([missing], [])
            await asyncio.sleep(60)
            assert not one.leads
            assert (sentences(said, "warning"), sentences(said, "error")) == ([missing], [missing])
            one.way.send = allowed  # type: ignore[method-assign]
            await asyncio.sleep(RETRY_MAX)
            assert one.leads

    play()


@virtual_time
async def test_what_was_forbidden_before_another_answer_does_not_count(said: Said) -> None:
    """Two API servers that start one after the other each forbid requests for a time of their own."""
    server = LeaseServer()
    one = Candidate(server, "one")
    forbidden = ForbiddenError('leases is forbidden: User "x" cannot', status=403)
    one.way.refusal = forbidden
    async with running(one):
        await asyncio.sleep(ROLES_READ_WITHIN_SECONDS - 10)
        one.way.refusal = TryLaterError("connection refused")
        await asyncio.sleep(ROLES_READ_WITHIN_SECONDS)
        one.way.refusal = forbidden
        await asyncio.sleep(ROLES_READ_WITHIN_SECONDS - 10)
        assert sentences(said, "error") == []
        await asyncio.sleep(20)
        assert len(sentences(said, "error")) == 1


@pytest.mark.parametrize("spec", [{"holderIdentity": 7}, {"leaseDurationSeconds": "long"}])
def test_a_lease_that_cannot_be_read_is_named_with_the_way_to_fix_it(spec: Object, said: Said) -> None:
    @virtual_time
    async def play() -> None:
        server = LeaseServer()
        server.put(spec)
        one = Candidate(server, "one")
        async with running(one):
            await asyncio.sleep(60)
            assert not one.leads
            [line] = sentences(said, "error")
            assert line.startswith(
                "cannot stand for election: Lease recovery-system/recovery-controller cannot be read"
            )
            assert next(iter(spec)) in line
            assert line.endswith("kubectl delete lease -n recovery-system recovery-controller")
            server.delete()
            await asyncio.sleep(RETRY_MAX)
            assert one.leads

    play()


# --- two candidates --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_standby_says_once_who_leads_and_writes_nothing(said: Said) -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        await asyncio.sleep(3600)
        assert (one.leads, two.leads) == (True, False)
    assert sentences(said, "info") == ["standing by, one leads"]
    assert set(two.way.sent) == {"get"}


@virtual_time
async def test_a_standby_takes_over_when_it_has_seen_no_renewal_for_the_whole_lease() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        await asyncio.sleep(60)
        await one.kill()
        renewed_at = datetime.fromisoformat(server.spec["renewTime"])
        await asyncio.sleep(30)
        assert two.leads
        assert server.holders == ["one", "two"]
        assert server.spec["leaseTransitions"] == 1
        acquired_at = datetime.fromisoformat(server.spec["acquireTime"])
        assert timedelta(seconds=LEASE) <= acquired_at - renewed_at <= timedelta(seconds=LEASE + 2 * RETRY_MAX)


@virtual_time
async def test_a_released_lease_is_taken_at_the_next_try() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        await asyncio.sleep(60)
        await one.end()
        assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)
        await asyncio.sleep(RETRY_MAX)
        assert two.leads
        assert (server.holders, server.spec["leaseTransitions"]) == (["one", "", "two"], 1)


@virtual_time
async def test_only_the_holder_releases() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        sent = len(two.way.sent)
        await two.end()
        assert len(two.way.sent) == sent, "a standby has nothing to ask"
        assert one.leads
        assert server.holders == ["one"]
        server.put({**server.spec, "holderIdentity": "other"})
        await one.end()
    assert server.holders == ["one", "other"]


@virtual_time
async def test_a_release_meets_its_own_renewal_that_is_still_on_its_way() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        await asyncio.sleep(10.5)
        ways = iter([0.6, 0.0, 0.3])  # the renewal, the read of the release, its write: the renewal comes in between
        one.way.there = lambda: next(ways, 0.0)
        await asyncio.sleep(1.1)
        await one.kill()
        await one.elector.release()
    assert server.holders == ["one", ""]


@virtual_time
async def test_a_release_that_is_refused_is_logged_and_the_elector_ends(said: Said) -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        one.way.refusal = UnknownOutcomeError("the connection was lost")
        await one.end()
        one.way.refusal = TryLaterError("connection refused")
        await one.end()
    assert server.holders == ["one"]
    assert any(line["log_level"] == "warning" and line.get("error") == "connection refused" for line in said)


@virtual_time
async def test_no_clock_of_another_machine_is_believed() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    two = Candidate(server, "two", clock=OwnClock(ahead=timedelta(days=3)))
    async with running(one, two):
        await asyncio.sleep(60)
        one.clock.ahead = timedelta(days=-400)
        await asyncio.sleep(60)
        assert (one.lost, two.leads) == ([], False)


@virtual_time
async def test_what_changes_besides_the_record_is_no_sign_of_life() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        await one.kill()
        for _ in range(25):
            server.touch()
            await asyncio.sleep(1)
        assert two.leads


@pytest.mark.parametrize("duration", [{}, {"leaseDurationSeconds": 30}])
def test_a_holder_that_never_renews_is_waited_for_once(duration: Object) -> None:
    """The candidate waits as long as the record says, or for its own lease duration if the record does not say."""

    @virtual_time
    async def play() -> None:
        server = LeaseServer()
        server.put({"holderIdentity": "nobody", "renewTime": "2099-01-01T00:00:00.000000Z", **duration})
        one = Candidate(server, "one")
        async with running(one):
            await asyncio.sleep(120)
            [at] = one.led_at
            wait = duration.get("leaseDurationSeconds", LEASE)
            assert wait <= at <= wait + RETRY_MAX
            assert server.spec["leaseTransitions"] == 1

    play()


@virtual_time
async def test_a_lease_that_was_deleted_is_not_taken_while_its_holder_may_act() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        one.way.refusal = TryLaterError("connection refused")
        server.delete()
        await asyncio.sleep(TERM - 3)
        assert (one.leads, two.leads) == (True, False)
        await asyncio.sleep(LEASE)
        assert (one.leads, two.leads) == (False, True)
    assert server.holders == ["one", "two"]


@virtual_time
async def test_a_frozen_leader_finds_its_term_over_and_stands_by(said: Said) -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    async with running(one, two):
        one.clock.running.clear()
        await asyncio.sleep(LEASE + 5)
        assert (one.leads, two.leads) == (False, True)
        sent = len(one.way.sent)
        one.clock.running.set()
        await asyncio.sleep(RETRY_MAX)
        assert one.lost[0][1] == "the lease was not renewed for 10 s"
        assert set(one.way.sent[sent:]) == {"get"}
        assert sentences(said, "info") == ["standing by, one leads", "standing by, two leads"]


# --- without an election ---------------------------------------------------------------------------------------------


@virtual_time
async def test_alone_leads_at_once_and_until_it_is_told_to_stop() -> None:
    alone = SoleLeader(VirtualClock())
    term = await alone.acquire()
    holding = asyncio.create_task(alone.hold(term))
    await asyncio.sleep(1e6)
    assert term.lasts
    assert not holding.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await alone.release()


def test_the_record_reads_as_kubectl_expects() -> None:
    """`kubectl get lease` shows holderIdentity; `describe` fails on a MicroTime without six digits."""

    @virtual_time
    async def play() -> None:
        await asyncio.sleep(0.25)
        server = LeaseServer()
        async with running(Candidate(server, "host_1")):
            assert server.spec["renewTime"] == "2026-11-02T08:00:00.250000Z"

    play()
