"""The same training without interruptions: the reference for the losses of every interrupted one."""

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from tests.cluster.patience import GUARD_SECONDS
from tests.real_nodes.trainings import RANK_ENVIRONMENT, TORCH, script_arguments

FEWEST_STEPS = 300
"""Enough for a whole suite: only now and then does a training that breaks soon after its start need more steps."""


class Unbroken:
    """The same number of ranks with the same seed, under one torchrun on this machine, from step 0 without a pause.

    It needs no pods: a rank's batch, dropout and share of the loss depend only on seed, step and rank.
    """

    def __init__(self, folder: Path, ranks: int, dropout: float = 0.1) -> None:
        self._folder = folder
        self._dropout = dropout
        self._ranks = ranks
        self._losses: list[float] = []

    async def losses(self, steps: int) -> list[float]:
        """Losses of the first `steps` steps. If that is more than before, the training runs again from its start."""
        if len(self._losses) < steps:
            self._losses = await self._run(max(steps, FEWEST_STEPS))
        return self._losses[:steps]

    async def _run(self, steps: int) -> list[float]:
        folder = self._folder / str(steps)
        folder.mkdir(parents=True)
        process = await asyncio.create_subprocess_exec(
            *(str(TORCH / "bin" / "python"), "-m", "torch.distributed.run"),
            *("--standalone", f"--nproc-per-node={self._ranks}"),
            *script_arguments(folder, self._ranks, steps, self._dropout),
            env=dict(os.environ) | RANK_ENVIRONMENT,
            stdout=DEVNULL,
            stderr=PIPE,
        )
        try:
            _, said = await asyncio.wait_for(process.communicate(), GUARD_SECONDS)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        assert process.returncode == 0, said.decode(errors="replace")
        lines = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
        losses = [line for line in lines if "loss" in line]
        assert [line["step"] for line in losses] == list(range(1, steps + 1))
        return [line["loss"] for line in losses]
