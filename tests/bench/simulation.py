"""How many hours the simulation covers in a second of CPU time, in one process.

The same two hours four times, each with one thing more than before: the embedded cluster alone, in which a job trains;
with the production controller; with its Lease renewed less often; with members lost. From the second on, each run is a
trial, checkers and fingerprint included. CPU seconds depend on the machine. What counts are the ratios to the first row
of the same size, and the counts, which are the same everywhere.
"""

import gc
import random
import sys
import time
from dataclasses import dataclass

from recovery.ports import RECOVERY_CONFIGS
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.trace import EventKind, Trace
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import config_of, objects_of
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.plan_generator import ACTIVE_SECONDS, HEALING_SECONDS
from recovery.sim.trials.trial import NCCL_TIMEOUT_SECONDS, run_trial
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time

SIZES = (8, 128)
SIMULATED_SECONDS = ACTIVE_SECONDS + HEALING_SECONDS
"""The length of a drawn trial: two hours."""
LOST_AT_SECONDS = (600.0, 2100.0, 3600.0)
"""When a pod is deleted. After each there is time to recover and to train."""
TIMES = 3
"""Each case is measured this often, in turn with the others. The fastest counts: other load only adds time."""


@dataclass(frozen=True)
class Case:
    """One row. `lease_seconds` None: no controller runs."""

    name: str
    pods: int
    lease_seconds: int | None
    losses: int = 0


@dataclass(frozen=True)
class Run:
    """The results of one run of a case. They are the same each time."""

    requests: int
    """Requests of the controller, without its watches."""
    revisions: int
    """Writes of all clients that changed something, as the server's newest resourceVersion counts them."""
    trainings: int
    """How often all ranks met."""


@dataclass(frozen=True)
class Row:
    """The measurements of one case."""

    case: Case
    run: Run
    cpu_seconds: float
    idle_cpu_seconds: float
    """CPU seconds of the cluster alone, with as many pods."""

    @property
    def hours_per_cpu_second(self) -> float:
        return SIMULATED_SECONDS / 3600 / self.cpu_seconds


CASES = [
    Case(name, pods, lease_seconds, losses)
    for pods in SIZES
    for name, lease_seconds, losses in (
        ("cluster alone", None, 0),
        ("and the controller, Lease 15 s", 15, 0),
        ("and the controller, Lease 60 s", 60, 0),
        (f"the same, {len(LOST_AT_SECONDS)} pods lost", 60, len(LOST_AT_SECONDS)),
    )
]


def plan_of(case: Case) -> TrialPlan:
    """One replica, no API faults."""
    job = JobPlan("team-a", "llm", pods=case.pods, policy={"mode": "Enforce"})
    lost = (
        TrialFault(FaultKey("world", number, FaultKind.POD_KILL), at_seconds=moment, job=str(job), indexes=(number,))
        for number, moment in enumerate(LOST_AT_SECONDS[: case.losses])
    )
    return TrialPlan(
        seed=1,
        jobs=(job,),
        faults=tuple(lost),
        active_seconds=ACTIVE_SECONDS,
        healing_seconds=HEALING_SECONDS,
        replicas=1,
        lease_seconds=case.lease_seconds or TrialPlan.lease_seconds,
    )


def run_case(case: Case) -> Run:
    """Run its two hours."""
    if case.lease_seconds is None:
        return run_in_virtual_time(_cluster_alone(plan_of(case)))
    outcome = run_trial(plan_of(case))
    assert not outcome.violations, f"{case.name}, {case.pods} pods: {outcome.violations[0].sentence}"
    return Run(outcome.requests, outcome.evidence.server.revision, _trainings(outcome.evidence.trace))


async def _cluster_alone(plan: TrialPlan) -> Run:
    """The cluster as a trial sets it up, for as long as a trial."""
    clock = VirtualClock()
    cluster = EmbeddedCluster(
        clock=clock,
        entropy=random.Random(f"cluster {plan.seed}"),
        nodes=[
            NodeSpec(name=f"node-{number}", gpus=plan.node_gpus)
            for number in range(plan.jobs[0].pods + plan.spare_nodes)
        ],
        training=TrainingSettings(nccl_timeout_seconds=NCCL_TIMEOUT_SECONDS),
        settings=ClusterSettings(kubelets=KubeletSettings(writes_leases=False)),
    )
    async with cluster.running():
        cluster.server.create(RECOVERY_CONFIGS, config_of(plan))
        for resource, body in objects_of(plan.jobs[0]):
            cluster.server.create(resource, body, namespace=body["metadata"].get("namespace"))
        await clock.sleep(SIMULATED_SECONDS)
    return Run(0, cluster.server.revision, _trainings(cluster.trace))


def _trainings(trace: Trace) -> int:
    return sum(record.kind is EventKind.ROUND_FORMED for record in trace.records)


def _timed(case: Case) -> tuple[Run, float]:
    """Its run, and the CPU seconds that took. The garbage collector is off meanwhile, as in any trial."""
    gc.collect()
    gc.disable()
    try:
        began_seconds = time.process_time()
        run = run_case(case)
        return run, time.process_time() - began_seconds
    finally:
        gc.enable()


def measure() -> list[Row]:
    """All cases: some 40 s."""
    runs: dict[Case, Run] = {}
    cpu_seconds: dict[Case, float] = {}
    for _ in range(TIMES):
        for case in CASES:
            run, seconds = _timed(case)
            assert run.trainings == 1 + case.losses, f"{case.name}, {case.pods} pods: {run.trainings} trainings"
            assert runs.setdefault(case, run) == run, f"{case.name}, {case.pods} pods: first {runs[case]}, then {run}"
            cpu_seconds[case] = min(seconds, cpu_seconds.get(case, seconds))
            print(f"simulation: {case.name}, {case.pods} pods: {seconds:.2f} s of CPU", file=sys.stderr, flush=True)
    idle = {case.pods: cpu_seconds[case] for case in CASES if case.lease_seconds is None}
    return [Row(case, runs[case], cpu_seconds[case], idle[case.pods]) for case in CASES]


def table(rows: list[Row]) -> str:
    """A Markdown table for the README."""
    head = (
        f"| {SIMULATED_SECONDS / 3600:g} simulated hours | pods | hours per CPU-second | of the cluster alone "
        "| API requests | revisions |"
    )
    return "\n".join((head, "|---|---|---|---|---|---|", *map(_line, rows)))


def _line(row: Row) -> str:
    return (
        f"| {row.case.name} | {row.case.pods} | {row.hours_per_cpu_second:.2f} "
        f"| {row.idle_cpu_seconds / row.cpu_seconds:.2f} | {row.run.requests} | {row.run.revisions} |"
    )
