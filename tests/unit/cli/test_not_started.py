"""`recovery status` of jobs without an incident: they cannot start, are starting, or have a member on a silent node."""

import copy
import json
from collections import Counter
from typing import Any

import pytest

from recovery.cli.controller_lease import Leader
from recovery.cli.status_rows import job_row
from recovery.core.policy.selection import PolicySet
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.kube.unready_groups import NAMES_MAX, NODES_MAX
from recovery.ports import EVENTS, JOB_SETS, JOBS, PODS, RECOVERY_GROUPS
from tests.unit.cli.cluster import NOW, PlainCluster
from tests.unit.cli.test_explain import history
from tests.unit.cli.test_status import Watched, open_incident, status
from tests.unit.core.groups import group
from tests.unit.fake_api import Object

NO_ROOM = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."


def told(name: str = "llm", *arguments: str) -> dict[str, Any]:
    """The job as `-o json` shows it."""
    [found] = [job for job in json.loads(status("-o", "json", *arguments).stdout) if job["job"] == name]
    return dict(found)


def in_short(name: str = "llm") -> tuple[str, str, int]:
    """Phase, cause and idle GPUs."""
    found = told(name)
    return found["phase"], found["cause"], found["idleGPUs"]


def waits_for(cluster: PlainCluster, pod: str, reason: str, message: str = "") -> None:
    """The pod's container waits for that reason."""
    found = next(item for item in cluster.objects[PODS.plural] if item["metadata"]["name"] == pod)
    found["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": message}}


# --- a job that never ran in full ------------------------------------------------------------------------------------


