"""Mode Observe reports once what Enforce would have decided, with rule, caps and fleet. It does nothing."""

import msgspec
import pytest

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined
from recovery.core.model.ledger import Incident, Outcome
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.plan.actions import ReadLive
from recovery.core.policy.spec import Mode, OnExhausted, OnTerminalFailure, Restart
from tests.unit.core.decision.test_verdicts import MAY, TRUSTED, on_exit
from tests.unit.core.diagnosis.test_losses import with_device
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

BAD_GPU = on_exit(42, RuleAction.REPLACE_NODE, name="bad-gpu")
FULL = FleetLedger(quarantined=tuple(Quarantined(f"gpu-{number}", "u", "bad", at(-60)) for number in range(50, 55)))
"""The number of nodes that `MAY` allows in a cluster of 100 nodes."""
RESTART = "deleted Job train-node-0, so that all 4 ranks restart together"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def failed(code: int = 42, *, message: str = "") -> World:
    return training().pod_failed(2, code, 0, message=message)


def recorded(controller: Controller, world: World) -> Incident:
    """The record of the incident, written once the Job has replaced the member."""
    controller.reconcile(world, 1)
    controller.settle(world, 8)
    controller.settle(world.came_back(2, 10, 20), 30)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.OBSERVED, "ObserveMode")
    assert controller.workload_actions == []
    assert controller.fleet_changes == []
    return incident


VERDICTS: dict[str, tuple[dict[str, object], World, str, str, Reason | None]] = {
    "a rule replaces the node": (
        {"rules": (BAD_GPU,), "limits": MAY},
        failed(),
        "bad-gpu",
        f"Enforce would have quarantined node gpu-2 and {RESTART} (rule bad-gpu (",
        None,
    ),
    "the cap is reached": (
        {"rules": (BAD_GPU,), "limits": MAY, "fleet": FULL},
        failed(),
        "bad-gpu",
        f"Enforce would have {RESTART} (rule bad-gpu (",
        Reason.QUARANTINE_CAP,
    ),
    "it is not allowed": (
        {"rules": (BAD_GPU,), "limits": FleetLimits()},
        failed(),
        "bad-gpu",
        f"Enforce would have {RESTART} (rule bad-gpu (",
        Reason.QUARANTINE_NOT_ALLOWED,
    ),
    "the group needs the node": (
        {"rules": (BAD_GPU,), "limits": MAY},
        msgspec.structs.replace(failed(), cluster_nodes=4),
        "bad-gpu",
        f"Enforce would have {RESTART} (rule bad-gpu (",
        Reason.QUARANTINE_LAST_NODES,
    ),
    "proof against the node": (
        {"limits": TRUSTED},
        failed(134, message=XID),
        "",
        f"Enforce would have quarantined node gpu-2 and {RESTART} (no rule matched, so the default of policy default "
        "(RecreateGroupOnPodRestart) applies, and XidOffTheBus is proof enough against node gpu-2)",
        None,
    ),
    "an Unhealthy device is proof as well": (
        {"limits": MAY},
        with_device(failed(1), 2, "nvidia.com/gpu: GPU-1f2e"),
        "",
        f"Enforce would have quarantined node gpu-2 and {RESTART} (no rule matched, so the default of policy default "
        "(RecreateGroupOnPodRestart) applies, and DeviceUnhealthy is proof enough against node gpu-2)",
        None,
    ),
    "the default": ({}, failed(1), "", f"policy default was in mode Observe: Enforce would have {RESTART};", None),
    "a rule is free of charge": (
        {"rules": (on_exit(42, RuleAction.RECREATE_GROUP, charge=False),), "limit": 0},
        failed(),
        "mine",
        f"Enforce would have {RESTART}, not charged to the budget (rule mine (",
        None,
    ),
    "the job is made to fail": (
        {"rules": (on_exit(42, RuleAction.FAIL_JOB),), "may_fail_jobs": True},
        failed(),
        "mine",
        "Enforce would have failed the JobSet (rule mine (",
        None,
    ),
    "the job may not be made to fail": (
        {"rules": (on_exit(42, RuleAction.FAIL_JOB),)},
        failed(),
        "mine",
        "Enforce would have held the group, because rule mine (",
        Reason.RULE_FAIL_JOB_NOT_ALLOWED,
    ),
    "the budget is exhausted": (
        {"limit": 0, "on_exhausted": OnExhausted.SUSPEND},
        failed(),
        "",
        "Enforce would have held the group (onExhausted: Suspend), because the budget of policy default is exhausted",
        None,
    ),
    "a rule leaves it to Kubernetes": (
        {"rules": (on_exit(42, RuleAction.IGNORE),)},
        failed(),
        "mine",
        "Enforce would have left it to Kubernetes (rule mine (",
        None,
    ),
}


