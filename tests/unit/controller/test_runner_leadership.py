"""The runner stands by, leads, and loses the lease. If a task ends that must not, the runner ends and names it."""

import asyncio

import pytest
from structlog.testing import capture_logs

from recovery import api_verbs
from recovery.background import BackgroundTaskError
from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.fleet_reconciler import FleetReconciler
from recovery.core.model.agent_facts import AgentAnswer
from recovery.ports import (
    JOBS,
    NotLeadingError,
)
from recovery.sim.virtual_time import virtual_time
from tests.unit.controller.runner_scene import ONE, OTHER, PinnedPolicy, Scene
from tests.unit.core.agents import asking
from tests.unit.core.groups import training

# --- standing by and leading -----------------------------------------------------------------------------------------


@virtual_time
async def test_a_standby_reconciles_nothing_and_at_everything_once_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    scene = Scene(monkeypatch, ONE, OTHER, leadership=terms)
    async with scene.running():
        await asyncio.sleep(60)
        scene.store.change(ONE)
        await asyncio.sleep(3600)
        assert (scene.reconciles.begun, scene.controller.queue_depth, scene.ears.leads) == ([], 0, [])
        terms.won.set()
        await asyncio.sleep(1)
        assert {key for key, _ in scene.reconciles.ended} == {ONE, OTHER}
        assert scene.ears.leads == [True]
        scene.store.change(ONE)
        await asyncio.sleep(1)
        assert len(scene.reconciles.of(ONE)) == 2
    assert scene.ears.leads == [True, False]


@virtual_time
async def test_no_one_stands_for_election_before_its_caches_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.store.is_synced = False
    async with scene.running():
        await asyncio.sleep(60)
        assert terms.term is None
        scene.store.is_synced = True
        await asyncio.sleep(1)
        assert scene.ears.leads == [True]


@virtual_time
async def test_who_loses_the_lease_drops_everything_at_once_and_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, OTHER, leadership=terms)
    scene.reconciles.seconds = 100
    with capture_logs() as said:
        async with scene.running() as task:
            await asyncio.sleep(5)
            scene.store.change(ONE)
            assert scene.reconciles.at_once == 2
            terms.lost.set_result("two holds the lease")
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            assert scene.reconciles.at_once == 0
            assert not task.done()
            scene.store.change(ONE)
            await asyncio.sleep(3600)
            assert (len(scene.reconciles.begun), scene.reconciles.ended, scene.controller.queue_depth) == (2, [], 0)
            assert scene.ears.leads == [True, False]
            terms.won.set()
            await asyncio.sleep(1)
            assert scene.reconciles.at_once == 2, "every group is looked at in the new term"
            scene.stop.set()
    events = [line["event"] for line in said]
    assert events == [
        "all caches are synced; watching",
        "leading",
        "no longer leading: two holds the lease",
        "leading",
        "no longer leading: asked to stop",
    ]


@virtual_time
async def test_reports_reach_the_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = AgentExchange()
    scene = Scene(monkeypatch, ONE, agents=agents)
    async with scene.running():
        await asyncio.sleep(1)
        facts = asking(training(), 0).agent
        assert facts is not None
        agents.reported(ONE, facts)
        assert scene.ears.reports == [(ONE, facts)]


