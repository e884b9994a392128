"""The IncidentSweeper slowly deletes records beyond the RecoveryConfig's limits, but none that may still count."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from recovery.controller import incident_sweeper
from recovery.controller.incident_sweeper import FIRST_AFTER_SECONDS, SWEEP_SECONDS, IncidentSweeper
from recovery.core.fleet.totals import with_closed
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.core.model.fleet_ledger import FleetTotals
from recovery.core.model.folded_incidents import FoldedIncidents, NumberRange
from recovery.core.model.ledger import Incident, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.executors import incident_retention
from recovery.executors.status import LedgerWriter, WorkloadReference
from recovery.kube.projections.recovery import UNREADABLE_SCHEMA_VERSION
from recovery.ports import (
    RECOVERY_INCIDENTS,
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NotLeadingError,
    RefusedError,
    TryLaterError,
)
from tests.unit.core.world import at
from tests.unit.executors.fleet import Fleet, Store
from tests.unit.report.records import record

DAY = 86_400.0
FORBIDDEN = ForbiddenError("recoveryincidents is forbidden: cannot delete", status=403)


class Records:
    """A modelled API server with records of closed incidents, and the sweeper of a leading process."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.fleet = Fleet(nodes=0, spec=spec)
        self.store = Store(self.fleet)
        self.ledgers: list[LedgerObject] = []
        self.sweeper = self.new_leader()

    def new_leader(self) -> IncidentSweeper:
        fleet = self.fleet
        return IncidentSweeper(api=fleet.client, store=self.store, clock=fleet.clock, ledgers=lambda: self.ledgers)

    async def add(
        self, number: int, *, days_ago: float, namespace: str = "ml", uid: str = "uid-1", id_: str = ""
    ) -> Incident:
        """Record an incident that ended that many days ago."""
        clock, now = self.fleet.clock, self.fleet.clock.seconds
        clock.seconds = now - days_ago * DAY
        began = at(clock.seconds - 20)
        made = record(
            GroupKey(namespace, "llm"), number=number, started_at=began, detected_at=began, id=id_ or f"inc-{number}"
        )
        whose = WorkloadReference("TrainJob", "llm", uid)
        await LedgerWriter(self.fleet.client).record(namespace, whose, made.incident)
        clock.seconds = now
        self.fleet.client.requests.clear()
        return made.incident

    def holds(self, ledger: Ledger, uid: str = "uid-1", **changes: Any) -> None:
        made = LedgerObject("llm-uid-1", "ml", "group-1", "1", uid, "llm", ledger)
        self.ledgers.append(msgspec.structs.replace(made, **changes))

    @property
    def left(self) -> list[str]:
        """Namespace and id of each record."""
        found = self.fleet.server.objects(RECOVERY_INCIDENTS)
        return sorted(f"{each['metadata']['namespace']}/{each['spec']['id']}" for each in found)

    @property
    def deletes(self) -> int:
        return len(self.fleet.client.sent("delete", RECOVERY_INCIDENTS))


def incidents(**spec: Any) -> dict[str, Any]:
    return {"incidents": spec}


@pytest.mark.parametrize("spec", [None, {}], ids=["no RecoveryConfig", "a RecoveryConfig that says nothing of it"])
async def test_by_default_a_record_is_kept_for_thirty_days(spec: dict[str, Any] | None) -> None:
    records = Records(spec)
    await records.add(1, days_ago=31)
    await records.add(2, days_ago=29)
    assert not await records.sweeper.sweep()
    assert records.left == ["ml/inc-2"]


async def test_beyond_the_limit_of_a_namespace_the_oldest_of_that_namespace_go() -> None:
    records = Records(incidents(maxPerNamespace=2))
    for number in range(1, 5):
        await records.add(number, days_ago=10 - number)
    await records.add(1, days_ago=20, namespace="other", uid="uid-2")
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-3", "ml/inc-4", "other/inc-1"]


async def test_it_deletes_the_very_object_that_it_has_listed() -> None:
    records = Records(incidents(ttl="24h"))
    await records.add(1, days_ago=2)
    (found,) = records.fleet.server.objects(RECOVERY_INCIDENTS)
    await records.sweeper.sweep()
    (asked,) = records.fleet.client.sent("delete", RECOVERY_INCIDENTS)
    metadata = found["metadata"]
    assert (asked.uid, asked.resource_version) == (metadata["uid"], metadata["resourceVersion"])


async def test_one_that_has_changed_or_gone_meanwhile_is_left_to_the_next_pass() -> None:
    records = Records(incidents(ttl="24h"))
    for number in (1, 2):
        await records.add(number, days_ago=3 - number / 10)
    records.fleet.client.next("delete", RECOVERY_INCIDENTS, ConflictError("it has been modified", status=409))
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-1"]
    await records.sweeper.sweep()
    assert records.left == []