@pytest.mark.parametrize(("settings", "world", "rule", "says", "considered"), VERDICTS.values(), ids=VERDICTS)
def test_the_record_tells_the_verdict_of_enforce(
    settings: dict[str, object], world: World, rule: str, says: str, considered: Reason | None
) -> None:
    incident = recorded(observing(**settings), world)
    assert incident.rule == rule
    assert says in incident.message
    assert [each.reason for each in incident.considered] == ([considered] if considered is not None else [])


@pytest.mark.parametrize(("settings", "world", "rule", "says", "considered"), VERDICTS.values(), ids=VERDICTS)
def test_it_is_the_verdict_that_enforce_acts_on(
    settings: dict[str, object], world: World, rule: str, says: str, considered: Reason | None
) -> None:
    watching, acting = observing(**settings), Controller(policy(**settings))  # type: ignore[arg-type]
    for seconds in (1, 8):
        watching.reconcile(world, seconds)
        acting.reconcile(world, seconds)
    seen, done = watching.incident, acting.incident
    assert (seen.rule, seen.considered, seen.storm) == (done.rule, done.considered, done.storm)
    held_or_failing = "FailJob" if done.step.fails_job else "Hold" if acting.phase() == "Held" else ""
    action = done.attempts[-1].action if done.attempts else ""
    assert (seen.would or "None") == (held_or_failing or action)


def test_a_storm_is_waited_for_and_told_under_observe() -> None:
    controller = observing(limits=MAY)
    lost = training().node_deleted("gpu-2").nodes_lost(("gpu-2", 0), ("gpu-70", 1), ("gpu-71", 2))
    first = controller.reconcile(lost, 3)
    assert controller.incident.disruption_class == DisruptionClass.NODE_LOST
    assert first.reason is Reason.STORM
    assert controller.incident.would == ""
    controller.reconcile(lost, 20)
    assert controller.incident.storm
    assert f"Enforce would have {RESTART}" in controller.incident.message


def test_what_is_decided_once_stands_though_caps_fill_and_pods_go() -> None:
    controller = observing(rules=(BAD_GPU,), limits=MAY)
    controller.reconcile(failed(), 1)
    said = controller.incident.message
    assert controller.reconcile(failed(), 2).requeue_at is None
    controller.policy = policy(Mode.OBSERVE, rules=(BAD_GPU,), limits=MAY, fleet=FULL)
    controller.reconcile(failed().pod_failed(1, 1, 20), 21)
    assert len(controller.incident.evidence) == 2
    controller.reconcile(failed().replaced(2, 30), 31)
    assert (controller.incident.message, controller.incident.rule) == (said, "bad-gpu")
    assert controller.incident.considered == ()


def test_the_verdict_is_passed_on_live_facts_only() -> None:
    """The cache does not hold the fleet, so a verdict on cached facts could differ from that of Enforce."""
    rules = (Rule("wait", RuleAction.FAIL_JOB, When(on_class=("OutOfMemory",))), BAD_GPU)
    controller = observing(rules=rules, limits=MAY, fleet=FULL)
    controller.reconcile(failed(), 1)
    assert controller.incident.would == "", "a cause that FailJob is for may still come in"
    reads = controller.live_reads
    controller.reconcile(failed(), 4)
    assert controller.live_reads == reads + 1
    assert "quarantine cap reached" in controller.incident.message


def test_the_verdict_is_recorded_for_a_group_that_runs_whole_before_it() -> None:
    """A container restarts in place while the policy waits 30 s for a cause."""
    slow = msgspec.structs.replace(
        policy(Mode.OBSERVE, rules=(on_exit(42, RuleAction.IGNORE), on_exit(134, RuleAction.REPLACE_NODE)), limits=MAY),
        settle=at(30) - at(0),
    )
    controller = Controller(slow)
    world = training(restart_policy="OnFailure").container_restarted(2, 134, 0, back_after=1)
    for seconds in (2, 10, 20):
        controller.reconcile(world, seconds)
        assert controller.incident.reason is Reason.SETTLING
    controller.reconcile(world, 32)
    controller.settle(world, 32)
    (incident,) = controller.recorded
    assert incident.rule == "mine"
    assert f"Enforce would have quarantined node gpu-2 and {RESTART}" in incident.message


def test_a_restart_by_another_client_keeps_the_message_of_what_enforce_would_have_done() -> None:
    controller = observing(rules=(BAD_GPU,), limits=MAY)
    controller.reconcile(failed(), 1)
    world = failed().job_deleted(100)
    controller.reconcile(world, 101)
    controller.settle(world.recreated(110).all_ready(130), 131)
    (incident,) = controller.recorded
    assert incident.rule == "bad-gpu"
    assert f"Enforce would have quarantined node gpu-2 and {RESTART}" in incident.message
    assert "another client deleted the group's Job: adopted as this incident's restart" in incident.message


