"""The agent keeps a group from starting: it is created again without the agent, once. Facts in, plan out."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, LeaveOutAgent, Plan
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode, Restart
from tests.unit.core.agents import injected, left_out, waits
from tests.unit.core.diagnosis.test_agent_blocked import PULL, shell_missing, starting
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

LEAVE_OUT = LeaveOutAgent(epoch=1, namespace="ml", job_set="train")


def pulling(world: World | None = None) -> World:
    """Rank 2 waits for the agent's image."""
    return waits(starting() if world is None else world, 2, "ErrImagePull", PULL)


def written(plan: Plan) -> list[type]:
    """The writes about the workload and the component, in their order."""
    return [type(each) for each in plan.actions if isinstance(each, LeaveOutAgent | DeleteJob)]


def test_after_a_minute_the_job_is_created_again_without_the_agent() -> None:
    one = Controller()
    plan = one.reconcile(pulling(), 59)
    assert (one.ledger.incident, plan.reason, plan.requeue_at) == (None, Reason.NOT_STARTED, at(60))
    plan = one.reconcile(pulling(), 60)
    assert written(plan) == [LeaveOutAgent, DeleteJob], "JobSet may create the next Job as soon as this one is deleted"
    assert plan.actions[0] == LEAVE_OUT
    assert (one.phase(), one.ledger.agent_left_out, one.ledger.totals.charged) == (Phase.DECIDED, True, 0)
    [attempt] = one.incident.attempts
    assert (attempt.action, attempt.reason) == (AttemptAction.RECREATE_GROUP, Reason.AGENT_BLOCKS_START)
    assert one.events == ["RecreatingGroup"]
    assert "created without the agent" in attempt.message


def test_the_incident_ends_when_the_group_runs() -> None:
    one = Controller()
    one.reconcile(pulling(), 60)
    world = left_out(pulling()).job_deleted(61).recreated(63).all_scheduled(63)
    one.reconcile(world, 64)
    one.settle(world.all_ready(66), 67)
    [incident] = one.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.suspects, incident.charged) == (Outcome.RECOVERED, (), False)
    assert one.done.count(LEAVE_OUT) == 1


@pytest.mark.parametrize("lost_after", ["the ledger", "the parameters"])
def test_a_crash_between_two_writes_repeats_the_rest_of_them(lost_after: str) -> None:
    """The parameters are written again: that the job is named already is seen only there."""
    one = Controller()
    plan = one.plan(pulling(), 60)
    one.write(plan)
    one.done += plan.actions[:1] if lost_after == "the parameters" else ()
    again = Controller(one.policy, one.ledger)
    plan = again.reconcile(pulling(), 65)
    assert written(plan) == [LeaveOutAgent, DeleteJob]
    assert plan.actions[0] == LEAVE_OUT
    assert (again.ledger.epoch, len(again.incident.attempts)) == (1, 1)


def test_after_the_delete_nothing_is_left_to_do() -> None:
    one = Controller()
    one.reconcile(pulling(), 60)
    world = left_out(pulling()).job_deleted(61)
    assert written(one.reconcile(world, 62)) == []
    assert written(one.reconcile(world.recreated(63), 64)) == []


def test_a_job_that_is_blocked_again_is_left_alone() -> None:
    """The API server may not have seen the new parameters yet when it admitted the Job."""
    one = Controller()
    one.reconcile(pulling(), 60)
    world = pulling(pulling().job_deleted(61).recreated(63).all_scheduled(63))
    for seconds in (64, 130, 400):
        assert written(one.reconcile(world, seconds)) == []
    assert len(one.incident.attempts) == 1


def test_another_restart_in_the_same_incident_leaves_it_out_again() -> None:
    one = Controller()
    one.reconcile(pulling(), 60)
    again = pulling().job_deleted(61).recreated(63).all_started(66)
    assert written(one.reconcile(again.pod_failed(1, 1, 70), 71)) == [LeaveOutAgent, DeleteJob]


