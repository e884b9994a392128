"""Writes of the fleet's ledger: one writer at a time swaps it, within its caps, and before any node changes."""

import asyncio
import json
from collections.abc import Iterable

import pytest
from structlog.testing import capture_logs

from recovery.core.fleet.counted_marks import mark_of
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import BY_HAND, QUARANTINE_TAINT, FleetChange, Futile, Suspicion
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import Mode, PolicySpec
from recovery.executors.fleet_ledger import QuarantineRefusedError
from recovery.executors.node_quarantine import release_by_hand
from recovery.ports import (
    EVENTS,
    NODES,
    RECOVERY_CONFIGS,
    ConflictError,
    ForbiddenError,
    PatchKind,
    UnknownOutcomeError,
)
from tests.unit.core.fleet.test_totals import closed
from tests.unit.core.world import at
from tests.unit.executors.fleet import STALE, Fleet, Store

ALLOWED = {"allow": {"cordon": True}}
ONE = {**ALLOWED, "quarantine": {"maxNodes": 1, "maxPercent": 100}}
ALL = {**ALLOWED, "quarantine": {"maxPercent": 100}}
ACCEPTED = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "",
    "lastTransitionTime": "2026-11-21T11:00:00Z",
}


async def test_the_ledger_is_written_before_the_node() -> None:
    fleet = Fleet(spec=ALLOWED)
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    assert fleet.client.patched == ["recoveryconfigs default", "nodes gpu-1"]
    assert (fleet.entry, fleet.quarantined) == (fleet.wanted(), ["gpu-1"])


async def test_what_changes_nothing_is_not_written() -> None:
    fleet = Fleet(spec=ALLOWED)
    what = FleetChange(quarantine=(fleet.wanted(),), suspicions=(Suspicion("gpu-2", "inc-1", at(5), "an exit", "ml"),))
    await fleet.writer().change(what)
    fleet.client.requests.clear()
    await fleet.writer().change(what)
    assert fleet.client.patched == []


async def test_a_write_has_only_what_changes_and_its_size_does_not_grow_with_what_was_counted() -> None:
    fleet = Fleet(spec=ALLOWED)
    suspected = tuple(Suspicion(f"gpu-{n}", f"inc-{n}", at(5), "an exit", "ml") for n in (0, 1))
    await fleet.writer().change(FleetChange(suspicions=suspected))
    await fleet.writer().change(FleetChange(closed=tuple(closed(f"uid-{number}") for number in range(500))))
    fleet.clock.seconds += 120
    fleet.client.requests.clear()
    await fleet.writer().change(FleetChange(closed=(closed("uid-new"),)))
    [patch] = [each.body["status"] for each in fleet.client.requests if each.verb == "patch"]
    assert patch.keys() == {"totals"}
    assert len(json.dumps(patch)) < 400
    assert len(fleet.status["suspicions"]) == 2
    assert fleet.status["totals"]["restarts"] == 501
    assert len("".join(fleet.status["totals"]["counted"].values())) == 501 * 12


async def test_marks_of_ten_minutes_ago_are_removed_unless_a_ledger_still_has_their_incidents() -> None:
    fleet = Fleet(spec=ALLOWED)
    await fleet.writer().change(FleetChange(closed=(closed("uid-1"),)))
    fleet.clock.seconds += 660
    await fleet.writer().change(FleetChange(closed=(closed("uid-2"),)))
    assert fleet.status["totals"]["counted"] == {"2026-11-21T12:11Z": mark_of(("uid-2", 1, at(0)))}


async def test_a_write_removes_marks_in_their_order_whatever_the_hashes_of_strings_are() -> None:
    fleet = Fleet(spec=ALLOWED)
    for minute in range(8):
        await fleet.writer().change(FleetChange(closed=(closed(f"uid-{minute}"),)))
        fleet.clock.seconds += 60
    old = list(fleet.status["totals"]["counted"])
    fleet.clock.seconds += 1200
    fleet.client.requests.clear()
    await fleet.writer().change(FleetChange(closed=(closed("uid-new"),)))
    [patch] = [each.body["status"]["totals"]["counted"] for each in fleet.client.requests if each.verb == "patch"]
    assert [key for key, value in patch.items() if value is None] == old == sorted(old)


async def test_a_node_that_was_released_by_hand_a_moment_ago_is_quarantined_for_a_new_reason() -> None:
    """The ledger still has the entry that the next review drops."""
    fleet = Fleet(spec=ALLOWED)
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    fleet.patch_config({"status": {"quarantined": [{**fleet.status["quarantined"][0], "applied": True}]}})
    await release_by_hand(fleet.client, "gpu-1", "2026-11-21T12:00:07Z")
    newer = fleet.wanted(incident="inc-2", since=at(8))
    await fleet.writer().change(FleetChange(quarantine=(newer,)))
    assert (fleet.entry, fleet.taints("gpu-1")) == (newer, ["quarantined=inc-2"])


