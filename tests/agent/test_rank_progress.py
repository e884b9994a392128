"""What a rank shows the agent: from hooks in torch, in executed and in forked ranks, and never more than that."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recovery.agent._trainjob_recovery.pages import Page
from tests.agent.hooked_torch import hook_torch, shown
from tests.agent.launches import Pod

NOTHING = {"arrived_at": None, "joined_at": None, "step": 0, "first": 0, "absolute": False, "step_at": None}
TWICE = "\nimport os, sys\nsys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n"
"""The end of a script that runs once as it is executed, and once as it is forked."""


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    made = Pod(tmp_path)
    hook_torch(made)
    return made


def ran(pod: Pod, text: str) -> list[dict[str, Any]]:
    """What the rank of this script showed: executed, then forked."""
    with pod.launched(pod.script(text + TWICE), RESTARTS="1", SHOW="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert "is executed and not forked" not in launch.complained
    epochs = shown(launch)
    assert len(epochs) == 2, launch.said
    return [epoch["ranks"][0] for epoch in epochs]


JOINS = {
    "as torch names it": "import torch.distributed as dist\ndist.init_process_group('gloo')",
    "by its own name": "from torch.distributed import init_process_group\ninit_process_group('gloo')",
    "where it is defined": "from torch.distributed import distributed_c10d as c\nc.init_process_group('gloo')",
    "by a mesh": "from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh()",
}


@pytest.mark.parametrize("way", JOINS)
def test_a_rank_shows_when_it_arrives_and_when_it_has_joined(pod: Pod, way: str) -> None:
    for each in ran(pod, JOINS[way]):
        assert 0 < each["arrived_at"] <= each["joined_at"]
        assert each["step_at"] is None


def test_a_rank_that_waits_has_arrived_and_not_joined(pod: Pod) -> None:
    text = (
        "import torch.distributed as dist\ntry:\n    dist.init_process_group(fails=True)\nexcept ValueError:\n    pass"
    )
    for each in ran(pod, text):
        assert each["arrived_at"] is not None
        assert each["joined_at"] is None


def test_only_the_first_default_group_counts(pod: Pod) -> None:
    text = """
import time, torch.distributed as dist
dist.init_process_group("gloo")
between = time.monotonic()
dist.init_process_group("nccl")
assert dist.distributed_c10d.made == ["gloo", "nccl"]
open("between", "a").write(f"{between}\\n")
"""
    seen = ran(pod, text)
    between = [float(line) for line in (pod.work / "between").read_text().split()]
    assert [each["joined_at"] < at for each, at in zip(seen, between, strict=True)] == [True, True]


def test_a_module_that_the_image_imports_before_any_script_is_hooked_too(pod: Pod) -> None:
    (pod.packages / "early.py").write_text("from torch.distributed import init_process_group\n")
    (pod.packages / "sitecustomize.py").write_text("import early\n")
    [executed, _] = ran(pod, "import early\nearly.init_process_group('gloo')")
    assert executed["joined_at"] is not None


def test_the_function_is_torchs_own_to_look_at(pod: Pod) -> None:
    text = """
