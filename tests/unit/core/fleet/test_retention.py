"""Records of closed incidents go by age, and beyond a number per namespace, but never while one may be counted."""

from datetime import timedelta

import msgspec

from recovery.core.fleet.retention import SETTLED_AFTER, IncidentRetention, RetainedIncident, surplus
from recovery.core.model.folded_incidents import NumberRange
from tests.unit.core.world import at

HOUR = timedelta(hours=1)
NOW = at(1_000_000)


def record(number: int, *, age: timedelta, made: timedelta | None = None) -> RetainedIncident:
    """`age`: since the incident ended. `made`: since the object was created. None: the same as `age`."""
    made_at, numbers = NOW - (made or age), (NumberRange(number, number),)
    return RetainedIncident("ml", f"train-{number}", f"record-{number}", "7", "uid-1", numbers, made_at, NOW - age)


def swept(*records: RetainedIncident, ttl: timedelta = HOUR, most: int = 100, held: tuple[int, ...] = ()) -> list[str]:
    found = surplus(records, IncidentRetention(ttl, most), NOW, in_use=lambda each: any(map(each.describes, held)))
    return [each.name for each in found]


def test_what_is_older_than_the_ttl_goes_the_oldest_first() -> None:
    assert swept(record(2, age=2 * HOUR), record(3, age=HOUR), record(1, age=3 * HOUR)) == ["train-1", "train-2"]


def test_beyond_the_limit_the_oldest_go() -> None:
    records = [record(number, age=timedelta(minutes=60 - number)) for number in range(1, 6)]
    assert swept(*records, most=3) == ["train-1", "train-2"]


def test_what_a_ledger_still_holds_stays_whatever_its_age_and_counts_towards_the_limit() -> None:
    old = [record(number, age=(5 - number) * HOUR) for number in range(1, 4)]
    assert swept(*old, held=(1, 2, 3)) == []
    assert swept(*old, ttl=24 * HOUR, most=2, held=(1,)) == []
    assert swept(*old, ttl=24 * HOUR, most=2, held=(2,)) == ["train-1"]


def test_one_that_was_just_made_stays_even_beyond_the_limit() -> None:
    """A ledger that vanished with its job may still ask to count the record, and no cache shows that."""
    soon = SETTLED_AFTER - timedelta(seconds=1)
    assert swept(record(1, age=2 * HOUR, made=soon), record(2, age=HOUR / 2, made=soon), most=1) == []
    assert swept(record(1, age=2 * HOUR, made=SETTLED_AFTER)) == ["train-1"]


def test_one_that_several_incidents_share_stays_while_a_ledger_holds_any_of_them() -> None:
    shared = msgspec.structs.replace(record(1, age=3 * HOUR), numbers=(NumberRange(1, 4), NumberRange(7, 9)))
    assert [swept(shared, held=(number,)) for number in (1, 3, 8)] == [[], [], []]
    assert swept(shared, held=(5,)) == ["train-1"]
