"""The fleet's totals count each closed incident once, and remember only what a group may ask to count again."""

from datetime import timedelta

import msgspec

from recovery.core.fleet.counted_marks import IncidentName, mark_of, marks, part_of, workload_part
from recovery.core.fleet.totals import COUNTED_MAX, REMEMBERED_FOR, with_closed
from recovery.core.incident.closed_incident import totals_of_broken
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.ledger import IncidentHandling, IncidentTotals, Outcome
from recovery.core.model.standing import Broken
from tests.unit.core.world import at


def closed(uid: str = "uid-1", number: int = 1, *, began: float = 0, class_: str = "NodeLost") -> IncidentTotals:
    return IncidentTotals(
        workload_uid=uid,
        number=number,
        started_at=at(began),
        disruption_class=class_,
        outcome=Outcome.RECOVERED,
        idle_gpu_seconds={"Detected": 10.0},
        released_gpu_seconds=5.0,
        restarts=1,
    )


def never(_: str) -> bool:
    return False


def contains(totals: FleetTotals, name: IncidentName) -> bool:
    return mark_of(name) in set(marks(totals.counted))


def counted(*incidents: IncidentTotals, totals: FleetTotals | None = None, seconds: float = 1) -> FleetTotals:
    return with_closed(totals or FleetTotals(), incidents, at(seconds), may_return=never)


def test_it_is_counted_by_class_outcome_and_handling() -> None:
    totals = counted(closed(), closed("uid-2"), closed("uid-3", class_="UserError"))
    assert totals.incidents == {
        "NodeLost": {Outcome.RECOVERED: {IncidentHandling.AUTOMATIC: 2}},
        "UserError": {Outcome.RECOVERED: {IncidentHandling.AUTOMATIC: 1}},
    }
    assert totals.idle_gpu_seconds_by_class == {"NodeLost": {"Detected": 20.0}, "UserError": {"Detected": 10.0}}
    assert (totals.released_gpu_seconds, totals.restarts) == (15.0, 3)


def test_the_time_in_which_a_group_hung_counts_once_and_is_no_incident() -> None:
    broken = Broken(at(0), at(30), "uid-1-1", "NodeLost", 8)
    hung = totals_of_broken("uid-1", broken, 80.0)
    totals = counted(closed(), hung, totals=counted(closed()))
    assert totals.incidents == {"NodeLost": {Outcome.RECOVERED: {IncidentHandling.AUTOMATIC: 1}}}
    assert totals.idle_gpu_seconds_by_class == {"NodeLost": {"Detected": 10.0, "Broken": 80.0}}
    assert counted(hung, totals=totals) is totals


def test_the_same_one_again_changes_nothing() -> None:
    totals = counted(closed(), closed())
    assert totals.restarts == 1
    assert counted(closed(), totals=totals, seconds=2) is totals


def test_a_ledger_that_was_deleted_counts_from_1_again_and_its_incidents_are_others() -> None:
    totals = counted(closed(number=1, began=0))
    assert counted(closed(number=1, began=500), totals=totals).restarts == 2


def test_it_is_remembered_for_as_long_as_a_ledger_may_ask_again() -> None:
    first, later = closed("uid-1"), REMEMBERED_FOR + timedelta(minutes=1, seconds=2)
    name = ("uid-1", 1, at(0))
    totals = counted(first)
    assert contains(totals, name)
    soon = counted(closed("uid-2"), totals=totals, seconds=REMEMBERED_FOR.total_seconds())
    assert contains(soon, name)
    kept = with_closed(totals, [closed("uid-2")], at(0) + later, may_return=lambda each: each == mark_of(name))
    assert contains(kept, name)
    assert not contains(with_closed(totals, [closed("uid-2")], at(0) + later, may_return=never), name)


def test_what_is_remembered_is_bounded() -> None:
    totals = counted(*(closed(f"uid-{number}") for number in range(COUNTED_MAX + 10)))
    assert len(list(marks(totals.counted))) == COUNTED_MAX
    assert totals.restarts == COUNTED_MAX + 10
    assert len(msgspec.json.encode(totals.counted)) < 50_000


def test_the_oldest_are_forgotten_first() -> None:
    early = counted(closed("uid-early"))
    late = counted(*(closed(f"uid-{number}") for number in range(COUNTED_MAX)), totals=early, seconds=120)
    assert not contains(late, ("uid-early", 1, at(0)))
    assert contains(late, ("uid-0", 1, at(0)))


def test_a_mark_begins_with_that_of_its_workload_and_differs_from_all_others() -> None:
    names = [(uid, number, at(began)) for uid in ("uid-1", "uid-2") for number in (0, 1) for began in (0, 1)]
    assert len(set(map(mark_of, names))) == len(names)
    assert {part_of(mark_of(name)) == workload_part("uid-1") for name in names if name[0] == "uid-1"} == {True}
    assert workload_part("uid-1") != workload_part("uid-2")