def test_a_job_that_a_person_gave_the_agent_again_keeps_it() -> None:
    one = Controller()
    one.reconcile(pulling(), 60)
    again = pulling().job_deleted(61).recreated(63).all_ready(66)
    one.settle(again, 67)
    assert written(one.reconcile(again.pod_failed(1, 1, 100), 101)) == [DeleteJob]


def test_without_the_agent_a_later_restart_is_like_any_other() -> None:
    one = Controller()
    one.reconcile(pulling(), 60)
    again = left_out(pulling()).job_deleted(61).recreated(63).all_ready(66)
    one.settle(again, 67)
    assert written(one.reconcile(again.pod_failed(1, 1, 100), 101)) == [DeleteJob]


def test_a_missing_shell_is_not_waited_for() -> None:
    one = Controller()
    plan = one.reconcile(shell_missing(starting(), 1), 6)
    assert written(plan) == [LeaveOutAgent, DeleteJob]
    assert one.incident.attempts[0].reason is Reason.AGENT_BLOCKS_START


def test_while_the_group_starts_it_is_created_again_before_start_times_out() -> None:
    """The failure is charged once. The attempt without the agent has no backoff."""
    one = Controller(policy(backoff=Backoff(initial=timedelta(seconds=30))))
    lost = injected(training()).pod_failed(1, 1, 0)
    one.reconcile(lost, 1)
    world = pulling(lost.job_deleted(2).recreated(40).all_scheduled(40))
    one.reconcile(world, 80)
    plan = one.reconcile(world, 99)
    assert (plan.requeue_at, written(plan)) == (at(100), [])
    plan = one.reconcile(world, 100)
    assert written(plan) == [LeaveOutAgent, DeleteJob]
    assert [each.reason for each in one.incident.attempts] == [Reason.DEFAULT_RESTART, Reason.AGENT_BLOCKS_START]
    assert (one.ledger.totals.charged, one.incident.suspension) == (1, None)
    world = left_out(world).job_deleted(101).recreated(103).all_scheduled(103)
    one.settle(world.all_ready(106), 107)
    assert one.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "why", ["observe", "none", "paused", "globally paused", "no endpoint", "own image", "no policy"]
)
def test_it_is_only_said(why: str) -> None:
    world, one = pulling(), Controller()
    match why:
        case "observe":
            one = Controller(policy(Mode.OBSERVE))
        case "none":
            one = Controller(policy(restart=Restart.NONE))
        case "paused":
            world = world.paused()
        case "globally paused":
            one = Controller(policy(global_pause="a person said so"))
        case "no endpoint":
            world = msgspec.structs.replace(world, leaves_out_agents=False)
        case "own image":
            world = waits(starting(), 2, "ErrImagePull", 'failed to pull "train:typo"')
        case "no policy":
            one.policy = None
    for seconds in (61, 600):
        one.reconcile(world, seconds)
    assert (one.done, one.ledger.incident) == ([], None)


def test_the_budget_does_not_matter() -> None:
    one = Controller(policy(limit=0))
    assert written(one.reconcile(pulling(), 60)) == [LeaveOutAgent, DeleteJob]


def test_a_policy_that_waits_for_every_member_does_not_wait_for_this_one() -> None:
    one = Controller(policy(restart=Restart.RECREATE_GROUP_AFTER_START))
    assert written(one.reconcile(pulling(), 60)) == [LeaveOutAgent, DeleteJob]


def test_with_a_short_grace_period_the_parameters_are_written_before_the_pods_are_deleted() -> None:
    one = Controller(policy(grace_seconds=5))
    plan = one.reconcile(pulling(), 60)
    assert [type(each).__name__ for each in plan.actions][:3] == ["LeaveOutAgent", "ClaimJob", "DeletePods"]
    claimed = pulling().with_job(torn_down_by=f"{one.incident.id}-1")
    assert written(one.reconcile(claimed, 61)) == [LeaveOutAgent, DeleteJob]
