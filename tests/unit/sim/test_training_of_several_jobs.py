"""Trainings whose ranks are in several Jobs: launcher and nodes, initializers, helpers."""

from dataclasses import replace

from recovery import api_verbs
from recovery.ports import JOB_SETS, JOBS, PODS
from recovery.sim.training.rounds import RankState
from recovery.sim.training.trace import EventKind
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.training_scene import NAME, SETTINGS, Training, bind_group, training_cluster


async def launcher_and_nodes(c: Training) -> None:
    """A JobSet of two Jobs that train together, the first with one rank, the second with three."""
    replicated = [{"name": "dataset-initializer"}, {"name": "launcher", "replicas": 1}, {"name": "node"}]
    about = {"name": "llm", "namespace": "default"}
    c.api.put(JOB_SETS, {"metadata": about, "spec": {"replicatedJobs": replicated}})
    for kind, ranks in (("launcher", 1), ("node", 3)):
        about = {"name": f"llm-{kind}-0", "namespace": "default"}
        c.api.put(JOBS, {"metadata": about, "spec": {"completions": ranks}})


async def bind_member(c: Training, kind: str, index: int = 0, *, incarnation: str = "a") -> str:
    name = f"llm-{kind}-0-{index}-{incarnation}"
    labels = {"jobset-name": "llm", "replicatedjob-name": kind, "job-index": "0", "global-replicas": "3"}
    await c.bind(
        name,
        node=f"node-{index}",
        job=f"llm-{kind}-0",
        job_uid=f"uid-{kind}-{incarnation}",
        index=index,
        labels={f"jobset.sigs.k8s.io/{key}": value for key, value in labels.items()},
        restart_policy="OnFailure",
    )
    return name


async def bind_members(c: Training, *, incarnation: str = "a") -> list[str]:
    names = [await bind_member(c, "launcher", incarnation=incarnation)]
    return names + [await bind_member(c, "node", index, incarnation=incarnation) for index in range(3)]


@virtual_time
async def test_all_jobs_of_a_jobset_but_initializers_meet_and_hang_together() -> None:
    async with training_cluster() as c:
        await launcher_and_nodes(c)
        await bind_member(c, "launcher")
        nodes = [await bind_member(c, "node", index) for index in range(2)]
        await c.pass_seconds(10)
        assert c.workload.ranks(NAME) == {RankState.WAITING: 3}
        nodes.append(await bind_member(c, "node", 2))
        await c.pass_seconds(5)
        (formed,) = c.workload.rounds(NAME)
        assert (formed.job_uids, formed.size) == (("uid-launcher-a", "uid-node-a"), 4)
        told = c.workload.trace.of(NAME, EventKind.ROUND_FORMED)
        assert [(record.at, record.job_uid) for record in told] == [(formed.formed_at, uid) for uid in formed.job_uids]
        c.kubelets.exit_container(nodes[1], 1)
        await c.pass_seconds(5)
        assert c.workload.ranks(NAME) == {RankState.HUNG: 3, RankState.WAITING: 1}
        lost = c.workload.trace.of(NAME, EventKind.RANK_LOST)[0]
        assert (lost.job_uid, lost.member, lost.index) == ("uid-node-a", "node-0", 1)
        assert c.workload.trace.overlaps(NAME) == []


@virtual_time
async def test_a_round_takes_the_newest_job_of_each_member() -> None:
    async with training_cluster(replace(SETTINGS, join_timeout_seconds=1000.0)) as c:
        await launcher_and_nodes(c)
        await bind_members(c)
        await c.pass_seconds(25)
        launchers = [await bind_member(c, "launcher", incarnation=incarnation) for incarnation in "bc"]
        c.kubelets.exit_container("llm-node-0-0-a", 1)
        for index in range(3):
            await api_verbs.delete(c.api, PODS, f"llm-node-0-{index}-a", namespace="default", grace_seconds=1)
        await api_verbs.delete(c.api, PODS, "llm-launcher-0-0-a", namespace="default", grace_seconds=1)
        await c.pass_seconds(5)
        for index in range(3):
            await bind_member(c, "node", index, incarnation="b")
        await c.pass_seconds(5)
        assert [formed.job_uids for formed in c.workload.rounds(NAME)] == [
            ("uid-launcher-a", "uid-node-a"),
            ("uid-launcher-c", "uid-node-b"),
        ]
        assert [formed.from_step for formed in c.workload.rounds(NAME)] == [0, 20]
        assert c.phase(launchers[0]) == "Running"
        assert {overlap.job_uids for overlap in c.workload.trace.overlaps(NAME)} == {
            ("uid-launcher-a", "uid-launcher-b"),
            ("uid-launcher-a", "uid-launcher-b", "uid-launcher-c"),
            ("uid-launcher-b", "uid-launcher-c"),
        }


