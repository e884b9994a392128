"""A group whose lost nodes are not replaced continues with fewer, as `elastic` allows."""

import msgspec
import pytest

from recovery.core.incident import lifecycle
from recovery.core.model.annotations import KUEUE_QUEUE_LABEL, RESTART_ANNOTATION
from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Reason, explained
from recovery.core.model.rules import Rule, RuleAction
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import ExtendBackoffLimit, TryBirth
from recovery.core.policy.spec import Mode
from recovery.core.sentences import render
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import (
    ELASTIC,
    born,
    elastic_controller,
    rack_lost,
    reconciled,
    shrunk,
    sixteen,
    waiting_for_a_rack,
)
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import at


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


def test_lost_nodes_have_their_time_to_be_replaced() -> None:
    controller, world = waiting_for_a_rack()
    plan, _ = reconciled(controller, world, 119)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert plan.requeue_at == at(120)


def test_the_group_goes_on_with_the_pods_that_have_a_node() -> None:
    controller, world = waiting_for_a_rack()
    reconciled(controller, world, 121)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.SHRINK]
    assert controller.incident.reason is Reason.NODES_NOT_REPLACED
    settings, state = controller.ledger.birth_settings, controller.ledger.elastic
    assert settings is not None
    assert (settings.nodes, settings.replicated_job, settings.job_set_uid) == (12, "node", "jobset-1")
    assert state is not None
    assert (state.nodes, state.wanted_nodes, state.gpus) == (12, 16, 12 * GPUS_PER_POD)
    assert controller.triggers[-1].uid == "job-2"


def test_nothing_is_deleted_before_a_dry_run_has_shown_the_job() -> None:
    controller, world = waiting_for_a_rack()
    plan = controller.reconcile(world, 121)
    assert [type(action) for action in plan.actions] == [TryBirth, ExtendBackoffLimit]
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    again = controller.reconcile(world, 121.1)
    assert again.actions == plan.actions, "a crash in between asks again, and enters nothing twice"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (BirthOutcome.REFUSED, Reason.BIRTH_SETTINGS_REFUSED),
        (BirthOutcome.NOT_ALLOWED, Reason.BIRTH_SETTINGS_REFUSED),
        (BirthOutcome.NOT_APPLIED, Reason.BIRTH_SETTINGS_NOT_APPLIED),
        (BirthOutcome.OVERRULED, Reason.BIRTH_SETTINGS_OVERRULED),
    ],
)
def test_settings_that_do_not_work_are_withdrawn_and_the_group_waits_on(outcome: BirthOutcome, reason: Reason) -> None:
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121, outcome, "maxFailedIndexes")
    assert controller.ledger.birth_settings is None
    assert controller.ledger.elastic is None
    assert (actions(controller), controller.incident.reason) == ([AttemptAction.RECREATE_GROUP], reason)
    plan = controller.reconcile(world, 200)
    assert not any(isinstance(action, TryBirth) for action in plan.actions), "they are not tried again in this incident"


def test_a_person_who_has_installed_what_was_missing_has_them_tried_again_by_a_restart() -> None:
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121, BirthOutcome.NOT_APPLIED)
    assert controller.incident.reason is Reason.BIRTH_SETTINGS_NOT_APPLIED
    asked = '{"at": "2026-11-21T12:10:00Z", "by": "ops", "reason": "installed"}'
    world = world.asked(RESTART_ANNOTATION, asked)
    reconciled(controller, world, 601)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.RECREATE_GROUP]
    world = born(controller, world, 605, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 606)
    reconciled(controller, world, 615)
    assert actions(controller)[-1] is AttemptAction.SHRINK


def test_a_size_that_the_budget_does_not_allow_is_said() -> None:
    controller = elastic_controller(msgspec.structs.replace(ELASTIC, charge=True), limit=1)
    world = rack_lost(sixteen(), 0)
    reconciled(controller, world, 0.5)
    world = born(controller, world, 3, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 4)
    reconciled(controller, world, 121)
    assert (actions(controller), controller.incident.reason) == (
        [AttemptAction.RECREATE_GROUP],
        Reason.ATTEMPTS_EXHAUSTED,
    )


def test_the_incident_ends_with_the_smaller_group_and_its_shed_nodes_are_not_idle() -> None:
    controller, _ = shrunk()
    [incident] = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.ranks) == (Outcome.RECOVERED, 12)
    sizes = {span.gpus for span in incident.phases}
    assert sizes == {None, 12 * GPUS_PER_POD}
    idle = sum(span.idle_gpu_seconds for span in incident.phases)
    whole_for = (incident.attempts[1].started_at - incident.started_at).total_seconds()
    smaller_for = (incident.closing.ended_at - incident.attempts[1].started_at).total_seconds()
    assert idle == pytest.approx((whole_for * 16 + smaller_for * 12) * GPUS_PER_POD, abs=0.01)


