"""The user's own policies go first: after a native decision the controller stands aside, whatever the decision is."""

import msgspec
import pytest

from recovery.core.model.container_template import ContainerTemplate, RestartRule
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.native_policy_facts import (
    ExitCodesRequirement,
    FailurePolicyFacts,
    PodConditionPattern,
    PodFailureRule,
)
from recovery.core.model.reason import Reason, because
from recovery.core.plan.parts import note
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import OnNativeIgnore
from tests.unit.core.diagnosis.matched import rule
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def on_exit(action: str, *codes: int, operator: str = "In", container: str | None = None) -> PodFailureRule:
    return PodFailureRule(action, ExitCodesRequirement(operator, codes, container))


def on_condition(action: str, type_: str = "DisruptionTarget", status: str = "True") -> PodFailureRule:
    return PodFailureRule(action, on_pod_conditions=(PodConditionPattern(type_, status),))


RESTARTS = FailurePolicyFacts(max_restarts=3)
SIDECAR = ContainerFacts("log-shipper", ready=True, running_since=at(-3590))
FAILED_SIDECAR = ContainerFacts("log-shipper", exit=ExitFacts(1))


def decided_natively(world: World, policy_: Policy | None = None) -> bool:
    """Whether the controller stands aside in this world at its first reconcile. If it does, it must not act."""
    controller = Controller(policy_)
    plan = controller.reconcile(world, 2)
    if controller.triggers:
        return False
    assert "; standing aside, because " in plan.message
    assert controller.workload_actions == []
    assert controller.ledger.epoch == 0
    assert controller.ledger.totals.charged == 0
    assert controller.events == ["MemberLost"]
    return True


IGNORED = {
    "exit code": training(rules=(on_exit("Ignore", 42),)).pod_failed(3, 42, 0),
    "pod condition": training(rules=(on_condition("Ignore"),)).evicted(3, 0),
}
"""Worlds in which a podFailurePolicy rule ignores the only lost pod."""


