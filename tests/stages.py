"""Runs make targets one after the other, reports how long each took, and accepts a suite only if its tests really ran.

A suite that collects nothing, or skips what it cannot run here, exits with success and proves nothing. So each suite's
JUnit report is read: no tests, or a skipped one (an expected failure counts as one), fail the run. The end of the run
also names the slowest tests from these reports, so that time is saved where it is spent.

Targets joined by a plus run side by side, because they mostly wait. One side may be a chain: targets joined by commas,
which run one after the other. A target's output is printed when it has ended. A target after a tilde runs beside all
that follow it, on the CPU time that these leave, and ends with them or after them.

    python -m tests.stages lint+docs unit ~simulation ~seeds test-cluster+real-nodes,contract,walks
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TextIO
from xml.etree import ElementTree

REPORTS = Path("build")
SUITES = frozenset(
    {
        "docs",
        "unit",
        "examples",
        "seeds",
        "simulation",
        "contract",
        "prometheus",
        "walks",
        "test-image",
        "real-nodes",
        "test-cluster",
    }
)
"""Targets that write a report named after them."""
NOT_EVERYWHERE = frozenset({"real-nodes"})
"""Suites that may be skipped on a developer's machine, because they need root and cgroups. CI may not skip them."""
BACKGROUND = "~"
GRACE_SECONDS = 20.0
"""How long an interrupted target may take to end its children."""
SLOWEST_COUNT = 20
SLOW_SECONDS = 1.0
"""Tests faster than this are never listed among the slowest."""


@dataclass(frozen=True)
class Stage:
    """A finished target. `tests` None: it is no suite. `complaint` empty: it succeeded."""

    name: str
    seconds: float
    cpu_seconds: float
    """CPU time of its processes that ended and were waited for. Much less than `seconds`: it mostly waits."""
    tests: int | None
    complaint: str


