"""Suspicions count against nodes, and futile recoveries open the circuit breaker."""

import pytest

from recovery.core.fleet.breaker import breaker_reset
from recovery.core.fleet.quarantine import (
    changed,
)
from recovery.core.fleet.suspicion import suspected
from recovery.core.model.fleet_ledger import (
    Breaker,
    FleetChange,
    FleetLedger,
    FleetLimits,
    Futile,
    Suspicion,
)
from recovery.core.model.reason import Reason
from tests.unit.core.fleet.quarantined import LIMITS, reconcile, suspicion
from tests.unit.core.world import at

COUNTS = FleetLimits(may_cordon=True, breaker_recoveries=3)


def change(before: FleetLedger, what: FleetChange, limits: FleetLimits = COUNTS, seconds: float = 10) -> FleetLedger:
    after = changed(before, limits, what, nodes=100, shown={}, now=at(seconds))
    assert isinstance(after, FleetLedger)
    return after


def test_suspicions_count_once_for_each_incident_and_only_for_a_while() -> None:
    once = change(FleetLedger(), FleetChange(suspicions=(suspicion("inc-1"), suspicion("inc-1", 5))))
    assert suspected(once, COUNTS, "gpu-1", at(10)) == ("inc-1",)
    twice = change(once, FleetChange(suspicions=(suspicion("inc-2", 7),)))
    assert suspected(twice, COUNTS, "gpu-1", at(10)) == ("inc-1", "inc-2")
    assert suspected(twice, COUNTS, "gpu-2", at(10)) == ()
    assert suspected(twice, COUNTS, "gpu-1", at(86_400)) == ("inc-2",)
    assert suspected(twice, COUNTS, "gpu-1", at(86_407)) == ()


def test_what_no_longer_counts_is_dropped_with_the_next_write_and_not_before() -> None:
    old = change(FleetLedger(), FleetChange(suspicions=(suspicion("inc-1"),)))
    assert change(old, FleetChange(), seconds=90_000) is old
    new = change(old, FleetChange(suspicions=(suspicion("inc-2", 89_000),)), seconds=90_000)
    assert new.suspicions == (suspicion("inc-2", 89_000),)


def test_a_namespace_pushes_no_suspicion_of_others_out_of_the_memory() -> None:
    """The namespace adds suspicions for a whole day."""
    theirs = tuple(Suspicion(f"gpu-{n}", f"b-{n}", at(0), "…", "b") for n in range(5))
    ledger = change(FleetLedger(), FleetChange(suspicions=theirs))
    ours = tuple(Suspicion("gpu-1", f"a-{n}", at(1 + n / 1000), "…", "a") for n in range(3_000))
    after = change(ledger, FleetChange(suspicions=ours))
    assert [each for each in after.suspicions if each.namespace == "b"] == list(theirs)
    assert len(after.suspicions) == 5 + 250


def futile(*incidents: str, seconds: float = 0) -> FleetChange:
    return FleetChange(futile=tuple(Futile(incident, at(seconds), incident, "llm") for incident in incidents))


def test_the_breaker_opens_at_the_count_and_says_why() -> None:
    before = change(FleetLedger(), futile("inc-1", "inc-2", "inc-2"))
    assert before.breaker is None
    after = change(before, futile("inc-3"), seconds=20)
    assert after.breaker == Breaker(at(20), Reason.RECOVERIES_IN_VAIN, recoveries=3, within_seconds=3600.0, limit=3)
    assert change(after, futile("inc-4"), seconds=30).breaker == after.breaker


def crashes(job: str, count: int, *, first: int = 0, seconds: float = 0) -> tuple[Futile, ...]:
    """Futile recoveries of one job. `job`: `namespace/name`."""
    namespace, name = job.split("/")
    return tuple(Futile(f"{job}-{number}", at(seconds), namespace, name) for number in range(first, first + count))


