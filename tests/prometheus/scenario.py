"""Two hours of a modelled fleet, scraped as Prometheus scrapes it, with the trace of what really happened.

The controllers are the production program. What is laid into Prometheus later is what their registries told.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.ports import RECOVERY_CONFIGS, ApiError, ApiRequest
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.actors import USER
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.controller_replica import Replica
from recovery.sim.trials.failure_signs import Sign
from recovery.sim.trials.fault_injection import FaultInjector
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import config_of, objects_of
from recovery.sim.trials.plan import JobPlan, PlannedRuntime, TrialPlan
from recovery.sim.trials.request_faults import RequestFaults
from recovery.sim.trials.transport import TrialTransport
from recovery.sim.trials.trial_evidence import TrialEvidence
from recovery.sim.trials.trial_log import TrialLog
from recovery.sim.virtual_time import BEGIN, VirtualClock, run_in_virtual_time
from recovery.telemetry.event_loop_lag import measure_lag

SCRAPE_SECONDS = 15
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
    JobPlan("team-a", "llm", PlannedRuntime.PREPARED, pods=8, grace_seconds=5, policy=_ENFORCED),
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
"""At the end llm waits for its last member, vision is held because its budget is spent, speech is only watched, no
policy selects search, and late has never run whole: one of its pods does not start."""
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
        # Whoever leads dies in the middle of that incident; another one goes on.
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
"""What the webhooks of each process answer so long after its start."""
REVIEW_SECONDS = 100.0
CERTIFICATE_DAYS = 30
MISSING_PERMISSION = ("patch", "nodes")
LATE_MEMBER = "llm-node-0-6"
LATE_FROM_SECONDS = 6590
LATE_SECONDS = 3600.0


@dataclass(frozen=True)
class Sample:
    """One sample of one scrape. `labels` are those that the controller tells, without those of the scrape."""

    at: datetime
    replica: str
    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Recording:
    """What the scrapes found, and what really happened."""

    evidence: TrialEvidence
    ends_at: datetime
    samples: list[Sample] = field(default_factory=list)

    def idle_spans(self, job: str) -> list[tuple[datetime, datetime]]:
        """When the training of the job made no steps after it had once begun, up to the end of the recording."""
        spans: list[tuple[datetime, datetime]] = []
        lost: datetime | None = None
        for record in self.evidence.trace.of(job, EventKind.RANK_LOST, EventKind.ROUND_FORMED):
            if record.at > self.ends_at:
                break
            if record.kind is EventKind.RANK_LOST:
                lost = lost or record.at
            elif lost is not None:
                spans.append((lost, record.at))
                lost = None
        return [*spans, (lost, self.ends_at)] if lost is not None else spans


def record() -> Recording:
    """Run it. Some seconds."""
    return run_in_virtual_time(_record())


async def _record() -> Recording:
    clock = VirtualClock()
    cluster = _cluster(clock)
    began_at = clock.now()
    ends_at = began_at + timedelta(seconds=RUN_SECONDS)
    evidence = TrialEvidence(
        plan=PLAN,
        server=cluster.server,
        trace=cluster.trace,
        jobs={},
        began_at=began_at,
        healing_from=began_at + timedelta(seconds=PLAN.active_seconds),
        ends_at=ends_at,
    )
    log = TrialLog(evidence, CheckerSet(evidence), clock)
    faults = RequestFaults(PLAN.seed, (), PLAN.rates, lambda: 0.0)

    lags: list[asyncio.Task[None]] = []

    def connect(replica: Replica, process: ControllerProcess) -> TrialTransport:
        _wire(process)
        lags.append(asyncio.create_task(measure_lag(process.clock, process.telemetry.event_loop_lagged)))
        return _ReportingTransport(process, replica, cluster.server, clock, faults, log, PLAN.seed)

    recording = Recording(evidence, ends_at)
    replicas = [Replica(f"controller-{number}", clock, evidence, connect) for number in range(PLAN.replicas)]
    cluster.kubelets.delay_start(NEVER_STARTS, 2.0 * RUN_SECONDS, namespace="team-b")
    async with cluster.running():
        await cluster.kubelets.nodes_ready()
        with cluster.server.acting(USER):
            cluster.server.create(RECOVERY_CONFIGS, config_of(PLAN))
            for job in PLAN.jobs:
                for resource, body in objects_of(job):
                    cluster.server.create(resource, body, namespace=body["metadata"].get("namespace"))
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        FaultInjector(PLAN, cluster, replicas, clock, log).begin()
        while clock.now() < ends_at:
            await clock.sleep(SCRAPE_SECONDS)
            _scrape(recording, replicas, clock.now())
            if (clock.now() - began_at).total_seconds() >= LATE_FROM_SECONDS:
                cluster.kubelets.delay_start(LATE_MEMBER, LATE_SECONDS, namespace="team-a")
        for replica in replicas:
            replica.stop()
        await asyncio.wait(running)
        for lag in lags:
            lag.cancel()
    return recording


class _ReportingTransport(TrialTransport):
    """Reports each exchange, as the session of the real client does, which trials have no use for."""

    async def send(self, request: ApiRequest) -> bytes:
        began = self._clock.monotonic_seconds()
        code = "200"
        try:
            return await super().send(request)
        except ApiError as error:
            code = str(error.status)
            raise
        finally:
            seconds = self._clock.monotonic_seconds() - began
            self._process.telemetry.request_finished(request.verb, request.target, code, seconds)


def _wire(process: ControllerProcess) -> None:
    """What the command `recovery run` adds to the program that trials run."""
    process.telemetry.follow_process()
    admission = process.telemetry.admission([WEBHOOK])
    expires_at = BEGIN + timedelta(days=CERTIFICATE_DAYS)
    admission.follow(lambda: True, lambda: expires_at)
    process.telemetry.permissions_missing([MISSING_PERMISSION])
    for outcome in REVIEWS:
        asyncio.get_running_loop().call_later(REVIEW_SECONDS, admission.reviewed, WEBHOOK, outcome)


def _scrape(recording: Recording, replicas: Sequence[Replica], at: datetime) -> None:
    for replica in replicas:
        if replica.process is None:
            continue
        for family in replica.process.telemetry.registry.collect():
            for sample in family.samples:
                recording.samples.append(Sample(at, replica.name, sample.name, dict(sample.labels), sample.value))


def _cluster(clock: VirtualClock) -> EmbeddedCluster:
    return EmbeddedCluster(
        clock=clock,
        entropy=random.Random("dashboards"),
        nodes=[NodeSpec(name=f"node-{number}", gpus=GPUS_PER_POD) for number in range(NODES)],
        settings=ClusterSettings(
            kubelets=KubeletSettings(writes_leases=False, node_status_seconds=3600.0),
        ),
    )
