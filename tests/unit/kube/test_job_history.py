"""What is remembered about a Job beyond its objects."""

from datetime import datetime, timedelta

import msgspec
import pytest

from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, JobFacts, PodFacts
from recovery.kube.job_history import JobHistories
from tests.unit.kube.testing import START

LATER = START + timedelta(minutes=5)


def job(uid: str = "j", *, members: int = 2, suspended: bool = False, deleting: bool = False) -> JobFacts:
    return JobFacts(
        name="llm-node-0",
        uid=uid,
        resource_version="1",
        jobset_uid="js",
        replicated_job="node",
        created_at=START,
        suspended=suspended,
        deleting_since=START if deleting else None,
        parallelism=members,
        completions=members,
    )


def pod(index: int | None, *, name: str = "", job_uid: str = "j", created: int = 0, running: bool = True) -> PodFacts:
    started = START + timedelta(seconds=created + 1)
    return PodFacts(
        name=name or f"p{index}",
        uid=f"uid-{name or index}",
        job_uid=job_uid,
        job_name="llm-node-0",
        index=index,
        created_at=START + timedelta(seconds=created),
        phase="Running" if running else "Pending",
        containers=(ContainerFacts("node", running_since=started),) if running else (),
    )


@pytest.fixture
def memory() -> JobHistories:
    incarnations = JobHistories()
    incarnations.job_seen(job())
    return incarnations


def vanished(memory: JobHistories, uid: str = "j") -> list[str]:
    return [lost.name for lost in memory.vanished(uid)]


def test_a_pod_that_vanishes_under_a_living_job_is_kept(memory: JobHistories) -> None:
    memory.pod_seen(pod(0))
    memory.pod_gone(pod(0), LATER)
    assert list(memory.vanished("j")) == [msgspec.structs.replace(pod(0), gone_at=LATER)]


def test_until_the_job_is_gone(memory: JobHistories) -> None:
    memory.pod_gone(pod(0), LATER)
    memory.job_gone("j", LATER)
    assert vanished(memory) == []


def done(index: int, **changes: object) -> PodFacts:
    """A pod whose training has exited with 0 while another container still runs."""
    trained = ContainerFacts("node", exit=ExitFacts(0, "Completed", finished_at=LATER))
    return msgspec.structs.replace(pod(index), containers=(trained,), **changes)


def ranks_done(memory: JobHistories) -> list[int | None]:
    return [each.index for each in memory.done("j")]


def test_a_rank_that_has_trained_to_its_end_stays_done_whatever_becomes_of_its_pods(memory: JobHistories) -> None:
    """Seed 5616: the pod was deleted, and so was its replacement."""
    memory.pod_seen(done(0))
    memory.pod_gone(done(0, deleting_since=LATER), LATER)
    memory.pod_seen(pod(0, name="second", created=600))
    memory.pod_gone(pod(0, name="second", created=600), LATER)
    assert ranks_done(memory) == [0]


DISRUPTED = (Condition("DisruptionTarget", "True", "EvictionByEvictionAPI"),)


@pytest.mark.parametrize("asked", [{"deleting_since": LATER}, {"conditions": DISRUPTED}], ids=["deleted", "evicted"])
def test_a_rank_that_exits_0_when_it_is_asked_to_go_is_not_done(memory: JobHistories, asked: dict[str, object]) -> None:
    memory.pod_seen(done(0, **asked))
    assert ranks_done(memory) == []


@pytest.mark.parametrize("state", [job(suspended=True), job(members=1)], ids=["suspended", "smaller"])
def test_ranks_that_are_done_are_forgotten_with_their_run(memory: JobHistories, state: JobFacts) -> None:
    memory.pod_seen(done(1))
    memory.job_seen(state)
    assert ranks_done(memory) == []


@pytest.mark.parametrize("state", [job(deleting=True), job(suspended=True)], ids=["deleting", "suspended"])
def test_a_job_that_deletes_its_own_pods_loses_none(memory: JobHistories, state: JobFacts) -> None:
    memory.job_seen(state)
    memory.pod_gone(pod(0), LATER)
    assert vanished(memory) == []


