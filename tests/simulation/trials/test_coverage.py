"""What a trial has met with, from its evidence."""

from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.fleet.counted_marks import mark_of, minute_of
from recovery.core.fleet.quarantine import Mark
from recovery.core.incident.requests import Verb
from recovery.core.incident.transitions import ATTEMPTS, ENDINGS, TRANSITIONS
from recovery.core.model.annotations import (
    NVSENTINEL_CORDON_ANNOTATION,
    OWN_BACKOFF_LIMIT_ANNOTATION,
    QUARANTINE_ANNOTATION,
    RESUME_AT_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    TORN_DOWN_BY_ANNOTATION,
    TOUCHED_ANNOTATION,
)
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger, FleetTotals, Suspicion
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    Closing,
    Incident,
    Ledger,
    Outcome,
    Phase,
    PhaseSpan,
    Target,
)
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.rules import RuleAction
from recovery.core.model.step import WAITING, Step, StepType
from recovery.core.model.waits import Suspension
from recovery.core.plan import actions
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, OnTerminalFailure, Restart
from recovery.ports import (
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
    Resource,
)
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.trials.actors import AGENT
from recovery.sim.trials.coverage import ALL, NEVER_HIT, by_unit_tests_only, coverage_of, never_hit, total
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.plan import JobPlan, Saves
from recovery.sim.trials.rarely_hit import RARELY_HIT
from tests.simulation.trials.story import LEADER, Story, at

REPOSITORY = Path(__file__).resolve().parents[3]
TERMS = PinnedPolicy("default", "u", 1, "RecreateGroupAfterStart", 10, 86400.0, 900.0)
OPEN = Incident("i-1", 1, at(10), at(10), "PodDeleted", "PodDeleted", "Enforce", TERMS, WAITING)


def attempt(number: int, action: AttemptAction) -> Attempt:
    return Attempt(number, number, action, at(10), Reason.DEFAULT_RESTART)


def open_incident(**fields: object) -> Incident:
    return msgspec.structs.replace(OPEN, **fields)


OF_THE_PLAN = ("runtime:", "fencing:", "admission:", "training:", "pod-failures:")
OF_THE_STATE_MACHINE = ("transition:", "ending:", "becomes:")


def covered(*ledgers: Ledger) -> dict[str, int]:
    story = Story()
    for number, ledger in enumerate(ledgers):
        story.ledger(10 + number, ledger)
    found = coverage_of(story.evidence)
    return {key: times for key, times in found.items() if not key.startswith(OF_THE_PLAN + OF_THE_STATE_MACHINE)}


@pytest.mark.parametrize(
    ("dimension", "members"),
    [
        ("fault", FaultKind),
        ("sign", Sign),
        ("runtime", PlannedRuntime),
        ("sidecar", Sidecar),
        ("marking", Marking),
        ("training", TrainingKind),
        ("pod-failures", PodFailures),
        ("admission", JobAdmission),
        ("mode", Mode),
        ("rule", Restart),
        ("ruled", RuleAction),
        ("fencing", FencingMode),
        ("class", DisruptionClass),
        ("phase", Phase),
        ("attempt", AttemptAction),
        ("outcome", Outcome),
        ("exhausted", OnExhausted),
        ("terminal", OnTerminalFailure),
        ("verb", Verb),
    ],
)
def test_every_member_has_to_be_hit(dimension: str, members: type[StrEnum]) -> None:
    assert {key for key in ALL if key.startswith(f"{dimension}:")} == {f"{dimension}:{member}" for member in members}


def test_every_action_has_to_be_hit() -> None:
    names = {f"action:{action.__name__}" for action in get_args(actions.Action)}
    assert {key for key in ALL if key.startswith("action:")} == names


def test_what_cannot_be_hit_is_known_and_said_why() -> None:
    assert set(NEVER_HIT) <= set(ALL)
    assert all(NEVER_HIT.values())


def test_what_was_never_hit_is_named() -> None:
    assert never_hit({}) == [key for key in ALL if key not in NEVER_HIT and key not in RARELY_HIT]
    assert "fault:pod-kill" not in never_hit({"fault:pod-kill": 1})
    assert "fault:pod-kill" in never_hit({"fault:pod-kill": 0})


