"""sitecustomize in real interpreters: whose place the agent takes, and what every other program sees of it."""

import ast
import json
import shutil
import subprocess
import sys
import time

import pytest

from tests.agent.launches import AGENT, Pod, free_master_port

DUMP = """
import json, os, sys
print("RANK", json.dumps([sys.argv, sorted(os.environ), os.environ.get("PYTHONPATH"), sys.path,
      sorted(name for name in sys.modules if "customize" in name or "_trainjob" in name)]), flush=True)
"""
LAUNCH = ("--nnodes=1", "--node-rank=0", "--nproc-per-node=1")


def dumped(text: str, word: str = "RANK") -> list[list[object]]:
    return [json.loads(line.removeprefix(f"{word} ")) for line in text.splitlines() if line.startswith(f"{word} ")]


@pytest.mark.parametrize("way", ["module", "console script", "joined -m"])
def test_torchrun_is_taken_over_however_it_is_started(pod: Pod, way: str) -> None:
    started = {
        "module": ["-m", "torch.distributed.run"],
        "console script": [str(pod.packages / "torchrun")],
        "joined -m": ["-mtorch.distributed.run"],
    }
    script = pod.script(DUMP)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-X",
        "utf8",
        *started[way],
        *LAUNCH,
        f"--master-port={free_master_port()}",
    ]
    with pod.running([*command, script, "--lr", "1"]) as launch:
        assert launch.ends() == 0
    [[argv, _, _, _, modules]] = dumped(launch.said)
    assert argv == ["train.py", "--lr", "1"]
    assert modules == []
    assert "STOCK" not in launch.said


def test_the_interpreters_own_flags_are_kept(pod: Pod) -> None:
    main = pod.mounted / "_trainjob_recovery" / "__main__.py"
    main.write_text("import sys; print('AGENT', sys.flags.optimize, sys.warnoptions, sys._xoptions, sys.argv[1:])\n")
    command = [sys.executable, "-uOO", "-Wignore", "-X", "utf8", "-m", "torch.distributed.run", "-m", "pkg.train"]
    with pod.running(command) as launch:
        assert launch.ends() == 0
    assert launch.said == "AGENT 2 ['ignore'] {'utf8': True} ['-m', 'pkg.train']\n"


def test_a_rank_sees_nothing_of_an_agent_whose_folder_is_a_volume_of_a_config_map(pod: Pod) -> None:
    """A kubelet writes such a volume as links to a folder with a date for its name."""
    dated = pod.mounted / "..2026_01_01"
    dated.mkdir()
    for name in ("sitecustomize.py", "_trainjob_recovery"):
        (pod.mounted / name).rename(dated / name)
        (pod.mounted / name).symlink_to(dated / name)
    with pod.launched(pod.script(DUMP)) as launch:
        assert launch.ends() == 0
    [[_, variables, path, paths, modules]] = dumped(launch.said)
    assert isinstance(variables, list)
    assert ([name for name in variables if "RECOVERY" in name], modules) == ([], [])
    assert path == str(pod.packages)
    assert str(pod.mounted) not in str(paths)


def test_a_rank_sees_nothing_of_the_agent(pod: Pod) -> None:
    script = pod.script(DUMP)
    with pod.launched(script) as launch:
        assert launch.ends() == 0
    [[_, variables, path, paths, _]] = dumped(launch.said)
    assert isinstance(variables, list)
    assert [name for name in variables if "RECOVERY" in name] == []
    assert path == str(pod.packages)
    assert str(pod.mounted) not in str(paths)


def test_python_path_is_absent_in_a_rank_where_the_image_has_none(pod: Pod) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *LAUNCH,
        f"--master-port={free_master_port()}",
        pod.script(DUMP),
    ]
    with pod.running(command, PYTHONPATH=str(pod.mounted)) as launch:
        assert launch.ends() == 0
    [[_, variables, path, _, _]] = dumped(launch.said)
    assert isinstance(variables, list)
    assert path is None
    assert "PYTHONPATH" not in variables


def test_torchrun_inside_a_rank_is_stock(pod: Pod) -> None:
    command = "[sys.executable, '-m', 'torch.distributed.run', '--x', 'y.py']"
    inner = f"import subprocess, sys\nsubprocess.run({command}, check=True)\n"
    with pod.launched(pod.script(inner)) as launch:
        assert launch.ends() == 0
    [[arguments, variables, _]] = dumped(launch.said, "STOCK")
    assert arguments == ["--x", "y.py"]
    assert isinstance(variables, list)
    assert "RANK" in variables


def test_without_the_uid_of_the_job_torchrun_is_stock(pod: Pod) -> None:
    with pod.launched(pod.script(DUMP), RECOVERY_AGENT_JOB_UID="") as launch:
        assert launch.ends() == 0
    assert len(dumped(launch.said, "STOCK")) == 1


@pytest.mark.parametrize("start", ["module", "console script"])
def test_what_the_agent_does_not_know_is_executed_as_it_was(pod: Pod, start: str) -> None:
    arguments = ["--node-rank=0", "--nnodes=1:4", "train.py"]
    words = ["-m", "torch.distributed.run"] if start == "module" else [str(pod.packages / "torchrun")]
    with pod.running([sys.executable, "-u", *words, *arguments]) as launch:
        assert launch.ends() == 0
    [[received, variables, path]] = dumped(launch.said, "STOCK")
    assert received == arguments
    assert path == str(pod.packages)
    assert isinstance(variables, list)
    assert [name for name in variables if "RECOVERY" in name] == []
    assert "the number of nodes is 1:4" in launch.complained


