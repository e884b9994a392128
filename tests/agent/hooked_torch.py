"""What stands for those parts of torch that the hooks of a rank know, and what the ranks of a launch have shown."""

import json
from typing import Any

from tests.agent.launches import FAKE_TORCH, Launch, Pod

PARTS = {
    "torch/__init__.py": FAKE_TORCH["torch/__init__.py"] + "from . import compiler, distributed, optim\n",
    "torch/compiler.py": "compiling = False\ndef is_compiling():\n    return compiling\n",
    "torch/optim/__init__.py": "from .optimizer import Optimizer\n",
    "torch/optim/optimizer.py": """
_hooks = []
def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
class Optimizer:
    def __init__(self):
        self.state = {}
    def step(self):
        for hook in _hooks:
            hook(self, (), {})
""",
    "torch/distributed/__init__.py": FAKE_TORCH["torch/distributed/__init__.py"]
    + "from .distributed_c10d import *\nfrom . import device_mesh\n",
    "torch/distributed/distributed_c10d.py": """
made = []
def init_process_group(backend=None, fails=False):
    "Make the default group."
    if fails:
        raise ValueError("no network")
    made.append(backend)
""",
    "torch/distributed/device_mesh.py": """
from .distributed_c10d import init_process_group
def init_device_mesh():
    init_process_group("mesh")
""",
}


def hook_torch(pod: Pod) -> None:
    """Give the pod this torch."""
    for name, text in PARTS.items():
        path = pod.packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def shown(launch: Launch) -> list[dict[str, Any]]:
    """What the ranks have shown, by epoch."""
    lines = launch.said.splitlines()
    return [json.loads(line.removeprefix("SHOWN ")) for line in lines if line.startswith("SHOWN ")]
