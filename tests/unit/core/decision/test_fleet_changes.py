"""What bars the controller from acting on a job, before an incident and during one."""

import msgspec
import pytest

from recovery.core.decision.decide import decide
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError, Restart
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import given_up, training
from tests.unit.core.world import World, at

ENDS: dict[str, tuple[World, str, str]] = {
    "deleted": (
        training().pod_deleted(3, 0).with_workload(deleting_since=at(1)),
        "JobDeleted",
        "the TrainJob is being deleted",
    ),
    "suspended": (training().pod_deleted(3, 0).suspended(), "JobSuspended", "the TrainJob is suspended"),
    "its JobSet is missing": (
        msgspec.structs.replace(given_up(training().pod_deleted(3, 0)), jobset=None),
        "NoJobSet",
        "the TrainJob has no JobSet",
    ),
    "its JobSet is being deleted": (
        given_up(training().pod_deleted(3, 0)).with_jobset(deleting_since=at(1)),
        "JobSetDeleted",
        "JobSet train is being deleted",
    ),
    "completed": (training().pod_deleted(3, 0).jobset_completed(), "JobComplete", "JobSet train is Completed"),
}


@pytest.mark.parametrize(("world", "why", "says"), ENDS.values(), ids=ENDS)
def test_such_a_job_is_left_alone(world: World, why: str, says: str) -> None:
    controller = Controller()
    assert controller.reconcile(world, 2).message == says
    assert controller.ledger == Ledger()
    assert controller.live_reads == 0


@pytest.mark.parametrize(("world", "why", "says"), ENDS.values(), ids=ENDS)
def test_it_supersedes_an_open_incident(world: World, why: str, says: str) -> None:
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    controller.settle(world, 2)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, why)
    assert incident.message.endswith(says)
    assert controller.phase() is Phase.HEALTHY
    assert len(controller.triggers) == 1


def test_nothing_is_done_without_a_policy() -> None:
    snapshot = training().pod_deleted(3, 0).snapshot()
    plan = decide(snapshot, Ledger(), None, at(1))
    assert (plan.ledger, plan.actions, plan.message) == (Ledger(), (), "no RecoveryPolicy applies to this job")


def test_nothing_is_done_under_a_policy_that_cannot_be_read() -> None:
    plan = decide(training().pod_deleted(3, 0).snapshot(), Ledger(), PolicyError("spec.budget.limit: -1"), at(1))
    assert plan.actions == ()
    assert plan.message == "the RecoveryPolicy that applies cannot be used: spec.budget.limit: -1"


def test_a_workload_that_is_gone() -> None:
    gone = msgspec.structs.replace(training(), workload=None)
    assert Controller().reconcile(gone, 1).reason is Reason.WORKLOAD_GONE


def test_a_complete_train_job() -> None:
    done = msgspec.structs.replace(training().success_criteria_met(0).job.conditions[0], type="Complete")
    world = training().pod_deleted(3, 0).with_workload(conditions=(done,))
    assert Controller().reconcile(world, 1).reason is Reason.JOB_COMPLETE


# --- finishing -----------------------------------------------------------------------------------------------------

FINISHING = {
    "a member has succeeded": (
        training().pod_deleted(3, 0).succeeded(1),
        "pod train-node-0-1-10 has Succeeded, so the training is finishing",
    ),
    "the Job counts a success": (
        training().pod_deleted(3, 0).with_job(succeeded=1),
        "a pod of Job train-node-0 has Succeeded, so the training is finishing",
    ),
    "its success criteria are met": (
        training().pod_deleted(3, 0).success_criteria_met(1),
        "Job train-node-0 has met its success criteria",
    ),
}


@pytest.mark.parametrize(("world", "says"), FINISHING.values(), ids=FINISHING)
def test_a_finishing_job_loses_nothing_that_it_needs(world: World, says: str) -> None:
    controller = Controller()
    assert controller.reconcile(world, 2).reason is Reason.JOB_FINISHING
    assert controller.ledger == Ledger()


