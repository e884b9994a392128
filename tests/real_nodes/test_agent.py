"""Restarts in place in real pods: the agent in an image volume, under kubelets, beside the shipped controller."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.agents import ENABLED, settles, switch_off
from tests.cluster.agents import has_agent as job_has_agent
from tests.cluster.patience import GUARD_SECONDS
from tests.real_nodes import figures
from tests.real_nodes.agents import (
    accepted_reports,
    agents_are_injected,
    containers,
    has_agent,
    in_labelled_namespace,
    permitted,
    records,
    rendezvous_measured,
    seconds_to_new_steps,
    worker,
)
from tests.real_nodes.conftest import RANKS
from tests.real_nodes.hollow import HollowTraining
from tests.real_nodes.installation import Installation
from tests.real_nodes.test_trainings import TELLING_STEPS, assert_same_curve, recovers
from tests.real_nodes.trainings import EVERY, PREPARED, Object, Training
from tests.real_nodes.unbroken import Unbroken

pytestmark = pytest.mark.usefixtures("token_reader")

OPTED_OUT = {ENABLED: "disabled"}
SAME_SECONDS = 0.2
"""Agents look every 50 ms at what their ranks show."""
IN_A_ROW = {"budget": {"limit": 100}, "backoff": {"initial": "0s", "resetAfter": "1s"}}
"""A policy under which one kill after the other is handled like the first."""
Started = Callable[..., AbstractAsyncContextManager[Training]]


@pytest.fixture
def started(installation: Installation, tmp_path: Path) -> Started:
    """Starts a training in a namespace whose jobs get the agent. Its policy permits restarts in place."""

    @asynccontextmanager
    async def start(
        kind: type[Training] = Training,
        *,
        runtime: str = PREPARED,
        annotations: dict[str, str] | None = None,
        **spec: object,
    ) -> AsyncIterator[Training]:
        await agents_are_injected(installation)
        async with in_labelled_namespace(installation, **spec) as namespace:
            await settles(installation.cluster.control_plane, namespace, job_has_agent)
            folder = tmp_path / "checkpoints"
            job = kind(installation.cluster, namespace, folder, RANKS, runtime, annotations=annotations or {})
            try:
                await job.start()
                await job.trains(starts=1, past=EVERY)
                yield job
            finally:
                await job.remove()

    return start


def assert_restarted_in_place(records: list[Object]) -> None:
    for record in records:
        assert [attempt["action"] for attempt in record["attempts"]] == ["RestartInPlace"], record
        assert (record["outcome"], record["charged"], record["source"]) == ("Recovered", True, "agent"), record


async def test_a_killed_rank_runs_again_in_the_same_containers(started: Started, installation: Installation) -> None:
    async with started(HollowTraining) as training:
        assert await has_agent(training) == [True] * RANKS
        await permitted(training)
        reports, before = await accepted_reports(installation), await containers(training)
        ranks = [await worker(training, rank) for rank in range(RANKS)]
        await seconds_to_new_steps(training, rank=1)
        assert_restarted_in_place(await records(training, 1))
        assert await containers(training) == before
        assert not {await worker(training, rank) for rank in range(RANKS)} & set(ranks)
        assert await accepted_reports(installation) > reports


async def test_without_the_parameters_a_new_job_has_no_agent(started: Started, installation: Installation) -> None:
    async with started(HollowTraining) as training:
        await switch_off(installation.cluster.control_plane)
        try:
            await settles(installation.cluster.control_plane, training.namespace, lambda job: not job_has_agent(job))
            later = replace(training, name="later")
            await later.start()
            async with asyncio.timeout(GUARD_SECONDS):
                while len(await has_agent(later)) < RANKS:
                    await asyncio.sleep(0.2)
            assert await has_agent(later) == [False] * RANKS
            assert await has_agent(training) == [True] * RANKS
            await later.remove()
        finally:
            await installation.apply_manifests()
        await settles(installation.cluster.control_plane, training.namespace, job_has_agent)


@pytest.mark.torch
async def test_a_killed_worker_trains_on_in_the_same_containers(started: Started, unbroken: Unbroken) -> None:
    async with started() as training:
        await permitted(training)
        before = await containers(training)
        await training.amid_an_interval()
        at = training.step()
        await seconds_to_new_steps(training, rank=2)
        assert await recovers(training, unbroken, at) > 0
        assert await containers(training) == before
        [record] = await records(training, 1)
        assert_restarted_in_place([record])
        [suspect] = record["suspects"]
        assert (suspect["index"], suspect["exitCode"]) == (2, 137)
        ledger = await training.ledger()
        assert (ledger["totals"]["charged"], len(ledger["budget"]["charges"])) == (1, 1)


@pytest.mark.torch
async def test_incident_metric_and_ranks_measure_the_same_rendezvous(
    started: Started, installation: Installation, record_property: Callable[[str, object], None]
) -> None:
    async with started() as training:
        await permitted(training)
        before = await rendezvous_measured(installation)
        await seconds_to_new_steps(training, rank=2)
        [record] = await records(training, 1)
        by_incident = figures.phases_of(record)["Rendezvous"]
        joined = await training.joined()
        by_ranks = max(each["at"] for each in joined) - min(each["at"] - each["waitedSeconds"] for each in joined)
        after = await rendezvous_measured(installation)
        assert after.count - before.count == 1
        by_metric = after.seconds - before.seconds
        found = f"ranks {by_ranks:.3f} s, incident {by_incident:.3f} s, metric {by_metric:.3f} s"
        record_property("rendezvous", found)
        assert max(by_incident, by_metric) - by_ranks < SAME_SECONDS > by_ranks - min(by_incident, by_metric), found
        assert record["verified"], record
        assert record["trainingSteps"]["resumed"] <= record["trainingSteps"]["before"]


@pytest.mark.torch
async def test_a_job_that_opted_out_is_recreated_as_before(started: Started, unbroken: Unbroken) -> None:
    async with started(annotations=OPTED_OUT) as training:
        assert await has_agent(training) == [False] * RANKS
        before = await containers(training)
        at = training.step()
        os.kill((await training.processes_of_rank(2))[-1], signal.SIGKILL)
        await recovers(training, unbroken, at)
        assert await has_agent(training) == [False] * RANKS
        assert not (await containers(training)).keys() & before.keys()
        [record] = await records(training, 1)
        assert [attempt["action"] for attempt in record["attempts"]] == ["RecreateGroup"]


@pytest.mark.torch
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "a new group"])
async def test_every_kill_brings_the_training_back_on_its_curve(
    started: Started,
    unbroken: Unbroken,
    in_place: bool,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    """With `--kills=10` it measures: from the kill to three new steps, at which load, and the phases of the record."""
    kills = pytestconfig.getoption("--kills")
    async with started(inPlace={"enabled": in_place, "maxInARow": 10}, **IN_A_ROW) as training:
        for kill in range(kills):
            if in_place:
                await permitted(training)
            load, _, _ = os.getloadavg()
            seconds = await seconds_to_new_steps(training, rank=kill % RANKS)
            record = (await records(training, kill + 1))[-1]
            record_property(f"kill {kill}", f"{seconds:.2f} s at a load of {load:.1f}, {figures.phases_of(record)}")
            await training.trains(starts=kill + 2, past=training.resumed_at() + TELLING_STEPS)
        found = await records(training, kills)
        if in_place:
            assert_restarted_in_place(found)
        else:
            assert [attempt["action"] for each in found for attempt in each["attempts"]] == ["RecreateGroup"] * kills
        await assert_same_curve(training, unbroken)
