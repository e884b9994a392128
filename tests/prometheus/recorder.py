"""Plays a story in the simulated cluster, and scrapes all of its controllers as Prometheus does.

The controllers are the production program. A scrape finds what their registries show at that moment.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.ports import RECOVERY_CONFIGS, ApiError, ApiRequest
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.actors import USER
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.controller_replica import Replica
from recovery.sim.trials.fault_injection import FaultInjector
from recovery.sim.trials.manifests import config_of, objects_of
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.request_faults import RequestFaults
from recovery.sim.trials.transport import TrialTransport
from recovery.sim.trials.trial_evidence import TrialEvidence
from recovery.sim.trials.trial_log import TrialLog
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time
from recovery.telemetry.event_loop_lag import measure_lag
from tests.prometheus.modelled_agents import ModelledAgents

SCRAPE_SECONDS = 15


@dataclass(frozen=True)
class Sample:
    """One sample of one scrape. `labels` are those that the controller sets, without those that a scrape adds."""

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
        """When the training of the job made no steps after its first start, up to the end of the recording."""
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


def _nothing(*_: object) -> None:
    """Does nothing: the default hook."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens in a recording."""

    plan: TrialPlan
    run_seconds: float
    nodes: int
    agents: Sequence[JobPlan] = ()
    """The jobs whose ranks have agents."""
    wire: Callable[[ControllerProcess], None] = _nothing
    """Called with each controller process when it starts."""
    begins: Callable[[EmbeddedCluster], None] = _nothing
    """Called before the first node exists."""
    after_scrape: Callable[[EmbeddedCluster, Recording, datetime], None] = _nothing
    """Called after each scrape, with its time."""


def play(story: Story) -> Recording:
    """Run the story. It takes some seconds."""
    return run_in_virtual_time(_play(story))


async def _play(story: Story) -> Recording:
    clock, plan = VirtualClock(), story.plan
    cluster = _cluster(clock, story)
    began_at = clock.now()
    ends_at = began_at + timedelta(seconds=story.run_seconds)
    evidence = TrialEvidence(
        plan=plan,
        server=cluster.server,
        trace=cluster.trace,
        jobs={},
        began_at=began_at,
        healing_from=began_at + timedelta(seconds=plan.active_seconds),
        ends_at=ends_at,
    )
    log = TrialLog(evidence, CheckerSet(evidence), clock)
    faults = RequestFaults(plan.seed, (), plan.rates, lambda: 0.0)

    lags: list[asyncio.Task[None]] = []

    def connect(replica: Replica, process: ControllerProcess) -> TrialTransport:
        story.wire(process)
        lags.append(asyncio.create_task(measure_lag(process.clock, process.telemetry.event_loop_lagged)))
        return _ReportingTransport(process, replica, cluster.server, clock, faults, log, plan.seed)

    recording = Recording(evidence, ends_at)
    replicas = [Replica(f"controller-{number}", clock, evidence, connect) for number in range(plan.replicas)]
    agents = [ModelledAgents(cluster.trace, job) for job in story.agents]
    story.begins(cluster)
    async with cluster.running():
        await cluster.kubelets.nodes_ready()
        with cluster.server.acting(USER):
            cluster.server.create(RECOVERY_CONFIGS, config_of(plan))
            for job in plan.jobs:
                for resource, body in objects_of(job):
                    cluster.server.create(resource, body, namespace=body["metadata"].get("namespace"))
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        FaultInjector(plan, cluster, replicas, clock, log).begin()
        while clock.now() < ends_at:
            await clock.sleep(SCRAPE_SECONDS)
            _scrape(recording, replicas, clock.now())
            for each in agents:
                _report(each, replicas, clock.now())
            story.after_scrape(cluster, recording, clock.now())
        for replica in replicas:
            replica.stop()
        await asyncio.wait(running)
        for lag in lags:
            lag.cancel()
    return recording


class _ReportingTransport(TrialTransport):
    """Reports each exchange, as the session of the real client does. Trials have no use for that."""

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


def _scrape(recording: Recording, replicas: Sequence[Replica], at: datetime) -> None:
    for replica in replicas:
        if replica.process is None:
            continue
        for family in replica.process.telemetry.registry.collect():
            for sample in family.samples:
                recording.samples.append(Sample(at, replica.name, sample.name, dict(sample.labels), sample.value))


def _report(agents: ModelledAgents, replicas: Sequence[Replica], at: datetime) -> None:
    """The endpoint of the leader would hear it. A standby's telemetry takes no report."""
    facts = agents.report(at)
    for replica in replicas:
        if replica.process is not None and facts is not None:
            replica.process.telemetry.agents_reported(agents.key, facts)


def _cluster(clock: VirtualClock, story: Story) -> EmbeddedCluster:
    jobs = story.plan.jobs
    return EmbeddedCluster(
        clock=clock,
        entropy=random.Random(f"recording {story.plan.seed}"),
        nodes=[NodeSpec(name=f"node-{number}", gpus=story.plan.node_gpus) for number in range(story.nodes)],
        training=TrainingSettings(
            total_steps_of={str(job): job.total_steps for job in jobs if job.total_steps is not None},
            reports_every_seconds_of={
                str(job): job.reports_every_seconds for job in jobs if job.reports_every_seconds is not None
            },
        ),
        settings=ClusterSettings(kubelets=KubeletSettings(writes_leases=False, node_status_seconds=3600.0)),
    )
