"""`recovery simulate` as a shell sees it: its output and its exit codes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from recovery.cli import simulate
from recovery.cli.arguments import parse_seeds
from recovery.cli.main import app
from recovery.sim.trials.checkers import describe
from recovery.sim.trials.coverage import coverage_of
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.parallel_trials import WorkerError
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.summary import Report, report
from recovery.sim.trials.trial import TrialOutcome
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.trials.story import LLM, Story, violation
from tests.unit.patience import GUARD_SECONDS

KILLS = tuple(
    TrialFault(FaultKey("world", number, FaultKind.POD_KILL), at_seconds=60.0 * number, job=str(LLM))
    for number in range(8)
)
SCENARIO = """
name: test
jobs: [{name: llm, namespace: team-a, pods: 4, policy: {mode: Enforce}}]
chaos: [{kind: UserChaos, at: 1m, action: restart, selector: {job: llm}}]
"""


def outcome(plan: TrialPlan, *violations: Violation) -> TrialOutcome:
    story = Story(*plan.jobs)
    for fault in plan.faults:
        story.happens(fault.at_seconds or 0.0, fault.key.kind, f"{fault.key} happens")
    return TrialOutcome(
        plan=plan,
        evidence=story.evidence,
        violations=violations,
        trace_hash="cafe",
        requests=100,
        simulated_seconds=9000.0,
        cpu_seconds=0.5,
        coverage=coverage_of(story.evidence),
    )


class Trials:
    """Every seed has eight faults. In the seeds of `broken`, fault 3 doubles the charge if it happens."""

    def __init__(self) -> None:
        self.broken: tuple[int, ...] = ()
        self.plans: list[TrialPlan] = []

    def draw(self, seed: int) -> TrialPlan:
        return TrialPlan(seed=seed, jobs=(LLM,), faults=KILLS)

    def run(self, plan: TrialPlan) -> TrialOutcome:
        self.plans.append(plan)
        breaks = plan.seed in self.broken and KILLS[3] in plan.faults
        return outcome(plan, *([violation(200, "two charges for one incident")] if breaks else []))

    def report(self, seed: int) -> Report:
        return report(self.run(self.draw(seed)))


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    found = Trials()
    monkeypatch.setattr(simulate, "draw_plan", found.draw)
    monkeypatch.setattr(simulate, "run_trial", found.run)
    monkeypatch.setattr(simulate, "try_seed", found.report)
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_seeds() -> None:
    assert parse_seeds("3-5") == range(3, 6)
    assert parse_seeds("7-7") == range(7, 8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say one of --seed, --seeds and --scenario"),
        (["--seed", "1", "--seeds", "1-2"], "say one of --seed, --seeds and --scenario"),
        (["--seed", "-1"], "should be greater than or equal to 0"),
        (["--seed", "x"], "Input should be a valid integer"),
        (["--seeds", "5"], "'5' are not seeds like 0-99"),
        (["--seeds", "-5"], "'-5' are not seeds like 0-99"),
        (["--seeds", "1-x"], "'1-x' are not seeds like 0-99"),
        (["--seeds", "5-1"], "'5-1' are no seeds at all"),
        (["--seeds", "1-2", "--workers", "0"], "should be greater than or equal to 1"),
        (["--seed", "1", "--workers", "2"], "--workers goes with --seeds"),
        (["--seed", "1", "--shrnk"], "No such option"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_2(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_scenario_is_refused_whole(trials: Trials, tmp_path: Path) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(SCENARIO.replace("pods: 4", "pods: 0").replace("at: 1m", "at: 3h"))
    result = run("--scenario", str(path))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"recovery: {path}:3: jobs[0].pods: 0 is too few; say 1 or more",
        f"recovery: {path}:4: chaos[0].at: 3h is not before the end of all chaos, 90m",
    ]
    assert (result.stdout, trials.plans) == ("", [])


def test_a_scenario_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    result = run("--scenario", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert result.stderr == f"recovery: {tmp_path}/none.yaml cannot be read: No such file or directory\n"
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    result = run("--scenario", str(tmp_path / "binary.yaml"))
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_a_scenario_runs_as_it_is_written(trials: Trials, tmp_path: Path) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(SCENARIO)
    result = run("--scenario", str(path))
    assert result.exit_code == 0, result.output
    (plan,) = trials.plans
    assert [fault.key.kind for fault in plan.faults] == [FaultKind.USER_RESTART]
    assert "! +00:01:00.000  world/0/user-restart happens" in result.stdout


def test_a_seed_shows_its_timeline_and_its_figures(trials: Trials) -> None:
    result = run("--seed", "7")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        *(f"! +00:0{number}:00.000  world/{number}/pod-kill happens" for number in range(8)),
        "  +01:30:00.000  healing begins: nothing breaks from now on",
        "",
        "TOTAL",
        "trials                   1",
        "simulated hours          2.5",
        "requests                 100",
        "incidents                0",
        "restarts                 0",
        "trials with a violation  0",
        "CPU-seconds              0.5",
        "hours per CPU-second     5.0",
        "",
        "trace cafe",
        f"all {len(describe())} invariants held",
    ]


@pytest.mark.parametrize("arguments", [("--seed", "7"), ("--seeds", "7-7"), ("--scenario", "test.yaml")])
def test_coverage_is_listed_where_it_is_asked_for(
    trials: Trials, arguments: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test.yaml").write_text(SCENARIO)
    without, asked = run(*arguments), run(*arguments, "--coverage")
    assert (without.exit_code, asked.exit_code) == (0, 0)
    assert ["runtime:shipped", "1"] in [line.split() for line in asked.stdout.splitlines()]
    assert "runtime:shipped" not in without.stdout
    assert "never hit" not in without.stdout


@pytest.mark.parametrize("arguments", [("--seed", "1"), ("--seeds", "0-3", "--workers", "1")])
def test_the_last_line_names_the_invariants_that_did_not_hold(trials: Trials, arguments: tuple[str, ...]) -> None:
    trials.broken = (1,)
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == f"not all {len(describe())} invariants held; broken: OneCharge"


def test_a_scenario_that_the_machine_cannot_hold_is_refused(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(SCENARIO.replace("pods: 4", "pods: 4000"))
    monkeypatch.setattr(simulate, "free_memory_mib", lambda: 256.0)
    refused = run("--scenario", str(path))
    assert (refused.exit_code, refused.stdout, trials.plans) == (2, "", [])
    assert refused.stderr.startswith(f"recovery: {path}:3: jobs[0].pods: ")
    monkeypatch.setattr(simulate, "free_memory_mib", lambda: 1e6)
    warned = run("--scenario", str(path))
    assert (warned.exit_code, len(trials.plans)) == (0, 1)
    assert warned.stderr.startswith(f"recovery: warning: {path}: ")


def test_a_violation_is_told_and_ends_with_1(trials: Trials) -> None:
    trials.broken = (7,)
    result = run("--seed", "7")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "seed 7 breaks OneCharge at +00:03:20.000: two charges for one incident"
    assert "  > +00:03:20.000  OneCharge: two charges for one incident" in lines
    assert "  world/3/pod-kill at 180 s of team-a/llm" in lines
    assert "Again: recovery simulate --seed 7" in lines


def test_a_shrunk_violation_has_the_fewest_faults(trials: Trials) -> None:
    trials.broken = (7,)
    result = run("--seed", "7", "--shrink")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert f"Faults, 1 of 8, none can be left out ({len(trials.plans) - 1} runs):" in lines
    assert [line for line in lines if line.startswith("  world/")] == ["  world/3/pod-kill at 180 s of team-a/llm"]
    assert "Again: recovery simulate --seed 7 --shrink" in lines


def test_several_seeds_are_told_in_their_order(trials: Trials) -> None:
    trials.broken = (1, 3)
    result = run("--seeds", "0-3", "--workers", "1", "--coverage")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "seed 1 breaks OneCharge at +00:03:20.000: two charges for one incident"
    assert "seed 3 breaks OneCharge at +00:03:20.000: two charges for one incident" in lines
    assert lines.count("Timeline:") == 1  # only the first violation of an invariant gets its timeline
    assert "trials                   4" in lines
    assert "trials with a violation  2" in lines
    assert "fault:pod-kill     32" in lines
    (missed,) = [line for line in lines if line.startswith("never hit: ")]
    assert "fault:pod-evict" in missed
    assert "fault:pod-kill" not in missed


def test_results_that_come_in_any_order_are_told_in_that_of_the_seeds(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(
        work: Callable[[int], Report], seeds: Sequence[int], workers: int
    ) -> Generator[tuple[int, Report], None, None]:
        assert workers == 2
        yield from ((seed, msgspec.structs.replace(work(seed), invariant=f"I{seed}")) for seed in reversed(seeds))

    trials.broken = (0, 1, 2)
    monkeypatch.setattr(simulate, "in_processes", backwards)
    result = run("--seeds", "0-2", "--workers", "2")
    first = [line for line in result.stdout.splitlines() if line.startswith("seed ")]
    assert [line[:6] for line in first] == ["seed 0", "seed 1", "seed 2"]


def test_all_held(trials: Trials) -> None:
    result = run("--seeds", "0-3", "--workers", "1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "TOTAL"


def test_a_simulation_that_fails_is_told(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Generator[tuple[int, Report], None, None]:
        raise WorkerError("seed 3: the process that ran it died (killed, or out of memory)")
        yield

    monkeypatch.setattr(simulate, "in_processes", fails)
    result = run("--seeds", "0-3", "--workers", "2")
    assert result.exit_code == 1
    assert result.stderr == "recovery: seed 3: the process that ran it died (killed, or out of memory)\n"


def test_ctrl_c_in_a_trial_ends_with_130(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(plan: TrialPlan) -> TrialOutcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "run_trial", interrupted)
    result = run("--seed", "7")
    assert (result.exit_code, result.output) == (130, "")


def test_the_other_commands_do_without_the_simulation() -> None:
    code = "import sys, recovery.cli.main; sys.exit(any(name.startswith('recovery.sim') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_ctrl_c_ends_it_at_once_and_leaves_no_process() -> None:
    # Few enough to end by themselves soon if this process is killed: they run in a session of their own.
    command = [sys.executable, "-m", "recovery.cli.entry", "simulate", "--seeds", "0-199", "--workers", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _until(lambda: len(_children(process.pid)) >= 2)
        os.killpg(process.pid, signal.SIGINT)  # a terminal does the same
        output, errors = process.communicate(timeout=GUARD_SECONDS)
        assert (process.returncode, output, errors) == (130, "", "recovery: interrupted\n")
        _until(lambda: not _alive_in_group(process.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _alive_in_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