async def test_a_cap_that_is_reached_is_a_reason_to_decide_again() -> None:
    fleet = Fleet(spec=ONE)
    writer = fleet.writer()
    await writer.change(FleetChange(quarantine=(fleet.wanted("gpu-1"),)))
    with pytest.raises(QuarantineRefusedError, match=r"1 of 1 nodes .*spec\.quarantine\.maxNodes 1"):
        await writer.change(FleetChange(quarantine=(fleet.wanted("gpu-2"),)))
    assert fleet.quarantined == ["gpu-1"]


async def test_two_leaders_fill_a_cap_of_one_only_once() -> None:
    fleet = Fleet(spec=ONE)
    stores = [Store(fleet), Store(fleet)]
    for store in stores:
        store.freeze()  # neither sees the other's writes
    outcomes = await asyncio.gather(
        *(
            fleet.writer(store).change(FleetChange(quarantine=(fleet.wanted(name),)))
            for store, name in zip(stores, ("gpu-1", "gpu-2"), strict=True)
        ),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes].count(QuarantineRefusedError) == 1
    assert (len(fleet.ledger.quarantined), len(fleet.quarantined)) == (1, 1)


async def test_a_refusal_by_a_cache_that_lags_is_asked_of_the_server() -> None:
    fleet = Fleet(spec=ONE)
    store = Store(fleet)
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted("gpu-1"),)))
    store.freeze()
    fleet.server.patch(
        RECOVERY_CONFIGS, "default", {"status": {"quarantined": None}}, kind=PatchKind.MERGE, subresource="status"
    )
    await fleet.writer(store).change(FleetChange(quarantine=(fleet.wanted("gpu-2"),)))
    assert [each.node for each in fleet.ledger.quarantined] == ["gpu-2"]


async def test_forty_groups_at_once_write_once_each_and_never_fight() -> None:
    fleet = Fleet(nodes=40, spec=ALL)
    store = Store(fleet)
    store.freeze()
    writer = fleet.writer(store)
    changes = [FleetChange(quarantine=(fleet.wanted(f"gpu-{n}", f"inc-{n}"),)) for n in range(40)]
    await asyncio.gather(*map(writer.change, changes))
    assert fleet.client.patched.count("recoveryconfigs default") == 40
    assert (len(fleet.ledger.quarantined), len(fleet.quarantined)) == (40, 40)


async def test_what_others_write_in_between_is_read_and_kept() -> None:
    fleet = Fleet(spec=ALL)
    store = Store(fleet)
    store.freeze()
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted("gpu-0"),)))
    await fleet.writer(store).change(FleetChange(quarantine=(fleet.wanted("gpu-1"),)))
    assert [each.node for each in fleet.ledger.quarantined] == ["gpu-0", "gpu-1"]
    assert store.read_configs == 1


async def test_who_keeps_being_refused_says_so() -> None:
    fleet = Fleet(spec=ALLOWED)
    fleet.client.next("patch", RECOVERY_CONFIGS, STALE, times=20)
    with pytest.raises(ConflictError):
        await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    assert fleet.quarantined == []


async def test_after_an_unknown_outcome_the_server_is_read() -> None:
    fleet = Fleet(spec=ALLOWED)
    store = Store(fleet)
    writer = fleet.writer(store)
    fleet.client.next("patch", RECOVERY_CONFIGS, UnknownOutcomeError("the connection was lost"))
    with pytest.raises(UnknownOutcomeError):
        await writer.change(FleetChange(quarantine=(fleet.wanted(),)))
    assert fleet.quarantined == []
    await writer.change(FleetChange(quarantine=(fleet.wanted(),)))
    assert (store.read_configs, fleet.quarantined) == (1, ["gpu-1"])


async def test_a_quarantine_that_was_only_written_down_is_completed_by_a_repeat() -> None:
    fleet = Fleet(spec=ALLOWED)
    writer = fleet.writer()
    fleet.client.next("patch", NODES, UnknownOutcomeError("the connection was lost"))
    with pytest.raises(UnknownOutcomeError):
        await writer.change(FleetChange(quarantine=(fleet.wanted(),)))
    assert (fleet.entry.node, fleet.quarantined) == ("gpu-1", [])
    await writer.change(FleetChange(quarantine=(fleet.wanted(),)))
    assert fleet.quarantined == ["gpu-1"]
    assert fleet.client.patched.count("recoveryconfigs default") == 1


async def test_the_conditions_of_the_admission_stay() -> None:
    fleet = Fleet(spec=ALLOWED)
    status = {"status": {"conditions": [ACCEPTED]}}
    fleet.server.patch(RECOVERY_CONFIGS, "default", status, kind=PatchKind.MERGE, subresource="status")
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    assert (fleet.status["conditions"], len(fleet.status["quarantined"])) == ([ACCEPTED], 1)


