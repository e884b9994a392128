"""Faults of jobs, nodes and the platform, and what users do: each kind is carried out, and undone in time."""

import pytest

from recovery.ports import JOBS, LEASES, NODES, PODS, RECOVERY_CONFIGS, RECOVERY_POLICIES
from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.taints import OUT_OF_SERVICE
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.failure_signs import MONITOR_TAINT
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.health_agent import AGENT_TAINT, held_by_agent
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.injected import FAULT, both, found, made, recreated, runs_at_the_end, well_over
from tests.simulation.trials.small import (
    LLM,
    QUIET,
    at,
    happening,
    in_world,
    outcome_of,
    second,
    states,
    with_faults,
    writes,
)

pytestmark = pytest.mark.long


def victims(outcome: TrialOutcome, kind: FaultKind) -> list[tuple[float, str, Body]]:
    """The revisions, from the fault on, of the pods that it claims to have affected."""
    uids = happening(outcome, kind).pod_uids
    assert uids, "it applied somebody"
    return [each for each in states(outcome, PODS) if each[2]["metadata"]["uid"] in uids and each[0] >= FAULT]


def test_nothing_hits_a_trial_without_faults() -> None:
    outcome = outcome_of()
    assert outcome.evidence.happenings == []
    assert writes(outcome) == []
    assert len(made(outcome, PODS)) == LLM.pods
    assert runs_at_the_end(outcome)


# Pods.


def test_pod_kill() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_KILL, indexes=(1,)))

    (first, *_), (gone_at, gone, _) = (history := victims(outcome, FaultKind.POD_KILL))[0], history[-1]
    assert first == FAULT
    assert history[0][2]["metadata"]["deletionGracePeriodSeconds"] == LLM.grace_seconds
    assert history[0][2]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert (gone, gone_at <= FAULT + LLM.grace_seconds + 5) == ("DELETED", True)
    assert happening(outcome, FaultKind.POD_KILL).until is None
    assert len(made(outcome, JOBS)) == 2, "the group was recreated"
    assert runs_at_the_end(outcome)


def test_pod_kill_of_several() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_KILL, indexes=(0, 1)))
    it = happening(outcome, FaultKind.POD_KILL)
    assert len(it.pod_uids) == 2
    assert it.sentence.startswith("team-a/llm: pods were deleted: llm-node-0-0-")


def test_pod_force_delete() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_FORCE_DELETE))
    history = victims(outcome, FaultKind.POD_FORCE_DELETE)
    assert history[0][2]["metadata"]["deletionGracePeriodSeconds"] == 0
    gone_at, gone, _ = history[-1]
    assert (gone, gone_at < FAULT + 1) == ("DELETED", True), "no grace"


def test_pod_evict() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_EVICT))
    history = victims(outcome, FaultKind.POD_EVICT)
    conditions = {each["type"]: each.get("reason") for each in history[0][2]["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "EvictionByEvictionAPI"
    assert "deletionTimestamp" not in history[0][2]["metadata"]
    assert history[1][2]["metadata"]["deletionGracePeriodSeconds"] == LLM.grace_seconds
    assert history[1][0] == FAULT


def test_container_kill() -> None:
    outcome = outcome_of(in_world(FaultKind.CONTAINER_KILL, indexes=(0, 1), code=137))
    codes = {}
    for moment, _, pod in victims(outcome, FaultKind.CONTAINER_KILL):
        for status in pod.get("status", {}).get("containerStatuses", ()):
            for ended in (status.get("state", {}), status.get("lastState", {})):
                if "terminated" in ended and moment <= FAULT + 2:
                    codes[pod["metadata"]["name"]] = ended["terminated"]["exitCode"]
    assert sorted(codes.values()) == [137, 137], "both at once"


def test_pod_stuck() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_STUCK, seconds=60.0))
    gone_at, gone, _ = victims(outcome, FaultKind.POD_STUCK)[-1]
    assert gone == "DELETED"
    assert FAULT + 60 <= gone_at < FAULT + 70, "not after its grace, but when its node was reset"
    assert runs_at_the_end(outcome)


