"""Whether all members of a Job have run at the same time: a table of what the objects show."""

import msgspec
import pytest

from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.trained import all_ran_at, began_at, group_ran_at, replacements, trained_at
from recovery.core.model.facts import Condition
from tests.unit.core.decision.test_several_jobs import launcher_of
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at


def ran_at(world: World) -> float | None:
    moment = all_ran_at(world.job, world.pods)
    return None if moment is None else (moment - at(0)).total_seconds()


def staggered() -> World:
    """The ranks start one after another, at 1, 2, 3 and 4."""
    world = group(born=0)
    for index in range(4):
        world = world.started(index, index + 1)
    return world


def refused_when_resumed(failed: int) -> World:
    """A node refuses the pod of rank 3 in the second in which the Job is resumed, so that it counts as a pod of the
    earlier run. Its replacement is Pending."""
    world = group(born=0).with_job(conditions=(Condition("Suspended", "False", since=at(0)),))
    for index in range(3):
        world = world.started(index, 1)
    return world.with_pod(3, phase="Failed", deleting_since=at(0)).replaced(3, 60).with_job(failed=failed)


def crashed_early() -> World:
    """Rank 2 starts at 1, crashes at 3 and is back at 8. The other ranks start at 5."""
    world = group(born=0).started(2, 1).container_exited(2, 1, 3)
    for index in (0, 1, 3):
        world = world.started(index, 5)
    return world.container_back(2, 8)


TABLE: dict[str, tuple[World, float | None]] = {
    "all Pending": (group(born=0), None),
    "one missing": (group(born=0).started(0, 1).started(1, 1).started(2, 1), None),
    "all run since the last one started": (staggered(), 4),
    "one has ended since": (staggered().container_exited(0, 1, 9), 4),
    "one was restarted since": (staggered().container_restarted(0, 1, 9), 4),
    "all were restarted since, one after the other": (
        staggered()
        .container_restarted(0, 1, 9)
        .container_restarted(1, 1, 20)
        .container_restarted(2, 1, 30)
        .container_restarted(3, 1, 40),
        4,
    ),
    "one has failed since": (staggered().pod_failed(0, 1, 9), 4),
    "one failed and was replaced since": (staggered().pod_failed(0, 1, 9).replaced(0, 10), 4),
    "one is still going and was replaced, another one was replaced unseen": (
        staggered()
        .pod_deleted(1, 20)
        .replaced(1, 21)
        .started(1, 22)
        .pod_gone(2, 29)
        .replaced(2, 30)
        .started(2, 31)
        .controller_restarted(),
        4,
    ),
    "one failed and was replaced, another one was replaced unseen and does not run": (
        staggered()
        .pod_failed(1, 1, 20)
        .replaced(1, 21)
        .started(1, 22)
        .pod_gone(2, 29)
        .replaced(2, 40)
        .controller_restarted(),
        4,
    ),
    "one vanished since": (staggered().pod_gone(0, 9), 4),
    "one is going": (staggered().pod_deleted(0, 9), 4),
    "one was asked to go before the last one started": (
        group(born=0).started(0, 1).started(1, 1).started(2, 1).pod_deleted(2, 3).started(3, 5),
        None,
    ),
    "and was gone soon after": (
        group(born=0).started(0, 1).started(1, 1).started(2, 1).pod_deleted(2, 3).pod_gone(2, 7).started(3, 5),
        None,
    ),
    "one crashed before the last one started": (crashed_early(), 8),
    "one ended in the second in which the last one started": (
        group(born=0).started(0, 1).started(1, 1).started(2, 1).container_exited(2, 1, 5).started(3, 5),
        None,
    ),
    "never two halves at once": (
        group(born=0).started(0, 1).started(1, 1).pod_failed(0, 1, 3).pod_failed(1, 1, 3).started(2, 5).started(3, 5),
        None,
    ),
    "a kubelet's clock behind the pod's creation": (group(born=10).all_started(3), 10),
    "scaled down": (
        staggered().with_job(parallelism=3, completions=3).pod_gone(3, 9),
        3,
    ),
    "scaled down, and one that is left does not run": (
        group(born=0).started(0, 1).started(1, 1).started(3, 1).with_job(parallelism=3, completions=3),
        None,
    ),
    "scaled up, and the new one is Pending": (
        staggered().with_job(parallelism=5, completions=5).replaced(4, 60),
        4,
    ),
    "a replacement of no one knows whom": (staggered().pod_gone(3, 60).replaced(3, 61).controller_restarted(), 3),
    "it runs again": (
        staggered().pod_gone(3, 60).replaced(3, 61).started(3, 70).controller_restarted(),
        3,
    ),
    "a replacement of one that is known not to have run": (
        group(born=0).started(0, 1).started(1, 1).started(2, 1).pod_gone(3, 9).replaced(3, 10),
        None,
    ),
    "each pod that the Job counts as failed is known": (refused_when_resumed(failed=1), None),
    "one of them is not known": (refused_when_resumed(failed=2), 1),
    "the first pods are Pending still": (
        group(born=0).started(3, 1).with_job(failed=1).replaced(3, 60).controller_restarted(),
        None,
    ),
    "replaced without a counted failure": (
        staggered().pod_gone(3, 60).replaced(3, 61).with_job(failed=0).controller_restarted(),
        None,
    ),
}


