"""How pods end when they are deleted: SIGTERM, grace, SIGKILL, last status, deletion of the object by its kubelet."""

import pytest

from recovery import api_verbs
from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import QUICK, obedient_cluster


@virtual_time
async def test_a_well_behaved_process_exits_with_143_and_its_pod_is_deleted() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", finalizers=("batch.kubernetes.io/job-tracking",))
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(1.9)
        assert "running" in c.container("p")["state"]
        await c.pass_seconds(0.2)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 143
        assert c.phase("p") == "Failed"
        assert c.pod("p")["metadata"]["deletionGracePeriodSeconds"] == 0
        c.api.release_finalizers("p")
        await c.pass_seconds(QUICK)
        assert c.gone("p")
        assert len(c.api.writes_of("patch", "pods")) == 2
        assert len(c.api.writes_of("delete", "pods")) == 2


@virtual_time
async def test_a_deaf_process_sits_out_its_grace_and_is_killed() -> None:
    async with obedient_cluster(deaf=True) as c:
        await c.bind("p", grace_seconds=30, finalizers=("keep",))
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(29.9)
        assert "running" in c.container("p")["state"]
        await c.pass_seconds(0.2)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 137


@pytest.mark.parametrize("grace_seconds", [15, 5, 0])
def test_a_second_delete_is_too_late_to_shorten_the_grace(grace_seconds: int) -> None:
    """The server accepts it, and at zero removes the object at once. The kubelet keeps to the first grace."""

    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster(deaf=True) as c:
            await c.bind("p", grace_seconds=30)
            await c.pass_seconds(10)
            await api_verbs.delete(c.api, PODS, "p", namespace="default")
            await c.pass_seconds(10)
            await api_verbs.delete(c.api, PODS, "p", namespace="default", grace_seconds=grace_seconds)
            assert c.gone("p") == (grace_seconds == 0)
            await c.pass_seconds(19.9)
            assert len(c.workload.running) == 1
            await c.pass_seconds(0.2)
            assert len(c.workload.running) == 0
            assert c.gone("p")

    scenario()


@virtual_time
async def test_a_grace_that_wraps_to_none_has_its_process_killed_unasked() -> None:
    """2**62 s in nanoseconds overflow an int64 to zero, so containerd sends no SIGTERM (container_stop.go)."""
    async with obedient_cluster() as c:
        await c.bind("p", grace_seconds=2**62, finalizers=("keep",))
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(QUICK)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 137


@virtual_time
async def test_a_pod_whose_initialization_is_ended_never_was_ready_to_fail() -> None:
    """The kubelet had recorded the pod as Pending, and adds nothing to that (`TerminatePod` in status_manager.go)."""
    reasons = {}
    for restart_policy in ("Never", "OnFailure"):
        async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), init_container_seconds=60.0)) as c:
            await c.bind("p", init_containers=("fetch",), restart_policy=restart_policy, finalizers=("keep",))
            await c.pass_seconds(5)
            await api_verbs.delete(c.api, PODS, "p", namespace="default")
            await c.pass_seconds(10)
            reasons[restart_policy] = (c.phase("p"), c.condition("p", "Ready")["reason"])
    assert reasons == {"Never": ("Failed", "PodFailed"), "OnFailure": ("Failed", "ContainersNotReady")}


@virtual_time
async def test_a_grace_is_never_lengthened() -> None:
    async with obedient_cluster(deaf=True) as c:
        await c.bind("p", grace_seconds=3)
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        for second in range(4):
            await c.pass_seconds(0.5)
            c.api.change(PODS, "p", metadata={"annotations": {"touched": str(second)}})
        await c.pass_seconds(1.2)
        assert c.gone("p")


@virtual_time
async def test_a_process_outlives_its_force_deleted_pod_for_two_seconds_and_nothing_more_is_written() -> None:
    """A kubelet turns a zero grace into one second, and gives every container two (kuberuntime_manager.go)."""
    async with obedient_cluster(deaf=True) as c:
        await c.bind("p")
        await c.pass_seconds(10)
        await api_verbs.delete(c.api, PODS, "p", namespace="default", grace_seconds=0)
        assert c.gone("p")
        await c.pass_seconds(1.9)
        assert len(c.workload.running) == 1
        await c.pass_seconds(0.2)
        assert len(c.workload.running) == 0
        assert len(c.api.writes_of("patch", "pods")) == 1


