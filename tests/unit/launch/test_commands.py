"""The program that a container runs, as far as its command shows it."""

import pytest

from recovery.launch.commands import Script, Torchrun, run_by
from recovery.launch.places import Place
from recovery.launch.views import Container


def run(*command: str, args: tuple[str, ...] = ()) -> Torchrun | Script | None:
    return run_by(Container("node", Place(0), command=command, args=args))


@pytest.mark.parametrize(
    ("command", "flags", "script"),
    [
        (("torchrun", "train.py"), {}, "train.py"),
        (("/opt/venv/bin/torchrun", "--nnodes=2", "train.py"), {"nnodes": "2"}, "train.py"),
        (("torchrun", "--nnodes", "2", "--nproc_per_node=gpu", "train.py"),
         {"nnodes": "2", "nproc-per-node": "gpu"}, "train.py"),
        (("torchrun", "--standalone", "train.py"), {"standalone": ""}, "train.py"),
        (("torchrun", "--rdzv-conf", "timeout=60", "-m", "train"), {"rdzv-conf": "timeout=60", "m": ""}, "train"),
        # Arguments after the script belong to the script.
        (("torchrun", "train.py", "--nnodes=3"), {}, "train.py"),
        (("python", "-m", "torch.distributed.run", "--nnodes=2", "train.py"), {"nnodes": "2"}, "train.py"),
        (("python3.11", "-u", "-X", "dev", "-m", "torch.distributed.launch", "t.py"), {}, "t.py"),
        (("bash", "-c", "torchrun --nnodes=2 train.py"), {"nnodes": "2"}, "train.py"),
        (("bash", "-exc", "cd /w && export A=1; exec torchrun --nnodes=2 \\\n --tee=3 train.py | tee log"),
         {"nnodes": "2", "tee": "3"}, "train.py"),
        (("sh", "-c", "OMP_NUM_THREADS=8 torchrun --nnodes=2 train.py > log 2>&1"), {"nnodes": "2"}, "train.py"),
        (("sh", "-c", "torchrun --nproc-per-node=$GPUS train.py"), {"nproc-per-node": "$GPUS"}, "train.py"),
    ],
)  # fmt: skip
def test_torchrun(command: tuple[str, ...], flags: dict[str, str], script: str) -> None:
    assert run(*command) == Torchrun(flags, script)


def test_of_a_flag_that_stands_twice_the_last_counts() -> None:
    twice = run("torchrun", "--nnodes=2", "--nnodes", "3", "--tee=3", "--tee=3", "train.py")

    assert twice == Torchrun({"nnodes": "3", "tee": "3"}, "train.py", {"nnodes": "2"})


def test_what_is_no_flag_ends_the_flags() -> None:
    assert run("torchrun", "--tee=3") == Torchrun({"tee": "3"}, "")
    assert run("sh", "-c", "torchrun --tee=3 $FLAGS train.py") == Torchrun({"tee": "3"}, "$FLAGS")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("python", "train.py", "--epochs=3"), "python train.py"),
        (("python3", "-u", "/w/train.py"), "python3 -u /w/train.py"),
        (("bash", "-c", "pip install -r requirements.txt && python train.py"), "python train.py"),
        (("bash", "-c", "A=1 exec python -W ignore train.py --x 2>&1 | tee log"), "python -W ignore train.py"),
    ],
)
def test_a_script_by_itself(command: tuple[str, ...], text: str) -> None:
    assert run(*command) == Script(text)


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("",),
        ("sleep", "infinity"),
        ("accelerate", "launch", "train.py"),
        ("mpirun", "python", "train.py"),
        ("numactl", "python", "train.py"),
        ("python",),
        ("python", "-c", "import train"),
        ("python", "-m", "accelerate.commands.launch", "train.py"),
        ("python", "-m"),
        ("bash",),
        ("bash", "run.sh"),
        ("bash", "-c"),
        ("bash", "-c", ""),
        ("bash", "-c", "for rank in 0 1; do RANK=$rank python train.py; done"),
        ("bash", "-c", "python train.py & python train.py"),
        ("bash", "-c", "if true; then torchrun train.py; fi"),
        ("bash", "-c", "torchrun train.py; python evaluate.py"),
        ("bash", "-c", "cat <<EOF | python train.py\nEOF"),
        ("bash", "-c", "python 'train.py"),
        ("bash", "-c", "$(which torchrun) train.py"),
        ("bash", "-c", "# torchrun\npython train.py"),
    ],
)
def test_nothing_is_concluded_from_another_command(command: tuple[str, ...]) -> None:
    assert run(*command) is None


def test_args_follow_the_command() -> None:
    assert run("torchrun", args=("--nnodes=2", "train.py")) == Torchrun({"nnodes": "2"}, "train.py")
    assert run(args=("torchrun", "--nnodes=2", "train.py")) == Torchrun({"nnodes": "2"}, "train.py")
