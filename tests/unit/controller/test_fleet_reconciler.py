"""The FleetReconciler completes, adopts and releases quarantines. It may end between any two writes."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.controller.fleet_reconciler import REVIEW_SECONDS, FleetReconciler
from recovery.core.model.annotations import RELEASE_ANNOTATION, RESET_BREAKER_ANNOTATION
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetChange, FleetLedger, Futile, Suspicion
from recovery.executors.node_quarantine import quarantine_by_hand, release_by_hand
from recovery.ports import (
    EVENTS,
    NODES,
    RECOVERY_CONFIGS,
    ForbiddenError,
    NotLeadingError,
    PatchKind,
    Resource,
    UndecodableError,
    UnknownOutcomeError,
)
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.scene import Scene, lost
from tests.unit.core.world import at
from tests.unit.executors.fleet import Fleet, Store

ALLOWED = {"allow": {"cordon": True}}
FOR_A_MINUTE = {**ALLOWED, "quarantine": {"releaseAfter": "60s"}}
LOST = UnknownOutcomeError("the connection was lost")
MAINTENANCE = {"key": "team/maintenance", "value": "fan", "effect": "NoSchedule"}


def fleet_reconciler(fleet: Fleet, store: Store | None = None) -> FleetReconciler:
    """The FleetReconciler of a process that has just begun to lead."""
    store = store or Store(fleet)
    return FleetReconciler(api=fleet.client, store=store, clock=fleet.clock, fleet=fleet.writer(store))


async def quarantine(fleet: Fleet, name: str = "gpu-1", **fields: Any) -> None:
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(name, **fields),)))


async def reconcile(fleet: Fleet, seconds: float | None = None) -> float | None:
    """A review by a new leader; returns the seconds until the next one is due."""
    if seconds is not None:
        fleet.clock.seconds = seconds
    due = await fleet_reconciler(fleet).reconcile()
    return None if due is None else (due - fleet.clock.now()).total_seconds()


def annotate(fleet: Fleet, seconds: int, name: str = "gpu-1") -> None:
    """A person requests a release with kubectl alone."""
    fleet.patch_node(name, {"metadata": {"annotations": {RELEASE_ANNOTATION: f"2026-11-21T12:00:{seconds:02}Z"}}})


# --- completing ----------------------------------------------------------------------------------------------------


async def test_a_quarantine_that_is_seen_on_its_node_is_marked_and_costs_nothing_more() -> None:
    fleet = Fleet(spec=ALLOWED)
    await quarantine(fleet)
    assert await reconcile(fleet) is None
    assert fleet.entry.applied
    before, gets = list(fleet.client.patched), fleet.client.plurals("get")
    store = Store(fleet)
    await fleet_reconciler(fleet, store).reconcile()
    assert (fleet.client.patched, fleet.client.plurals("get")) == (before, gets)
    assert (store.read_nodes, store.read_configs) == ([], 0)


async def test_a_leader_that_crashed_before_it_touched_the_node_is_followed_by_one_that_does() -> None:
    fleet = Fleet(spec=ALLOWED)
    fleet.client.next("patch", NODES, LOST)
    with pytest.raises(UnknownOutcomeError):
        await quarantine(fleet)
    assert fleet.quarantined == []
    await reconcile(fleet)
    assert (fleet.quarantined, fleet.entry.applied) == (["gpu-1"], True)


@pytest.mark.parametrize("spec", [{"allow": {"cordon": False}}, {**ALLOWED, "paused": True}])
async def test_nothing_is_completed_where_it_is_no_longer_allowed(spec: dict[str, Any]) -> None:
    fleet = Fleet(spec=ALLOWED)
    fleet.client.next("patch", NODES, LOST)
    with pytest.raises(UnknownOutcomeError):
        await quarantine(fleet)
    fleet.patch_config({"spec": spec})
    fleet.client.requests.clear()
    await reconcile(fleet)
    assert (fleet.client.patched, fleet.quarantined) == ([], [])


async def test_one_node_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    fleet = Fleet(spec={**ALLOWED, "quarantine": {"maxPercent": 100}})
    for name in ("gpu-1", "gpu-2"):
        fleet.client.next("patch", NODES, LOST)
        with pytest.raises(UnknownOutcomeError):
            await quarantine(fleet, name)
    fleet.client.next("patch", NODES, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await reconcile(fleet)
    assert len(fleet.quarantined) == 1
    await reconcile(fleet)
    assert fleet.quarantined == ["gpu-1", "gpu-2"]


async def test_one_node_that_cannot_be_read_does_either() -> None:
    fleet = Fleet(spec={**ALLOWED, "quarantine": {"maxPercent": 100}})
    for name in ("gpu-1", "gpu-2"):
        fleet.client.next("patch", NODES, LOST)
        with pytest.raises(UnknownOutcomeError):
            await quarantine(fleet, name)
    store = Store(fleet)
    store.unreadable = "gpu-1"
    await fleet_reconciler(fleet, store).reconcile()
    assert "gpu-2" in fleet.quarantined
    store.freeze()
    store.hide("gpu-1")
    with pytest.raises(UndecodableError, match="Node gpu-1 cannot be read"):
        await fleet_reconciler(fleet, store).reconcile()
    assert [each.node for each in fleet.ledger.quarantined] == ["gpu-1", "gpu-2"], "what is not known is not gone"


# --- releasing -----------------------------------------------------------------------------------------------------


async def test_time_releases_a_node_and_the_entry_goes_last() -> None:
    fleet = Fleet(spec=FOR_A_MINUTE)
    await quarantine(fleet)
    assert await reconcile(fleet, 20) == 45
    assert fleet.quarantined == ["gpu-1"]
    fleet.client.requests.clear()
    assert await reconcile(fleet, 65) is None
    assert fleet.client.patched == ["recoveryconfigs default", "nodes gpu-1", "recoveryconfigs default"]
    assert (fleet.quarantined, fleet.cordoned("gpu-1"), fleet.ledger) == ([], False, FleetLedger())


@pytest.mark.parametrize("lost", [NODES, RECOVERY_CONFIGS], ids=lambda resource: resource.plural)
async def test_a_release_that_a_crash_cut_short_is_finished_by_the_next_leader(lost: Resource) -> None:
    fleet = Fleet(spec=FOR_A_MINUTE)
    await quarantine(fleet)
    await reconcile(fleet)
    fleet.client.next("patch", lost, LOST)
    with pytest.raises(UnknownOutcomeError):
        await reconcile(fleet, 65)
    await reconcile(fleet, 66)
    assert (fleet.quarantined, fleet.cordoned("gpu-1"), fleet.ledger) == ([], False, FleetLedger())


async def test_health_releases_a_node() -> None:
    fleet = Fleet(spec=ALLOWED)
    sick = {"type": "GpuUnhealthy", "status": "True"}
    ready = fleet.node("gpu-1")["status"]["conditions"]

    def set_conditions(*conditions: dict[str, str]) -> None:
        body = {"status": {"conditions": [*ready, *conditions]}}
        fleet.server.patch(NODES, "gpu-1", body, kind=PatchKind.MERGE, subresource="status")

    set_conditions(sick)
    await quarantine(fleet, release_when="GpuUnhealthy")
    await reconcile(fleet, 3600)
    assert fleet.quarantined == ["gpu-1"]
    set_conditions({**sick, "status": "False"})
    await reconcile(fleet)
    assert (fleet.quarantined, fleet.ledger) == ([], FleetLedger())


@pytest.mark.parametrize("spec", [ALLOWED, {"allow": {"cordon": False}}, {**ALLOWED, "paused": True}])
async def test_a_person_releases_a_node_whatever_is_allowed_or_paused(spec: dict[str, Any]) -> None:
    fleet = Fleet(spec=ALLOWED)
    await quarantine(fleet)
    await reconcile(fleet)
    fleet.patch_config({"spec": spec})
    annotate(fleet, 20)
    await reconcile(fleet, 30)
    assert (fleet.quarantined, fleet.cordoned("gpu-1"), fleet.ledger) == ([], False, FleetLedger())


async def test_a_release_by_hand_takes_the_suspicions_with_it_also_of_a_node_that_was_only_suspected() -> None:
    fleet = Fleet(spec=ALLOWED)
    held = tuple(Suspicion(f"gpu-{number}", "inc-1", at(5), "an exit", "ml") for number in (1, 2, 3))
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted("gpu-1"),), suspicions=held))
    annotate(fleet, 20)
    annotate(fleet, 20, "gpu-2")
    await reconcile(fleet, 30)
    assert fleet.quarantined == []
    assert [each.node for each in fleet.ledger.suspicions] == ["gpu-3"]


async def test_a_release_leaves_the_taint_and_the_cordon_of_others() -> None:
    fleet = Fleet(spec=FOR_A_MINUTE)
    fleet.patch_node("gpu-1", {"spec": {"unschedulable": True, "taints": [MAINTENANCE]}})
    await quarantine(fleet)
    await reconcile(fleet)
    assert fleet.entry.cordoned is False
    await reconcile(fleet, 65)
    assert (fleet.taints("gpu-1"), fleet.cordoned("gpu-1")) == (["maintenance=fan"], True)


async def test_a_taint_that_a_person_took_away_ends_the_quarantine_and_leaves_the_cordon_to_them() -> None:
    fleet = Fleet(spec=ALLOWED)
    await quarantine(fleet)
    await reconcile(fleet)
    fleet.patch_node("gpu-1", {"spec": {"taints": [MAINTENANCE]}})
    await reconcile(fleet)
    assert fleet.ledger == FleetLedger()
    assert (fleet.taints("gpu-1"), fleet.cordoned("gpu-1"), fleet.annotated("gpu-1")) == (
        ["maintenance=fan"],
        True,
        False,
    )


async def test_a_person_who_released_a_node_is_not_overruled_by_what_was_decided_before() -> None:
    fleet = Fleet(spec=ALLOWED)
    fleet.client.next("patch", NODES, LOST)
    with pytest.raises(UnknownOutcomeError):
        await quarantine(fleet)
    annotate(fleet, 8)
    await reconcile(fleet)
    assert (fleet.quarantined, fleet.ledger) == ([], FleetLedger())


async def test_a_node_that_is_gone_is_dropped_and_one_that_only_the_cache_lacks_is_not() -> None:
    fleet = Fleet(spec=ALLOWED)
    newcomer = Store(fleet)
    await quarantine(fleet)
    await reconcile(fleet)
    newcomer.freeze()
    newcomer.hide("gpu-1")
    await fleet_reconciler(fleet, newcomer).reconcile()
    assert (fleet.entry.node, fleet.quarantined) == ("gpu-1", ["gpu-1"])
    fleet.server.delete(NODES, "gpu-1")
    await reconcile(fleet)
    assert fleet.ledger == FleetLedger()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("write", range(1, 9))
async def test_wherever_a_leader_ends_the_next_one_goes_on(write: int, applied: bool) -> None:
    """Two nodes are quarantined, marked, released by time, and forgotten. The leader ends at each of the 8 writes."""
    fleet = Fleet(spec={**ALLOWED, "quarantine": {"maxNodes": 2, "maxPercent": 100, "releaseAfter": "60s"}})
    wanted = FleetChange(quarantine=(fleet.wanted("gpu-1"), fleet.wanted("gpu-2")))
    fleet.client.ends_at, fleet.client.applies_the_last = write, applied

    async def at_least_once(
        work: Coroutine[Any, Any, object], again: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        try:
            await work
        except NotLeadingError:
            fleet.client.restart()
            await again()

    await at_least_once(fleet.writer().change(wanted), lambda: fleet.writer().change(wanted))
    await at_least_once(fleet_reconciler(fleet).reconcile(), fleet_reconciler(fleet).reconcile)
    assert (fleet.quarantined, [each.applied for each in fleet.ledger.quarantined]) == (
        ["gpu-1", "gpu-2"],
        [True, True],
    )
    fleet.clock.seconds = 65
    await at_least_once(fleet_reconciler(fleet).reconcile(), fleet_reconciler(fleet).reconcile)
    assert (fleet.quarantined, fleet.ledger) == ([], FleetLedger())
    assert [fleet.cordoned(name) for name in ("gpu-1", "gpu-2")] == [False, False]
    assert fleet.client.ends_at is None, "there were so many writes"


# --- adopting ------------------------------------------------------------------------------------------------------


async def test_a_persons_quarantine_is_taken_in_counts_and_is_released_by_them() -> None:
    fleet = Fleet(spec={**FOR_A_MINUTE, "quarantine": {"maxNodes": 1, "releaseAfter": "60s"}})
    by_hand = fleet.wanted(incident="", by="jane", reason="fan noise")
    await quarantine_by_hand(fleet.client, by_hand)
    await reconcile(fleet)
    assert (fleet.entry.by, fleet.entry.reason, fleet.entry.applied) == ("jane", "fan noise", True)
    await reconcile(fleet, 3600)
    assert fleet.quarantined == ["gpu-1"], "time does not end what a person began"
    await release_by_hand(fleet.client, "gpu-1", "2026-11-21T13:00:00Z")
    await reconcile(fleet)
    assert (fleet.quarantined, fleet.ledger) == ([], FleetLedger())


async def test_a_ledger_that_was_lost_is_recreated_from_what_the_nodes_tell() -> None:
    fleet = Fleet(spec=FOR_A_MINUTE)
    await quarantine(fleet)
    fleet.server.patch(
        RECOVERY_CONFIGS, "default", {"status": {"quarantined": None}}, kind=PatchKind.MERGE, subresource="status"
    )
    await reconcile(fleet)
    assert (fleet.entry.incident, fleet.entry.release_at) == ("inc-1", at(65))
    await reconcile(fleet, 65)
    assert (fleet.quarantined, fleet.ledger) == ([], FleetLedger())


async def test_what_has_just_been_released_is_not_taken_in_by_a_cache_that_lags() -> None:
    fleet = Fleet(spec=FOR_A_MINUTE)
    await quarantine(fleet)
    await reconcile(fleet)
    lags = Store(fleet)
    lags.freeze()
    await reconcile(fleet, 65)
    lags.see_config()
    await fleet_reconciler(fleet, lags).reconcile()
    assert fleet.ledger == FleetLedger()


@pytest.mark.parametrize("spec", [None, {"allow": {"cordon": False}}, {**ALLOWED, "paused": True}])
async def test_without_a_config_or_permission_nothing_is_written(spec: dict[str, Any] | None) -> None:
    fleet = Fleet(spec=spec)
    await quarantine_by_hand(fleet.client, fleet.wanted(incident="", by="jane"))
    fleet.client.requests.clear()
    assert await reconcile(fleet) is None
    assert fleet.client.patched == []


async def test_a_foreign_taint_of_our_key_stays() -> None:
    fleet = Fleet(spec=ALLOWED)
    foreign = {"key": QUARANTINE_TAINT, "value": "somebody", "effect": "NoExecute"}
    fleet.patch_node("gpu-1", {"spec": {"taints": [foreign]}})
    await reconcile(fleet)
    assert (fleet.taints("gpu-1"), fleet.ledger) == (["quarantined=somebody"], FleetLedger())


# --- the breaker ---------------------------------------------------------------------------------------------------


async def test_a_person_closes_the_breaker() -> None:
    fleet = Fleet(spec={**ALLOWED, "circuitBreaker": {"recoveries": 1}})
    await fleet.writer().change(FleetChange(futile=(Futile("inc-1", at(5), "inc-1", "llm"),)))
    assert fleet.ledger.breaker is not None
    await reconcile(fleet)
    assert fleet.ledger.breaker is not None
    fleet.patch_config({"metadata": {"annotations": {RESET_BREAKER_ANNOTATION: "2026-11-21T12:00:20Z"}}})
    await reconcile(fleet, 21)
    await reconcile(fleet, 60)
    assert fleet.ledger == FleetLedger()
    told = [event["reason"] for event in fleet.server.objects(EVENTS)]
    assert told == ["CircuitBreakerOpened", "CircuitBreakerClosed"]


# --- the loop ------------------------------------------------------------------------------------------------------


class Reviews(FleetReconciler):
    """Counts its reviews and answers as a test sets."""

    def __init__(self, fleet: Fleet, *answers: object) -> None:
        super().__init__(api=fleet.client, store=Store(fleet), clock=VirtualClock(), fleet=fleet.writer())
        self.writer = self._fleet
        self.answers = list(answers)
        self.at_seconds: list[float] = []

    async def reconcile(self) -> Any:
        self.at_seconds.append(round(VirtualClock().monotonic_seconds()))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def running(reviews: Reviews, seconds: float) -> None:
    task = asyncio.create_task(reviews.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@virtual_time
async def test_it_reviews_on_a_timer_and_when_something_is_due() -> None:
    began = VirtualClock().now()
    reviews = Reviews(Fleet(), began + timedelta(seconds=12), began + timedelta(hours=1))
    start = VirtualClock().monotonic_seconds()
    await running(reviews, 80)
    assert [each - round(start) for each in reviews.at_seconds] == [0, 12, 12 + REVIEW_SECONDS, 12 + 2 * REVIEW_SECONDS]


@virtual_time
async def test_a_change_is_reviewed_soon_together_with_those_that_follow_it() -> None:
    reviews = Reviews(Fleet())
    task = asyncio.create_task(reviews.run())
    start = VirtualClock().monotonic_seconds()
    await asyncio.sleep(5)
    for _ in range(3):
        reviews.writer.changed.set()
        await asyncio.sleep(0.2)
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [each - round(start) for each in reviews.at_seconds] == [0, 6]


@virtual_time
async def test_trouble_is_told_once_and_does_not_end_it() -> None:
    reviews = Reviews(Fleet(), LOST, LOST, None, LOST, RuntimeError("a bug"))
    with capture_logs() as logs:
        await running(reviews, 130)
    assert len(reviews.at_seconds) == 5
    assert [each["log_level"] for each in logs] == ["warning", "info", "warning", "error"]


@virtual_time
async def test_who_no_longer_leads_ends_quietly() -> None:
    reviews = Reviews(Fleet(), NotLeadingError("the term is over"))
    with capture_logs() as logs:
        await asyncio.wait_for(reviews.run(), 1)
    assert (logs, len(reviews.at_seconds)) == ([], 1)


@pytest.mark.parametrize("closed", [False, True])
async def test_each_line_about_a_quarantine_names_its_incident_and_the_job_of_that(closed: bool) -> None:
    scene = Scene()
    await scene.reconcile()
    assert scene.api.ledger.incident is not None
    incident = scene.api.ledger.incident.id
    if closed:
        scene.store.becomes(lost().job_deleted(1).recreated(5).all_ready(20))
        await scene.reconcile(21)
        await scene.reconcile(22)
        assert [each.id for each in scene.api.ledger.history] == [incident]
    fleet = Fleet(spec=FOR_A_MINUTE)
    store = Store(fleet)
    await quarantine(fleet, incident=incident, release_at=at(60))
    ledgers = tuple(scene.api.groups.values())
    with capture_logs() as said:
        for seconds in (20, 70):
            fleet.clock.seconds = seconds
            store.ledger_objects = lambda: ledgers  # type: ignore[method-assign]
            await fleet_reconciler(fleet, store).reconcile()
    assert [line["event"] for line in said] == ["quarantined", "releasing a node", "quarantine ended"]
    assert {(line["node"], line["incident"], line["job"]) for line in said} == {("gpu-1", incident, "ml/train")}


async def test_a_quarantine_by_hand_has_neither() -> None:
    fleet = Fleet(spec=ALLOWED)
    await quarantine_by_hand(fleet.client, fleet.wanted(incident="", by="jane"))
    with capture_logs() as said:
        await reconcile(fleet)
    assert [(line["event"], line["node"]) for line in said] == [("quarantine taken in", "gpu-1")]
    assert {"incident", "job"}.isdisjoint(said[0])