@virtual_time
async def test_nodes_whose_launcher_is_done_make_no_more_steps_and_heed_sigterm() -> None:
    async with training_cluster() as c:
        await launcher_and_nodes(c)
        launcher, *nodes = await bind_members(c)
        await c.pass_seconds(15)
        c.kubelets.exit_container(launcher, 0)
        await c.pass_seconds(100)
        assert c.workload.step_of(NAME) <= 15
        assert [c.phase(name) for name in nodes] == ["Running"] * 3
        for name in nodes:
            await api_verbs.delete(c.api, PODS, name, namespace="default")
        await c.pass_seconds(1)
        assert all(c.gone(name) for name in nodes)


@virtual_time
async def test_after_the_last_step_the_ranks_of_all_jobs_exit_with_0() -> None:
    async with training_cluster(replace(SETTINGS, total_steps=25)) as c:
        await launcher_and_nodes(c)
        names = await bind_members(c)
        await c.pass_seconds(30)
        assert [c.phase(name) for name in names] == ["Succeeded"] * 4


@virtual_time
async def test_beside_an_initializer_one_job_has_the_size_that_its_pods_name() -> None:
    async with training_cluster() as c:
        replicated = [{"name": "dataset-initializer"}, {"name": "node", "replicas": 1}]
        about = {"name": "llm", "namespace": "default"}
        c.api.put(JOB_SETS, {"metadata": about, "spec": {"replicatedJobs": replicated}})
        await bind_group(c, jobs="2")
        await c.pass_seconds(2)
        assert [formed.job_uids for formed in c.workload.rounds(NAME)] == [("uid-of-llm-node-0",)]


@virtual_time
async def test_initializers_succeed_and_other_pods_just_run() -> None:
    async with training_cluster() as c:
        initializer = {"jobset.sigs.k8s.io/replicatedjob-name": "dataset-initializer"}
        await c.bind("init", job="llm-dataset-initializer-0", index=0, labels=initializer)
        await c.bind("no-index", job="something", env={"PET_NNODES": "1"})
        await c.bind("no-job", index=0, env={"PET_NNODES": "1"})
        await c.pass_seconds(5)
        assert [c.phase(name) for name in ("init", "no-index", "no-job")] == ["Succeeded", "Running", "Running"]
        assert c.workload.trace.records == []
        await api_verbs.delete(c.api, PODS, "no-job", namespace="default")
        await c.pass_seconds(1)
        assert c.gone("no-job")


@virtual_time
async def test_the_container_that_knows_the_size_trains_and_sidecars_do_not() -> None:
    async with training_cluster() as c:
        await c.bind("p", job="solo", index=0, env={"PET_NNODES": "1"}, containers=("node", "logs"))
        await c.pass_seconds(5)
        assert len(c.workload.trace.of("default/solo", EventKind.PROCESS_STARTED)) == 1
        assert len(c.workload.rounds("default/solo")) == 1


@virtual_time
async def test_where_no_container_knows_the_size_trainers_name_tells_which_one_trains() -> None:
    async with training_cluster() as c:
        await c.bind("p", job="solo", index=0, containers=("logs", "launcher"))
        await c.pass_seconds(5)
        c.kubelets.exit_container("p", 1, container="logs")
        assert c.workload.trace.of("default/solo", EventKind.PROCESS_EXITED) == []
        c.kubelets.exit_container("p", 1, container="launcher")
        assert len(c.workload.trace.of("default/solo", EventKind.PROCESS_EXITED)) == 1


@virtual_time
async def test_a_helper_exits_by_itself_and_leaves_the_training_alone() -> None:
    async with training_cluster() as c:
        await c.bind("p", job="solo", index=0, containers=("helper", "node"), env={"EXITS_AFTER_SECONDS": "3"})
        await c.pass_seconds(5)
        helper, node = c.status("p")["containerStatuses"]
        assert helper["state"]["terminated"]["exitCode"] == 0
        assert "running" in node["state"]
        assert c.workload.trace.of("default/solo", EventKind.PROCESS_EXITED) == []