def test_crash_loop() -> None:
    outcome = outcome_of(in_world(FaultKind.CRASH_LOOP, seconds=60.0, code=7))
    ends = set()
    for moment, _, pod in states(outcome, PODS):
        for status in pod.get("status", {}).get("containerStatuses", ()):
            terminated = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
            if terminated and terminated["exitCode"] == 7:
                ends.add((pod["metadata"]["uid"], terminated["finishedAt"]))
                assert moment >= FAULT
    assert len(ends) >= 3, "again and again"
    assert len({moment for _, moment in ends}) >= 3
    assert max(moment for _, moment in ends) <= f"{at(FAULT + 62):%Y-%m-%dT%H:%M:%SZ}", "and no longer than it lasts"
    well_over(outcome, FaultKind.CRASH_LOOP, 60.0)


# Nodes.


def ready(outcome: TrialOutcome, node: str) -> list[tuple[float, str]]:
    """When its Ready condition changed, and to what."""
    told: list[tuple[float, str]] = []
    for moment, what, body in states(outcome, NODES, node):
        conditions = {each["type"]: each["status"] for each in body.get("status", {}).get("conditions", ())}
        status = "gone" if what == "DELETED" else conditions.get("Ready", "")
        if not told or told[-1][1] != status:
            told.append((moment, status))
    return [each for each in told if each[0] >= FAULT]


@pytest.mark.parametrize("kind", [FaultKind.NODE_POWER_LOSS, FaultKind.NODE_PARTITION], ids=str)
def test_a_node_falls_silent_for_a_time(kind: FaultKind) -> None:
    outcome = outcome_of(in_world(kind, seconds=120.0))
    it = happening(outcome, kind)
    (lost_at, lost), (back_at, back) = ready(outcome, it.node)
    assert (lost, back) == ("Unknown", "True")
    assert FAULT + 30 <= lost_at <= FAULT + 60, "the grace of node monitoring"
    assert FAULT + 120 <= back_at <= FAULT + 130
    assert len(it.pod_uids) == 1
    well_over(outcome, kind, 120.0)


def ranks_lost(outcome: TrialOutcome) -> list[float]:
    return [second(each.at) for each in outcome.evidence.trace.records if each.kind is EventKind.RANK_LOST]


def test_only_a_loss_of_power_ends_the_processes() -> None:
    """Both last 30 s, which is too short for the control plane to notice."""
    power, network = (
        outcome_of(in_world(kind, seconds=30.0)) for kind in (FaultKind.NODE_POWER_LOSS, FaultKind.NODE_PARTITION)
    )
    assert [round(moment) for moment in ranks_lost(power)][:1] == [FAULT]
    assert ranks_lost(network) == []


def test_node_remove() -> None:
    outcome = outcome_of(in_world(FaultKind.NODE_REMOVE, seconds=30.0, number=7))
    node = happening(outcome, FaultKind.NODE_REMOVE).node
    ((gone_at, gone),) = ready(outcome, node)
    assert (gone, gone_at < FAULT + 1) == ("gone", True)
    (joined,) = [moment for moment, what, _ in states(outcome, NODES, f"{node}-7") if what == "ADDED"]
    assert FAULT + 30 <= joined <= FAULT + 32
    well_over(outcome, FaultKind.NODE_REMOVE, 30.0)


# The platform.


def test_no_capacity() -> None:
    """The free node is cordoned, but not the nodes in use."""
    outcome = outcome_of(in_world(FaultKind.NO_CAPACITY, seconds=60.0))
    cordoned = {
        (moment, body["metadata"]["name"], bool(body["spec"].get("unschedulable")))
        for moment, _, body in states(outcome, NODES)
        if moment in (FAULT, FAULT + 60)
    }
    assert cordoned == {(FAULT, "node-2", True), (FAULT + 60, "node-2", False)}
    well_over(outcome, FaultKind.NO_CAPACITY, 60.0)


def test_pods_refused() -> None:
    outcome = both(FaultKind.PODS_REFUSED, 60.0)
    assert recreated(outcome, JOBS) < FAULT + 60 <= recreated(outcome, PODS)
    well_over(outcome, FaultKind.PODS_REFUSED, 60.0)


