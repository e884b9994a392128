"""What a person requests by annotation is done once, answered in the ledger, or refused with a message."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode, OnExhausted, Restart
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def asks(world: World, verb: Verb, seconds: float, *, force: bool = False) -> World:
    request = Request(at(seconds), reason="rank 3 is slow", by="anna", force=force)
    return world.asked(requests.ANNOTATIONS[verb], requests.encode(request))


def answer(controller: Controller, verb: Verb) -> RequestAnswer:
    (found,) = (told for told in controller.ledger.requests if told.verb == verb)
    return found


def test_a_restart_is_an_incident_of_class_manual_without_a_charge_or_a_backoff() -> None:
    controller = Controller(policy(limit=0, backoff=Backoff()))
    world = asks(training(4), Verb.RESTART, 0)
    controller.reconcile(world, 0.2)
    assert controller.incident.disruption_class == "Manual"
    assert controller.incident.evidence == ("restart requested by anna: rank 3 is slow",)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]
    assert answer(controller, Verb.RESTART).accepted
    controller.reconcile(world, 0.3)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert (controller.ledger.totals.restarts, controller.ledger.totals.charged) == (1, 0)
    controller.reconcile(world, 10)
    assert controller.ledger.incident is None, "the same request is not carried out twice"


@pytest.mark.parametrize(
    ("world", "settings", "why"),
    [
        (training(4).with_workload(suspended=True), {}, "the TrainJob is suspended"),
        (training(4).succeeded(1), {}, "has Succeeded, so the training is finishing"),
        (training(4), {"mode": Mode.OBSERVE}, "policy default is in mode Observe"),
        (training(4).asked("recovery.trainjob.dev/paused", "true"), {}, "the job is paused by annotation"),
        (training(4), {"global_pause": "RecoveryConfig default pauses"}, "RecoveryConfig default pauses"),
    ],
    ids=["suspended", "finishing", "observe", "paused", "paused everywhere"],
)
def test_a_restart_that_would_do_harm_is_refused(world: World, settings: dict[str, object], why: str) -> None:
    controller = Controller(policy(**settings))  # type: ignore[arg-type]
    controller.reconcile(asks(world, Verb.RESTART, 0), 1)
    assert not answer(controller, Verb.RESTART).accepted
    assert why in answer(controller, Verb.RESTART).message
    assert controller.workload_actions == []
    controller.reconcile(asks(world, Verb.RESTART, 0), 2)
    assert controller.events.count("RequestRefused") == 1


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ENFORCE])
def test_force_overrides_observe_and_a_pause_to_the_end(mode: Mode) -> None:
    controller = Controller(policy(mode, restart=Restart.NONE))
    world = asks(training(4).asked("recovery.trainjob.dev/paused", "true"), Verb.RESTART, 0, force=True)
    controller.reconcile(world, 0.2)
    assert len(controller.triggers) == 1
    controller.reconcile(world, 0.4)
    assert len(controller.triggers) == 2, "a trigger that was lost is sent again, pause or not"
    world = world.job_deleted(0.3).all_deleted(0.4, grace_seconds=30)
    controller.settle(world.recreated(2).all_ready(4), 4.5)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]


def test_a_restart_that_a_person_forces_under_observe_suspects_no_node() -> None:
    """Observe writes nothing to the fleet's ledger. A person who forces a restart has not asked for a suspicion."""
    one = Controller(policy(limits=MAY))
    one.reconcile(training().pod_failed(2, 134, 0), 1)
    world = training().pod_failed(2, 134, 0).recreated(10)
    one.reconcile(world, 11)
    asked = len(one.fleet_changes)
    one.policy = policy(Mode.OBSERVE, limits=MAY)
    value = msgspec.json.encode({"at": at(20).isoformat(), "force": True}).decode()
    one.reconcile(world.all_started(15).pod_failed(2, 134, 18).asked("recovery.trainjob.dev/restart", value), 21)
    assert one.ledger.requests[0].accepted
    assert len(one.triggers) == 2
    assert len(one.fleet_changes) == asked


def test_force_does_not_override_the_pause_of_the_whole_cluster() -> None:
    controller = Controller(policy(global_pause="RecoveryConfig default pauses all recoveries"))
    controller.reconcile(asks(training(4), Verb.RESTART, 0, force=True), 1)
    assert controller.workload_actions == []