@pytest.mark.parametrize(("world", "says"), FINISHING.values(), ids=FINISHING)
def test_success_that_only_the_live_read_shows_stops_the_trigger(world: World, says: str) -> None:
    controller = Controller()
    stale = training().pod_deleted(3, 0)
    plan = controller.plan_on(stale.snapshot(), world.snapshot(live=True), 2)
    assert plan.message.endswith(f"{says}: the group is not restarted for 10m")
    assert plan.ledger == Ledger()


@pytest.mark.parametrize(("world", "says"), FINISHING.values(), ids=FINISHING)
def test_success_after_the_ledger_was_written_still_stops_the_trigger(world: World, says: str) -> None:
    controller = Controller()
    controller.write(controller.plan(training().pod_deleted(3, 0), 1))
    controller.settle(world, 2)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, "JobFinishing")
    assert controller.triggers == []


@pytest.mark.parametrize(("world", "says"), FINISHING.values(), ids=FINISHING)
def test_success_while_held_ends_the_incident(world: World, says: str) -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(training().pod_deleted(3, 0), 1)
    controller.settle(world, 2)
    assert controller.recorded[0].message.endswith(f"{says}: the group is not restarted")


def test_success_of_the_restarted_job_ends_no_incident_early() -> None:
    """A rank that has Succeeded needs no restart."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_ready(20)
    for index in range(4):
        back = back.succeeded(index)
    controller.settle(back, 30)
    (incident,) = controller.recorded
    assert incident.closing is not None


# --- Observe and None ----------------------------------------------------------------------------------------------


def test_observe_decides_everything_and_does_nothing() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    plan = controller.reconcile(world, 1)
    assert plan.message == (
        "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; policy default was in mode Observe: Enforce would "
        "have deleted Job train-node-0, so that all 4 ranks restart together"
    )
    controller.settle(world.came_back(3, 30, 40), 41)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.OBSERVED, "ObserveMode")
    assert incident.closing.ended_at == at(41)
    assert controller.workload_actions == []
    assert controller.ledger.epoch == controller.ledger.totals.charged == 0
    assert controller.events == ["MemberLost", "IncidentObserved", "GroupBroken"]


def test_a_cascade_under_observe_is_one_incident() -> None:
    controller = observing()
    world = training(8, restart_policy="OnFailure")
    for index in range(8):
        world = world.container_restarted(index, 134, index * 0.4, back_after=0)
        controller.settle(world, index * 0.4 + 0.3)
    controller.settle(world, 12)
    assert controller.ledger.totals.incidents == 1
    assert len(controller.recorded[0].evidence) == 8


def test_late_evidence_of_something_earlier_belongs_to_the_same_incident() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    late = world.evicted(1, -2)
    controller.reconcile(late, 2)
    assert len(controller.incident.evidence) == 2
    controller.settle(late.came_back(3, 30, 40).came_back(1, 30, 40), 41)
    assert controller.ledger.totals.incidents == 1


def test_restart_none_leaves_it_to_kubernetes() -> None:
    controller = Controller(policy(restart=Restart.NONE))
    world = training().pod_deleted(3, 0)
    plan = controller.reconcile(world, 1)
    assert plan.reason is Reason.RESTART_NONE
    controller.settle(world.came_back(3, 30, 40), 41)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "LeftToKubernetes"
    assert controller.workload_actions == []


def adopted(controller: Controller) -> World:
    """Someone else deleted the Job. The group has been recreated and has lost a member again."""
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_started(20)
    controller.reconcile(back, 21)
    assert controller.ledger.epoch == 1
    return back.pod_deleted(1, 25)


def test_restart_none_means_it_after_an_adopted_restart_as_well() -> None:
    controller = Controller(policy(restart=Restart.NONE))
    controller.reconcile(adopted(controller), 26)
    assert controller.workload_actions == []


def test_an_observed_incident_does_not_begin_to_act() -> None:
    controller = observing()
    lost = adopted(controller)
    controller.policy = policy(since=22)
    controller.reconcile(lost, 26)
    assert controller.workload_actions == []


def test_a_loss_after_the_switch_to_enforce_does_not_end_in_an_observed_incident() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.policy = policy(since=10)
    controller.reconcile(world, 11)
    assert controller.workload_actions == []
    lost = world.pod_deleted(1, 20)
    controller.settle(lost, 21)
    controller.reconcile(lost, 21)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "ModeSwitched"
    assert len(controller.triggers) == 1
    assert controller.incident.suspects[0].index == 1


# --- in the middle of an incident ----------------------------------------------------------------------------------

BARS: dict[str, tuple[Policy | PolicyError | None, bool, str]] = {
    "paused": (policy(), True, "the job is paused by annotation"),
    "switched to Observe": (policy(Mode.OBSERVE), False, "policy default was switched to Observe"),
    "policy unreadable": (PolicyError("spec: no"), False, "the RecoveryPolicy cannot be used: spec: no"),
    "policy deleted": (None, False, "the RecoveryPolicy was deleted or no longer selects this job"),
}


@pytest.mark.parametrize(("now_", "paused", "says"), BARS.values(), ids=BARS)
def test_it_acts_before_the_next_write(now_: Policy | PolicyError | None, paused: bool, says: str) -> None:
    """The ledger is written, and the trigger is not sent."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.write(controller.plan(world, 1))
    controller.policy = now_
    plan = controller.reconcile(world.paused() if paused else world, 2)
    assert plan.message.endswith(f"the restart is decided but not carried out, because {says}")
    assert controller.workload_actions == []


