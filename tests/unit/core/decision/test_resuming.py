"""Phase Resuming: all ranks are Ready. The training has reported progress before, and has yet to report it again."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Closing, Incident, Outcome, Phase
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def reported(world: World, seconds: float, ratio: float | None = 0.4) -> World:
    return world.with_workload(progress=Progress(at(seconds), ratio))


def probed(world: World) -> World:
    for index in range(4):
        world = world.with_pod(index, joined_probe=True)
    return world


def back(controller: Controller, world: World | None = None) -> World:
    """A member is lost. All ranks of the new group are Ready from second 9 on."""
    lost = (reported(training(), -3) if world is None else world).pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    return lost.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4).all_ready(9)


def end(controller: Controller) -> tuple[Incident, Closing]:
    assert controller.phase() is Phase.HEALTHY
    assert controller.ledger.incident is None
    incident = controller.recorded[-1]
    assert incident.closing is not None
    return incident, incident.closing


def spans(incident: Incident) -> list[tuple[Phase, float]]:
    return [
        (span.phase, (span.ended_at - span.started_at).total_seconds())
        for span in incident.phases
        if span.ended_at is not None
    ]


def test_it_lasts_until_the_training_reports_progress() -> None:
    controller = Controller()
    world = back(controller)
    plan = controller.reconcile(world, 9.5)
    assert (controller.phase(), plan.reason) == (Phase.RESUMING, Reason.WAITING_FOR_PROGRESS)
    assert plan.requeue_at == at(9.5 + 900)
    controller.settle(reported(world, 20), 21.3)
    incident, closing = end(controller)
    assert (closing.outcome, closing.outcome_reason) == (Outcome.RECOVERED, Reason.TRAINING_PROGRESSES)
    assert (closing.source, closing.verified, closing.ended_at) == ("progress", True, at(21))
    assert spans(incident)[-1] == (Phase.RESUMING, 11.5)
    assert len(controller.triggers) == 1


def test_a_first_report_of_0_percent_says_that_the_training_begins_and_not_that_it_progresses() -> None:
    """transformers sends it before the first step, even when it resumes from a checkpoint."""
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    begun = reported(world, 12, 0.0)
    controller.reconcile(begun, 12.2)
    assert controller.phase() is Phase.RESUMING
    noted = controller.ledger
    assert controller.reconcile(begun, 13).ledger == noted
    controller.settle(reported(world, 17, 0.41), 17.2)
    assert end(controller)[1].ended_at == at(17.2)


def test_a_second_report_of_0_percent_is_progress() -> None:
    """The percentage has no decimals: in a month of training the first percent takes seven hours."""
    controller = Controller()
    world = back(controller)
    controller.reconcile(reported(world, 12, 0.0), 12.2)
    controller.settle(reported(world, 17, 0.0), 17.2)
    incident, closing = end(controller)
    assert (closing.source, closing.ended_at) == ("progress", at(17.2))
    assert spans(incident)[-1] == (Phase.RESUMING, 7.2)


def test_a_training_that_only_began_is_waited_for_no_longer_than_the_timeout() -> None:
    controller = Controller()
    world = reported(back(controller), 12, 0.0)
    assert controller.reconcile(world, 12.2).requeue_at == at(10 + 900)
    controller.settle(world, 10.5 + 900)
    assert end(controller)[1].outcome_reason is Reason.PROGRESS_NOT_SEEN


def test_a_reconcile_that_changes_nothing_writes_nothing() -> None:
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    before = controller.ledger
    for seconds in (9.6, 60, 500):
        plan = controller.reconcile(world, seconds)
        assert (plan.ledger, plan.actions, plan.requeue_at) == (before, (), at(9.5 + 900))


def test_progress_that_is_there_already_ends_it_in_one_write() -> None:
    controller = Controller()
    controller.settle(reported(back(controller), 12), 14)
    incident, closing = end(controller)
    assert closing.source == "progress"
    assert spans(incident)[-1] == (Phase.RESUMING, 3)


def test_a_job_that_had_shown_no_progress_does_not_wait_for_any() -> None:
    controller = Controller()
    world = reported(back(controller, training()), 5)
    controller.settle(world, 9.5)
    incident, closing = end(controller)
    assert (closing.source, closing.verified) == ("ready", False)
    assert Phase.RESUMING not in dict(spans(incident))


def test_a_policy_may_say_not_to_wait() -> None:
    no_wait = msgspec.structs.replace(policy(), resume_timeout=policy().since - policy().since)
    controller = Controller(no_wait)
    controller.settle(back(controller), 9.5)
    assert end(controller)[1].source == "ready"


@pytest.mark.parametrize("seconds", [-3, 0, 3, 9], ids=str)
def test_what_the_old_incarnation_wrote_is_no_progress_however_late_it_arrives(seconds: float) -> None:
    """The training dates its report. A date in the second in which Rendezvous ended may be of either incarnation."""
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    controller.reconcile(reported(world, seconds, 0.5), 12)
    assert controller.phase() is Phase.RESUMING


def test_a_date_that_lay_ahead_before_the_failure_is_no_progress() -> None:
    """The clock of rank 0's node was a minute fast."""
    controller = Controller()
    world = back(controller, reported(training(), 57))
    controller.reconcile(world, 9.5)
    assert controller.phase() is Phase.RESUMING
    controller.settle(reported(world, 20), 20.5)
    assert end(controller)[1].source == "progress"


