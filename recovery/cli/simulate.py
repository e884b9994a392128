"""`recovery simulate`: runs trials of the controller in a simulated cluster, and shows the invariants that broke."""

import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from recovery.cli.chaos_report import EXIT_CODES, case_lines, left_words
from recovery.cli.exit_codes import EXIT_FAILURE, EXIT_USAGE, print_error
from recovery.cli.formatting import aligned, printable
from recovery.cli.scenario_file import read_scenario_file
from recovery.cli.simulated_drill import SimulatedDrill
from recovery.scenario.experiment import Experiment
from recovery.sim.trials.checkers import describe
from recovery.sim.trials.coverage import NEVER_HIT, by_unit_tests_only, never_hit
from recovery.sim.trials.parallel_trials import WorkerError, in_processes
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.scenario_size import free_memory_mib
from recovery.sim.trials.shrink import MAX_RUNS, Shrunk, shrink
from recovery.sim.trials.summary import Report, counterexample, report, summarize, try_seed, verdict
from recovery.sim.trials.timeline import timeline
from recovery.sim.trials.trial import TrialOutcome, run_trial

MAX_COUNTEREXAMPLES = 5
"""At most this many are printed in full, one for each invariant. Other broken trials are a line each."""


def simulate_seed(seed: int, *, shrinking: bool, coverage: bool) -> NoReturn:
    """Run one trial and print its timeline. `coverage`: also print what it covered."""
    replay = f"recovery simulate --seed {seed}"
    _end(lambda: _simulate_plan(draw_plan(seed), replay, shrinking=shrinking, coverage=coverage))


def simulate_scenario(path: Path, *, shrinking: bool, coverage: bool) -> NoReturn:
    """Run the trial of a file and print its timeline. Exit code 2: the file is refused, with all of its problems.

    An experiment is run in the trial. Exit code 1: also if it Failed. 2: also if it was not run, or not to its end.
    """
    scenario = read_scenario_file(path, lambda text: read_scenario(text, free_mib=free_memory_mib()))
    for warning in scenario.warnings:
        print_error(f"warning: {path}: {warning}")
    replay = f"recovery simulate --scenario {shlex.quote(str(path))}"
    if scenario.experiment is not None:
        sys.exit(
            _simulate_experiment(scenario.plan, scenario.experiment, replay, shrinking=shrinking, coverage=coverage)
        )
    _end(lambda: _simulate_plan(scenario.plan, replay, shrinking=shrinking, coverage=coverage))


def simulate_seeds(seeds: Sequence[int], *, workers: int | None, shrinking: bool, coverage: bool) -> NoReturn:
    """Run a trial for each seed. `workers` None: as many processes as there are cores."""
    _end(lambda: _simulate_seeds(seeds, workers or os.cpu_count() or 1, shrinking=shrinking, coverage=coverage))