def test_job_without_pods() -> None:
    """The new Job has no pods, and nothing happens until the controller touches it."""
    outcome = both(FaultKind.JOB_WITHOUT_PODS, 60.0)
    made_at, pods_at = recreated(outcome, JOBS), recreated(outcome, PODS)
    assert made_at < FAULT + 60
    assert pods_at >= made_at + 60, "nobody noticed before the watchdog"
    touches = [record for record in writes(outcome) if b"touched" in (record.request.body or b"")]
    assert len(touches) == 1
    assert second(touches[0].at) <= pods_at
    well_over(outcome, FaultKind.JOB_WITHOUT_PODS, 60.0)


def test_manager_stall() -> None:
    outcome = both(FaultKind.MANAGER_STALL, 60.0)
    assert recreated(outcome, PODS) >= FAULT + 60
    evidence = outcome.evidence
    moments = [
        second(moment)
        for change, moment in zip(evidence.changes, evidence.change_times, strict=True)
        if change.actor in {"job-controller", "garbage-collector"}
    ]
    assert not [moment for moment in moments if FAULT + 1 < moment < FAULT + 60]
    assert min(moments) < FAULT < FAULT + 60 <= max(moments) < FAULT + 70, "they work before and after it"
    well_over(outcome, FaultKind.MANAGER_STALL, 60.0)


def test_jobset_stall() -> None:
    """The old Job goes, but the new one comes late."""
    outcome = both(FaultKind.JOBSET_STALL, 60.0)
    assert FAULT + 60 <= recreated(outcome, JOBS) < FAULT + 65
    assert recreated(both(FaultKind.TRAINER_STALL, 60.0), JOBS) < FAULT + 60, "for comparison"
    well_over(outcome, FaultKind.JOBSET_STALL, 60.0)


def test_trainer_stall() -> None:
    """A suspended TrainJob reaches its JobSet only afterwards."""
    suspended = in_world(FaultKind.USER_SUSPEND, FAULT + 10, 100.0, number=1)
    stalled = outcome_of(in_world(FaultKind.TRAINER_STALL, FAULT, 60.0), suspended)

    def gone(outcome: TrialOutcome) -> float:
        return min(moment for moment, what, _ in states(outcome, PODS) if what == "DELETED" and moment >= FAULT)

    assert gone(outcome_of(suspended)) < FAULT + 20
    assert FAULT + 60 <= gone(stalled) < FAULT + 70
    assert happening(stalled, FaultKind.TRAINER_STALL).until == at(FAULT + 60)


# Which pods.


def test_an_index_means_that_pod_though_another_one_is_on_its_way_out() -> None:
    outcome = outcome_of(
        in_world(FaultKind.POD_KILL, FAULT, indexes=(0,), number=0),
        in_world(FaultKind.POD_EVICT, FAULT, indexes=(0,), number=1),
    )
    assert [each.fault.key.kind for each in outcome.evidence.happenings] == [FaultKind.POD_KILL]


def test_a_fault_that_finds_no_one_does_not_take_place() -> None:
    late = [
        in_world(kind, 200.0, 10.0, number=number)
        for number, kind in enumerate(
            (
                FaultKind.POD_KILL,
                FaultKind.CONTAINER_KILL,
                FaultKind.NODE_POWER_LOSS,
                FaultKind.USER_SUSPEND,
                FaultKind.USER_PAUSE,
                FaultKind.USER_RETRY,
            ),
            1,
        )
    ]
    deleted = in_world(FaultKind.USER_DELETE, FAULT)
    outcome = outcome_of(deleted, *late)
    assert [each.fault for each in outcome.evidence.happenings] == [deleted]
    assert outcome.plan.faults == (deleted,)


LASTING = [
    FaultKind.CRASH_LOOP,
    FaultKind.NODE_POWER_LOSS,
    FaultKind.NODE_PARTITION,
    FaultKind.NO_CAPACITY,
    FaultKind.PODS_REFUSED,
    FaultKind.JOB_WITHOUT_PODS,
    FaultKind.MANAGER_STALL,
    FaultKind.JOBSET_STALL,
    FaultKind.TRAINER_STALL,
    FaultKind.USER_PAUSE,
    FaultKind.PAUSE_ALL,
    FaultKind.POLICY_OBSERVE,
    FaultKind.PROCESS_FREEZE,
    FaultKind.NODE_REMOVE,
    FaultKind.POLICY_DELETE,
    FaultKind.USER_SUSPEND,
]