STANDS_ASIDE = {
    "exit code, FailJob": training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 42, 0),
    "exit code, FailIndex": training(rules=(on_exit("FailIndex", 42),)).pod_failed(3, 42, 0),
    "exit code not in": training(rules=(on_exit("FailJob", 1, 2, operator="NotIn"),)).pod_failed(3, 42, 0),
    "exit code of that container": training(rules=(on_exit("FailJob", 42, container="node"),)).pod_failed(3, 42, 0),
    "an init container's exit code": (
        training(rules=(on_exit("FailJob", 42),))
        .pod_failed(3, 1, 0)
        .with_pod(3, init_containers=training().container_exited(3, 42, 0).pod(3).containers)
    ),
    "the first match of several": training(rules=(on_exit("FailJob", 42), on_exit("Count", 42))).pod_failed(3, 42, 0),
    "pod condition, FailJob": training(rules=(on_condition("FailJob"),)).evicted(3, 0),
    "backoffLimit 0": training(backoff_limit=0).pod_failed(3, 1, 0),
    "backoffLimit 0, only the failing Job is left": training(backoff_limit=0).job_failing("BackoffLimitExceeded", 0),
    "no restarts allowed": training(failure_policy=FailurePolicyFacts(max_restarts=0)).pod_deleted(3, 0),
    "all restarts used": (
        training(failure_policy=RESTARTS)
        .with_jobset(restarts=3, restarts_counted=3)
        .with_job(restart_attempt=3)
        .pod_deleted(3, 0)
    ),
    "the failurePolicy has a failing Job": training(failure_policy=RESTARTS).job_failing("BackoffLimitExceeded", 0),
    "the Job fails by its podFailurePolicy": training().job_failing("PodFailurePolicy", 0),
    "the Job fails by its deadline": training().job_failing("DeadlineExceeded", 0),
    "exit code, FailJob, while a sidecar keeps the pod Running": (
        training(rules=(on_exit("FailJob", 42),)).container_exited(3, 42, 0).with_other(3, SIDECAR)
    ),
    "exit code, FailJob, of a training that had failed before its pod was evicted": (
        training(rules=(on_exit("FailJob", 42),)).container_exited(3, 42, -60).with_other(3, SIDECAR).evicted(3, 0)
    ),
    "exit code of a container beside the training": (
        training(rules=(on_exit("FailJob", 7, container="log-shipper"),))
        .pod_failed(3, 1, 0)
        .with_other(3, ContainerFacts("log-shipper", exit=ExitFacts(7)))
    ),
    "the training had exited 0": training().pod_failed(3, 0, 0).with_other(3, FAILED_SIDECAR),
    "the training had exited 0 before the pod was deleted": (
        training().pod_failed(3, 0, -60).with_other(3, FAILED_SIDECAR).pod_deleted(3, 0)
    ),
    "the training had exited 0 before the pod was evicted": (
        training().pod_failed(3, 0, -60).with_other(3, FAILED_SIDECAR).evicted(3, 0)
    ),
    "the last failure of its index": (
        training().with_job(backoff_limit_per_index=2).with_pod(3, index_failures=2).pod_failed(3, 1, 0)
    ),
    "the first failure of its index, and no second is allowed": (
        training().with_job(backoff_limit_per_index=0).pod_deleted(3, 0)
    ),
    "another index has failed for good": (
        training().with_job(backoff_limit_per_index=2, failed_indexes="1").pod_failed(3, 1, 0)
    ),
    "more indexes failed than the Job may lose": training().job_failing("MaxFailedIndexesExceeded", 0),
    "a rule ignores one pod and fails the Job for another": (
        training(rules=(on_condition("Ignore"), on_exit("FailJob", 42))).evicted(3, 0).pod_failed(2, 42, 1)
    ),
    "a rule ignores one pod and gives up the index of another": (
        training(rules=(on_condition("Ignore"), on_exit("FailIndex", 42))).evicted(3, 0).pod_failed(2, 42, 1)
    ),
    "the training had exited 0 before a rule ignored its pod": (
        training(rules=(on_condition("Ignore"),)).pod_failed(3, 0, -60).with_other(3, FAILED_SIDECAR).evicted(3, 0)
    ),
    "another pod of the cascade fails the Job": (
        training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 1, 0).pod_failed(2, 42, 1)
    ),
}


@pytest.mark.parametrize("world", STANDS_ASIDE.values(), ids=STANDS_ASIDE)
def test_it_stands_aside(world: World) -> None:
    assert decided_natively(world)


ACTS = {
    "Count is the default way": training(rules=(on_exit("Count", 42),)).pod_failed(3, 42, 0),
    "Count goes before the FailJob below it": (
        training(rules=(on_exit("Count", 42), on_exit("FailJob", 42))).pod_failed(3, 42, 0)
    ),
    "a training that exits 0 because its pod is deleted": (
        training().pod_failed(3, 0, 1).with_other(3, FAILED_SIDECAR).pod_deleted(3, 0)
    ),
    "another exit code": training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 137, 0),
    "a listed code under NotIn": training(rules=(on_exit("FailJob", 42, operator="NotIn"),)).pod_failed(3, 42, 0),
    "a clean exit is no exit code": training(rules=(on_exit("FailJob", 1, operator="NotIn"),))
    .pod_failed(3, 1, 0)
    .with_other(3, ContainerFacts("helper", exit=ExitFacts(0))),
    "a pod that was asked to go, and whose training ends after that": (
        training(rules=(on_exit("FailJob", 42),)).container_exited(3, 42, 1).with_other(3, SIDECAR).evicted(3, 0)
    ),
    "another container": training(rules=(on_exit("FailJob", 42, container="sidecar"),)).pod_failed(3, 42, 0),
    "a container that is restarted in place": training(rules=(on_exit("FailJob", 42),))
    .with_job(
        containers=(ContainerTemplate("node", restart_policy="Never", restart_rules=(RestartRule("In", (42,)),)),)
    )
    .container_exited(3, 42, 0),
    "its index may fail once more": (
        training().with_job(backoff_limit_per_index=2).with_pod(3, index_failures=1).pod_failed(3, 1, 0)
    ),
    "a restart in place is no failure of the index": (
        training(restart_policy="OnFailure").with_job(backoff_limit_per_index=0).container_restarted(3, 1, 0)
    ),
    "another condition": training(rules=(on_condition("FailJob", "ConfigIssue"),)).evicted(3, 0),
    "deleted, not disrupted": training(rules=(on_condition("Ignore"),)).pod_deleted(3, 0),
    "a pod that a rule ignores is not to hang the others": IGNORED["pod condition"],
    "a pod whose exit code a rule ignores is not to hang the others": IGNORED["exit code"],
    "backoffLimit 0 does not count a pod that a rule ignores": (
        training(backoff_limit=0, rules=(on_condition("Ignore"),)).evicted(3, 0)
    ),
    "a second pod that no rule ignores": training(rules=(on_condition("Ignore"),)).evicted(3, 0).pod_failed(2, 1, 0),
    "a backoffLimit that ran out": training().job_failing("BackoffLimitExceeded", 0),
    "a backoffLimit that is left": training(backoff_limit=1).pod_failed(3, 1, 0),
    "a failurePolicy without a failing Job": training(failure_policy=RESTARTS).pod_failed(3, 137, 0),
}


