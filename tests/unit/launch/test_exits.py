"""Whether a shell script exits with the code of its main program."""

import json
import subprocess
from pathlib import Path

import pytest

from recovery.launch.exits import check, check_volcano
from recovery.launch.places import written
from tests.unit.launch.manifests import group, told, volcano_job

TRAINS = "torchrun train.py"
HIDDEN = [
    (f"{TRAINS} | tee log", "| tee log"),
    (f"{TRAINS} 2>&1 |\n  tee log", "| tee log"),
    (f"cd . && {TRAINS} | tee log", "| tee log"),
    (f"set -e; {TRAINS} | tee log", "| tee log"),
    (f"set -o pipefail; set +o pipefail; {TRAINS} | tee log", "| tee log"),
    (f"{TRAINS} || true", "|| true"),
    (f"set -e\n{TRAINS} ||\n  true", "|| true"),
    (f"{TRAINS} || exit 0", "|| exit 0"),
    (f"{TRAINS} || echo failed", "|| echo failed"),
    (f"{TRAINS}\necho done", "echo done"),
    (f"{TRAINS}; sleep 0", "sleep 0"),
    (f"{TRAINS}; exit 0", "exit 0"),
    # set -e checks only the last command of a chain.
    (f"set -e; {TRAINS} && true; echo done", "echo done"),
    (f"OMP_NUM_THREADS=8 {TRAINS} > log; cp log log2", "cp log"),
]
SEEN = [
    TRAINS,
    f"exec {TRAINS}; echo done",
    f"set -o pipefail; {TRAINS} | tee log",
    f"set -euo pipefail\n{TRAINS} | tee log",
    f"set -e\n{TRAINS}\necho done",
    f"{TRAINS} && echo done",
    f"{TRAINS} || exit 1",
    f"{TRAINS} || exit",
    f"{TRAINS} || false",
    f"{TRAINS} || echo failed && exit 1",
    f"{TRAINS}; exit $?",
    f"{TRAINS}; code=$?; echo done; exit $code",
    f"{TRAINS} | tee log; exit ${{PIPESTATUS[0]}}",
    "true || true; echo | tee log; torchrun train.py",
    f"echo | {TRAINS}",
]
NOT_JUDGED = [
    f"{TRAINS} || (echo failed; exit 1)",
    f"if ! {TRAINS}; then echo failed; fi",
    f"{TRAINS} & wait",
    f"{TRAINS}; python evaluate.py",
    f"{TRAINS}; ./report.sh",
    f"{TRAINS}; test -f model.pt",
    "sleep 0 | tee log",
]


def of(script: str, shell: str = "bash, -c") -> list[str]:
    return told(
        check, group(f"kind: TrainJob\nspec: {{trainer: {{command: [{shell}], args: [{json.dumps(script)}]}}}}")
    )


@pytest.mark.parametrize(("script", "by"), HIDDEN)
def test_the_exit_code_of_another_command_takes_its_place(script: str, by: str) -> None:
    (line,) = of(script)

    assert line.startswith(f"failure-hidden: the container ends with the exit code of `{by}`, whatever torchrun ends")


@pytest.mark.parametrize("script", SEEN + NOT_JUDGED)
def test_a_script_that_ends_with_it_or_may_do_so_is_not_told_of(script: str) -> None:
    assert of(script) == []


@pytest.mark.parametrize("script", [script for script, _ in HIDDEN] + SEEN)
def test_bash_itself_says_so(script: str, tmp_path: Path) -> None:
    """In this test torchrun fails."""
    for name, code in (("torchrun", 7), ("python", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, check=False)

    assert (found.returncode == 0) is (script in [hidden for hidden, _ in HIDDEN])


@pytest.mark.parametrize("shell", ["bash, -o, pipefail, -c", "bash, -euo, pipefail, -c", "bash, -eo, pipefail, -c"])
def test_flags_of_the_shell_count(shell: str) -> None:
    assert of(f"{TRAINS} | tee log", shell) == []


def test_set_e_of_the_shell_ends_the_script() -> None:
    assert of(f"{TRAINS}; echo done", "bash, -ec") == []
    assert len(of(f"{TRAINS} | tee log", "bash, -ec")) == 1


@pytest.mark.parametrize(
    ("script", "fix"),
    [
        (f"{TRAINS} | tee log", "write set -o pipefail at the beginning of the script; bash has it"),
        (f"{TRAINS} || true", "remove || true"),
        (
            f"{TRAINS}; echo done",
            "let torchrun be the last command, or write set -e at the beginning of the script",
        ),
    ],
)
def test_the_fix(script: str, fix: str) -> None:
    assert of(script)[0].endswith(f"({fix})")


@pytest.mark.parametrize("program", ["python train.py", "accelerate launch train.py", "mpirun python train.py"])
def test_every_way_to_start_a_training_counts(program: str) -> None:
    assert len(of(f"{program} | tee log")) == 1


def test_it_is_told_at_the_command() -> None:
    command = "[bash, -c, 'torchrun a.py || :']"
    (finding,) = check(group(f"kind: TrainJob\nspec: {{trainer: {{command: {command}, args: null}}}}"))

    assert written(finding.place.path) == "spec.trainer.command"


def test_a_task_of_volcano_is_judged_too() -> None:
    container = "{name: pytorch, command: [sh, -c, 'python a.py || true']}"
    task = f"{{name: master, template: {{spec: {{containers: [{container}]}}}}}}"
    (finding,) = check_volcano(volcano_job(f"kind: Job\nspec: {{tasks: [{task}]}}"))

    assert written(finding.place.path) == "spec.tasks[0].template.spec.containers[0].command"
