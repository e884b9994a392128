"""How many more exits a Job survives by the rules of the Job controller of Kubernetes 1.36."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.diagnosis.job_limits import exits_left, no_time_to_wait
from recovery.core.model.facts import ContainerFacts
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason, because
from tests.unit.core.groups import training
from tests.unit.core.world import World


def hurry(world: World) -> Reason | None:
    """Why the restart must not wait. None: it may wait."""
    why = no_time_to_wait(world.snapshot())
    return None if why is None else why.reason


def left(world: World) -> int | None:
    return exits_left(world.job, world.pods)


def with_sidecar(world: World, rank: int, restarts: int) -> World:
    """The rank's native sidecar has been restarted `restarts` times."""
    sidecar = ContainerFacts(name="shipper", restarts=restarts, running_since=world.pod(rank).created_at)
    return world.with_pod(rank, init_containers=(sidecar,))


@pytest.mark.parametrize(
    ("happened", "exits"),
    [
        (lambda world: world, 6),
        (lambda world: world.pod_failed(3, 1, 0), 5),
        (lambda world: world.pod_failed(3, 1, 0).replaced(3, 1), 5),
        (lambda world: world.pod_failed(3, 1, 0).pod_failed(2, 1, 0), 4),
        (lambda world: world.pod_deleted(3, 0), 5),
        (lambda world: world.pod_gone(3, 0), 5),
        (lambda world: world.with_job(failed=4), 2),
        (lambda world: world.with_job(failed=7), -1),
        (lambda world: world.succeeded(3), 6),
        (lambda world: with_sidecar(world, 0, 5), 6),
    ],
    ids=[
        "nothing",
        "failed",
        "failed, counted and replaced",
        "two failed",
        "deleted",
        "deleted and gone",
        "only the Job still knows of them",
        "beyond the limit",
        "succeeded",
        "restarts of containers do not count",
    ],
)
def test_under_never_failed_pods_count_and_the_job_fails_beyond_its_limit(
    happened: Callable[[World], World], exits: int
) -> None:
    assert left(happened(training(4))) == exits


@pytest.mark.parametrize(
    ("happened", "exits"),
    [
        (lambda world: world, 5),
        (lambda world: world.container_exited(3, 1, 0), 4),
        (lambda world: world.container_restarted(3, 1, 0), 4),
        (lambda world: world.container_restarted(3, 1, 0).container_exited(3, 1, 9), 3),
        (lambda world: with_sidecar(world, 0, 3), 2),
        (lambda world: with_sidecar(world, 0, 6), -1),
        (lambda world: with_sidecar(world, 0, 3).pod_gone(0, 0), 5),
        (lambda world: world.pod_deleted(3, 0), 5),
        (lambda world: world.with_job(failed=6), 0),
    ],
    ids=[
        "nothing",
        "exited, its restart is not counted yet",
        "restarted",
        "restarted and exited again",
        "restarts of all containers count",
        "beyond the limit",
        "the restarts of a pod go with the pod, which counts itself",
        "deleted",
        "failed pods count as well",
    ],
)
def test_under_on_failure_restarts_count_and_the_job_fails_when_they_reach_its_limit(
    happened: Callable[[World], World], exits: int
) -> None:
    assert left(happened(training(4, restart_policy="OnFailure"))) == exits


def test_pods_that_a_suspension_has_deleted_do_not_count() -> None:
    assert left(training(4).all_deleted(0).resumed(10).all_ready(12)) == 6


def test_a_limit_for_each_index_is_not_known() -> None:
    world = training(4, backoff_limit=2**31 - 1).with_job(backoff_limit_per_index=3)
    assert left(world) is None
    assert hurry(world) is Reason.BACKOFF_LIMIT


def test_every_rank_may_exit_once_more_the_replaced_one_too() -> None:
    """A replacement waits for its peers, and its rendezvous times out like theirs."""
    world = training(4, backoff_limit=5).pod_failed(3, 1, 0).replaced(3, 1)
    assert no_time_to_wait(world.snapshot()) is None
    world = world.pod_failed(2, 1, 5)
    why = no_time_to_wait(world.snapshot())
    assert why == because(Reason.BACKOFF_LIMIT, job="train-node-0", limit=5, exits=3, ranks=4)


def test_each_of_several_jobs_has_to_survive() -> None:
    world = training(4, backoff_limit=50)
    launcher = msgspec.structs.replace(world.job, name="train-launcher-0", uid="job-launcher", backoff_limit=1)
    both = msgspec.structs.replace(world, jobs=(launcher, *world.jobs))
    why = no_time_to_wait(both.snapshot())
    assert why is not None
    assert why.details["job"] == "train-launcher-0"


def test_a_job_that_is_failing_leaves_no_time() -> None:
    world = training(4, backoff_limit=50).job_failing("BackoffLimitExceeded", 0)
    assert hurry(world) is Reason.JOB_FAILING


def test_a_failure_policy_of_the_job_set_leaves_no_time() -> None:
    """If the wait lets the Job fail, the user's own failurePolicy decides."""
    world = training(4, backoff_limit=50, failure_policy=FailurePolicyFacts(max_restarts=3))
    assert hurry(world) is Reason.FAILURE_POLICY