def test_a_file_in_the_working_directory_cannot_take_a_modules_name(pod: Pod) -> None:
    for name in ("runpy", "asyncio", "argparse", "typing", "pkgutil"):
        pod.script("raise SystemExit('shadowed')", f"{name}.py")
    command = [
        sys.executable,
        str(pod.packages / "torchrun"),
        *LAUNCH,
        f"--master-port={free_master_port()}",
        pod.script("print('ran')"),
    ]
    with pod.running(command) as launch:
        assert launch.ends() == 0
    assert "ran\n" in launch.said
    assert launch.complained == ""


@pytest.mark.parametrize(
    "program",
    [["-c", "print('torchrun')"], ["torchrun"], ["tool.py", "torchrun"], ["-c", "", "-m", "torch.distributed.run"]],
)
def test_other_programs_run_as_they_are(pod: Pod, program: list[str]) -> None:
    pod.script("print('mine')", "torchrun")
    pod.script("print('tool')", "tool.py")
    with pod.running([sys.executable, *program]) as launch:
        assert launch.ends() == 0
    assert launch.complained == ""
    assert "recovery" not in launch.said


@pytest.mark.parametrize("flag", ["-S", "-I", "-E"])
def test_isolated_interpreters_are_left_alone(pod: Pod, flag: str) -> None:
    with pod.running([sys.executable, flag, "-c", "import sys; print('sitecustomize' in sys.modules)"]) as launch:
        assert launch.ends() == 0
    assert launch.said == "False\n"


@pytest.mark.parametrize("in_rank", [True, False])
def test_the_images_own_sitecustomize_runs(pod: Pod, in_rank: bool) -> None:
    (pod.packages / "sitecustomize.py").write_text("import builtins\nbuiltins.of_the_image = __file__\n")
    script = pod.script("import sitecustomize; print('OWN', of_the_image, sitecustomize.__file__)")
    if in_rank:
        with pod.launched(script) as launch:
            assert launch.ends() == 0
    else:
        with pod.running([sys.executable, script]) as launch:
            assert launch.ends() == 0
    own = str(pod.packages / "sitecustomize.py")
    assert f"OWN {own} {own}\n" in launch.said, launch.said + launch.complained


def test_the_images_own_hook_for_exceptions_is_kept(pod: Pod) -> None:
    own = "import sys\nsys.excepthook = lambda *_: print('THEIRS', flush=True)\n"
    (pod.packages / "sitecustomize.py").write_text(own)
    with pod.launched(f"--log-dir={pod.folder}/logs", pod.script("raise ValueError('worse')")) as launch:
        assert launch.ends() == 1
    assert "THEIRS\n" in launch.said
    assert len(list((pod.folder / "logs").rglob("error.json"))) == 1


def test_an_error_of_its_own_never_stops_a_program(pod: Pod) -> None:
    (pod.mounted / "_trainjob_recovery" / "rank_hooks.py").write_text("raise RuntimeError('broken')")
    with pod.running([sys.executable, pod.script(DUMP)], _TRAINJOB_RECOVERY_RANK="1") as launch:
        assert launch.ends() == 0
    [[_, variables, path, _, _]] = dumped(launch.said)
    assert isinstance(variables, list)
    assert [name for name in variables if "RECOVERY" in name] == []
    assert path == str(pod.packages)
    assert launch.complained == ""


def old_interpreter() -> str | None:
    """A Python 2.7. None: this machine has none."""
    found = shutil.which("python2.7")
    # The shim of a version manager is there without the version.
    usable = found is not None and subprocess.run([found, "-c", ""], stderr=subprocess.DEVNULL, check=False)
    return found if usable and usable.returncode == 0 else None


def test_python_2_parses_it_and_runs_its_program(pod: Pod) -> None:
    """Where no Python 2.7 is installed, the grammar alone is checked: nothing in the file is newer than 2.7."""
    tree = ast.parse((AGENT / "sitecustomize.py").read_text())
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.Starred, ast.Match)
    assert [node for node in ast.walk(tree) if isinstance(node, newer)] == []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
            assert not node.args.kwonlyargs
    python = old_interpreter()
    if python:
        with pod.running(
            [python, "-c", "import sys; print(sys.version_info[0], 'sitecustomize' in sys.modules)"]
        ) as launch:
            assert launch.ends() == 0
        assert launch.said == "(2, False)\n"
        assert launch.complained == ""


def test_it_takes_at_most_5_milliseconds(pod: Pod) -> None:
    """The least of several starts: other processes share the machine."""
    text = (AGENT / "sitecustomize.py").read_text()
    head = "import time\n_began = time.perf_counter()\n"
    measured = "print(time.perf_counter() - _began, flush=True); import sitecustomize"
    timed = head + text.replace("import sitecustomize", measured, 1)
    (pod.mounted / "sitecustomize.py").write_text(timed)
    assert timed.count("_began") == 2
    deadline = time.monotonic() + 45
    while True:
        done = subprocess.run(
            [sys.executable, "-c", ""], env=pod.environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=45
        )
        if float(done.stdout) < 0.005:
            return
        assert time.monotonic() < deadline, done.stdout