def test_a_rank_without_a_node_is_the_cause_and_the_gpus_that_wait_for_it_idle(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy(mode="Enforce")
    cluster.has_no_node("llm-3", NO_ROOM)
    assert in_short() == ("NotStarted", "rank 3: Unschedulable", 24)
    assert told()["message"] == (
        f"has not started: pod llm-3 (rank 3, not scheduled) waits: Unschedulable: {NO_ROOM}; 3 of 4 pods run"
    )
    assert (
        "llm  NotStarted  rank 3: Unschedulable  60m    24         -          recovery explain llm" in status().stdout
    )


def test_a_rank_whose_image_cannot_be_pulled_holds_its_own_gpus_as_well(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=2)
    cluster.add_policy()
    waits_for(cluster, "llm-2", "ContainerCreating")
    waits_for(cluster, "llm-3", "ErrImagePull", "not found: train:typo")
    assert in_short() == ("NotStarted", "rank 3: ErrImagePull", 32)
    assert told()["message"] == (
        "has not started: pod llm-3 (rank 3, node gpu-3) waits: ErrImagePull: not found: train:typo; 2 of 4 pods run"
    )


def test_a_job_of_which_nothing_is_known_to_be_wrong_is_starting(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    waits_for(cluster, "llm-3", "ContainerCreating")
    assert in_short() == ("Starting", "", 32)
    assert told()["message"] == "on its way: 3 of 4 pods run, and nothing is known to keep the others"


def test_a_job_whose_pods_no_one_may_create_says_what_refuses_them(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=0)
    cluster.add_policy()
    cluster.objects[PODS.plural].clear()
    assert in_short() == ("Starting", "", 0)
    for at, message in (("08:59:00", "exceeded quota: gpus"), ("08:58:00", "an earlier one")):
        event = {"metadata": {"namespace": "team-a"}, "message": message, "lastTimestamp": f"2026-11-02T{at}Z"}
        cluster.put(EVENTS, event | {"involvedObject": {"uid": "uid-team-a-llm-j"}})
    assert in_short() == ("NotStarted", "Job llm-node-0: FailedCreate", 0)
    assert told()["message"] == (
        "has not started: Job llm-node-0 cannot create pods: exceeded quota: gpus; 0 of 4 pods run"
    )


def test_a_train_job_without_a_job_set_says_so(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.objects[JOB_SETS.plural].clear()
    assert in_short() == ("NotStarted", "NoJobSet", 0)
    assert told()["message"] == "has not started: the TrainJob has no JobSet"


def test_who_may_act_on_the_job_changes_nothing_about_it(cluster: PlainCluster) -> None:
    """Neither a pause nor the lack of a policy makes a job run. The column POLICY shows both."""
    cluster.add_job("free", ranks=4, running=3)
    cluster.add_job("held", ranks=4, running=3)["metadata"]["annotations"] = {"recovery.trainjob.dev/paused": "true"}
    assert in_short("free") == in_short("held") == ("NotStarted", "rank 3: ImagePullBackOff", 32)
    assert told("held")["paused"]


def test_a_job_that_has_not_started_needs_a_policy_and_no_protection_yet(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    assert told()["protection"]["reason"] == "NoPolicy"
    cluster.add_policy(mode="Enforce")
    assert (told()["protection"]["protected"], told()["protection"]["reason"]) == (None, "NotStarted")


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        ({"spec": {"suspend": True}}, "Suspended"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "Complete"),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "Failed"),
    ],
)
def test_a_job_that_is_not_meant_to_run_stays_what_it_is(cluster: PlainCluster, change: Object, phase: str) -> None:
    cluster.add_job("llm", ranks=4, running=0).update(change)
    cluster.add_policy()
    assert in_short() == (phase, "", 0)
    assert "pods" not in cluster.plurals("list")


def test_a_job_set_that_is_suspended_by_others_is_not_starting(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=0)
    cluster.add_policy()
    cluster.objects[JOB_SETS.plural][0]["spec"]["suspend"] = True
    assert in_short() == ("Healthy", "", 0)


def test_an_open_incident_is_told_by_its_ledger_alone(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    cluster.add_group("llm", open_incident("Scheduling"))
    assert in_short() == ("Scheduling", "Exit137", 16)


def test_a_group_that_has_trained_and_lost_a_member_has_started(cluster: PlainCluster) -> None:
    """Pods may no longer show that it trained, but the ledger has an incident of this run, which was only observed."""
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    waits_for(cluster, "llm-3", "CrashLoopBackOff")
    assert in_short() == ("NotStarted", "rank 3: CrashLoopBackOff", 32)
    cluster.add_group("llm", history() | {"cause": "Exit137"})
    assert in_short() == ("Healthy", "Exit137", 0)


def test_the_last_incident_of_a_run_before_is_not_taken_for_the_cause(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    waits_for(cluster, "llm-3", "ContainerCreating")
    cluster.add_group("llm", history() | {"cause": "Exit137", "action": "RecreateGroup", "totals": {"restarts": 1}})
    [job] = cluster.objects[JOBS.plural]
    job["metadata"]["creationTimestamp"] = "2026-11-02T08:40:00Z"
    for pod in cluster.objects[PODS.plural]:
        pod["metadata"]["creationTimestamp"] = "2026-11-02T08:40:01Z"
    found = told()
    assert (found["phase"], found["cause"], found["action"], found["restarts"]) == ("Starting", "", "", 1)


def test_a_job_that_has_run_is_never_said_to_have_not_started(cluster: PlainCluster) -> None:
    """Its Jobs and its JobSet were deleted, and were created again since its last incident."""
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    waits_for(cluster, "llm-3", "ErrImagePull")
    cluster.add_group("llm", history())
    [job] = cluster.objects[JOBS.plural]
    job["metadata"]["creationTimestamp"] = "2026-11-02T08:40:00Z"
    for pod in cluster.objects[PODS.plural]:
        pod["metadata"]["creationTimestamp"] = "2026-11-02T08:40:01Z"
    assert in_short() == ("Starting", "rank 3: ErrImagePull", 32)
    assert told()["message"].startswith("does not run whole: pod llm-3 (rank 3, node gpu-3) waits: ErrImagePull")
    cluster.objects[JOB_SETS.plural].clear()
    assert in_short() == ("Starting", "NoJobSet", 0)
    assert told()["message"] == "does not run whole: the TrainJob has no JobSet"


def test_the_row_of_an_open_incident_does_not_change_with_what_pods_tell(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", open_incident("Scheduling"))
    [body] = cluster.objects[RECOVERY_GROUPS.plural]
    ledger = decode_recovery_group(json.dumps(body).encode()).value
    world = group()
    assert world.workload is not None
    rows = [
        job_row(world.snapshot().key, world.workload, ledger, PolicySet((), None), Leader(leads=True), NOW, snapshot)
        for snapshot in (None, world.snapshot())
    ]
    assert [(row.phase, row.cause) for row in rows] == [("Scheduling", "Exit137")] * 2


# --- a node that is silent -------------------------------------------------------------------------------------------


def test_a_silent_node_is_the_cause_while_the_job_is_what_it_was(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_job("other", ranks=1)
    cluster.add_policy()
    cluster.goes_silent("gpu-2")
    assert in_short() == ("Healthy", "node gpu-2 does not answer", 0)
    assert told()["standing"] == "Unknown"
    assert told()["message"] == (
        "Unknown: node gpu-2 has not answered since 08:58:00 (NodeStatusUnknown), and its processes may "
        "still run until its Node object is deleted or has the out-of-service taint"
    )
    assert in_short("other") == ("Healthy", "", 0)


def test_several_silent_nodes_are_counted(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_policy()
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        cluster.goes_silent(node)
    assert in_short() == ("Healthy", "node gpu-1 and 2 more do not answer", 0)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ContainerCreating"])
def test_a_silent_node_goes_before_what_else_keeps_a_job_from_starting(cluster: PlainCluster, reason: str) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    waits_for(cluster, "llm-3", reason)
    cluster.goes_silent("gpu-2")
    assert in_short() == ("NotStarted", "node gpu-2 does not answer", 32)


# --- what it costs, and what may not be read -------------------------------------------------------------------------


def test_a_fleet_that_is_well_costs_one_list_of_jobs_and_no_pod(cluster: PlainCluster) -> None:
    for number in range(500):
        cluster.add_job(f"job-{number}", ranks=1)
    assert {line.split()[1] for line in status().stdout.splitlines()[1:]} == {"NoPolicy"}
    assert Counter(cluster.plurals("list")) == dict.fromkeys(
        (
            *("trainjobs", "jobsets", "recoverygroups", "recoverypolicies", "clusterrecoverypolicies", "jobs"),
            *("leases", "deployments"),  # other installations, and versions that are not tested
        ),
        1,
    )
    assert "nodes" not in cluster.plurals("get")


def test_pods_are_listed_for_many_groups_at_once(cluster: PlainCluster) -> None:
    for number in range(2 * NAMES_MAX):
        cluster.add_job(f"well-{number}", ranks=1)
    for number in range(2 * NAMES_MAX + 1):
        cluster.add_job(f"stuck-{number}", ranks=1, running=0, namespace=f"team-{number % 3}")
    phases = Counter(line.split()[2] for line in status("-A").stdout.splitlines()[1:])
    assert phases == {"NoPolicy": 2 * NAMES_MAX, "NotStarted": 2 * NAMES_MAX + 1}
    counts = Counter(cluster.plurals("list"))
    assert (counts["jobs"], counts["pods"], counts["events"]) == (1, 3, 0)
    assert cluster.plurals("get").count("nodes") == 1, "they are all on gpu-0"


def test_nodes_are_asked_about_up_to_a_limit_those_of_pods_that_run_first(cluster: PlainCluster) -> None:
    """Of a thousand pods that start, the one that runs and is not Ready is the one whose node may be silent."""
    cluster.add_job("llm", ranks=NODES_MAX + 9, running=1)
    cluster.add_policy()
    runs, *waiting = cluster.objects[PODS.plural]
    last = max(waiting, key=lambda pod: str(pod["metadata"]["name"]))
    last["status"] = copy.deepcopy(runs["status"])
    node = last["spec"]["nodeName"]
    cluster.goes_silent(node)
    result = status()
    assert f"node {node} does not answer" in result.stdout
    assert cluster.plurals("get").count("nodes") == NODES_MAX
    assert result.stderr == (
        "recovery: more than 64 nodes have pods that are not Ready: whether the others answer was not asked\n"
    )


@pytest.mark.parametrize("plural", ["jobs", "pods"])
def test_who_may_not_read_jobs_or_pods_is_told_what_is_missing(cluster: PlainCluster, plural: str) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_policy()
    cluster.denied = {("list", plural)}
    result = status()
    assert result.stdout.splitlines()[1].split()[:2] == ["llm", "Healthy"]
    assert result.stderr == (
        f"recovery: a job that has not started looks like one that runs: list {plural}: forbidden\n"
    )
    assert "no: Observe" in result.stdout


def test_who_may_not_read_nodes_is_told_the_rest(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4, running=3)
    cluster.add_policy()
    cluster.denied = {("get", "nodes")}
    assert in_short() == ("NotStarted", "rank 3: ImagePullBackOff", 32)


# --- watching --------------------------------------------------------------------------------------------------------


def test_watch_prints_a_start_in_its_steps_but_not_each_wording_of_the_scheduler(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_job("llm", ranks=2, running=1)
    cluster.has_no_node("llm-1", "0/9 nodes are available.")
    [_, waits] = cluster.objects[PODS.plural]

    def starts() -> None:
        waits["spec"]["nodeName"] = "gpu-1"
        running = cluster.objects[PODS.plural][0]["status"]
        waits["status"] = running
        cluster.objects[JOBS.plural][0]["status"]["ready"] = 2

    watched = Watched(monkeypatch, lambda: cluster.has_no_node("llm-1", "0/8 nodes are available."), starts)
    lines = [line.split()[:2] for line in watched.status().stdout.splitlines()]
    assert lines == [["JOB", "PHASE"], ["llm", "NotStarted"], ["llm", "NoPolicy"]]


def test_a_group_that_is_all_ready_has_started_where_the_clock_lags_behind(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-02T09:00:05Z"}
    cluster.objects[JOBS.plural][0]["status"]["conditions"] = [resumed]
    assert (told()["phase"], told()["protection"]["reason"]) == ("Healthy", "Protected")
