"""Processes of a replica: what ends one, when the next one starts, and what dead and frozen processes do not do."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recovery import api_verbs
from recovery.core.model.facts import GroupKey
from recovery.kube.client import KubeApiClient
from recovery.ports import JOBS
from recovery.sim.trials import controller_process as process_module
from recovery.sim.trials.controller_process import RESTART_SECONDS
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import ProcessLife
from recovery.sim.virtual_time import virtual_time
from tests.simulation.trials.small import at, at_event, in_world, outcome_of, second, writes
from tests.simulation.trials.wire import Wire
from tests.unit.sim.api.servers import TEAM, named

pytestmark = pytest.mark.long

Work = Callable[[KubeApiClient, asyncio.Event], Awaitable[None]]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The programs of the replica's processes, in order. All further processes run the last one."""
    works: list[Work] = []
    started = itertools.count()

    class Scripted:
        def __init__(self, client: KubeApiClient, **_: Any) -> None:
            self._client = client
            self._work = works[min(next(started), len(works) - 1)]

        async def run(self, stop: asyncio.Event) -> None:
            await self._work(self._client, stop)

    monkeypatch.setattr(process_module, "Manager", Scripted)
    return works


async def works_on(client: KubeApiClient, stop: asyncio.Event) -> None:
    await stop.wait()


def lives(wire: Wire) -> list[tuple[int, float, float | None, str]]:
    """Number, start, end and its reason, for each process."""
    return [
        (life.process, second(life.started_at), None if life.ended_at is None else second(life.ended_at), life.how)
        for life in wire.evidence.processes
    ]


def test_a_process_runs_until_it_is_stopped(programs: list[Work]) -> None:
    programs.append(works_on)

    @virtual_time
    async def run() -> None:
        wire = Wire()
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        assert lives(wire) == [(0, 0.0, None, "")]
        assert wire.replica.process is not None

        wire.replica.stop()
        await running
        assert lives(wire) == [(0, 0.0, 100.0, "stopped")]
        assert wire.replica.process is None

    run()


def test_a_killed_process_is_followed_by_another_one_after_its_pause(programs: list[Work]) -> None:
    programs.append(works_on)

    @virtual_time
    async def run() -> None:
        wire = Wire()
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        assert wire.replica.process is not None
        wire.replica.process.kill(20.0)
        wire.replica.process.kill(500.0)  # A process cannot die twice.
        await asyncio.sleep(100.0)
        assert lives(wire) == [(0, 0.0, 100.0, "killed"), (1, 120.0, None, "")]
        wire.replica.stop()
        await running

    run()


def test_a_process_that_fails_is_reported_and_started_again(programs: list[Work]) -> None:
    async def fails(client: KubeApiClient, stop: asyncio.Event) -> None:
        await asyncio.sleep(10.0)
        raise ValueError("what no one expected")

    programs += [fails, works_on]

    @virtual_time
    async def run() -> None:
        wire = Wire()
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        first, second_life = lives(wire)
        assert first == (0, 0.0, 10.0, "ValueError: what no one expected")
        assert second_life == (1, 10.0 + RESTART_SECONDS, None, "")
        wire.replica.stop()
        await running

    run()


def test_a_program_that_cancels_itself_has_failed(programs: list[Work]) -> None:
    async def gives_up(client: KubeApiClient, stop: asyncio.Event) -> None:
        raise asyncio.CancelledError

    programs += [gives_up, works_on]

    @virtual_time
    async def run() -> None:
        wire = Wire()
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        assert [(number, how) for number, _, _, how in lives(wire)] == [(0, "CancelledError: "), (1, "")]
        wire.replica.stop()
        await running

    run()


def test_a_replica_that_is_stopped_between_two_processes_starts_none(programs: list[Work]) -> None:
    programs.append(works_on)

    @virtual_time
    async def run() -> None:
        wire = Wire()
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        assert wire.replica.process is not None
        wire.replica.process.kill(20.0)
        await asyncio.sleep(10.0)
        wire.replica.stop()
        await running
        assert len(lives(wire)) == 1

    run()


def test_nothing_of_a_killed_process_reaches_the_server(programs: list[Work]) -> None:
    """Neither the writes of its `finally`, nor those of tasks that ignore cancellation, nor those already under way."""

    async def clings_to_life(client: KubeApiClient, stop: asyncio.Event) -> None:
        async def write(name: str) -> None:
            await api_verbs.create(client, JOBS, named(name), namespace=TEAM)

        async def insists() -> None:
            for number in range(5):
                try:
                    await asyncio.sleep(0.5)
                except asyncio.CancelledError:
                    await write(f"insists-{number}")

        await write("alive")
        side = asyncio.create_task(insists())
        try:
            await asyncio.gather(*(write(f"on-its-way-{number}") for number in range(50)), asyncio.sleep(100.0))
        finally:
            side.cancel()
            await write("last-will")

    programs += [clings_to_life, works_on]

    @virtual_time
    async def run() -> None:
        wire = Wire(at_event(FaultKind.PROCESS_KILL, 7, 20.0))
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        assert [how for _, _, _, how in lives(wire)] == ["killed", ""]
        assert wire.names() == ["alive"]
        assert {record.process for record in wire.requests} == {0}
        wire.replica.stop()
        await running

    run()