@pytest.mark.parametrize("order", [1, -1], ids=["", "reversed"])
def test_every_lasting_fault_has_ended_when_the_healing_begins(order: int) -> None:
    """All at once, one every five seconds, until 299 s."""
    faults = [
        in_world(kind, 100.0 + 5 * number, 199.0 - 5 * number, number=number, indexes=(0,))
        for number, kind in enumerate(LASTING[::order])
    ]
    outcome = run_trial(with_faults(*faults))

    took_place = {each.fault.key.kind for each in outcome.evidence.happenings}
    assert len(took_place) >= 11, f"some find no one while others last: {sorted(took_place)}"
    assert all(each.until is None or each.until <= at(QUIET.active_seconds) for each in outcome.evidence.happenings)
    assert [node["metadata"]["name"] for node in found(outcome, NODES) if node["spec"].get("unschedulable")] == []
    conditions = [node["status"]["conditions"] for node in found(outcome, NODES)]
    assert all(each["status"] == "True" for node in conditions for each in node if each["type"] == "Ready")
    assert not found(outcome, RECOVERY_CONFIGS)[0]["spec"].get("paused")
    assert [policy["spec"]["mode"] for policy in found(outcome, RECOVERY_POLICIES)] == ["Enforce"]
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()


# Nodes that are unhealthy, drained, or swallow pods.


def nodes_seen(outcome: TrialOutcome, name: str) -> list[tuple[float, bool, set[str]]]:
    """Time, cordon and taints of each state of that node from the fault on."""
    return [
        (moment, bool(node["spec"].get("unschedulable")), {each["key"] for each in node["spec"].get("taints") or ()})
        for moment, _, node in states(outcome, NODES)
        if node["metadata"]["name"] == name and moment >= FAULT
    ]


def test_out_of_service_is_said_of_a_node_that_is_down_and_taken_back_with_it() -> None:
    outcome = outcome_of(in_world(FaultKind.NODE_OUT_OF_SERVICE, seconds=120.0))
    node = happening(outcome, FaultKind.NODE_OUT_OF_SERVICE).node
    said = [moment for moment, _, taints in nodes_seen(outcome, node) if OUT_OF_SERVICE in taints]
    assert said[0] == FAULT + 60
    assert OUT_OF_SERVICE not in nodes_seen(outcome, node)[-1][2]
    assert runs_at_the_end(outcome)


def test_a_drain_cordons_all_nodes_at_once_and_evicts_one_after_the_other() -> None:
    outcome = outcome_of(in_world(FaultKind.NODE_DRAIN, seconds=100.0, indexes=(0, 1)))
    assert len(happening(outcome, FaultKind.NODE_DRAIN).pod_uids) == 2
    cordoned = [moment for node in ("node-0", "node-1") for moment, so, _ in nodes_seen(outcome, node) if so]
    assert min(cordoned) == FAULT
    assert len(made(outcome, JOBS)) == 2, "one recreate for the whole drain"
    assert not [node for node in found(outcome, NODES) if node["spec"].get("unschedulable")]


def test_a_monitor_takes_back_what_it_has_said() -> None:
    outcome = outcome_of(in_world(FaultKind.NODE_MONITORED, seconds=60.0))
    node = happening(outcome, FaultKind.NODE_MONITORED).node
    seen = nodes_seen(outcome, node)
    assert any(cordoned and MONITOR_TAINT in taints for _, cordoned, taints in seen)
    assert (seen[-1][1], MONITOR_TAINT in seen[-1][2]) == (False, False)


def test_a_health_agent_sets_and_removes_its_marks_in_one_update_each() -> None:
    outcome = outcome_of(in_world(FaultKind.NODE_HELD, seconds=60.0))
    node = happening(outcome, FaultKind.NODE_HELD).node
    held = [(body["spec"].get("unschedulable"), held_by_agent(body)) for _, _, body in states(outcome, NODES, node)]
    assert set(held) == {(True, True), (None, False)}
    taints = {AGENT_TAINT in taints for _, cordoned, taints in nodes_seen(outcome, node) if cordoned}
    assert taints == {True}
    assert len(made(outcome, JOBS)) == 2, "it drained the node"
    well_over(outcome, FaultKind.NODE_HELD, 60.0)


