"""The same training with nothing that breaks it: what the losses of every broken one have to be."""

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from tests.cluster.patience import GUARD_SECONDS
from tests.real_nodes.trainings import RANK_ENVIRONMENT, TORCH, script_arguments

FEWEST_STEPS = 300
"""So that one run serves a whole suite: a training that breaks soon after it began is longer only now and then."""


class Unbroken:
    """As many ranks under one torchrun on this machine, of one seed, from step 0 to the last step without a pause.

    Not in pods: a rank's batch, dropout and share of the loss follow from seed, step and rank, whatever carries it.
    """

    def __init__(self, folder: Path, ranks: int, dropout: float = 0.1) -> None:
        self._folder = folder
        self._dropout = dropout
        self._ranks = ranks
        self._losses: list[float] = []

    async def losses(self, steps: int) -> list[float]:
        """Of the first `steps` steps. A longer training than before is run again from its beginning."""
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
