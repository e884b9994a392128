"""A training without torch: the agent takes it over like any other, and its ranks only count their steps."""

import sys
from pathlib import Path

from tests.agent.launches import fake_torch
from tests.real_nodes.trainings import CHECKPOINTS, Object, Training

_PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
_SCRIPT = """
import json, os, time
log = open(os.path.join(os.path.dirname(__file__), "losses.jsonl"), "a") if os.environ["RANK"] == "0" else None
for step in range(1_000_000):
    if log:
        log.write(json.dumps({"step": step, "loss": 0.0} if step else {"event": "began", "step": 0}) + "\\n")
        log.flush()
    time.sleep(0.05)
"""


class HollowTraining(Training):
    """Its ranks never meet, so one that dies stops no other one. Only the agent does."""

    async def start(self, *, steps: int = 1_000_000) -> None:
        self.folder.mkdir(exist_ok=True)
        fake_torch(self.folder)
        (self.folder / "train.py").write_text(_SCRIPT)
        await super().start(steps=steps)

    def _mounted(self) -> dict[str, Path]:
        return {"python": Path(sys.base_prefix)}

    def _launch(self, steps: int) -> Object:
        return {
            "env": [{"name": "PYTHONPATH", "value": f"{CHECKPOINTS}/packages"}],
            "command": [str(_PYTHON), "-m", "torch.distributed.run"],
            "args": [f"{CHECKPOINTS}/train.py"],
        }
