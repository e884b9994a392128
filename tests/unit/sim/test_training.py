"""The training world: when ranks meet, how they step and checkpoint, and what the loss of one does to the others."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from recovery import api_verbs
from recovery.ports import JOBS, PODS, TRAIN_JOBS, TryLaterError
from recovery.sim.kubelets.node_run import NodeDeath
from recovery.sim.training.rounds import RankState, TrainingOutcome
from recovery.sim.training.trace import EventKind
from recovery.sim.training.training import TrainingWorld
from recovery.sim.virtual_time import BEGIN, virtual_time
from tests.unit.sim.cluster import AT_ONCE, QUICK, cluster
from tests.unit.sim.training_scene import NAME, SETTINGS, Training, bind_group, bind_rank, training_cluster


def ready(c: Training, names: list[str]) -> list[bool]:
    return [c.condition(name, "Ready")["status"] == "True" for name in names]


def kinds(c: Training, *wanted: EventKind) -> list[EventKind]:
    return [record.kind for record in c.workload.trace.of(NAME, *wanted)]


@virtual_time
async def test_a_round_forms_when_all_ranks_run_at_once() -> None:
    async with training_cluster() as c:
        for index in (2, 0, 3):
            await bind_rank(c, index)
        await c.pass_seconds(20)
        assert c.workload.rounds(NAME) == []
        assert c.workload.ranks(NAME) == {RankState.WAITING: 3}
        await bind_rank(c, 1)
        await c.pass_seconds(QUICK)
        (formed,) = c.workload.rounds(NAME)
        assert (formed.size, formed.from_step) == (4, 0)
        assert timedelta(seconds=20) <= formed.formed_at - BEGIN < timedelta(seconds=20 + QUICK)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}


@virtual_time
async def test_steps_and_checkpoints_follow_time() -> None:
    async with training_cluster() as c:
        await bind_group(c)
        formed_at = c.workload.rounds(NAME)[0].formed_at
        await c.pass_seconds(35)
        assert c.workload.step_of(NAME) == 35
        assert c.workload.checkpoint_of(NAME) == 30
        assert [record.step for record in c.workload.trace.of(NAME, EventKind.CHECKPOINT)] == [10, 20, 30]
        assert c.workload.step_at(NAME, formed_at + timedelta(seconds=12.5)) == 12
        assert c.workload.step_at(NAME, formed_at - timedelta(seconds=1)) == 0


@virtual_time
async def test_when_a_rank_dies_the_others_run_on_but_hang_and_die_one_by_one_of_the_nccl_timeout() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c, restart_policy="Never")
        await c.pass_seconds(25)
        lost_at = c.clock.now()
        c.kubelets.exit_container(pods[1], 1, message="CUDA error")
        await c.pass_seconds(50)
        assert c.workload.step_of(NAME) == 25
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3}
        assert [c.phase(name) for name in pods] == ["Running", "Failed", "Running", "Running"]
        await c.pass_seconds(20)
        deaths = [c.container(name)["state"]["terminated"] for name in (pods[0], *pods[2:])]
        assert {death["exitCode"] for death in deaths} == {134}
        assert {death["message"] for death in deaths} == {"Watchdog caught collective operation timeout"}
        exits = [record.at - lost_at for record in c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)][1:]
        assert all(timedelta(seconds=55) <= after <= timedelta(seconds=65) for after in exits)
        assert len(set(exits)) == 3
        (broken,) = c.workload.rounds(NAME)
        assert (broken.outcome, broken.ended_at) == (TrainingOutcome.BROKEN, lost_at)


@virtual_time
async def test_only_the_first_loss_of_a_round_counts_as_one() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c, restart_policy="Never")
        for name in pods[:3]:
            c.kubelets.exit_container(name, 1)
        await c.pass_seconds(100)
        assert kinds(c, EventKind.RANK_LOST) == [EventKind.RANK_LOST]
        assert len(kinds(c, EventKind.RANK_HUNG)) == 3
        assert len(kinds(c, EventKind.PROCESS_EXITED)) == 4


@virtual_time
async def test_hung_ranks_ignore_sigterm_and_sit_out_their_grace() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(1)
        await api_verbs.delete(c.api, PODS, pods[1], namespace="default")
        await c.pass_seconds(29)
        assert not c.gone(pods[1])
        await c.pass_seconds(1.1)
        assert c.gone(pods[1])
        assert c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)[-1].exit_code == 137


@virtual_time
async def test_a_healthy_rank_heeds_sigterm_and_steps_stop_at_once() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        await c.pass_seconds(20)
        await api_verbs.delete(c.api, PODS, pods[2], namespace="default")
        await c.pass_seconds(0.3)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 3, RankState.LEAVING: 1}
        await c.pass_seconds(0.5)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3}
        assert c.workload.step_of(NAME) == 20
        assert c.workload.trace.of(NAME, EventKind.RANK_LOST)[0].exit_code == 143


@virtual_time
async def test_ranks_that_are_told_together_all_leave_in_good_order() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        for name in pods:
            await api_verbs.delete(c.api, PODS, name, namespace="default")
        await c.pass_seconds(1)
        assert {record.exit_code for record in c.workload.trace.of(NAME, EventKind.PROCESS_EXITED)} == {143}
        assert kinds(c, EventKind.RANK_HUNG) == []


@virtual_time
async def test_one_restarted_rank_waits_in_vain_and_gives_up() -> None:
    """The defect of plain in-place restarts: the other ranks hang for longer than the restarted one waits."""
    async with training_cluster(replace(SETTINGS, nccl_timeout_seconds=600.0)) as c:
        pods = await bind_group(c)
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(90)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3, RankState.WAITING: 1}
        await c.pass_seconds(11)
        last = c.container(pods[0])["state"]["terminated"]
        assert (last["exitCode"], last["message"]) == (1, "rendezvous timed out: not all ranks joined")
        assert len(c.workload.rounds(NAME)) == 1


@virtual_time
async def test_in_place_restarts_of_all_ranks_meet_again() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        await c.pass_seconds(25)
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(70)
        first, second = c.workload.rounds(NAME)
        assert second.job_uid == first.job_uid
        assert second.from_step == 20
        assert c.workload.passed(NAME, 20, since=second.formed_at)
        assert not c.workload.passed(NAME, 40, since=second.formed_at)
        assert [c.container(name)["restartCount"] for name in pods] == [1, 1, 1, 1]


@virtual_time
async def test_a_recreated_group_resumes_from_the_last_checkpoint() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        await c.pass_seconds(37)
        deleted_at = c.clock.now()
        for name in pods:
            await api_verbs.delete(c.api, PODS, name, namespace="default")
        await c.pass_seconds(10)
        await bind_group(c, suffix="b", job="llm-node-0-again")
        before, after = c.workload.rounds(NAME)
        assert (before.step_at(deleted_at), after.from_step) == (37, 30)
        assert after.job_uid != before.job_uid
        await c.pass_seconds(11)
        assert c.workload.step_of(NAME) == 41
        assert c.workload.step_at(NAME, deleted_at) == 37
        assert c.workload.passed(NAME, 40, since=deleted_at)
        assert c.workload.trace.overlaps(NAME) == []


@virtual_time
async def test_pods_of_another_job_uid_do_not_join() -> None:
    async with training_cluster() as c:
        for index in range(3):
            await bind_rank(c, index)
        await bind_rank(c, 3, job="llm-node-0-again")
        await c.pass_seconds(50)
        assert c.workload.rounds(NAME) == []
        (overlap,) = c.workload.trace.overlaps(NAME)
        assert overlap.job_uids == ("uid-of-llm-node-0", "uid-of-llm-node-0-again")
        assert overlap.until is None


@virtual_time
async def test_ranks_of_two_jobs_at_once_are_an_overlap_until_the_last_old_one_ends() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c)
        c.kubelets.exit_container(pods[0], 1)
        for name in pods:
            await api_verbs.delete(c.api, PODS, name, namespace="default")
        await c.pass_seconds(10)
        began = c.clock.now()
        await bind_group(c, suffix="b", job="llm-node-0-again")
        await c.pass_seconds(60)
        (overlap,) = c.workload.trace.overlaps(NAME)
        assert overlap.job_uids == ("uid-of-llm-node-0", "uid-of-llm-node-0-again")
        assert timedelta() <= overlap.since - began < timedelta(seconds=QUICK)
        assert overlap.until is not None
        assert timedelta(seconds=19) < overlap.until - began < timedelta(seconds=21)


@virtual_time
async def test_a_replaced_pod_waits_until_the_hung_ranks_are_gone() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c, restart_policy="OnFailure")
        await api_verbs.delete(c.api, PODS, pods[3], namespace="default", grace_seconds=0)
        await bind_rank(c, 3, suffix="b")
        await c.pass_seconds(30)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3, RankState.WAITING: 1}
        await c.pass_seconds(40)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}


@virtual_time
async def test_a_joined_probe_finds_no_one_ready_until_all_ranks_have_met() -> None:
    async with training_cluster() as c:
        pods = [await bind_rank(c, index, probe_seconds=1) for index in range(3)]
        await c.pass_seconds(20)
        assert ready(c, pods) == [False] * 3
        pods.append(await bind_rank(c, 3, probe_seconds=1))
        await c.pass_seconds(1 + QUICK)
        assert ready(c, pods) == [True] * 4


@virtual_time
async def test_a_joined_probe_finds_hung_ranks_ready_and_a_replaced_one_not_before_it_has_met_them() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c, restart_policy="OnFailure", probe_seconds=1)
        await api_verbs.delete(c.api, PODS, pods[3], namespace="default", grace_seconds=0)
        pods[3] = await bind_rank(c, 3, suffix="b", probe_seconds=1)
        await c.pass_seconds(50)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3, RankState.WAITING: 1}
        assert ready(c, pods) == [True, True, True, False]
        await c.pass_seconds(20)
        assert c.workload.ranks(NAME) == {RankState.TRAINING: 4}
        assert ready(c, pods) == [True] * 4


@virtual_time
async def test_a_joined_probe_finds_a_rank_that_restarted_in_place_unready_until_all_have_met_again() -> None:
    async with training_cluster() as c:
        pods = await bind_group(c, probe_seconds=1)
        await c.pass_seconds(5)
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(50)
        assert ready(c, pods) == [False, True, True, True]
        await c.pass_seconds(20)
        assert len(c.workload.rounds(NAME)) == 2
        assert ready(c, pods) == [True] * 4


@virtual_time
async def test_processes_that_are_no_ranks_answer_their_probes_from_the_start() -> None:
    async with training_cluster() as c:
        initializer = {"jobset.sigs.k8s.io/replicatedjob-name": "dataset-initializer"}
        await c.bind("init", job="llm-dataset-initializer-0", index=0, labels=initializer, probe_seconds=1)
        await c.bind("no-job", probe_seconds=1)
        await c.pass_seconds(1)
        assert ready(c, ["init", "no-job"]) == [True] * 2


@virtual_time
async def test_after_the_last_step_every_rank_exits_with_0() -> None:
    async with training_cluster(replace(SETTINGS, total_steps=25)) as c:
        pods = await bind_group(c)
        await c.pass_seconds(25)
        assert [c.phase(name) for name in pods] == ["Succeeded"] * 4
        assert kinds(c, EventKind.FINISHED, EventKind.RANK_LOST) == [EventKind.FINISHED]
        (finished,) = c.workload.rounds(NAME)
        assert finished.outcome is TrainingOutcome.FINISHED
        assert c.workload.step_of(NAME) == 25
        assert c.workload.checkpoint_of(NAME) == 25


@pytest.mark.parametrize(
    ("how", "states"),
    [(NodeDeath.POWER_LOSS, {RankState.HUNG: 3}), (NodeDeath.PARTITION, {RankState.TRAINING: 4})],
)
def test_a_lost_node_stops_the_training_only_if_its_processes_die(how: NodeDeath, states: dict[RankState, int]) -> None:
    @virtual_time
    async def scenario() -> None:
        async with training_cluster() as c:
            await bind_group(c)
            c.kubelets.kill_node("node-2", how)
            await c.pass_seconds(20)
            assert c.workload.ranks(NAME) == states

    scenario()


@virtual_time
async def test_a_job_tells_the_size_that_its_pods_do_not() -> None:
    async with training_cluster() as c:
        c.api.put(JOBS, {"metadata": {"name": "llm-node-0", "namespace": "default"}, "spec": {"completions": 4}})
        c.api.next("get", JOBS, TryLaterError("overloaded", status=429), times=2)
        await bind_group(c, 3, size="2:4")
        await c.pass_seconds(5)
        assert c.workload.rounds(NAME) == []
        c.api.change(JOBS, "llm-node-0", spec={"completions": 3})
        await c.pass_seconds(2)
        assert [formed.size for formed in c.workload.rounds(NAME)] == [3]


@virtual_time
async def test_the_trace_goes_to_a_sink_as_json_lines() -> None:
    lines: list[bytes] = []
    async with cluster(
        lambda api, clock, entropy: TrainingWorld(api, clock, entropy, SETTINGS, lines.append), AT_ONCE, 4
    ) as c:
        await bind_group(c)
        records = [msgspec.json.decode(line) for line in lines]
        assert [record["kind"] for record in records] == ["process_started"] * 4 + ["round_formed"]
        assert records[0] | {"at": "", "pod_uid": ""} == {
            "at": "",
            "kind": "process_started",
            "training": "default/llm",
            "job_uid": "uid-of-llm-node-0",
            "step": 0,
            "member": "node-0",
            "pod": "llm-node-0-0-a",
            "pod_uid": "",
            "restart_count": 0,
            "index": 0,
            "node": "node-0",
            "exit_code": None,
        }


@virtual_time
async def test_the_same_seed_gives_the_same_trace() -> None:
    async def trace() -> bytes:
        async with training_cluster() as c:
            pods = await bind_group(c)
            c.kubelets.exit_container(pods[0], 1)
            await c.pass_seconds(200)
            return msgspec.json.encode(
                [(record.kind, record.pod, record.exit_code) for record in c.workload.trace.records]
            )

    assert await trace() == await trace()


REPORTING = replace(SETTINGS, total_steps=200, reports_every_seconds_of={NAME: 10.0})


def told(c: Training) -> dict[str, object]:
    return dict(c.api.server.get(TRAIN_JOBS, "llm", namespace="default").get("status", {}).get("trainerStatus", {}))


async def reporting(c: Training) -> list[str]:
    body = {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob", "metadata": {"name": "llm"}, "spec": {}}
    c.api.server.create(TRAIN_JOBS, body, namespace="default")
    return await bind_group(c)


@virtual_time
async def test_a_training_reports_its_progress_again_and_again() -> None:
    async with training_cluster(REPORTING) as c:
        await reporting(c)
        formed_at = c.workload.rounds(NAME)[0].formed_at
        await c.pass_seconds(25)
        dated = (formed_at + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert told(c).items() >= {"lastUpdatedTime": dated, "progressPercentage": 10}.items()
        assert kinds(c, EventKind.REPORTED) == [EventKind.REPORTED] * 2


@virtual_time
async def test_a_report_says_when_the_last_checkpoint_was_saved_and_of_which_step() -> None:
    async with training_cluster(REPORTING) as c:
        await reporting(c)
        formed_at = c.workload.rounds(NAME)[0].formed_at
        await c.pass_seconds(3)
        assert told(c)["metrics"] == []
        await c.pass_seconds(20)
        saved_at = formed_at + timedelta(seconds=20)
        assert told(c)["metrics"] == [
            {"name": "checkpoint_timestamp_seconds", "value": f"{saved_at.timestamp():.3f}"},
            {"name": "checkpoint_step", "value": "20"},
        ]


@virtual_time
async def test_one_that_lost_a_rank_reports_no_more_and_what_it_told_stays() -> None:
    async with training_cluster(REPORTING) as c:
        pods = await reporting(c)
        await c.pass_seconds(12)
        before = told(c)
        c.kubelets.exit_container(pods[0], 1)
        await c.pass_seconds(40)
        assert told(c) == before != {}


@virtual_time
async def test_a_report_that_fails_is_lost_and_the_training_goes_on() -> None:
    async with training_cluster(REPORTING) as c:
        await bind_group(c)  # without a TrainJob
        await c.pass_seconds(35)
        assert c.workload.step_of(NAME) == 35
        assert kinds(c, EventKind.REPORTED) == [EventKind.REPORTED] * 3


@virtual_time
async def test_any_other_training_reports_nothing() -> None:
    async with training_cluster() as c:
        await reporting(c)
        await c.pass_seconds(35)
        assert told(c) == {}