def test_a_health_agent_takes_the_uncordon_of_another_client_for_that_of_a_person() -> None:
    monitored = in_world(FaultKind.NODE_MONITORED, FAULT - 10, 30.0)
    outcome = outcome_of(monitored, in_world(FaultKind.NODE_HELD, FAULT, 150.0, number=1))
    node = happening(outcome, FaultKind.NODE_MONITORED).node
    assert node == happening(outcome, FaultKind.NODE_HELD).node
    held = [moment for moment, _, body in states(outcome, NODES, node) if held_by_agent(body)]
    assert (min(held), max(held) < FAULT + 21) == (FAULT, True)


def test_a_health_agent_finds_the_node_that_the_controller_has_found() -> None:
    quarantine = in_world(FaultKind.USER_QUARANTINE, FAULT, indexes=(1,))
    outcome = outcome_of(quarantine, in_world(FaultKind.NODE_HELD, FAULT + 10, 60.0, number=1))
    assert happening(outcome, FaultKind.NODE_HELD).node == happening(outcome, FaultKind.USER_QUARANTINE).node


def test_a_black_hole_fails_every_new_pod_at_admission() -> None:
    outcome = outcome_of(in_world(FaultKind.BLACK_HOLE, seconds=30.0))
    node = happening(outcome, FaultKind.BLACK_HOLE).node
    refused = [
        pod
        for _, _, pod in states(outcome, PODS)
        if (pod.get("status") or {}).get("reason") == "UnexpectedAdmissionError"
    ]
    assert refused
    assert {pod["spec"]["nodeName"] for pod in refused} == {node}
    assert all(not pod["status"].get("containerStatuses") for pod in refused), "nothing of it ever ran"


def test_a_broken_runtime_lets_every_new_pod_wait_for_its_container() -> None:
    outcome = outcome_of(in_world(FaultKind.BROKEN_RUNTIME, seconds=30.0))
    node = happening(outcome, FaultKind.BROKEN_RUNTIME).node
    waiting = [
        (moment, pod["spec"]["nodeName"])
        for moment, _, pod in states(outcome, PODS)
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if status["state"].get("waiting", {}).get("reason") == "CreateContainerError"
    ]
    assert waiting
    assert {where for _, where in waiting} == {node}
    assert all(FAULT <= moment <= FAULT + 31 for moment, _ in waiting)
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()


def test_survivors_of_a_cascade_end_after_the_first_each_in_its_own_moment() -> None:
    outcome = outcome_of(in_world(FaultKind.CASCADE, indexes=(0,), code=7))
    ends = [
        (record.at, record.exit_code)
        for record in outcome.evidence.trace.records
        if record.kind is EventKind.PROCESS_EXITED and record.exit_code in {7, 134}
    ]
    assert ends[0] == (at(FAULT), 7)
    assert [code for _, code in ends[1:]].count(134) <= LLM.pods - 1


def test_a_rack_is_lost_as_a_whole() -> None:
    outcome = outcome_of(in_world(FaultKind.RACK_POWER_LOSS, seconds=90.0))
    down = {
        node["metadata"]["name"]
        for _, _, node in states(outcome, NODES)
        if any(each["type"] == "Ready" and each["status"] == "Unknown" for each in node["status"]["conditions"])
    }
    assert down == {"node-0", "node-1", "node-2"}, "all that there are"
    leases = {each["metadata"]["name"] for each in found(outcome, LEASES) if "renewTime" in each["spec"]}
    assert leases >= down, "the last renewal of each stands in its Lease"


def test_a_node_of_a_lost_rack_is_removed_before_its_own_power_loss() -> None:
    """The nodes of a rack are lost one by one. This one does not return with the rack."""
    rack = in_world(FaultKind.RACK_POWER_LOSS, FAULT, 60.0)
    removed = in_world(FaultKind.NODE_REMOVE, FAULT + 0.1, 30.0, number=1, indexes=(1,))
    outcome = outcome_of(rack, removed)
    node = happening(outcome, FaultKind.NODE_REMOVE).node
    assert node in happening(outcome, FaultKind.RACK_POWER_LOSS).sentence
    assert node not in {body["metadata"]["name"] for body in found(outcome, NODES)}
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()
