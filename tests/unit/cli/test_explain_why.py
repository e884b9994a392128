"""`recovery explain`: which rule decided, what was not done, which nodes are under suspicion, and what comes next."""

import json

import pytest

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_CONFIGS
from tests.unit.cli.cluster import CREATED, PlainCluster, metadata
from tests.unit.cli.test_explain import explain, incident_details, record, section
from tests.unit.cli.test_status import open_incident
from tests.unit.fake_api import Object

BAD_GPU = {"name": "bad-gpu", "action": "ReplaceNode", "when": {"onClass": ["HardwareFault"]}}
KILLED = {"operator": "In", "values": [137]}
ANYTHING = {"name": "anything", "action": "RecreateGroup", "charge": False}
CAP = {
    "action": "ReplaceNode",
    "reason": "QuarantineCap",
    "message": "quarantine cap reached: 2 of 2 nodes",
    "node": "gpu-1",
}


def add_config(cluster: PlainCluster, *, status: Object | None = None, **spec: object) -> None:
    """Add the RecoveryConfig. Its status holds what concerns all groups."""
    cluster.put(RECOVERY_CONFIGS, {"metadata": metadata("default", "", "config"), "spec": spec, "status": status or {}})


def group_with(phase: str, **changes: object) -> Object:
    status = open_incident(phase)
    status["incident"] |= incident_details() | changes
    return status


def held(verdict: str) -> Object:
    """The step of an incident that is held for that verdict."""
    return {"type": "Held", "reason": "SameErrorAgain", "message": verdict}


