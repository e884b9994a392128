"""How long a group is down after one rank is killed, side by side in one run.

Three arms on the same real control plane and the same modelled nodes: JobSet's own restart (backoffLimit 0 and a
failurePolicy), this controller, and a fresh start of the same TrainJob, which is the lower bound for any restart that
creates pods. Seconds depend on the machine; the ratios within a row are what counts. 15 s pass between two runs, so
that the controller-manager's request bucket is full again.
"""

import asyncio
import re
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp

from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.training.rounds import TrainingSettings
from tests.bench.job_watch import JobWatch
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, install, policy, train_job, until

REFILL_SECONDS = 15.0
KILLED_RANK = 7
PATIENCE_SECONDS = 240.0
NODES = 128


@dataclass(frozen=True)
class Case:
    """One row. `grace_seconds` is the grace period of the pods; the controller's arm may ask for less."""

    limits: str
    pods: int
    grace_seconds: int
    asked_grace_seconds: int | None


@dataclass
class Row:
    """Measurements of one case, in seconds from the kill until all ranks train. None: not within the patience."""

    case: Case
    fresh_start_seconds: float
    jobset_seconds: float | None
    controller_seconds: float | None
    trigger_milliseconds: float
    """From the pod's event to the Job's deletionTimestamp, both as seen on a separate watch."""
    api_reads: int
    api_writes: int
    """Write requests of the controller; `api_reads` are its reads."""
    jobset_requests: int
    controller_requests: int
    """Requests of all clients for single pods and Jobs, from the kill until all ranks train: what each way of deleting
    the old pods costs the API server and the controller-manager, whose limits they share."""


CASES = [
    Case(limits, pods, grace, asked)
    for limits in ("stock", "raised")
    for pods in (32, 128)
    for grace, asked in ((0, None), (30, 5))
]


def runtime(name: str, grace_seconds: int, *, own_restart: bool) -> Object:
    """A runtime that differs between the arms only in what restarts the group."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [{"name": "node", "image": "example.invalid/train"}],
    }
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0 if own_restart else 1000, "template": {"spec": pod}},
    }
    template: Object = {"replicatedJobs": [{"name": "node", "template": job}]}
    if own_restart:
        template["failurePolicy"] = {"maxRestarts": 100}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": template}},
    }


def _tell(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S}  {text}", file=sys.stderr, flush=True)


class Bench:
    """Runs the cases of one control plane."""

    def __init__(self, control_plane: ControlPlane, fleet: Fleet, folder: Path) -> None:
        self._control_plane = control_plane
        self._fleet = fleet
        self._folder = folder

    async def row(self, case: Case) -> Row:
        """Both arms, one after the other, each with the fresh start that it begins with."""
        name = f"bench-{case.pods}-{case.grace_seconds}"
        async with self._training(case, f"{name}-own", own_restart=True) as (job, fresh_own):
            jobset_seconds, _, jobset_requests = await self._kill(job)
        async with self._training(case, f"{name}-ctl", own_restart=False) as (job, fresh_ctl):
            asked = {} if case.asked_grace_seconds is None else {"graceSeconds": case.asked_grace_seconds}
            await apply(self._control_plane, job.namespace, policy(teardown=asked))
            log = self._folder / f"{case.limits}-{name}.log"
            shipped = ("recovery-system", "recovery-controller")
            account = await self._control_plane.kubeconfig_for_service_account(*shipped)
            async with ControllerProcess.running(account, log) as controller:
                before = await _api_calls(controller)
                controller_seconds, trigger_milliseconds, controller_requests = await self._kill(job)
                if controller_seconds is not None:
                    await job.closed_incidents(1)
                after = await _api_calls(controller)
        return Row(
            case=case,
            fresh_start_seconds=statistics.median((fresh_own, fresh_ctl)),
            jobset_seconds=jobset_seconds,
            controller_seconds=controller_seconds,
            trigger_milliseconds=trigger_milliseconds,
            api_reads=after[0] - before[0],
            api_writes=after[1] - before[1],
            jobset_requests=jobset_requests,
            controller_requests=controller_requests,
        )

    @asynccontextmanager
    async def _training(self, case: Case, name: str, *, own_restart: bool) -> AsyncIterator[tuple[Job, float]]:
        """A TrainJob in which all ranks train, and the seconds that its start took. It is deleted on exit."""
        await asyncio.sleep(REFILL_SECONDS)
        await self._control_plane.kubectl("create", "namespace", name)
        await apply(self._control_plane, None, runtime(name, case.grace_seconds, own_restart=own_restart))
        job = Job(self._control_plane, self._fleet, name, "train", case.pods)
        started = self._fleet.clock.now()
        await apply(self._control_plane, name, train_job("train", ranks=case.pods, runtime=name))
        fresh = await self._trains_since(job, started)
        assert fresh is not None, f"{name} never started"
        await asyncio.sleep(REFILL_SECONDS)
        yield job, fresh
        await self._control_plane.kubectl("delete", "trainjob", "-n", name, "train", timeout_seconds=PATIENCE_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await job.pods():
                await asyncio.sleep(0.5)

    async def _kill(self, job: Job) -> tuple[float | None, float, int]:
        """Seconds from the kill of one rank until all train again, milliseconds from its event to the trigger, and the
        number of requests meanwhile."""
        before = await _requests(self._control_plane)
        victim = await job.pod_of_rank(KILLED_RANK)
        async with JobWatch.running(self._fleet.api, job.namespace, victim, job.child) as watch:
            killed = self._fleet.clock.now()
            self._fleet.kubelets.exit_container(victim, 137, namespace=job.namespace)
            seconds = await self._trains_since(job, killed)
            requests = await _requests(self._control_plane) - before
            return seconds, watch.trigger_milliseconds(), requests

    async def _trains_since(self, job: Job, since: datetime) -> float | None:
        """Seconds until the first rendezvous after `since`, from the model's trace. None: not within the patience."""
        rounds = self._fleet.world.rounds
        try:
            await until(
                f"{job.training} trains",
                lambda: any(formed.formed_at > since for formed in rounds(job.training)),
                PATIENCE_SECONDS,
            )
        except AssertionError:
            return None
        return next((r.formed_at - since).total_seconds() for r in rounds(job.training) if r.formed_at > since)