def test_numbers_of_requests_go_on_from_process_to_process(programs: list[Work]) -> None:
    async def reads(client: KubeApiClient, stop: asyncio.Event) -> None:
        for _ in range(3):
            await api_verbs.list_page(client, JOBS)
        await stop.wait()

    programs.append(reads)

    @virtual_time
    async def run() -> None:
        wire = Wire(at_event(FaultKind.PROCESS_KILL_AFTER, 1, 5.0))
        running = asyncio.create_task(wire.replica.run())
        await asyncio.sleep(100.0)
        told = [(record.process, record.number) for record in wire.requests]
        assert told == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)]
        wire.replica.stop()
        await running

    run()


@virtual_time
async def test_a_reconcile_that_failed_is_reported_unless_its_process_is_dead() -> None:
    wire = Wire()
    group = GroupKey("team-a", "llm")
    wire.process.telemetry.reconcile_finished(group, 0.1, None)
    wire.process.telemetry.reconcile_finished(group, 0.1, "ValueError")
    wire.process.kill(1.0)
    wire.process.telemetry.reconcile_finished(group, 0.1, "CancelledError")

    assert [(failed.group, failed.error, failed.actor) for failed in wire.evidence.failed_reconciles] == [
        (group, "ValueError", "controller-0")
    ]


@virtual_time
async def test_samples_are_what_metrics_tells() -> None:
    wire = Wire()
    before = dict(wire.process.telemetry.samples())
    wire.process.telemetry.reconcile_finished(GroupKey("team-a", "llm"), 0.1, "ValueError")
    after = wire.process.telemetry.samples()
    changed = [name for name, value in after.items() if before.get(name) != value and "created" not in name]
    assert any(name.startswith("recovery_") for name in changed), changed
    assert all(isinstance(value, float) for value in after.values())


# The production program.


def first_write(resource: str) -> int:
    """The number of the first write to that resource after a pod was lost, if no process is stopped."""
    return next(
        record.number
        for record in writes(outcome_of(in_world(FaultKind.POD_KILL)))
        if record.request.resource.plural == resource
    )


def test_a_killed_controller_says_nothing_until_the_next_one_starts() -> None:
    outcome = outcome_of(in_world(FaultKind.PROCESS_KILL, 100.0, 20.0))
    first, again = outcome.evidence.processes
    assert (first.ended_at, first.how, again.started_at) == (at(100), "killed", at(120))
    assert not [record for record in outcome.evidence.requests if at(100) < record.at < at(120)]
    assert outcome.violations == ()


def test_a_frozen_controller_says_nothing_and_goes_on() -> None:
    outcome = outcome_of(in_world(FaultKind.PROCESS_FREEZE, 100.0, 20.0))
    (life,) = outcome.evidence.processes
    assert life == ProcessLife("controller-0", 0, at(0), life.ended_at, "stopped")
    assert not [record for record in outcome.evidence.requests if at(100.01) < record.at < at(120)]
    assert [record for record in outcome.evidence.requests if at(120) <= record.at < at(125)]


@pytest.mark.parametrize("resource", ["recoverygroups", "jobs"])
@pytest.mark.parametrize("kind", [FaultKind.PROCESS_KILL, FaultKind.PROCESS_KILL_AFTER], ids=str)
def test_a_controller_that_is_stopped_at_a_write_recovers_the_group_once(kind: FaultKind, resource: str) -> None:
    number = first_write(resource)
    outcome = outcome_of(in_world(FaultKind.POD_KILL), at_event(kind, number, 15.0))
    evidence = outcome.evidence

    assert [life.how for life in evidence.processes] == ["killed", "stopped"]
    killed_at = evidence.processes[0].ended_at
    assert killed_at is not None
    assert evidence.processes[1].started_at == at(second(killed_at) + 15.0)
    sent = [record for record in evidence.requests if record.number == number]
    assert [(record.code, record.applied) for record in sent] == [(None, True)] * (kind is FaultKind.PROCESS_KILL_AFTER)
    assert {record.process for record in evidence.requests if record.at > killed_at} == {1}
    deletions = [
        record for record in writes(outcome) if record.applied and str(record.request).startswith("delete jobs")
    ]
    assert len(deletions) == 1
    assert outcome.violations == ()


def test_a_wrong_clock_shows_in_what_the_controller_writes() -> None:
    right = outcome_of(in_world(FaultKind.POD_KILL))
    jumped = outcome_of(at_event(FaultKind.CLOCK_JUMP, 5, 80.0), in_world(FaultKind.POD_KILL))

    def detected(outcome: Any) -> str:
        told = [
            change.body["status"]["incident"]["detectedAt"]
            for change in outcome.evidence.changes
            if change.resource.plural == "recoverygroups" and "incident" in change.body.get("status", {})
        ]
        return str(told[0])

    assert detected(right).startswith("2026-11-02T08:01:40")
    assert detected(jumped).startswith("2026-11-02T08:03:0")