def test_a_smaller_group_that_loses_a_member_comes_back_with_its_size() -> None:
    controller, world = shrunk()
    before = controller.ledger.birth_settings
    world = world.pod_deleted(3, 1000)
    reconciled(controller, world, 1000.5)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert controller.ledger.birth_settings == before
    world = born(controller, world, 1003).all_ready(1010)
    controller.settle(world, 1011)
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == 12
    totals = controller.ledger.totals
    assert totals.reduced_seconds == pytest.approx(1000 - 131, abs=1)
    assert totals.gained_gpu_seconds == pytest.approx(totals.reduced_seconds * 12 * GPUS_PER_POD, abs=1)


def test_below_the_smallest_size_the_group_waits_and_goes_on_when_there_is_room() -> None:
    controller = elastic_controller()
    lost = tuple(range(6, 16))
    world = rack_lost(sixteen(), 0, lost)
    reconciled(controller, world, 0.5)
    world = born(controller, world, 3, unplaced=lost)
    reconciled(controller, world, 4)
    reconciled(controller, world, 400)
    assert (actions(controller), controller.phase()) == ([AttemptAction.RECREATE_GROUP], Phase.SCHEDULING)
    assert controller.incident.reason is Reason.BELOW_MIN_NODES
    for rank in (6, 7):
        world = world.scheduled(rank)
    reconciled(controller, world, 401)
    assert actions(controller)[-1] is AttemptAction.SHRINK
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == 8


@pytest.mark.parametrize(
    ("elastic", "placed", "expected"),
    [
        (PinnedElastic(8, 16, multiple_of=4), 15, 12),
        (PinnedElastic(8, 16, allowed_sizes=(8, 10)), 15, 10),
        (PinnedElastic(8, 12), 15, 12),
        (PinnedElastic(1, 100), 15, 15),
        (PinnedElastic(8, 16, multiple_of=4), 11, 8),
    ],
)
def test_the_size_is_the_largest_that_is_allowed(elastic: PinnedElastic, placed: int, expected: int) -> None:
    controller = elastic_controller(msgspec.structs.replace(elastic, shrink_after_seconds=0))
    lost = tuple(range(placed, 16))
    world = rack_lost(sixteen(), 0, lost)
    reconciled(controller, world, 0.5)
    world = born(controller, world, 3, unplaced=lost)
    reconciled(controller, world, 4)
    reconciled(controller, world, 10)
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == expected


def test_a_rule_that_says_shrink_does_not_wait_for_its_nodes() -> None:
    controller = elastic_controller(rules=(Rule("rack", RuleAction.SHRINK),))
    world = rack_lost(sixteen(), 0)
    reconciled(controller, world, 0.5)
    assert controller.incident.attempts[-1].reason is Reason.RULE_SHRINK
    world = born(controller, world, 3, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 4)
    reconciled(controller, world, 9.5)
    assert actions(controller)[-1] is AttemptAction.SHRINK


def test_nothing_is_given_up_while_pods_of_a_large_group_are_still_being_created_and_placed() -> None:
    """The Job controller creates about twenty pods a second, and the scheduler binds them one by one."""
    controller = elastic_controller(rules=(Rule("rack", RuleAction.SHRINK),))
    world = rack_lost(sixteen(), 0)
    reconciled(controller, world, 0.5)
    world = world.born(3, controller.ledger.birth_settings)
    for rank in range(9):
        world = world.scheduled(rank, 4 + rank // 2)
    world = world.unschedulable(9, "0/16 nodes are available")
    reconciled(controller, world, 4)
    plan, _ = reconciled(controller, world, 9.5)
    assert (actions(controller), plan.requeue_at) == ([AttemptAction.RECREATE_GROUP], at(13))
    for rank in range(9, 12):
        world = world.scheduled(rank, rank)
    for rank in range(12, 16):
        world = world.unschedulable(rank, "0/16 nodes are available")
    reconciled(controller, world, 15.5)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    reconciled(controller, world, 16.5)
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == 12


def test_pods_on_a_node_that_is_not_ready_are_not_counted() -> None:
    controller, world = waiting_for_a_rack()
    reconciled(controller, world.with_node("gpu-0", ready=False), 121)
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.nodes == 11


def test_the_attempt_says_that_kueue_keeps_the_quota() -> None:
    controller, world = waiting_for_a_rack()
    reconciled(controller, world.with_workload(labels={KUEUE_QUEUE_LABEL: "team"}), 121)
    assert actions(controller)[-1] is AttemptAction.SHRINK
    assert controller.incident.reason is Reason.NODES_NOT_REPLACED
    assert controller.incident.message.endswith(render(explained(Sentence.QUOTA_KEPT, Reason.KUEUE, nodes=16)))


def test_a_pod_that_does_not_go_is_named_and_nothing_more_is_done() -> None:
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121)
    world = world.all_deleted(122, grace_seconds=1).job_deleted(122)
    for rank in range(1, 16):
        world = world.pod_gone(rank, 124)
    triggers = len(controller.triggers)
    controller.reconcile(world, 152)
    assert controller.incident.reason is Reason.NODES_NOT_REPLACED, "it has had its grace and 30 s"
    controller.reconcile(world, 154)
    assert (controller.phase(), controller.incident.reason) == (Phase.TEARING_DOWN, Reason.WAITING_FOR_TEARDOWN)
    assert world.pod(0).name in controller.incident.message
    assert len(controller.triggers) == triggers


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"succeeded": 1}, Reason.INDEX_SUCCEEDED),
        ({"gang": "scheduling.x-k8s.io/pod-group"}, Reason.SIZE_FIXED),
        ({"completions": None}, Reason.SIZE_FIXED),
        ({"pinned": True}, Reason.SIZE_FIXED),
    ],
)
def test_a_size_that_cannot_change_is_said(changes: dict[str, object], reason: Reason) -> None:
    controller, world = waiting_for_a_rack()
    world = world.with_job(**changes)
    if "succeeded" in changes:
        world = world.although("job counts")
    controller.reconcile(world, 121)
    assert (actions(controller), controller.incident.reason) == ([AttemptAction.RECREATE_GROUP], reason)


