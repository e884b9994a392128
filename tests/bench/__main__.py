"""`make bench`: benchmarks. Each compares several arms side by side in one run.

Runs all parts, or those that are named: `make bench ARGS=simulation`. Each prints a table and writes its numbers to
build/.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench import attacks, capacity, decisions, idle_jobs, nodes, recoveries, scrapes, simulation
from tests.bench.gpu_hours import arms as gpu_hours
from tests.bench.in_place import measure as in_place
from tests.bench.rendezvous import measure as rendezvous
from tests.bench.reports import measure as reports
from tests.bench.scale import measure as scale


def _simulation() -> None:
    rows = simulation.measure()
    print(simulation.table(rows), flush=True)
    _keep("simulation", [asdict(row) for row in rows])


def _decisions() -> None:
    rows = decisions.measure()
    print(decisions.table(rows), flush=True)
    _keep("decisions", [asdict(row) for row in rows])


def _recoveries() -> None:
    rows = asyncio.run(recoveries.measure())
    print(recoveries.table(rows), flush=True)
    _keep("recoveries", [asdict(row) for row in rows])


def _nodes() -> None:
    rows = asyncio.run(nodes.measure())
    print(nodes.table(rows), flush=True)
    _keep("nodes", [asdict(row) for row in rows])


def _idle_jobs() -> None:
    rows = asyncio.run(idle_jobs.measure())
    print(idle_jobs.table(rows), flush=True)
    _keep("idle-jobs", [asdict(row) for row in rows])


def _scrapes() -> None:
    rows = scrapes.measure()
    print(scrapes.table(rows), flush=True)
    _keep("scrapes", [asdict(row) for row in rows])


def _attacks() -> None:
    rows = asyncio.run(attacks.measure())
    print(attacks.table(rows), flush=True)
    _keep("attacks", [asdict(row) for row in rows])


def _capacity() -> None:
    rows = capacity.measure()
    print(capacity.table(rows), flush=True)
    _keep("capacity", [asdict(row) for row in rows])


def _gpu_hours() -> None:
    results = gpu_hours.measure()
    print(gpu_hours.table(results), flush=True)
    rows = [asdict(row) for row in (*results.main, *results.varied)]
    _keep("gpu-hours", [*rows, *(asdict(each) for each in results.compared)])


def _scale() -> None:
    rows = scale.measure(scale.Options())
    print(scale.table(rows), flush=True)
    _keep("scale", [asdict(row) for row in rows])


def _rendezvous() -> None:
    rows = asyncio.run(rendezvous.measure())
    print(rendezvous.table(rows), flush=True)
    _keep("rendezvous", [asdict(row) for row in rows])


def _reports() -> None:
    rows = asyncio.run(reports.measure())
    print(reports.table(rows), flush=True)
    _keep("reports", [asdict(row) for row in rows])


def _in_place() -> None:
    rows = asyncio.run(in_place.measure())
    print(in_place.table(rows), flush=True)
    _keep("in-place", [asdict(row) for row in rows])


def _keep(part: str, rows: list[dict[str, object]]) -> None:
    target = Path(f"build/bench-{part}.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=1) + "\n")


PARTS = {
    "simulation": _simulation,
    "decisions": _decisions,
    "recoveries": _recoveries,
    "nodes": _nodes,
    "in-place": _in_place,
    "idle-jobs": _idle_jobs,
    "scrapes": _scrapes,
    "attacks": _attacks,
    "capacity": _capacity,
    "gpu-hours": _gpu_hours,
    "scale": _scale,
    "rendezvous": _rendezvous,
    "reports": _reports,
}


def _main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Without a part: all of them.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" or ".join(PARTS))
    asked = parser.parse_args(arguments).parts
    for part in asked:
        if part not in PARTS:
            parser.error(f"there is no part {part}; say {' or '.join(PARTS)}")
    for part, run in PARTS.items():
        if not asked or part in asked:
            run()


if __name__ == "__main__":
    _main()
