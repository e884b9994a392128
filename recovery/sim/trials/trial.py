"""One trial: a cluster, its jobs, the controller's replicas, the faults of the plan, and a verdict."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import structlog

from recovery.core.model.facts import GroupKey
from recovery.ports import RECOVERY_CONFIGS
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.rounds import Saving, TrainingSettings
from recovery.sim.trials.actors import USER
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.controller_replica import Replica
from recovery.sim.trials.coverage import coverage_of
from recovery.sim.trials.fault_injection import FaultInjector
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.kueue import FLAVOR, FLAVOR_LABEL
from recovery.sim.trials.manifests import NO_IMAGE, config_of, objects_of
from recovery.sim.trials.node_faults import RACK_LABEL
from recovery.sim.trials.plan import FaultRates, TrialPlan, nodes_needed, rack_of
from recovery.sim.trials.request_faults import RequestFaults
from recovery.sim.trials.transport import TrialTransport
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation
from recovery.sim.trials.trial_log import TrialLog
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time

NCCL_TIMEOUT_SECONDS = 600.0
NODE_STATUS_SECONDS = 3600.0
"""Real kubelets write the status of their nodes every 300 s even if nothing has changed. That would cost a fifth of a
trial's time."""
STOP_SECONDS = 60.0
"""How long the controller may take to stop at the end."""

