"""What metrics cost: CPU of a scrape by the number of jobs, and CPU of an event with and without metrics.

A scrape runs in the event loop, so its CPU time delays the controller's other work. An event is the reconcile of a
healthy group of 128 pods, without the watch line before it and without any request: it reads the facts and decides that
there is nothing to do. Milliseconds depend on the machine; the ratios count.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import generate_latest

from recovery.core.decision.decide import decide
from recovery.core.decision.protection import protection
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.policy.selection import applicable
from recovery.telemetry.logs import configure_logs
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import GPUS_OF_POD, NAMESPACE, CountingStore, fleet, in_an_incident, put
from tests.unit.telemetry.world import SetClock

PODS = 128
EVENTS = 300
TIMES = 5
"""Each case is measured this often; the fastest run counts."""


@dataclass
class Row:
    """The measurements of one case."""

    case: str
    milliseconds: float
    of_first: float
    """The ratio to the first row of its kind."""
    series: int
    size_bytes: int


def _telemetry(store: CountingStore) -> tuple[Telemetry, SetClock]:
    clock = SetClock()
    clock.seconds = 60
    telemetry = Telemetry(clock=clock, version="1")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    return telemetry, clock


def _fastest(work: Callable[[], object]) -> float:
    """CPU milliseconds of the fastest run. The garbage collector is off meanwhile."""
    fastest = float("inf")
    for _ in range(TIMES):
        gc.collect()
        gc.disable()
        began_seconds = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - began_seconds)
        gc.enable()
    return fastest * 1000


def _scrapes() -> list[Row]:
    rows: list[Row] = []
    for jobs, ledgers, incidents in ((200, 0, False), (200, 200, True), (500, 500, False)):
        store = fleet(jobs=jobs, pods=PODS, ledgers=ledgers)
        if incidents:
            for number, key in enumerate(store.keys()):
                put(store, key, in_an_incident(number, PODS * GPUS_OF_POD, PODS))
        telemetry, _ = _telemetry(store)
        text = generate_latest(telemetry.registry).decode()
        milliseconds = _fastest(lambda registry=telemetry.registry: generate_latest(registry))  # type: ignore[misc]
        first = rows[0].milliseconds if rows else milliseconds
        series = sum(bool(line) and not line.startswith("#") for line in text.splitlines())
        what = "all in an incident" if incidents else f"{ledgers} ledgers"
        rows.append(Row(f"scrape, {jobs} jobs, {what}", milliseconds, milliseconds / first, series, len(text)))
    return rows


def _events() -> list[Row]:
    store = fleet(jobs=1, pods=PODS)
    [(key, snapshot)] = store.snapshots.items()
    telemetry, clock = _telemetry(store)

    def off() -> None:
        for _ in range(EVENTS):
            _reconcile(store, key, snapshot, clock, None)

    def on() -> None:
        for _ in range(EVENTS):
            _reconcile(store, key, snapshot, clock, telemetry)

    without, with_metrics = _fastest(off) / EVENTS, _fastest(on) / EVENTS
    return [
        Row("event, metrics off", without, 1.0, 0, 0),
        Row("event, metrics on", with_metrics, with_metrics / without, 0, 0),
    ]


def _reconcile(
    store: CountingStore, key: GroupKey, snapshot: Snapshot, clock: SetClock, telemetry: Telemetry | None
) -> None:
    """What one reconcile computes and reports."""
    workload, now = snapshot.workload, clock.now()
    assert workload is not None
    policy = applicable(store.policies(NAMESPACE), workload)
    found = protection(workload, snapshot, None, policy, now)
    plan = decide(snapshot, Ledger(), policy, now)
    if telemetry is not None:
        telemetry.queue_waited(0.005)
        telemetry.facts_read(key, snapshot, policy)
        telemetry.protection_found(key, found)
        telemetry.decided(key, Ledger(), plan)
        telemetry.reconcile_finished(key, 0.001, None)
        telemetry.watch_event("pods")


def measure() -> list[Row]:
    """All rows: some 10 s, without Go."""
    configure_logs("error")  # as by default, decisions are not logged
    return [*_scrapes(), *_events()]


def table(rows: list[Row]) -> str:
    """A Markdown table for the README."""
    lines = ["| case | ms of CPU | ratio | series | MB |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.case} | {row.milliseconds:.2f} | {row.of_first:.2f} | {row.series} | {row.size_bytes / 1e6:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)