@pytest.mark.parametrize(("now_", "paused", "says"), BARS.values(), ids=BARS)
def test_it_stops_the_pod_deletes_as_well(now_: Policy | PolicyError | None, paused: bool, says: str) -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.write(controller.plan(world, 1))
    controller.policy = now_
    going = world.job_deleted(1)
    controller.reconcile(going.paused() if paused else going, 2)
    assert controller.workload_actions == []
    assert controller.phase() is Phase.TEARING_DOWN


@pytest.mark.parametrize(("now_", "paused", "says"), BARS.values(), ids=BARS)
def test_it_keeps_a_held_group_from_its_trigger(now_: Policy | PolicyError | None, paused: bool, says: str) -> None:
    controller = Controller(policy(limit=1, window_seconds=100))
    world = training().pod_deleted(3, 0)
    controller.ledger = spent(controller.ledger)
    controller.reconcile(world, 1)
    assert controller.phase() is Phase.HELD
    controller.policy = now_
    plan = controller.reconcile(world.paused() if paused else world, 200)
    assert plan.message.endswith(f"nothing is done, because {says}")
    assert controller.workload_actions == []


def spent(ledger: Ledger) -> Ledger:
    budget = msgspec.structs.replace(ledger.budget, charges=(at(-10),), limit=1)
    return msgspec.structs.replace(ledger, budget=budget)


@pytest.mark.parametrize(("now_", "paused", "says"), BARS.values(), ids=BARS)
def test_a_second_loss_waits_and_is_not_forgotten(now_: Policy | PolicyError | None, paused: bool, says: str) -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    lost = world.recreated(10).all_started(20).pod_deleted(1, 30)
    controller.policy = now_
    plan = controller.reconcile(lost.paused() if paused else lost, 31)
    assert plan.message.endswith(f"nothing is done, because {says}")
    assert len(controller.triggers) == 1
    controller.policy = policy()
    controller.reconcile(lost, 40)
    assert len(controller.triggers) == 2


def test_carried_out_after_all_it_says_so_again() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    decided = controller.plan(world, 1)
    controller.write(decided)
    controller.reconcile(world.paused(), 2)
    plan = controller.reconcile(world, 3)
    assert plan.message == decided.message
    assert len(controller.triggers) == 1


