"""Which facts make another setup, and which do not."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.diagnosis.setup import image_digest, runtime_digest
from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.collective import Collective, LaunchFacts
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.demand import Demand
from recovery.core.model.facts import ReplicatedJobFacts
from recovery.core.model.native_policy_facts import FailurePolicyFacts, PodConditionPattern, PodFailureRule
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

BEFORE = training()
DIGEST = "sha256:" + "1" * 64
OTHER_DIGEST = "sha256:" + "2" * 64
NODE = ContainerTemplate("node", accelerators=8)
TORCHRUN = LaunchFacts(Collective.REQUIRED, "torchrun --max-restarts=3")
RULE = PodFailureRule("Ignore", on_pod_conditions=(PodConditionPattern("DisruptionTarget"),))
SETTINGS = BirthSettings(1, job_set_uid="jobset-1", replicated_job="node", since=at(0), nodes=2, avoid_hosts=("gpu-3",))

CHANGES: dict[str, Callable[[World], World]] = {
    "another size": lambda world: world.with_jobset(replicated_jobs=(ReplicatedJobFacts("node", parallelism=8),)),
    "another ReplicatedJob": lambda world: world.with_jobset(
        replicated_jobs=(ReplicatedJobFacts("node", 1, "trainer"), ReplicatedJobFacts("data", 1))
    ),
    "another failurePolicy": lambda world: world.with_jobset(failure_policy=FailurePolicyFacts(max_restarts=1)),
    "another container": lambda world: world.with_job(containers=(NODE,)),
    "another launch": lambda world: world.with_job(containers=(ContainerTemplate("node", launch=TORCHRUN),)),
    "another backoffLimit": lambda world: world.with_job(backoff_limit=0),
    "another restartPolicy": lambda world: world.with_job(pod_restart_policy="OnFailure"),
    "another podFailurePolicy": lambda world: world.with_job(pod_failure_rules=(RULE,)),
    "another training container": lambda world: world.with_job(training_container="node"),
    "with the agent": lambda world: world.with_job(agent_image="agent@sha256:0"),
}
NO_CHANGES: dict[str, Callable[[World], World]] = {
    "a restart": lambda world: world.recreated(10).all_ready(20),
    "a restart by the JobSet": lambda world: world.with_jobset(restarts=2, resource_version="7", generation=2),
    "a smaller size at birth": lambda world: world.born(10, SETTINGS).all_ready(20),
    "a resize of the Job": lambda world: world.with_job(parallelism=2, completions=2),
    "another demand on nodes": lambda world: world.with_job(demand=Demand(gpus=8)),
    "a backoffLimit that we raised": lambda world: world.with_job(backoff_limit=99, own_backoff_limit=6),
    "a lost member": lambda world: world.pod_failed(3, 137, 0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_runtime(change: Callable[[World], World]) -> None:
    now = runtime_digest(change(BEFORE).snapshot())
    assert now
    assert now != runtime_digest(BEFORE.snapshot())


@pytest.mark.parametrize("change", NO_CHANGES.values(), ids=NO_CHANGES)
def test_no_change_of_the_runtime(change: Callable[[World], World]) -> None:
    assert runtime_digest(change(BEFORE).snapshot()) == runtime_digest(BEFORE.snapshot())


def test_while_a_job_is_missing_the_runtime_is_not_known() -> None:
    assert runtime_digest(BEFORE.job_gone().snapshot()) == ""
    assert runtime_digest(BEFORE.job_deleted(0).snapshot()) == ""


def running(*images: str) -> World:
    """Rank n runs the n-th image."""
    world = training(len(images))
    for index, image in enumerate(images):
        (container,) = world.pod(index).containers
        world = world.with_pod(index, containers=(msgspec.structs.replace(container, image=image),))
    return world


def test_the_same_images_on_other_ranks_are_no_change() -> None:
    one, other = running(DIGEST, DIGEST, OTHER_DIGEST), running(OTHER_DIGEST, DIGEST, OTHER_DIGEST)
    assert image_digest(one.snapshot()) == image_digest(other.snapshot()) != ""


def test_another_image_of_one_rank_is_a_change() -> None:
    assert image_digest(running(DIGEST, OTHER_DIGEST).snapshot()) != image_digest(running(DIGEST, DIGEST).snapshot())


@pytest.mark.parametrize(
    "world",
    [running(DIGEST, ""), running(DIGEST, DIGEST).pod_gone(1, 0), running(DIGEST, DIGEST).job_gone()],
    ids=["an image that is not reported", "a missing rank", "a missing Job"],
)
def test_while_the_image_of_one_rank_is_not_known_none_is(world: World) -> None:
    assert image_digest(world.snapshot()) == ""
