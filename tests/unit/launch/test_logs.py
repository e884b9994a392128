"""Whether the output of each rank can be read separately."""

import pytest

from recovery.launch.recoverability import logs
from recovery.launch.views import Trainer
from tests.unit.launch.groups import TRAIN_JOB, container, env, group, job, names, only, pods


@pytest.mark.parametrize(
    ("command", "variables", "told"),
    [
        (("torchrun", "train.py"), {}, True),
        (("python", "-m", "torch.distributed.run", "train.py"), {}, True),
        (("torchrun", "--nnodes=16", "train.py", "--tee", "3"), {}, True),  # the script's own flag
        (("torchrun", "--tee", "3", "train.py"), {}, False),
        (("torchrun", "--tee=3", "train.py"), {}, False),
        (("torchrun", "-r", "3", "train.py"), {}, False),
        (("torchrun", "--log_dir", "/logs", "train.py"), {}, False),
        (("torchrun", "train.py"), {"PET_LOG_DIR": "/logs"}, False),
        (("torchrun", "train.py"), {"TORCHELASTIC_ERROR_FILE": "/logs/error.json"}, False),
        (("python", "train.py"), {}, False),  # without torchrun nothing is known about the ranks
        (("./launch",), {}, False),
    ],
)
def test_one_log_for_all_ranks(command: tuple[str, ...], variables: dict[str, str | None], told: bool) -> None:
    main = container(command=command, env=env(variables))
    assert names(logs.check(group(job(pods(main))))) == (["no-per-rank-logs"] if told else [])


@pytest.mark.parametrize(
    ("gpus", "processes", "told"), [(1, None, False), (2, None, True), (8, 1, False), (0, 4, True), (8, "auto", True)]
)
def test_one_rank_has_its_log_to_itself(gpus: int, processes: int | str | None, told: bool) -> None:
    trainer = Trainer(TRAIN_JOB, num_proc_per_node=processes)
    main = container(command=("torchrun", "train.py"))
    found = names(logs.check(group(job(pods(main)), gpus_per_pod=gpus, trainer=trainer)))
    assert found == (["no-per-rank-logs"] if told else [])


@pytest.mark.parametrize(("flag", "told"), [("1", False), ("8", True), ("$GPUS", True)])
def test_the_flag_of_torchrun_wins_over_the_number_of_the_trainjob(flag: str, told: bool) -> None:
    trainer = Trainer(TRAIN_JOB, num_proc_per_node=1 if flag == "8" else 8)
    main = container(command=("torchrun", f"--nproc-per-node={flag}", "train.py"))
    found = names(logs.check(group(job(pods(main)), trainer=trainer)))
    assert found == (["no-per-rank-logs"] if told else [])


def test_the_line_to_change_is_the_command() -> None:
    command = ("torchrun", "train.py")
    trainer = Trainer(TRAIN_JOB / "spec" / "trainer", command=command)
    finding = only(logs.check(group(job(pods(container(command=command))), trainer=trainer)))
    assert finding.place == TRAIN_JOB / "spec" / "trainer" / "command"
    assert finding.message.startswith("the 8 ranks of a pod write to its one log")


def test_one_pod_is_searched_soon_enough() -> None:
    assert names(logs.check(group(job(pods(container(command=("torchrun", "train.py")))), nodes=1))) == []
