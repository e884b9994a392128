"""The log of a trial and its fingerprint: which differences between two trials it shows."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from recovery.ports import JOBS, LEASES, ApiRequest, PatchKind
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.trial_evidence import RequestRecord
from recovery.sim.virtual_time import virtual_time
from tests.simulation.trials.small import at
from tests.simulation.trials.wire import Wire
from tests.unit.sim.api.servers import TEAM, named

KILL = TrialFault(FaultKey("world", 3, FaultKind.POD_KILL), 5.0, 60.0)
RECORD = RequestRecord(at(0), "controller-0", 0, 7, ApiRequest("patch", JOBS, TEAM, "a", body=b"{}"), 200, True, 9)


def fingerprint(*actions: Callable[[Wire], object]) -> str:
    """The fingerprint of a trial in which these things happen."""
    told = []

    @virtual_time
    async def happen() -> None:
        wire = Wire()
        wire.put("a")
        for action in actions:
            action(wire)
        told.append(wire.log.fingerprint)

    happen()
    return told[0]


def as_someone(wire: Wire) -> None:
    with wire.server.acting("job-controller"):
        wire.put("a", 2)


def told(record: RequestRecord) -> Callable[[Wire], None]:
    return lambda wire: wire.log.requested(record)


def applied(fault: TrialFault, sentence: str = "pod a was deleted") -> Callable[[Wire], object]:
    return lambda wire: wire.log.applied(fault, sentence)


def test_equal_trials_have_equal_fingerprints() -> None:
    actions = (as_someone, told(RECORD), applied(KILL))
    assert fingerprint(*actions) == fingerprint(*actions)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((), (lambda wire: wire.put("a", 2),)),
        ((lambda wire: wire.put("a", 2),), (lambda wire: wire.put("a", 3),)),
        ((lambda wire: wire.put("a", 2),), (as_someone,)),
        ((told(RECORD),), (told(replace(RECORD, number=8)),)),
        ((told(RECORD),), (told(replace(RECORD, at=at(0.001))),)),
        ((told(RECORD),), (told(replace(RECORD, code=409)),)),
        ((told(RECORD),), (told(replace(RECORD, applied=False)),)),
        ((told(RECORD),), (told(replace(RECORD, actor="controller-1")),)),
        ((told(RECORD),), (told(replace(RECORD, request=ApiRequest("patch", JOBS, TEAM, "a", body=b"[]"))),)),
        ((told(RECORD),), (told(replace(RECORD, request=ApiRequest("patch", JOBS, TEAM, "b", body=b"{}"))),)),
        ((applied(KILL),), (applied(KILL, "pod b was deleted"),)),
        ((applied(KILL), told(RECORD)), (told(RECORD), applied(KILL))),
    ],
    ids=[
        "a change",
        "its body",
        "its author",
        "number",
        "moment",
        "code",
        "applied",
        "actor",
        "body",
        "name",
        "whom a fault applied",
        "order",
    ],
)
def test_trials_that_differ_in_this_have_different_fingerprints(
    one: tuple[Callable[[Wire], object], ...], other: tuple[Callable[[Wire], object], ...]
) -> None:
    assert fingerprint(*one) != fingerprint(*other)


@virtual_time
async def test_changes_are_kept_in_order_with_their_moments() -> None:
    wire = Wire()
    wire.put("a")
    await wire.clock.sleep(5.0)
    wire.put("a", 2)
    evidence = wire.evidence
    assert [(change.type, change.body["spec"]["size"]) for change in evidence.changes] == [
        ("ADDED", 1),
        ("MODIFIED", 2),
    ]
    assert evidence.change_times == [at(0), at(5)]


@virtual_time
async def test_leases_are_not_kept_but_make_a_difference() -> None:
    wire = Wire()
    before = wire.log.fingerprint
    wire.server.create(LEASES, named("node-0"), namespace=TEAM)
    assert wire.evidence.changes == wire.evidence.change_times == []
    assert wire.log.fingerprint != before


@virtual_time
async def test_a_fault_is_told_with_its_moment_and_its_end() -> None:
    wire = Wire()
    await wire.clock.sleep(60.25)
    drawn = TrialFault(FaultKey("controller-0", 9, FaultKind.PROCESS_FREEZE), 20.0)

    happened = wire.log.applied(drawn, "controller-0 is frozen", node="node-0", pod_uids=("u",))

    (happening,) = wire.evidence.happenings
    assert happened.at_seconds == 60.25
    assert (happening.fault, happening.at, happening.until) == (happened, at(60.25), at(80.25))
    assert (happening.sentence, happening.node, happening.pod_uids) == ("controller-0 is frozen", "node-0", ("u",))
    assert wire.log.faults == [happened], "as a plan would name it"


@virtual_time
async def test_a_planned_fault_stays_as_it_was_planned() -> None:
    wire = Wire()
    await wire.clock.sleep(60.25)
    happened = wire.log.applied(KILL, "pod a was deleted")
    assert (wire.log.faults, happened.at_seconds) == ([KILL], 60.25)


@pytest.mark.parametrize(
    ("seconds", "lasting", "until_seconds"),
    [(0.0, True, None), (20.0, True, 20.0), (-20.0, True, 20.0), (20.0, False, None)],
)
def test_how_long_a_fault_is_trouble(seconds: float, lasting: bool, until_seconds: float | None) -> None:
    @virtual_time
    async def happen() -> None:
        wire = Wire()
        fault = TrialFault(FaultKey("controller-0", 1, FaultKind.CLOCK_JUMP), seconds)
        wire.log.applied(fault, "…", lasting=lasting)
        (happening,) = wire.evidence.happenings
        assert happening.until == (None if until_seconds is None else at(0) + timedelta(seconds=until_seconds))

    happen()


@virtual_time
async def test_a_patch_that_changes_nothing_is_no_revision() -> None:
    wire = Wire()
    wire.put("a", 1)
    before = wire.log.fingerprint
    wire.server.patch(JOBS, "a", {"spec": {"size": 1}}, kind=PatchKind.MERGE, namespace=TEAM)
    assert (wire.log.fingerprint, len(wire.evidence.changes)) == (before, 1)
