"""Where the job must not be suspended, the restart itself waits for the backoff, as long as the platform permits."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.model.standing import Standing
from recovery.core.model.step import StepType
from recovery.core.plan.actions import DeleteJob, DeleteJobSet, FailJobSet
from recovery.core.policy.spec import Mode, OnExhausted, OnTerminalFailure
from tests.unit.core.decision.withheld import (
    BACKOFF,
    DEADLINE_SECONDS,
    OWNERS,
    WAITS,
    job,
    recovered_once,
    shipped,
    suspensions,
    waiting,
)
from tests.unit.core.diagnosis.test_native_policies import on_condition
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

# --- it waits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_the_restart_waits_for_the_backoff_and_then_comes_once_without_any_suspension(
    owner: Callable[[World], World],
) -> None:
    controller, world = waiting(owner(training(4, backoff_limit=50)))
    assert (controller.phase(), controller.ledger.next_attempt_at) == (Phase.BACKOFF, at(360.2))
    plan = controller.reconcile(world, 359)
    assert (plan.requeue_at, len(controller.triggers)) == (at(360.2), 1)
    controller.reconcile(world, 360.3)
    assert (controller.phase(), len(controller.triggers)) == (Phase.DECIDED, 2)
    assert controller.ledger.next_attempt_at is None
    controller.reconcile(world, 360.4)
    world = world.job_deleted(360.3).all_deleted(360.4).recreated(362).all_ready(364)
    controller.settle(world, 364.5)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert (controller.ledger.epoch, controller.ledger.totals.charged) == (2, 2)
    assert suspensions(controller) == []


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ("TrainJob", "a suspension would reset the deadline of the TrainJob (3600 s)"),
        ("JobSet", "a suspension would reset the deadline of the JobSet (3600 s)"),
        ("Kueue", "Kueue owns the suspension of this job (queue research)"),
    ],
)
def test_it_is_said_until_when_it_waits_and_why(owner: str, why: str) -> None:
    controller, _ = waiting(OWNERS[owner](training(4, backoff_limit=50)))
    assert controller.incident.message.endswith(
        "; the restart waits until 2026-11-21T12:06:00Z (attempt 2 in a row waits 1m), and the job is not "
        f"suspended meanwhile, because {why}"
    )


def test_its_gpus_idle_meanwhile_and_are_booked_to_the_backoff() -> None:
    controller, world = waiting()
    controller.reconcile(world, 360.3)
    [idle] = [span.idle_gpu_seconds for span in controller.incident.phases if span.phase is Phase.BACKOFF]
    assert idle == pytest.approx(60.1 * 32)


def test_nothing_but_the_ledger_is_written_while_it_waits() -> None:
    controller, world = waiting()
    before = list(controller.workload_actions)
    controller.reconcile(world.pod_gone(2, 310), 310)
    ledger = controller.ledger
    assert ledger.standing is Standing.BROKEN
    controller.reconcile(world.pod_gone(2, 310), 320)
    assert controller.workload_actions == before
    assert controller.ledger == ledger


def test_a_controller_that_is_started_again_meanwhile_goes_on_waiting() -> None:
    controller, world = waiting()
    world = world.came_back(2, 305, 308).controller_restarted()
    successor = Controller(WAITS, controller.ledger)
    plan = successor.reconcile(world, 310)
    assert (plan.requeue_at, successor.phase(), successor.triggers) == (at(360.2), Phase.BACKOFF, [])
    successor.reconcile(world, 360.3)
    assert len(successor.triggers) == 1


def test_a_clock_that_jumped_back_does_not_make_it_wait_for_longer() -> None:
    controller, world = waiting()
    controller.reconcile(world, 200)
    assert len(controller.triggers) == 2


def test_a_deadline_of_the_job_template_counts_for_each_job_so_the_group_is_suspended() -> None:
    world = training(4).with_job(active_deadline_seconds=DEADLINE_SECONDS)
    controller = Controller(WAITS)
    controller.reconcile(recovered_once(controller, world).pod_deleted(2, 300), 300.2)
    assert len(suspensions(controller)) == 1


# --- it does not wait -----------------------------------------------------------------------------------------------


def test_the_shipped_runtime_does_not_survive_the_exits_of_eight_ranks_so_the_trigger_comes_at_once() -> None:
    controller = Controller(WAITS)
    world = recovered_once(controller, shipped(8))
    for rank in range(8):
        world = world.container_exited(rank, 1, 300)
    controller.reconcile(world, 300.2)
    assert len(controller.triggers) == 2
    assert suspensions(controller) == []
    assert controller.incident.message.endswith(
        "no backoff, because a suspension would reset the deadline of the TrainJob (3600 s), and Job "
        "train-node-0 (backoffLimit 6) survives no more exits, and 8 ranks may exit while they wait"
    )


def test_one_exit_of_eight_ranks_is_enough() -> None:
    """The other seven ranks will exit when their collective times out."""
    controller = Controller(WAITS)
    controller.reconcile(recovered_once(controller, shipped(8)).container_exited(0, 1, 300), 300.2)
    assert len(controller.triggers) == 2


@pytest.mark.parametrize("restart_policy", ["Never", "OnFailure"])
def test_four_ranks_survive_the_default_limit_until_one_exit_too_many_comes_in(restart_policy: str) -> None:
    controller = Controller(WAITS)
    world = recovered_once(controller, job(4, backoff_limit=6, restart_policy=restart_policy))
    lose = World.pod_failed if restart_policy == "Never" else World.container_exited
    world = lose(world, 0, 1, 300)
    controller.reconcile(world, 300.2)
    assert (controller.phase(), len(controller.triggers)) == (Phase.BACKOFF, 1)
    for rank in (1, 2):
        world = lose(world, rank, 134, 310)
    controller.reconcile(world, 310.2)
    assert len(controller.triggers) == 2
    assert "the backoff ends early, because Job train-node-0 (backoffLimit 6) survives" in controller.incident.message


def test_a_job_that_begins_to_fail_ends_the_wait() -> None:
    controller, world = waiting()
    controller.reconcile(world.job_failing("BackoffLimitExceeded", 310), 310.2)
    assert len(controller.triggers) == 2


def test_a_restart_that_the_budget_has_held_back_does_not_wait_again() -> None:
    controller = Controller(policy(backoff=BACKOFF, limit=1, window_seconds=600))
    world = recovered_once(controller, job()).pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    assert (controller.phase(), controller.ledger.next_attempt_at) == (Phase.HELD, at(600.2))
    controller.reconcile(world, 601)
    assert len(controller.triggers) == 2


def test_an_exhausted_budget_ends_the_wait() -> None:
    controller = Controller(policy(backoff=BACKOFF, limit=2, window_seconds=600))
    controller, world = waiting(controller=controller)
    charges = (*controller.ledger.budget.charges, at(301))
    spent = msgspec.structs.replace(controller.ledger.budget, charges=charges)
    controller.ledger = msgspec.structs.replace(controller.ledger, budget=spent)
    controller.reconcile(world, 310)
    assert (controller.phase(), controller.incident.step.type) == (Phase.HELD, StepType.HELD)


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.RESTART])
def test_a_person_ends_the_wait(verb: Verb) -> None:
    controller, world = waiting()
    controller.reconcile(world.asked(requests.ANNOTATIONS[verb], requests.encode(Request(at(310)))), 310.1)
    assert len(controller.triggers) == 2
    [answer] = controller.ledger.requests
    assert (answer.verb, answer.accepted) == (verb, True)


def test_a_budget_that_is_reset_begins_the_row_again_and_with_it_ends_the_wait() -> None:
    controller, world = waiting()
    asked = world.asked(requests.ANNOTATIONS[Verb.RESET_BUDGET], requests.encode(Request(at(310))))
    controller.reconcile(asked, 310.1)
    controller.reconcile(asked, 310.2)
    assert len(controller.triggers) == 2


@pytest.mark.parametrize(
    ("world_after", "policy_after"),
    [
        (lambda world: world.asked(PAUSED_ANNOTATION, "true"), WAITS),
        (lambda world: world, policy(Mode.OBSERVE, backoff=BACKOFF)),
        (lambda world: world, None),
    ],
    ids=["paused", "switched to Observe", "policy deleted"],
)
def test_nothing_is_restarted_for_as_long_as_the_controller_is_barred(
    world_after: Callable[[World], World], policy_after: object
) -> None:
    controller, world = waiting()
    controller.policy = policy_after  # type: ignore[assignment]
    controller.reconcile(world_after(world), 361)
    assert len(controller.triggers) == 1
    controller.policy = WAITS
    controller.reconcile(world, 400)
    assert len(controller.triggers) == 2


def test_a_native_decision_on_what_comes_in_meanwhile_ends_the_wait() -> None:
    controller = Controller(WAITS)
    world = recovered_once(controller, job(rules=(on_condition("FailJob"),))).pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    world = world.evicted(1, 310)
    controller.reconcile(world, 310.2)
    assert controller.incident.reason is Reason.POD_FAILURE_POLICY
    assert (controller.phase(), controller.incident.step.type) == (Phase.DECIDED, StepType.ASIDE)
    assert controller.ledger.next_attempt_at is None
    controller.reconcile(world, 361)
    assert len(controller.triggers) == 1


def test_the_rule_that_decided_decides_after_the_wait_as_well() -> None:
    free = Rule("free", RuleAction.RECREATE_GROUP, When(on_exit_codes=ExitCodes(Operator.IN, (42,))), charge=False)
    controller = Controller(policy(backoff=BACKOFF, rules=(free,)))
    world = recovered_once(controller, job()).pod_failed(2, 42, 300)
    controller.reconcile(world, 300.2)
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world, 360.3)
    assert len(controller.triggers) == 2
    assert (controller.incident.rule, controller.incident.charged) == ("free", False)


def test_a_user_who_suspends_the_job_meanwhile_has_the_last_word() -> None:
    controller, world = waiting()
    controller.settle(world.suspended(), 310)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.SUPERSEDED, "JobSuspended")


def test_a_job_set_that_has_failed_for_good_is_recreated_after_the_backoff() -> None:
    controller = Controller(policy(backoff=BACKOFF, on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET))
    world = recovered_once(controller, job()).pod_failed(2, 1, 300)
    world = world.job_failing("BackoffLimitExceeded", 300, finally_=True).jobset_failed(301)
    controller.reconcile(world, 301.2)
    assert (controller.phase(), controller.ledger.next_attempt_at) == (Phase.BACKOFF, at(361.2))
    plan = controller.reconcile(world, 361.3)
    assert isinstance(plan.actions[0], DeleteJobSet)
    assert suspensions(controller) == []


@pytest.mark.parametrize("owner", ["TrainJob", "JobSet"])
def test_an_exhausted_budget_that_would_suspend_only_holds(owner: str) -> None:
    controller = Controller(policy(limit=0, on_exhausted=OnExhausted.SUSPEND))
    plan = controller.reconcile(OWNERS[owner](training(4)).pod_deleted(3, 0), 1)
    assert (controller.phase(), controller.workload_actions) == (Phase.HELD, [])
    why = f"a suspension would reset the deadline of the {owner} (3600 s)"
    assert plan.message.endswith(f"the job is not suspended, because {why}")


def test_an_exhausted_budget_that_fails_the_job_does_so() -> None:
    controller = Controller(policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True))
    controller.reconcile(job().pod_deleted(3, 0), 1)
    assert [type(action) for action in controller.workload_actions] == [FailJobSet]


def test_a_withheld_restart_of_an_open_incident_makes_one_event() -> None:
    controller = Controller(WAITS)
    world = job().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    for seconds in (10.2, 11):
        controller.reconcile(world.pod_deleted(1, 10), seconds)
    assert controller.events.count("RestartWithheld") == 1


def test_a_first_reconcile_that_withholds_is_told_by_the_event_that_begins_the_incident() -> None:
    controller, _ = waiting()
    assert controller.events[-1] == "MemberLost"


def test_a_suspension_of_ours_from_before_the_deadline_was_known_is_ended_in_time() -> None:
    """A controller version that did not know of deadlines wrote the suspension."""
    controller = Controller(WAITS)
    world = recovered_once(controller, training(4)).pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    world = OWNERS["TrainJob"](world.job_deleted(300.3).suspended_by(controller.incident.id).all_deleted(300.4))
    controller.reconcile(world.recreated_suspended(303), 303.1)
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world.recreated_suspended(303), 360.3)
    assert controller.incident.suspension is None
    assert [action for action in controller.triggers if isinstance(action, DeleteJob)][-1].uid == "job-2"
