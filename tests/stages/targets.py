"""Runs make targets: alone, side by side, and in the background."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TextIO

from tests.stages.reports import REPORTS, Report, complaint, read_report, remove_report
from tests.stages.suites import SUITES

GRACE_SECONDS = 20.0
"""How long an interrupted target may take to end its children."""
NOT_INHERITED = frozenset({"MAKEFLAGS", "MFLAGS", "ARGS"})
"""Variables are passed in the environment: MAKEFLAGS would also pass on a job server that ends at this process."""


@dataclass(frozen=True)
class Stage:
    """A finished target. `report` None: it is no suite. `complaint` empty: it succeeded."""

    name: str
    seconds: float
    cpu_seconds: float
    """CPU time of its processes that ended and were waited for. Much less than `seconds`: it mostly waits."""
    report: Report | None
    complaint: str


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


@dataclass(frozen=True)
class OneTest:
    """A target that runs one test of its suite and writes its report under another name."""

    node_id: str
    report: str

    @property
    def variables(self) -> Mapping[str, str]:
        return {"TESTS": self.node_id, "REPORT": self.report}


def run_stage(
    name: str,
    log: Path | None = None,
    *,
    background: list[subprocess.Popen[bytes]] | None = None,
    only: OneTest | None = None,
) -> Stage:
    """`log`: a file for its output. None: the output is printed. `background`: as for `run_target`.

    `only` None: the whole target runs.
    """
    written_as = only.report if only else name
    remove_report(written_as)
    environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
    environment |= only.variables if only else {}
    began = time.monotonic()
    with log.open("w") if log else nullcontext() as output:
        print(f"\n== {written_as}", file=output, flush=True)
        exit_code, cpu_seconds = run_target(name, environment, output, background)
    seconds = time.monotonic() - began
    report = read_report(written_as) if name in SUITES else None
    why = complaint(name, report) if report else ""
    if exit_code and not why:
        why = f"{name}: failed"
    return Stage(name, seconds, cpu_seconds, report, why)


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