async def test_a_record_that_several_incidents_share_is_as_old_as_the_latest_of_them() -> None:
    records = Records(incidents(ttl="24h"))
    first = await records.add(1, days_ago=40, id_="uid-1-1")
    loop = FoldedIncidents(
        fingerprint="Killed/Exit137//llm-5",
        numbers=(NumberRange(1, 9),),
        count=9,
        started_at=first.started_at,
        latest_started_at=at(records.fleet.clock.seconds - DAY / 2),
        latest_evidence="pod-5/node/9",
        ended_at=at(records.fleet.clock.seconds - DAY / 2),
    )
    writer = LedgerWriter(records.fleet.client)
    assert await writer.fold("ml", WorkloadReference("TrainJob", "llm", "uid-1"), loop)
    await records.sweeper.sweep()
    assert records.left == ["ml/uid-1-1"]
    records.fleet.clock.seconds += DAY
    await records.sweeper.sweep()
    assert records.left == []


# --- what may still be counted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["incident", "uncounted"])
async def test_an_incident_that_a_ledger_still_holds_is_not_swept(where: str) -> None:
    records = Records(incidents(ttl="24h"))
    held = await records.add(1, days_ago=9)
    await records.add(2, days_ago=8)
    closed = totals_of("uid-1", held)
    records.holds(Ledger(incident=held) if where == "incident" else Ledger(uncounted=(closed,)))
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-1"]
    records.ledgers.clear()
    await records.sweeper.sweep()
    assert records.left == []


async def test_nothing_of_a_workload_is_swept_whose_ledger_cannot_be_read() -> None:
    records = Records(incidents(ttl="24h"))
    await records.add(1, days_ago=9)
    await records.add(1, days_ago=9, namespace="other", uid="uid-2")
    records.holds(Ledger(), schema_version=99)
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-1"]


async def test_a_ledger_that_comes_to_hold_it_during_the_pass_keeps_it() -> None:
    records = Records(incidents(ttl="24h"))
    await records.add(1, days_ago=9)
    second = await records.add(2, days_ago=8)
    api = records.fleet.client
    api.next("delete", RECOVERY_INCIDENTS, meanwhile=lambda: records.holds(Ledger(incident=second)))
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-2"]


async def test_what_is_asked_again_after_its_record_was_swept_is_counted_once() -> None:
    """The totals do not depend on the record: they remember an incident for as long as a ledger may ask about it."""
    records = Records(incidents(ttl="24h"))
    closed = totals_of("uid-1", await records.add(1, days_ago=9))
    totals = with_closed(FleetTotals(), [closed], at(0), may_return=lambda _: True)
    await records.sweeper.sweep()
    assert records.left == []
    assert with_closed(totals, [closed], at(1), may_return=lambda _: True) is totals


@pytest.mark.parametrize("spec", [{"ttl": "0s"}, {"maxPerNamespace": 0}])
async def test_under_a_config_that_cannot_be_used_nothing_goes(spec: dict[str, Any]) -> None:
    records = Records({})
    await records.add(1, days_ago=400)
    config = records.store.config()
    assert config is not None
    limits = msgspec.convert(spec, type(config.spec.incidents))
    wrong = msgspec.structs.replace(config, spec=msgspec.structs.replace(config.spec, incidents=limits))
    records.store.config = lambda: wrong  # type: ignore[method-assign]
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-1"]


def no_one_knows_whose(namespace: str, name: str) -> UndecodableObject:
    """A RecoveryGroup whose metadata is all that can be read."""
    return UndecodableObject("RecoveryGroup", namespace, name, "group-9", "Object missing required field `spec`")


async def test_a_damaged_ledger_keeps_the_records_of_its_own_workload_alone() -> None:
    records = Records(incidents(ttl="24h"))
    for namespace, uid in (("ml", "uid-1"), ("ml", "uid-2"), ("other", "uid-3")):
        await records.add(1, days_ago=9, namespace=namespace, uid=uid, id_=uid)
    records.holds(Ledger(message="status is not a ledger"), schema_version=UNREADABLE_SCHEMA_VERSION)
    records.store.undecodable = lambda: {"recoverygroups": 1}  # type: ignore[method-assign]
    await records.sweeper.sweep()
    assert records.left == ["ml/uid-1"]


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("llm-uid-1", ["ml/uid-1"]),
        ("copy-of-something", []),
        ("", ["ml/uid-1", "ml/uid-2"]),
    ],
    ids=["by its name", "nobody's ledger by its name", "without a name"],
)
async def test_a_ledger_that_does_not_say_whose_it_is_keeps_what_its_name_allows(name: str, left: list[str]) -> None:
    records = Records(incidents(ttl="24h"))
    for namespace, uid in (("ml", "uid-1"), ("ml", "uid-2"), ("other", "uid-1")):
        await records.add(1, days_ago=9, namespace=namespace, uid=uid, id_=uid)
    records.store.unidentified = (no_one_knows_whose("ml", name),)
    await records.sweeper.sweep()
    assert records.left == left


