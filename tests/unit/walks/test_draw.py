"""A seed gives the same walk always and everywhere. The walks of CI leave nothing out."""

from collections import Counter

import pytest

from tests.walks.draw import FEWEST_STEPS, MOST_PODS, WALKS_IN_CI, draw
from tests.walks.plan import ActKind, ContainerKind

SEEDS = range(300)


def test_a_seed_gives_the_same_walk_each_time() -> None:
    assert [draw(seed) for seed in SEEDS] == [draw(seed) for seed in SEEDS]


def test_seeds_give_different_walks() -> None:
    told = Counter("\n".join(draw(seed).lines()) for seed in SEEDS)
    assert max(told.values()) == 1


def test_the_jobs_are_small() -> None:
    for seed in SEEDS:
        jobs = draw(seed).workload.jobs
        assert 1 <= len(jobs) <= 3
        assert sum(job.pods * job.replicas for job in jobs) <= MOST_PODS
        assert all(1 <= len(job.containers) <= 3 for job in jobs)


def test_what_is_broken_is_repaired_in_the_end() -> None:
    undone = {
        ActKind.SUSPEND: ActKind.RESUME,
        ActKind.TAINT: ActKind.UNTAINT,
        ActKind.LOSE_NODE: ActKind.RECOVER_NODES,
    }
    for seed in SEEDS:
        kinds = [act.kind for step in draw(seed).steps for act in step.acts]
        for doing, undoing in undone.items():
            if doing in kinds:
                last = len(kinds) - 1 - kinds[::-1].index(doing)
                assert undoing in kinds[last:], f"seed {seed}: {undoing} does not follow {doing}"


@pytest.mark.parametrize("kind", [*ActKind, *ContainerKind], ids=lambda kind: kind.name)
def test_the_walks_of_ci_have_every_act_and_every_container(kind: ActKind | ContainerKind) -> None:
    walks = [draw(seed) for seed in range(WALKS_IN_CI)]
    acts = {act.kind for walk in walks for step in walk.steps for act in step.acts}
    containers = {each.kind for walk in walks for job in walk.workload.jobs for each in job.containers}
    assert kind in acts | containers


def test_the_walks_of_ci_have_every_kind_of_job() -> None:
    walks = [draw(seed) for seed in range(WALKS_IN_CI)]
    jobs = [job for walk in walks for job in walk.workload.jobs]
    assert {walk.workload.kind for walk in walks} == {"TrainJob", "JobSet"}
    assert {job.restart_policy for job in jobs} == {"Never", "OnFailure"}
    assert any(walk.workload.suspended for walk in walks)
    assert any(walk.workload.deadline_seconds for walk in walks)
    assert any(job.deadline_seconds for job in jobs)
    assert any(job.backoff_limit_per_index is not None for job in jobs)
    assert any(job.max_failed_indexes is not None for job in jobs)
    assert any(job.failure_rules for job in jobs)
    assert any(job.depends_on for job in jobs)
    assert any(job.completions for job in jobs)
    assert any(len(step.acts) > 1 for walk in walks for step in walk.steps)
    assert any(len(walk.steps) >= FEWEST_STEPS for walk in walks)