def check_report(name: str, report: Path) -> tuple[int, str]:
    """How many tests ran, and why the result is not acceptable. Empty: it is."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        return 0, f"{name}: no report of what ran ({error})"
    skipped = [f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find("skipped") is not None]
    if not cases:
        return 0, f"{name}: not one test ran"
    if skipped and name in NOT_EVERYWHERE and not os.environ.get("CI"):
        print(f"{name}: {len(skipped)} of {len(cases)} tests SKIPPED on this machine; CI runs them", flush=True)
        return len(cases) - len(skipped), ""
    if skipped:
        return len(cases) - len(skipped), f"{name}: skipped, which counts as failed here: {', '.join(skipped)}"
    return len(cases), ""


def run_side_by_side(chains: list[list[str]]) -> list[Stage]:
    """Run all chains to their end, even if a target fails. The targets of a chain run one after the other."""
    if sum(map(len, chains)) == 1:
        return [run_stage(chains[0][0])]
    REPORTS.mkdir(exist_ok=True)
    print(f"\n== {' beside '.join(', '.join(chain) for chain in chains)}", flush=True)
    printing = Lock()

    def run_chain(chain: list[str]) -> list[Stage]:
        stages = []
        for name in chain:
            log = REPORTS / f"{name}.log"
            stages.append(run_stage(name, log))
            with printing:
                print(log.read_text(errors="replace"), end="", flush=True)
        return stages

    with ThreadPoolExecutor(len(chains)) as threads:
        return [stage for chain in threads.map(run_chain, chains) for stage in chain]


class Background:
    """Targets that run at the lowest priority beside others, each in its own session."""

    def __init__(self) -> None:
        REPORTS.mkdir(exist_ok=True)
        self._threads = ThreadPoolExecutor()
        self._running: dict[str, Future[Stage]] = {}
        self._targets: list[subprocess.Popen[bytes]] = []

    def begin(self, name: str) -> None:
        print(f"\n== {name}, in the background", flush=True)
        log = REPORTS / f"{name}.log"
        self._running[name] = self._threads.submit(run_stage, name, log, background=self._targets)

    def results(self, *, waits: bool) -> list[Stage]:
        """Prints their output. `waits` False: only of those that have ended by now."""
        stages = []
        for name, running in self._running.items():
            if waits or running.done():
                stages.append(running.result())
                print((REPORTS / f"{name}.log").read_text(errors="replace"), end="", flush=True)
        return stages

    def end(self) -> None:
        """Ends all targets that still run, if necessary by force. No process is left afterwards."""
        for how in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            for target in self._targets:
                if target.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(target.pid, how)
            if not wait(self._running.values(), timeout=GRACE_SECONDS).not_done:
                break
        self._threads.shutdown()


def run_stage(name: str, log: Path | None = None, *, background: list[subprocess.Popen[bytes]] | None = None) -> Stage:
    """`log`: a file for its output. None: the output is printed. `background`: as for `run_target`."""
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    # Variables are passed in the environment: MAKEFLAGS would also pass on a job server that ends at this process.
    environment = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MFLAGS", "ARGS"}}
    began = time.monotonic()
    with log.open("w") if log else nullcontext() as output:
        print(f"\n== {name}", file=output, flush=True)
        exit_code, cpu_seconds = run_target(name, environment, output, background)
    seconds = time.monotonic() - began
    tests, complaint = check_report(name, report) if name in SUITES else (None, "")
    if exit_code and not complaint:
        complaint = f"{name}: failed"
    return Stage(name, seconds, cpu_seconds, tests, complaint)


def run_target(
    name: str,
    environment: dict[str, str],
    output: TextIO | None,
    background: list[subprocess.Popen[bytes]] | None,
) -> tuple[int, float]:
    """Its exit code, and its CPU time in seconds.

    `background`: run it at the lowest priority, in its own session, and add it to this list. None: run it like this
    process.
    """
    command = ["make", "--no-print-directory", name]
    if background is None:
        target = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    else:
        command = ["nice", "-n", "19", *command]
        target = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        background.append(target)
        # Where Linux first shares the cores among sessions, `nice` counts only within a session (sched(7), autogroup).
        with suppress(OSError):
            Path(f"/proc/{target.pid}/autogroup").write_text("19")
    try:
        _, status, usage = os.wait4(target.pid, 0)
    except KeyboardInterrupt:
        target.wait()  # Ctrl-C has reached it too; its children end before we do.
        raise
    target.returncode = os.waitstatus_to_exitcode(status)
    return target.returncode, usage.ru_utime + usage.ru_stime


def slowest(report: Path) -> list[str]:
    """The slowest tests, each with its seconds: set-up, the test itself and tear-down."""
    cases = [(float(case.get("time", "0")), case) for case in ElementTree.parse(report).iter("testcase")]
    slow = sorted((each for each in cases if each[0] >= SLOW_SECONDS), key=lambda each: -each[0])
    return [f"{seconds:>9.1f} s  {case.get('classname')}::{case.get('name')}" for seconds, case in slow[:SLOWEST_COUNT]]


def table(stages: list[Stage], total_seconds: float) -> str:
    """Minutes, CPU minutes and tests of each stage and of all. Stages side by side take less than their sum."""
    rows = [(stage.name, stage.seconds, stage.cpu_seconds, stage.tests) for stage in stages]
    cpu_seconds, tests_run = sum(stage.cpu_seconds for stage in stages), sum(stage.tests or 0 for stage in stages)
    rows.append(("total", total_seconds, cpu_seconds, tests_run))
    lines = [f"{'stage':<14}{'minutes':>9}{'of CPU':>9}{'tests':>7}"]
    lines += [
        f"{name:<14}{seconds / 60:>9.1f}{cpu / 60:>9.1f}{'-' if tests is None else tests:>7}"
        for name, seconds, cpu, tests in rows
    ]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    stages: list[Stage] = []
    began = time.monotonic()
    background = Background()
    try:
        for name in names:
            if name.startswith(BACKGROUND):
                background.begin(name.removeprefix(BACKGROUND))
                continue
            stages += run_side_by_side([chain.split(",") for chain in name.split("+")])
            if any(stage.complaint for stage in stages):
                stages += background.results(waits=False)
                break
        else:
            stages += background.results(waits=True)
    finally:
        background.end()
    for stage in stages:
        if stage.tests and (lines := slowest(REPORTS / f"{stage.name}.xml")):
            print("\n".join((f"\n== {stage.name}: slowest tests", *lines)))
    print(f"\n{table(stages, time.monotonic() - began)}")
    complaints = [stage.complaint for stage in stages if stage.complaint]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