async def _api_calls(controller: ControllerProcess) -> tuple[int, int]:
    """Reads and writes of the controller so far, by its own metrics, without those for the Lease."""
    async with aiohttp.ClientSession() as session, session.get(f"{controller.metrics_url()}/metrics") as answer:
        text = await answer.text()
    reads = writes = 0
    for labels, count in re.findall(r"recovery_api_requests_total\{([^}]*)\} ([0-9.e+]+)", text):
        verb = re.findall(r'verb="(\w+)"', labels)[0]
        if 'resource="leases"' in labels:
            continue
        if verb.upper() in {"GET", "LIST", "WATCH"}:
            reads += int(float(count))
        else:
            writes += int(float(count))
    return reads, writes


async def _requests(control_plane: ControlPlane) -> int:
    """Requests for single pods and Jobs so far, by the API server's own metrics."""
    text = await control_plane.kubectl("get", "--raw", "/metrics")
    counted = 0
    for series, count in re.findall(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
        single = labels["verb"] in {"GET", "DELETE", "PATCH", "POST"} and not labels["subresource"]
        if single and labels["resource"] in {"pods", "jobs"}:
            counted += int(float(count))
    return counted


def table(rows: list[Row]) -> str:
    """A Markdown table for the README."""
    lines = [
        "| limits | pods | grace s | fresh start s | JobSet s | controller s | share | trigger ms | "
        "API reads | API writes | JobSet's requests | all requests |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        case = row.case
        grace = f"{case.grace_seconds}" + (f", asks {case.asked_grace_seconds}" if case.asked_grace_seconds else "")
        ratio = (
            f"{row.controller_seconds / row.jobset_seconds:.2f}"
            if row.controller_seconds and row.jobset_seconds
            else "-"
        )
        lines.append(
            f"| {case.limits} | {case.pods} | {grace} | {row.fresh_start_seconds:.1f} "
            f"| {_seconds(row.jobset_seconds)} | {_seconds(row.controller_seconds)} | {ratio} "
            f"| {row.trigger_milliseconds:.0f} | {row.api_reads} | {row.api_writes} "
            f"| {row.jobset_requests} | {row.controller_requests} |"
        )
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return f"> {PATIENCE_SECONDS:.0f}" if value is None else f"{value:.1f}"


async def measure() -> list[Row]:
    """All cases. Builds the control plane, which needs Go."""
    toolbox = provide()
    rows: list[Row] = []
    training = TrainingSettings(step_seconds=0.1, nccl_timeout_seconds=600.0)
    kubelet = KubeletSettings(start_seconds=(0.0, 0.1))
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        for limits in ("stock", "raised"):
            settings = ControlPlaneSettings(request_limits=limits)
            async with ControlPlane.start(settings, toolbox) as control_plane:
                await install(control_plane)
                async with Fleet.running(control_plane, nodes=NODES, training=training, kubelet=kubelet) as fleet:
                    bench = Bench(control_plane, fleet, Path(folder))
                    for case in (case for case in CASES if case.limits == limits):
                        _tell(f"{case.limits} limits, {case.pods} pods, grace {case.grace_seconds} s")
                        rows.append(await bench.row(case))
                        _tell(table(rows[-1:]).splitlines()[-1])
    return rows