def _end(work: Callable[[], Sequence[Report]]) -> NoReturn:
    """Do the work and exit. 0: all invariants held. 1: one did not, or a worker failed."""
    try:
        reports = work()
    except WorkerError as error:
        print(f"recovery: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILURE)
    sys.exit(EXIT_FAILURE if any(each.violations for each in reports) else 0)


def _simulate_experiment(
    plan: TrialPlan, experiment: Experiment, replay: str, *, shrinking: bool, coverage: bool
) -> int:
    """The exit code."""
    drills: list[SimulatedDrill] = []

    def run(plan: TrialPlan) -> TrialOutcome:
        drills.append(SimulatedDrill(experiment))
        return run_trial(plan, drills[-1])

    reports = _simulate_plan(plan, replay, run, shrinking=shrinking, coverage=coverage)
    code = _print_drill(drills[0])
    return EXIT_FAILURE if any(each.violations for each in reports) else code


def _print_drill(drill: SimulatedDrill) -> int:
    """The exit code of the verdict, as that of `recovery chaos run`."""
    print()
    for problem in drill.problems:
        print_error(problem)
    outcome = drill.outcome
    if outcome is None:
        print("the experiment was refused" if drill.problems else "the trial ended before the experiment began")
        return EXIT_USAGE
    _print(case_lines(outcome.cases))
    if outcome.interrupted:
        print_error("duration was over before the experiment had ended; say a longer one")
    _print([f"{outcome.verdict}: {outcome.verdict_message}"])
    for left in outcome.left_over:
        print_error(left_words(left))
    return EXIT_USAGE if outcome.left_over else EXIT_CODES[outcome.verdict]


def _simulate_plan(
    plan: TrialPlan,
    replay: str,
    run: Callable[[TrialPlan], TrialOutcome] | None = None,
    *,
    shrinking: bool,
    coverage: bool,
) -> Sequence[Report]:
    run = run or run_trial
    outcome = run(plan)
    if outcome.violations:
        _print(_counterexample(outcome, replay, run, shrinking=shrinking))
    else:
        _print(timeline(outcome.evidence))
    reports = [report(outcome)]
    _print_summary(reports, coverage=coverage)
    print(f"\ntrace {outcome.trace_hash}")
    print(verdict(reports, len(describe())))
    return reports


def _simulate_seeds(seeds: Sequence[int], workers: int, *, shrinking: bool, coverage: bool) -> Sequence[Report]:
    found: dict[int, Report] = {}
    with _progress("trials", len(seeds)) as step, closing(_tried(seeds, workers)) as tried:
        for seed, each in tried:
            found[seed] = each
            step()
    reports = [found[seed] for seed in seeds]
    shown: set[str] = set()
    for each in reports:
        if not each.violations:
            continue
        if each.invariant in shown or len(shown) == MAX_COUNTEREXAMPLES:
            _print([f"seed {each.seed} breaks {each.violations[0]}"])
            continue
        shown.add(each.invariant)
        replay = f"recovery simulate --seed {each.seed}"
        _print(_counterexample(run_trial(draw_plan(each.seed)), replay, run_trial, shrinking=shrinking))
        print()
    _print_summary(reports, coverage=coverage)
    if coverage:
        counts = summarize(reports).coverage
        print(f"\nnever hit: {', '.join(never_hit(counts)) or 'nothing'}")
        _print(f"hit by a unit test only: {key} ({test})" for key, test in by_unit_tests_only(counts).items())
        _print(f"cannot be hit: {key} ({why})" for key, why in NEVER_HIT.items())
    print()
    print(verdict(reports, len(describe())))
    return reports


def _tried(seeds: Sequence[int], workers: int) -> Generator[tuple[int, Report], None, None]:
    """A single seed is tried in this process: another process would take longer to start than the trial takes."""
    if min(workers, len(seeds)) > 1:
        yield from in_processes(try_seed, seeds, workers)
        return
    for seed in seeds:
        yield seed, try_seed(seed)


def _counterexample(
    outcome: TrialOutcome, replay: str, run: Callable[[TrialPlan], TrialOutcome], *, shrinking: bool
) -> Iterator[str]:
    if not shrinking:
        return counterexample(outcome, replay)
    return counterexample(outcome, f"{replay} --shrink", _shrunk(outcome, run))


def _shrunk(outcome: TrialOutcome, run: Callable[[TrialPlan], TrialOutcome]) -> Shrunk[TrialOutcome]:
    with _progress("shrinking", MAX_RUNS) as step:

        def run_again(plan: TrialPlan) -> TrialOutcome:
            step()
            return run(plan)

        return shrink(outcome, run_again)


@contextmanager
def _progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - what writes into a file does not need it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)


def _print_summary(reports: Sequence[Report], *, coverage: bool) -> None:
    summary = summarize(reports)
    print()
    _print(aligned(("TOTAL", ""), summary.rows()))
    if not coverage:
        return
    print()
    _print(aligned(("COVERAGE", "TIMES"), [(key, str(times)) for key, times in summary.coverage.items()]))


def _print(lines: Iterable[str]) -> None:
    """Without control characters, because names and messages in the lines come from files."""
    for line in lines:
        print(printable(line))
