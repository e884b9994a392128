"""What a kubelet writes about a pod that starts, becomes ready and ends by itself."""

import pytest

from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import QUICK, Cluster, Obedient, obedient_cluster


@virtual_time
async def test_a_bound_pod_runs_after_its_start_delay() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(5.0, 5.0))) as c:
        await c.bind("p")
        await c.pass_seconds(4.9)
        assert c.phase("p") == "Pending"
        await c.pass_seconds(0.2)
        assert c.phase("p") == "Running"
        assert len(c.api.writes_of("patch", "pods")) == 1


@virtual_time
async def test_start_delays_are_drawn_from_their_range() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(1.0, 9.0))) as c:
        for index in range(20):
            await c.bind(f"p-{index}")
        await c.pass_seconds(0.9)
        assert running(c, 20) == 0
        await c.pass_seconds(4.1)
        assert 5 < running(c, 20) < 15
        await c.pass_seconds(4.1)
        assert running(c, 20) == 20


def running(c: Cluster[Obedient], pods: int) -> int:
    return sum(c.phase(f"p-{index}") == "Running" for index in range(pods))


@virtual_time
async def test_the_status_of_a_running_pod_is_complete() -> None:
    async with obedient_cluster() as c:
        uid = (await c.bind("p"))["metadata"]["uid"]
        await c.pass_seconds(QUICK)
        status, container = c.status("p"), c.container("p")
        assert status["startTime"] == "2026-11-02T08:00:00Z"
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["hostIPs"] == [{"ip": status["hostIP"]}]
        assert (container["name"], container["image"]) == ("node", "train:1")
        assert container["imageID"].startswith("train:1@sha256:")
        assert container["containerID"] == f"containerd://{uid}-node-0"
        assert container["state"] == {"running": {"startedAt": "2026-11-02T08:00:00Z"}}
        assert (container["restartCount"], container["started"], container["ready"]) == (0, True, True)


@virtual_time
async def test_conditions_of_others_stay_as_they_are() -> None:
    async with obedient_cluster() as c:
        await c.bind("p")
        before = c.condition("p", "PodScheduled")
        await c.pass_seconds(QUICK)
        assert c.condition("p", "PodScheduled") == before
        assert {condition["type"] for condition in c.status("p")["conditions"]} >= {"Initialized", "Ready"}


@virtual_time
async def test_a_pod_becomes_ready_later_than_it_runs() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), ready_seconds=7.0)) as c:
        await c.bind("p")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"
        unready = c.condition("p", "Ready")
        assert (unready["status"], unready["reason"]) == ("False", "ContainersNotReady")
        await c.pass_seconds(7.0)
        ready = c.condition("p", "Ready")
        assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-11-02T08:00:07Z")
        assert "reason" not in ready
        assert c.condition("p", "ContainersReady")["status"] == "True"
        assert len(c.api.writes_of("patch", "pods")) == 2


@virtual_time
async def test_a_container_with_a_probe_is_ready_at_the_first_run_of_the_probe_that_its_process_answers() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", probe_seconds=5)
        await c.pass_seconds(17)
        assert (c.phase("p"), c.container("p")["ready"]) == ("Running", False)
        assert c.condition("p", "Ready")["status"] == "False"
        c.workload.running[0].answer_probe()
        await c.pass_seconds(2.5)
        assert not c.container("p")["ready"]
        await c.pass_seconds(1)
        assert c.container("p")["ready"]
        ready = c.condition("p", "Ready")
        assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-11-02T08:00:20Z")
        assert len(c.api.writes_of("patch", "pods")) == 2


@virtual_time
async def test_a_process_that_answers_early_still_waits_to_become_ready() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), ready_seconds=7.0)) as c:
        await c.bind("p", probe_seconds=1)
        await c.pass_seconds(2.5)
        c.workload.running[0].answer_probe()
        await c.pass_seconds(4.4)
        assert not c.container("p")["ready"]
        await c.pass_seconds(0.2)
        assert c.container("p")["ready"]


