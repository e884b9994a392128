"""The loop around the reconciles: when it starts, which failures it survives, and how it stops."""

import asyncio

import pytest
from structlog.testing import capture_logs

from recovery.controller.incident_sweeper import FIRST_AFTER_SECONDS, SWEEP_SECONDS
from recovery.controller.readable_ledger import LedgerUnreadableError
from recovery.controller.reconciler import InvariantError, RestlessGroupError
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.ports import (
    RECOVERY_INCIDENTS,
    ConflictError,
    ForbiddenError,
    NamespaceTerminatingError,
    NotLeadingError,
    TryLaterError,
    UnknownOutcomeError,
)
from recovery.sim.virtual_time import virtual_time
from tests.unit.controller.runner_scene import ONE, OTHER, PinnedPolicy, Scene

# --- the beginning ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_reconciled_before_all_caches_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.is_synced = False
    async with scene.running():
        await asyncio.sleep(30)
        assert scene.reconciles.begun == []
        assert scene.store.changed is None
        scene.store.is_synced = True
        await asyncio.sleep(1)
        assert len(scene.reconciles.of(ONE)) == 1


@virtual_time
async def test_a_stop_before_the_caches_are_synced_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.is_synced = False
    async with scene.running() as task:
        await asyncio.sleep(30)
        scene.stop.set()
        await asyncio.sleep(1)
        assert task.done()
    assert scene.reconciles.begun == []


# --- beside the reconciles -------------------------------------------------------------------------------------------


@virtual_time
async def test_who_leads_sweeps_the_records_of_incidents_and_who_stands_by_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE, leadership=(elected := PinnedPolicy()))
    async with scene.running():
        await asyncio.sleep(2 * FIRST_AFTER_SECONDS)
        assert scene.api.sent("list", RECOVERY_INCIDENTS) == []
        elected.won.set()
        await asyncio.sleep(FIRST_AFTER_SECONDS + 1)
        assert len(scene.api.sent("list", RECOVERY_INCIDENTS)) == 1
        elected.lost.set_result("another one leads")
        await asyncio.sleep(2 * SWEEP_SECONDS)
        assert len(scene.api.sent("list", RECOVERY_INCIDENTS)) == 1


# --- level-triggered -------------------------------------------------------------------------------------------------


@virtual_time
async def test_every_group_is_reconciled_at_first_and_every_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE, OTHER)
    async with scene.running():
        await asyncio.sleep(1)
        scene.store.known.append(late := GroupKey("ml", "late"))
        await asyncio.sleep(1300)
        for key, reconciles in ((ONE, 3), (OTHER, 3), (late, 2)):
            assert [round(at / 600) for at in scene.reconciles.of(key)] == [0, 1, 2][-reconciles:]


@virtual_time
async def test_a_ledger_whose_job_went_while_no_one_led_is_reconciled_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    for key in (ONE, OTHER):
        ledger = LedgerObject(f"{key.name}-uid", key.namespace, "group", "1", "uid", key.name, Ledger())
        scene.store.ledgers.append(ledger)
    async with scene.running():
        await asyncio.sleep(1)
        assert sorted(key for key, _ in scene.reconciles.begun) == [ONE, OTHER]


@virtual_time
async def test_a_group_whose_ledger_vanished_as_well_is_reconciled_by_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.store.ledgers_gone.append(OTHER)
    async with scene.running():
        await asyncio.sleep(1)
        assert sorted(key for key, _ in scene.reconciles.begun) == [ONE, OTHER]


@virtual_time
async def test_a_possible_loss_is_reconciled_within_milliseconds_and_other_changes_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE, OTHER)
    async with scene.running():
        await asyncio.sleep(10)
        for key, loss in ((ONE, True), (OTHER, False)):
            scene.store.change(key, loss=loss)
            scene.store.change(key)
        await asyncio.sleep(1)
        assert [round(at, 3) for at in scene.reconciles.of(ONE)] == [0.005, 10.005]
        assert [round(at, 3) for at in scene.reconciles.of(OTHER)] == [0.005, 10.05]


@virtual_time
async def test_a_group_with_an_open_incident_is_urgent_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    async with scene.running():
        await asyncio.sleep(10)
        scene.reconciles.incidents.add(ONE)
        scene.store.change(ONE)
        await asyncio.sleep(10)
        scene.reconciles.incidents.clear()
        scene.store.change(ONE)
        await asyncio.sleep(1)
        assert [round(at, 3) for at in scene.reconciles.of(ONE)] == [0.005, 10.005, 20.05]