def test_every_row_of_the_state_machine_has_to_be_hit() -> None:
    rows = {key for key in ALL if key.startswith(OF_THE_STATE_MACHINE)}
    assert len(rows) == len(TRANSITIONS) + len(ENDINGS) + sum(len(life.becomes) for life in ATTEMPTS.values())
    assert set(RARELY_HIT) <= rows


@pytest.mark.parametrize("test", sorted(set(RARELY_HIT.values())))
def test_what_trials_may_miss_is_taken_by_a_unit_test_that_exists(test: str) -> None:
    path, name = test.split("::")
    assert f"\ndef {name}(" in (REPOSITORY / path).read_text()


def test_what_trials_missed_and_a_unit_test_took_is_named() -> None:
    assert by_unit_tests_only({}) == RARELY_HIT
    assert by_unit_tests_only(dict.fromkeys(RARELY_HIT, 1)) == {}


def test_transitions_and_endings_are_counted_once_each() -> None:
    decided = PhaseSpan(Phase.DECIDED, at(11), at(12))
    spans = (PhaseSpan(Phase.DETECTED, at(10), at(11)), msgspec.structs.replace(decided, ended_at=None))
    first = open_incident(phases=spans, attempts=(attempt(1, AttemptAction.REPLACE_NODE),))
    passed = (spans[0], decided, PhaseSpan(Phase.TEARING_DOWN, at(12), at(13)))
    closing = Closing(Outcome.SUPERSEDED, Reason.JOB_DELETED, at(13))
    second = open_incident(phases=passed, attempts=(attempt(1, AttemptAction.ADOPTED),), closing=closing)
    story = Story()
    story.ledger(11, Ledger(phase=Phase.DECIDED, incident=first))
    story.ledger(13, Ledger(phase=Phase.HEALTHY, incident=second))
    found = coverage_of(story.evidence)
    assert {key: times for key, times in found.items() if key.startswith(OF_THE_STATE_MACHINE)} == {
        "transition:Healthy>Detected": 1,
        "transition:Detected>Decided": 1,
        "transition:Decided>TearingDown": 1,
        "transition:TearingDown>Healthy": 1,
        "ending:Superseded/JobDeleted": 1,
        "becomes:ReplaceNode>Adopted": 1,
    }


def test_trials_add_up() -> None:
    assert total([{"fault:pod-kill": 1, "phase:Held": 2}, {"fault:pod-kill": 3}]) == {
        "fault:pod-kill": 4,
        "phase:Held": 2,
    }


def test_faults_and_runtimes() -> None:
    story = Story(JobPlan("a", "b", PlannedRuntime.NATIVE), JobPlan("a", "c", PlannedRuntime.NATIVE))
    story.happens(1, FaultKind.POD_KILL, "…")
    story.happens(2, FaultKind.POD_KILL, "…")
    assert coverage_of(story.evidence) == {
        "fault:pod-kill": 2,
        "sign:none": 2,
        "runtime:native": 2,
        "admission:at-once": 2,
        "training:required": 2,
        "pod-failures:none": 2,
        "fencing:Proven": 2,
    }


def test_kinds_of_jobs() -> None:
    story = Story(
        JobPlan(
            "a", "b", sidecars=(Sidecar.HELPER, Sidecar.NATIVE), admission=JobAdmission.BY_KUEUE, deadline_seconds=60
        ),
        JobPlan("a", "c", PlannedRuntime.BARE_JOBSET, marking=Marking.NOTHING, policy=None),
        JobPlan("a", "d", training=TrainingKind.INDEPENDENT, saves=Saves(4.0, 0), policy=None),
    )
    assert coverage_of(story.evidence) == {
        "runtime:shipped": 2,
        "runtime:bare-jobset": 1,
        "sidecar:helper": 1,
        "sidecar:native": 1,
        "marking:nothing": 1,
        "admission:at-once": 2,
        "admission:by-kueue": 1,
        "training:required": 2,
        "training:independent": 1,
        "pod-failures:none": 3,
        "job:saves": 1,
        "job:deadline": 1,
        "fencing:Proven": 1,
    }


def switched(story: Story, seconds: float, resource: Resource, uid: str, actor: str, *, suspend: bool) -> None:
    """`spec.suspend` changes to that."""
    metadata = {"namespace": "team-a", "name": "llm", "uid": uid}
    after, before = ({"metadata": metadata, "spec": {"suspend": each}} for each in (suspend, not suspend))
    story.change(seconds, "MODIFIED", resource, after, before, actor)


