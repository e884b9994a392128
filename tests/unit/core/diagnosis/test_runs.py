"""Which pods of a Job belong to its present run: a table of what the facts say about one pod.

The Job was resumed at 0. The grace period of its pods is 30 s.
"""

import msgspec
import pytest

from recovery.core.diagnosis.trained import pods_of_run
from recovery.core.model.facts import ContainerFacts, ExitFacts, PodFacts
from recovery.core.model.ledger_bounds import LATEST
from tests.unit.core.groups import group
from tests.unit.core.world import World, at

LAST_DELETE = {"deletion_grace_seconds": 0, "deletion_dated_again": True}
"""The kubelet has deleted the pod once more, and no earlier date is known."""


def resumed(*, suspended: float | None = None) -> World:
    """`suspended`: when the store saw the Job suspended. None: it did not see that."""
    world = group(born=-3600)
    seen = None if suspended is None else at(suspended)
    return world.with_job(conditions=(world.resumed_condition(0),), suspended_at=seen)


def is_of_the_run(pod: PodFacts, *, suspended: float | None = None) -> bool:
    return pods_of_run(resumed(suspended=suspended).job, [pod]) == (pod,)


def pod(created: float, **changes: object) -> PodFacts:
    one = group(born=-3600).pod(0)
    return msgspec.structs.replace(one, created_at=at(created), node="gpu-0", phase="Running", **changes)


def failed(created: float, ended: float | None, **changes: object) -> PodFacts:
    finished = None if ended is None else at(ended)
    exited = ContainerFacts("node", exit=ExitFacts(1, "Error", "", at(created), finished))
    return msgspec.structs.replace(pod(created), phase="Failed", containers=(exited,), **changes)


WITHOUT_A_SIGHT_OF_THE_SUSPENSION: dict[str, tuple[PodFacts, bool]] = {
    "it lives: the suspension would have deleted it": (pod(-5), True),
    "it was created after the condition": (pod(1, deleting_since=at(2)), True),
    "it was deleted before the resume": (pod(-60, deleting_since=at(-4)), False),
    "it was deleted in the second of the resume": (pod(-60, deleting_since=at(0)), False),
    "it was deleted after the resume": (pod(-5, deleting_since=at(1)), True),
    "its last delete is within the grace period after the resume": (
        pod(-60, deleting_since=at(30), **LAST_DELETE),
        False,
    ),
    "its last delete is later than that": (pod(-60, deleting_since=at(31), **LAST_DELETE), True),
    "it was missed within the grace period after the resume": (pod(-60, gone_at=at(8)), False),
    "it was missed later than that": (pod(-60, gone_at=at(31)), True),
    "it was missed, and it was deleted after the resume": (pod(-5, deleting_since=at(1), gone_at=at(9)), True),
    "its deletion has no date": (pod(-60, deleting_since=LATEST), False),
    "it failed before the resume": (failed(-60, -1), False),
    "it failed after the resume, and no one deleted it": (failed(-60, 8), True),
    "it failed after the resume, and was deleted before it": (failed(-60, 8, deleting_since=at(-4)), False),
    "it failed after the resume, by its last delete": (failed(-60, 8, deleting_since=at(8), **LAST_DELETE), False),
    "it failed, and nothing shows when": (failed(-60, None), False),
    "its grace period is longer than a date allows": (
        pod(-60, deleting_since=at(99), grace_seconds=2**31 - 1, **LAST_DELETE),
        False,
    ),
}


@pytest.mark.parametrize(
    ("pod", "expected"), WITHOUT_A_SIGHT_OF_THE_SUSPENSION.values(), ids=WITHOUT_A_SIGHT_OF_THE_SUSPENSION
)
def test_the_dates_of_a_pod_say_of_which_run_it_is(pod: PodFacts, expected: bool) -> None:
    assert is_of_the_run(pod) is expected


SUSPENDED_AT_MINUS_10: dict[str, tuple[PodFacts, bool]] = {
    "it is older than the suspension, and ends long after the resume": (pod(-60, deleting_since=at(90)), False),
    "it is older than the suspension, and was missed long after the resume": (pod(-60, gone_at=at(90)), False),
    "it is older than the suspension, and failed after the resume": (failed(-60, 8), False),
    "it is as old as the suspension: its own date decides": (pod(-10, deleting_since=at(1)), True),
    "it is younger, and older than the condition": (pod(-5, deleting_since=at(1)), True),
    "it is younger, and ended before the resume": (pod(-5, deleting_since=at(-1)), False),
    "it lives, so the clock of the Job controller is ahead": (pod(-11), True),
}