def test_a_suspension_that_is_seen_late_takes_its_losses_back(memory: JobHistories) -> None:
    memory.pod_gone(pod(0), LATER)
    memory.job_seen(job(suspended=True))
    memory.job_seen(job())
    assert vanished(memory) == []


def test_a_job_that_was_made_smaller_has_lost_nothing(memory: JobHistories) -> None:
    memory.pod_gone(pod(0), LATER)
    memory.pod_gone(pod(1), LATER)
    memory.job_seen(job(members=1))
    memory.job_seen(job(members=2))
    assert vanished(memory) == ["p0"]


def test_only_the_newest_of_an_index_is_kept(memory: JobHistories) -> None:
    for name, created in (("first", 0), ("third", 20), ("second", 10)):
        memory.pod_gone(pod(0, name=name, created=created), LATER)
    memory.pod_gone(pod(None, name="no-index"), LATER)
    assert vanished(memory) == ["third", "no-index"]


def test_pods_of_a_job_that_is_not_known_leave_nothing_behind() -> None:
    memory = JobHistories()
    for each in (pod(0), pod(1), pod(None), pod(0, job_uid="")):
        memory.pod_seen(each)
    for each in (pod(0), pod(1), pod(None), pod(0, job_uid="")):
        memory.pod_gone(each, LATER)
    assert vanished(memory) == []
    assert not memory._by_job, "a leak would grow with every Job"


def test_a_group_is_whole_when_all_indexes_run_at_once(memory: JobHistories) -> None:
    assert not memory.pod_seen(pod(0))
    assert not memory.pod_seen(pod(0, name="again"))
    assert not memory.pod_seen(pod(1, running=False))
    assert memory.pod_seen(pod(1))


def test_or_when_its_job_is_seen_after_its_pods() -> None:
    memory = JobHistories()
    memory.pod_seen(pod(0))
    memory.pod_seen(pod(1))
    assert memory.job_seen(job())
    assert not memory.job_seen(job(members=3))


def test_a_member_that_stopped_or_vanished_does_not_count(memory: JobHistories) -> None:
    memory.pod_seen(pod(0))
    memory.pod_seen(pod(0, running=False))
    assert not memory.pod_seen(pod(1))
    memory.pod_gone(pod(1), LATER)
    assert not memory.pod_seen(pod(0))


def test_a_replacement_is_not_stopped_by_news_of_its_predecessor(memory: JobHistories) -> None:
    memory.pod_seen(pod(0))
    memory.pod_seen(pod(0, name="replacement"))
    memory.pod_gone(pod(0), LATER)
    assert memory.pod_seen(pod(1))


def test_that_it_has_trained_is_remembered(memory: JobHistories) -> None:
    pods = [pod(0), pod(1, created=10)]
    assert memory.train(job(), pods[:1]) is None
    assert memory.train(job(), pods) == START + timedelta(seconds=11)
    assert memory.train(job(), []) == START + timedelta(seconds=11)
    assert not memory.pod_seen(pod(0)), "no need to ask again"


def test_of_how_many_members_it_was_is_remembered(memory: JobHistories) -> None:
    memory.train(job(), [pod(0), pod(1)])
    memory.job_seen(job(members=3))
    assert memory.trained_members(job(members=3)) == 2, "the third has been added, and has not run yet"


def test_a_group_that_has_grown_counts_its_new_members_once_all_of_it_has_run(memory: JobHistories) -> None:
    memory.train(job(), [pod(0), pod(1)])
    memory.job_seen(job(members=3))
    for index in range(3):
        assert not memory.pod_seen(pod(index)), "it has trained already"
    assert memory.trained_members(job(members=3)) == 3


def test_a_group_that_was_made_smaller_has_added_what_comes_back(memory: JobHistories) -> None:
    memory.train(job(), [pod(0), pod(1)])
    memory.job_seen(job(members=1))
    memory.job_seen(job(members=2))
    assert memory.trained_members(job()) == 1


def test_a_suspension_ends_of_how_many_members_it_was(memory: JobHistories) -> None:
    memory.train(job(), [pod(0), pod(1)])
    memory.job_seen(job(suspended=True))
    assert memory.trained_members(job(members=3)) == 3, "as of a Job that is not remembered"
    assert memory.trained_members(job("of another", members=3)) == 3


