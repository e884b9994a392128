"""Runs scenarios with one controller, and prints the figures as JSON. Its process is the fake API server."""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from tests.bench.scale.cluster import Cluster
from tests.bench.scale.controller import Controller
from tests.bench.scale.fleet import Fleet
from tests.bench.scale.requests import Requests
from tests.bench.scale.scenarios import SCENARIOS, Run, Sizes
from tests.bench.scale.server import Server


def parsed_fleet(text: str) -> list[tuple[int, int]]:
    """`40x100,100x10`: 40 groups of 100 pods and 100 groups of 10."""
    groups = [each.partition("x") for each in text.split(",")]
    return [(int(count), int(pods)) for count, _, pods in groups]


async def _run(source: Path, fleet: Fleet, sizes: Sizes, scenarios: Sequence[str]) -> Run:
    cluster = Cluster(fleet)
    server = Server(fleet, Requests(cluster))
    listening = await server.start()
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        async with listening, Controller.running(server.port, source, Path(folder)) as controller:
            run = Run(controller, server, cluster, sizes)
            await controller.quiet()
            for name in scenarios:
                print(f"{datetime.now():%H:%M:%S}  {name}", file=sys.stderr, flush=True)
                await SCENARIOS[name](run)
            for line in controller.warnings()[:5]:
                print(f"the controller warns: {line[:300]}", file=sys.stderr, flush=True)
            return run


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale.arm")
    parser.add_argument("source", type=Path)
    parser.add_argument("fleet", type=parsed_fleet)
    parser.add_argument("sizes", type=json.loads)
    parser.add_argument("scenarios", nargs="+")
    asked = parser.parse_args()
    fleet = Fleet(asked.fleet)
    gc.collect()
    gc.freeze()  # or the fake server's own collections delay its answers
    run = asyncio.run(_run(asked.source, fleet, Sizes(**asked.sizes), asked.scenarios))
    print(json.dumps([asdict(figure) for figure in run.figures]))


if __name__ == "__main__":
    _main()
