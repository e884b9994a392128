"""A job that may be drilled, for tests that change one thing about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from recovery.chaos.job_state import JobMember, JobState
from recovery.core.model.drill import DrilledWorkload, DrillFacts, DrillSpec
from recovery.core.model.facts import GroupKey
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.standing import Standing

NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
WORKLOAD = DrilledWorkload("TrainJob", "llm", "uid-llm")


def member(index: int, node: str = "") -> JobMember:
    return JobMember(f"llm-node-0-{index}", f"uid-{index}", node or f"gpu-{index}", index, 8, "node")


READY = JobState(
    key=GroupKey("research", "llm"),
    at=NOW,
    workload=WORKLOAD,
    absence="",
    drills_allowed=True,
    members=tuple(map(member, range(4))),
    standing=Standing.MET,
    protection=Protection(ProtectionReason.PROTECTED, "TrainJob", "llm"),
    protection_words="",
    budget_left=3,
    leads=True,
    leader_words="",
)


def changed(**changes: Any) -> JobState:
    return msgspec.structs.replace(READY, **changes)


def running_drill(**changes: Any) -> DrillFacts:
    spec = DrillSpec(WORKLOAD, "lose-a-rank", NOW + timedelta(hours=1))
    return DrillFacts("research", "lose-a-rank-x7k2p", "uid-drill", "1", NOW, msgspec.structs.replace(spec, **changes))