def test_a_job_that_is_not_remembered_is_judged_by_its_pods_alone() -> None:
    memory = JobHistories()
    assert memory.train(job(), [pod(0), pod(1)]) == START + timedelta(seconds=1)
    assert memory.train(job(), []) is None


def test_a_suspension_ends_what_was_remembered(memory: JobHistories) -> None:
    memory.train(job(), [pod(0), pod(1)])
    memory.job_seen(job(suspended=True))
    assert memory.train(job(), [pod(0, created=600)]) is None


def test_so_does_a_resume_whose_suspension_was_not_seen(memory: JobHistories) -> None:
    """A relist shows only the newest state."""
    memory.train(job(), [pod(0), pod(1)])
    condition = Condition("Suspended", "False", "JobResumed", "Job resumed", START + timedelta(seconds=603))
    resumed = msgspec.structs.replace(job(), conditions=(condition,))
    assert memory.train(resumed, [pod(0, created=600)]) is None
    assert memory.train(resumed, [pod(0, created=600), pod(1, created=602)]) == START + timedelta(seconds=603)
    assert memory.train(resumed, []) == START + timedelta(seconds=603), "remembered again"


def suspended_since(seconds: int, status: str = "True") -> JobFacts:
    condition = Condition("Suspended", status, "JobSuspended", "", START + timedelta(seconds=seconds))
    return msgspec.structs.replace(job(suspended=status == "True"), conditions=(condition,))


def test_a_suspension_is_remembered_when_the_job_shows_only_the_resume(memory: JobHistories) -> None:
    memory.job_seen(suspended_since(60))
    memory.job_seen(suspended_since(70, "False"))
    assert memory.with_suspension(job()).suspended_at == START + timedelta(seconds=60)


def test_the_next_suspension_takes_its_place(memory: JobHistories) -> None:
    memory.job_seen(suspended_since(60))
    memory.job_seen(suspended_since(90))
    assert memory.with_suspension(job()).suspended_at == START + timedelta(seconds=90)


def test_a_suspension_that_the_job_controller_has_not_seen_yet_has_no_date(memory: JobHistories) -> None:
    memory.job_seen(job(suspended=True))
    assert memory.with_suspension(job()).suspended_at is None


def test_a_pod_of_a_run_before_a_remembered_suspension_has_not_trained_in_the_next_one(memory: JobHistories) -> None:
    memory.job_seen(suspended_since(60))
    memory.job_seen(suspended_since(60, "False"))
    old = msgspec.structs.replace(pod(0), deleting_since=LATER)
    assert memory.train(suspended_since(60, "False"), [old, pod(1, created=65)]) is None


def let_go(index: int) -> PodFacts:
    return msgspec.structs.replace(pod(index), let_go=True, deleting_since=LATER)


def test_a_job_that_lets_all_of_its_pods_go_ends_what_was_remembered(memory: JobHistories) -> None:
    """Seed 43: it was suspended and resumed before its watch showed that, and no condition shows it."""
    memory.pod_seen(done(0))
    memory.train(job(), [pod(0), pod(1)])
    assert memory.train(job(), [let_go(0), pod(1)]) is not None, "it may only have become smaller"
    assert memory.train(job(), [let_go(0), let_go(1), pod(0, name="next", created=300, running=False)]) is None
    assert ranks_done(memory) == []


def test_until_it_makes_pods_again_it_may_be_gone_and_has_trained(memory: JobHistories) -> None:
    """The garbage collector deletes the pods of a deleted Job, and its controller stops tracking them first."""
    trained_at = memory.train(job(), [pod(0), pod(1)])
    assert memory.train(job(), [let_go(0), let_go(1)]) is None
    gone = memory.job_gone("j", LATER)
    assert gone is not None
    assert gone.trained_at == trained_at


# --- what was watched is not inferred ------------------------------------------------------------------------------


def refused_again() -> tuple[PodFacts, ...]:
    """Rank 0 runs. The kubelet refused the first pod of rank 1, and another one has come since."""
    refused = msgspec.structs.replace(pod(1, name="p1a", running=False), phase="Failed")
    return pod(0), refused, pod(1, name="p1b", created=60)


