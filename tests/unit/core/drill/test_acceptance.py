"""Which pods of a drill count: facts about the drill and its group in, a number or a refusal out."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from recovery.core.drill.acceptance import accepted
from recovery.core.model.config import DrillsSpec
from recovery.core.model.drill import DrillEnd, DrillFacts, DrillRefusal
from recovery.core.model.reason import Reason
from tests.unit.core.drills import drill, named
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

WORLD = training()
DRILL = drill(named(WORLD, 3), acknowledged=0)
DAY = 86_400.0


def answer(
    of: DrillFacts = DRILL, *beside: DrillFacts, world: World = WORLD, limit: int = 12, recovering: bool = False
) -> tuple[int, Reason | None]:
    limits = DrillsSpec(per_job_and_day=limit)
    count, refusal = accepted(of, beside, world.snapshot(), limits, at(0), recovering=recovering)
    assert refusal is None or refusal.message, "a refusal says why"
    return count, refusal.reason if refusal is not None else None


def earlier(created: float, *, repeats: int = 1, name: str = "earlier", **changes: object) -> DrillFacts:
    pods = [named(WORLD, 1, number, repeat=number) for number in range(1, repeats + 1)]
    return drill(*pods, name=name, created=created, **changes)  # type: ignore[arg-type]


OVER = DrillEnd(at(-100), Reason.DRILL_DONE)


def test_a_whole_member_counts() -> None:
    assert answer() == (1, None)


def test_a_member_that_still_starts_counts() -> None:
    starts = group()
    assert answer(drill(named(starts, 3), acknowledged=0), world=starts) == (1, None)


def test_pods_that_are_named_later_count_as_well() -> None:
    assert answer(drill(named(WORLD, 3), named(WORLD, 2, 2), acknowledged=1)) == (2, None)


def test_what_counts_goes_on_counting_after_the_pod_has_failed() -> None:
    assert answer(drill(named(WORLD, 3), acknowledged=1), world=WORLD.pod_failed(3, 137, -1)) == (1, None)


LOST: dict[str, Callable[[World], World]] = {
    "failed": lambda world: world.pod_failed(3, 1, -1),
    "deleted": lambda world: world.pod_deleted(3, -1),
    "gone": lambda world: world.pod_gone(3, -1),
    "of another group": lambda world: world.job_gone().job_created(-1).pods_created(-1),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_pod_that_has_been_lost_does_not_become_a_drill_afterwards(lose: Callable[[World], World]) -> None:
    assert answer(world=lose(WORLD)) == (0, Reason.DRILL_NAMES_NO_MEMBER)


@pytest.mark.parametrize(("recovering", "why"), [(True, None), (False, Reason.DRILL_NAMES_NO_MEMBER)])
def test_a_pod_that_goes_down_counts_while_its_group_recovers_from_the_drill(
    recovering: bool, why: Reason | None
) -> None:
    assert answer(world=WORLD.job_deleted(-2).all_deleted(-1), recovering=recovering)[1] is why


@pytest.mark.parametrize("how", ["failed", "gone"])
def test_a_failure_of_its_own_does_not_become_a_drill_while_the_group_recovers(how: str) -> None:
    assert answer(world=LOST[how](WORLD), recovering=True) == (0, Reason.DRILL_NAMES_NO_MEMBER)


def test_a_second_pod_that_has_been_lost_leaves_the_first_one_counting() -> None:
    both = drill(named(WORLD, 3), named(WORLD, 2, 2), acknowledged=1)
    assert answer(both, world=WORLD.pod_failed(2, 1, -1)) == (1, Reason.DRILL_NAMES_NO_MEMBER)


def test_a_refused_drill_stays_refused() -> None:
    refused = drill(named(WORLD, 3), acknowledged=0, refusal=DrillRefusal(Reason.DRILL_OVERLAPS, "no"))
    assert answer(refused) == (0, Reason.DRILL_OVERLAPS)


def test_a_drill_that_has_ended_names_nothing_more() -> None:
    assert answer(drill(named(WORLD, 3), named(WORLD, 2, 2), acknowledged=1, end=OVER)) == (1, None)


@pytest.mark.parametrize(("seconds", "why"), [(0, Reason.DRILL_TOO_LONG), (1, None), (14_390, None)])
def test_its_end_is_in_the_future(seconds: float, why: Reason | None) -> None:
    assert answer(expiring(seconds))[1] is why


def test_its_end_is_at_most_four_hours_after_its_creation() -> None:
    assert answer(expiring(14_391)) == (0, Reason.DRILL_TOO_LONG)


def expiring(seconds: float) -> DrillFacts:
    """A drill that was created ten seconds ago and ends then."""
    return drill(named(WORLD, 3), acknowledged=0, expires_at=at(seconds))


def test_the_older_of_two_drills_of_a_job_goes_first() -> None:
    other = earlier(-60)
    assert answer(DRILL, other) == (0, Reason.DRILL_OVERLAPS)
    younger = drill(named(WORLD, 1), name="younger", created=-5, acknowledged=0)
    assert answer(DRILL, younger) == (1, None)


NOT_RUNNING = {
    "ended": earlier(-200, end=OVER),
    "refused": earlier(-60, refusal=DrillRefusal(Reason.DRILL_LIMIT_OF_DAY, "no")),
    "expired": earlier(-7200),
}


@pytest.mark.parametrize("other", NOT_RUNNING.values(), ids=NOT_RUNNING)
def test_an_older_drill_that_does_not_run_is_in_no_ones_way(other: DrillFacts) -> None:
    assert answer(DRILL, other) == (1, None)


def test_an_older_drill_waits_for_one_of_which_pods_count() -> None:
    counts = drill(named(WORLD, 1), name="z-counts", created=-10)
    assert answer(DRILL, counts) == (0, Reason.DRILL_OVERLAPS), "of the same second"


def test_a_drill_of_which_pods_count_goes_on_beside_an_older_one() -> None:
    goes_on = drill(named(WORLD, 3), named(WORLD, 2, 2), acknowledged=1)
    assert answer(goes_on, earlier(-60)) == (2, None)


@pytest.mark.parametrize(("limit", "why"), [(3, None), (2, Reason.DRILL_LIMIT_OF_DAY), (0, Reason.DRILL_LIMIT_OF_DAY)])
def test_the_repeats_of_all_drills_of_a_day_are_limited(limit: int, why: Reason | None) -> None:
    assert answer(DRILL, earlier(-7200, repeats=2), limit=limit)[1] is why


def test_repeats_that_were_never_acknowledged_and_those_of_yesterday_do_not_count() -> None:
    assert answer(DRILL, earlier(-7200, repeats=2, acknowledged=0), limit=1) == (1, None)
    assert answer(DRILL, earlier(-DAY, repeats=2), limit=1) == (1, None)


def test_two_pods_of_one_repeat_count_once() -> None:
    both = drill(named(WORLD, 3), named(WORLD, 2, 2), acknowledged=0)
    assert answer(both, limit=1) == (2, None)


@pytest.mark.parametrize(("limit", "why"), [(2, None), (1, Reason.DRILL_LIMIT_OF_DAY)])
def test_a_rank_that_is_named_again_after_its_restart_counts_as_a_repeat(limit: int, why: Reason | None) -> None:
    """Otherwise one repeat could pay for a crash loop."""
    again = WORLD.job_gone().job_created(-1).pods_created(-1)
    found = drill(named(WORLD, 3), named(again, 3, 2), acknowledged=1)
    assert answer(found, world=again, limit=limit)[1] is why


@pytest.mark.parametrize("lie", [{"pod": "job-0-abcde"}, {"index": 2}, {"index": None}])
def test_a_pod_of_another_name_or_rank_than_it_has_is_refused(lie: dict[str, Any]) -> None:
    lies = msgspec.structs.replace(named(WORLD, 3), **lie)
    assert answer(drill(lies, acknowledged=0)) == (0, Reason.DRILL_NAMES_NO_MEMBER)


def test_a_repeat_beyond_the_limit_is_refused_and_the_one_before_still_counts() -> None:
    twice = drill(named(WORLD, 3), named(WORLD, 2, 2, repeat=2), acknowledged=1)
    assert answer(twice, limit=1) == (1, Reason.DRILL_LIMIT_OF_DAY)


def test_the_refusal_names_the_drill_that_runs() -> None:
    _, refusal = accepted(DRILL, (earlier(-60),), WORLD.snapshot(), DrillsSpec(), at(0), recovering=False)
    assert refusal is not None
    assert "earlier" in refusal.message
