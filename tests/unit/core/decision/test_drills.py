"""A failure that a drill has named before is a drill: it is repaired as any other, and costs and remembers nothing."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.diagnosis.group_conditions import CRASH_LOOP
from recovery.core.model.drill import DRILL_CLASS, DrillEnd, DrillFacts, DrillRef
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.ledger import AttemptAction, Ledger, Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.core.plan.actions import EmitEvent
from recovery.core.policy.resolved import Backoff, InPlace
from recovery.core.policy.spec import Mode, OnTerminalFailure
from tests.unit.core.agents import asking
from tests.unit.core.decision.test_recreated_jobset import jobset_deletes
from tests.unit.core.decision.test_verdicts import MAY, on_exit
from tests.unit.core.drills import drill, named, with_drills
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

KILLED = 137
BACKOFF = Backoff(initial=timedelta(seconds=60))
REF = DrillRef("lose-a-rank-x7k2p", "uid-lose-a-rank-x7k2p")


CANNOT_WAIT_SUSPENDED = training().with_workload(active_deadline_seconds=864_000)
"""Its restart waits while its pods exist, because a suspension would reset the deadline of the job."""
ROW = Ledger(attempts_in_row=1, handled=Handled(until=at(-60)))
"""Of a group that failed a minute ago, so that its next restart waits."""


def drilled(*ranks: int, world: World | None = None, **changes: object) -> World:
    """A group that trains, and a drill that names these ranks and is acknowledged."""
    trains = training() if world is None else world
    pods = [named(trains, rank, number) for number, rank in enumerate(ranks, 1)]
    return with_drills(trains, drill(*pods, **changes))  # type: ignore[arg-type]


def recovered(controller: Controller, lost: World, seconds: float) -> World:
    """The group is deleted, created again and whole 20 seconds later, and the incident is recorded."""
    back = lost.job_deleted(seconds).all_deleted(seconds).recreated(seconds + 5).all_ready(seconds + 20)
    controller.settle(back, seconds + 21)
    return back


# --- what a drill is -----------------------------------------------------------------------------------------------


def test_the_failure_of_a_named_pod_is_a_drill_and_is_repaired_without_a_charge() -> None:
    controller = Controller()
    plan = controller.reconcile(drilled(3).pod_failed(3, KILLED, 0), 0.5)
    assert controller.incident.drill == REF
    assert [each.action for each in controller.incident.attempts] == [AttemptAction.RECREATE_GROUP]
    assert len(controller.triggers) == 1
    assert not controller.incident.charged
    assert "it is drill lose-a-rank-x7k2p" in plan.message


def test_each_event_of_its_incident_names_the_drill_first() -> None:
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    recovered(controller, lost, 1)
    events = [each for each in controller.done if isinstance(each, EmitEvent)]
    assert [each.reason for each in events] == ["RecreatingGroup", "IncidentRecovered"]
    assert all(each.note.startswith("drill lose-a-rank-x7k2p: ") for each in events)


def test_the_columns_show_a_drill_while_it_lasts_and_after_it() -> None:
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    assert controller.ledger.cause == "Drill"
    recovered(controller, lost, 1)
    assert controller.ledger.cause == "Drill"


def test_a_drill_leaves_no_account_of_a_failure() -> None:
    controller = Controller(policy(limits=MAY))
    lost = drilled(3).pod_failed(3, 1, 0, message="RuntimeError: boom")
    controller.reconcile(lost, 0.5)
    after = controller.ledger
    assert (after.budget.charges, after.totals.charged, after.failures) == ((), 0, ())
    assert controller.fleet_changes == []


def test_the_rows_go_on_after_a_drill_as_if_it_had_not_been() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(), reset_after=timedelta(minutes=30))))
    first = training().pod_failed(3, KILLED, 0)
    controller.reconcile(first, 0.5)
    world = recovered(controller, first, 1)
    rows = rows_of(controller)
    assert rows == (1, 1, 0)
    lost = drilled(2, world=world).pod_failed(2, KILLED, 60)
    controller.reconcile(lost, 60.5)
    assert rows_of(controller) == rows
    world = recovered(controller, lost, 61)
    assert rows_of(controller) == rows
    controller.reconcile(world.pod_failed(1, KILLED, 120), 120.5)
    assert rows_of(controller) == (2, 2, 0)


def rows_of(controller: Controller) -> tuple[int, int, int]:
    ledger = controller.ledger
    return ledger.attempts_in_row, ledger.charged_in_row, ledger.in_place_in_row


def test_a_drill_in_the_meantime_does_not_keep_a_row_from_its_end() -> None:
    """The group has had no failure for 40 minutes, but a drill after 20."""
    controller = Controller(policy(backoff=Backoff(initial=timedelta(), reset_after=timedelta(minutes=30))))
    first = training().pod_failed(3, KILLED, 0)
    controller.reconcile(first, 0.5)
    world = recovered(controller, first, 1)
    lost = drilled(2, world=world).pod_failed(2, KILLED, 1200)
    controller.reconcile(lost, 1200.5)
    world = recovered(controller, lost, 1201)
    controller.reconcile(world.pod_failed(1, KILLED, 2400), 2400.5)
    assert rows_of(controller) == (1, 1, 0)


def test_a_drill_in_place_leaves_the_row_of_restarts_in_place() -> None:
    enabled = msgspec.structs.replace(policy(), in_place=InPlace(enabled=True))
    controller = Controller(enabled, Ledger(in_place_in_row=0))
    world = training()
    lost = asking(drilled(3, world=world), 0)
    controller.reconcile(lost, 0.2)
    assert [each.action for each in controller.incident.attempts] == [AttemptAction.RESTART_IN_PLACE]
    assert controller.incident.drill == REF
    assert rows_of(controller) == (0, 0, 0)


def test_a_named_pod_whose_job_fails_at_once_is_a_drill() -> None:
    """Both are seen in one reconcile, and the failure of the Job decides."""
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0).job_failing("BackoffLimitExceeded", 0)
    controller.reconcile(lost, 0.5)
    assert (controller.incident.cause, controller.incident.drill) == ("JobFailing", REF)
    assert (len(controller.triggers), controller.incident.charged) == (1, False)


def test_a_named_pod_whose_job_fails_before_the_restart_is_a_drill() -> None:
    controller = Controller(policy(backoff=BACKOFF), ROW)
    lost = drilled(3, world=CANNOT_WAIT_SUSPENDED).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    assert controller.triggers == []
    for seconds in (10, 61, 121):
        controller.reconcile(lost.job_failing("BackoffLimitExceeded", 2), seconds)
    assert (len(controller.incident.attempts), controller.incident.charged) == (1, False)


def unseen(*drills: DrillFacts) -> World:
    """Pod 3 is lost while no controller leads. The next one sees only the pod that has replaced it."""
    return with_drills(training().pod_gone(3, 0).replaced(3, 1).controller_restarted(), *drills)


def test_a_named_pod_that_was_gone_before_a_controller_led_is_known_by_its_replacement() -> None:
    controller = Controller()
    controller.reconcile(unseen(drill(named(training(), 3))), 20)
    assert (controller.incident.drill, controller.incident.charged) == (REF, False)
    assert len(controller.triggers) == 1


NOT_REPLACED = {
    "another rank": drill(named(training(), 2)),
    "not acknowledged": drill(named(training(), 3), acknowledged=0),
    "created after the replacement": drill(named(training(), 3), created=5),
    "a pod of the repeat before": drill(named(training(), 3), named(training(), 1, 2, repeat=2)),
    "a pod that is still there": drill(
        msgspec.structs.replace(named(training(), 3), pod_uid=named(training(), 1).pod_uid)
    ),
}


@pytest.mark.parametrize("found", NOT_REPLACED.values(), ids=NOT_REPLACED)
def test_a_replacement_of_any_other_pod_is_an_ordinary_failure(found: DrillFacts) -> None:
    controller = Controller()
    controller.reconcile(unseen(found), 20)
    assert (controller.incident.drill, controller.incident.charged) == (None, True)


def test_totals_book_it_under_a_class_of_its_own() -> None:
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    recovered(controller, lost, 1)
    totals = controller.ledger.totals
    assert totals.failures == {DRILL_CLASS: 1}
    assert list(totals.idle_gpu_seconds_by_class) == [DRILL_CLASS]
    assert (totals.restarts, totals.drill_restarts) == (1, 1)
    [closed] = controller.ledger.history
    assert (closed.drill, closed.disruption_class, closed.outcome) == (REF, "Killed", Outcome.RECOVERED)


# --- what is none --------------------------------------------------------------------------------------------------


def over(seconds: float, **changes: object) -> DrillFacts:
    """A drill of rank 3 that ended then."""
    return drill(named(training(), 3), end=DrillEnd(at(seconds), Reason.DRILL_DONE), **changes)  # type: ignore[arg-type]


OF_ANOTHER_JOB = msgspec.structs.replace(named(training(), 3), pod_uid="pod-job-of-another-3-0")
NO_DRILL = {
    "another pod of the group": drill(named(training(), 2)),
    "not acknowledged yet": drill(named(training(), 3), acknowledged=0),
    "the second name, and one counts": drill(named(training(), 2), named(training(), 3, 2), acknowledged=1),
    "a low number at a place that does not count": drill(named(training(), 2), named(training(), 3, 1), acknowledged=1),
    "put before the one that counts": drill(named(training(), 3, 2), named(training(), 2, 1), acknowledged=1),
    "ended in the future of a client": drill(named(training(), 3), end=DrillEnd(at(3600), Reason.DRILL_DONE)),
    "expired, whatever it says": drill(named(training(), 3), created=-4 * 3600, expires_at=at(10**9)),
    "expired": drill(named(training(), 3), expires_at=at(0)),
    "ended more than a minute ago": over(-61),
    "a pod of another job": drill(OF_ANOTHER_JOB),
}


@pytest.mark.parametrize("found", NO_DRILL.values(), ids=NO_DRILL)
def test_any_other_failure_is_an_ordinary_one(found: DrillFacts) -> None:
    controller = Controller()
    controller.reconcile(with_drills(training(), found).pod_failed(3, KILLED, 0), 0.5)
    assert controller.incident.drill is None
    assert controller.incident.charged
    assert controller.ledger.totals.failures == {"Killed": 1}


def test_a_loss_within_a_minute_of_the_end_is_still_part_of_the_drill() -> None:
    controller = Controller()
    controller.reconcile(with_drills(training(), over(-58)).pod_failed(3, KILLED, 0), 0.5)
    assert controller.incident.drill == REF


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("end", [None, DrillEnd(at(0), Reason.DRILL_DONE)], ids=["runs", "has ended"])
def test_of_two_drills_that_name_the_pod_the_later_one_caused_the_failure(
    end: DrillEnd | None, newest_first: bool
) -> None:
    """The first was stopped before it acted, and the person has begun again at once."""
    controller = Controller()
    drills = [over(-20, name="stopped", created=-40), drill(named(training(), 3), end=end)]
    world = with_drills(training(), *(reversed(drills) if newest_first else drills))
    controller.reconcile(world.pod_failed(3, KILLED, 0), 0.5)
    assert controller.incident.drill == REF


def test_a_drill_that_ends_during_its_incident_still_pays_nothing() -> None:
    """The restart waits for the end of its backoff, and the drill is over by then."""
    controller = Controller(policy(backoff=BACKOFF), ROW)
    lost = drilled(3, world=CANNOT_WAIT_SUSPENDED).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    assert controller.triggers == []
    ended = with_drills(lost, over(1))
    for seconds in (61, 121):
        controller.reconcile(ended, seconds)
    assert len(controller.incident.attempts) == 1
    assert controller.incident.drill == REF
    assert not controller.incident.charged
    assert controller.ledger.budget.charges == ()


# --- a failure within a drill ---------------------------------------------------------------------------------------


def test_a_second_loss_that_is_not_named_is_charged() -> None:
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    coming = lost.job_deleted(1).recreated(5).all_started(10)
    controller.reconcile(coming, 11)
    controller.reconcile(coming.pod_failed(1, 1, 12), 12.5)
    assert len(controller.incident.attempts) == 2
    assert controller.incident.drill == REF
    assert controller.incident.charged
    assert controller.ledger.budget.charges == (at(12.5),)
    assert (controller.ledger.totals.restarts, controller.ledger.totals.drill_restarts) == (2, 1)


def test_a_second_loss_that_the_drill_names_is_not_charged() -> None:
    controller = Controller()
    lost = drilled(3).pod_failed(3, KILLED, 0)
    controller.reconcile(lost, 0.5)
    coming = lost.job_deleted(1).recreated(5).all_started(10)
    controller.reconcile(coming, 11)
    both = with_drills(coming, drill(named(training(), 3), named(coming, 1, 2)))
    controller.reconcile(both.pod_failed(1, KILLED, 12), 12.5)
    assert len(controller.incident.attempts) == 2
    assert not controller.incident.charged
    assert controller.ledger.totals.drill_restarts == 2


# --- what others do about it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [(), (on_exit(KILLED, RuleAction.RECREATE_GROUP),)], ids=["default", "rule"])
def test_restarts_by_the_jobset_because_of_drills_are_no_crash_loop(rules: tuple[object, ...]) -> None:
    controller = Controller(policy(limit=1, rules=rules))  # type: ignore[arg-type]
    world = training(failure_policy=FailurePolicyFacts(max_restarts=50))
    for number in range(4):
        now = 300.0 * number
        lost = (
            drilled(3, world=world).pod_failed(3, KILLED, now).job_failing("BackoffLimitExceeded", now, finally_=True)
        )
        going = lost.restarted_by_jobset().job_deleted(now + 1)
        controller.reconcile(going, now + 1.5)
        assert [each.action for each in controller.incident.attempts] == [AttemptAction.ADOPTED]
        world = going.recreated(now + 10).all_ready(now + 30)
        controller.settle(world, now + 31)
    assert controller.ledger.budget.adopted == ()
    assert all(each.type != CRASH_LOOP for each in controller.ledger.conditions)
    assert controller.ledger.totals.drill_restarts == 4


def test_a_jobset_that_failed_because_of_a_drill_is_created_again_without_a_charge() -> None:
    """Not even the empty budget of real failures keeps the job down that a drill has stopped."""
    controller = Controller(policy(limit=0, on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET))
    lost = drilled(3, world=training(4)).pod_failed(3, KILLED, 0)
    failed = lost.job_failing("BackoffLimitExceeded", 1, finally_=True).jobset_failed(3)
    controller.reconcile(failed, 4)
    assert controller.incident.drill == REF
    assert len(jobset_deletes(controller)) == 1
    assert (controller.incident.charged, controller.ledger.attempts_in_row) == (False, 0)


# --- under Observe --------------------------------------------------------------------------------------------------


def test_under_observe_a_drill_is_only_recorded_and_shares_no_record() -> None:
    controller = observing()
    world = training(restart_policy="OnFailure", backoff_limit=100)
    for number in range(3):
        now = 60.0 * number
        world = drilled(2, world=world) if number else world
        world = world.container_restarted(2, KILLED, now)
        for seconds in (1, 4, 30):
            controller.settle(world, now + seconds)
    assert controller.workload_actions == []
    assert [each.drill for each in controller.recorded] == [None, REF, REF]
    assert [each.enforce_estimate.restarts for each in controller.recorded] == [1, 0, 0]
    assert controller.ledger.totals.enforce_estimate.restarts == 1
    assert [each.count for each in controller.ledger.folds] == [1]


def test_a_group_that_hangs_after_a_drill_books_that_as_a_drill() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    lost = drilled(3, world=training(16)).pod_deleted(3, 0)
    for seconds in (1, 7):
        controller.settle(lost, seconds)
    back = lost.came_back(3, 30, 40)
    for seconds in (41, 42):
        controller.settle(back, seconds)
    assert controller.ledger.broken is not None
    assert (controller.phase(), controller.ledger.broken.disruption_class) == (Phase.HEALTHY, DRILL_CLASS)
    controller.settle(back.recreated(100).all_ready(120), 121)
    assert controller.ledger.totals.idle_gpu_seconds_by_class[DRILL_CLASS][BROKEN_SECONDS] > 0