@pytest.mark.parametrize("joined", [False, True])
def test_progress_that_never_comes_is_said_and_restarts_nothing(joined: bool) -> None:
    controller = Controller()
    world = back(controller)
    if joined:
        world = probed(world)
    controller.reconcile(world, 9.5)
    controller.reconcile(world, 909)
    assert controller.phase() is Phase.RESUMING
    controller.settle(world, 4000)
    incident, closing = end(controller)
    assert (closing.outcome, closing.outcome_reason) == (Outcome.RECOVERED, Reason.PROGRESS_NOT_SEEN)
    assert (closing.source, closing.verified) == (("joined-probe", True) if joined else ("ready", False))
    assert closing.ended_at == at(909.5), "at its deadline, even if no controller led meanwhile"
    assert spans(incident)[-1] == (Phase.RESUMING, 900)
    assert "IncidentRecovered" in controller.events
    assert len(controller.triggers) == 1


def test_a_member_that_is_lost_is_another_attempt_of_the_same_incident() -> None:
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    epoch = controller.ledger.epoch
    lost = world.pod_deleted(1, 30)
    controller.reconcile(lost, 30.2)
    assert (controller.incident.number, controller.ledger.epoch, len(controller.triggers)) == (1, epoch + 1, 2)
    assert controller.ledger.totals.charged == 1
    again = lost.job_deleted(30.3).all_deleted(30.4).recreated(32).all_started(34).all_ready(39)
    controller.reconcile(again, 39.5)
    assert controller.phase() is Phase.RESUMING
    controller.settle(reported(again, 50), 50.5)
    incident, closing = end(controller)
    assert closing.source == "progress"
    assert [phase for phase, _ in spans(incident)].count(Phase.RESUMING) == 2


def test_a_member_that_is_not_ready_for_a_while_is_waited_for() -> None:
    """The probe fails, but the member is not lost, and the Rendezvous timeout no longer runs."""
    controller = Controller()
    world = probed(back(controller, probed(reported(training(), -3))))
    controller.reconcile(world, 9.5)
    unready = reported(world.with_pod(2, ready=False, ready_since=None), 20)
    controller.reconcile(unready, 21)
    controller.reconcile(unready, 2000)
    assert (controller.phase(), controller.incident.reason) == (Phase.RESUMING, Reason.WAITING_FOR_READY)
    assert len(controller.triggers) == 1
    controller.settle(reported(world, 20), 2001)
    assert end(controller)[1].source == "progress"


def test_a_job_that_is_complete_before_it_reports_has_recovered() -> None:
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    complete = world.with_workload(conditions=(Condition("Complete", "True", since=at(40)),))
    controller.settle(complete, 41.5)
    _, closing = end(controller)
    assert (closing.outcome, closing.source, closing.ended_at) == (Outcome.RECOVERED, "ready", at(41))


def test_a_resuming_job_that_its_user_suspends_is_superseded() -> None:
    controller = Controller()
    world = back(controller)
    controller.reconcile(world, 9.5)
    controller.settle(world.suspended(), 20)
    assert end(controller)[1].outcome_reason is Reason.JOB_SUSPENDED


def test_under_observe_a_restart_of_the_platform_waits_for_progress_too() -> None:
    controller = observing()
    lost = reported(training(), -3).pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    world = lost.job_deleted(0.3)
    controller.reconcile(world, 0.5)
    world = world.all_deleted(0.6).recreated(2).all_started(4).all_ready(9)
    controller.reconcile(world, 9.5)
    assert controller.phase() is Phase.RESUMING
    controller.settle(reported(world, 20), 20.5)
    incident, closing = end(controller)
    assert incident.mode == Mode.OBSERVE
    assert (closing.outcome, closing.outcome_reason) == (Outcome.OBSERVED, Reason.OBSERVE_MODE)
    assert (closing.source, closing.verified) == ("progress", True)


def test_a_0_percent_of_processes_that_began_since_the_last_one_is_no_progress() -> None:
    """The earlier processes crashed before the first step, and the Job replaced them. Observe makes no restart."""
    controller = observing()
    lost = reported(training(), -3).pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    controller.reconcile(lost.job_deleted(0.3), 0.5)
    world = lost.recreated(2).all_started(4).all_ready(9)
    controller.reconcile(world, 9.5)
    controller.reconcile(reported(world, 12, 0.0), 12.2)
    assert controller.phase() is Phase.RESUMING
    for index in range(4):
        world = world.pod_failed(index, 1, 13)
    for index in range(4):
        world = world.came_back(index, 30, 31)
    controller.reconcile(reported(world, 33, 0.0), 33.2)
    assert controller.phase() is Phase.RESUMING
    controller.settle(reported(world, 43, 0.0), 43.2)
    assert end(controller)[1].source == "progress"


def test_where_nothing_was_restarted_no_progress_is_waited_for() -> None:
    controller = observing()
    world = reported(training(), -3).pod_gone(3, 0).replaced(3, 1)
    controller.reconcile(world, 1.5)
    controller.settle(world.started(3, 4).pod_ready(3, 9), 20)
    assert end(controller)[1].outcome is Outcome.OBSERVED


@pytest.mark.parametrize(("lost_at", "in_row"), [(75, 2), (105, 1)])
def test_backoff_reset_after_counts_from_its_end(lost_at: float, in_row: int) -> None:
    """All ranks are Ready at second 9, and the training reports progress at second 40."""
    minute = Backoff(initial=timedelta(0), reset_after=timedelta(minutes=1))
    controller = Controller(policy(backoff=minute))
    world = back(controller)
    controller.reconcile(world, 9.5)
    world = reported(world, 40)
    controller.settle(world, 41)
    end(controller)
    controller.reconcile(world.pod_deleted(3, lost_at), lost_at + 0.2)
    assert controller.ledger.attempts_in_row == in_row