def test_a_trigger_that_was_kept_back_is_not_sent_to_a_group_that_has_long_been_whole() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.write(controller.plan(world, 1))
    whole = world.came_back(3, 30, 40)
    waiting = controller.reconcile(whole.paused(), 100)
    assert waiting.requeue_at == at(901)
    controller.settle(whole, 1000)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, "RunsWholeAgain")
    assert controller.triggers == []


def kept_back(*replaced: int, paused: bool = True) -> tuple[Controller, World]:
    """The process ended when the ledger held the restart. The ranks in `replaced` are new and Ready since 31 s."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.write(controller.plan(world, 1))
    for index in range(3):
        world = world.pod_failed(index, 134, 10) if index in replaced else world
    for index in replaced:
        world = world.came_back(index, 20, 30)
    return controller, world.paused() if paused else world


@pytest.mark.parametrize("paused", [True, False])
def test_a_trigger_that_was_kept_back_is_not_sent_once_all_ranks_have_met(paused: bool) -> None:
    """Seed 6606: the idle time ends when the ranks meet, not when the pause ends."""
    controller, world = kept_back(0, 1, 2, 3, paused=paused)
    controller.settle(world, 200)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.ended_at) == (Outcome.SUPERSEDED, at(31))
    assert controller.triggers == []
    assert controller.settle(world.paused("false"), 201).reason is Reason.NO_FAILURE, "all of it is dealt with"


def test_a_trigger_that_was_kept_back_is_sent_where_a_rank_may_hang() -> None:
    controller, world = kept_back(1, 2, 3)
    controller.reconcile(world, 200)
    assert controller.ledger.incident is not None
    controller.reconcile(world.paused("false"), 201)
    assert len(controller.triggers) == 1


def test_a_restart_by_hand_that_was_kept_back_is_made_although_all_ranks_have_met() -> None:
    controller, world = kept_back(0, 1, 2, 3, paused=False)
    by_hand = msgspec.structs.replace(controller.incident.attempts[-1], reason=Reason.RESTARTED_BY_HAND)
    controller.ledger = controller.ledger.with_incident(attempts=(by_hand,))
    controller.reconcile(world, 200)
    assert len(controller.triggers) == 1


def test_it_is_seen_again_at_the_very_moment_from_which_on_it_is_too_old() -> None:
    controller, world = kept_back(3)
    (requeue_at,) = {controller.reconcile(world, seconds).requeue_at for seconds in (100, 500)}
    assert requeue_at == at(901)
    controller.settle(world, 901)
    assert controller.ledger.incident is None


def test_pause_by_any_value_but_false() -> None:
    lost = training().pod_deleted(3, 0)
    assert Controller().reconcile(lost.paused("please"), 1).reason is Reason.JOB_PAUSED
    resumed = Controller()
    resumed.reconcile(lost.paused("false"), 1)
    assert len(resumed.triggers) == 1


def test_other_fields_of_the_policy_are_pinned() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.policy = policy(limit=10)
    controller.reconcile(world, 2)
    assert controller.phase() is Phase.HELD
    assert controller.triggers == []


def test_a_replaced_jobset_supersedes() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.settle(given_up(world).with_jobset(uid="jobset-2"), 2)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "JobSetReplaced"


STALE = {
    "suspended": training().pod_deleted(3, 0).suspended(),
    "whole": training(),
    "failed": training().pod_deleted(3, 0).jobset_failed(-2000),
    "without a JobSet": msgspec.structs.replace(training(), jobset=None),
    "with another JobSet": training().with_jobset(uid="jobset-0"),
}


@pytest.mark.parametrize("stale", STALE.values(), ids=STALE)
def test_no_incident_is_closed_on_what_only_a_cache_says(stale: World) -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    plan = controller.plan_on(stale.snapshot(), world.snapshot(live=True), 20)
    assert plan.ledger == controller.ledger
    assert controller.live_reads == 2
