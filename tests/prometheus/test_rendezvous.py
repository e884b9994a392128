"""Rendezvous that an agent reports, with the real controller, control plane and Prometheus: alert, histograms, panels.

The test reports in place of the agent of slot 0, with the token of its pod. The ages in the reports are those of events
that it dates itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
import pytest_asyncio

from recovery.dashboards.series import job_series
from recovery.rendezvous.tokens import AUDIENCE
from tests.cluster.acts import exit_rank, incidents_of
from tests.cluster.agents import runtime_patch, service_account, set_parameters, switch_off
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import (
    ControllerProcess,
    Fleet,
    Job,
    Object,
    apply,
    install_component,
    policy,
    train_job,
    until,
)
from tests.cluster.test_agent_reports import pod_of, post, published
from tests.prometheus.board_queries import Viewed, panels, substituted
from tests.prometheus.monitoring import Monitoring, monitored, of, silent
from tests.prometheus.server import PrometheusServer
from tests.prometheus.walk import follow

RANKS = 4
LATE = 2
ALERT = "RecoveryRendezvousStuck"
DURATION, SINCE_TRIGGER = "recovery_rendezvous_duration_seconds", "recovery_rendezvous_since_trigger_seconds"
EQUAL_SECONDS = 0.2


@dataclass
class Barrier:
    """The agent of slot 0 in one pod, and the events of its ranks, by `time.time()`."""

    job: Job
    controller: ControllerProcess
    token: str
    authority: str
    identity: str
    first_at: dict[int, float] = field(default_factory=dict)
    joined_at: dict[int, float] = field(default_factory=dict)
    ended_at: dict[int, float] = field(default_factory=dict)

    @classmethod
    async def of_present_pod(cls, job: Job, controller: ControllerProcess, identity: str) -> "Barrier":
        meta = (await pod_of(job.control_plane, job.namespace, 0))["metadata"]
        bound = (f"--bound-object-name={meta['name']}", f"--bound-object-uid={meta['uid']}")
        asked = ("create", "token", "default", "-n", job.namespace, f"--audience={AUDIENCE}", "--bound-object-kind=Pod")
        token = (await job.control_plane.kubectl(*asked, *bound)).strip()
        return cls(job, controller, token, await published(job.control_plane), identity)

    async def report(self, *, arrived: int = RANKS, joined: int = RANKS) -> None:
        """Say what has happened so far, until the controller takes it."""
        [port] = {
            int(str(line["address"]).rpartition(":")[2])
            for line in self.controller.lines()
            if line.get("msg") == "serving agents"
        }
        async with asyncio.timeout(GUARD_SECONDS):
            while (answer := await post(port, self.authority, self.token, self._body(arrived, joined)))[0] != 200:
                print(answer)
                await asyncio.sleep(1)

    def _body(self, arrived: int, joined: int) -> Object:
        now, epoch = time.time(), max(self.first_at)

        def age(when: float | None) -> float | None:
            return None if when is None else round(now - when, 3)

        return {
            "v": 1,
            "barrier": self.identity,
            "epoch": epoch,
            "state": "running",
            "stateAgeSeconds": age(self.first_at[epoch]),
            "epochAgeSeconds": age(self.first_at[epoch]),
            "slots": RANKS,
            "ended": [
                {"epoch": each, "slot": 1, "rank": 1, "exitCode": 1, "ageSeconds": age(at), "by": "Alone", "ran": True}
                for each, at in self.ended_at.items()
            ],
            "meets": True,
            "rendezvous": [
                {"epoch": each, "firstAgeSeconds": age(at), "joinedAgeSeconds": age(self.joined_at.get(each))}
                for each, at in self.first_at.items()
            ],
            "arrived": arrived,
            "joined": joined,
            "waiting": [LATE] if arrived < RANKS else [],
            "steps": {"lowest": 1, "highest": 1, "ageSeconds": 0.0} if joined == RANKS else None,
        }


@pytest_asyncio.fixture(loop_scope="session")
async def job(installed: ControlPlane, fleet: Fleet, namespace: str) -> AsyncIterator[Job]:
    """A job that trains. The parameters of the component exist, so the controller publishes its authority."""
    await install_component(installed, "agent")
    await set_parameters(installed, **{"ca.crt": ""})
    made = Job(installed, fleet, namespace, "llm", RANKS)
    body = train_job("llm", ranks=RANKS)
    body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
    rules = policy(teardown={"graceSeconds": 1}, inPlace={"enabled": True})
    await apply(installed, namespace, service_account("default"), rules, body)
    await made.trains()
    yield made
    await made.remove()
    await switch_off(installed)


async def test_a_rendezvous_from_the_agents_report_to_the_panel(
    job: Job, toolbox: Toolbox, proxy: ApiProxy, tmp_path: Path
) -> None:
    began = time.time()
    options = ("--agent-address", "127.0.0.1:0")
    kubeconfig, log = proxy.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path / "controller.log"
    async with (
        monitored(toolbox, tmp_path / "prometheus") as monitoring,
        ControllerProcess.running(kubeconfig, log, options=options, warm=True) as controller,
    ):
        monitoring.scrape(controller_1=controller)
        await until("it serves agents", lambda: any(line.get("msg") == "serving agents" for line in controller.lines()))
        barrier = await Barrier.of_present_pod(job, controller, "00000000000000b1")
        first = await a_rank_is_late_at_the_first_start(barrier, monitoring)
        in_place = await the_ranks_are_started_again_in_place(barrier, monitoring.prometheus)
        recreated = await the_group_is_recreated(job, controller, monitoring.prometheus)
        await monitoring.scraped_twice()  # an increase needs two samples
        await the_panels_show(monitoring.prometheus, began, first, in_place, recreated)


async def a_rank_is_late_at_the_first_start(barrier: Barrier, monitoring: Monitoring) -> float:
    """There is no incident. Returns the seconds of the rendezvous."""
    job, prometheus = barrier.job, monitoring.prometheus
    shown = job_series("recovery_rendezvous_participants")
    barrier.first_at[1] = time.time()
    await barrier.report(arrived=RANKS - 1, joined=0)
    said = await monitoring.fires(ALERT, job)
    assert said["summary"] == f"{job.namespace}/{job.name} waits for members to join (joined: 0)."
    assert "recovery explain" in said["description"]
    assert said["description"].endswith("In an incident, it names a missing rank.")
    found = {labels["state"]: value for labels, value in await prometheus.query(of(job, shown))}
    assert found == {"arrived": RANKS - 1, "joined": 0, "expected": RANKS}
    assert await prometheus.query(of(job, job_series("recovery_incident_start_timestamp_seconds"))) == []
    await follow(job.control_plane, ALERT, "recovery explain", job)

    barrier.joined_at[1] = time.time()
    for _ in range(3):
        await barrier.report()
    await monitoring.is_resolved(ALERT, job)
    await prometheus.until(of(job, shown), silent)
    seconds = barrier.joined_at[1] - barrier.first_at[1]
    await is_observed(prometheus, f'{DURATION}%s{{source="agent", cause="Start", outcome="Joined"}}', seconds)
    return seconds


async def the_ranks_are_started_again_in_place(barrier: Barrier, prometheus: PrometheusServer) -> float:
    """Returns the seconds from the failure until all had joined."""
    barrier.ended_at[1] = time.time()
    await asyncio.sleep(0.3)
    barrier.first_at[2] = time.time()
    await asyncio.sleep(0.6)
    barrier.joined_at[2] = time.time()
    await barrier.report()
    await barrier.report()
    rendezvous = barrier.joined_at[2] - barrier.first_at[2]
    await is_observed(
        prometheus, f'{DURATION}%s{{source="agent", cause="RestartInPlace", outcome="Joined"}}', rendezvous
    )
    seconds = barrier.joined_at[2] - barrier.ended_at[1]
    await is_observed(prometheus, f'{SINCE_TRIGGER}%s{{cause="RestartInPlace"}}', seconds)
    await barrier.job.closed_incidents(1)
    return seconds


async def the_group_is_recreated(job: Job, controller: ControllerProcess, prometheus: PrometheusServer) -> float:
    """Returns the seconds from the attempt in the ledger until all had joined."""
    before = await first_pod(job)
    await exit_rank(job, 1, 137)
    async with asyncio.timeout(GUARD_SECONDS):
        while await first_pod(job) == before:
            await asyncio.sleep(0.2)
    await job.trains()
    barrier = await Barrier.of_present_pod(job, controller, "00000000000000b2")
    barrier.first_at[1] = time.time()
    await barrier.report(arrived=1, joined=0)
    barrier.joined_at[1] = time.time()
    await barrier.report()
    await job.closed_incidents(2)
    [*_, incident] = sorted(await incidents_of(job), key=lambda each: str(each["startedAt"]))
    [attempt] = incident["attempts"]
    assert attempt["action"] == "RecreateGroup"
    triggered_at = datetime.fromisoformat(attempt["startedAt"]).timestamp()
    rendezvous = barrier.joined_at[1] - barrier.first_at[1]
    await is_observed(
        prometheus, f'{DURATION}%s{{source="agent", cause="RecreateGroup", outcome="Joined"}}', rendezvous
    )
    seconds = barrier.joined_at[1] - triggered_at
    await is_observed(prometheus, f'{SINCE_TRIGGER}%s{{cause="RecreateGroup"}}', seconds)
    return seconds


async def first_pod(job: Job) -> str:
    """The UID of the pod of slot 0."""
    return str((await pod_of(job.control_plane, job.namespace, 0))["metadata"]["uid"])


async def is_observed(prometheus: PrometheusServer, series: str, seconds: float) -> None:
    """Once. `series`: with %s in place of the suffix."""
    await prometheus.until(f"{series % '_count'} > 0")
    [(_, count)] = await prometheus.query(series % "_count")
    [(_, found)] = await prometheus.query(series % "_sum")
    assert count == 1
    assert found == pytest.approx(seconds, abs=EQUAL_SECONDS)


async def the_panels_show(
    prometheus: PrometheusServer, began: float, first: float, in_place: float, recreated: float
) -> None:
    ended = await answer(prometheus, "How rendezvous ended, whole cluster", began)
    assert ended == {f"{cause}: Joined (agent)": 1 for cause in ("Start", "RestartInPlace", "RecreateGroup")}
    times = await answer(prometheus, "Time of a rendezvous, whole cluster", began)
    assert set(times) == {
        f"{cause} {quantile} (agent)"
        for cause in ("Start", "RestartInPlace", "RecreateGroup")
        for quantile in ("p50", "p95")
    }
    assert 0 < times["Start p50 (agent)"] <= 3 * first, "within the bucket of the only one"
    since = await answer(prometheus, "From the trigger until all have joined, whole cluster", began)
    assert since["RestartInPlace p95"] == pytest.approx(in_place, rel=1.5)
    assert since["RecreateGroup p95"] == pytest.approx(recreated, rel=1.5)


async def answer(prometheus: PrometheusServer, title: str, began: float) -> Mapping[str, float]:
    """What the fleet's panel with that title shows for the time since then."""
    [panel] = [each for each in panels("fleet") if each.title == title]
    [target] = panel.targets
    view = Viewed(datetime.fromtimestamp(began), datetime.fromtimestamp(time.time() + 1), {})
    found = await prometheus.query(substituted(target.expr, view))
    return {target.named(labels): value for labels, value in found}
