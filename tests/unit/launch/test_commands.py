"""What a container runs, as far as its command plainly says."""

import pytest

from recovery.launch.commands import Script, Torchrun, run_by
from recovery.launch.places import Place
from recovery.launch.views import Container


def run(*command: str, args: tuple[str, ...] = ()) -> Torchrun | Script | None:
    return run_by(Container("node", Place(0), command=command, args=args))


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (("torchrun", "train.py"), {}),
        (("/opt/venv/bin/torchrun", "--nnodes=2", "train.py"), {"nnodes": "2"}),
        (("torchrun", "--nnodes", "2", "--nproc_per_node=gpu", "train.py"), {"nnodes": "2", "nproc-per-node": "gpu"}),
        (("torchrun", "--standalone", "train.py"), {"standalone": ""}),
        (("torchrun", "--rdzv-conf", "timeout=60", "-m", "train"), {"rdzv-conf": "timeout=60", "m": ""}),
        # What follows the script is the script's own.
        (("torchrun", "train.py", "--nnodes=3"), {}),
        (("python", "-m", "torch.distributed.run", "--nnodes=2", "train.py"), {"nnodes": "2"}),
        (("python3.11", "-u", "-X", "dev", "-m", "torch.distributed.launch", "t.py"), {}),
        (("bash", "-c", "torchrun --nnodes=2 train.py"), {"nnodes": "2"}),
        (("bash", "-exc", "cd /w && export A=1; exec torchrun --nnodes=2 \\\n --tee=3 train.py | tee log"),
         {"nnodes": "2", "tee": "3"}),
        (("sh", "-c", "OMP_NUM_THREADS=8 torchrun --nnodes=2 train.py > log 2>&1"), {"nnodes": "2"}),
        (("sh", "-c", "torchrun --nproc-per-node=$GPUS train.py"), {"nproc-per-node": "$GPUS"}),
    ],
)  # fmt: skip
def test_torchrun(command: tuple[str, ...], flags: dict[str, str]) -> None:
    assert run(*command) == Torchrun(flags)


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
    assert run("torchrun", args=("--nnodes=2", "train.py")) == Torchrun({"nnodes": "2"})
    assert run(args=("torchrun", "--nnodes=2", "train.py")) == Torchrun({"nnodes": "2"})