@pytest.mark.parametrize("world", ACTS.values(), ids=ACTS)
def test_it_acts(world: World) -> None:
    assert not decided_natively(world)


def test_the_sentence_names_the_rule() -> None:
    world = training(rules=(on_condition("Ignore"), on_exit("FailJob", 42))).pod_failed(3, 42, 0)
    assert Controller().reconcile(world, 1).message == (
        "pod train-node-0-3-10 (rank 3, node gpu-3) failed with exit code 42; standing aside, because podFailurePolicy "
        "rule 1 of Job train-node-0 (action FailJob) matches pod train-node-0-3-10"
    )


def test_fail_job_without_a_failure_policy_ends_as_the_user_wrote() -> None:
    controller = Controller()
    world = training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 42, 0)
    controller.reconcile(world, 1)
    failing = world.job_failing("PodFailurePolicy", 1).all_deleted(1)
    controller.reconcile(failing, 1.5)
    controller.settle(failing.job_failing("PodFailurePolicy", 3, finally_=True).jobset_failed(4), 4.5)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.FAILED, "NativePolicy")
    assert controller.workload_actions == []
    assert controller.ledger.epoch == 0
    assert not incident.charged


def test_fail_job_with_a_failure_policy_that_restarts_is_adopted() -> None:
    controller = Controller()
    world = training(rules=(on_exit("FailJob", 42),), failure_policy=RESTARTS).pod_failed(3, 42, 0)
    controller.reconcile(world, 1)
    failing = world.job_failing("PodFailurePolicy", 1, finally_=True)
    controller.reconcile(failing, 1.5)
    restarting = failing.restarted_by_jobset()
    controller.reconcile(restarting, 2)
    controller.reconcile(restarting.job_deleted(2), 2.5)
    controller.settle(restarting.recreated(10).all_ready(20), 20.5)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    assert [attempt.action for attempt in incident.attempts] == [AttemptAction.NONE, AttemptAction.ADOPTED]
    assert controller.workload_actions == []
    assert controller.ledger.epoch == 1
    assert not incident.charged


def test_what_was_stood_aside_for_stays_so_when_its_evidence_has_gone() -> None:
    """An evicted pod that a rule ignores vanishes, and the controller restarts. The replacement is no new evidence."""
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(rules=(on_condition("Ignore"),)).evicted(3, 0)
    controller.reconcile(world, 1)
    waiting = world.pod_gone(3, 30).replaced(3, 30)
    controller.reconcile(waiting, 31)
    controller.reconcile(waiting.controller_restarted(), 40)
    assert controller.workload_actions == []
    controller.settle(waiting.started(3, 50).pod_ready(3, 50).controller_restarted(), 51)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.OBSERVED, "LeftToKubernetes")
    assert controller.workload_actions == []