@pytest.mark.parametrize(("world", "seconds"), TABLE.values(), ids=TABLE)
def test_when_all_ran(world: World, seconds: float | None) -> None:
    assert ran_at(world) == seconds


def test_a_job_that_is_not_indexed_is_counted_by_its_pods() -> None:
    world = group(born=0)
    for index in range(4):
        world = world.started(index, index)
    pods = tuple(msgspec.structs.replace(pod, index=None) for pod in world.pods)
    assert all_ran_at(world.job, pods) == at(3)
    assert all_ran_at(world.job, pods[:3]) is None


@pytest.mark.parametrize(
    ("parallelism", "completions", "members"),
    [(4, 4, 4), (4, None, 4), (4, 8, 4), (8, 4, 4)],
)
def test_how_many_must_run(parallelism: int, completions: int | None, members: int) -> None:
    assert member_count(group().with_job(parallelism=parallelism, completions=completions).job) == members


def test_what_is_remembered_goes_before_what_the_pods_tell() -> None:
    world = staggered()
    assert trained_at(world.job, world.pods, at(-5)) is not None
    assert trained_at(world.job, world.pods, at(2)) == at(2)
    assert trained_at(world.job, world.pods, None) is None


def test_a_resumed_job_has_not_trained_until_it_runs_again() -> None:
    world = training().suspended()
    for index in range(4):
        world = world.pod_gone(index, 10)
    back = world.resumed(100)
    assert trained_at(back.job, back.pods, back.trained_at["job-1"]) is None
    again = back.all_ready(120)
    assert trained_at(again.job, again.pods, again.trained_at["job-1"]) == at(120)


def test_only_a_resumption_begins_a_run_again() -> None:
    world = training()
    for condition in (Condition("Suspended", "True", since=at(50)), Condition("FailureTarget", "False", since=at(50))):
        assert began_at(world.with_job(conditions=(condition,)).job) == at(-3600)
    assert began_at(world.resumed(50).job) == at(50)
    assert began_at(world.resumed(-7200).job) == at(-3600)


def test_replacements_are_the_pods_made_after_all_ran() -> None:
    world = staggered().pod_gone(3, 60).replaced(3, 61)
    assert [pod.name for pod in replacements(world.job, world.pods, at(4), 4)] == ["train-node-0-3-11"]


@pytest.mark.parametrize(("members", "found"), [(3, []), (4, ["train-node-0-3-11"])])
def test_a_rank_that_was_added_since_all_ran_replaces_no_one(members: int, found: list[str]) -> None:
    world = staggered().pod_gone(3, 60).replaced(3, 61)
    assert [pod.name for pod in replacements(world.job, world.pods, at(4), members)] == found


