"""Records of closed incidents go by age, and beyond a number per namespace; never one that may still be counted."""

from datetime import timedelta

from recovery.core.fleet.retention import SETTLED_AFTER, IncidentRetention, RetainedIncident, surplus
from recovery.core.fleet.totals import IncidentName
from tests.unit.core.world import at

HOUR = timedelta(hours=1)
NOW = at(1_000_000)


def record(number: int, *, age: timedelta, made: timedelta | None = None) -> RetainedIncident:
    """`age`: since its incident ended; `made`: since the object was created. None: the same."""
    ended = NOW - age
    name: IncidentName = ("uid-1", number, ended)
    return RetainedIncident("ml", f"train-{number}", f"record-{number}", "7", name, NOW - (made or age), ended)


def swept(*records: RetainedIncident, ttl: timedelta = HOUR, most: int = 100, held: tuple[int, ...] = ()) -> list[str]:
    found = surplus(records, IncidentRetention(ttl, most), NOW, in_use=lambda name: name[1] in held)
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
    """A ledger that vanished with its job may ask to count it, and no cache shows that."""
    soon = SETTLED_AFTER - timedelta(seconds=1)
    assert swept(record(1, age=2 * HOUR, made=soon), record(2, age=HOUR / 2, made=soon), most=1) == []
    assert swept(record(1, age=2 * HOUR, made=SETTLED_AFTER)) == ["train-1"]
