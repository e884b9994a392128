"""The example trainings under torchrun, on CPUs: whatever ends them, they resume as if nothing had happened.

"The same" means equal to the last bit: on CPUs, with one thread for each rank, they are deterministic.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.examples.torchrun import Launch, Training

STEPS, EVERY = 100, 10

# Behaviour that both scripts implement with the same lines is tested with one of them; a unit test compares the lines.
# FSDP comes first in `unbroken` too, because pytest groups tests by the position of a parameter and would train it
# twice otherwise.
with_fsdp_alone = pytest.mark.parametrize("unbroken", ["fsdp.py"], indirect=True)


@pytest.fixture(scope="module", params=["fsdp.py", "ddp.py"])
def unbroken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Trained from step 1 to the last one, in one go."""
    training = Training(request.param, tmp_path_factory.mktemp("unbroken"), STEPS, EVERY)
    launch = training.runs_to_its_end()
    assert launch.process.returncode == 0, launch.said[-4000:]
    return training


@pytest.fixture
def training(unbroken: Training, tmp_path: Path) -> Training:
    """The same command, in a new folder."""
    return Training(unbroken.script, tmp_path, STEPS, EVERY)


def events(launch: Launch, name: str) -> list[int]:
    """The steps of the events with that name."""
    return [line["step"] for line in launch.lines() if line.get("event") == name]


def steps_on_disk(training: Training) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in training.checkpoints.glob("step-*"))


def truncate(checkpoint: Path) -> None:
    """Truncate a file, or the largest file of a folder, as a full disk or an interrupted write leaves it."""
    files = [path for path in checkpoint.rglob("*") if path.is_file()] or [checkpoint]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def kill_writer(launch: Launch, training: Training) -> None:
    """Kill rank 0 while it writes a checkpoint. It is stopped first, so that the write cannot end meanwhile."""
    writer = launch.ranks()[0]

    def is_caught() -> bool:
        if not any(training.checkpoints.glob("*.partial")):
            return False
        os.kill(writer, signal.SIGSTOP)
        if any(training.checkpoints.glob("*.partial")):
            return True
        os.kill(writer, signal.SIGCONT)
        return False

    launch.until("a checkpoint was being written", is_caught, poll_seconds=0.0005)
    os.kill(writer, signal.SIGKILL)


def test_unbroken_it_learns_and_keeps_two_checkpoints(unbroken: Training) -> None:
    losses = unbroken.curve()
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < 0.9 * losses[1]
    assert steps_on_disk(unbroken) == [STEPS - EVERY, STEPS]
    assert unbroken.joined.exists(), "the readiness probe has heard that all ranks have met"


def test_killed_amid_a_step_amid_a_write_and_by_sigterm_it_trains_the_same_curve(
    training: Training, unbroken: Training
) -> None:
    with training.launched() as first:
        first.until_step(2 * EVERY + 5)
        first.kill_rank(1)
        assert first.exit_code() != 0, "the pod has to fail, or no one would hear of it"
    killed_at = events(first, "saved")[-1]

    with training.launched() as second:
        second.until("it resumed", lambda: bool(events(second, "resumed")))
        kill_writer(second, training)
        assert second.exit_code() != 0
    assert events(second, "resumed") == [killed_at]
    assert list(training.checkpoints.glob("*.partial")), "it was cut"
    whole = steps_on_disk(training)[-1]

    with training.launched() as third:
        third.until_step(whole + 5)
        os.kill(third.ranks()[1], signal.SIGTERM)  # the pod of one rank is drained, and both end after the same step
        assert third.exit_code() != 0
    assert "exitcode  : 143" in third.said, "0 would tell Kubernetes that the training is complete"
    assert events(third, "resumed") == [whole]
    assert not list(training.checkpoints.glob("*.partial"))
    [stopped_at] = events(third, "stopped")
    assert stopped_at == events(third, "saved")[-1] == steps_on_disk(training)[-1] < STEPS

    last = training.runs_to_its_end()
    assert (last.process.returncode, events(last, "resumed")) == (0, [stopped_at])
    assert training.curve() == unbroken.curve(), "no step is missing, and none differs"


def test_a_truncated_checkpoint_is_skipped_and_said(training: Training, unbroken: Training) -> None:
    shutil.copytree(unbroken.checkpoints, training.checkpoints)
    [_, newest] = sorted(training.checkpoints.glob("step-*"))
    truncate(newest)
    launch = training.runs_to_its_end()
    assert launch.process.returncode == 0, launch.said[-4000:]
    [skipped] = [line for line in launch.lines() if line.get("event") == "skipped"]
    assert skipped["checkpoint"] == str(newest)
    assert "Error: " in skipped["error"], "and why"
    assert events(launch, "resumed") == [STEPS - EVERY]
    expected = {step: loss for step, loss in unbroken.curve().items() if step > STEPS - EVERY}
    assert training.curve() == expected
    assert steps_on_disk(training) == [STEPS - EVERY, STEPS], "the broken one was written anew"


def test_where_no_checkpoint_can_be_read_it_does_not_begin_again(training: Training, unbroken: Training) -> None:
    shutil.copytree(unbroken.checkpoints, training.checkpoints)
    for path in training.checkpoints.glob("step-*"):
        truncate(path)
    launch = training.runs_to_its_end(ranks=1)
    assert launch.process.returncode != 0
    assert "can be read; move them away to begin at step 0" in launch.said
    assert training.curve() == {}


def test_checkpoints_of_another_training_are_refused(training: Training, unbroken: Training) -> None:
    shutil.copytree(unbroken.checkpoints, training.checkpoints)
    launch = training.runs_to_its_end("--batch-size=64", ranks=1)
    assert launch.process.returncode != 0
    assert "name another folder, or the same settings" in launch.said
    assert training.curve() == {}


@with_fsdp_alone
def test_a_rank_that_waits_for_a_dead_peer_obeys_sigterm(training: Training) -> None:
    """A stopped peer stands for a node that has gone silent: its connections stay open, so nothing fails."""
    with training.launched() as launch:
        launch.until_step(5)
        ranks = launch.ranks()
        os.kill(ranks[1], signal.SIGSTOP)
        os.kill(ranks[0], signal.SIGTERM)
        launch.until("rank 0 has ended", lambda: 0 not in launch.ranks())
        os.kill(ranks[1], signal.SIGKILL)
        assert launch.exit_code() != 0
    assert "exitcode  : 143" in launch.said
    assert (events(launch, "stopped"), steps_on_disk(training)) == ([], [])
