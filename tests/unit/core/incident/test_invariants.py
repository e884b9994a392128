"""Each invariant finds the ledger that breaks it and says which invariant it is."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.incident import lifecycle, phases
from recovery.core.incident.invariants import violations
from recovery.core.model.ledger import (
    AttemptAction,
    Incident,
    Ledger,
    Phase,
    Target,
)
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Broken, Standing
from recovery.core.model.step import Step, StepType
from recovery.core.model.waits import Suspension
from tests.unit.core.drills import drill, named, with_drills
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import at

EMPTY = Ledger()


def opened() -> Ledger:
    """A ledger that has recorded the trigger."""
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    return controller.ledger


def closed() -> Ledger:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.recreated(10).all_ready(20), 21)
    return controller.ledger


def opened_by_drill() -> Ledger:
    """A ledger that has recorded the trigger of a drill, which costs nothing."""
    controller = Controller()
    world = training()
    controller.reconcile(with_drills(world, drill(named(world, 3))).pod_deleted(3, 0), 1)
    return controller.ledger


def held() -> Ledger:
    controller = Controller(policy(limit=0))
    controller.reconcile(training().pod_deleted(3, 0), 1)
    return controller.ledger


def put_away() -> Ledger:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.settle(world.recreated(10).all_ready(20), 21)
    return controller.ledger


def with_incident(ledger: Ledger, **changes: object) -> Ledger:
    return msgspec.structs.replace(ledger, incident=msgspec.structs.replace(ledger.current_incident, **changes))


def incident_of(ledger: Ledger) -> Incident:
    assert ledger.incident is not None
    return ledger.incident


def with_totals(ledger: Ledger, **changes: object) -> Ledger:
    return msgspec.structs.replace(ledger, totals=msgspec.structs.replace(ledger.totals, **changes))


def with_budget(ledger: Ledger, **changes: object) -> Ledger:
    return msgspec.structs.replace(ledger, budget=msgspec.structs.replace(ledger.budget, **changes))


def last_span(ledger: Ledger, **changes: object) -> Ledger:
    spans = ledger.current_incident.phases
    return with_incident(ledger, phases=(*spans[:-1], msgspec.structs.replace(spans[-1], **changes)))


def first_span(ledger: Ledger, **changes: object) -> Ledger:
    spans = ledger.current_incident.phases
    return with_incident(ledger, phases=(msgspec.structs.replace(spans[0], **changes), *spans[1:]))


def another_attempt(ledger: Ledger, **changes: object) -> Ledger:
    target = ledger.current_incident.target
    more = lifecycle.add_attempt(ledger, AttemptAction.RECREATE_GROUP, target, Reason.MEMBER_LOST_AGAIN, "again", at(2))
    attempts = more.current_incident.attempts
    return with_incident(more, attempts=(*attempts[:-1], msgspec.structs.replace(attempts[-1], **changes)))


def left_hanging(since: float = 21) -> Ledger:
    hangs = Broken(at(0), at(since), "0d2f5c9e-1", "PodDeleted", 32, "pod train-node-0-3 ended")
    ledger = put_away()
    history = (msgspec.structs.replace(ledger.history[0], still_broken=True),)
    return msgspec.structs.replace(ledger, standing=Standing.BROKEN, broken=hangs, history=history)


def closed_hanging() -> Ledger:
    """The incident has just closed, and says that ranks hang."""
    ledger = closed()
    closing = ledger.current_incident.closing
    assert closing is not None
    left = with_incident(ledger, closing=msgspec.structs.replace(closing, still_broken=True))
    hangs = left_hanging((closing.ended_at - at(0)).total_seconds()).broken
    return msgspec.structs.replace(left, standing=Standing.BROKEN, broken=hangs)


def booking(ledger: Ledger, gpu_seconds: float, **changes: object) -> Ledger:
    """The ledger after it has booked that much for the time in which the group hung."""
    totals, of_classes = ledger.totals, ledger.totals.idle_gpu_seconds_by_class
    of_class = {**of_classes["PodDeleted"], "Broken": gpu_seconds}
    booked = with_totals(
        ledger,
        idle_gpu_seconds={**totals.idle_gpu_seconds, "Broken": gpu_seconds},
        idle_gpu_seconds_by_class={**of_classes, "PodDeleted": of_class},
    )
    return msgspec.structs.replace(booked, **changes)


HOLDS: dict[str, tuple[Ledger, Ledger]] = {
    "nothing changes": (opened(), opened()),
    "an incident opens with a trigger": (EMPTY, opened()),
    "an incident opens held": (EMPTY, held()),
    "an incident of a drill opens with a trigger": (EMPTY, opened_by_drill()),
    "a drill has another attempt, for a failure of its own": (opened_by_drill(), another_attempt(opened_by_drill())),
    "it moves along": (opened(), phases.enter(opened(), Phase.TEARING_DOWN, at(3))),
    "another attempt": (opened(), another_attempt(opened())),
    "it closes": (opened(), closed()),
    "it is put away": (closed(), put_away()),
    "it closes, and the group hangs": (opened(), closed_hanging()),
    "it is put away, and the group hangs": (closed_hanging(), left_hanging()),
    "a rank of it ends later, and the group hangs": (put_away(), left_hanging(300)),
    "a rank of it ends while it is put away, and the group hangs": (closed(), left_hanging(300)),
    "it hangs again since the same loss": (
        booking(left_hanging(), 3200.0, standing=Standing.UNKNOWN, broken=None),
        booking(left_hanging(300), 3200.0),
    ),
    "it trains again": (left_hanging(), booking(left_hanging(), 3200.0, standing=Standing.MET, broken=None)),
}


@pytest.mark.parametrize(("before", "after"), HOLDS.values(), ids=HOLDS)
def test_what_may_follow(before: Ledger, after: Ledger) -> None:
    assert violations(before, after) == ()


def renumbered(ledger: Ledger) -> Ledger:
    return with_incident(ledger, id="0d2f5c9e-9")


BREAKS: dict[str, tuple[Ledger, Callable[[Ledger], Ledger], str]] = {
    "fewer restarts": (opened(), lambda x: with_totals(x, restarts=0), "MonotoneTotals: restarts falls from 1 to 0"),
    "fewer failures": (opened(), lambda x: with_totals(x, failures={}), "MonotoneTotals: failures of PodDeleted"),
    "less idle time": (opened(), lambda x: with_totals(x, idle_gpu_seconds={}), "MonotoneTotals: idle in Detected"),
    "fewer restarts of drills": (
        opened_by_drill(),
        lambda x: with_totals(x, drill_restarts=0),
        "MonotoneTotals: restarts after drills falls from 1 to 0",
    ),
    "a drill that is named afterwards": (
        opened(),
        lambda x: with_incident(x, drill=incident_of(opened_by_drill()).drill),
        "Pinned: drill of incident 0d2f5c9e-1 is changed",
    ),
    "a restart of a drill without a drill": (
        EMPTY,
        lambda _: with_totals(with_incident(opened(), drill_restarts=1), drill_restarts=1),
        "Drill: incident 0d2f5c9e-1 has 1 restarts of drills, of 1",
    ),
    "a restart of a drill that the totals lack": (
        EMPTY,
        lambda _: with_totals(opened_by_drill(), drill_restarts=0),
        "Drill: 0 restarts of drills are counted, incident 0d2f5c9e-1 has made 1",
    ),
    "a charge for what a drill has caused": (
        EMPTY,
        lambda _: with_totals(with_incident(opened_by_drill(), charged=True), charged=1),
        "Drill: incident 0d2f5c9e-1 is charged for a restart that repairs what its drill has caused",
    ),
    "a restart of a drill without an incident": (
        put_away(),
        lambda x: with_totals(x, drill_restarts=1),
        "Drill: 1 restarts of drills are counted without an incident",
    ),
    "idle time of nowhere": (
        opened(),
        lambda x: with_totals(x, idle_gpu_seconds={"Detected": 9999.0}),
        "IdleBooked: the totals rise by",
    ),
    "idle time without an incident": (
        put_away(),
        lambda x: with_totals(x, idle_gpu_seconds={**x.totals.idle_gpu_seconds, "Held": 5.0}),
        "IdleBooked: the totals rise by 5.0 GPU-seconds without an incident",
    ),
    "seconds of a group that does not hang": (
        put_away(),
        lambda x: booking(x, 5.0),
        "BrokenBooked: the totals rise by 5.0 GPU-seconds of a group that hangs, of at most 0.0",
    ),
    "seconds that it still counts": (left_hanging(), lambda x: booking(x, 5.0), "BrokenBooked: the totals rise by 5.0"),
    "a group that hangs since another time": (
        left_hanging(),
        lambda _: left_hanging(121),
        "Broken: it changes without an end",
    ),
    "a group that hangs without an incident that says so": (
        closed(),
        lambda x: msgspec.structs.replace(x, broken=left_hanging().broken),
        "Broken: no incident closes with ranks that hang",
    ),
    "a group that hangs since before its incident closed": (
        put_away(),
        lambda _: left_hanging(-1),
        "Broken: no incident closes with ranks that hang",
    ),
    "a closed incident that says later that ranks hung, and none does": (
        put_away(),
        lambda x: msgspec.structs.replace(x, history=left_hanging().history),
        "History: it changes although no closed incident is put away",
    ),
    "a group that hangs while an incident is open": (
        opened(),
        lambda x: msgspec.structs.replace(x, broken=left_hanging().broken),
        "Broken: incident 0d2f5c9e-1 is open",
    ),
    "more than it hung before the next incident": (
        left_hanging(since=-100),
        lambda _: booking(opened(), 3300.0),
        "BrokenBooked: the totals rise by 3300.0 GPU-seconds of a group that hangs, of at most 3200.0",
    ),
    "a span that is not booked as it lasted": (
        closed(),
        lambda x: last_span(x, idle_gpu_seconds=1.0),
        "IdleBooked: 1.0 GPU-seconds for",
    ),
    "the epoch falls": (opened(), lambda x: msgspec.structs.replace(x, epoch=0), "Epoch: goes from 1 to 0"),
    "the epoch leaps": (opened(), lambda x: msgspec.structs.replace(x, epoch=3), "Epoch: goes from 1 to 3"),
    "a bump without a restart": (
        opened(),
        lambda x: msgspec.structs.replace(x, epoch=2),
        "Epoch: rises by 1, but 0 restart attempts were added",
    ),
    "a restart without a bump": (
        opened(),
        lambda x: msgspec.structs.replace(another_attempt(x), epoch=1),
        "Epoch: rises by 0, but 1 restart attempts were added",
    ),
    "a restart that is not counted": (
        opened(),
        lambda x: with_totals(another_attempt(x), restarts=1),
        "Epoch: rises by 1, but the restarts go from 1 to 1",
    ),
    "an epoch of no restart": (
        EMPTY,
        lambda _: another_attempt(opened(), epoch=1),
        "Epoch: it is 2, the latest restart was of 1",
    ),
    "negative budget": (opened(), lambda x: with_budget(x, remaining=-1), "Budget: -1 remaining"),
    "a forgotten charge": (opened(), lambda x: with_incident(x, charged=False), "OneCharge: the charge of an incident"),
    "a second charge": (
        opened(),
        lambda x: with_totals(x, charged=2),
        "OneCharge: 1 charges are counted, 0 belong to an incident that had none",
    ),
    "a second charge against the budget": (
        opened(),
        lambda x: with_budget(x, charges=(*x.budget.charges, at(5))),
        "OneCharge: 1 charges are entered, 0 belong",
    ),
    "beyond the limit": (
        EMPTY,
        lambda _: with_budget(opened(), charges=tuple(at(second) for second in range(11))),
        "BudgetLimit: 11 charges against a limit of 10",
    ),
    "a wrong number": (EMPTY, lambda _: with_incident(opened(), number=7), "IncidentNumber: 7 after 0 incidents"),
    "the open incident vanishes": (
        opened(),
        lambda x: msgspec.structs.replace(x, incident=None, phase=Phase.HEALTHY),
        "ClosesFirst: the open incident 0d2f5c9e-1 gives way to none",
    ),
    "the open incident becomes another": (
        opened(),
        renumbered,
        "ClosesFirst: the open incident 0d2f5c9e-1 gives way to 0d2f5c9e-9",
    ),
    "a closed incident is changed": (
        closed(),
        lambda x: with_incident(x, reason="something else"),
        "ClosedIsFinal: the closed incident 0d2f5c9e-1 is changed",
    ),
    "a closed incident is forgotten": (
        closed(),
        lambda x: msgspec.structs.replace(x, incident=None),
        "ClosedIsRecorded: 0d2f5c9e-1 is forgotten, the newest is none",
    ),
    "another start": (opened(), lambda x: with_incident(x, started_at=at(-5)), "Pinned: started_at of incident"),
    "other terms": (
        opened(),
        lambda x: with_incident(x, pinned=msgspec.structs.replace(x.current_incident.pinned, budget_limit=99)),
        "Pinned: pinned of incident",
    ),
    "a history that grows by itself": (
        opened(),
        lambda x: msgspec.structs.replace(x, history=put_away().history),
        "History: it changes although no closed incident is put away",
    ),
    "a history that forgets": (
        msgspec.structs.replace(closed(), history=put_away().history * 2),
        lambda _: put_away(),
        "History: an earlier incident is changed or dropped",
    ),
    "too long a history": (
        put_away(),
        lambda x: msgspec.structs.replace(x, history=x.history * 11),
        "Bounded: 11 items of history, at most 10",
    ),
    "too many attempts": (
        opened(),
        lambda x: with_incident(x, attempts=x.current_incident.attempts * 21),
        "Bounded: 21 items of attempts, at most 20",
    ),
    "a suspension that someone else has ended": (
        with_incident(opened(), resumed_by_others=True),
        lambda x: with_incident(x, suspension=Suspension()),
        "Suspension: incident 0d2f5c9e-1 wants what another client has ended",
    ),
    "a forgotten user": (
        with_incident(opened(), resumed_by_others=True),
        lambda x: with_incident(x, resumed_by_others=False),
        "Suspension: the ledger forgets that another client has resumed incident 0d2f5c9e-1",
    ),
    "a restart that waits outside of its phase": (
        opened(),
        lambda x: with_incident(x, step=Step(StepType.WITHHELD, until=at(60), lost_at=at(0))),
        "Step: incident 0d2f5c9e-1 is Withheld in phase Decided",
    ),
    "no phases": (opened(), lambda x: with_incident(x, phases=()), "Phases: incident 0d2f5c9e-1 has none"),
    "a late first phase": (opened(), lambda x: first_span(x, started_at=at(0.5)), "Phases: the first begins at"),
    "a gap": (opened(), lambda x: first_span(x, ended_at=at(0.5)), "Phases: Detected ends at"),
    "a negative phase": (
        EMPTY,
        lambda _: last_span(closed(), ended_at=at(0.5)),
        "Phases: Decided lasts -0.5 s",
    ),
    "an open last phase in a closed incident": (
        EMPTY,
        lambda _: last_span(closed(), ended_at=None),
        "Phases: the last one ends at None, the incident at",
    ),
    "a phase that is not the incident's": (
        opened(),
        lambda x: msgspec.structs.replace(x, phase=Phase.STARTING),
        "Phase: the group is Starting, its incident Decided",
    ),
    "a phase without an incident": (
        put_away(),
        lambda x: msgspec.structs.replace(x, phase=Phase.STARTING),
        "Phase: Starting without an incident",
    ),
    "attempts out of order": (
        opened(),
        lambda x: another_attempt(x, number=1),
        "Attempts: 1 of epoch 2 follows 1 of epoch 1",
    ),
    "a restart without a target": (
        EMPTY,
        lambda _: with_incident(opened(), target=Target()),
        "Target: incident 0d2f5c9e-1 has restarted a group without naming its Jobs",
    ),
}


@pytest.mark.parametrize(("before", "change", "says"), BREAKS.values(), ids=BREAKS)
def test_what_may_not(before: Ledger, change: Callable[[Ledger], Ledger], says: str) -> None:
    found = violations(before, change(before))
    assert any(sentence.startswith(says) for sentence in found), found


def test_the_handled_evidence_is_bounded_and_keeps_the_newest() -> None:
    many = tuple(f"pod-{number}/lost" for number in range(lifecycle.MAX_HANDLED + 1))
    ledger = msgspec.structs.replace(EMPTY, handled=msgspec.structs.replace(EMPTY.handled, keys=many))
    assert any(sentence.startswith("Bounded: ") for sentence in violations(EMPTY, ledger))
    kept = lifecycle.with_keys(ledger.handled, ())
    assert kept.keys == many[1:]
