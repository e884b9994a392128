"""Restarts in place with real torch: four nodes with an agent each, whose ranks are killed as they train.

The training is deterministic to the last bit (gloo on one machine, one thread for each rank), so its losses show
whether a restart has lost, repeated or mixed anything.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.fake_controller import FakeController
from tests.agent.launches import free_master_port, mounted_agent
from tests.examples.agent_group import NODES, Group, controller_of_the_test, with_agent

ROUNDS = 10
LONGEST_BURST_SECONDS = 1.0
LAST_STEP = 1_000_000
"""More than any of these trainings does before it is ended."""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[FakeController]:
    with controller_of_the_test(tmp_path / "controller") as fake:
        yield fake


@pytest.fixture
def group(tmp_path: Path, controller: FakeController) -> Iterator[Group]:
    """It trains, and its agents are permitted."""
    environ = with_agent(mounted_agent(tmp_path), controller)
    made = Group(tmp_path / "agents", free_master_port(), LAST_STEP, 0.05, environ=environ)
    with made.launched():
        made.until_new_steps({})
        made.until("it is reported", lambda: bool(controller.reports) and controller.reports[-1]["state"] == "running")
        yield made


def assert_as_undisturbed(group: Group, folder: Path) -> None:
    """Each step of each rank had the same loss in an undisturbed training."""
    seen = group.all_steps()
    undisturbed = Group(folder, free_master_port(), max(step.step for step in seen))
    with undisturbed.launched():
        assert undisturbed.exit_codes() == [0] * NODES, undisturbed.said
    expected = {(step.rank, step.step): step.loss for step in undisturbed.all_steps()}
    differ = [step for step in seen if step.loss != expected[step.rank, step.step]]
    assert differ == []


def assert_epochs_do_not_overlap(group: Group) -> None:
    """All steps of an epoch come before all steps of the next one, whatever the rank."""
    last_at = 0.0
    steps = group.all_steps()
    for epoch in sorted({step.epoch for step in steps}):
        of_epoch = [step.at for step in steps if step.epoch == epoch]
        assert last_at < min(of_epoch), f"epoch {epoch} begins before the one before has ended"
        last_at = max(of_epoch)


def test_a_killed_rank_costs_no_container_and_changes_no_loss(
    group: Group, controller: FakeController, tmp_path: Path
) -> None:
    before = group.pids()
    group.kill(2)
    group.until_new_steps(before)
    assert [node.poll() for node in group.nodes] == [None] * NODES
    assert {step.epoch for step in group.all_steps()} == {1, 2}
    group.until("the new epoch is reported", lambda: controller.reports[-1]["epoch"] == 2)
    [ended] = controller.reports[-1]["ended"]
    assert (ended["epoch"], ended["slot"], ended["signal"], ended["by"]) == (1, 2, 9, "Alone")
    assert_epochs_do_not_overlap(group)
    assert_as_undisturbed(group, tmp_path / "undisturbed")


def test_bursts_of_kills_converge_and_no_two_epochs_overlap(
    group: Group, controller: FakeController, tmp_path: Path
) -> None:
    draw = random.Random(38)
    for _ in range(ROUNDS):
        before = group.pids()
        for rank in draw.sample(range(NODES), draw.randint(1, 3)):
            group.kill(rank)
            time.sleep(draw.uniform(0, LONGEST_BURST_SECONDS / 3))  # the faults' distances, not a wait
        group.until_new_steps(before)
    group.until("it runs", lambda: controller.reports[-1]["state"] == "running")
    report = controller.reports[-1]
    ended = [each["epoch"] for each in report["ended"]]
    assert ended == list(range(1, report["epoch"]))[-16:]
    assert report["epoch"] > ROUNDS
    assert [node.poll() for node in group.nodes] == [None] * NODES
    assert_epochs_do_not_overlap(group)
    assert_as_undisturbed(group, tmp_path / "undisturbed")
