"""The controller dies between any two of its writes; the next one neither repeats nor loses the recovery."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from recovery.core.decision.decide import decide
from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Ledger, Outcome
from recovery.core.plan.actions import (
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    RaiseBackoffLimit,
    ReadLive,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.plan.suspension import marked_by
from recovery.core.policy.resolved import Backoff, Policy
from recovery.core.policy.spec import OnExhausted, OnTerminalFailure
from tests.unit.core.cluster import Cluster
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

SECONDS = 60

LOSSES: dict[str, World] = {
    "deleted": training().pod_deleted(3, 0),
    "failed": training().pod_failed(3, 137, 0),
    "evicted": training().evicted(3, 0),
    "restarted in place": training(restart_policy="OnFailure").container_restarted(3, 1, 0),
    "cascade": (
        training(restart_policy="OnFailure")
        .container_exited(0, 1, 0)
        .container_exited(1, 1, 0)
        .container_exited(2, 1, 0)
    ),
}


class DeadError(Exception):
    """The process has ended."""


class Mortal(Controller):
    """Carries its plans out in a cluster, action by action, and dies before one of them."""

    def __init__(self, cluster: Cluster, dies_before: int, policy_: Policy | None = None) -> None:
        super().__init__(policy_)
        self.cluster = cluster
        self.actions_left = dies_before

    def go(self, seconds: float) -> None:
        plan = self.plan(self.cluster.world, seconds)
        for action in plan.first:
            self._act()
            self.done.append(action)
        if plan.ledger != self.ledger:
            self._act()
            self.write(plan)
        for action in plan.actions:
            self._act()
            self.done.append(action)
            self.cluster.do(action, seconds)

    def _act(self) -> None:
        if self.actions_left == 0:
            raise DeadError
        self.actions_left -= 1


def play(world: World, dies_before: int, policy_: Policy, *, forgets: bool, back_after: float) -> tuple[Mortal, bool]:
    """A minute of it, and whether the controller died in it."""
    cluster = Cluster(world)
    controller = Mortal(cluster, dies_before, policy_)
    died, absent_until = False, 0.0
    for tenth in range(SECONDS * 2):
        seconds = tenth / 2 + 0.3
        cluster.tick(seconds)
        if seconds < absent_until:
            continue
        try:
            controller.go(seconds)
        except DeadError:
            died, absent_until, controller.actions_left = True, seconds + back_after, 10_000
            if forgets:
                cluster.world = cluster.world.controller_restarted()
    return controller, died


@pytest.mark.parametrize(
    ("forgets", "back_after"),
    [(True, 3), (True, 15), (False, 0.5)],
    ids=["started again at once", "down until all pods are Ready again", "another replica takes over"],
)
@pytest.mark.parametrize("grace_seconds", [None, 5], ids=["the Job first", "its pods first"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_one_recovery_whatever_write_it_dies_before(
    loss: World, grace_seconds: int | None, forgets: bool, back_after: float
) -> None:
    dies_before = 0
    while True:
        controller, died = play(
            loss, dies_before, policy(grace_seconds=grace_seconds), forgets=forgets, back_after=back_after
        )
        world = controller.cluster.world
        assert [incident.id for incident in controller.recorded] in (["0d2f5c9e-1"], ["0d2f5c9e-1"] * 2)
        closing = controller.recorded[0].closing
        assert closing is not None
        assert closing.outcome is Outcome.RECOVERED
        assert {trigger.uid for trigger in controller.triggers} == {"job-1"}
        assert controller.ledger.epoch == controller.ledger.totals.restarts == 1
        assert controller.ledger.totals.charged == controller.ledger.totals.incidents == 1
        assert [job.uid for job in world.jobs] == ["job-2"]
        assert all(world.pod(index).ready for index in range(4))
        assert controller.ledger.incident is None
        if not died:
            break
        dies_before += 1
    assert dies_before > 5, "every write has been died before"


WITH_DEADLINE = training(backoff_limit=50).with_workload(active_deadline_seconds=3600)


class Story(msgspec.Struct, frozen=True):
    """What happens when, under which policy, and what must have come of it whatever the controller died before."""

    policy: Policy
    events: dict[float, Callable[[World], World]]
    seconds: int
    epoch: int
    """Restarts that were called for; no more and no fewer may have been made."""
    charged: int
    taken_down: set[str]
    """UIDs that a trigger may name."""
    stands: str
    """UID of the Job that runs in the end."""
    world: World = training()
    """As it is before the first event."""
    suspends: bool = True
    """The controller may suspend the workload on the way."""


def asked(verb: Verb, seconds: float) -> Callable[[World], World]:
    return lambda world: world.asked(requests.ANNOTATIONS[verb], requests.encode(Request(at(seconds))))


def given_up(world: World) -> World:
    return world.pod_failed(3, 1, 0).job_failing("BackoffLimitExceeded", 0, finally_=True).jobset_failed(0)


def loses(rank: int, seconds: float) -> Callable[[World], World]:
    return lambda world: world.pod_deleted(rank, seconds)


STORIES = {
    "backoff before the second attempt": Story(
        policy=policy(backoff=Backoff(initial=timedelta(seconds=10))),
        events={0: loses(3, 0), 30: loses(2, 30)},
        seconds=75,
        epoch=2,
        charged=2,
        taken_down={"job-1", "job-2"},
        stands="job-3",
    ),
    "withheld before the second attempt": Story(
        policy=policy(backoff=Backoff(initial=timedelta(seconds=10))),
        events={0: loses(3, 0), 30: loses(2, 30)},
        seconds=75,
        epoch=2,
        charged=2,
        taken_down={"job-1", "job-2"},
        stands="job-3",
        world=WITH_DEADLINE,
        suspends=False,
    ),
    "withheld until the Job would not survive another exit of each rank": Story(
        policy=policy(backoff=Backoff(initial=timedelta(seconds=1000))),
        events={0: loses(3, 0), 30: loses(2, 30), 36: loses(1, 36)},
        seconds=75,
        epoch=2,
        charged=2,
        taken_down={"job-1", "job-2"},
        stands="job-3",
        world=training(backoff_limit=5).with_workload(active_deadline_seconds=3600),
        suspends=False,
    ),
    "suspended until the window lets it through": Story(
        policy=policy(limit=1, window_seconds=50, on_exhausted=OnExhausted.SUSPEND),
        events={0: loses(3, 0), 30: loses(2, 30)},
        seconds=90,
        epoch=2,
        charged=2,
        taken_down={"job-1", "job-2"},
        stands="job-3",
    ),
    "suspended until a person says retry": Story(
        policy=policy(limit=0, on_exhausted=OnExhausted.SUSPEND),
        events={0: loses(3, 0), 20: asked(Verb.RETRY, 20)},
        seconds=50,
        epoch=1,
        charged=0,
        taken_down={"job-1"},
        stands="job-2",
    ),
    "a failed JobSet made anew": Story(
        policy=policy(on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET),
        events={0: given_up},
        seconds=40,
        epoch=1,
        charged=1,
        taken_down={"jobset-1"},
        stands="job-2",
    ),
    "restarted by hand": Story(
        policy=policy(limit=0, backoff=Backoff()),
        events={0: asked(Verb.RESTART, 0)},
        seconds=40,
        epoch=1,
        charged=0,
        taken_down={"job-1"},
        stands="job-2",
    ),
}


def tell(story: Story, dies_before: int, *, forgets: bool, back_after: float) -> tuple[Mortal, bool]:
    """The whole story, and whether the controller died in it."""
    cluster = Cluster(story.world)
    controller = Mortal(cluster, dies_before, story.policy)
    died, absent_until = False, 0.0
    for second in range(story.seconds):
        seconds = second + 0.3
        cluster.tick(seconds)
        if second in story.events:
            cluster.world = story.events[second](cluster.world)
        while seconds >= absent_until:
            try:
                controller.go(seconds)
            except DeadError:
                died, absent_until, controller.actions_left = True, seconds + back_after, 10_000
                if forgets:
                    cluster.world = cluster.world.controller_restarted()
            if controller.ledger.incident is None or controller.ledger.incident.closing is None:
                break
    return controller, died


@pytest.mark.parametrize(
    ("forgets", "back_after"), [(True, 3), (False, 0.5)], ids=["started again", "another replica takes over"]
)
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_nothing_is_repeated_lost_or_left_suspended_whatever_it_dies_before(
    story: Story, forgets: bool, back_after: float
) -> None:
    dies_before = 0
    while True:
        controller, died = tell(story, dies_before, forgets=forgets, back_after=back_after)
        world, ledger = controller.cluster.world, controller.ledger
        aimed = {action.uid for action in controller.done if isinstance(action, DeleteJob | DeleteJobSet)}
        assert aimed == story.taken_down
        assert ledger.epoch == ledger.totals.restarts == story.epoch
        assert ledger.totals.charged == story.charged
        assert ledger.incident is None
        assert {incident.closing.outcome for incident in controller.recorded if incident.closing} == {Outcome.RECOVERED}
        assert [job.uid for job in world.jobs] == [story.stands]
        assert all(world.pod(index).ready for index in range(4))
        assert world.workload is not None
        assert (world.workload.suspended, marked_by(world.workload)) == (False, None)
        assert story.suspends or not any(isinstance(action, SuspendWorkload) for action in controller.done)
        if not died:
            break
        dies_before += 1
    assert dies_before > 5, "every write has been died before"


def test_a_zombie_with_an_old_ledger_is_harmless() -> None:
    """Its ledger writes are refused, and what it does without one meets UIDs of the target that are gone."""
    cluster = Cluster(training().pod_deleted(3, 0))
    controller = Mortal(cluster, 10_000)
    ledgers: list[Ledger] = [controller.ledger]
    for half in range(80):
        seconds = half / 2 + 0.3
        cluster.tick(seconds)
        controller.go(seconds)
        ledgers.append(controller.ledger)
        for old in ledgers:
            _meets_only_the_target(cluster.world, old, seconds)
    assert controller.recorded


def _meets_only_the_target(world: World, old: Ledger, seconds: float) -> None:
    plan = decide(world.snapshot(), old, policy(), at(seconds))
    if any(isinstance(action, ReadLive) for action in plan.actions):
        plan = decide(world.snapshot(live=True), old, policy(), at(seconds))
    if plan.ledger != old:
        return  # swapped against a resourceVersion that has passed: refused
    targets = set(old.incident.target.job_uids) if old.incident is not None else set()
    for action in plan.actions:
        if isinstance(action, DeleteJob | RaiseBackoffLimit | TouchJob):
            assert action.uid in targets
        if isinstance(action, DeletePods):
            owners = {pod.uid: pod.job_uid for pod in world.pods}
            assert {owners[pod.uid] for pod in action.pods} <= targets


def test_a_conflict_on_the_trigger_is_answered_by_reading_again() -> None:
    """A cascade changes the Job several times a second."""
    cluster = Cluster(training(16).pod_failed(3, 137, 0))
    controller = Mortal(cluster, 10_000)
    plan = controller.plan(cluster.world, 0.5)
    controller.write(plan)
    cluster.world = cluster.world.with_job(failed=2).pod_failed(4, 134, 0)
    for action in plan.actions:
        if isinstance(action, DeleteJob):
            cluster.do(action, 0.5)
    assert len(cluster.refused) == 1
    controller.go(0.6)
    assert cluster.world.job.deleting_since is not None
    assert controller.ledger.epoch == 1


def test_an_old_ledger_and_a_job_that_is_going_open_nothing() -> None:
    """The action was done, and the ledger that is read is from before it: the write that would repeat it is refused."""
    going = training().pod_deleted(3, 0).job_deleted(1).all_deleted(1)
    plan = Controller().plan(going, 2)
    assert plan.ledger == Ledger()
    assert plan.actions == ()