@virtual_time
async def test_a_retry_after_a_conflict_is_urgent_as_the_loss_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group may have no ledger yet that says so."""
    scene = Scene(monkeypatch, ONE, *(GroupKey("ml", f"healthy-{number}") for number in range(600)))
    async with scene.running():
        await asyncio.sleep(5)
        scene.reconciles.begun.clear()
        scene.reconciles.failures[ONE] = [ConflictError("the Job has changed", status=409)]
        for key in scene.store.known:
            scene.store.change(key, loss=key == ONE)
        await asyncio.sleep(0.01)
        scene.reconciles.seconds = 0.2
        await asyncio.sleep(10)
    order = [key for key, _ in scene.reconciles.begun]
    assert order[0] == ONE
    assert order.index(ONE, 1) < 300, "as soon as one of the 256 that began before has ended"


@virtual_time
async def test_a_reconcile_is_repeated_when_it_asked_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.again_in[ONE] = [60.0, -5.0]
    async with scene.running():
        await asyncio.sleep(100)
        assert [round(at) for at in scene.reconciles.of(ONE)] == [0, 60, 60], "a time that has passed is now"


@virtual_time
async def test_reconciles_at_once_are_bounded_and_never_two_at_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [GroupKey("ml", f"job-{number}") for number in range(300)]
    scene = Scene(monkeypatch, *keys)
    scene.reconciles.seconds = 1
    async with scene.running():
        await asyncio.sleep(0.5)
        scene.store.change(keys[0])
        assert scene.reconciles.at_once == 256
        await asyncio.sleep(10)
        assert scene.reconciles.most_at_once == 256
        assert {key for key, _ in scene.reconciles.ended} == set(keys)
        first, second = scene.reconciles.of(keys[0])
        assert second >= first + 1


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        ZeroDivisionError("a bug"),
        InvariantError("Epoch: goes from 0 to 5"),
        LedgerUnreadableError("schemaVersion 2"),
        RestlessGroupError("changed"),
        TryLaterError("later", status=429),
        ForbiddenError("no", status=403),
        UnknownOutcomeError("lost"),
        asyncio.CancelledError("of a future that it waited for"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_one_groups_failure_never_stops_the_others_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    @virtual_time
    async def play() -> None:
        scene = Scene(monkeypatch, ONE, OTHER)
        scene.reconciles.failures[ONE] = [failure, failure]
        async with scene.running() as task:
            await asyncio.sleep(10)
            scene.store.change(OTHER)
            await asyncio.sleep(10)
            assert not task.done()
            assert [round(at, 3) for at in scene.reconciles.of(ONE)] == [0.005, 0.105, 0.305]
            assert len([key for key, _ in scene.reconciles.ended if key == OTHER]) == 2
            name = type(failure).__name__
            assert [error for key, error in scene.ears.finished if key == ONE] == [name, name, None]

    play()


@virtual_time
async def test_what_is_forbidden_is_a_warning_and_what_stays_so_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that has just started has not loaded the roles yet."""
    scene = Scene(monkeypatch, ONE)
    failures: list[Exception] = [TryLaterError("gone")] * 20
    scene.reconciles.failures[ONE] = [*failures, *[ForbiddenError("no", status=403)] * 4]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(900)
    # A group that fails is reconciled every 30 seconds.
    assert [line["log_level"] for line in said if line.get("error") == "no"] == ["warning", "warning", "error", "error"]


@virtual_time
async def test_what_goes_with_its_namespace_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [NamespaceTerminatingError("it is being terminated", status=403)]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(5)
    assert [line["log_level"] for line in said if line.get("error")] == ["info"]


@virtual_time
async def test_the_line_of_a_reconcile_that_failed_names_the_job_and_its_open_incident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [
        TryLaterError("gone"),
        RestlessGroupError("it changes"),
        LedgerUnreadableError("it is newer"),
        InvariantError("no"),
        ValueError("a bug"),
        NotLeadingError("the term is over"),
    ]
    with capture_logs() as said:
        async with scene.running():
            await asyncio.sleep(300)
    lines = [line for line in said if "error" in line]
    assert [(line["job"], line["incident"]) for line in lines] == 6 * [("ml/one", "i-1")]


@virtual_time
async def test_success_makes_the_next_failure_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.failures[ONE] = [ValueError("one"), ValueError("two"), ValueError("three")]
    async with scene.running():
        await asyncio.sleep(5)
        scene.reconciles.failures[ONE] = [ValueError("another")]
        scene.store.change(ONE, loss=True)
        await asyncio.sleep(5)
        assert [round(at, 3) for at in scene.reconciles.of(ONE)][-2:] == [5.005, 5.105]


# --- the end ---------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_stop_lets_the_reconcile_in_progress_finish_and_begins_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 10
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.store.change(OTHER, loss=True)
        scene.store.change(ONE, loss=True)
        scene.stop.set()
        await asyncio.sleep(4)
        assert not task.done()
        await asyncio.sleep(2)
        assert task.done()
    assert scene.reconciles.ended == [(ONE, 10.005)]
    assert scene.reconciles.of(OTHER) == []


@virtual_time
async def test_a_reconcile_that_never_ends_is_cut_off_before_the_process_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, ONE)
    scene.reconciles.seconds = 1e6
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(21)
        assert task.done()
    assert scene.reconciles.ended == []


@virtual_time
async def test_the_same_when_more_groups_wait_than_may_be_reconciled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *(GroupKey("ml", f"job-{number}") for number in range(300)))
    scene.reconciles.seconds = 1e6
    async with scene.running() as task:
        await asyncio.sleep(5)
        scene.stop.set()
        await asyncio.sleep(21)
        assert task.done()
    assert len(scene.reconciles.begun) == 256


@virtual_time
async def test_depth_is_that_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *(GroupKey("ml", f"job-{number}") for number in range(300)))
    scene.reconciles.seconds = 100
    async with scene.running():
        await asyncio.sleep(1)
        assert scene.controller.queue_depth == 300 - 256, "256 are looked at, and no other is taken"
        scene.reconciles.seconds = 0
        await asyncio.sleep(150)
        assert scene.controller.queue_depth == 0
