"""Which is deleted first, the Job or its pods: a kubelet keeps to the grace period of the first delete that it sees."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.fleet_ledger import FleetLedger, Futile
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.native_policy_facts import ExitCodesRequirement, PodFailureRule
from recovery.core.model.reason import Reason, as_said
from recovery.core.plan.actions import Action, ClaimJob, DeleteJob, DeletePods, Plan, RaiseBackoffLimit, SuspendWorkload
from recovery.core.policy.resolved import Backoff, Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_resized import sized
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

SHORT = policy(grace_seconds=5)
ATTEMPT = "0d2f5c9e-1-1"


def lost(world: World) -> World:
    return world.pod_failed(3, 1, 0)


def claimed(world: World) -> World:
    return world.with_job(torn_down_by=ATTEMPT, backoff_limit=10)


def kinds(controller: Controller, world: World, seconds: float) -> list[type]:
    """The types of the actions on the workload in this reconcile."""
    return [type(action) for action in workload_actions(controller.reconcile(world, seconds))]


def workload_actions(plan: Plan) -> list[Action]:
    order = (ClaimJob, DeleteJob, SuspendWorkload, RaiseBackoffLimit, DeletePods)
    return [action for action in (*plan.first, *plan.actions) if isinstance(action, order)]


def test_pods_go_before_their_job_where_the_policy_gives_them_less_time() -> None:
    controller, world = Controller(SHORT), lost(training())
    plan = controller.reconcile(world, 0.2)
    claim, deletes = (action for action in plan.actions if isinstance(action, ClaimJob | DeletePods))
    assert isinstance(claim, ClaimJob)
    assert (claim.uid, claim.resource_version, claim.attempt) == ("job-1", world.job.resource_version, ATTEMPT)
    assert claim.backoff_limit == 6 + 3, "the Job survives our deletes, and keeps the retries of its user"
    assert isinstance(deletes, DeletePods)
    assert (len(deletes.pods), deletes.grace_seconds) == (4, 5)
    assert controller.phase() is Phase.DECIDED
    assert plan.requeue_at == at(0.2), "the trigger follows at once, whatever the watches say"
    going = claimed(world).all_deleted(0.3, grace_seconds=5)
    assert kinds(controller, going, 0.4) == [DeleteJob, RaiseBackoffLimit]
    assert controller.ledger.epoch == 1


def test_the_one_claim_of_an_attempt_is_followed_by_the_trigger_though_its_deletes_were_lost() -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    assert kinds(controller, claimed(world), 0.4) == [DeleteJob, RaiseBackoffLimit, DeletePods]


def test_a_teardown_that_has_begun_is_finished_though_the_circuit_breaker_has_opened() -> None:
    """The restart itself may have opened it. After half a teardown the Job would replace the pods one by one."""
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    opened = as_said(Reason.BREAKER_OPEN, "the circuit breaker is open: 1 recovery")
    controller.policy = msgspec.structs.replace(SHORT, mode=Mode.OBSERVE, breaker=opened)
    assert kinds(controller, world, 0.3) == [], "nothing has begun"
    assert kinds(controller, claimed(world).paused(), 0.4) == []
    assert kinds(controller, claimed(world), 0.5) == [DeleteJob, RaiseBackoffLimit, DeletePods]


@pytest.mark.parametrize(("noted_for", "made"), [(0.2, [ClaimJob, DeletePods]), (0.1, [])])
def test_the_attempt_that_has_opened_the_circuit_breaker_is_made(noted_for: float, made: list[type]) -> None:
    """Its first delete was refused, because the Job had changed. The attempt itself must have opened the breaker."""
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    opened = as_said(Reason.BREAKER_OPEN, "the circuit breaker is open: 1 recovery")
    fleet = FleetLedger(futile=(Futile(controller.incident.id, at(noted_for), "default", "train"),))
    controller.policy = msgspec.structs.replace(SHORT, mode=Mode.OBSERVE, breaker=opened, fleet=fleet)
    assert kinds(controller, world.paused(), 0.3) == []
    assert kinds(controller, world, 0.4) == made


def test_a_teardown_that_has_begun_stops_when_the_policy_is_switched_to_observe() -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    controller.policy = msgspec.structs.replace(SHORT, mode=Mode.OBSERVE)
    assert kinds(controller, claimed(world), 0.5) == []


def test_a_job_that_has_changed_since_is_claimed_by_what_it_is_now() -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    changed = world.with_job(active=3)
    [claim] = (action for action in controller.reconcile(changed, 0.4).actions if isinstance(action, ClaimJob))
    assert claim.resource_version == changed.job.resource_version
    assert not controller.triggers


@pytest.mark.parametrize(
    ("policy_", "world"),
    [
        (policy(), training()),
        (policy(grace_seconds=30), training()),
        (SHORT, training(rules=(PodFailureRule("FailJob", ExitCodesRequirement("In", (143,))),))),
        (SHORT, training().with_job(backoff_limit_per_index=3)),
        (SHORT, training().with_pod(0, grace_seconds=5).with_pod(1, grace_seconds=1).with_pod(2, grace_seconds=5)),
        (SHORT, training().pod_deleted(0, 0).pod_deleted(1, 0).pod_deleted(2, 0)),
    ],
    ids=[
        "no grace in the policy",
        "no shorter grace",
        "a podFailurePolicy may end the Job for what we delete",
        "a limit for each index cannot be raised",
        "only pods that have ended give themselves more",
        "others have deleted them",
    ],
)
def test_otherwise_the_job_goes_first(policy_: Policy, world: World) -> None:
    assert kinds(Controller(policy_), lost(world), 0.2)[:2] == [DeleteJob, RaiseBackoffLimit]


def test_a_suspension_deletes_the_pods_itself_so_that_the_job_goes_first() -> None:
    controller = Controller(policy(grace_seconds=5, backoff=Backoff(initial=timedelta(seconds=10))))
    world = lost(training())
    controller.reconcile(world, 0.2)
    world = claimed(world).job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    assert kinds(controller, world.pod_failed(2, 1, 300), 300.2)[:2] == [DeleteJob, SuspendWorkload]


def test_a_claimed_job_whose_trainer_exits_0_on_sigterm_is_restarted() -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    going = claimed(world).succeeded(1).all_deleted(0.3, grace_seconds=5)
    assert kinds(controller, going, 0.4)[0] is DeleteJob
    gone = going.pod_gone(1, 0.5).with_job(succeeded=1)
    assert kinds(controller, gone, 0.6)[0] is DeleteJob


@pytest.mark.parametrize(
    "finish",
    [lambda world: world.succeeded(1), lambda world: world.success_criteria_met(0.3)],
    ids=["a rank that no one has asked to go", "the Job itself"],
)
def test_a_claimed_job_that_is_done_even_so_is_left_to_finish(finish: Callable[[World], World]) -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    controller.settle(finish(claimed(world)), 0.4)
    assert not controller.triggers
    [incident] = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, Reason.JOB_FINISHING)


def test_a_user_who_suspends_the_job_amid_its_teardown_gets_a_new_job_on_resuming() -> None:
    """The old Job counts our pod deletes as failures, and would wait for minutes before it creates pods again."""
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    going = claimed(world).all_deleted(0.3, grace_seconds=5).suspended()
    [delete] = workload_actions(controller.reconcile(going, 0.4))
    assert isinstance(delete, DeleteJob)
    assert delete.uid == "job-1"
    controller.settle(going.job_deleted(0.5), 0.6)
    [incident] = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, Reason.JOB_SUSPENDED)


@pytest.mark.parametrize(
    "world",
    [
        lost(training()).suspended(),
        claimed(lost(training())).job_deleted(0.3).suspended(),
        claimed(lost(training())).paused().suspended(),
        claimed(lost(training())).success_criteria_met(0.3).suspended(),
    ],
    ids=["not claimed", "being deleted", "paused", "finishing"],
)
def test_no_other_job_is_deleted_when_its_user_suspends_it(world: World) -> None:
    controller = Controller(SHORT)
    controller.reconcile(lost(training()), 0.2)
    assert kinds(controller, world, 0.4) == []


# --- the Job was quicker than the controller -----------------------------------------------------------------------


def interrupted(last: float = 11) -> tuple[Controller, World]:
    """The pods of the claimed Job were deleted. The controller was then held up, and the Job replaced them.

    `last`: when the Job created the last pod.
    """
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    world = claimed(world)
    for index in range(3):
        world = world.pod_deleted(index, 1, grace_seconds=5)
    for index in range(4):
        created = last if index == 3 else 11
        world = world.came_back(index, created, created + 2)
    return controller, world


def test_a_group_that_its_job_has_brought_back_meanwhile_is_not_restarted_a_second_time() -> None:
    """Seed 2017: the group had trained for 20 seconds by then."""
    controller, world = interrupted()
    assert kinds(controller, world, 30) == []
    closing = controller.incident.closing
    assert closing is not None
    assert (closing.outcome, closing.ended_at) == (Outcome.RECOVERED, at(14))
    assert len(controller.incident.attempts) == 1


def test_a_group_that_its_job_brought_back_is_restarted_where_an_old_member_still_runs() -> None:
    controller, world = Controller(SHORT), lost(training())
    controller.reconcile(world, 0.2)
    world = claimed(world).came_back(3, 11, 13)
    assert DeleteJob in kinds(controller, world, 30)


def test_a_group_that_its_job_brought_back_is_restarted_where_a_member_was_lost_again() -> None:
    controller, world = interrupted()
    again = world.pod_deleted(2, 20).came_back(2, 21, 23)
    assert DeleteJob in kinds(controller, again, 30)


def test_it_is_where_no_controller_has_watched_and_one_began_before_another_was_created() -> None:
    """The younger pod may have replaced a member that the others had met: the Job has counted failures."""
    controller, world = interrupted(last=20)
    assert kinds(controller, world, 30) == []
    controller, world = interrupted(last=20)
    unwatched = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.created_at > at(0)))
    assert DeleteJob in kinds(controller, unwatched.with_job(failed=4).controller_restarted(), 30)


def test_the_size_that_a_user_has_given_the_job_since_is_kept() -> None:
    """The Job stays. The remaining pods of the old group are deleted, and the Job replaces those too."""
    controller, world = Controller(SHORT), lost(sized(training(), 4, 4))
    controller.reconcile(world, 0.2)
    world = claimed(world).with_job(parallelism=3, completions=3).pod_deleted(0, 1).pod_deleted(1, 1)
    world = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.index != 3))
    plan = controller.reconcile(world, 2)
    (deletion,) = workload_actions(plan)
    assert isinstance(deletion, DeletePods)
    assert [pod.name for pod in deletion.pods] == ["train-node-0-2-10"]
    assert (plan.reason, controller.ledger.phase) == (Reason.USER_RESIZED, Phase.DECIDED)
    for index in range(3):
        world = world.pod_deleted(index, 3).came_back(index, 11, 13)
    assert kinds(controller, world, 30) == []
    assert controller.incident.closing is not None
    assert controller.incident.closing.outcome is Outcome.RECOVERED