def test_a_job_that_was_resumed_and_an_incident_about_it() -> None:
    story = Story()
    switched(story, 5, JOBS, "job-1", "jobset-controller", suspend=False)
    story.ledger(20, Ledger(phase=Phase.DECIDED, incident=open_incident(target=Target("jobset", ("job-1",)))))
    found = coverage_of(story.evidence)
    assert (found["job:resumed"], found["job:lost-after-resume"]) == (1, 1)


@pytest.mark.parametrize(("by", "times"), [("user", 1), ("kueue", 0)])
def test_a_suspension_that_kueue_undoes(by: str, times: int) -> None:
    story = Story()
    switched(story, 5, TRAIN_JOBS, "llm", by, suspend=True)
    switched(story, 6, TRAIN_JOBS, "llm", "kueue", suspend=False)
    assert coverage_of(story.evidence).get("job:suspension-undone", 0) == times


def node(*, held: bool = False, quarantined: bool = False, cordoned: bool = True) -> dict[str, Any]:
    """A node that an agent holds, or that we have quarantined and cordoned, or both. `cordoned` False: no longer."""
    annotations = {NVSENTINEL_CORDON_ANNOTATION: "True"} if held else {}
    taints = [{"key": QUARANTINE_TAINT, "value": "i-1", "effect": "NoSchedule"}] if quarantined else []
    if quarantined:
        mark = Mark("bad", at(0), incident="i-1", cordoned=True)
        annotations[QUARANTINE_ANNOTATION] = msgspec.json.encode(mark).decode()
    spec = {"taints": taints, "unschedulable": cordoned and (held or quarantined)}
    return {"metadata": {"name": "node-1", "annotations": annotations}, "spec": spec}


def test_what_a_health_agent_meets() -> None:
    free, held, ours, both = node(), node(held=True), node(quarantined=True), node(held=True, quarantined=True)
    uncordoned = node(held=True, cordoned=False)
    steps = (
        (free, held, AGENT),  # before
        (held, free, AGENT),
        (free, ours, LEADER),
        (ours, both, AGENT),  # between
        (both, held, LEADER),  # released, and the cordon kept
        (held, free, AGENT),
        (free, held, AGENT),  # after
        (held, uncordoned, "user"),
        (uncordoned, free, AGENT),  # overruled
    )
    story = Story()
    for seconds, (before, after, actor) in enumerate(steps):
        story.change(seconds, "MODIFIED", NODES, after, before, actor)
    found = {key: times for key, times in coverage_of(story.evidence).items() if key.startswith("agent:")}
    assert found == {key: 1 for key in ALL if key.startswith("agent:")}


def test_a_job_that_its_deadline_ends() -> None:
    story = Story()
    metadata = {"namespace": "team-a", "name": "llm", "uid": "llm"}
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    before = {"metadata": metadata, "spec": {}}
    story.change(5, "MODIFIED", TRAIN_JOBS, {**before, "status": failed}, before)
    story.change(6, "MODIFIED", TRAIN_JOBS, {**before, "status": failed}, {**before, "status": failed})
    assert coverage_of(story.evidence)["job:out-of-time"] == 1


def test_a_jobset_that_expires_and_one_that_fail_job_keeps() -> None:
    story = Story(JobPlan("a", "b", ttl_seconds=60, policy=None))
    metadata = {"namespace": "a", "name": "b", "uid": "jobset"}
    before = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": 60}}
    story.change(5, "MODIFIED", JOB_SETS, before, before)
    story.change(6, "MODIFIED", JOB_SETS, {**before, "spec": {}}, before)
    found = coverage_of(story.evidence)
    assert (found["job:expires"], found["job:stays-failed"]) == (1, 1)


def test_a_restart_that_waits_for_its_backoff_counts_once() -> None:
    waits = open_incident(step=Step(StepType.WITHHELD, until=at(40), lost_at=at(10)))
    counts = covered(Ledger(incident=waits), Ledger(incident=waits, message="still"))
    assert counts["job:withheld"] == 1


