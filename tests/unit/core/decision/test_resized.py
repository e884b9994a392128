"""A restart would bring a Job that its user has resized back in the template's size, so its group is Held."""

import msgspec
import pytest

from recovery.core.decision.resuming import OUTLIVES_IN
from recovery.core.diagnosis.meeting import meet
from recovery.core.model.annotations import RETRY_ANNOTATION
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.plan.actions import DeleteJobSet
from recovery.core.policy.spec import Mode, OnTerminalFailure
from tests.unit.core.decision.restarted import recreated
from tests.unit.core.decision.test_baselines import untouched
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import shrunk
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def sized(world: World, parallelism: int, completions: int | None = None) -> World:
    """Sets this size in the template in the JobSet."""
    assert world.jobset is not None
    (template,) = world.jobset.replicated_jobs
    known = msgspec.structs.replace(template, size_known=True, parallelism=parallelism, completions=completions)
    return world.with_jobset(replicated_jobs=(known,))


def test_a_resized_job_is_held_and_not_restarted() -> None:
    for template in (3, 5):
        controller = Controller()
        controller.reconcile(sized(training(4), template, template).pod_deleted(2, 0), 1)
        assert (controller.triggers, controller.ledger.phase) == ([], Phase.HELD)
        assert controller.incident.step.verdict is Reason.USER_RESIZED
        assert not controller.incident.charged


def test_one_of_the_templates_size_is_restarted() -> None:
    controller = Controller()
    controller.reconcile(sized(training(4), 4).pod_deleted(2, 0), 1)
    assert len(controller.triggers) == 1


def test_fewer_completions_than_parallelism_make_the_size() -> None:
    controller = Controller()
    controller.reconcile(sized(training(4), 9, 4).pod_deleted(2, 0), 1)
    assert len(controller.triggers) == 1


def test_observe_says_that_enforce_would_hold() -> None:
    controller = Controller(policy(mode=Mode.OBSERVE))
    controller.reconcile(sized(training(4), 5, 5).pod_deleted(2, 0), 1)
    assert (controller.incident.would, controller.incident.reason) == ("Hold", Reason.USER_RESIZED)


def test_a_resize_between_the_ledger_and_the_trigger_is_seen() -> None:
    controller = Controller()
    lost = sized(training(4), 4, 4).pod_deleted(2, 0)
    controller.reconcile(lost, 1)
    before = len(controller.triggers)
    controller.reconcile(lost.with_job(parallelism=3, completions=3), 2)
    assert len(controller.triggers) == before
    assert controller.incident.step.verdict is Reason.USER_RESIZED


@pytest.mark.parametrize("ready", [20, 1000])
def test_a_group_held_before_its_trigger_was_out_may_run_whole_again(ready: float) -> None:
    """It counts as recovered once it has outlived the cause of its Hold, however old the restart is."""
    controller = Controller()
    lost = sized(training(4), 4, 4).pod_deleted(2, 0)
    controller.reconcile(lost, 1)
    resized = lost.with_job(parallelism=3, completions=3)
    controller.reconcile(resized, 2)
    whole = resized.all_came_back(10, ready)
    plan = controller.reconcile(whole, ready + 1)
    outlived = ready + OUTLIVES_IN.total_seconds()
    assert (controller.ledger.phase, plan.requeue_at) == (Phase.HELD, at(outlived))
    controller.reconcile(whole, outlived + 1)
    closing = controller.incident.closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.HELD, Reason.RUNS_WHOLE_AGAIN)
    assert closing.ended_at == at(ready + 1)


def test_a_resized_group_whose_ranks_never_meet_stays_held() -> None:
    """Seed 14534: torchrun waits 10 minutes for the rank that the user has removed."""
    controller = Controller()
    smaller = training(restart_policy="OnFailure").with_job(parallelism=3, completions=3)
    world = sized(msgspec.structs.replace(smaller, pods=smaller.pods[:3]), 4, 4)
    controller.settle(world.container_exited(2, 1, 0), 10)
    assert controller.ledger.phase is Phase.HELD
    world = world.container_restarted(2, 1, 0)
    for began in (620, 1240, 1860):
        for index in range(3):
            world = world.container_restarted(index, 1, began - 1)
        controller.settle(world, began + 1)
        controller.settle(world, began + 615)
        assert controller.ledger.phase is Phase.HELD
    assert controller.ledger.totals.incidents == 1


def test_a_retry_restarts_a_group_that_a_user_resized() -> None:
    controller = Controller()
    world = sized(training(4), 5, 5).pod_deleted(2, 0)
    controller.reconcile(world, 1)
    asked = world.asked(RETRY_ANNOTATION, '{"at": "2026-11-21T12:00:02Z", "by": "ops", "reason": "five again"}')
    controller.reconcile(asked, 3)
    assert len(controller.triggers) == 1
    controller.reconcile(asked, 4)
    assert controller.ledger.phase is not Phase.HELD


