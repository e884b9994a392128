"""A rank that is forked from a process with real torch equals an executed one, in threads, seeds and draws."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.launches import free_master_port, mounted_agent
from tests.examples.agent_group import controller_of_the_test, with_agent
from tests.examples.torchrun import torchrun

GUARD_SECONDS = 240

SCRIPT = """
import json, os, sys, time
before = {"at": time.time(), "forked": "torch" in sys.modules, "threads": len(os.listdir("/proc/self/task"))}
environ = dict(os.environ)
del environ["TORCHELASTIC_ERROR_FILE"]
del environ["TORCHELASTIC_RESTART_COUNT"]
import random
import numpy, torch
import torch.distributed as dist
def blas():
    a = numpy.random.RandomState(5).rand(400, 400)
    b = torch.rand(1500, 1500, generator=torch.Generator().manual_seed(5))
    (a @ a).sum(), (b @ b).sum().item()
    return len(os.listdir("/proc/self/task"))
fresh = [torch.initial_seed(), torch.rand(1).item(), numpy.random.rand(), random.random()]
dist.init_process_group("gloo")
everybody = [None] * dist.get_world_size()
dist.all_gather_object(everybody, fresh)
torch.manual_seed(3); numpy.random.seed(3); random.seed(3)
found = {
    **before, "everybody": everybody, "environ": environ,
    "equal": {
        "threads": torch.get_num_threads(), "interop": torch.get_num_interop_threads(), "after blas": blas(),
        "draws": [torch.rand(3).tolist(), numpy.random.rand(3).tolist(), random.random()],
        "bias": torch.nn.Linear(3, 1).bias.tolist(), "dtype": str(torch.get_default_dtype()),
        "cuda": torch.cuda.is_initialized(), "deterministic": torch.are_deterministic_algorithms_enabled(),
    },
}
print(json.dumps(found), flush=True)
dist.destroy_process_group()
if not before["forked"]:
    time.sleep(2)
    sys.exit(1)
"""


@pytest.mark.parametrize(("ranks", "omp"), [(2, None), (1, None), (2, "2")])
def test_a_forked_rank_has_torchs_threads_seeds_and_draws(tmp_path: Path, ranks: int, omp: str | None) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = ["--nnodes=1", "--node-rank=0", f"--nproc-per-node={ranks}", f"--master-port={free_master_port()}"]
    with controller_of_the_test(tmp_path / "controller") as fake:
        environ = {
            "PATH": os.environ["PATH"],
            **with_agent(mounted_agent(tmp_path), fake),
            "RECOVERY_PREIMPORT": "torch.distributed,torch._dynamo",
            **({"OMP_NUM_THREADS": omp} if omp else {}),
        }
        done = subprocess.run(
            [str(torchrun()), *launch, f"--log-dir={tmp_path}/logs", "--redirects=3", "train.py"],
            cwd=tmp_path,
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=GUARD_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    attempts = len(list((tmp_path / "logs").glob("none_*/attempt_*")))
    executed, forked = (of_attempt(tmp_path, number, ranks) for number in (0, attempts - 1))
    assert [each["forked"] for each in executed + forked] == [False] * ranks + [True] * ranks, done.stderr
    for before, after in zip(executed, forked, strict=True):
        assert after["threads"] == before["threads"] == 1
        assert after["environ"] == before["environ"]
        assert after["equal"] == before["equal"]
    for each in zip(*forked[0]["everybody"], strict=True):
        assert len(set(each)) == ranks, "each rank draws on its own"


def of_attempt(folder: Path, number: int, ranks: int) -> list[dict[str, Any]]:
    [attempt] = (folder / "logs").glob(f"none_*/attempt_{number}")
    for rank in range(ranks):
        print((attempt / str(rank) / "stderr.log").read_text(), file=sys.stderr)
    return [json.loads((attempt / str(rank) / "stdout.log").read_text()) for rank in range(ranks)]