@virtual_time
async def test_a_kubelet_that_was_cut_off_gives_a_force_deleted_pod_its_own_grace() -> None:
    """It sees that the object is gone, but no other grace (pod_workers.go `calculateEffectiveGracePeriod`)."""
    async with obedient_cluster(deaf=True) as c:
        await c.bind("p", grace_seconds=30)
        await c.pass_seconds(10)
        c.kubelets.kill_node("node-0", NodeDeath.PARTITION)
        await api_verbs.delete(c.api, PODS, "p", namespace="default", grace_seconds=0)
        await c.pass_seconds(100)
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(29.9)
        assert len(c.workload.running) == 1
        await c.pass_seconds(0.2)
        assert len(c.workload.running) == 0


@virtual_time
async def test_a_pod_deleted_before_it_started_never_starts() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(20.0, 20.0))) as c:
        await c.bind("p", finalizers=("keep",))
        await c.pass_seconds(5)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(QUICK)
        ended = c.container("p")["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert c.phase("p") == "Failed"
        c.api.release_finalizers("p")
        await c.pass_seconds(60)
        assert c.workload.started == 0


@virtual_time
async def test_a_pod_deleted_while_it_initializes_leaves_no_container_running() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), init_container_seconds=60.0)) as c:
        await c.bind("p", init_containers=("fetch", "check"), finalizers=("keep",))
        await c.pass_seconds(5)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(600)
        status = c.status("p")
        containers: list[Body] = [*status["initContainerStatuses"], *status["containerStatuses"]]
        assert containers[0]["state"]["terminated"]["exitCode"] == 143
        assert [each["state"]["waiting"]["reason"] for each in containers[1:]] == ["PodInitializing", "PodInitializing"]
        assert status["phase"] == "Failed"


@virtual_time
async def test_a_pod_deleted_in_its_back_off_ends_as_it_ended_before() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", restart_policy="OnFailure", finalizers=("keep",))
        for code in (1, 2):
            await c.pass_seconds(1)
            c.kubelets.exit_container("p", code)
        await c.pass_seconds(1)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 2
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(60)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 2
        assert c.container("p")["lastState"]["terminated"]["exitCode"] == 1
        assert (c.phase("p"), c.container("p")["restartCount"]) == ("Failed", 1)


@virtual_time
async def test_a_deleted_container_is_not_restarted() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", restart_policy="Always", finalizers=("keep",))
        await c.pass_seconds(1)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(60)
        assert (c.phase("p"), c.container("p")["restartCount"]) == ("Failed", 0)
        assert c.workload.started == 1


@virtual_time
async def test_a_finished_pod_needs_no_write_when_it_is_deleted() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", finalizers=("keep",))
        await c.pass_seconds(1)
        c.kubelets.exit_container("p", 1)
        await c.pass_seconds(1)
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(1)
        c.api.release_finalizers("p")
        await c.pass_seconds(1)
        assert c.gone("p")
        assert len(c.api.writes_of("patch", "pods")) == 2
        assert len(c.api.writes_of("delete", "pods")) == 1


@virtual_time
async def test_a_stuck_pod_stays_until_its_node_loses_power() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", grace_seconds=5)
        await c.pass_seconds(1)
        c.kubelets.stuck_termination("p")
        await api_verbs.delete(c.api, PODS, "p", namespace="default")
        await c.pass_seconds(3600)
        assert c.pod("p")["metadata"]["deletionGracePeriodSeconds"] == 5
        assert len(c.workload.running) == 1
        c.kubelets.kill_node("node-0", NodeDeath.POWER_LOSS)
        c.kubelets.revive_node("node-0")
        await c.pass_seconds(1)
        assert c.gone("p")


@virtual_time
async def test_a_name_used_again_is_another_pod() -> None:
    async with obedient_cluster(deaf=True) as c:
        await c.bind("p")
        await c.pass_seconds(1)
        await api_verbs.delete(c.api, PODS, "p", namespace="default", grace_seconds=0)
        await c.bind("p")
        await c.pass_seconds(0.5)
        assert [process.pod.name for process in c.workload.running] == ["p", "p"]
        assert c.phase("p") == "Running"
        c.kubelets.exit_container("p", 7)
        await c.pass_seconds(5)
        assert c.container("p")["state"]["terminated"]["exitCode"] == 7
        assert c.workload.running == []
