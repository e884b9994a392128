"""A group that does not start: nothing is restarted for it, and the sentence says who waits for what."""

import pytest

from recovery.core.facts import ContainerFacts
from tests.unit.core.driver import Controller
from tests.unit.core.world import World, group, training


def pulling(world: World, index: int, reason: str, message: str = "") -> World:
    container = ContainerFacts(name="node", waiting_reason=reason, waiting_message=message)
    return world.scheduled(index).with_pod(index, containers=(container,))


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (
            pulling(group(), 2, "ImagePullBackOff", 'Back-off pulling image "train:typo"'),
            "has not started: pod train-node-0-2-10 (rank 2, node gpu-2) waits: ImagePullBackOff: Back-off pulling",
        ),
        (pulling(group(), 1, "CreateContainerConfigError"), "(rank 1, node gpu-1) waits: CreateContainerConfigError"),
        (
            group().unschedulable(0, "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."),
            "(rank 0, not scheduled) waits: Unschedulable: 0/4 nodes are available",
        ),
        (pulling(group(), 2, "ContainerCreating"), "no failure"),
        (training(), "no failure"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_start_is_left_alone_and_says_why(world: World, says: str) -> None:
    controller = Controller()
    for seconds in (1, 100, 4000):
        plan = controller.look(world, seconds)
        assert says in plan.reason
    assert controller.done == []
    assert controller.ledger.incident is None


def test_after_a_restart_the_sentence_says_who_keeps_the_group_from_starting() -> None:
    controller = Controller()
    lost = training().pod_failed(2, 1, 0)
    controller.look(lost, 1)
    anew = pulling(lost.recreated(10).all_scheduled(), 3, "ErrImagePull", "connection refused")
    first = controller.look(anew, 12)
    assert first.look_again_at is not None
    plan = controller.look(anew, 60)
    assert "pod train-node-0-3-20 (rank 3, node gpu-3) waits: ErrImagePull: connection refused" in plan.reason
    assert len(controller.triggers) == 1