def test_an_incident_that_only_watched_gives_way_to_the_forced_restart() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    lost = training(4).pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    world = asks(lost, Verb.RESTART, 2, force=True)
    settled = controller.settle(world, 2.1)
    assert controller.recorded[-1].closing.outcome_reason == "RestartedByHand"  # type: ignore[union-attr]
    assert settled.requeue_at == at(2.1), "the request still waits for its answer"
    controller.reconcile(world, 2.2)
    assert controller.incident.disruption_class == "Manual"
    assert len(controller.triggers) == 1


def test_an_old_request_is_not_carried_out() -> None:
    controller = Controller()
    controller.reconcile(asks(training(4), Verb.RESTART, -1000), 1)
    assert not answer(controller, Verb.RESTART).accepted
    assert controller.workload_actions == []


def test_retry_leaves_hold_once() -> None:
    controller = Controller(policy(limit=0))
    lost = training(4).pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    assert controller.phase() is Phase.HELD
    world = asks(lost, Verb.RETRY, 100)
    controller.reconcile(world, 100.1)
    assert (controller.phase(), len(controller.triggers)) == (Phase.DECIDED, 1)
    assert controller.ledger.totals.charged == 0


def test_retry_with_nothing_held_back_says_so() -> None:
    controller = Controller()
    controller.reconcile(asks(training(4), Verb.RETRY, 0), 1)
    assert answer(controller, Verb.RETRY).reason is Reason.NO_INCIDENT


def test_retry_leaves_backoff() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(minutes=5))))
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    world = world.suspended_by(controller.incident.id).job_deleted(300.3).recreated_suspended(303)
    controller.reconcile(world, 303.1)
    assert controller.phase() is Phase.BACKOFF
    world = asks(world, Verb.RETRY, 310)
    plan = controller.reconcile(world, 310.1)
    assert plan.requeue_at == at(310.1)
    plan = controller.reconcile(world, 310.2)
    assert type(plan.actions[0]).__name__ == "ResumeWorkload"


def test_reset_budget_lets_a_held_group_go_on_and_is_not_a_charge() -> None:
    controller = Controller(policy(limit=1))
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    assert controller.phase() is Phase.HELD
    world = asks(world, Verb.RESET_BUDGET, 400)
    controller.reconcile(world, 400.1)
    assert answer(controller, Verb.RESET_BUDGET).message == "1 charge no longer counts"
    controller.reconcile(world, 400.2)
    assert len(controller.triggers) == 2
    assert controller.ledger.totals.charged == 2


def test_a_value_that_is_no_request_is_none() -> None:
    deeper_than_any_python_reads = "[" * 100_000 + "]" * 100_000
    deep = f'{{"at": "2026-11-21T12:00:00Z", "x": {deeper_than_any_python_reads}}}'
    for value in ("", "yes", "{}", '{"at": 3}', "2026-11-21T12:00:00", '{"at": "2026-11-21T12:00:00"}', "{", deep):
        assert requests.parse(value) is None
    assert requests.parse("2026-11-21T12:00:00Z") is not None


def test_a_restart_asked_for_in_backoff_is_answered_as_such_and_ends_the_backoff() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(minutes=5))))
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    world = world.suspended_by(controller.incident.id).job_deleted(300.3).recreated_suspended(303)
    controller.reconcile(world, 303.1)
    world = asks(world, Verb.RESTART, 310)
    controller.reconcile(world, 310.1)
    assert answer(controller, Verb.RESTART).accepted
    plan = controller.reconcile(world, 310.2)
    assert type(plan.actions[0]).__name__ == "ResumeWorkload"
    assert len(controller.triggers) == 2, "it is on its way already"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.with_workload(suspended=True), "the TrainJob is suspended"),
        (lambda world: world.jobset_failed(50), "JobSet train is Failed"),
        (lambda world: world.with_jobset(deleting_since=at(50)), "there is no Job to restart"),
        (lambda world: world.job_gone(), "there is no Job to restart"),
        (lambda world: world.with_workload(deleting_since=at(50)), "the TrainJob is being deleted"),
    ],
    ids=["suspended", "JobSet Failed", "JobSet deleted", "no Job", "deleted"],
)
def test_a_retry_of_what_has_ended_meanwhile_deletes_nothing(change: Callable[[World], World], why: str) -> None:
    controller = Controller(policy(limit=0))
    lost = training(4).pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    controller.reconcile(asks(change(lost), Verb.RETRY, 100), 100.1)
    assert answer(controller, Verb.RETRY).message == why
    assert controller.triggers == []


