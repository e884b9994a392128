"""Nodes that do not answer: when their processes count as dead, and what that means for a recovery."""

import pytest

from recovery.core.incident.fencing import fates_of_nodes
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, ForceDeletePods
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at, whole

ASSUME = policy(fencing=FencingMode.ASSUME_DEAD, assume_dead_seconds=60, may_assume_dead=True)
UNPERMITTED = policy(fencing=FencingMode.ASSUME_DEAD, assume_dead_seconds=60)
SILENT = training().node_silent("gpu-2", 0)
LEASE_LIVES = training().node_silent("gpu-2", 0, lease_seconds=30)


@pytest.mark.parametrize(
    ("world", "policy_", "seconds", "dead", "says"),
    [
        pytest.param(training(), ASSUME, 100, None, None, id="a node that answers is no question"),
        pytest.param(SILENT, policy(), 9999, False, "or has the out-of-service taint", id="Proven waits"),
        pytest.param(SILENT, UNPERMITTED, 9999, False, "RecoveryConfig does not allow assumeDead", id="no permission"),
        pytest.param(SILENT, ASSUME, 59, False, "assumed dead after 60 s", id="not yet"),
        pytest.param(SILENT, ASSUME, 60, True, "assumes that it is dead (AssumeDead)", id="assumed dead"),
        pytest.param(
            LEASE_LIVES, ASSUME, 60, False, "assumed dead", id="its lease lives"
        ),
        pytest.param(
            LEASE_LIVES, ASSUME, 90, True, "AssumeDead", id="so does that end"
        ),
        pytest.param(SILENT.unheard("nodes"), ASSUME, 60, False, "nodes are silent", id="nodes are stale"),
        pytest.param(SILENT.unheard("pods"), ASSUME, 60, True, "AssumeDead", id="others are"),
        pytest.param(SILENT.node_deleted("gpu-2"), policy(), 1, True, "was deleted", id="proven: the Node is gone"),
        pytest.param(
            SILENT.node_deleted("gpu-2").unheard("nodes"), policy(), 1, True, "was deleted", id="proof is read live"
        ),
        pytest.param(
            SILENT.node_out_of_service("gpu-2", 1), policy(), 2, True, "out of service", id="proven: out-of-service"
        ),
        pytest.param(
            training().node_out_of_service("gpu-2", 1), policy(), 2, None, None, id="out-of-service, yet it answers"
        ),
        pytest.param(
            training().with_node("gpu-2", ready=False, ready_since=whole(0)), ASSUME, 999, None, None,
            id="a kubelet that says that it is not ready is alive",
        ),
    ],
)  # fmt: skip
def test_when_a_node_counts_as_dead(
    world: World, policy_: Policy, seconds: float, dead: bool | None, says: str | None
) -> None:
    fate = fates_of_nodes(world.snapshot(live=True), policy_, at(seconds)).get("gpu-2")
    assert (None if fate is None else fate.dead_since is not None) == dead
    assert says is None or (fate is not None and says in fate.why)


def test_without_proof_nothing_is_done_about_a_silent_node() -> None:
    controller = Controller(policy())
    plan = controller.reconcile(SILENT, 100)
    assert controller.ledger.incident is None
    assert "node gpu-2 has not answered since 12:00:00" in plan.message


def test_time_alone_has_a_node_taken_for_dead() -> None:
    assert Controller(ASSUME).reconcile(SILENT, 10).requeue_at == at(60)


def test_a_node_taken_for_dead_restarts_the_group_and_its_pod_is_forced() -> None:
    controller = Controller(ASSUME)
    controller.reconcile(SILENT, 60)
    assert controller.incident.disruption_class == "NodeLost"
    assert controller.incident.started_at == at(0), "idle since the node fell silent"
    assert [type(action) for action in controller.done if isinstance(action, DeleteJob | ForceDeletePods)] == [
        DeleteJob,
        ForceDeletePods,
    ]
    assert controller.forced == ["train-node-0-2-10"]
    assert "train-node-0-2-10" not in controller.pod_deletes, "nobody is left to heed its grace"
    assert len(controller.pod_deletes) == 3


def test_without_permission_an_evicted_pod_is_waited_for_in_fencing_until_the_node_returns() -> None:
    controller = Controller(UNPERMITTED)
    evicted = SILENT.evicted(2, 300, reason="DeletionByTaintManager")
    controller.reconcile(evicted, 301)
    assert len(controller.triggers) == 1, "the others hang: they are restarted"
    going = evicted.job_deleted(302).all_deleted(302)
    for index in (0, 1, 3):
        going = going.with_pod(index, gone_at=at(310))
    going = going.pod_deleted(2, 300)
    plan = controller.reconcile(going, 320)
    assert controller.phase() is Phase.FENCING
    assert plan.reason is Reason.FENCING
    assert "RecoveryConfig does not allow assumeDead" in controller.incident.message
    assert controller.forced == []
    back = going.node_back("gpu-2").recreated(400)
    controller.reconcile(back.all_started(410), 411)
    controller.settle(back.all_ready(420), 421)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED
    assert [attempt.action for attempt in controller.recorded[-1].attempts] == [AttemptAction.RECREATE_GROUP]


def test_a_node_object_that_is_deleted_while_fencing_ends_it() -> None:
    controller = Controller(policy())
    evicted = SILENT.evicted(2, 300, reason="DeletionByTaintManager")
    controller.reconcile(evicted, 301)
    going = evicted.job_deleted(302).all_deleted(302)
    controller.reconcile(going, 320)
    assert controller.forced == []
    controller.reconcile(going.node_deleted("gpu-2"), 330)
    assert controller.forced == ["train-node-0-2-10"]


def test_permission_that_is_taken_back_stops_force_deletes_at_once() -> None:
    controller = Controller(ASSUME)
    controller.reconcile(SILENT, 60)
    controller.done.clear()
    controller.policy = UNPERMITTED
    controller.reconcile(SILENT.job_deleted(61).all_deleted(61), 62)
    assert controller.forced == []


def test_in_observe_nothing_is_forced() -> None:
    controller = Controller(policy(Mode.OBSERVE, fencing=FencingMode.ASSUME_DEAD, may_assume_dead=True))
    controller.reconcile(SILENT, 100)
    assert controller.workload_actions == []
    assert "Enforce would have deleted Job train-node-0" in controller.incident.message


def test_a_dead_pod_blocks_no_restart_of_the_platforms_own() -> None:
    """The JobSet restarts the group itself and waits for a pod that nothing else will ever end."""
    controller = Controller(policy())
    lost = SILENT.node_deleted("gpu-2").pod_deleted(2, 300)
    adopted = lost.restarted_by_jobset().job_deleted(301).all_deleted(301)
    controller.reconcile(adopted, 302)
    assert controller.triggers == []
    assert controller.forced == ["train-node-0-2-10"]