import inspect, torch.distributed as dist
f = dist.init_process_group
assert f is dist.distributed_c10d.init_process_group is dist.device_mesh.init_process_group
print("LOOK", f.__name__, f.__module__, f.__doc__, inspect.signature(f))
"""
    with pod.launched(pod.script(text)) as launch:
        assert launch.ends() == 0, launch.complained
    expected = (
        "init_process_group torch.distributed.distributed_c10d Make the default group. (backend=None, fails=False)"
    )
    assert f"LOOK {expected}\n" in launch.said


ERRORS = {
    "of joining": "import torch.distributed as dist\ndist.init_process_group(fails=True)\n",
    "of the import of torch": "import torch\n",
    "of the import of its groups": "import torch.distributed.distributed_c10d\n",
}


@pytest.mark.parametrize("error", ERRORS)
def test_tracebacks_have_no_frame_of_the_agent(pod: Pod, error: str) -> None:
    broken = {"of the import of torch": "__init__.py", "of the import of its groups": "distributed/distributed_c10d.py"}
    if error in broken:
        path = pod.packages / "torch" / broken[error]
        path.write_text("import os\nif 'RANK' in os.environ:\n    raise RuntimeError('broken')\n" + path.read_text())
    script = pod.script(ERRORS[error])
    logs = pod.folder / "logs"
    with pod.launched(f"--log-dir={logs}", "--redirects=3", script) as launch:
        assert launch.ends() == 1
    [seen] = logs.rglob("stderr.log")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(pod.packages), "RANK": "0"}
    stock = subprocess.run(
        [sys.executable, "-u", script], cwd=pod.work, env=environ, capture_output=True, text=True, check=False
    )
    assert "Traceback" in stock.stderr
    assert seen.read_text() == stock.stderr


def test_a_rank_shows_its_steps(pod: Pod) -> None:
    text = "from torch.optim import Optimizer\no = Optimizer()\nfor _ in range(3):\n    o.step()\n"
    for each in ran(pod, text):
        assert (each["step"], each["first"], each["absolute"]) == (3, 0, False)
        assert each["step_at"] is not None


def test_the_step_of_a_rank_that_fails_is_known(pod: Pod) -> None:
    text = "from _trainjob_recovery import step\nstep(41)\nstep(42)\n"
    with pod.launched(pod.script(text + TWICE), RESTARTS="1", SHOW="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert [each["step of the end"] for each in shown(launch)] == [42, 42]


def test_a_script_may_say_its_steps_and_the_optimizers_do_not_count_any_more(pod: Pod) -> None:
    text = """
from _trainjob_recovery import step
from torch.optim import Optimizer
o = Optimizer()
for _ in range(5):
    o.step()
step(100)
for _ in range(200):
    o.step()
"""
    for each in ran(pod, text):
        assert (each["step"], each["first"], each["absolute"]) == (100, 99, True)


def test_a_module_that_is_imported_before_the_fork_may_say_steps(pod: Pod) -> None:
    (pod.packages / "mine.py").write_text("from _trainjob_recovery import step\n")
    pod.environ["RECOVERY_PREIMPORT"] = "mine"
    seen = ran(pod, "import mine\nmine.step(7)\n")
    assert [each["step"] for each in seen] == [7, 7]


def test_children_of_a_rank_show_nothing(pod: Pod) -> None:
    """Such as the workers of a DataLoader, which may train a model of their own."""
    text = """
import multiprocessing, os
import torch.distributed as dist
from torch.optim import Optimizer
from _trainjob_recovery import step
def child():
    dist.init_process_group("gloo")
    Optimizer().step()
    step(99)
if __name__ == "__main__":
    if os.fork() == 0:
        child()
        os._exit(0)
    os.wait()
    worker = multiprocessing.get_context("fork").Process(target=child)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
"""
    assert ran(pod, text) == [NOTHING, NOTHING]


def test_a_process_that_a_rank_executes_inherits_nothing(pod: Pod) -> None:
    text = """
