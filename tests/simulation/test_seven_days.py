"""Seven days of 200 jobs that come, go and fail: after the last day there is no more than after the third.

Jobs train for two days and incident records are kept for one, so from the third day on each day is like the next.
Anything that still grows would grow for as long as the controller runs. The figures of each day are printed.
"""

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import pytest
import structlog
from prometheus_client import generate_latest

from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
    Resource,
)
from recovery.sim.api.store import ObjectChange
from recovery.sim.virtual_time import run_in_virtual_time
from tests.simulation.week.fleet import DAY_SECONDS, FAILURES_PER_DAY, Failure, FleetWeek
from tests.simulation.week.held_memory import held_memory

DAYS = 7
SETTLED_DAY = 3
COLLECT_SECONDS = 3600.0
STRAY = 0.05
"""A figure may differ by this share between two days: some incidents end just before midnight, others just after it."""

OF_THE_MACHINE = frozenset({"cpu_seconds"})
"""Other processes on the machine affect these, so they are printed and not asserted."""


@dataclass(frozen=True)
class DayFigures:
    """What exists at the end of a day, and what the day has used."""

    recovery_groups: int
    recovery_incidents: int
    events: int
    workload_objects: int
    """Number of TrainJobs, JobSets, Jobs and pods."""
    ledger_bytes: int
    """Size of all RecoveryGroups."""
    fleet_ledger_bytes: int
    """Size of the RecoveryConfig."""
    held_bytes: int
    """Memory reachable from the controller."""
    held_objects: int
    metric_lines: int
    """Lines of one scrape."""
    controller_requests: int
    """Requests on that day, without watches."""
    incidents_recorded: int
    """Incidents recorded on that day."""
    resident_bytes: int
    """Resident memory of the process: the controller, the cluster and the cluster's history."""
    cpu_seconds: float
    """CPU time of that day."""


class Observer:
    """Takes the figures of a week."""

    def __init__(self, week: FleetWeek) -> None:
        self._week = week
        self._recorded = 0
        self._before = (0, 0, time.process_time())
        self.held_types: list[Counter[str]] = []
        """At the end of each day, how many objects of each type the controller holds."""
        self.struck = week.struck
        """The failures that have affected jobs."""
        week.cluster.server.subscribe(self._record, RECOVERY_INCIDENTS)

    def _record(self, change: ObjectChange) -> None:
        self._recorded += change.type == "ADDED"

    def figures(self) -> DayFigures:
        """The figures at the end of a day."""
        week = self._week
        requests, recorded, cpu_seconds = self._before
        self._before = (week.client.requests, self._recorded, time.process_time())
        gc.collect()
        held = held_memory(week.manager, week.telemetry)
        self.held_types.append(held.of_type)
        figures = DayFigures(
            recovery_groups=self._count(RECOVERY_GROUPS),
            recovery_incidents=self._count(RECOVERY_INCIDENTS),
            events=self._count(EVENTS),
            workload_objects=sum(self._count(resource) for resource in (TRAIN_JOBS, JOB_SETS, JOBS, PODS)),
            ledger_bytes=self._status_bytes(RECOVERY_GROUPS),
            fleet_ledger_bytes=self._status_bytes(RECOVERY_CONFIGS),
            held_bytes=held.size_bytes,
            held_objects=held.of_type.total(),
            metric_lines=generate_latest(week.telemetry.registry).count(b"\n"),
            controller_requests=week.client.requests - requests,
            incidents_recorded=self._recorded - recorded,
            resident_bytes=_resident_bytes(),
            cpu_seconds=round(self._before[2] - cpu_seconds, 1),
        )
        self._before = (*self._before[:2], time.process_time())
        return figures

    def _count(self, resource: Resource) -> int:
        return sum(1 for _ in self._week.cluster.server.objects(resource))

    def _status_bytes(self, resource: Resource) -> int:
        bodies = self._week.cluster.server.objects(resource)
        return sum(len(msgspec.json.encode(body.get("status") or {})) for body in bodies)


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@dataclass(frozen=True)
class Week:
    """What the test needs from a finished week."""

    days: list[DayFigures]
    held_types: list[Counter[str]]
    struck: frozenset[Failure]


async def _seven_days() -> Week:
    week = FleetWeek()
    days = []
    async with week.running():
        observer = Observer(week)
        for day in range(1, DAYS + 1):
            for _ in range(round(DAY_SECONDS / COLLECT_SECONDS)):
                await week.clock.sleep(COLLECT_SECONDS)
                gc.collect()
            days.append(observer.figures())
            print(f"day {day}: {asdict(days[-1])}", flush=True)
    return Week(days, observer.held_types, frozenset(observer.struck))


def _quiet_week() -> Week:
    with _quiet():
        return run_in_virtual_time(_seven_days())


def _in_its_own_process() -> Week:
    """Runs in a new process: objects that other tests have left in this one would count as resident."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_quiet_week).result()


@pytest.mark.long
def test_nothing_grows_from_the_third_day_to_the_seventh(record_property: Callable[[str, object], None]) -> None:
    week = _in_its_own_process()
    days = week.days
    for day, figures in enumerate(days, 1):
        record_property(f"day {day}", asdict(figures))
    then, now = days[SETTLED_DAY - 1], days[-1]
    assert min(day.incidents_recorded for day in days) >= FAILURES_PER_DAY, "each failure is an incident"
    assert week.struck == set(Failure)
    assert sum(day.incidents_recorded for day in days) > 5 * now.recovery_incidents, "records are swept"
    grown = {
        name: (getattr(then, name), value)
        for name, value in asdict(now).items()
        if name not in OF_THE_MACHINE and value > getattr(then, name) * (1 + STRAY)
    }
    held_more = week.held_types[-1] - week.held_types[SETTLED_DAY - 1]
    assert not grown, f"(day {SETTLED_DAY}, day {DAYS}): {grown}; held more: {held_more.most_common(10)}"


@contextmanager
def _quiet() -> Iterator[None]:
    """No logs, and a garbage collection only once an hour: otherwise it takes a fifth of the test's time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        structlog.configure(**before)