@virtual_time
async def test_a_pod_is_ready_when_all_its_containers_answer() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", containers=("node", "logs"), probe_seconds=1)
        await c.pass_seconds(3)
        c.workload.running[0].answer_probe()
        await c.pass_seconds(2)
        unready = c.condition("p", "Ready")
        assert (unready["status"], unready["message"]) == ("False", "containers with unready status: [logs]")
        c.workload.running[1].answer_probe()
        await c.pass_seconds(2)
        assert c.condition("p", "Ready")["status"] == "True"


@virtual_time
async def test_after_a_restart_in_place_the_new_process_has_to_answer() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", restart_policy="OnFailure", probe_seconds=5)
        await c.pass_seconds(1)
        first = c.workload.running[0]
        first.answer_probe()  # The probe would find it at its next run, in 4 s.
        c.kubelets.exit_container("p", 1)
        first.answer_probe()
        await c.pass_seconds(60)
        assert (c.container("p")["restartCount"], c.container("p")["ready"]) == (1, False)
        c.workload.running[0].answer_probe()
        await c.pass_seconds(6)
        assert c.container("p")["ready"]


@virtual_time
async def test_init_containers_run_first_one_after_another() -> None:
    settings = KubeletSettings(start_seconds=(0.0, 0.0), init_container_seconds=3.0)
    async with obedient_cluster(settings) as c:
        await c.bind("p", init_containers=("fetch", "check"))
        await c.pass_seconds(4.0)
        fetch, check = c.status("p")["initContainerStatuses"]
        assert fetch["state"]["terminated"]["exitCode"] == 0
        assert "running" in check["state"]
        assert c.phase("p") == "Pending"
        assert c.condition("p", "Initialized")["status"] == "False"
        await c.pass_seconds(2.1)
        assert c.phase("p") == "Running"
        assert c.condition("p", "Initialized")["status"] == "True"


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
def test_under_never_an_exit_ends_the_pod(code: int, phase: str, reason: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster() as c:
            await c.bind("p", restart_policy="Never")
            await c.pass_seconds(60)
            c.kubelets.exit_container("p", code)
            await c.pass_seconds(QUICK)
            ended = c.container("p")["state"]["terminated"]
            assert (ended["exitCode"], ended["reason"]) == (code, reason)
            assert ended["startedAt"] == "2026-11-02T08:00:00Z"
            assert ended["finishedAt"] == "2026-11-02T08:01:00Z"
            assert c.phase("p") == phase
            assert c.condition("p", "Ready")["reason"] == f"Pod{reason if code == 0 else 'Failed'}"
            assert c.condition("p", "Ready")["lastTransitionTime"] == "2026-11-02T08:01:00Z"
            await c.pass_seconds(3600)
            assert len(c.api.writes_of("patch", "pods")) == 2

    scenario()


@virtual_time
async def test_a_fault_names_code_reason_and_message() -> None:
    async with obedient_cluster() as c:
        await c.bind("p")
        await c.pass_seconds(QUICK)
        c.kubelets.exit_container("p", 137, "OOMKilled", "out of memory")
        await c.pass_seconds(QUICK)
        ended = c.container("p")["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (137, "OOMKilled", "out of memory")


@virtual_time
async def test_a_pod_ends_when_all_its_containers_have_and_fails_if_one_did() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", containers=("node", "sidecar"))
        await c.pass_seconds(QUICK)
        c.kubelets.exit_container("p", 1, container="sidecar")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Running"
        assert c.condition("p", "Ready")["message"] == "containers with unready status: [sidecar]"
        c.kubelets.exit_container("p", 0, container="node")
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Failed"


@virtual_time
async def test_under_on_failure_a_container_restarts_in_place() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", restart_policy="OnFailure")
        await c.pass_seconds(60)
        c.kubelets.exit_container("p", 9, message="boom")
        await c.pass_seconds(QUICK)
        assert "terminated" in c.container("p")["state"]
        assert c.phase("p") == "Running"
        await c.pass_seconds(0.3)
        container = c.container("p")
        assert container["restartCount"] == 1
        assert "running" in container["state"]
        assert container["lastState"]["terminated"]["message"] == "boom"
        assert c.condition("p", "Ready")["status"] == "True"
        c.kubelets.exit_container("p", 0)
        await c.pass_seconds(QUICK)
        assert c.phase("p") == "Succeeded"


@virtual_time
async def test_under_always_success_restarts_too() -> None:
    async with obedient_cluster() as c:
        await c.bind("p", restart_policy="Always")
        await c.pass_seconds(QUICK)
        c.kubelets.exit_container("p", 0)
        await c.pass_seconds(0.5)
        assert c.container("p")["restartCount"] == 1
        assert c.phase("p") == "Running"


@virtual_time
async def test_crash_loops_back_off_longer_each_time() -> None:
    settings = KubeletSettings(start_seconds=(0.0, 0.0), back_off_seconds=10.0, longest_back_off_seconds=30.0)
    async with obedient_cluster(settings) as c:
        await c.bind("p", restart_policy="OnFailure")
        await c.pass_seconds(QUICK)
        for count, wait_seconds in enumerate((0, 10, 20, 30, 30), start=1):
            c.kubelets.exit_container("p", 1)
            await c.pass_seconds(QUICK)
            assert c.container("p")["state"]["terminated"]["exitCode"] == 1
            if wait_seconds:
                await c.pass_seconds(wait_seconds)
                waiting = c.container("p")["state"]["waiting"]
                assert waiting["reason"] == "CrashLoopBackOff"
                assert waiting["message"].startswith(f"back-off {wait_seconds}s restarting")
                assert c.container("p")["lastState"]["terminated"]["exitCode"] == 1
            assert c.container("p")["restartCount"] == count - 1
            await c.pass_seconds(0.3)
            assert c.container("p")["restartCount"] == count


@virtual_time
async def test_a_back_off_is_told_of_when_the_kubelet_looks_at_the_pod_again() -> None:
    """Each sync reports what the sync before it found (kubelet.go `SyncPod`, reason_cache.go); one comes every 60 s."""
    settings = KubeletSettings(start_seconds=(0.0, 0.0), back_off_seconds=100.0)
    async with obedient_cluster(settings) as c:
        await c.bind("p", restart_policy="OnFailure", containers=("node", "shipper"))
        await c.bind("q", restart_policy="OnFailure")
        for _ in range(2):
            await c.pass_seconds(1)
            for name in ("p", "q"):
                c.kubelets.exit_container(name, 1)
        await c.pass_seconds(QUICK)
        assert [list(c.container(name)["state"]) for name in ("p", "q")] == [["terminated"], ["terminated"]]
        c.kubelets.exit_container("p", 1, container="shipper")
        await c.pass_seconds(QUICK)
        assert [list(c.container(name)["state"]) for name in ("p", "q")] == [["waiting"], ["terminated"]]
        await c.pass_seconds(60)
        assert [list(c.container(name)["state"]) for name in ("p", "q")] == [["waiting"], ["waiting"]]


@virtual_time
async def test_a_long_run_makes_a_kubelet_forget_the_back_off() -> None:
    settings = KubeletSettings(start_seconds=(0.0, 0.0), back_off_seconds=10.0, longest_back_off_seconds=30.0)
    async with obedient_cluster(settings) as c:
        await c.bind("p", restart_policy="OnFailure")
        await c.pass_seconds(QUICK)
        c.kubelets.exit_container("p", 1)
        await c.pass_seconds(70)
        c.kubelets.exit_container("p", 1)
        await c.pass_seconds(0.5)
        assert c.container("p")["restartCount"] == 2


@virtual_time
async def test_the_start_of_chosen_pods_can_be_delayed() -> None:
    async with obedient_cluster() as c:
        c.kubelets.delay_start("job-node-0-3-", 30.0)
        for name in ("job-node-0-2-abcde", "job-node-0-3-abcde"):
            await c.bind(name)
        await c.pass_seconds(29)
        assert (c.phase("job-node-0-2-abcde"), c.phase("job-node-0-3-abcde")) == ("Running", "Pending")
        await c.pass_seconds(1.1)
        assert c.phase("job-node-0-3-abcde") == "Running"
        c.kubelets.delay_start("job-node-0-3-", 0.0)
        await c.bind("job-node-0-3-fghij")
        await c.pass_seconds(QUICK)
        assert c.phase("job-node-0-3-fghij") == "Running"


@virtual_time
async def test_chosen_pods_can_be_ready_later_than_they_run() -> None:
    async with obedient_cluster() as c:
        c.kubelets.delay_ready("job-node-0-3-", 30.0)
        for name in ("job-node-0-2-abcde", "job-node-0-3-abcde"):
            await c.bind(name)
        await c.pass_seconds(29)
        assert c.phase("job-node-0-3-abcde") == "Running"
        assert [c.container(f"job-node-0-{rank}-abcde")["ready"] for rank in (2, 3)] == [True, False]
        await c.pass_seconds(1.1)
        assert c.container("job-node-0-3-abcde")["ready"]


@virtual_time
async def test_the_restart_of_containers_in_chosen_pods_can_be_delayed() -> None:
    async with obedient_cluster() as c:
        for name in ("job-node-0-2-abcde", "job-node-0-3-abcde"):
            await c.bind(name, restart_policy="OnFailure")
        await c.pass_seconds(QUICK)
        c.kubelets.delay_restart("job-node-0-3-", 30.0)
        for name in ("job-node-0-2-abcde", "job-node-0-3-abcde"):
            c.kubelets.exit_container(name, 1)
        await c.pass_seconds(29)
        assert c.container("job-node-0-2-abcde")["restartCount"] == 1
        late = c.container("job-node-0-3-abcde")
        assert (list(late["state"]), late["restartCount"]) == (["terminated"], 0)
        await c.pass_seconds(1.5)
        assert c.container("job-node-0-3-abcde")["restartCount"] == 1


@virtual_time
async def test_pods_that_are_done_or_elsewhere_are_left_alone() -> None:
    async with obedient_cluster() as c:
        finished = await c.bind("p", phase="Succeeded")
        version = finished["metadata"]["resourceVersion"]
        await c.bind("q", node="somebody-elses-node")
        await c.pass_seconds(600)
        assert c.pod("p")["metadata"]["resourceVersion"] == version
        assert c.api.writes_of("patch", "pods") == []
        with pytest.raises(LookupError):
            c.kubelets.exit_container("q", 1)


@virtual_time
async def test_a_crash_loop_follows_a_rank_through_its_restarts_and_its_pods_until_it_is_ended() -> None:
    async with obedient_cluster() as c:
        c.kubelets.crash_loop("job-node-0-3-", 2.0, 9)
        for name in ("job-node-0-2-abcde", "job-node-0-3-abcde"):
            await c.bind(name, restart_policy="OnFailure")
        await c.pass_seconds(1.9)
        assert c.container("job-node-0-3-abcde")["restartCount"] == 0
        await c.pass_seconds(0.5)
        assert c.container("job-node-0-3-abcde")["restartCount"] == 1
        assert c.container("job-node-0-3-abcde")["lastState"]["terminated"]["exitCode"] == 9
        await c.bind("job-node-0-3-fghij", restart_policy="Never")
        await c.pass_seconds(2 + QUICK)
        assert c.container("job-node-0-3-fghij")["state"]["terminated"]["exitCode"] == 9
        await c.bind("job-node-0-3-klmno", restart_policy="Never")
        await c.pass_seconds(1)
        c.kubelets.end_crash_loop("job-node-0-3-")
        await c.pass_seconds(60)
        assert c.phase("job-node-0-3-klmno") == "Running"
        assert c.container("job-node-0-2-abcde")["restartCount"] == 0


@virtual_time
async def test_everything_in_chosen_pods_exits_in_one_instant() -> None:
    async with obedient_cluster() as c:
        for name in ("p", "q", "done", "spared"):
            await c.bind(name, containers=("node", "sidecar"))
        await c.pass_seconds(5)
        assert c.kubelets.exit_all(["done"], 0) == ["done"]
        await c.pass_seconds(5)
        assert c.kubelets.exit_all(["p", "q", "done", "unheard-of"], 137) == ["p", "q"]
        await c.pass_seconds(QUICK)
        ends = [
            container["state"]["terminated"] for name in ("p", "q") for container in c.status(name)["containerStatuses"]
        ]
        assert [(end["exitCode"], end["finishedAt"]) for end in ends] == [(137, "2026-11-02T08:00:10Z")] * 4
        assert [c.phase(name) for name in ("done", "spared")] == ["Succeeded", "Running"]