import subprocess, sys
dump = "import os; print('INNER', [n for n in os.environ if 'TRAINJOB' in n], sorted(os.listdir('/proc/self/fd')))"
subprocess.run([sys.executable, "-c", dump], close_fds=False)
"""
    with pod.launched(pod.script(text + TWICE), RESTARTS="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert launch.said.count("INNER [] ['0', '1', '2', '3']\n") == 2, launch.said


def test_a_rank_has_the_files_variables_and_modules_of_stock_torchrun(pod: Pod) -> None:
    """What this starts with `RANK` set stands for what torchrun executes."""
    script = pod.script("import sys; print('MODULES', sorted(sys.modules), 'PATH', sys.meta_path[1:] != [])")
    with pod.launched(script) as launch:
        assert launch.ends() == 0, launch.complained
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(pod.packages)}
    command = [sys.executable, "-u", script]
    stock = subprocess.run(command, cwd=pod.work, env=environ, capture_output=True, text=True, check=True)
    assert stock.stdout in launch.said


SCRIPTS = {
    "no torch": "",
    "a module torch": "import torch\nassert torch.mine\n",
    "no groups": "import torch.distributed\n",
    "groups of another kind": "import torch.distributed as d\nd.init_process_group()\n",
    "an old torch": "import torch.optim.optimizer\n",
}
PACKAGES = {
    "a module torch": {"torch.py": "mine = True\n"},
    "no groups": {"torch/__init__.py": "", "torch/distributed/__init__.py": ""},
    "groups of another kind": {
        "torch/__init__.py": "",
        "torch/distributed/__init__.py": "class init_process_group:\n    pass\n",
    },
    "an old torch": {"torch/__init__.py": "", "torch/optim/__init__.py": "", "torch/optim/optimizer.py": ""},
}


@pytest.mark.parametrize("image", SCRIPTS)
def test_an_image_without_this_torch_runs_as_before(pod: Pod, image: str) -> None:
    shutil.rmtree(pod.packages / "torch")
    for name, text in PACKAGES.get(image, {}).items():
        (pod.packages / name).parent.mkdir(parents=True, exist_ok=True)
        (pod.packages / name).write_text(text)
    options = ["--nnodes=2", "--node-rank=1", "--nproc-per-node=1", "--master-addr=127.0.0.1", "--master-port=29400"]
    (pod.packages / "torchrun").write_text("# torch.distributed.run\n")
    command = [sys.executable, str(pod.packages / "torchrun"), *options, pod.script(SCRIPTS[image])]
    with pod.running(command, SHOW="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert [each["ranks"] for each in shown(launch)] == [[NOTHING]]
    assert launch.complained == ""


def test_where_the_kernel_gives_no_memory_a_rank_runs_and_shows_nothing(pod: Pod) -> None:
    launcher = pod.mounted / "_trainjob_recovery" / "__main__.py"
    launcher.write_text(
        launcher.read_text().replace("import asyncio\n", "import asyncio, os\ndel os.memfd_create\n", 1)
    )
    text = "from torch.distributed import init_process_group\nfrom _trainjob_recovery import step\n"
    assert ran(pod, text + "init_process_group()\nstep(1)\n") == [NOTHING, NOTHING]


def runs(python: str) -> bool:
    """Version managers have shims of versions that are not there."""
    return not subprocess.run([python, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode


OTHERS = [
    found for name in ("3.10", "3.12", "3.13", "3.14") if (found := shutil.which(f"python{name}")) and runs(found)
]


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_each_python_of_an_image_shows_the_same(pod: Pod, python: str) -> None:
    text = (
        "import torch.distributed as d, os, sys\nfrom _trainjob_recovery import step\nd.init_process_group()\nstep(3)\n"
    )
    text += "import ctypes, mmap\nassert ctypes.CDLL(None).getpid() == os.getpid()\n"
    page = Page()
    environ = pod.environment(_TRAINJOB_RECOVERY_RANK="1", _TRAINJOB_RECOVERY_PAGE=str(page.file))
    dump = "print([n for n in os.environ if 'RECOVERY' in n], os.listdir('/proc/self/fd'))"
    command = [python, pod.script(text + dump)]
    done = subprocess.run(
        command, cwd=pod.work, env=environ, pass_fds=[page.file], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert "[] ['0', '1', '2', '3']\n" in done.stdout
    shows = page.read()
    assert shows.arrived_at is not None
    assert shows.joined_at is not None
    assert shows.step == 3


def test_a_rank_of_an_older_python_has_no_file_of_the_agent(pod: Pod) -> None:
    """This Python counts as older than the oldest whose ranks show something."""
    hook = pod.mounted / "sitecustomize.py"
    hook.write_text(hook.read_text().replace("(3, 10)", "(99, 0)"))
    page = Page()
    environ = pod.environment(_TRAINJOB_RECOVERY_RANK="1", _TRAINJOB_RECOVERY_PAGE=str(page.file))
    dump = (
        "import os, json; print(json.dumps([[n for n in os.environ if 'RECOVERY' in n], os.listdir('/proc/self/fd')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", dump], env=environ, pass_fds=[page.file], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], ["0", "1", "2", "3"]]


def test_a_file_that_a_wrapper_has_opened_under_the_number_of_the_page_stays_its_own(pod: Pod, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    text = "import torch.distributed as d\nd.init_process_group()\nimport os, sys\nos.fstat(int(sys.argv[1]))\n"
    with lock.open("w+b") as file:
        number = str(file.fileno())
        environ = pod.environment(_TRAINJOB_RECOVERY_RANK="1", _TRAINJOB_RECOVERY_PAGE=number)
        command = [sys.executable, pod.script(text), number]
        done = subprocess.run(
            command, cwd=pod.work, env=environ, pass_fds=[file.fileno()], capture_output=True, text=True, check=False
        )
    assert (done.stderr, done.returncode) == ("", 0)
    assert lock.read_bytes() == b""
