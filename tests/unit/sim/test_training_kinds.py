"""Trainings that do not hang as one of NCCL does, and ranks that save when they get SIGTERM."""

from dataclasses import replace

import pytest

from recovery import api_verbs
from recovery.ports import PODS
from recovery.scenario.modelled_job import TrainingKind
from recovery.sim.training.rounds import RankState, Saving, TrainingSettings
from recovery.sim.training.trace import EventKind
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.test_training_of_several_jobs import bind_members, launcher_and_nodes
from tests.unit.sim.training_scene import NAME, SETTINGS, bind_group, bind_rank, training_cluster


def of_kind(kind: TrainingKind) -> TrainingSettings:
    return replace(SETTINGS, kinds_of={NAME: kind})


def saving(seconds: float, code: int) -> TrainingSettings:
    return replace(SETTINGS, savings_of={NAME: Saving(seconds, code)})


@virtual_time
async def test_self_healing_ranks_wait_for_the_one_that_was_lost_and_meet_it() -> None:
    async with training_cluster(of_kind(TrainingKind.SELF_HEALING)) as c:
        pods = await bind_group(c, restart_policy="Never")
        await c.pass_seconds(25)
        c.kubelets.exit_container(pods[1], 1)
        await c.pass_seconds(20)
        assert c.workload.ranks(NAME) == {RankState.WAITING: 3}
        await bind_rank(c, 1, suffix="b", restart_policy="Never")
        await c.pass_seconds(5)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}
        assert [round_.from_step for round_ in c.workload.rounds(NAME)] == [0, 20]
        assert c.workload.trace.of(NAME, EventKind.RANK_HUNG) == []


@virtual_time
async def test_self_healing_ranks_give_up_the_rendezvous() -> None:
    async with training_cluster(of_kind(TrainingKind.SELF_HEALING)) as c:
        pods = await bind_group(c, restart_policy="Never")
        c.kubelets.exit_container(pods[1], 1)
        await c.pass_seconds(SETTINGS.join_timeout_seconds + 5)
        assert [c.phase(name) for name in pods] == ["Failed"] * 4


@virtual_time
async def test_independent_ranks_train_on_without_the_lost_one_and_its_successor_joins() -> None:
    async with training_cluster(of_kind(TrainingKind.INDEPENDENT)) as c:
        pods = await bind_group(c, restart_policy="Never")
        c.kubelets.exit_container(pods[1], 1)
        await c.pass_seconds(25)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 3}
        await bind_rank(c, 1, suffix="b", restart_policy="Never")
        await c.pass_seconds(5)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}
        (only,) = c.workload.rounds(NAME)
        assert only.ended_at is None
        assert c.workload.trace.of(NAME, EventKind.RANK_LOST) == []


@virtual_time
async def test_independent_ranks_report_nothing_without_rank_0() -> None:
    settings = replace(of_kind(TrainingKind.INDEPENDENT), reports_every_seconds_of={NAME: 10.0})
    async with training_cluster(settings) as c:
        pods = await bind_group(c, restart_policy="Never")
        await c.pass_seconds(25)
        reports = len(c.workload.trace.of(NAME, EventKind.REPORTED))
        assert reports
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(25)
        assert len(c.workload.trace.of(NAME, EventKind.REPORTED)) == reports
        await bind_rank(c, 0, suffix="b", restart_policy="Never")
        await c.pass_seconds(25)
        assert len(c.workload.trace.of(NAME, EventKind.REPORTED)) > reports


@virtual_time
async def test_a_round_of_independent_ranks_ends_with_the_last_of_them() -> None:
    async with training_cluster(of_kind(TrainingKind.INDEPENDENT)) as c:
        pods = await bind_group(c, 4, restart_policy="Never")
        for name in pods:
            c.kubelets.exit_container(name, 1)
        await c.pass_seconds(5)
        (only,) = c.workload.rounds(NAME)
        assert only.ended_at is not None
        assert len(c.workload.trace.of(NAME, EventKind.RANK_LOST)) == 1


@virtual_time
async def test_a_launcher_that_loses_a_worker_ends_and_its_successor_meets_the_workers() -> None:
    async with training_cluster(of_kind(TrainingKind.LAUNCHER)) as c:
        await launcher_and_nodes(c)
        pods = await bind_members(c)
        await c.pass_seconds(5)
        c.kubelets.exit_container(pods[2], 1)
        await c.pass_seconds(0.5)
        assert c.workload.ranks(NAME)[RankState.WAITING] == 3, "the workers serve, also the one that has restarted"
        await c.pass_seconds(60)
        exits = c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)
        assert [(record.member, record.exit_code) for record in exits] == [("node-0", 1), ("launcher-0", 1)]
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}
        assert c.workload.trace.of(NAME, EventKind.RANK_HUNG) == []


@virtual_time
async def test_workers_wait_for_their_launcher_without_an_end() -> None:
    async with training_cluster(of_kind(TrainingKind.LAUNCHER)) as c:
        await launcher_and_nodes(c)
        pods = await bind_members(c)
        await c.pass_seconds(5)
        await api_verbs.delete(c.api, PODS, pods[0], namespace="default", grace_seconds=1)
        await c.pass_seconds(SETTINGS.join_timeout_seconds * 3)
        assert c.workload.ranks(NAME) == {RankState.WAITING: 3}


@pytest.mark.parametrize("code", [0, 143])
@virtual_time
async def test_a_rank_that_saves_trains_on_until_it_exits(code: int) -> None:
    async with training_cluster(saving(8.0, code)) as c:
        pods = await bind_group(c, restart_policy="Never")
        await c.pass_seconds(25)
        await api_verbs.delete(c.api, PODS, pods[1], namespace="default", grace_seconds=30)
        await c.pass_seconds(6)
        assert c.workload.rounds(NAME)[0].ended_at is None
        await c.pass_seconds(5)
        (exit_,) = c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)
        assert (exit_.exit_code, exit_.step) == (code, 33)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3}


@virtual_time
async def test_a_rank_that_has_not_met_the_others_has_nothing_to_save() -> None:
    async with training_cluster(saving(8.0, 0)) as c:
        pods = await bind_group(c, 3, restart_policy="Never")
        await api_verbs.delete(c.api, PODS, pods[1], namespace="default", grace_seconds=30)
        await c.pass_seconds(3)
        (exit_,) = c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)
        assert exit_.exit_code == 143