def test_conditions_that_come_to_hold() -> None:
    holds = LedgerCondition("TrainingContainerUnknown", "True", "NoContainerSelected", "…", at(10))
    holds_no_longer = msgspec.structs.replace(holds, status="False")
    counts = covered(Ledger(conditions=(holds,)), Ledger(conditions=(holds,)), Ledger(conditions=(holds_no_longer,)))
    assert counts == {"condition:TrainingContainerUnknown": 1}


def test_an_incident_is_counted_once_and_its_phases_as_they_begin() -> None:
    detected, decided = PhaseSpan(Phase.DETECTED, at(9), at(10)), PhaseSpan(Phase.DECIDED, at(10))
    tearing_down = PhaseSpan(Phase.TEARING_DOWN, at(11))
    again = PhaseSpan(Phase.DECIDED, at(12))
    first = open_incident(attempts=(attempt(1, AttemptAction.RECREATE_GROUP),), phases=(detected, decided))
    later = open_incident(attempts=first.attempts, phases=(detected, decided, tearing_down))
    both = open_incident(
        attempts=(*first.attempts, attempt(2, AttemptAction.ADOPTED)), phases=(detected, decided, tearing_down, again)
    )
    closed = open_incident(
        attempts=both.attempts, phases=both.phases, closing=Closing(Outcome.RECOVERED, Reason.ALL_RANKS_READY, at(30))
    )
    assert covered(
        Ledger(phase=Phase.DECIDED, incident=first),
        Ledger(phase=Phase.TEARING_DOWN, incident=later),
        Ledger(phase=Phase.DECIDED, incident=both),
        Ledger(phase=Phase.HEALTHY, incident=closed),
        Ledger(phase=Phase.HEALTHY, incident=closed, message="recorded"),
        Ledger(phase=Phase.HEALTHY),
    ) == {
        "mode:Enforce": 1,
        "rule:RecreateGroupAfterStart": 1,
        "class:PodDeleted": 1,
        "phase:Healthy": 1,
        "phase:Detected": 1,
        "phase:Decided": 2,
        "phase:TearingDown": 1,
        "attempt:RecreateGroup": 1,
        "attempt:Adopted": 1,
        "outcome:Recovered": 1,
    }


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "exhausted:Hold"),
        ({"suspension": Suspension()}, "exhausted:Suspend"),
        ({"step": Step(StepType.HELD, reason=Reason.BUDGET_EXHAUSTED, fails_job=True)}, "exhausted:FailJob"),
    ],
)
def test_an_exhausted_budget_counts_as_what_was_done_about_it(fields: dict[str, object], key: str) -> None:
    held = Ledger(phase=Phase.HELD, incident=open_incident(**fields))
    counts = covered(held, Ledger(phase=Phase.HELD, incident=held.incident, message="still"))
    assert {name: times for name, times in counts.items() if name.startswith("exhausted:")} == {key: 1}


def test_a_terminal_failure_counts_as_what_was_done_about_it() -> None:
    again = open_incident(attempts=(attempt(1, AttemptAction.RECREATE_JOB_SET),))
    left = open_incident(closing=Closing(Outcome.FAILED, Reason.PLATFORM_GAVE_UP, at(30)))
    assert covered(Ledger(phase=Phase.DECIDED, incident=again))["terminal:RecreateJobSet"] == 1
    assert covered(Ledger(phase=Phase.HEALTHY, incident=left))["terminal:Leave"] == 1


def test_only_requests_that_were_accepted_count() -> None:
    accepted = RequestAnswer("retry", at(10), True, Reason.RESTARTED_BY_HAND)
    refused = RequestAnswer("restart", at(11), False, Reason.NO_JOB)
    assert covered(Ledger(requests=(accepted,)), Ledger(requests=(accepted, refused))) == {"verb:retry": 1}


def json_patch(*paths: str, op: str = "add") -> list[dict[str, str]]:
    return [{"op": op, "path": path} for path in paths]


def annotation(name: str) -> str:
    return f"/metadata/annotations/{name.replace('/', '~1')}"