# --- Jobs that show only together that they ran --------------------------------------------------------------------


def of_two_jobs(
    *, created: float = 0, replaced: float = 60, failed: int = 1, watched: bool = False
) -> dict[str, float]:
    """Four nodes run from second 4 on. The launcher, of one rank, was created at `created`, and its only known pod at
    `replaced`. Returns what its Job shows together with theirs."""
    nodes, launcher = staggered(), launcher_of(group(1, born=replaced).started(0, replaced + 1))
    launcher = launcher.with_job(failed=failed, created_at=at(created))
    seen = {launcher.job.uid} if watched else set[str]()
    found = group_ran_at((nodes.job, launcher.job), (*nodes.pods, *launcher.pods), seen)
    return {uid: (moment - at(0)).total_seconds() for uid, moment in found.items()}


def test_the_end_of_a_pod_of_another_job_shows_no_end_of_this_one() -> None:
    world = staggered().pod_gone(3, 60).replaced(3, 61).started(3, 70).controller_restarted()
    other = launcher_of(group(1, born=0).started(0, 1).pod_failed(0, 1, 30))
    assert all_ran_at(world.job, (*world.pods, *other.pods)) == at(3)


def test_the_only_rank_of_a_job_was_replaced_after_the_others_ran() -> None:
    """Seed 132: its pod alone shows no earlier process of the group."""
    assert of_two_jobs() == {"L-job-1": 4}


@pytest.mark.parametrize(
    "found",
    [
        of_two_jobs(failed=0),
        of_two_jobs(watched=True),
        of_two_jobs(replaced=3),
        of_two_jobs(created=60),
    ],
    ids=["no failure is counted", "each pod was seen", "the others did not run yet", "the Job is younger"],
)
def test_the_only_rank_of_a_job_need_not_have_run_before(found: dict[str, float]) -> None:
    assert found == {}


# --- ranks without a pod -------------------------------------------------------------------------------------------


def without(world: World, *indexes: int, failed: int | None = None) -> World:
    """The controller did not see those pods go, and the Job has not replaced them."""
    world = world.with_job(failed=len(indexes) if failed is None else failed)
    left = tuple(pod for pod in world.pods if pod.index not in indexes)
    return msgspec.structs.replace(world, pods=left, trained_at={}, trained_members={})


def joined(world: World, index: int, seconds: float) -> World:
    return world.with_pod(index, joined_probe=True, ready=True, ready_since=at(seconds))


HOLES: dict[str, tuple[World, float | None]] = {
    "one rank is gone, and its failure counted": (without(group(born=0).all_started(5), 1), 5),
    "two ranks are gone": (without(group(born=0).all_started(5), 0, 2), 5),
    "no failure was counted: it never had that pod": (without(group(born=0).all_started(5), 1, failed=0), None),
    "the highest rank has no pod: a quota may have refused it": (without(group(born=0).all_started(5), 3), None),
    "the failure may be that of a replaced member": (
        without(group(born=0).all_started(5).pod_gone(0, 7).replaced(0, 8).started(0, 9), 1),
        None,
    ),
    "one of the others does not run": (
        without(group(born=0).started(0, 5).started(1, 5).started(3, 5), 1),
        None,
    ),
    "the failure may be of an earlier run": (without(training(born=0).suspended().unsuspended(50), 1), None),
    "a member has joined all the others": (joined(without(group(born=0).all_started(5), 1, failed=0), 2, 20), 20),
}


@pytest.mark.parametrize(("world", "seconds"), HOLES.values(), ids=HOLES)
def test_when_all_ran_where_a_rank_has_no_pod(world: World, seconds: float | None) -> None:
    moment = all_ran_at(world.job, world.pods)
    assert (None if moment is None else (moment - at(0)).total_seconds()) == seconds
