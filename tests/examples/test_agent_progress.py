"""What ranks with real torch show: their rendezvous and their steps, as their own log has them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.agent._trainjob_recovery.pages import Page
from tests.agent.fake_controller import FakeController
from tests.agent.launches import free_master_port, mounted_agent
from tests.examples.agent_group import NODES, Group, controller_of_the_test, with_agent
from tests.examples.torchrun import torchrun

CLOSE_SECONDS = 0.2
LAST_STEP = 1_000_000
"""More than the training does before it is ended."""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[FakeController]:
    with controller_of_the_test(tmp_path / "controller") as fake:
        yield fake


def test_a_restart_in_place_is_reported_as_the_ranks_log_it(tmp_path: Path, controller: FakeController) -> None:
    joined_file = tmp_path / "joined"
    environ = with_agent(mounted_agent(tmp_path), controller) | {"RECOVERY_JOINED_FILE": str(joined_file)}
    group = Group(tmp_path / "agents", free_master_port(), LAST_STEP, 0.05, environ=environ)
    with group.launched():
        group.until_new_steps({})
        group.until("steps are reported", lambda: "steps" in last(controller))
        assert last(controller)["joined"] == NODES
        assert joined_file.exists()
        group.until("a checkpoint", (group.folder / "checkpoint.pt").exists)
        before = group.pids()
        group.kill(2)
        group.until_new_steps(before)
        group.until("epoch 2 has steps", lambda: last(controller)["epoch"] == 2 and "steps" in last(controller))
        failed = max(step.step for step in group.all_steps() if step.epoch == 1)
        group.until("they pass the failure", lambda: last(controller).get("steps", {}).get("lowest", 0) > failed)
        report = last(controller)

    [ended] = report["ended"]
    assert failed - 1 <= ended["step"] <= failed + 1, "the killed rank may have logged its last step, or not"
    steps = report["steps"]
    resumed = min(step.step for step in group.all_steps() if step.epoch == 2)
    assert (steps["first"], steps["absolute"]) == (resumed - 1, True)
    assert [each["epoch"] for each in report["rendezvous"]] == [1, 2]
    assert (report["waiting"], report["waitingCount"]) == ([], 0)
    for each in report["rendezvous"]:
        reported = each["firstAgeSeconds"] - each["joinedAgeSeconds"]
        logged = group.rendezvous_seconds(each["epoch"])
        print(f"rendezvous of epoch {each['epoch']}: {reported:.3f} s reported, {logged:.3f} s logged")
        assert abs(reported - logged) < CLOSE_SECONDS
    assert steps["stepSeconds"] is None or steps["stepSeconds"] > 0.05


def last(controller: FakeController) -> dict[str, Any]:
    return controller.reports[-1] if controller.reports else {}


SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
import torch.distributed.device_mesh as mesh
assert dist.init_process_group is dist.distributed_c10d.init_process_group is mesh.init_process_group
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(4, 4)
def train(optimizer, steps, step=None):
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        (step or optimizer.step)()
        optimizer.zero_grad()
exec(sys.argv[1])
dist.destroy_process_group()
"""
WAYS = {
    "sgd": ("train(torch.optim.SGD(model.parameters(), lr=0.1), 3)", (3, 0, False)),
    "adam": ("train(torch.optim.AdamW(model.parameters()), 3)", (3, 0, True)),
    "fused": ("train(torch.optim.AdamW(model.parameters(), fused=True), 3)", (3, 0, True)),
    "a checkpoint": (
        """
first = torch.optim.AdamW(model.parameters())
train(first, 40)
second = torch.optim.AdamW(model.parameters())
second.load_state_dict(first.state_dict())
train(second, 2)
""",
        (42, 40, True),
    ),
    "a checkpoint of distributed training": (
        """
import copy
optimizer = torch.optim.AdamW(model.parameters())
train(optimizer, 1)
state = copy.deepcopy(get_optimizer_state_dict(model, optimizer))
for each in state["state"].values():
    each["step"] = torch.tensor(1000.0)
again = torch.optim.AdamW(model.parameters())
set_optimizer_state_dict(model, again, state)
train(again, 2)
""",
        (1002, 1000, True),
    ),
    "compiled": (
        """
optimizer = torch.optim.AdamW(model.parameters())
train(optimizer, 3, torch.compile(optimizer.step, backend="eager"))
""",
        (0, 0, False),
    ),
    "two optimizers": (
        """
a, b = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.AdamW(model.parameters())
train(a, 2, lambda: (a.step(), b.step()))
""",
        (2, 0, True),
    ),
    "a data loader": (
        """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, at):
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
        return at
list(torch.utils.data.DataLoader(Data(), num_workers=2))
train(torch.optim.SGD(model.parameters(), lr=0.1), 1)
""",
        (1, 0, False),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_real_optimizers_count(tmp_path: Path, way: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    text, expected = WAYS[way]
    page = Page()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(mounted_agent(tmp_path)),
        "_TRAINJOB_RECOVERY_RANK": "1",
        "_TRAINJOB_RECOVERY_PAGE": str(page.file),
    }
    python = torchrun().with_name("python")
    done = subprocess.run(
        [str(python), "train.py", text],
        cwd=tmp_path,
        env=environ,
        pass_fds=[page.file],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    shows = page.read()
    assert (shows.step, shows.first, shows.absolute) == expected
    assert shows.arrived_at is not None
    assert shows.joined_at is not None