def test_a_refused_request_does_not_make_the_controller_forget_what_it_waits_for() -> None:
    controller = Controller()
    lost = training(4).pod_deleted(3, 0)
    plan = controller.reconcile(asks(lost, Verb.RETRY, 0), 1)
    assert plan.requeue_at == at(1)


def test_what_was_forced_is_the_restart_and_not_what_the_policy_would_do_next() -> None:
    """The person did not ask for FailJob, another attempt or a new JobSet, and the policy only observes."""
    controller = Controller(policy(Mode.OBSERVE, limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True))
    world = asks(training(4), Verb.RESTART, 0, force=True)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    controller.done.clear()
    controller.reconcile(world.pod_deleted(1, 5), 5.5)
    assert controller.workload_actions == []
    assert controller.incident.reason is Reason.OBSERVE_MODE


def test_a_pause_after_a_forced_restart_holds_up_the_next_attempt() -> None:
    controller = Controller(policy(start_seconds=60))
    world = asks(training(4), Verb.RESTART, 0, force=True)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_scheduled()
    controller.reconcile(world, 3)
    paused = world.asked("recovery.trainjob.dev/paused", "true")
    controller.reconcile(paused, 100)
    assert len(controller.triggers) == 1
    controller.reconcile(world, 101)
    assert len(controller.triggers) == 2
    controller.reconcile(paused, 102)
    assert len(controller.triggers) == 2, "nor is the one that no one insisted on sent again in a pause"


def test_an_old_value_that_is_put_back_asks_for_nothing_new() -> None:
    """Otherwise a tool that restores annotations would restart the group with every sync."""
    controller = Controller()
    world = asks(training(4), Verb.RESTART, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    world = asks(world, Verb.RESTART, 100)
    controller.reconcile(world, 100.2)
    world = world.job_deleted(100.3).all_deleted(100.4).recreated(102).all_ready(104)
    controller.settle(world, 104.5)
    controller.reconcile(asks(world, Verb.RESTART, 0), 110)
    assert controller.ledger.epoch == 2


def test_a_request_from_the_future_is_refused_so_that_the_next_one_counts() -> None:
    controller = Controller()
    controller.reconcile(asks(training(4), Verb.RESTART, 1_000_000), 1)
    assert answer(controller, Verb.RESTART).reason is Reason.REQUEST_PREMATURE
    controller.reconcile(asks(training(4), Verb.RESTART, 2), 2.1)
    assert len(controller.triggers) == 1


def test_requests_made_at_once_are_each_answered() -> None:
    controller = Controller(policy(limit=0))
    lost = training(4).pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    world = asks(asks(asks(lost, Verb.RESTART, 10), Verb.RETRY, 10), Verb.RESET_BUDGET, 10)
    for seconds in range(4):
        controller.reconcile(world, 10.1 + seconds)
    assert [(told.verb, told.accepted) for told in controller.ledger.requests] == [
        ("restart", True),
        ("retry", False),
        ("reset-budget", True),
    ]
    assert (controller.ledger.epoch, controller.ledger.totals.charged) == (1, 0)


@pytest.mark.parametrize("force", [False, True], ids=["asked for", "forced"])
def test_ranks_that_met_after_that_restart_are_not_restarted_again(force: bool) -> None:
    """The controller was away while all ranks exited and met again. A person forced the restart before, not another."""
    controller = Controller()
    world = asks(training(4), Verb.RESTART, 100, force=force)
    controller.reconcile(world, 101)
    world = world.all_deleted(102)
    for rank in range(4):
        world = world.pod_gone(rank, 110)
    world = world.recreated(112).all_scheduled(113).all_started(115)
    controller.reconcile(world, 116)
    for rank in range(4):
        world = world.pod_failed(rank, 1, 130)
    controller.reconcile(world.all_came_back(132, 136), 140)
    assert len(controller.triggers) == 1