def test_the_rules_are_listed_in_their_order(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce", rules=[BAD_GPU, ANYTHING])
    lines = section(explain("llm"), "Policy")
    assert lines[2:] == [
        "rules, of which the first that matches decides:",
        "  1. bad-gpu: ReplaceNode",
        "  2. anything: RecreateGroup, not charged to the budget",
    ]


@pytest.mark.parametrize(("allowed", "words"), [(True, "allows"), (False, "does not allow")])
def test_that_a_silent_node_is_taken_for_dead_comes_with_who_allows_it(
    cluster: PlainCluster, allowed: bool, words: str
) -> None:
    cluster.add_job("llm")
    cluster.add_policy(teardown={"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "2m"}})
    add_config(cluster, allow={"assumeDead": allowed})
    said = f"a node that does not answer is assumed dead after 2m00s (AssumeDead): RecoveryConfig {words} it"
    assert said in section(explain("llm"), "Policy")


def test_the_rule_that_decided_is_named_with_the_nodes_that_were_replaced(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    attempt = incident_details()["attempts"][0] | {"action": "ReplaceNode", "nodes": ["gpu-1"], "message": "Xid 79"}
    cluster.add_group("llm", group_with("TearingDown", rule="bad-gpu", attempts=[attempt]))
    lines = section(explain("llm"), "Incident")
    assert "decided by rule bad-gpu of policy default, generation 1" in lines
    assert "  1. ReplaceNode of gpu-1 at 2026-11-02 08:59:00Z (epoch 1): Xid 79" in lines


def test_a_restart_that_a_person_asked_for_was_decided_by_no_rule_and_no_default(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record(**incident_details() | {"class": "Manual"}))
    assert "decided by" not in explain("llm", "--incident", "uid-team-1")


def test_what_was_considered_and_not_done_is_listed(cluster: PlainCluster) -> None:
    cluster.add_incident(
        "llm",
        record(
            **incident_details(),
            alternatives=[
                CAP,
                {"action": "FailJob", "reason": "RuleFailJobNotAllowed", "message": "RecoveryConfig forbids it"},
            ],
        ),
    )
    lines = section(explain("llm", "--incident", "uid-team-1"), "Incident of job team-a/llm")
    at = lines.index("Considered, and not done:")
    assert lines[at + 1 : at + 3] == [
        "  - ReplaceNode: quarantine cap reached: 2 of 2 nodes",
        "  - FailJob: RecoveryConfig forbids it",
    ]


def test_who_is_held_for_good_is_told_why_and_what_ends_it(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    why = (
        "exit code 1 came back soon after the start, first on node gpu-0 and now on node gpu-1: the error is in "
        "the job, and a restart does not fix it"
    )
    cluster.add_group("llm", group_with("Held", step=held(why)))
    text = explain("llm")
    assert f"held until recovery retry: {why}" in section(text, "Incident")
    assert "nothing until someone runs recovery retry llm" in section(text, "Next")


def test_a_jobset_that_is_made_to_fail_is_told_so(cluster: PlainCluster) -> None:
    cluster.add_incident(
        "llm", record(step={"type": "Held", "reason": "RuleFailJob", "failsJob": True}, rule="own-codes")
    )
    lines = section(explain("llm", "--incident", "uid-team-1"), "Incident of job team-a/llm")
    assert "the controller is failing the JobSet" in lines


# --- what comes next -------------------------------------------------------------------------------------------------


def test_a_healthy_job_waits_for_nothing(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    text = explain("llm")
    assert "\nNext:" not in text
    assert "\nNodes:" not in text


def test_a_restart_that_waits_for_its_backoff_is_told_with_its_moment(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["spec"]["activeDeadlineSeconds"] = 3600
    cluster.objects[JOBS.plural][0]["spec"]["backoffLimit"] = 50
    cluster.objects[PODS.plural][1]["metadata"] |= {
        "deletionTimestamp": "2026-11-02T09:00:28Z",
        "deletionGracePeriodSeconds": 30,
    }
    cluster.add_policy(mode="Enforce", backoff={"initial": "90s"})
    cluster.add_group(
        "llm", {"schemaVersion": SCHEMA_VERSION, "attemptsInRow": 1, "handled": {"until": "2026-11-02T08:50:00Z"}}
    )
    text = explain("llm")
    [line] = section(text, "Next")
    assert line == "the group is restarted, unless it has recovered by itself, at 2026-11-02 09:01:30Z"
    [decided] = section(text, "Decision")
    assert "the restart waits until 2026-11-02T09:01:30Z (attempt 2 in a row waits 90s)" in decided


def test_deadlines_are_told_with_what_a_backoff_makes_of_them(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["spec"]["activeDeadlineSeconds"] = 7200
    cluster.objects[JOB_SETS.plural][0]["spec"]["activeDeadlineSeconds"] = 5400
    cluster.objects[JOBS.plural][0]["spec"]["activeDeadlineSeconds"] = 3600
    kept = "which a suspension would reset: a backoff does not suspend the job"
    assert section(explain("llm"), "Now") == [
        f"the TrainJob has a deadline of 7200 s, {kept}",
        "JobSet llm, 0 restarts of its own",
        f"the JobSet has a deadline of 5400 s, {kept}",
        "collective Required: nothing in its launch shows that it replaces a lost rank itself",
        "Job llm-node-0: 2 of 2 pods run and are Ready, 16 GPUs",
        "  its deadline of 3600 s counts from the start of this Job: each restart of the group begins it again",
    ]


def test_when_a_silent_node_is_taken_for_dead_is_told(cluster: PlainCluster) -> None:
    """The node has not answered since 08:58, two minutes ago."""
    cluster.add_job("llm", running=1)
    cluster.add_node("gpu-1", ready=False)
    cluster.add_policy(mode="Enforce", teardown={"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "5m"}})
    add_config(cluster, allow={"assumeDead": True})
    text = explain("llm")
    assert "node gpu-1 is assumed dead at 2026-11-02 09:03:00Z, unless it answers before" in section(text, "Next")
    [line] = section(text, "Nodes")
    assert line.startswith("node gpu-1 has not answered since 08:58:00")


def test_without_permission_it_says_what_the_silent_node_waits_for(cluster: PlainCluster) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_node("gpu-1", ready=False)
    cluster.add_policy(mode="Enforce", teardown={"fencing": {"mode": "AssumeDead"}})
    [line] = section(explain("llm"), "Nodes")
    assert line.endswith("RecoveryConfig does not allow assumeDead")


# --- the fleet's view of the nodes -----------------------------------------------------------------------------------


def quarantined(node: str, **changes: object) -> Object:
    entry = {"node": node, "nodeUID": node, "reason": "Xid 79", "since": "2026-11-02T08:00:00Z", "incident": "inc-7"}
    return entry | {"applied": True} | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "is released by hand (recovery release gpu-1)"),
        (
            {"releaseAt": "2026-11-02T20:00:00Z"},
            "is released at 2026-11-02 20:00:00Z or by hand (recovery release gpu-1)",
        ),
        ({"releaseWhen": "GpuUnhealthy"}, "is released when GpuUnhealthy ends or by hand (recovery release gpu-1)"),
        ({"releasing": "its time was over"}, "is being released: its time was over"),
    ],
)
def test_a_quarantined_node_comes_with_reason_and_release(cluster: PlainCluster, changes: Object, said: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    add_config(cluster, status={"quarantined": [quarantined("gpu-1", **changes), quarantined("other")]})
    assert section(explain("llm"), "Nodes") == [
        "node gpu-1 is quarantined since 2026-11-02 08:00:00Z by incident inc-7: Xid 79",
        f"node gpu-1 {said}",
        "1 node that is not this job's is quarantined (recovery nodes)",
    ]


def test_a_quarantine_names_the_person_who_asked_and_that_it_is_not_in_force_yet(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    add_config(cluster, status={"quarantined": [quarantined("gpu-1", by="anna", applied=False)]})
    assert section(explain("llm"), "Nodes")[0] == (
        "node gpu-1 is quarantined since 2026-11-02 08:00:00Z by anna: Xid 79; its taint has not been seen yet"
    )


def test_suspicions_that_still_count_are_told_with_their_incidents(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    suspicion = {"node": "gpu-0", "incident": "inc-7", "at": "2026-11-02T08:00:00Z"}
    suspicion |= {"reason": "Xid 79", "namespace": "team-a"}
    old = suspicion | {"node": "gpu-1", "at": "2026-10-02T08:00:00Z"}
    add_config(cluster, suspicion={"suspicions": 3}, status={"suspicions": [old, suspicion]})
    assert section(explain("llm"), "Nodes") == [
        "node gpu-0 is suspected: 1 of 3 suspicions that call for its replacement (incident inc-7)"
    ]


def test_a_node_that_the_incident_replaced_is_reported_although_no_pod_is_there_any_more(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    attempt = incident_details()["attempts"][0] | {"action": "ReplaceNode", "nodes": ["gpu-77"]}
    cluster.add_group("llm", group_with("TearingDown", attempts=[attempt]))
    add_config(cluster, status={"quarantined": [quarantined("gpu-77")]})
    assert section(explain("llm"), "Nodes")[0].startswith("node gpu-77 is quarantined since ")


def test_a_storm_is_told_with_its_rack(cluster: PlainCluster) -> None:
    what = "2 nodes of rack r17 were lost within a minute"
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", group_with("TearingDown", storm="storm-r17-1", stormWhat=what))
    add_config(cluster)
    [line] = section(explain("llm"), "Nodes")
    assert line == "its failure is part of storm-r17-1: 2 nodes of rack r17 were lost within a minute"


def test_an_open_circuit_breaker_is_told_with_how_to_close_it(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    breaker = {
        "openedAt": "2026-11-02T08:59:00Z",
        "reason": "RecoveriesInVain",
        "recoveries": 5,
        "withinSeconds": 3600,
        "limit": 5,
    }
    add_config(cluster, circuitBreaker={"recoveries": 5}, status={"breaker": breaker})
    lines = section(explain("llm"), "Policy")
    assert "mode Observe (it says Enforce), restart RecreateGroupOnPodRestart, 10 of 10 recoveries left" in lines
    assert (
        "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress (RecoveryConfig "
        "spec.circuitBreaker.recoveries 5); recovery reset-breaker closes it"
    ) in lines
    told = json.loads(explain("llm", "-o", "json"))["policy"]
    assert (told["mode"], told["globalPause"]) == ("Observe", "")
    assert told["breaker"] in lines


def test_as_data_it_has_what_comes_next_and_what_is_held_against_nodes(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group(
        "llm",
        group_with("Held", step=held("an error of the job itself"), alternatives=[CAP]),
    )
    add_config(cluster, status={"quarantined": [quarantined("gpu-1")]})
    told = json.loads(explain("llm", "-o", "json"))
    assert told["next"] == ["nothing until someone runs recovery retry llm"]
    assert [line.split(" is ")[0] for line in told["nodes"]] == ["node gpu-1", "node gpu-1"]
    assert told["incident"]["alternatives"] == [CAP]


def test_a_node_that_was_deleted_proves_that_its_pods_are_dead(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.remove(NODES.plural, "", "gpu-1")
    cluster.add_policy(mode="Enforce")
    assert section(explain("llm"), "Nodes") == ["its processes count as dead: node gpu-1 was deleted"]


def fail_pod(cluster: PlainCluster, finished_at: str) -> None:
    """The pod of rank 1, with exit code 137."""
    ended = {"exitCode": 137, "reason": "Error", "startedAt": CREATED, "finishedAt": finished_at}
    cluster.objects[PODS.plural][1]["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": "node", "state": {"terminated": ended}}],
    }


def test_a_verdict_that_waits_for_its_cause_to_settle_says_until_when(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    fails = {"name": "killed", "action": "FailJob", "when": {"onExitCodes": KILLED}}
    cluster.add_policy(mode="Enforce", rules=[fails], settle="2s")
    fail_pod(cluster, "2026-11-02T08:59:59Z")
    text = explain("llm")
    assert "evidence of the cause may still arrive" in section(text, "Decision")[0]
    assert section(text, "Next") == ["the controller decides again at 2026-11-02 09:00:02Z at the latest"]


@pytest.mark.parametrize("mode", ["Observe", "Enforce"])
def test_a_failure_that_is_in_no_ledger_yet_is_told_in_full(cluster: PlainCluster, mode: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy(
        mode=mode, rules=[{"name": "killed", "action": "RecreateGroup", "when": {"onExitCodes": KILLED}}]
    )
    fail_pod(cluster, "2026-11-02T08:59:30Z")
    text = explain("llm")
    lines = section(text, "Incident, as it would be opened now")
    assert "  - pod llm-1 (rank 1, node gpu-1) failed with exit code 137" in lines
    assert "  llm-1  gpu-1  1     137" in lines
    assert "decided by rule killed of policy default, generation 1" in lines
    assert "\nIncident:" not in text


# --- all nodes of the cluster --------------------------------------------------------------------------------------

REPLACES = {"name": "killed", "action": "ReplaceNode", "when": {"onExitCodes": KILLED}}


def with_a_failure(cluster: PlainCluster, mode: str, *, spare: int) -> None:
    """Rank 1 of two was killed. The cluster has `spare` nodes more than the job runs on."""
    cluster.add_job("llm")
    for number in range(2, 2 + spare):
        cluster.add_node(f"gpu-{number}", ready=True)
    for node in cluster.objects[NODES.plural]:
        node["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    cluster.add_policy(mode=mode, rules=[REPLACES])
    add_config(cluster, allow={"cordon": True}, quarantine={"maxNodes": 1, "maxPercent": 100})
    fail_pod(cluster, "2026-11-02T08:59:30Z")


@pytest.mark.parametrize("mode", ["Observe", "Enforce"])
@pytest.mark.parametrize(("spare", "replaced"), [(1, True), (0, False)])
def test_it_decides_within_the_caps_and_the_nodes_that_there_are(
    cluster: PlainCluster, mode: str, spare: int, replaced: bool
) -> None:
    with_a_failure(cluster, mode, spare=spare)
    text = explain("llm")
    considered = [line for line in section(text, "Incident, as it would be opened now") if "- ReplaceNode: " in line]
    if replaced:
        assert "quarantin" in section(text, "Decision")[0]
        assert considered == []
    else:
        [line] = considered
        assert "the group needs this node" in line


def test_a_cap_that_is_full_is_seen(cluster: PlainCluster) -> None:
    with_a_failure(cluster, "Observe", spare=3)
    cluster.objects[RECOVERY_CONFIGS.plural][0]["status"] = {"quarantined": [quarantined("gpu-4")]}
    assert "quarantine cap reached: 1 of 1 nodes" in section(explain("llm"), "Decision")[0]


NOT_ASKED = "nodes may not be listed, so caps, feasible nodes and storms were not asked"


def test_who_may_not_list_nodes_is_told_what_was_not_asked(cluster: PlainCluster) -> None:
    with_a_failure(cluster, "Enforce", spare=3)
    assert NOT_ASKED not in explain("llm")
    cluster.denied.add(("list", NODES.plural))
    assert section(explain("llm"), "Decision")[-1] == NOT_ASKED
    assert json.loads(explain("llm", "-o", "json"))["decision"]["notAsked"] == NOT_ASKED


def test_a_job_with_fewer_nodes_than_it_is_to_have_is_told_what_room_there_is(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=1)
    cluster.add_policy(mode="Enforce", elastic={"minNodes": 1, "maxNodes": 2})
    elastic = {"nodes": 1, "wantedNodes": 2, "since": "2026-11-02T08:00:00Z"}
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION, "elastic": elastic})
    assert "there is no room for more pods" in section(explain("llm"), "Decision")[0]
    cluster.denied.add(("list", NODES.plural))
    assert section(explain("llm"), "Decision")[-1] == NOT_ASKED


def test_nodes_are_not_listed_for_a_job_that_is_well(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.denied.add(("list", NODES.plural))
    assert NOT_ASKED not in explain("llm")
