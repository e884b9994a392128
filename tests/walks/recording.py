"""Walks with recorded real histories, so that a planted bug is found without a control plane.

    python -m tests.walks.recording resumed seed-7

walks these again, twice each, and writes `recorded/*.json`. This is needed after a change of a plan or of the content
of a history.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.walks.draw import TRAINER, draw
from tests.walks.history import History
from tests.walks.plan import Act, ActKind, Container, ContainerKind, JobPlan, Step, Walk, WorkloadPlan
from tests.walks.worlds import real_histories

FOLDER = Path(__file__).with_name("recorded")
RESUMED = Walk(
    seed=-1,
    workload=WorkloadPlan(
        kind="TrainJob",
        jobs=(JobPlan(TRAINER, (Container(TRAINER, ContainerKind.TRAINER),), pods=64, backoff_limit=6),),
        suspended=True,
    ),
    steps=(Step((Act(ActKind.RESUME),)),),
    stock_limits=True,
)
"""A job as Kueue starts it. Creating its pods takes two seconds or more, and `Suspended=False` is dated after them."""


@dataclass(frozen=True)
class Recorded:
    """A plan and its two histories on the real control plane."""

    walk: Walk
    real: tuple[History, History]


def load(name: str) -> Recorded:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Recorded)


def plan_of(name: str) -> Walk:
    return RESUMED if name == "resumed" else draw(int(name.removeprefix("seed-")))


async def record(names: list[str]) -> None:
    for name in names:
        plan = plan_of(name)
        recorded = Recorded(plan, await real_histories(plan))
        text = msgspec.json.format(msgspec.json.encode(recorded), indent=1)
        (FOLDER / f"{name}.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:]))