def test_a_loss_that_no_rule_ignores_ends_the_standing_aside() -> None:
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(rules=(on_condition("Ignore"),)).evicted(3, 0)
    controller.reconcile(world, 1)
    plan = controller.reconcile(world.pod_failed(1, 134, 40), 41)
    assert len(controller.triggers) == 1
    assert plan.message.startswith("pod train-node-0-1-10 (rank 1, node gpu-1) failed with exit code 134; no rule")
    assert controller.ledger.totals.incidents == 1


def refused(controller: Controller) -> None:
    """The API server refuses what the controller has decided, and the reconciler notes that (`_say_refused`)."""
    why = because(Reason.API_REFUSES, evidence=controller.incident.evidence[0], error="the webhook says no")
    controller.ledger = note(controller.ledger, why)


def test_a_note_about_a_refused_action_does_not_end_it() -> None:
    """The forced deletion of a dead pod was refused, and another controller leads now. What the incident says decides
    nothing: with the note and without it, the loss is left to the platform."""
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(rules=(on_condition("Ignore"),)).evicted(3, 0).node_deleted("gpu-3")
    controller.reconcile(world, 1)
    assert controller.forced == [world.pod(3).name]
    refused(controller)
    registered = msgspec.structs.replace(world, gone_nodes=frozenset())
    waiting = registered.pod_gone(3, 30).replaced(3, 30).controller_restarted()
    controller.reconcile(waiting, 40)
    assert controller.triggers == []
    controller.settle(waiting.started(3, 50).pod_ready(3, 50), 51)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.OBSERVED, "LeftToKubernetes")
    assert controller.triggers == []


def test_a_loss_that_waits_for_its_verdict_waits_after_such_a_note_as_well() -> None:
    """Rank 1 fails while the controller stands aside for rank 3, and the policy puts the verdict off."""
    waits = policy(rules=(rule("Ignore", onClass=["NodeLost"]),), on_native_ignore=OnNativeIgnore.STAND_ASIDE)
    controller = Controller(waits)
    world = training(rules=(on_condition("Ignore"),)).evicted(3, 0)
    controller.reconcile(world, 1)
    world = world.pod_deleted(1, 40)
    controller.reconcile(world, 40.5)
    assert controller.incident.reason is Reason.SETTLING
    refused(controller)
    controller.reconcile(world, 43)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]


def test_a_second_ignored_loss_does_not() -> None:
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(rules=(on_condition("Ignore"),)).evicted(3, 0)
    controller.reconcile(world, 1)
    plan = controller.reconcile(world.evicted(1, 5), 6)
    assert controller.triggers == []
    assert plan.message.startswith("pod train-node-0-3-10 (rank 3, node gpu-3) was disrupted: EvictionByEvictionAPI; ")
    assert "; then pod train-node-0-1-10 (rank 1, node gpu-1) was disrupted: EvictionByEvictionAPI; " in plan.message
    assert len(controller.incident.attempts) == 1


def test_a_group_that_is_whole_at_once_stays_open_until_the_platform_has_had_its_say() -> None:
    """backoffLimit is 0. A rank restarts in place and is Ready at once. Its Job fails a second later: one incident."""
    controller = Controller()
    world = training(backoff_limit=0, restart_policy="OnFailure").container_restarted(3, 1, 0)
    controller.reconcile(world, 1.1)
    plan = controller.reconcile(world, 1.2)
    assert controller.phase() is Phase.DECIDED
    assert plan.requeue_at is not None
    failing = world.job_failing("BackoffLimitExceeded", 2)
    controller.reconcile(failing, 2.5)
    controller.settle(failing.jobset_failed(4), 4.5)
    assert len(controller.recorded) == 1
    assert controller.ledger.totals.incidents == 1


def test_observing_says_so_as_well() -> None:
    controller = observing()
    plan = controller.reconcile(training(backoff_limit=0).pod_failed(3, 1, 0), 1)
    assert "standing aside, because Job train-node-0 has backoffLimit 0" in plan.message