Visitor = Callable[[EmbeddedCluster, VirtualClock, Callable[[str], None]], Awaitable[None]]
"""A client that works in the cluster beside the controllers. Each sentence that it says is a line of the timeline."""


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a trial."""

    plan: TrialPlan
    """The plan with all faults that took place, and without rates. It replays the trial."""
    evidence: TrialEvidence
    violations: tuple[Violation, ...]
    trace_hash: str
    """Equal for equal trials, no matter in which process they ran."""
    requests: int
    """Made by controller processes."""
    simulated_seconds: float
    cpu_seconds: float
    coverage: Mapping[str, int]


def run_trial(plan: TrialPlan, visitor: Visitor | None = None) -> TrialOutcome:
    """Runs a trial to its end, in virtual time. An exception is a bug of the simulation itself.

    With a visitor the healing begins when that has returned. At the end of the plan's active time it is cancelled.
    """
    began_seconds = time.process_time()
    with _nothing_logged(), _no_collection():
        evidence, checker_set, log, ran_seconds = run_in_virtual_time(_run(plan, visitor))
    return TrialOutcome(
        plan=msgspec.structs.replace(plan, faults=_as_given(plan, log), rates=FaultRates()),
        evidence=evidence,
        violations=tuple(checker_set.violations),
        trace_hash=log.fingerprint,
        requests=len(evidence.requests),
        simulated_seconds=ran_seconds,
        cpu_seconds=time.process_time() - began_seconds,
        coverage=coverage_of(evidence),
    )


def _as_given(plan: TrialPlan, log: TrialLog) -> tuple[TrialFault, ...]:
    """The faults of the plan that took place, in the plan's order, then the drawn ones, in the order in which they
    happened."""
    happened = {fault.key: fault for fault in log.faults}
    given = tuple(fault for fault in plan.faults if fault.key in happened)
    known = {fault.key for fault in given}
    return (*given, *(fault for key, fault in happened.items() if key not in known))


async def _run(plan: TrialPlan, visitor: Visitor | None) -> tuple[TrialEvidence, CheckerSet, TrialLog, float]:
    """The evidence, the checkers, the log, and how many seconds the trial ran."""
    clock = VirtualClock()
    cluster = _cluster(plan, clock)
    cluster.kubelets.withhold_image(NO_IMAGE)
    began_at = clock.now()
    evidence = TrialEvidence(
        plan=plan,
        server=cluster.server,
        trace=cluster.trace,
        rounds=cluster.world.rounds,
        jobs={GroupKey(job.namespace, job.name): job for job in plan.jobs},
        began_at=began_at,
        healing_from=began_at + timedelta(seconds=plan.active_seconds),
        ends_at=began_at + timedelta(seconds=plan.active_seconds + plan.healing_seconds),
    )
    checker_set = CheckerSet(evidence)
    log = TrialLog(evidence, checker_set, clock)

    def seconds_left() -> float:
        return (evidence.healing_from - clock.now()).total_seconds()

    faults = RequestFaults(plan.seed, plan.faults, plan.rates, seconds_left)

    def connect(replica: Replica, process: ControllerProcess) -> TrialTransport:
        return TrialTransport(process, replica, cluster.server, clock, faults, log, plan.seed)

    replicas = [
        Replica(
            f"controller-{number}",
            clock,
            evidence,
            connect,
            lease_namespace=f"recovery-system-{number % plan.installations}",
        )
        for number in range(plan.replicas)
    ]
    async with cluster.running():
        with cluster.server.acting(USER):
            cluster.server.create(RECOVERY_CONFIGS, config_of(plan))
            for job in plan.jobs:
                for resource, body in objects_of(job):
                    cluster.server.create(resource, body, namespace=body["metadata"].get("namespace"))
        running = [asyncio.create_task(replica.run()) for replica in replicas]
        FaultInjector(plan, cluster, replicas, clock, log).begin()
        if visitor is not None:
            await _visited(visitor, cluster, clock, evidence)
        await clock.sleep((evidence.ends_at - clock.now()).total_seconds())
        for replica in replicas:
            if replica.process is not None:
                evidence.metrics[replica.name] = replica.process.telemetry.samples()
        for replica in replicas:
            replica.stop()
        _, late = await asyncio.wait(running, timeout=STOP_SECONDS)
        for task, replica in zip(running, replicas, strict=True):
            if task in late:
                replica.abandon(f"not stopped {STOP_SECONDS:g} s after SIGTERM")
                task.cancel()
            else:
                task.result()
        checker_set.ended()
    return evidence, checker_set, log, clock.monotonic_seconds()


async def _visited(visitor: Visitor, cluster: EmbeddedCluster, clock: VirtualClock, evidence: TrialEvidence) -> None:
    """Returns with the visitor, and begins the healing then."""

    def say(sentence: str) -> None:
        evidence.remarks.append((clock.now(), sentence))

    task = asyncio.ensure_future(visitor(cluster, clock, say))
    await asyncio.wait({task}, timeout=evidence.plan.active_seconds)
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    evidence.healing_from = clock.now()
    evidence.ends_at = evidence.healing_from + timedelta(seconds=evidence.plan.healing_seconds)


def _cluster(plan: TrialPlan, clock: VirtualClock) -> EmbeddedCluster:
    nodes = nodes_needed(plan.jobs, plan.node_gpus) + plan.spare_nodes
    kubelets = KubeletSettings(writes_leases=False, node_status_seconds=NODE_STATUS_SECONDS)
    return EmbeddedCluster(
        clock=clock,
        entropy=random.Random(f"cluster {plan.seed}"),
        nodes=[
            NodeSpec(
                name=f"node-{number}", gpus=plan.node_gpus, labels={RACK_LABEL: rack_of(number), FLAVOR_LABEL: FLAVOR}
            )
            for number in range(nodes)
        ],
        training=TrainingSettings(
            nccl_timeout_seconds=NCCL_TIMEOUT_SECONDS,
            total_steps_of={str(job): job.total_steps for job in plan.jobs if job.total_steps is not None},
            reports_every_seconds_of={
                str(job): job.reports_every_seconds for job in plan.jobs if job.reports_every_seconds is not None
            },
            kinds_of={str(job): job.training for job in plan.jobs},
            savings_of={
                str(job): Saving(job.saves.seconds, job.saves.code) for job in plan.jobs if job.saves is not None
            },
        ),
        settings=ClusterSettings(
            manager_requests_per_second=plan.manager_requests_per_second,
            manager_burst=plan.manager_burst,
            kubelets=kubelets,
            birth_settings=plan.birth_settings,
        ),
    )


@contextmanager
def _nothing_logged() -> Iterator[None]:
    """Turns off the controller's logs, which would bury the report. Its errors are recorded as failed reconciles."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turns off garbage collection. Most objects of a trial live until its end, so collection would waste a fifth of
    its time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
