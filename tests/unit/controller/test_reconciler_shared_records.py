"""In Observe a crash loop is one record. Wherever the process ends, the record counts each crash once."""

import msgspec
import pytest

from recovery.core.policy.spec import Mode, PolicySpec
from recovery.executors.status import LedgerWriter, WorkloadReference
from recovery.ports import (
    RECOVERY_INCIDENTS,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import KEY
from tests.unit.controller.test_reconciler_fleet_totals import FleetApi, FleetStore, Story
from tests.unit.core.groups import training
from tests.unit.core.world import World
from tests.unit.fake_api import Sent

CRASHES = 4


class SharedApi(FleetApi):
    """Also keeps the status of records."""

    async def _apply(self, request: ApiRequest, asked: Sent) -> bytes:
        if asked.resource != RECOVERY_INCIDENTS or asked.verb == "get":
            return await super()._apply(request, asked)
        if asked.verb == "create":
            await super()._apply(request, asked)
            self.records[asked.name]["metadata"] |= {"uid": asked.name, "resourceVersion": "1"}
            return b"{}"
        found = self.records.get(asked.name)
        if found is None:
            raise NotFoundError("it is gone", status=404)
        metadata = found["metadata"]
        assert asked.subresource == "status"
        if asked.body["metadata"] != {key: metadata[key] for key in ("uid", "resourceVersion")}:
            raise ConflictError("the object has been modified", status=409)
        found["status"] = {**found.get("status", {}), **asked.body["status"]}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        return b"{}"

    @property
    def counts(self) -> list[int]:
        """The number of incidents in each record, oldest first."""
        return [each.get("status", {}).get("count", 1) for each in self.records.values()]


class CrashLoop(Story):
    """Rank 2 crashes repeatedly and is restarted in place."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World = training(restart_policy="OnFailure", backoff_limit=100)
        self.api = self.server = SharedApi()
        self.store = FleetStore(self.api, self.world)
        self.store.policy = msgspec.structs.replace(self.store.policy, spec=PolicySpec(mode=Mode.OBSERVE))
        self.reconciler = self.new_process()

    async def crash(self, number: int) -> None:
        began = number * 100.0
        self.world = self.world.container_restarted(2, 1, began)
        self.store.becomes(self.world)
        for seconds in (1, 4, 30):
            self.clock.seconds = began + seconds
            await self.settle()

    async def run(self) -> None:
        for number in range(1, CRASHES + 1):
            await self.crash(number)

    @property
    def counted(self) -> int:
        outcomes = self.api.totals.incidents.values()
        return sum(count for each in outcomes for handlings in each.values() for count in handlings.values())


async def test_a_crash_loop_is_one_record_that_counts_each() -> None:
    loop = CrashLoop()
    await loop.run()
    assert (loop.server.counts, loop.counted) == ([CRASHES], CRASHES)
    assert loop.api.ledger.totals.incidents == CRASHES


async def test_the_record_is_written_before_the_totals_and_the_ledger() -> None:
    loop = CrashLoop()
    await loop.crash(1)
    loop.api.requests.clear()
    await loop.crash(2)
    said = [each for each in loop.api.said() if "Recovery" in each]
    assert said[-3:] == ["patch RecoveryIncident", "patch RecoveryConfig", "patch RecoveryGroup"]


WRITES = 24
"""More writes than four crashes need."""


@pytest.mark.parametrize("applied", [False, True], ids=["before it is applied", "after it is applied"])
@pytest.mark.parametrize("ends_at", range(1, WRITES + 1))
async def test_wherever_the_process_ends_each_crash_is_in_the_record_once(ends_at: int, applied: bool) -> None:
    loop = CrashLoop()
    loop.api.ends_at, loop.api.applies_the_last = ends_at, applied
    await loop.run()
    assert loop.server.counts == [CRASHES]
    assert (loop.counted, loop.api.ledger.totals.incidents) == (CRASHES, CRASHES)


async def test_these_are_all_the_writes_at_which_it_can_end() -> None:
    loop = CrashLoop()
    await loop.run()
    assert loop.api.written <= WRITES


@pytest.mark.parametrize("error", [UnknownOutcomeError("lost"), TryLaterError("429")], ids=str)
async def test_an_answer_that_is_lost_adds_nothing_twice(error: Exception) -> None:
    loop = CrashLoop()
    await loop.crash(1)
    loop.api.next("patch", RECOVERY_INCIDENTS, error, applied=isinstance(error, UnknownOutcomeError))
    with pytest.raises(type(error)):
        await loop.crash(2)
    await loop.settle()
    assert (loop.server.counts, loop.counted) == ([2], 2)


@pytest.mark.parametrize(
    "error",
    [ForbiddenError("no", status=403), NotFoundError("gone", status=404), NoSuchResourceError("no status", status=404)],
    ids=["forbidden", "gone", "no such resource"],
)
async def test_where_the_record_cannot_be_shared_each_incident_has_its_own_and_none_is_lost(error: Exception) -> None:
    loop = CrashLoop()
    await loop.crash(1)
    loop.api.next("patch", RECOVERY_INCIDENTS, error, times=10)
    await loop.crash(2)
    await loop.crash(3)
    assert (loop.server.counts, loop.counted) == ([1, 1, 1], 3)


async def test_a_record_that_was_deleted_is_followed_by_a_new_one_that_counts_what_comes() -> None:
    loop = CrashLoop()
    await loop.crash(1)
    await loop.crash(2)
    loop.api.records.clear()
    loop.api.objects.clear()
    await loop.crash(3)
    await loop.crash(4)
    assert (loop.server.counts, loop.counted) == ([2], 4)


async def test_a_process_that_has_fallen_behind_takes_nothing_back() -> None:
    """Its late write arrives after another process took over and recorded more."""
    loop = CrashLoop()
    await loop.run()
    (name,) = loop.api.records
    before = dict(loop.api.records[name]["status"])
    (fold,) = loop.api.ledger.folds
    late = msgspec.structs.replace(fold, count=2)
    whose = msgspec.convert(loop.api.records[name]["spec"]["workloadRef"], WorkloadReference)
    assert await LedgerWriter(loop.api).fold(KEY.namespace, whose, late)
    assert loop.api.records[name]["status"] == before
