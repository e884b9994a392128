"""The groups with which the unit tests of the core begin."""

from recovery.core.model.facts import Condition, JobFacts, JobSetFacts, ReplicatedJobFacts, WorkloadFacts
from recovery.core.model.native_policy_facts import FailurePolicyFacts, PodFailureRule
from tests.unit.core.world import World, whole


def group(
    ranks: int = 4,
    *,
    born: float = -3600,
    restart_policy: str = "Never",
    backoff_limit: int = 6,
    rules: tuple[PodFailureRule, ...] = (),
    failure_policy: FailurePolicyFacts | None = None,
) -> World:
    """A group of `ranks` pods, which are Pending since `born`."""
    job = JobFacts(
        name="train-node-0",
        uid="job-1",
        resource_version="1000",
        jobset_uid="jobset-1",
        replicated_job="node",
        created_at=whole(born),
        parallelism=ranks,
        completions=ranks,
        backoff_limit=backoff_limit,
        pod_restart_policy=restart_policy,
        pod_failure_rules=rules,
    )
    jobset = JobSetFacts(
        name="train",
        uid="jobset-1",
        resource_version="1",
        generation=1,
        created_at=whole(born),
        replicated_jobs=(ReplicatedJobFacts("node", 1, "trainer"),),
        failure_policy=failure_policy,
    )
    workload = WorkloadFacts(
        kind="TrainJob",
        name="train",
        uid="0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11",
        resource_version="1",
        generation=1,
        created_at=whole(born),
    )
    world = World(workload=workload, jobset=jobset, jobs=(job,), pods=(), trained_at={}, job_template=job)
    return world.pods_created(born)


def training(ranks: int = 4, *, born: float = -3600, **settings: object) -> World:
    """A group that has trained since ten seconds after `born`."""
    made: World = group(ranks, born=born, **settings)  # type: ignore[arg-type]
    return made.all_ready(born + 10)


def given_up(world: World) -> World:
    """Trainer creates no JobSet for the TrainJob any more."""
    return world.with_workload(conditions=(Condition("Failed", "True", "DeadlineExceeded"),))