@virtual_time
async def test_a_term_knows_no_report_of_the_term_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another leader has acted in between."""
    terms, agents = PinnedPolicy(), AgentExchange()
    terms.won.set()
    async with Scene(monkeypatch, ONE, leadership=terms, agents=agents).running():
        await asyncio.sleep(1)
        facts = asking(training(), 0).agent
        assert facts is not None
        agents.reported(ONE, facts)
        agents.answer(ONE, facts.sequence, AgentAnswer(permitted=True))
        terms.lost.set_result("two holds the lease")
        await asyncio.sleep(60)
        terms.won.set()
        await asyncio.sleep(1)
        assert agents.facts(ONE) is None
        assert await agents.answer_to(ONE, facts.sequence, 0.01) is None


@virtual_time
async def test_what_a_reconcile_of_an_ended_term_still_writes_is_stopped_even_in_the_next_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    async with scene.running():
        await asyncio.sleep(1)
        await api_verbs.delete(scene.apis[0], JOBS, "train", namespace="ml")
        terms.lost.set_result("two holds the lease")
        terms.won.set()
        await asyncio.sleep(1)
        first, second = scene.apis
        with pytest.raises(NotLeadingError):
            await api_verbs.delete(first, JOBS, "train", namespace="ml")
        await api_verbs.delete(second, JOBS, "train", namespace="ml")


@virtual_time
async def test_a_reconcile_that_may_not_write_any_more_is_no_failure_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [NotLeadingError("patch recoverygroups: not sent")]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(60)
            assert len(scene.reconciles.of(ONE)) == 1
            assert scene.ears.finished == [(ONE, None)]
    assert {line["log_level"] for line in said} == {"info"}


@virtual_time
async def test_the_lease_is_released_when_the_reconciles_in_progress_are_over_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(5)
        assert terms.released_at == []
        assert terms.term is not None
        assert terms.term.lasts, "the look may write to its end"
        await asyncio.sleep(1)
        assert task.done()
        assert not terms.term.lasts
    [(_, ended_at)] = scene.reconciles.ended
    assert terms.released_at == [ended_at]


@virtual_time
async def test_a_lease_that_is_lost_during_the_stop_ends_the_reconciles_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = PinnedPolicy()
    terms.won.set()
    scene = Scene(monkeypatch, ONE, leadership=terms)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(1)
        terms.lost.set_result("two holds the lease")
        await asyncio.sleep(1)
        assert task.done()
    assert scene.reconciles.ended == []


@virtual_time
async def test_a_standby_that_is_told_to_stop_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE, leadership=PinnedPolicy())
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(0.001)
        assert task.done()
    assert scene.ears.leads == []


# --- what runs beside the reconciles ---------------------------------------------------------------------------------


async def _ended(scene: Scene) -> BackgroundTaskError:
    """The error with which the controller ends without a request to stop."""
    with pytest.raises(BackgroundTaskError) as raised:
        await asyncio.wait_for(scene.controller.run(scene.stop), 60)
    return raised.value


@virtual_time
async def test_a_resync_that_fails_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    monkeypatch.setattr(scene.store, "collected", lambda: 1 / 0)
    error = await _ended(scene)
    assert (error.task, error.why) == ("resync", "ZeroDivisionError: division by zero")


@virtual_time
async def test_a_resync_that_fails_ends_the_reconciles_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 3600
    asyncio.get_running_loop().call_later(5, lambda: monkeypatch.setattr(scene.store, "collected", lambda: 1 / 0))
    with pytest.raises(BackgroundTaskError):
        await asyncio.wait_for(scene.controller.run(scene.stop), 601)
    assert scene.reconciles.at_once == 0


@virtual_time
async def test_a_review_of_the_fleet_that_fails_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: FleetReconciler) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(FleetReconciler, "run", fails)
    assert (await _ended(Scene(monkeypatch, ONE))).task == "fleet review"


@virtual_time
async def test_a_review_that_finds_its_term_over_leaves_the_end_to_the_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def returns(_: FleetReconciler) -> None:
        return

    monkeypatch.setattr(FleetReconciler, "run", returns)
    scene = Scene(monkeypatch, ONE)
    async with scene.running():
        await asyncio.sleep(700)
    assert len(scene.reconciles.of(ONE)) == 2


@virtual_time
async def test_a_bug_around_a_reconcile_ends_the_controller_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its group would never be queued again, and nothing would report the bug."""
    scene = Scene(monkeypatch, ONE)
    monkeypatch.setattr(scene.ears, "reconcile_finished", lambda *_: 1 / 0)
    assert (await _ended(scene)).task == "reconciles"
