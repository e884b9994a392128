"""What Prometheus has of an incident when the leader changes during it, right after it, and before anybody scrapes it.

The controllers, the control plane and Prometheus are real. A RecoveryConfig keeps the totals of the fleet.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from recovery.dashboards.rules import FLEET_METRICS, JOB_METRICS
from recovery.dashboards.series import fleet_series, job_series
from recovery.telemetry.catalogue.label_values import BOOKED_REASONS
from tests.cluster.acts import exit_rank, no_room
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, until
from tests.prometheus.monitoring import monitored, of
from tests.prometheus.server import PrometheusServer, Sample

RANKS = 4
GPUS = RANKS * 8
COUNTERS = tuple(
    [job_series(name) for name in JOB_METRICS if name.endswith("_total")]
    + [fleet_series(name) for name in FLEET_METRICS if name.endswith("_total")]
)
FAILURES, RESTARTS = job_series("recovery_failures_total"), job_series("recovery_group_restarts_total")
IDLE = job_series("recovery_gpu_idle_seconds_total")
IDLE_BY_CLASS = job_series("recovery_gpu_idle_by_class_seconds_total")
FLEET_INCIDENTS = fleet_series("recovery_fleet_incidents_total")
FLEET_RESTARTS = fleet_series("recovery_fleet_group_restarts_total")
FLEET_IDLE = fleet_series("recovery_fleet_gpu_idle_seconds_total")


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def config(installed: ControlPlane) -> AsyncIterator[None]:
    """A RecoveryConfig without any totals yet."""
    head = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
    await apply(installed, None, {**head, "metadata": {"name": "default"}, "spec": {}})
    yield
    await installed.kubectl("delete", "recoveryconfig", "default")


async def test_a_leader_that_is_killed_in_mid_incident_and_one_that_is_killed_right_after_it(
    toolbox: Toolbox, fleet: Fleet, training: StartsTraining, controller: StartsController, tmp_path: Path
) -> None:
    """No counter falls, nothing counts twice, and the counters come to what the ledger and the totals have booked."""
    job = await training(ranks=RANKS)
    async with (
        monitored(toolbox, tmp_path / "prometheus") as monitoring,
        controller() as first,
        controller(standby=True) as second,
        controller(standby=True) as third,
    ):
        prometheus = monitoring.prometheus
        monitoring.scrape(controller_1=first, controller_2=second, controller_3=third)
        await _until_counted(prometheus, job, 0)
        began = time.time()
        async with no_room(fleet):
            await exit_rank(job, 1, 137)
            await prometheus.until(f"{of(job, job_series('recovery_gpus_idle'), reason='schedule')} == {GPUS}")
            await first.kill()
            leader = await _that_leads(second, third)
            # Of the new leader alone: the recorded series may still be those of the old one.
            own = f'{{namespace="{job.namespace}", pod="controller_{2 if leader is second else 3}"'
            await prometheus.until(f"recovery_job_phase{own}, phase='Scheduling'}} == 1")
            await prometheus.until(f"recovery_gpus_idle{own}, reason='schedule'}} == {GPUS}")
        await job.closed_incidents(1)
        await leader.kill()
        await _that_leads(third if leader is second else second)
        await _until_counted(prometheus, job, 1)
        await _until_booked(prometheus, job, await _counted_totals(job, 1))
        ended = time.time()
        for series in COUNTERS:
            for values in await prometheus.values(series, began, ended):
                assert values == sorted(values), series
        for series in (of(job, FAILURES), of(job, RESTARTS), FLEET_INCIDENTS, FLEET_RESTARTS):
            assert await _increase(prometheus, series, ended - began) == pytest.approx(1, abs=0.4), series


async def test_an_incident_between_the_last_scrape_of_one_leader_and_the_first_of_the_next(
    toolbox: Toolbox, training: StartsTraining, controller: StartsController, tmp_path: Path
) -> None:
    """It is an increase of one all the same: the counters of the next leader begin at what the last one has kept."""
    job = await training(ranks=RANKS)
    async with monitored(toolbox, tmp_path / "prometheus") as monitoring:
        prometheus = monitoring.prometheus
        async with controller() as old:
            monitoring.scrape(controller_1=old)
            await _until_counted(prometheus, job, 0)
            began = time.time()
            monitoring.scrape()
            await prometheus.until(of(job, FAILURES), lambda answer: not answer)
            await exit_rank(job, 1, 137)
            await job.closed_incidents(1)
            totals = await _counted_totals(job, 1)
            await old.kill()
        async with controller() as new:
            monitoring.scrape(controller_2=new)
            await _until_counted(prometheus, job, 1)
            await _until_booked(prometheus, job, totals)
            seconds = time.time() - began
            for series in (of(job, FAILURES), of(job, RESTARTS), FLEET_INCIDENTS, FLEET_RESTARTS):
                assert await _increase(prometheus, series, seconds) == pytest.approx(1, abs=0.4), series


async def _that_leads(*candidates: ControllerProcess) -> ControllerProcess:
    await until("another one leads", lambda: any(each.leads() for each in candidates))
    return next(each for each in candidates if each.leads())


async def _until_counted(prometheus: PrometheusServer, job: Job, incidents: int) -> None:
    for series in (of(job, FAILURES), of(job, RESTARTS), FLEET_INCIDENTS, FLEET_RESTARTS):
        await prometheus.until(f"sum({series}) == {incidents}")


async def _until_booked(prometheus: PrometheusServer, job: Job, totals: Object) -> None:
    """The counters are what the two objects keep, to the thousandth of a GPU-second, by reason and by class."""
    booked = (await job.ledger())["totals"]
    by_reason: dict[str, float] = {}
    for phase, spent in booked["idleGpuSeconds"].items():
        by_reason[BOOKED_REASONS[phase]] = by_reason.get(BOOKED_REASONS[phase], 0.0) + spent
    assert sum(by_reason.values()) > 0
    await _until_they_are(prometheus, of(job, IDLE), "reason", by_reason)
    await _until_they_are(prometheus, of(job, IDLE_BY_CLASS), "failure_class", _by_class(booked))
    await _until_they_are(prometheus, FLEET_IDLE, "failure_class", _by_class(totals))
    assert _by_class(totals) == pytest.approx(_by_class(booked), abs=0.01)


def _by_class(totals: Object) -> dict[str, float]:
    return {name: sum(phases.values()) for name, phases in totals["idleGpuSecondsByClass"].items()}


async def _until_they_are(prometheus: PrometheusServer, series: str, label: str, expected: Mapping[str, float]) -> None:
    """By the values of that label; those at 0 are left out."""

    def equal(answer: list[Sample]) -> bool:
        return {labels[label]: value for labels, value in answer} == pytest.approx(expected, abs=0.001)

    await prometheus.until(f"sum by ({label}) ({series}) > 0", equal)


async def _counted_totals(job: Job, incidents: int) -> Object:
    """The totals in the RecoveryConfig, once so many incidents are among them."""
    totals: Object = {}
    async with asyncio.timeout(GUARD_SECONDS):
        while _number_of(totals) < incidents:
            config = json.loads(await job.control_plane.kubectl("get", "recoveryconfig", "default", "-o", "json"))
            totals = config.get("status", {}).get("totals", {})
    assert _number_of(totals) == incidents, totals
    return totals


def _number_of(totals: Object) -> int:
    outcomes = [outcome for by_outcome in totals.get("incidents", {}).values() for outcome in by_outcome.values()]
    return sum(count for by_handling in outcomes for count in by_handling.values())


async def _increase(prometheus: PrometheusServer, series: str, seconds: float) -> float:
    """Within so many seconds up to now. Prometheus extrapolates to both ends of the window."""
    [(_, increase)] = await prometheus.query(f"sum(increase({series}[{int(seconds) + 5}s]))")
    return increase
