"""`recovery simulate --scenario` of an experiment: what it prints after the trial, and its exit codes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from recovery.chaos.chaos_run import RunOutcome
from recovery.chaos.marked_nodes import LeftOver
from recovery.cli import simulate
from recovery.cli.main import app
from recovery.cli.simulated_drill import SimulatedDrill
from recovery.core.model.drill import DrillCase, DrillVerdict
from recovery.core.model.reason import Reason
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.trial import TrialOutcome
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.trials.story import violation
from tests.unit.cli.test_simulate import outcome

FILE = "{name: lose-a-rank, target: {job: research/llm}, chaos: [{kind: PodChaos, action: pod-kill, mode: one}]}\n"
CASE = DrillCase(
    1, DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED, "as expected: recovered in 2.5 s", recovery_seconds=2.5
)


def ended(verdict: DrillVerdict, *, interrupted: bool = False, left: tuple[LeftOver, ...] = ()) -> RunOutcome:
    reason = Reason.DRILL_INTERRUPTED if interrupted else Reason.DRILL_DONE
    return RunOutcome("lose-a-rank-x7k2p", reason, "why", verdict, "said", (CASE,), interrupted, left)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lose-a-rank.yaml"
    path.write_text(FILE)
    return path


def run(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *violations: Violation,
    found: RunOutcome | None = None,
    problems: tuple[str, ...] = (),
) -> Result:
    def trial(plan: TrialPlan, drill: SimulatedDrill) -> TrialOutcome:
        assert plan.drills
        assert str(drill.key) == "research/llm"
        drill.outcome, drill.problems = found, problems
        return outcome(plan, *violations)

    monkeypatch.setattr(simulate, "run_trial", trial)
    return CliRunner().invoke(app, ["simulate", "--scenario", str(path)])


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(DrillVerdict.PASSED, 0), (DrillVerdict.FAILED, 1), (DrillVerdict.ABORTED, 2), (DrillVerdict.INCONCLUSIVE, 2)],
)
def test_the_exit_code_is_that_of_the_verdict(
    path: Path, monkeypatch: pytest.MonkeyPatch, verdict: DrillVerdict, code: int
) -> None:
    result = run(path, monkeypatch, found=ended(verdict))
    assert result.exit_code == code, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == f"{verdict}: said"
    assert lines[-2] == "repeat 1: as expected: recovered in 2.5 s"
    assert lines[-4].startswith("REPEAT  VERDICT")


def test_a_broken_invariant_fails_a_drill_that_passed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(path, monkeypatch, violation(200, "two charges for one incident"), found=ended(DrillVerdict.PASSED))
    assert result.exit_code == 1
    assert "Passed: said" in result.stdout


def test_an_experiment_that_is_refused_ends_with_2_and_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(path, monkeypatch, problems=("the job is paused; run recovery resume llm",))
    assert (result.exit_code, result.stderr) == (2, "recovery: the job is paused; run recovery resume llm\n")
    assert result.stdout.splitlines()[-1] == "the experiment was refused"


def test_an_experiment_that_is_not_over_in_time_says_which_field_to_change(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(path, monkeypatch, found=ended(DrillVerdict.ABORTED, interrupted=True))
    assert result.exit_code == 2
    assert result.stderr == "recovery: duration was over before the experiment had ended; say a longer one\n"


def test_a_node_that_is_left_changed_is_no_success(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(path, monkeypatch, found=ended(DrillVerdict.PASSED, left=(LeftOver("node-1", "conflict"),)))
    assert (result.exit_code, result.stderr) == (2, "recovery: node node-1 is not as it was: conflict\n")


def test_a_trial_that_ends_before_the_experiment_begins_is_no_success(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(path, monkeypatch)
    assert result.exit_code == 2
    assert result.stdout.splitlines()[-1] == "the trial ended before the experiment began"
