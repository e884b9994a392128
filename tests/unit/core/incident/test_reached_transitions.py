"""For each transition and ending that the tables allow, there are facts on which `decide` takes it.

Trials take most of them (`recovery.sim.trials.coverage`). These tests take those that a trial may miss.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request
from recovery.core.incident.transitions import UNDER_WAY, taken
from recovery.core.model.annotations import RESTART_ANNOTATION
from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Incident, Phase
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import FailJobSet
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode, OnExhausted, Restart
from tests.unit.core.decision.test_recreated_jobset import with_new_jobset, without_jobset
from tests.unit.core.decision.test_several_jobs import Pair, launcher_of, reconcile
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import given_up, training
from tests.unit.core.world import World, at, whole

BACKOFF = Backoff(initial=timedelta(seconds=60))


FAIL_JOB_42 = Rule("fatal", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))


def newest(controller: Controller) -> Incident:
    return controller.ledger.incident or controller.recorded[-1]


def last(controller: Controller) -> tuple[Phase, Phase]:
    """The latest transition of the incident."""
    return list(taken(None, newest(controller)))[-1]


# --- forward --------------------------------------------------------------------------------------------------------


def suspended(world: World) -> World:
    return world.suspended_by("0d2f5c9e-2").recreated_suspended(305)


def resuming(world: World) -> World:
    return world.recreated(305).all_ready(306)


def reporting(reports: bool) -> World:
    """A training that has reported progress, or one that never reports it."""
    return training().with_workload(progress=Progress(at(250), 0.4) if reports else None)


def whole_again(world: World) -> World:
    """All ranks are Ready again. The training reports progress if it did before."""
    reports = world.workload is not None and world.workload.progress is not None
    return resuming(world).with_workload(progress=Progress(at(308), 0.5) if reports else None)


FACTS: dict[Phase, Callable[[World], World]] = {
    Phase.DECIDED: lambda world: world,
    Phase.FENCING: lambda world: world.job_deleted(301).all_deleted(301).node_silent("gpu-1", 301),
    Phase.TEARING_DOWN: lambda world: world.job_deleted(301).all_deleted(301),
    Phase.BACKOFF: suspended,
    Phase.SCHEDULING: lambda world: world.recreated(305),
    Phase.STARTING: lambda world: world.recreated(305).all_scheduled(),
    Phase.RENDEZVOUS: lambda world: world.recreated(305).all_started(306),
    Phase.RESUMING: resuming,
    Phase.HEALTHY: whole_again,
}
"""What moves a group that lost rank 3 at 300 into the phase."""


def second_attempt(*, reports: bool = False) -> tuple[Controller, World]:
    """The group was restarted at 0 and ran whole. It lost rank 3 again at 300, and the second attempt is decided."""
    controller = Controller(policy(backoff=BACKOFF))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    if reports:
        world = world.with_workload(progress=Progress(at(250), 0.4))
    world = world.pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    return controller, world


def in_phase(phase: Phase, *, reports: bool = False) -> tuple[Controller, World]:
    """A group in that phase of an incident, and the world as it was when the incident opened.

    `reports`: the training had reported progress by then.
    """
    if phase is Phase.HELD:
        controller, world = Controller(policy(limit=0)), training().pod_deleted(3, 300)
        controller.reconcile(world, 300.2)
    else:
        controller, world = second_attempt(reports=reports or phase is Phase.RESUMING)
        controller.reconcile(FACTS[phase](world), 302)
    assert controller.phase() is phase
    return controller, world


@pytest.mark.parametrize(
    ("source", "target"),
    [(one, other) for n, one in enumerate(UNDER_WAY) for other in (*UNDER_WAY[n + 1 :], Phase.HEALTHY)],
)
def test_a_group_goes_forward_from_any_phase_to_any_later_one(source: Phase, target: Phase) -> None:
    controller, world = in_phase(source, reports=target is Phase.RESUMING)
    controller.reconcile(FACTS[target](world), 310)
    assert last(controller) == (source, target)


def test_a_group_that_starts_goes_back_to_wait_for_capacity() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_scheduled()
    controller.reconcile(world, 3)
    controller.reconcile(world.pod_deleted(3, 4).pod_gone(3, 5).replaced(3, 5).unschedulable(3, "0/100 nodes"), 6)
    assert last(controller) == (Phase.STARTING, Phase.SCHEDULING)


# --- another restart, or none ---------------------------------------------------------------------------------------


def lost_while_the_other_job_goes(phase: Phase, limit: int) -> Controller:
    """The launcher's Job is back and fails while the nodes' Job is still being deleted."""
    controller = Controller(policy(limit=limit))
    start = Pair(training(4).pod_deleted(3, 0), launcher_of(training(1)))
    reconcile(controller, start, 0.2)
    going = start.node(FACTS[phase]).launch(lambda world: world.job_deleted(301).all_deleted(301))
    reconcile(controller, going, 302)
    assert controller.phase() is phase
    back = training(1).job_gone().job_created(303).pods_created(303).all_ready(304)
    failing = back.pod_failed(0, 1, 310).job_failing("BackoffLimitExceeded", 310)
    reconcile(controller, Pair(going.nodes, launcher_of(failing)), 310.5)
    return controller


def without_pods(limit: int) -> Controller:
    controller = Controller(policy(limit=limit))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_gone().job_created(10)
    for seconds in (11, 70, 131):
        controller.reconcile(world, seconds)
    return controller


def not_started_in_time(limit: int) -> Controller:
    controller = Controller(policy(limit=limit, start_seconds=60))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_scheduled()
    controller.reconcile(world, 3)
    controller.reconcile(world, 64)
    return controller


def lost_again(limit: int) -> Controller:
    controller = Controller(policy(limit=limit))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    controller.reconcile(world.pod_failed(2, 1, 6), 6.5)
    return controller


def lost_while_it_resumes(limit: int) -> Controller:
    controller = Controller(policy(limit=limit))
    world = training().with_workload(progress=Progress(at(-5), 0.4)).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_ready(4)
    controller.reconcile(world, 4.5)
    controller.reconcile(world.pod_failed(2, 1, 6), 6.5)
    return controller


ANOTHER: dict[Phase, Callable[[int], Controller]] = {
    Phase.FENCING: lambda limit: lost_while_the_other_job_goes(Phase.FENCING, limit),
    Phase.TEARING_DOWN: lambda limit: lost_while_the_other_job_goes(Phase.TEARING_DOWN, limit),
    Phase.SCHEDULING: without_pods,
    Phase.STARTING: not_started_in_time,
    Phase.RENDEZVOUS: lost_again,
    Phase.RESUMING: lost_while_it_resumes,
}
"""What calls for another restart in the phase. The argument is the budget."""


@pytest.mark.parametrize("source", ANOTHER)
def test_another_restart_goes_back_to_decided_from(source: Phase) -> None:
    controller = ANOTHER[source](10)
    assert last(controller) == (source, Phase.DECIDED)
    assert len(newest(controller).attempts) == 2


@pytest.mark.parametrize("source", ANOTHER)
def test_where_the_budget_allows_no_other_the_group_is_held_from(source: Phase) -> None:
    controller = ANOTHER[source](1)
    assert last(controller) == (source, Phase.HELD)
    assert len(newest(controller).attempts) == 1


def test_a_group_may_be_held_at_once_and_restarted_by_a_person() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    assert last(controller) == (Phase.DECIDED, Phase.HELD)
    controller.reconcile(world.asked(RESTART_ANNOTATION, requests.encode(Request(whole(5)))), 6)
    assert last(controller) == (Phase.HELD, Phase.DECIDED)


# --- withheld restarts ----------------------------------------------------------------------------------------------


def withheld() -> tuple[Controller, World]:
    """The second attempt of a job that must not be suspended, because it has a deadline."""
    controller = Controller(policy(backoff=BACKOFF))
    world = training(backoff_limit=50).with_workload(active_deadline_seconds=9999).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    return controller, world


def test_a_withheld_restart_is_made_when_its_backoff_is_over() -> None:
    controller, world = withheld()
    world = world.pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    assert last(controller) == (Phase.DECIDED, Phase.BACKOFF)
    controller.reconcile(world, 361)
    assert last(controller) == (Phase.BACKOFF, Phase.DECIDED)


def test_a_verdict_holds_a_group_whose_restart_is_withheld() -> None:
    controller, world = withheld()
    controller.policy = policy(backoff=BACKOFF, rules=(FAIL_JOB_42,))
    world = world.pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    controller.reconcile(world, 303)  # no late evidence has arrived
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world.pod_failed(2, 42, 299), 320)  # reported late: the cause of all losses
    assert last(controller) == (Phase.BACKOFF, Phase.HELD)


@pytest.mark.parametrize("source", [Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING])
def test_the_restart_for_a_second_loss_is_withheld_from(source: Phase) -> None:
    """The group ran whole between two reconciles, so the loss is seen in the phase that the earlier reconcile left."""
    controller = Controller(policy(backoff=BACKOFF))
    world = training(backoff_limit=50).with_workload(active_deadline_seconds=9999, progress=Progress(at(250)))
    world = world.pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    controller.reconcile(FACTS[source](world), 306.5)
    assert controller.phase() is source
    controller.reconcile(world.recreated(305).all_started(306).pod_deleted(2, 308), 308.5)
    assert last(controller) == (source, Phase.BACKOFF)


# --- endings --------------------------------------------------------------------------------------------------------


def ended(controller: Controller) -> tuple[Phase, str]:
    """The last phase of the incident, and how the incident ended."""
    closing = newest(controller).closing
    assert closing is not None
    return last(controller)[0], f"{closing.outcome}/{closing.outcome_reason}"


ENDS: dict[str, Callable[[World], World]] = {
    "Superseded/JobDeleted": lambda world: world.with_workload(deleting_since=whole(305)),
    "Superseded/JobComplete": lambda world: world.with_workload(conditions=(Condition("Complete", "True"),)),
    "Superseded/JobSuspended": lambda world: world.suspended(),
    "Superseded/NoJobSet": lambda world: given_up(without_jobset(world)),
    "Superseded/JobSetDeleted": lambda world: given_up(world.with_jobset(deleting_since=whole(305))),
    "Superseded/JobSetReplaced": lambda world: given_up(with_new_jobset(without_jobset(world), 305)),
    "Failed/PlatformGaveUp": lambda world: world.jobset_failed(305),
}
"""What ends an incident in any phase."""


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("phase", [*UNDER_WAY, Phase.HELD])
def test_an_incident_ends_from_any_phase(phase: Phase, ending: str) -> None:
    controller, world = in_phase(phase)
    controller.reconcile(ENDS[ending](world), 310)
    complete = (phase, ending) == (Phase.RESUMING, "Superseded/JobComplete")
    assert ended(controller) == (phase, "Recovered/AllRanksReady" if complete else ending)


def test_progress_ends_it_from_resuming() -> None:
    controller, world = in_phase(Phase.RESUMING)
    controller.reconcile(whole_again(world), 310)
    assert ended(controller) == (Phase.RESUMING, "Recovered/TrainingProgresses")


def test_progress_that_does_not_come_ends_it_from_resuming() -> None:
    controller, world = in_phase(Phase.RESUMING)
    controller.reconcile(resuming(world), 1300)
    assert ended(controller) == (Phase.RESUMING, "Recovered/ProgressNotSeen")


def test_a_rule_that_fails_the_job_ends_it_from_held() -> None:
    controller = Controller(policy(rules=(FAIL_JOB_42,), may_fail_jobs=True))
    world = training().pod_failed(3, 42, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world, 3)  # the loss has settled
    controller.reconcile(world.jobset_failed(4), 5)
    assert ended(controller) == (Phase.HELD, "Failed/FailJobRule")


def test_an_exhausted_budget_that_fails_the_job_ends_it_from_held() -> None:
    controller = Controller(policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True))
    world = training().pod_failed(3, 1, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.jobset_failed(4), 5)
    assert ended(controller) == (Phase.HELD, "Failed/BudgetExhausted")


def test_a_job_that_has_had_its_attempts_is_failed() -> None:
    controller = Controller(policy(limit=2, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    for seconds in (10, 30):
        world = world.recreated(seconds).all_started(seconds + 5).pod_deleted(1, seconds + 8)
        controller.reconcile(world, seconds + 9)
    failing = [action for action in controller.done if isinstance(action, FailJobSet)]
    assert [action.reason for action in failing] == [Reason.ATTEMPTS_EXHAUSTED]
    controller.reconcile(world.jobset_failed(41), 42)
    assert ended(controller) == (Phase.HELD, "Failed/AttemptsExhausted")


def test_a_users_own_policy_ends_it() -> None:
    controller = Controller()
    world = training(backoff_limit=0).pod_failed(3, 1, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.job_failing("BackoffLimitExceeded", 2, finally_=True).jobset_failed(3), 4)
    assert ended(controller) == (Phase.DECIDED, "Failed/NativePolicy")


def test_a_member_that_succeeds_ends_it() -> None:
    controller, world = in_phase(Phase.HELD)
    controller.reconcile(world.succeeded(2), 310)
    assert ended(controller) == (Phase.HELD, "Superseded/JobFinishing")


def test_a_held_group_that_runs_whole_again_ends_held() -> None:
    controller, world = in_phase(Phase.HELD)
    controller.reconcile(world.all_came_back(305, 310), 320)
    assert ended(controller) == (Phase.HELD, "Held/RunsWholeAgain")


def test_a_group_whose_withheld_restart_no_one_needs_any_more_ends_superseded() -> None:
    controller, world = withheld()
    world = world.pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    for index in range(4):
        world = world.came_back(index, 305, 310)
    controller.reconcile(world, 320)
    assert ended(controller) == (Phase.BACKOFF, "Superseded/RunsWholeAgain")


def test_a_restart_that_was_never_carried_out_ends_superseded() -> None:
    controller, world = in_phase(Phase.DECIDED)
    controller.reconcile(world.came_back(3, 305, 310).paused(), 2000)
    assert ended(controller) == (Phase.DECIDED, "Superseded/RunsWholeAgain")


@pytest.mark.parametrize("phase", [Phase.FENCING, Phase.TEARING_DOWN])
def test_so_does_one_that_the_jobset_counted_and_no_one_carried_out(phase: Phase) -> None:
    """Both Jobs are back and run. The JobSet counts a restart that it never makes, and the job is paused."""
    controller = Controller()
    start = Pair(training(4).pod_deleted(3, 0), launcher_of(training(1)))
    reconcile(controller, start, 0.2)
    reconcile(controller, start.node(FACTS[phase]).launch(lambda world: world.job_deleted(301).all_deleted(301)), 302)
    assert controller.phase() is phase
    back = Pair(ready_again(training(4)).with_jobset(restarts=1).paused(), launcher_of(ready_again(training(1))))
    for seconds in (310, 2000):
        reconcile(controller, back, seconds)
    assert ended(controller) == (phase, "Superseded/RunsWholeAgain")


def ready_again(world: World) -> World:
    return world.job_gone().job_created(303).pods_created(303).all_ready(304)


@pytest.mark.parametrize("phase", UNDER_WAY)
def test_an_observed_incident_ends_observed_from_any_phase_of_the_platforms_restart(phase: Phase) -> None:
    controller = Controller(policy(Mode.OBSERVE))
    world = reporting(phase is Phase.RESUMING).pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    if phase is not Phase.DECIDED:
        controller.reconcile(FACTS[phase](world.with_jobset(restarts=1)), 306.5)
    assert controller.phase() is phase
    controller.reconcile(FACTS[Phase.HEALTHY](world.with_jobset(restarts=1)), 320)
    assert ended(controller) == (phase, "Observed/ObserveMode")


@pytest.mark.parametrize("settings", [{"mode": Mode.OBSERVE}, {"restart": Restart.NONE}])
@pytest.mark.parametrize("phase", UNDER_WAY)
def test_a_restart_by_hand_ends_an_incident_that_only_watches(phase: Phase, settings: dict[str, object]) -> None:
    controller = Controller(policy(**settings))  # type: ignore[arg-type]
    world = reporting(phase is Phase.RESUMING).pod_deleted(3, 300)
    controller.reconcile(world, 300.2)
    if phase is not Phase.DECIDED:
        controller.reconcile(FACTS[phase](world.with_jobset(restarts=1)), 306.5)
    assert controller.phase() is phase
    living = world if phase is Phase.DECIDED else FACTS[Phase.STARTING](world.with_jobset(restarts=1))
    asked = living.asked(RESTART_ANNOTATION, requests.encode(Request(whole(310), force=True)))
    controller.reconcile(asked, 311)
    assert ended(controller) == (phase, "Observed/RestartedByHand")


def test_a_loss_that_the_platform_fixed_ends_observed() -> None:
    controller = Controller(policy(restart=Restart.NONE))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.came_back(3, 5, 8), 20)
    assert ended(controller) == (Phase.DECIDED, "Observed/LeftToKubernetes")


def test_a_loss_after_the_policy_enforces_ends_an_observed_incident() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.policy = policy(since=10)
    controller.reconcile(world.pod_deleted(2, 20), 21)
    assert ended(controller) == (Phase.DECIDED, "Observed/ModeSwitched")
