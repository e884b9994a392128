"""What a real Prometheus makes of the counters when the leader changes: nothing falls, and nothing counts twice.

Prometheus treats a counter that falls as one that was restarted, so `increase()` would add its whole value again.
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
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Object, apply, until
from tests.cluster.stations import says
from tests.prometheus.monitoring import Monitoring, monitored, of
from tests.prometheus.server import PrometheusServer, Sample

RANKS = 4
GPUS = RANKS * 8
COUNTERS = [job_series(name) for name in JOB_METRICS if name.endswith("_total")]
COUNTERS += [fleet_series(name) for name in FLEET_METRICS if name.endswith("_total")]
FAILURES = job_series("recovery_failures_total")
FLOATS = 1e-6
"""Counters and ledger are in thousandths; their sums differ by the rounding of floats."""


@pytest_asyncio.fixture(loop_scope="session")
async def config(installed: ControlPlane) -> AsyncIterator[None]:
    """A RecoveryConfig, in which the leaders keep the fleet totals. It exists only during the test."""
    meaning = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "kind": "RecoveryConfig"}
    await apply(installed, None, {**meaning, "metadata": {"name": "default"}, "spec": {}})
    yield
    await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


async def totals_of_fleet(control_plane: ControlPlane) -> Object:
    """`status.totals` of the RecoveryConfig."""
    found = json.loads(await control_plane.kubectl("get", "recoveryconfig", "default", "-o", "json"))
    totals: Object = found.get("status", {}).get("totals", {})
    return totals


async def assert_booked(monitoring: Monitoring, series: str, label: str, booked: Mapping[str, float]) -> None:
    """Wait until the counter, by the values of that label, equals what an object has booked. Values of 0 are left out.

    The counter is a recorded series, and its rule is evaluated some time after the scrape that it reads. A counter
    never falls, so one that is too high stays wrong, however long this waits.
    """
    expected = pytest.approx({name: seconds for name, seconds in booked.items() if seconds > 0}, abs=FLOATS)

    def equals(found: list[Sample]) -> bool:
        return {labels[label]: seconds for labels, seconds in found} == expected

    await monitoring.prometheus.until(f"sum by ({label}) ({series}) > 0", equals)


def by_reason(totals: Object) -> dict[str, float]:
    found: dict[str, float] = {}
    for phase, seconds in totals["idleGpuSeconds"].items():
        found[BOOKED_REASONS[phase]] = found.get(BOOKED_REASONS[phase], 0.0) + seconds
    return found


def by_class(totals: Object) -> dict[str, float]:
    return {name: sum(phases.values()) for name, phases in totals["idleGpuSecondsByClass"].items()}


async def assert_rose_by_one(prometheus: PrometheusServer, series: str, began: float, ended: float) -> None:
    """`increase()` extrapolates to the window: at each end by at most 1.1 times the mean interval between the scrapes,
    which is longer on a slow machine."""
    window = f"[{int(ended - began) + 5}s]"
    [(_, exactly)] = await prometheus.query(
        f"sum(max_over_time({series}{window}) - min_over_time({series}{window}))", ended
    )
    assert exactly == 1, series
    [(_, increase)] = await prometheus.query(f"sum(increase({series}{window}))", ended)
    of_the_one_that_rose = f"count_over_time({series}{window}) and increase({series}{window}) > 0"
    [(_, scrapes)] = await prometheus.query(of_the_one_that_rose, ended)
    assert 1 - FLOATS <= increase <= 1 + 2.2 / (scrapes - 1) + FLOATS, (series, scrapes)


async def assert_never_falls(monitoring: Monitoring, began: float, ended: float) -> None:
    for series in COUNTERS:
        for values in await monitoring.prometheus.values(series, began, ended):
            assert values == sorted(values), series


@pytest.mark.usefixtures("config")
async def test_a_change_of_leader_in_mid_incident(
    toolbox: Toolbox,
    installed: ControlPlane,
    fleet: Fleet,
    proxy: ApiProxy,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    """The leader is scraped during the write that ends a phase, and dies before the write arrives."""
    job = await training(ranks=RANKS)
    async with (
        monitored(toolbox, tmp_path / "prometheus") as monitoring,
        controller() as leader,
        controller(standby=True) as standby,
    ):
        prometheus = monitoring.prometheus
        monitoring.scrape(controller_1=leader, controller_2=standby)
        failures, idle = of(job, FAILURES), of(job, job_series("recovery_gpu_idle_seconds_total"))
        await prometheus.until(f"sum({failures}) == 0")
        began = time.time()
        async with no_room(fleet):
            hold = proxy.hold(says("TearingDown"))
            await exit_rank(job, 1, 137)
            async with asyncio.timeout(GUARD_SECONDS):
                await hold.wait()
            await monitoring.scraped_twice()
            leader.freeze()
            hold.release()
            await job.reaches("TearingDown")
            await leader.kill()
            await until("the standby leads", standby.leads)
            await job.reaches("Scheduling")
            await prometheus.until(f"sum({idle}) > 0")
            await monitoring.scraped_twice()
        await job.closed_incidents(1)
        await prometheus.until(f"sum({failures}) == 1 unless on () {of(job, job_series('recovery_incident_info'))}")
        await monitoring.scraped_twice()
        await assert_rose_by_one(prometheus, failures, began, time.time())

        totals = (await job.ledger())["totals"]
        assert sum(by_reason(totals).values()) > 0
        await assert_booked(monitoring, idle, "reason", by_reason(totals))
        of_classes = of(job, job_series("recovery_gpu_idle_by_class_seconds_total"))
        await assert_booked(monitoring, of_classes, "failure_class", by_class(totals))
        rounded = pytest.approx(by_class(totals), abs=0.01)  # the ledger and the fleet totals are rounded separately
        async with asyncio.timeout(GUARD_SECONDS):
            while (of_fleet := by_class(await totals_of_fleet(installed))) != rounded:
                await asyncio.sleep(0.2)
        await assert_booked(
            monitoring, fleet_series("recovery_fleet_gpu_idle_seconds_total"), "failure_class", of_fleet
        )
        await assert_never_falls(monitoring, began, time.time())


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("killed", ["in-mid-incident", "right-after-it"])
async def test_an_incident_between_the_last_scrape_of_one_leader_and_the_first_of_the_next(
    killed: str,
    toolbox: Toolbox,
    fleet: Fleet,
    training: StartsTraining,
    controller: StartsController,
    tmp_path: Path,
) -> None:
    job = await training(ranks=RANKS)
    async with (
        monitored(toolbox, tmp_path / "prometheus") as monitoring,
        controller() as leader,
        controller(standby=True) as standby,
    ):
        prometheus = monitoring.prometheus
        counters = (
            of(job, FAILURES),
            of(job, job_series("recovery_group_restarts_total")),
            fleet_series("recovery_fleet_incidents_total"),
            fleet_series("recovery_fleet_group_restarts_total"),
        )
        monitoring.scrape(controller_1=leader, controller_2=standby)
        for each in counters:
            await prometheus.until(f"sum({each}) == 0")
        began = time.time()
        with prometheus.frozen():
            if killed == "in-mid-incident":
                async with no_room(fleet):
                    await exit_rank(job, 1, 137)
                    await job.reaches("Scheduling")
                    await leader.kill()
            else:
                await exit_rank(job, 1, 137)
                await job.closed_incidents(1)
                await leader.kill()
            await until("the standby leads", standby.leads)
            await job.closed_incidents(1)

        for each in counters:
            await prometheus.until(f"sum({each}) == 1")
        await monitoring.scraped_twice()
        ended = time.time()
        for each in counters:
            await assert_rose_by_one(prometheus, each, began, ended)
        await assert_never_falls(monitoring, began, ended)
        booked = sum((await job.ledger())["totals"]["idleGpuSeconds"].values())
        idle = (
            of(job, job_series("recovery_gpu_idle_seconds_total")),
            fleet_series("recovery_fleet_gpu_idle_seconds_total"),
        )
        for each in idle:  # no process was scraped while a phase ran
            await prometheus.until(f"abs(sum({each}) - {booked}) < {FLOATS}")