def all_ran(memory: JobHistories, seen: JobFacts) -> datetime | None:
    memory.job_seen(seen)
    first, refused, later = refused_again()
    for each in (first, refused):
        memory.pod_seen(each)
    memory.pod_gone(refused, LATER)
    waiting = msgspec.structs.replace(later, phase="Pending", containers=())
    memory.pod_seen(waiting)
    return memory.train(seen, (first, waiting))


def test_a_late_pod_of_a_job_that_was_watched_from_the_beginning_is_no_replacement(memory: JobHistories) -> None:
    assert all_ran(memory, msgspec.structs.replace(job(), failed=1)) is None


def test_it_is_one_if_the_job_was_found_with_pods() -> None:
    assert all_ran(JobHistories(), msgspec.structs.replace(job(), active=2, failed=1)) is not None


class TestARunAfterASuspension:
    """Seed 5079 with all neighbours: a new leader finds the Job suspended, and watches its next run from the start."""

    def found_suspended(self, *pods: PodFacts) -> JobHistories:
        memory = JobHistories()
        memory.job_seen(msgspec.structs.replace(job(suspended=True), failed=3))
        for each in pods:
            memory.pod_seen(each)
        return memory

    def test_failures_of_earlier_runs_do_not_count(self) -> None:
        assert all_ran(self.found_suspended(), msgspec.structs.replace(job(), failed=3 + 1)) is None

    def test_a_pod_of_this_run_that_was_not_seen_does(self) -> None:
        assert all_ran(self.found_suspended(), msgspec.structs.replace(job(), failed=3 + 2)) is not None

    def test_while_old_pods_terminate_nothing_shows_of_which_run_a_failure_is(self) -> None:
        old = msgspec.structs.replace(pod(1, name="old"), deleting_since=START)
        assert all_ran(self.found_suspended(old), msgspec.structs.replace(job(), failed=3 + 1)) is not None

    def test_once_they_are_gone_it_is_of_this_run(self) -> None:
        old = msgspec.structs.replace(pod(1, name="old"), deleting_since=START)
        memory = self.found_suspended(old)
        memory.pod_gone(old, LATER)
        assert all_ran(memory, msgspec.structs.replace(job(), failed=3 + 1)) is None


def test_it_is_one_if_the_job_counts_a_pod_that_was_not_seen(memory: JobHistories) -> None:
    """A watch was interrupted meanwhile."""
    memory.job_seen(msgspec.structs.replace(job(), failed=2))
    first, _, later = refused_again()
    waiting = msgspec.structs.replace(later, phase="Pending", containers=())
    for each in (first, waiting):
        memory.pod_seen(each)
    assert memory.train(msgspec.structs.replace(job(), failed=2), (first, waiting)) is not None


def test_a_pod_that_a_failing_job_still_deletes_is_counted_already(memory: JobHistories) -> None:
    first, _, later = refused_again()
    leaving = msgspec.structs.replace(later, phase="Pending", containers=(), deleting_since=LATER)
    memory.job_seen(msgspec.structs.replace(job(), failed=1))
    for each in (first, leaving):
        memory.pod_seen(each)
    assert memory.train(msgspec.structs.replace(job(), failed=1), (first, leaving)) is None


def all_pods(memory: JobHistories) -> bool:
    return memory.saw_all_pods("j", (pod(0, name="last"), *memory.vanished("j")))


@pytest.mark.parametrize("completions", [2, None], ids=["Indexed", "NonIndexed"])
def test_of_a_watched_job_the_newest_pods_of_each_rank_are_known(memory: JobHistories, completions: int | None) -> None:
    """Of each rank only the newest vanished pod is kept. A pod without an index has no rank."""
    memory.job_seen(msgspec.structs.replace(job(), completions=completions))
    assert all_pods(memory)
    memory.pod_gone(pod(0, name="first"), LATER)
    assert all_pods(memory)
    memory.pod_gone(pod(0, name="second", created=10), LATER)
    assert all_pods(memory) is (completions is not None)


def test_the_pods_of_a_job_that_was_found_with_pods_may_not_be_all() -> None:
    memory = JobHistories()
    assert not all_pods(memory), "the Job is not known"
    memory.job_seen(msgspec.structs.replace(job(), active=2))
    assert not all_pods(memory)
