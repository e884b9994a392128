"""The timeline of a trial for a reader: each line is one event, similar events are grouped, the violation is marked."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.standing import Broken, Standing
from recovery.core.model.step import WAITING
from recovery.ports import JOB_SETS, JOBS, PODS, RECOVERY_GROUPS
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.timeline import MAX_LINES, offset, timeline
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.trials.story import LLM, Story, at, violation

HEALING = "  +01:30:00.000  healing begins: nothing breaks from now on"
TERMS = PinnedPolicy("default", "u", 1, "RecreateGroupOnPodRestart", 10, 86400.0, 900.0)


def incident(message: str) -> Incident:
    return Incident("i-1", 1, at(10), at(10), "PodDeleted", "PodDeleted", "Enforce", TERMS, WAITING, message=message)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "+00:00:00.000"), (5025.678, "+01:23:45.678"), (59.9996, "+00:01:00.000"), (90061.5, "+25:01:01.500")],
)
def test_moments(seconds: float, text: str) -> None:
    assert offset(timedelta(seconds=seconds)) == text


def test_what_a_visitor_says_is_marked_as_a_fault() -> None:
    story = Story()
    story.evidence.remarks.append((at(60), "drill: pod-kill: llm-node-0-1"))
    assert timeline(story.evidence) == ["! +00:01:00.000  drill: pod-kill: llm-node-0-1", HEALING]


def test_a_recovery() -> None:
    story = Story()
    story.process(0)
    story.leads(1, "controller-0_0")
    story.leads(3, "controller-0_0")
    story.trains(40, EventKind.ROUND_FORMED, 0)
    story.happens(60, FaultKind.POD_KILL, "team-a/llm: 1 pod was deleted: llm-node-0-1")
    story.trains(60.3, EventKind.RANK_LOST, 200, index=1)
    story.ledger(60.5, Ledger(epoch=1, phase=Phase.DECIDED, incident=incident("a pod was deleted: recreate all")))
    story.request(60.6, "delete", JOBS, "llm-node-0")
    story.ledger(61, Ledger(epoch=1, phase=Phase.TEARING_DOWN, incident=incident("4 old pods are left")))
    story.request(61.1, "delete", PODS, "llm-node-0-0")
    story.request(61.2, "delete", PODS, "llm-node-0-2")
    story.ledger(62, Ledger(epoch=1, phase=Phase.TEARING_DOWN, incident=incident("3 old pods are left")))
    assert timeline(story.evidence) == [
        "  +00:00:00.000  controller-0: process 0 starts",
        "  +00:00:01.000  controller-0_0 leads",
        "  +00:00:40.000  team-a/llm: all ranks have met; training goes on from step 0",
        "! +00:01:00.000  team-a/llm: 1 pod was deleted: llm-node-0-1",
        "  +00:01:00.300  team-a/llm: rank 1 was lost at step 200; the others hang",
        "  +00:01:00.500  controller-0: team-a/llm Decided (epoch 1): a pod was deleted: recreate all",
        "  +00:01:00.600  controller-0: DeleteJob, delete jobs team-a/llm-node-0: 200",
        "  +00:01:01.000  controller-0: team-a/llm TearingDown: 4 old pods are left",
        "  +00:01:01.100  2 pods of team-a/llm are asked to go by controller-0",
        HEALING,
    ]


def test_pods_of_one_group_that_change_alike_are_one_line() -> None:
    story = Story(LLM, JobPlan("team-a", "llm-2"))
    for index in range(3):
        story.pod(10 + index, "ADDED", index)
        story.pod(10.5 + index, "ADDED", index, job="llm-2")
    story.pod(30, "ADDED", 3)
    story.pod(31, "DELETED", 3)
    assert timeline(story.evidence)[:-1] == [
        "  +00:00:10.000  3 pods of team-a/llm are made",
        "  +00:00:10.500  3 pods of team-a/llm-2 are made",
        "  +00:00:30.000  pod team-a/llm-node-0-3 is made",
        "  +00:00:31.000  pod team-a/llm-node-0-3 is gone",
    ]


def test_workloads_are_reported_where_they_turn() -> None:
    story = Story()
    made = {"metadata": {"namespace": "team-a", "name": "llm", "uid": "u1"}, "spec": {}, "status": {}}
    suspended = {**made, "spec": {"suspend": True}}
    failed = {**made, "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs"}]}}
    story.change(1, "ADDED", JOB_SETS, made, actor="trainer-controller")
    story.change(2, "MODIFIED", JOB_SETS, suspended, made)
    story.change(3, "MODIFIED", JOB_SETS, {**suspended, "status": {"restarts": 0}}, suspended)
    story.change(4, "MODIFIED", JOB_SETS, failed, suspended)
    story.change(5, "DELETED", JOB_SETS, failed, failed)
    assert [line[17:] for line in timeline(story.evidence)[:-1]] == [
        "trainer-controller: JobSet team-a/llm is made, uid u1",
        "job-controller: JobSet team-a/llm is suspended",
        "job-controller: JobSet team-a/llm is resumed",
        "job-controller: JobSet team-a/llm has condition Failed (FailedJobs)",
        "job-controller: JobSet team-a/llm is gone",
    ]


def test_requests_say_what_was_heard_and_what_became_of_them() -> None:
    story = Story()
    story.request(1, "delete", JOBS, "llm-node-0", code=None, applied=True, fault=FaultKind.TIMEOUT_APPLIED)
    story.request(2, "delete", JOBS, "llm-node-0", code=409, applied=False)
    story.request(3, "get", JOBS, "llm-node-0")
    story.request(4, "patch", RECOVERY_GROUPS, "llm", subresource="status")
    assert [line[17:] for line in timeline(story.evidence)[:-1]] == [
        "controller-0: DeleteJob, delete jobs team-a/llm-node-0: no answer, applied",
        "controller-0: delete jobs team-a/llm-node-0: 409, not applied",
    ]


def test_leaders_and_processes() -> None:
    story = Story()
    story.leads(1, "controller-0_0")
    story.process(0, 10, "killed")
    story.leads(20, "controller-1_0")
    story.leads(30, "")
    assert [line[17:] for line in timeline(story.evidence)[:-1]] == [
        "controller-0: process 0 starts",
        "controller-0_0 leads",
        "controller-0: process 0 ends, killed",
        "controller-1_0 leads",
        "controller-0 gives the lease up; no replica leads",
    ]


def test_a_violation_is_marked_and_begins_where_all_was_quiet() -> None:
    story = Story()
    story.happens(60, FaultKind.POD_KILL, "the first fault")
    story.reconcile_fails(61, "ConflictError")
    story.happens(500, FaultKind.POD_KILL, "the second fault")
    story.reconcile_fails(501, "ConflictError")
    story.reconcile_fails(502, "ConflictError")
    story.reconcile_fails(700, "TryLaterError")
    assert timeline(story.evidence, violation(650)) == [
        "! +00:08:20.000  the second fault",
        "  +00:08:21.000  2 reconciles of team-a/llm by controller-0 ended in ConflictError",
        "> +00:10:50.000  OneCharge: two charges",
        "  +00:11:40.000  controller-0: a reconcile of team-a/llm ended in TryLaterError",
        HEALING,
    ]


def test_other_jobs_are_left_out_of_a_violation() -> None:
    story = Story(LLM, JobPlan("team-b", "eval"))
    story.happens(60, FaultKind.POD_KILL, "of eval", job="team-b/eval")
    story.happens(61, FaultKind.MANAGER_STALL, "of all", job="")
    story.happens(62, FaultKind.POD_KILL, "of llm")
    told = "\n".join(timeline(story.evidence, violation(63)))
    assert "of eval" not in told
    assert "of all" in told
    assert "of llm" in told
    everything = "\n".join(timeline(story.evidence, Violation("NoLivelock", at(63), "…")))
    assert "of eval" in everything


def test_a_long_story_is_cut_at_its_beginning() -> None:
    story = Story()
    for number in range(200):
        story.happens(60 + number, FaultKind.POD_KILL, f"fault {number}")
    lines = timeline(story.evidence, violation(259))
    assert len(lines) == MAX_LINES
    assert lines[0] == "  +00:03:03.000  (123 lines before this one are left out)"
    assert lines[1] == "! +00:03:03.000  fault 123"
    assert lines[-2] == "> +00:04:19.000  OneCharge: two charges"


def test_without_a_violation_all_is_told() -> None:
    story = Story()
    for number in range(200):
        story.happens(60 + number, FaultKind.POD_KILL, f"fault {number}")
    assert len(timeline(story.evidence)) == 201


def test_a_group_that_is_left_hanging_is_not_healthy() -> None:
    story = Story()
    story.ledger(60, Ledger(epoch=1, phase=Phase.DECIDED, incident=incident("a pod was deleted")))
    hangs = Broken(at(10), at(70), "i-1", "PodDeleted", 16, "pod llm-node-0-1 ended")
    left = Ledger(epoch=1, message="a pod was deleted", standing=Standing.BROKEN, broken=hangs)
    story.ledger(70, left)
    story.ledger(90, replace(left, standing=Standing.MET, broken=None))
    lines = [line for line in timeline(story.evidence) if "controller-0: team-a/llm" in line]
    assert [line.split("team-a/llm ")[1].split(" ")[0] for line in lines] == ["Decided", "Broken", "Healthy"]