async def test_a_node_that_a_person_holds_is_taken_in_and_left_alone() -> None:
    fleet = Fleet(spec=ALLOWED)
    fleet.patch_node(
        "gpu-1", {"spec": {"taints": [{"key": QUARANTINE_TAINT, "value": BY_HAND, "effect": "NoSchedule"}]}}
    )
    await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    assert (fleet.entry.by, fleet.taints("gpu-1")) == ("someone", ["quarantined=by-hand"])


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (None, "there is no RecoveryConfig"),
        ({}, "spec.allow.cordon"),
        ({**ALLOWED, "paused": True, "pauseReason": "storm"}, "pauses all recoveries: storm"),
    ],
)
async def test_without_permission_nothing_is_written(spec: dict[str, object] | None, why: str) -> None:
    fleet = Fleet(spec=spec)
    with pytest.raises(QuarantineRefusedError, match=why):
        await fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),)))
    assert fleet.client.patched == []


@pytest.mark.parametrize("spec", [None, {**ALLOWED, "paused": True}])
async def test_what_is_only_counted_is_dropped_where_nothing_may_be_written(spec: dict[str, object] | None) -> None:
    fleet = Fleet(spec=spec)
    await fleet.writer().change(FleetChange(suspicions=(Suspicion("gpu-1", "inc-1", at(5), "an exit", "ml"),)))
    assert fleet.client.patched == []


async def test_an_open_breaker_admits_nothing_more() -> None:
    fleet = Fleet(spec={**ALLOWED, "circuitBreaker": {"recoveries": 1}})
    writer = fleet.writer()
    await writer.change(FleetChange(futile=(Futile("inc-1", at(5), "inc-1", "llm"),)))
    assert fleet.ledger.breaker is not None
    with pytest.raises(QuarantineRefusedError, match="the circuit breaker is open"):
        await writer.change(FleetChange(quarantine=(fleet.wanted(),)))


class _Namespaces(Store):
    """A job and a policy of that mode in each of these namespaces."""

    def __init__(self, fleet: Fleet, modes: dict[str, Mode]) -> None:
        super().__init__(fleet)
        self._modes = modes

    def keys(self) -> Iterable[GroupKey]:
        return [GroupKey(namespace, "job") for namespace in self._modes]

    def policies(self, namespace: str) -> PolicySet:
        spec = PolicySpec(mode=self._modes[namespace])
        return PolicySet((PolicyFacts("default", namespace, "policy-1", 1, spec, at(-60), at(-60)),))


@pytest.mark.parametrize(
    ("modes", "opens"),
    [
        ({"a": Mode.ENFORCE}, True),
        ({"a": Mode.ENFORCE, "b": Mode.OBSERVE}, True),
        ({"a": Mode.ENFORCE, "b": Mode.ENFORCE}, False),
    ],
)
async def test_a_namespace_opens_the_breaker_alone_only_where_no_other_one_enforces(
    modes: dict[str, Mode], opens: bool
) -> None:
    fleet = Fleet(spec={**ALLOWED, "circuitBreaker": {"recoveries": 6}})
    futile = tuple(Futile(f"{job}-{number}", at(5), "a", job) for job in ("x", "y", "z") for number in range(2))
    await fleet.writer(_Namespaces(fleet, modes)).change(FleetChange(futile=futile))
    assert (fleet.ledger.breaker is not None) == opens


async def test_the_breaker_is_reported_once_on_the_config_whichever_group_has_opened_it() -> None:
    fleet = Fleet(spec={**ALLOWED, "circuitBreaker": {"recoveries": 2}})
    writer = fleet.writer()
    with capture_logs() as logs:
        for number in range(5):
            await writer.change(FleetChange(futile=(Futile(f"inc-{number}", at(5), f"inc-{number}", "llm"),)))
    (event,) = fleet.server.objects(EVENTS)
    assert (event["metadata"]["namespace"], event["reason"], event["type"]) == (
        "default",
        "CircuitBreakerOpened",
        "Warning",
    )
    config = fleet.server.get(RECOVERY_CONFIGS, "default")
    assert event["involvedObject"] == {
        "apiVersion": RECOVERY_CONFIGS.api_version,
        "kind": "RecoveryConfig",
        "name": "default",
        "uid": config["metadata"]["uid"],
    }
    assert "2 recoveries within 60 minutes brought no progress" in event["message"]
    assert [(log["event"], log["log_level"]) for log in logs] == [(event["message"], "warning")]


async def test_an_event_that_is_refused_keeps_no_one_from_a_recovery() -> None:
    fleet = Fleet(spec={**ALLOWED, "circuitBreaker": {"recoveries": 1}})
    fleet.client.next("create", EVENTS, ForbiddenError("events: forbidden", status=403))
    await fleet.writer().change(FleetChange(futile=(Futile("inc-1", at(5), "inc-1", "llm"),)))
    assert fleet.ledger.breaker is not None