def test_under_restart_none_enforce_would_do_nothing_and_that_is_said() -> None:
    controller = observing(restart=Restart.NONE)
    controller.reconcile(failed(), 1)
    assert controller.incident.reason is Reason.RESTART_NONE
    assert controller.incident.would == ""


@pytest.mark.parametrize(
    ("now", "kind", "limit", "ends"),
    [
        (Mode.OBSERVE, "TrainJob", 10, "so that Trainer creates it again"),
        (Mode.ENFORCE, "TrainJob", 10, "the controller leaves it as it is"),
        (Mode.OBSERVE, "JobSet", 10, "because without a TrainJob nothing would create it again"),
        (Mode.OBSERVE, "TrainJob", 0, "because the budget of policy default is exhausted (limit 0 within 24h)"),
    ],
    ids=["Observe", "Enforce by then", "nobody would make it anew", "the budget is exhausted"],
)
def test_of_a_failed_job_set_it_is_said_what_enforce_would_do_only_where_it_would(
    now: Mode, kind: str, limit: int, ends: str
) -> None:
    settings = {"on_terminal_failure": OnTerminalFailure.RECREATE_JOB_SET, "limit": limit}
    one = observing(**settings)
    world = training().with_workload(kind=kind).pod_failed(2, 1, 0)
    one.reconcile(world, 1)
    one.policy = policy(now, since=2 if now is Mode.ENFORCE else -86_400, **settings)  # type: ignore[arg-type]
    one.settle(world.jobset_failed(5), 6)
    (incident,) = one.recorded
    assert incident.reason is Reason.PLATFORM_GAVE_UP
    assert incident.message.endswith(ends)
    assert one.workload_actions == []


def test_a_node_that_enforce_could_not_quarantine_is_no_warning_under_observe() -> None:
    controller = observing(rules=(BAD_GPU,), limits=MAY, fleet=FULL)
    recorded(controller, failed())
    assert controller.events == ["MemberLost", "IncidentObserved", "GroupBroken"]


def test_a_loss_under_observe_is_left_to_a_person_once_the_policy_says_enforce() -> None:
    controller = observing()
    controller.reconcile(failed(), 1)
    controller.policy = policy(since=10)
    controller.reconcile(failed(), 11)
    once = controller.incident.message
    assert once.endswith(
        "this happened before policy default was in mode Enforce, so nothing is done; if the ranks hang, run "
        "recovery restart train --reason TEXT"
    )
    controller.reconcile(failed(), 12)
    assert controller.incident.message == once
    assert controller.triggers == []


@pytest.mark.parametrize("mode", Mode)
def test_an_error_that_comes_back_early_on_another_node_would_be_held(mode: Mode) -> None:
    controller = Controller(policy(mode, limits=MAY))
    message = "KeyError: 'lr'"
    world = training(born=-30).pod_failed(2, 134, 0, message=message)
    controller.reconcile(world, 1)
    controller.reconcile(world.job_deleted(5), 6)
    world = world.recreated(10).all_ready(20)
    controller.settle(world, 22)
    controller.reconcile(world.with_pod(2, node="gpu-9").pod_failed(2, 134, 60, message=message), 61)
    assert controller.incident.reason is Reason.SAME_ERROR_AGAIN
    assert controller.incident.would == ("Hold" if mode is Mode.OBSERVE else "")


def test_a_cached_reconcile_that_changes_nothing_reads_nothing_live() -> None:
    controller = observing()
    controller.reconcile(failed(), 1)
    reads = controller.live_reads
    for seconds in (2, 60, 600):
        plan = controller.reconcile(failed(), seconds)
        assert not any(isinstance(action, ReadLive) for action in plan.actions)
    assert controller.live_reads == reads


def test_a_verdict_that_fell_after_the_policy_enforced_for_a_while_comes_too_late_again() -> None:
    """The first time, the policy enforced before the verdict on the loss had been passed."""
    rules = (on_exit(43, RuleAction.FAIL_JOB),)
    observe = policy(Mode.OBSERVE, rules=rules, may_fail_jobs=True)
    controller = Controller(observe)
    controller.reconcile(failed(), 0.5)
    controller.policy = policy(since=0.9, rules=rules, may_fail_jobs=True)
    assert controller.reconcile(failed(), 1).reason is Reason.ENFORCED_TOO_LATE
    controller.policy = observe
    controller.reconcile(failed(), 3)
    assert controller.incident.would == "RecreateGroup"
    controller.policy = policy(since=3.5, rules=rules, may_fail_jobs=True)
    assert controller.reconcile(failed(), 4).reason is Reason.ENFORCED_TOO_LATE
