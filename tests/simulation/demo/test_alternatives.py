"""What the same failures cost with other ways to restart the job, with four ranks."""

import os
from pathlib import Path

import pytest

from recovery.sim.demo.alternatives import Downtimes, downtimes, downtimes_meanwhile
from recovery.sim.demo.objects import Restarter
from recovery.sim.demo.stage import StageFailure
from recovery.sim.training.rounds import TrainingSettings

RANKS = 4


@pytest.fixture(scope="module")
def found() -> Downtimes:
    return downtimes(ranks=RANKS)


def test_every_failure_is_tried_with_each_that_could_restart_the_job(found: Downtimes) -> None:
    assert set(found) == {(failure, restarter) for failure in StageFailure for restarter in Restarter}


def test_the_controller_survives_all_of_them_and_is_the_fastest(found: Downtimes) -> None:
    for failure in StageFailure:
        ours = found[failure, Restarter.CONTROLLER]
        others = [found[failure, each] for each in (Restarter.JOBSET, Restarter.NONE)]
        assert ours is not None
        assert all(other is None or other > ours for other in others)


def test_jobset_waits_for_the_grace_of_hung_ranks_and_for_ever_for_a_dead_node(found: Downtimes) -> None:
    assert 15 < (found[StageFailure.POD_DELETED, Restarter.JOBSET] or 0) < 30
    assert 15 < (found[StageFailure.RANKS_EXIT, Restarter.JOBSET] or 0) < 30
    assert found[StageFailure.NODE_SILENT, Restarter.JOBSET] is None


def test_without_a_restart_the_ranks_hang_until_the_timeout_of_nccl(found: Downtimes) -> None:
    timeout_seconds = TrainingSettings().nccl_timeout_seconds
    assert all((found[failure, Restarter.NONE] or 0) > timeout_seconds for failure in StageFailure)


async def test_another_process_finds_the_same(found: Downtimes) -> None:
    with downtimes_meanwhile(ranks=RANKS) as meanwhile:
        assert await meanwhile() == found


def test_the_other_process_ends_with_the_context() -> None:
    before = set(_children())
    with downtimes_meanwhile():
        assert len(set(_children()) - before) == 1
    assert set(_children()) <= before


def _children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