def given_its_whole_size() -> tuple[Controller, World]:
    """A group ran with twelve nodes. Its user then patches the Job to the sixteen nodes of its template."""
    controller, world = shrunk()
    world = world.with_job(parallelism=16, completions=16)
    controller.reconcile(world, 211)
    assert (controller.ledger.elastic, controller.ledger.birth_settings) == (None, None)
    return controller, world


def test_a_trigger_is_sent_again_for_a_job_that_its_user_has_given_the_templates_size() -> None:
    """A restart does not undo the resize. A cascade often changes the Job, and then the first trigger is refused."""
    controller, world = given_its_whole_size()
    world = world.pod_deleted(2, 1000)
    controller.reconcile(world, 1001)
    before = len(controller.triggers)
    controller.reconcile(world.with_job(), 1001.5)
    assert (len(controller.triggers), controller.ledger.phase) == (before + 1, Phase.DECIDED)


def test_such_a_job_is_restarted_without_elastic_too() -> None:
    for reconciled_meanwhile in (True, False):
        controller, world = given_its_whole_size() if reconciled_meanwhile else shrunk()
        controller.policy = policy()
        world = world.with_job(parallelism=16, completions=16).pod_deleted(2, 1000)
        before = len(controller.triggers)
        controller.reconcile(world, 1001)
        assert (len(controller.triggers), controller.ledger.birth_settings) == (before + 1, None)


def test_such_a_jobset_is_recreated_when_it_has_failed() -> None:
    controller, world = given_its_whole_size()
    controller.policy = policy(on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET)
    failed = world.pod_failed(2, 1, 1000).job_failing("BackoffLimitExceeded", 1000).jobset_failed(1001)
    controller.reconcile(failed, 1002)
    assert any(isinstance(action, DeleteJobSet) for action in controller.done)


@pytest.mark.parametrize("starts", [False, True])
def test_a_rank_that_a_user_adds_to_a_group_that_runs_again_is_not_waited_for(starts: bool) -> None:
    """Seeds 14741 and 20401: no node had room for it, and the others trained for an hour. One that runs may join."""
    controller, back = recreated()
    added = back.all_scheduled().all_started(20).all_ready(21).with_job(parallelism=5, completions=5).replaced(4, 30)
    controller.settle(added.started(4, 31) if starts else added, 40)
    assert (controller.ledger.incident is not None) == starts
    assert [each.closing.outcome for each in controller.recorded if each.closing is not None] == (
        [] if starts else [Outcome.RECOVERED]
    )


# --- a rank that a user has added has replaced no one --------------------------------------------------------------


def added(template: int) -> World:
    """A group of four lost a rank, and all were replaced. Much later a fifth rank runs too. `template`: how many pods
    the JobSet gives its Jobs. With five, the fifth one was lost too, before its known pod was created."""
    repaired = training(4).pod_failed(3, 1, -3000)
    for index in range(4):
        repaired = repaired.came_back(index, -2990, -2980)
    five = repaired.with_job(parallelism=5, completions=5).replaced(4, -100).with_job(failed=template)
    return sized(five.started(4, -90).pod_ready(4, -90), template)


def remembered(world: World, members: int) -> World:
    """The store saw the group train with so many ranks."""
    return msgspec.structs.replace(world, trained_members={world.job.uid: members})


@pytest.mark.parametrize(
    "world", [remembered(added(4), 5), added(4).controller_restarted()], ids=["seen", "new leader"]
)
def test_a_rank_above_the_size_of_the_template_has_replaced_no_one_once_all_run(world: World) -> None:
    """Seed 997: the Job had counted failures, and its store counts the fifth rank as one that has trained."""
    assert untouched(world, 0) in {Reason.NO_FAILURE, Reason.BASELINE}
    assert meet(world.snapshot()).standing is not Standing.BROKEN


@pytest.mark.parametrize(("template", "standing"), [(4, Standing.UNKNOWN), (5, Standing.BROKEN)])
def test_its_end_does_not_show_whether_the_others_had_met_it(template: int, standing: Standing) -> None:
    """All ranks have begun again. The size of the program may be that of the template, so it gives up alone."""
    again = remembered(added(template).all_came_back(-60, -50), 5)
    assert meet(again.snapshot()).standing is Standing.MET
    assert meet(again.pod_failed(4, 1, -10).snapshot()).standing is standing
    assert meet(again.pod_failed(3, 1, -10).snapshot()).standing is Standing.BROKEN


@pytest.mark.parametrize(
    "world", [remembered(added(5), 5), added(5).controller_restarted()], ids=["seen", "new leader"]
)
def test_one_within_it_has_replaced_a_rank_that_was_lost_unseen(world: World) -> None:
    controller = Controller(policy(since=-86_400))
    controller.reconcile(world, 0)
    assert controller.ledger.incident is not None