@pytest.mark.parametrize(
    ("jobs", "only_namespace", "counted"),
    [
        pytest.param({"a/one": 50}, None, None, id="one job counts for a third"),
        pytest.param({"a/one": 50}, "a", None, id="also where no other namespace enforces anything"),
        pytest.param({"a/one": 50, "a/two": 50, "a/three": 50}, None, None, id="one namespace counts for half"),
        pytest.param({"a/one": 50, "a/two": 50, "a/three": 50}, "a", 12, id="for all of it where it is the only one"),
        pytest.param({"a/one": 4, "a/two": 2, "b/one": 4, "b/two": 2}, None, 12, id="two namespaces fill it"),
        pytest.param({"a/one": 4, "a/two": 2, "b/one": 4, "b/two": 1}, None, None, id="one short of it"),
        pytest.param({"a/one": 50, "b/one": 4, "c/one": 4}, None, 12, id="a third of each of three jobs"),
        pytest.param({"a/same": 4, "b/same": 4, "c/same": 4}, None, 12, id="jobs of one name are different jobs"),
    ],
)
def test_no_job_and_no_namespace_opens_the_breaker_alone(
    jobs: dict[str, int], only_namespace: str | None, counted: int | None
) -> None:
    limits = FleetLimits(breaker_recoveries=12)
    every = tuple(each for job, count in jobs.items() for each in crashes(job, count))
    after = changed(
        FleetLedger(), limits, FleetChange(futile=every), nodes=9, now=at(10), shown={}, only_namespace=only_namespace
    )
    assert isinstance(after, FleetLedger)
    assert (after.breaker and after.breaker.recoveries) == counted


@pytest.mark.parametrize("limit", range(2, 30))
def test_two_namespaces_open_the_breaker_whatever_the_count_is(limit: int) -> None:
    """With half of an odd count rounded down, the breaker would never open."""
    every = tuple(each for job in range(6) for each in crashes(f"{'ab'[job % 2]}/job-{job}", limit))
    after = change(FleetLedger(), FleetChange(futile=every), FleetLimits(breaker_recoveries=limit))
    assert after.breaker is not None


def test_a_namespace_of_many_jobs_pushes_no_one_out_of_the_memory() -> None:
    """The user submits the job under a new name each time."""
    limits = FleetLimits(breaker_recoveries=12)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    others = tuple(each for number in range(1_200) for each in crashes(f"a/job-{number}", 1, seconds=1))
    after = change(ledger, FleetChange(futile=others), limits)
    assert [each.namespace for each in after.futile] == ["b"] * 4 + ["a"] * 12


def test_with_a_high_limit_one_job_does_not_fill_the_memory_either() -> None:
    limits = FleetLimits(breaker_recoveries=10_000)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    after = change(ledger, FleetChange(futile=crashes("a/one", 3_000, seconds=1)), limits)
    assert [each.namespace for each in after.futile].count("b") == 4


def test_a_job_that_crashes_for_ever_pushes_no_one_out_of_the_memory() -> None:
    limits = FleetLimits(breaker_recoveries=12)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    for number in range(2_000):
        more = FleetChange(futile=crashes("a/one", 1, first=number, seconds=1 + number / 1000))
        ledger = change(ledger, more, limits)
        assert change(ledger, more, limits) == ledger, "the same once more"
    assert [(each.namespace, each.workload) for each in ledger.futile] == [("b", "one")] * 4 + [("a", "one")] * 4
    assert ledger.futile[-1].incident == "a/one-1999"


def test_a_limit_above_what_is_remembered_is_reached_with_all_that_is() -> None:
    limits = FleetLimits(breaker_recoveries=10_000)
    every = tuple(each for number in range(4) for each in crashes(f"team-{number}/job", 300))
    after = change(FleetLedger(), FleetChange(futile=every), limits)
    assert after.breaker is not None
    assert (after.breaker.recoveries, after.breaker.limit) == (1000, 1000)


def test_futile_recoveries_long_ago_do_not_open_it() -> None:
    before = change(FleetLedger(), futile("inc-1", "inc-2"))
    assert change(before, futile("inc-3", seconds=3600), seconds=3600).breaker is None


def test_where_there_is_no_breaker_nothing_is_counted_and_an_open_one_is_closed() -> None:
    assert change(FleetLedger(), futile("inc-1"), LIMITS) == FleetLedger()
    open_ = FleetLedger(breaker=Breaker(at(0), Reason.RECOVERIES_IN_VAIN))
    assert reconcile(open_, limits=LIMITS).breaker is None
    assert reconcile(open_, limits=COUNTS) is open_


def test_a_person_closes_it_and_it_counts_again() -> None:
    open_ = change(FleetLedger(), futile("inc-1", "inc-2", "inc-3"))
    assert breaker_reset(open_, None, at(60)) is open_
    assert breaker_reset(open_, at(5), at(60)) is open_, "it was asked before the breaker opened"
    assert breaker_reset(open_, at(90_000), at(60)) is open_, "it would close every breaker for a day"
    closed = breaker_reset(open_, at(60), at(60))
    assert (closed.breaker, closed.futile) == (None, ())
    assert change(closed, futile("inc-4", seconds=70), seconds=70).breaker is None
    assert breaker_reset(closed, at(60), at(90)) is closed
