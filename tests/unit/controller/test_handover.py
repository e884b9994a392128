"""A leader whose facts are stale hands the lease over, but only to a standby whose facts are current."""

import asyncio

from recovery.controller.lease import ACCEPTED_ANNOTATION, OFFERED_ANNOTATION
from recovery.ports import TryLaterError
from recovery.sim.virtual_time import virtual_time
from tests.unit.controller.candidates import LEASE, RETRY_MAX, Candidate, running
from tests.unit.controller.leases import LeaseServer


def annotations(server: LeaseServer) -> dict[str, str]:
    assert server.lease is not None, "there is no Lease"
    found: dict[str, str] = server.lease["metadata"].get("annotations") or {}
    return found


@virtual_time
async def test_it_hands_over_within_seconds_and_no_two_lead_at_once() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)
    ended: list[bool] = []
    server.judge = lambda holder: ended.append(holder != "two" or not one.leads)
    async with running(one, two):
        await asyncio.sleep(30)
        one.current = False
        await asyncio.sleep(3 * RETRY_MAX + 1)
        assert (one.leads, two.leads) == (False, True)
        assert all(ended), "the term of the one is over before the other is named"
        await asyncio.sleep(60)
        assert (one.leads, two.leads) == (False, True), "the one that is stale does not take it back"
        assert annotations(server) == {}
        assert server.spec["leaseTransitions"] == 1
    assert [why for _, why in one.lost] == ["what it knows of the cluster is stale, and two knows more"]


@virtual_time
async def test_where_no_standby_is_current_it_keeps_leading() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)
    two.current = False
    async with running(one, two):
        one.current = False
        await asyncio.sleep(3600)
        assert one.leads
        assert one.lost == []
        assert annotations(server) == {OFFERED_ANNOTATION: "one"}
        two.current = True
        await asyncio.sleep(3 * RETRY_MAX + 1)
        assert two.leads, "as soon as one is"


@virtual_time
async def test_where_there_is_no_standby_it_keeps_leading_and_each_renewal_is_one_request() -> None:
    server = LeaseServer()
    one = Candidate(server, "one")
    async with running(one):
        one.current = False
        await asyncio.sleep(600)
        assert one.leads
    assert one.way.sent == ["get", "create", *["patch"] * 300]


@virtual_time
async def test_an_offer_is_taken_back_when_the_leader_is_current_again() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)
    two.current = False
    async with running(one, two):
        one.current = False
        await asyncio.sleep(60)
        one.current = True
        await asyncio.sleep(RETRY_MAX)
        assert annotations(server) == {}
        two.current = True
        await asyncio.sleep(60)
        assert (one.leads, two.leads) == (True, False)


@virtual_time
async def test_one_that_is_current_again_when_it_is_accepted_keeps_the_lease() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)
    async with running(one, two):
        one.current = False
        while ACCEPTED_ANNOTATION not in annotations(server):
            await asyncio.sleep(0.1)
        one.current = True
        await asyncio.sleep(60)
        assert (one.leads, two.leads) == (True, False)
        assert annotations(server) == {}


@virtual_time
async def test_a_successor_that_ends_before_it_leads_leaves_a_lease_that_anybody_may_take() -> None:
    server = LeaseServer()
    one, two, three = (Candidate(server, name, seed=seed) for seed, name in enumerate(("one", "two", "three")))
    three.current = False
    async with running(one, two, three):
        one.current = False
        while ACCEPTED_ANNOTATION not in annotations(server):
            await asyncio.sleep(0.1)
        assert annotations(server)[ACCEPTED_ANNOTATION] == "two"
        await two.kill()
        await asyncio.sleep(3 * RETRY_MAX)
        assert server.spec["holderIdentity"] == "two"
        await asyncio.sleep(LEASE + RETRY_MAX)
        assert one.leads or three.leads, "stale facts are better than nobody: what is begun goes on"


@virtual_time
async def test_annotations_of_others_are_kept() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)
    async with running(one, two):
        server.touch()
        one.current = False
        await asyncio.sleep(60)
        assert two.leads
        assert list(annotations(server)) == ["touched"]


@virtual_time
async def test_a_leader_that_cannot_name_its_successor_no_longer_leads() -> None:
    server = LeaseServer()
    one, two = Candidate(server, "one"), Candidate(server, "two", seed=2)

    def unreachable_once_it_has_read() -> float:
        if one.way.sent[-1] == "get":
            one.way.refusal = TryLaterError("connection refused")
        return 0.0

    async with running(one, two):
        one.way.there = unreachable_once_it_has_read
        one.current = False
        await asyncio.sleep(2 * LEASE)
        assert one.lost[0][1].endswith("two knows more")
        assert one.leads is False
        assert two.leads, "it takes the lease when that has expired"