def test_observe_and_a_policy_without_elastic_keep_the_size() -> None:
    for mode, elastic in ((Mode.OBSERVE, ELASTIC), (Mode.ENFORCE, None)):
        controller = elastic_controller(elastic, mode=mode)  # type: ignore[arg-type]
        world = rack_lost(sixteen(), 0)
        controller.reconcile(world, 0.5)
        world = born(controller, world, 3, unplaced=(12, 13, 14, 15))
        controller.reconcile(world, 400)
        assert controller.ledger.birth_settings is None
        assert controller.ledger.elastic is None


def test_a_job_that_is_refused_at_birth_gets_no_settings() -> None:
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121)
    gone = world.job_gone()
    plan = controller.reconcile(gone, 124)
    refused = gone.with_jobset(failed_create='Job.batch "train-node-0" is invalid', failed_create_at=at(125))
    plan = controller.reconcile(refused, 127)
    assert controller.incident.reason is Reason.BIRTH_SETTINGS_REFUSED
    assert controller.ledger.birth_settings is None
    assert controller.ledger.elastic is None
    assert plan.requeue_at is not None
    world = gone.job_created(130).pods_created(130).all_ready(140)
    controller.settle(world, 141)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED


def test_a_job_that_is_born_without_its_settings_is_made_again_once() -> None:
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121)
    for count, seconds in enumerate((125, 135), start=1):
        world = world.born(seconds, None)
        for rank in range(12):
            world = world.scheduled(rank)
        _, world = reconciled(controller, world, seconds + 1)
        assert actions(controller).count(AttemptAction.SHRINK) == min(count + 1, 2)
    assert controller.ledger.birth_settings is None
    assert controller.incident.reason is Reason.BIRTH_SETTINGS_NOT_APPLIED


def test_a_users_own_size_is_kept_over_a_restart() -> None:
    controller = elastic_controller()
    world = sixteen().with_job(parallelism=14, completions=14).pod_deleted(2, 0)
    for rank in (14, 15):
        world = world.pod_gone(rank, -100).with_job()
    world = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if (pod.index or 0) < 14))
    reconciled(controller, world, 1)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert controller.ledger.birth_settings is not None
    assert controller.ledger.birth_settings.nodes == 14
    assert controller.ledger.elastic is None, "it has all the nodes that its user wants"
    before = len(controller.triggers)
    reconciled(controller, world, 1.5)
    assert len(controller.triggers) > before, "a trigger that a crash lost is sent again"


def test_a_users_size_that_is_the_templates_needs_no_settings() -> None:
    """No reconcile happened between the resize and the loss."""
    controller, world = shrunk()
    world = world.with_job(parallelism=16, completions=16).pod_deleted(2, 140)
    reconciled(controller, world, 141)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert controller.ledger.birth_settings is None


def test_a_size_that_a_user_sets_holds_up_a_restart_only_before_it_has_begun() -> None:
    for claimed, phase in ((False, Phase.HELD), (True, Phase.DECIDED)):
        controller = Controller(policy())
        world = sixteen().pod_deleted(2, 0)
        controller.reconcile(world, 1)
        attempt = lifecycle.attempt_id(controller.incident)
        world = world.with_job(parallelism=14, completions=14, torn_down_by=attempt if claimed else "")
        controller.reconcile(world, 1.5)
        assert controller.ledger.phase is phase
