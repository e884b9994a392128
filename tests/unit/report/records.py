"""Records of incidents for the tests of reports."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recovery.core.model.facts import GroupKey
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    Closing,
    Incident,
    Outcome,
    Phase,
    PhaseSpan,
    Suspect,
    Target,
)
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.kube.incident_records import decode_record
from recovery.report.reports import RecordsFound

FOLDER = Path(__file__).parent
RECORDED = tuple(sorted((FOLDER / "recorded").glob("*.json")))
"""Records of five kinds of incidents, as the controller creates them."""
NOW = datetime(2026, 11, 22, 21, tzinfo=UTC)
BEGAN = NOW - timedelta(hours=1)
GPUS = 64
LLM = GroupKey("team-a", "llm")


def killed_rank() -> IncidentRecord:
    """The record of a rank that was killed on a real control plane (`tests/cluster/test_reports.py`)."""
    return decode_record((FOLDER / "killed_rank.json").read_bytes()).value


def recorded() -> list[IncidentRecord]:
    found = []
    for path in RECORDED:
        body = json.loads(path.read_text())
        body["metadata"] |= {"uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-11-21T12:00:00Z"}
        found.append(decode_record(json.dumps(body).encode()).value)
    return found


def phase(name: Phase, begin: float, end: float | None, *, released: bool = False) -> PhaseSpan:
    """`begin`, `end`: seconds since the failure. None: the phase has not ended."""
    booked = 0.0 if end is None else (end - begin) * GPUS
    return PhaseSpan(
        phase=name,
        started_at=BEGAN + timedelta(seconds=begin),
        ended_at=None if end is None else BEGAN + timedelta(seconds=end),
        idle_gpu_seconds=0.0 if released else booked,
        released=released,
        released_gpu_seconds=booked if released else 0.0,
    )


def attempt(action: AttemptAction = AttemptAction.RECREATE_GROUP, **changes: Any) -> Attempt:
    fields: dict[str, Any] = {"number": 1, "epoch": 1, "started_at": BEGAN, "reason": Reason.DEFAULT_RESTART}
    return Attempt(action=action, **(fields | changes))


PHASES = (
    phase(Phase.DETECTED, 0, 1),
    phase(Phase.TEARING_DOWN, 1, 5),
    phase(Phase.SCHEDULING, 5, 6),
    phase(Phase.STARTING, 6, 10),
    phase(Phase.RENDEZVOUS, 10, 20),
)


def record(
    job: GroupKey = LLM,
    *,
    outcome: Outcome | None = Outcome.RECOVERED,
    seconds: float = 20.0,
    uid: str = "uid-1",
    **changes: Any,
) -> IncidentRecord:
    """An incident of 20 s with one restart. `outcome` None: the incident is open."""
    fields: dict[str, Any] = {
        "id": "1f458b22-1",
        "number": 1,
        "started_at": BEGAN,
        "detected_at": BEGAN + timedelta(seconds=1),
        "disruption_class": "Killed",
        "cause": "Exit137",
        "mode": "Enforce",
        "pinned": PinnedPolicy(
            policy_name="default",
            policy_uid="policy-1",
            policy_generation=3,
            restart="RecreateGroupOnPodRestart",
            budget_limit=10,
            budget_window_seconds=86400.0,
            start_timeout_seconds=900.0,
        ),
        "step": Step(StepType.RETURNING),
        "target": Target(job_set_uid="jobset-1", job_uids=("job-1",)),
        "gpus": GPUS,
        "ranks": 8,
        "suspects": (Suspect(pod="llm-5", node="gpu-5", index=5, exit_code=137),),
        "evidence": ("pod llm-5 failed with exit code 137",),
        "attempts": (attempt(),),
        "restarts": 1,
        "phases": PHASES,
        **changes,
    }
    began: datetime = fields["started_at"]
    closing = None
    if outcome is not None:
        ended_at = began + timedelta(seconds=seconds)
        closing = Closing(outcome=outcome, outcome_reason=Reason.ALL_RANKS_READY, ended_at=ended_at, source="ready")
    return IncidentRecord(job, "TrainJob", uid, Incident(**fields, closing=closing))


def found(*records: IncidentRecord, **changes: Any) -> RecordsFound:
    return RecordsFound(records, **changes)