@pytest.mark.parametrize(("pod", "expected"), SUSPENDED_AT_MINUS_10.values(), ids=SUSPENDED_AT_MINUS_10)
def test_the_date_of_a_seen_suspension_says_of_which_run_a_pod_is(pod: PodFacts, expected: bool) -> None:
    assert is_of_the_run(pod, suspended=-10) is expected


LET_GO = {"let_go": True, "deleting_since": at(0)}


def test_a_job_that_lets_all_of_its_pods_go_has_ended_a_run_although_no_condition_shows_it() -> None:
    """Seed 43: it was suspended for 130 ms, and its controller wrote no condition."""
    job, old, new = group(born=-3600).job, pod(-60, **LET_GO), pod(0)
    failed_before = failed(-60, -5)
    assert pods_of_run(job, [old, failed_before, new]) == (new,)


def test_one_that_keeps_some_has_become_smaller() -> None:
    job, old, kept = group(born=-3600).job, pod(-60, **LET_GO), pod(-60)
    assert pods_of_run(job, [old, kept]) == (old, kept)


def test_one_whose_user_has_taken_a_rank_away_has_become_smaller_although_all_others_are_lost() -> None:
    job = group(1, born=-3600).job
    taken, lost = pod(-60, index=1, **LET_GO), pod(-60, deleting_since=at(5))
    assert pods_of_run(job, [taken, lost]) == (taken, lost)


def test_one_that_is_deleted_lets_go_pods_that_others_delete() -> None:
    job, old = group(born=-3600).job, pod(-60, **LET_GO)
    assert pods_of_run(msgspec.structs.replace(job, deleting_since=at(0)), [old]) == (old,)


def test_a_suspension_that_is_not_over_ends_no_run_yet() -> None:
    """The Job is suspended again, and its condition still has the date of the earlier resume."""
    lost = pod(1, deleting_since=at(60))
    assert is_of_the_run(lost, suspended=50)


def test_all_pods_of_a_job_that_was_never_resumed_are_of_its_run() -> None:
    lost = pod(-60, deleting_since=at(8), **LAST_DELETE)
    assert pods_of_run(group(born=-3600).job, [lost]) == (lost,)


def test_a_pod_of_another_job_is_not() -> None:
    assert not is_of_the_run(msgspec.structs.replace(pod(5), job_uid="other"))


# --- all members were seen to run at once --------------------------------------------------------------------------

FORCED = pod(-5, deleting_since=at(5), containers=(ContainerFacts("node", running_since=at(-2)),), **LAST_DELETE)
"""It may have been asked to terminate before the resume, by its dates."""

SEEN_WHOLE: dict[str, tuple[PodFacts, float, bool]] = {
    "it ran then: its rank has no other pod": (FORCED, 3, True),
    "it ran then, and nothing shows when it ended": (msgspec.structs.replace(FORCED, deleting_since=LATEST), 3, True),
    "they ran before the resume": (FORCED, -1, False),
    "its last delete is older than that": (FORCED, 6, False),
    "it was created before the suspension": (msgspec.structs.replace(FORCED, created_at=at(-11)), 3, False),
}


@pytest.mark.parametrize(("pod", "whole", "expected"), SEEN_WHOLE.values(), ids=SEEN_WHOLE)
def test_the_moment_at_which_all_members_ran_says_of_which_run_a_pod_is(
    pod: PodFacts, whole: float, expected: bool
) -> None:
    job = resumed(suspended=-10).job
    assert pods_of_run(job, [pod]) == ()
    assert pods_of_run(job, [pod], at(whole)) == ((pod,) if expected else ())


def test_where_another_pod_of_its_rank_is_known_that_one_ran_then() -> None:
    living = msgspec.structs.replace(FORCED, uid="other", deleting_since=None, deletion_grace_seconds=None)
    assert pods_of_run(resumed(suspended=-10).job, [FORCED, living], at(3)) == (living,)
