"""Two hours of a modelled fleet: the data for testing and drawing the dashboards."""

import asyncio
from datetime import datetime, timedelta

from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.cluster import EmbeddedCluster
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.virtual_time import BEGIN
from tests.prometheus.recorder import Recording, Story, play

RUN_SECONDS = 7200
GPUS_PER_POD = 8
NODES = 28
"""Two more than all pods need."""

_ENFORCED = {
    "mode": "Enforce",
    "budget": {"limit": 6, "window": "24h"},
    "backoff": {"initial": "20s", "max": "60s", "resetAfter": "10m"},
    "teardown": {"graceSeconds": 10},
}
JOBS = (
    JobPlan(
        "team-a",
        "llm",
        PlannedRuntime.PREPARED,
        pods=8,
        grace_seconds=5,
        policy=_ENFORCED,
        total_steps=120_000,
        reports_every_seconds=20.0,
    ),
    JobPlan(
        "team-a",
        "vision",
        PlannedRuntime.JOINED,
        pods=4,
        grace_seconds=5,
        policy={**_ENFORCED, "budget": {"limit": 2, "window": "24h"}},
    ),
    JobPlan("team-b", "speech", PlannedRuntime.PREPARED, pods=4, grace_seconds=5, policy={"mode": "Observe"}),
    JobPlan("team-b", "search", PlannedRuntime.PREPARED, pods=4, grace_seconds=5, policy=None),
    JobPlan("team-b", "late", PlannedRuntime.PREPARED, pods=2, grace_seconds=5, policy=_ENFORCED),
)
"""At the end llm waits for its last member, and vision is held because its budget is used up. speech is only watched,
and no policy selects search. late has never run whole, because one of its pods does not start. Only llm reports
progress."""
HAVE_AGENTS = tuple(job for job in JOBS if job.name in {"llm", "speech"})
NEVER_STARTS = "late-node-0-1"


def _fault(number: int, kind: FaultKind, at_seconds: float, job: str, *indexes: int, **more: object) -> TrialFault:
    key = FaultKey("world", number, kind)
    return TrialFault(key, at_seconds=at_seconds, job=job, indexes=indexes, **more)  # type: ignore[arg-type]


PLAN = TrialPlan(
    seed=15,
    jobs=JOBS,
    faults=(
        _fault(0, FaultKind.POD_KILL, 600, "team-a/llm", 3),
        _fault(1, FaultKind.POD_KILL, 900, "team-a/vision", 1),
        _fault(2, FaultKind.NODE_POWER_LOSS, 1500, "team-a/llm", 2, seconds=900.0),
        _fault(4, FaultKind.CONTAINER_KILL, 3000, "team-a/llm", 5, sign=Sign.HOST_OOM),
        # The leader dies in the middle of that incident, and another replica takes over.
        _fault(5, FaultKind.PROCESS_KILL, 3004, "team-a/llm", 0, 1, seconds=60.0),
        _fault(6, FaultKind.USER_RESTART, 4200, "team-a/llm"),
        _fault(7, FaultKind.CRASH_LOOP, 5000, "team-a/vision", seconds=7200.0, code=1, sign=Sign.TRACEBACK),
        _fault(8, FaultKind.CONTAINER_KILL, 4600, "team-a/llm", 4, sign=Sign.XID),
        _fault(9, FaultKind.USER_QUARANTINE, 4700, "team-b/search", 1),
        _fault(10, FaultKind.POD_KILL, 6600, "team-a/llm", 6),
    ),
    active_seconds=RUN_SECONDS + 600.0,
    replicas=2,
    config={"allow": {"failJob": True, "cordon": True}, "quarantine": {"maxPercent": 10}},
)
WEBHOOK = "/policies"
REVIEWS = ("allowed", "allowed", "warned", "refused")
"""What the webhooks of each process answer, `REVIEW_SECONDS` after its start."""
REVIEW_SECONDS = 100.0
CERTIFICATE_DAYS = 30
MISSING_PERMISSION = ("patch", "nodes")
LATE_MEMBER = "llm-node-0-6"
LATE_FROM_SECONDS = 6590
LATE_SECONDS = 3600.0


def record() -> Recording:
    """Record the fleet. It takes some seconds."""
    return play(
        Story(
            plan=PLAN,
            run_seconds=RUN_SECONDS,
            nodes=NODES,
            agents=HAVE_AGENTS,
            wire=_wire,
            begins=_begins,
            after_scrape=_delays,
        )
    )


def _begins(cluster: EmbeddedCluster) -> None:
    cluster.kubelets.delay_start(NEVER_STARTS, 2.0 * RUN_SECONDS, namespace="team-b")


def _delays(cluster: EmbeddedCluster, recording: Recording, at: datetime) -> None:
    if (at - recording.evidence.began_at).total_seconds() >= LATE_FROM_SECONDS:
        cluster.kubelets.delay_start(LATE_MEMBER, LATE_SECONDS, namespace="team-a")


def _wire(process: ControllerProcess) -> None:
    """Add what the command `recovery run` adds to the program that trials run."""
    process.telemetry.follow_process()
    admission = process.telemetry.admission([WEBHOOK])
    expires_at = BEGIN + timedelta(days=CERTIFICATE_DAYS)
    admission.follow(lambda: True, lambda: expires_at)
    process.telemetry.permissions_missing([MISSING_PERMISSION])
    for outcome in REVIEWS:
        asyncio.get_running_loop().call_later(REVIEW_SECONDS, admission.reviewed, WEBHOOK, outcome)