async def test_what_is_left_alone_is_said_once_and_again_when_it_is_something_else() -> None:
    records = Records(incidents(ttl="24h"))
    records.holds(Ledger(), schema_version=99)
    records.store.unidentified = (no_one_knows_whose("ml", "gpt-uid-2"),)
    with capture_logs() as logs:
        for _ in range(3):
            await records.sweeper.sweep()
        records.ledgers.clear()
        for _ in range(3):
            await records.sweeper.sweep()
        records.store.unidentified = ()
        await records.sweeper.sweep()
    assert [(each["log_level"], each["ledgers"], each["count"]) for each in logs] == [
        ("warning", ["ml/gpt-uid-2", "ml/llm-uid-1"], 2),
        ("warning", ["ml/gpt-uid-2"], 1),
    ]


# --- bounded work --------------------------------------------------------------------------------------------------


async def test_it_lists_in_pages_and_the_limit_holds_across_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_retention, "PAGE_OBJECTS_MAX", 2)
    records = Records(incidents(maxPerNamespace=3))
    for number in range(1, 8):
        await records.add(number, days_ago=10 - number)
    await records.sweeper.sweep()
    assert records.left == ["ml/inc-5", "ml/inc-6", "ml/inc-7"]
    assert len(records.fleet.client.sent("list", RECOVERY_INCIDENTS)) == 4


async def test_a_pass_deletes_so_many_at_most_and_the_next_one_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_sweeper, "DELETES_MAX", 2)
    records = Records(incidents(ttl="24h"))
    for number in range(1, 6):
        await records.add(number, days_ago=3)
    left = [await records.sweeper.sweep() for _ in range(3)]
    assert (left, records.deletes, records.left) == ([True, True, False], 5, [])


async def test_requests_are_spread_out_and_one_at_a_time() -> None:
    records = Records(incidents(ttl="24h"))
    for number in range(1, 21):
        await records.add(number, days_ago=3)
    began = records.fleet.clock.seconds
    await records.sweeper.sweep()
    assert records.deletes == 20
    assert records.fleet.clock.seconds - began >= 20 * 0.1, "a few requests in a second"


async def test_one_that_a_webhook_refuses_does_not_keep_the_others() -> None:
    records = Records(incidents(ttl="24h"))
    for number in (1, 2):
        await records.add(number, days_ago=3)
    records.fleet.client.next("delete", RECOVERY_INCIDENTS, RefusedError("denied by a webhook", status=422))
    await records.sweeper.sweep()
    assert len(records.left) == 1


# --- the loop ------------------------------------------------------------------------------------------------------


class Passes:
    """A sweeper whose passes follow a script of the test."""

    def __init__(self, *outcomes: bool | Exception) -> None:
        fleet = Fleet(nodes=0)
        self._clock, self._outcomes = fleet.clock, iter((*outcomes, NotLeadingError("the term is over")))
        self._began = fleet.clock.seconds
        self.after: list[float] = []
        """Seconds from the beginning of the term to each pass."""
        self.sweeper = IncidentSweeper(api=fleet.client, store=Store(fleet), clock=fleet.clock, ledgers=lambda: ())
        self.sweeper.sweep = self._sweep  # type: ignore[method-assign]

    async def _sweep(self) -> bool:
        self.after.append(self._clock.seconds - self._began)
        outcome = next(self._outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_a_new_leader_waits_then_sweeps_every_hour_and_sooner_where_something_is_left() -> None:
    passes = Passes(True, False, False)
    await passes.sweeper.run()
    first = FIRST_AFTER_SECONDS
    assert passes.after == [first, first + 60, first + 60 + SWEEP_SECONDS, first + 60 + 2 * SWEEP_SECONDS]


async def test_without_the_right_to_delete_the_rest_works_and_that_is_said_once() -> None:
    with capture_logs() as logs:
        await Passes(FORBIDDEN, FORBIDDEN, FORBIDDEN).sweeper.run()
    assert [(each["log_level"], each["error"]) for each in logs] == [
        ("warning", str(FORBIDDEN)),
        *[("info", str(FORBIDDEN))] * 2,
    ]


@pytest.mark.parametrize("trouble", [TryLaterError("429"), ExpiredError("410"), ApiError("none")])
async def test_trouble_of_the_server_ends_a_pass_and_not_the_sweeper(trouble: Exception) -> None:
    passes = Passes(trouble, False)
    await passes.sweeper.run()
    assert len(passes.after) == 3


async def test_a_forbidden_delete_ends_the_pass_at_once() -> None:
    records = Records(incidents(ttl="24h"))
    for number in range(1, 6):
        await records.add(number, days_ago=3)
    records.fleet.client.next("delete", RECOVERY_INCIDENTS, FORBIDDEN, times=5)
    with pytest.raises(ForbiddenError):
        await records.sweeper.sweep()
    assert records.deletes == 1