@pytest.mark.parametrize(
    ("verb", "resource", "body", "subresource", "action"),
    [
        ("list", JOBS, None, "", "ReadLive"),
        ("delete", JOBS, None, "", "DeleteJob"),
        ("delete", JOB_SETS, None, "", "DeleteJobSet"),
        ("delete", PODS, None, "", "DeletePods"),
        ("delete", PODS, {"gracePeriodSeconds": 0}, "", "ForceDeletePods"),
        ("create", EVENTS, {}, "", "EmitEvent"),
        ("create", RECOVERY_INCIDENTS, {}, "", "RecordIncident"),
        ("patch", CONFIG_MAPS, json_patch("/data/without"), "", "LeaveOutAgent"),
        ("patch", JOBS, json_patch("/spec/backoffLimit"), "", "RaiseBackoffLimit"),
        (
            *("patch", JOBS, {"metadata": {"annotations": {OWN_BACKOFF_LIMIT_ANNOTATION: "6"}}}),
            *("", "ExtendBackoffLimit"),
        ),
        ("patch", JOBS, json_patch("/spec/activeDeadlineSeconds"), "", "FailJobSet"),
        ("patch", JOBS, json_patch(annotation(TOUCHED_ANNOTATION)), "", "TouchJob"),
        ("patch", JOBS, {"metadata": {"annotations": {TORN_DOWN_BY_ANNOTATION: "i-1-1"}}}, "", "ClaimJob"),
        ("patch", JOB_SETS, json_patch("/status"), "status", "FailJobSet"),
        ("patch", JOB_SETS, json_patch("/spec/ttlSecondsAfterFinished"), "", "FailJobSet"),
        (
            "patch",
            TRAIN_JOBS,
            json_patch(annotation(SUSPENDED_BY_ANNOTATION), annotation(RESUME_AT_ANNOTATION), "/spec/suspend"),
            "",
            "SuspendWorkload",
        ),
        (
            "patch",
            TRAIN_JOBS,
            [{"op": "add", "path": "/metadata/annotations", "value": {SUSPENDED_BY_ANNOTATION: "i-1"}}],
            "",
            "SuspendWorkload",
        ),
        ("patch", JOB_SETS, json_patch(annotation(SUSPENDED_BY_ANNOTATION), op="remove"), "", "ResumeWorkload"),
    ],
)
def test_actions_are_known_by_their_requests(
    verb: str, resource: Resource, body: object, subresource: str, action: str
) -> None:
    story = Story()
    story.request(1, verb, resource, "x", body=body, subresource=subresource)
    story.request(2, "patch", LEASES, "x", body=body)
    story.request(3, "list", JOBS, namespace=None)
    counts = coverage_of(story.evidence)
    assert {key: times for key, times in counts.items() if key.startswith("action:")} == {f"action:{action}": 1}


def test_a_dry_run_is_known_by_its_query() -> None:
    story = Story()
    story.request(1, "create", JOBS, "x", query={"dryRun": "All"}, applied=False)
    assert coverage_of(story.evidence)["action:TryBirth"] == 1


def test_what_was_refused_is_no_action() -> None:
    story = Story()
    story.request(1, "delete", JOBS, "x", code=409, applied=False)
    story.request(2, "delete", JOBS, "x", code=None, applied=True)
    assert coverage_of(story.evidence)["action:DeleteJob"] == 1


def test_every_action_can_be_told_from_a_request() -> None:
    tested = {parameters[-1] for parameters in test_actions_are_known_by_their_requests.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    by_what_they_change = {"ChangeFleet", "CountIncidents"}
    assert tested | by_what_they_change | {"TryBirth"} == {action.__name__ for action in get_args(actions.Action)}


def test_writes_of_the_fleets_ledger_are_known_by_what_they_change() -> None:
    story = Story()
    counted = {minute_of(at(1)): mark_of(("workload", 1, at(0)))}
    suspicion = Suspicion("gpu-1", "i-1", at(0), "an exit", "ml")
    suspected = FleetLedger(suspicions=(suspicion,))
    both = msgspec.structs.replace(suspected, totals=FleetTotals(counted=counted))
    for seconds, ledger in enumerate((FleetLedger(), suspected, both)):
        story.change(seconds, "MODIFIED", RECOVERY_CONFIGS, {"status": msgspec.to_builtins(ledger)})
    counts = coverage_of(story.evidence)
    found = {key: times for key, times in counts.items() if key.startswith("action:")}
    assert found == {"action:ChangeFleet": 1, "action:CountIncidents": 1}
