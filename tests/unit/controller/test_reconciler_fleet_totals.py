"""A closed incident is counted once in the fleet's totals, even if the process ends between any two writes."""

import asyncio
from typing import Any

import msgspec
import pytest

from recovery.controller import incident_recorder
from recovery.controller.reconciler import Reconciler
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec
from recovery.core.model.fleet_ledger import FleetChange, FleetLedger, FleetTotals
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import IncidentTotals, Ledger, Outcome
from recovery.core.model.standing import Broken
from recovery.core.plan.actions import CountIncidents
from recovery.executors.fleet_ledger import FleetWriter
from recovery.ports import (
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    AlreadyExistsError,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    NotLeadingError,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import KEY, Ears, FakeStore, LedgersApi, SetClock
from tests.unit.controller.scene import lost
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at
from tests.unit.fake_api import Sent, sent

OUR_OBJECTS = {RECOVERY_CONFIGS, RECOVERY_GROUPS, RECOVERY_INCIDENTS}


class FleetApi(LedgersApi):
    """Also keeps a RecoveryConfig and records. The process may end at one of its writes, counted from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.config: ConfigFacts | None = ConfigFacts(CONFIG_NAME, "config-1", 1, ConfigSpec(), resource_version="1")
        self.records: dict[str, dict[str, Any]] = {}
        self.ends_at: int | None = None
        self.applies_the_last = False
        self.written = 0
        self.never_answers = False
        """True: patches of the RecoveryConfig get no answer."""

    async def answer(self, request: ApiRequest) -> bytes:
        asked = sent(request)
        if asked.writes and asked.resource in OUR_OBJECTS:
            self.written += 1
            if self.ends_at is not None and self.written >= self.ends_at:
                if self.written == self.ends_at and self.applies_the_last:
                    await self._apply(request, asked)
                raise NotLeadingError("the process has ended")
        return await self._apply(request, asked)

    async def _apply(self, request: ApiRequest, asked: Sent) -> bytes:
        if asked.resource == RECOVERY_CONFIGS:
            if self.never_answers:
                await asyncio.Event().wait()
            await asyncio.sleep(0)  # a request takes time
            return self._swapped_config(asked)
        if asked.resource == RECOVERY_INCIDENTS and asked.verb == "create":
            if asked.name in self.records:
                raise AlreadyExistsError("it exists", status=409)
            self.objects[RECOVERY_INCIDENTS, asked.name] = self.records[asked.name] = asked.body
            return b"{}"
        return await super().answer(request)

    def _swapped_config(self, asked: Sent) -> bytes:
        assert self.config is not None
        if asked.body["metadata"]["resourceVersion"] != self.config.resource_version:
            raise ConflictError("the object has been modified", status=409)
        fleet = msgspec.convert({k: v for k, v in asked.body["status"].items() if v is not None}, FleetLedger)
        version = str(int(self.config.resource_version) + 1)
        self.config = msgspec.structs.replace(self.config, fleet=fleet, resource_version=version)
        return msgspec.json.encode({"metadata": {"name": CONFIG_NAME, "uid": "config-1", "resourceVersion": version}})

    @property
    def totals(self) -> FleetTotals:
        assert self.config is not None
        return self.config.fleet.totals

    @property
    def config_patches(self) -> int:
        return sum(1 for each in self.writes if each.resource == RECOVERY_CONFIGS)


class FleetStore(FakeStore):
    def __init__(self, api: FleetApi, world: World) -> None:
        super().__init__(api, world)
        self._fleet_api = api

    def config(self) -> ConfigFacts | None:
        return self._fleet_api.config

    async def read_config_live(self) -> ConfigFacts | None:
        return self._fleet_api.config


class Story:
    """A member is lost, and the group restarts and runs again. Each step is reconciled until nothing is due."""

    STEPS = (
        (1.0, lost()),
        (21.0, lost().job_deleted(1).recreated(5).all_ready(20)),
    )

    def __init__(self) -> None:
        self.api = FleetApi()
        self.clock = SetClock(1)
        self.store = FleetStore(self.api, lost())
        self.reconciler = self.new_process()

    def new_process(self) -> Reconciler:
        fleet = FleetWriter(self.api, self.store, self.clock)
        return Reconciler(api=self.api, store=self.store, clock=self.clock, observer=Ears(), fleet=fleet)

    async def run(self) -> None:
        for seconds, world in self.STEPS:
            self.store.becomes(world)
            self.clock.seconds = seconds
            await self.settle()

    async def settle(self) -> None:
        """Reconcile until nothing is due now. A process that ends is replaced by a new one."""
        for _ in range(8):
            try:
                again = await self.reconciler.reconcile(KEY)
            except NotLeadingError:
                self.api.ends_at = None
                self.reconciler = self.new_process()
                continue
            if again is None or again > self.clock.now():
                return

    @property
    def counted_once(self) -> bool:
        once = {"PodDeleted": {"Recovered": {"automatic": 1}}}
        return (self.api.totals.incidents, self.api.totals.restarts) == (once, 1)


async def test_one_write_counts_it_after_its_record_and_before_its_ledger_forgets_it() -> None:
    story = Story()
    await story.run()
    ours = [str(each) for each in story.api.writes if each.resource in OUR_OBJECTS]
    assert ours[-3:] == ["create RecoveryIncident", "patch RecoveryConfig", "patch RecoveryGroup"]
    assert (story.api.config_patches, story.counted_once) == (1, True)
    booked = story.api.ledger.totals
    assert story.api.totals.idle_gpu_seconds_by_class == booked.idle_gpu_seconds_by_class


WRITES = 6
"""The least number of writes to our own objects: created, opened, closed, recorded, counted, forgotten."""


@pytest.mark.parametrize("applied", [False, True], ids=["lost", "applied"])
@pytest.mark.parametrize("ends_at", range(1, WRITES + 1))
async def test_wherever_the_process_ends_it_is_counted_once(ends_at: int, applied: bool) -> None:
    story = Story()
    story.api.ends_at, story.api.applies_the_last = ends_at, applied
    await story.run()
    assert story.api.written >= WRITES, "the process has ended at one of the writes"
    assert story.counted_once
    assert len(story.api.records) == 1
    assert story.api.ledger.incident is None


async def test_without_a_recovery_config_nothing_is_written_and_nothing_read() -> None:
    story = Story()
    story.api.config = None
    await story.run()
    assert [each for each in story.api.requests if each.resource == RECOVERY_CONFIGS] == []
    assert story.api.ledger.uncounted == ()


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("no", status=403),
        TryLaterError("too many requests", status=429),
        UnknownOutcomeError("the connection was lost"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_server_does_not_take_holds_up_nothing_and_is_counted_later(error: Exception) -> None:
    story = Story()
    story.api.next("patch", RECOVERY_CONFIGS, error)
    await story.run()
    ledger = story.api.ledger
    assert (ledger.incident, len(ledger.history), len(ledger.uncounted)) == (None, 1, 1)
    story.clock.seconds = 100
    await story.settle()
    assert story.api.ledger.uncounted == ()
    assert story.counted_once


async def test_a_server_that_never_answers_does_not_keep_the_ledger_from_forgetting_the_incident(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    story.api.never_answers = True
    with monkeypatch.context() as until_it_answers:
        until_it_answers.setattr(incident_recorder, "_COUNT_SECONDS_MAX", 0.01)
        await story.run()
    assert (story.api.ledger.incident, len(story.api.ledger.uncounted)) == (None, 1)
    story.api.never_answers = False
    await story.settle()
    assert (story.api.ledger.uncounted, story.counted_once) == ((), True)


async def test_a_permission_that_is_missing_is_not_asked_for_every_minute() -> None:
    story = Story()
    story.api.next("patch", RECOVERY_CONFIGS, ForbiddenError("no", status=403), times=20)
    await story.run()
    again = await story.reconciler.reconcile(KEY)
    assert again == at(story.clock.seconds + 600)


async def test_a_record_that_this_version_cannot_read_holds_up_no_job() -> None:
    story = Story()
    await story.settle()
    story.store.becomes(msgspec.structs.replace(lost(), workload=None))
    story.api.next("patch", RECOVERY_CONFIGS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await story.reconciler.reconcile(KEY)
    (record,) = story.api.records.values()
    record["spec"]["outcome"] = "OfAnotherVersion"
    await story.settle()
    assert story.api.totals.incidents == {"PodDeleted": {"Superseded": {"automatic": 1}}}


async def test_what_is_still_to_be_counted_waits_for_the_end_of_the_next_incident() -> None:
    owed = IncidentTotals("uid-1", 1, at(-900), "NodeLost", Outcome.RECOVERED)
    controller = Controller(ledger=Ledger(uncounted=(owed,)))
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    assert controller.ledger.uncounted == (owed,)
    assert not [each for each in controller.done if isinstance(each, CountIncidents)]
    controller.settle(world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4), 4.5)
    (count,) = (each for each in controller.done if isinstance(each, CountIncidents))
    assert (len(count.closed), count.closed[0]) == (2, owed)
    assert not controller.ledger.uncounted


async def test_an_incident_of_a_job_that_is_gone_is_counted_as_it_was_recorded() -> None:
    story = Story()
    await story.settle()
    story.store.becomes(msgspec.structs.replace(lost(), workload=None))
    story.api.ends_at = story.api.written + 2  # recorded at 9 s, and not counted
    story.clock.seconds = 9
    await story.settle()
    story.clock.seconds = 30
    await story.settle()
    assert story.api.totals.incidents == {"PodDeleted": {"Superseded": {"automatic": 1}}}
    (record,) = story.api.records.values()
    idle = sum(sum(each.values()) for each in story.api.totals.idle_gpu_seconds_by_class.values())
    assert idle == pytest.approx(record["spec"]["idleGpuSeconds"])


HUNG = Broken(at(0), at(2), "0d2f5c9e-1", "PodDeleted", 32, "pod train-node-0-3 ended")
LEFT_BROKEN = Ledger(epoch=1, broken=HUNG, totals=Totals(incidents=1))


def deleted_while_it_hung() -> Story:
    story = Story()
    story.api.put_group(LEFT_BROKEN)
    story.store.becomes(msgspec.structs.replace(training(4), workload=None))
    story.clock.seconds = 62
    return story


async def test_a_group_that_hung_when_its_job_was_deleted_is_counted_until_then() -> None:
    story = deleted_while_it_hung()
    await story.settle()
    assert story.api.totals.idle_gpu_seconds_by_class == {"PodDeleted": {"Broken": 60 * 32}}
    assert (story.api.totals.incidents, story.api.records) == ({}, {})
    assert story.api.ledger == LEFT_BROKEN, "the ledger is about to vanish, and no one writes it any more"


async def test_it_is_counted_once_by_any_process_and_for_as_long_as_the_ledger_is_left() -> None:
    story = deleted_while_it_hung()
    await story.settle()
    for seconds in (63, 5000):
        story.clock.seconds = seconds
        await story.settle()
        story.reconciler = story.new_process()
        await story.settle()
    assert story.api.totals.idle_gpu_seconds_by_class == {"PodDeleted": {"Broken": 60 * 32}}
    assert story.api.config_patches == 1


async def test_what_a_deleted_job_could_not_count_earlier_is_counted() -> None:
    story = Story()
    owed = IncidentTotals("0d2f5c9e", 1, at(-60), "PodDeleted", Outcome.RECOVERED, restarts=1)
    story.api.put_group(Ledger(epoch=1, uncounted=(owed,)))
    story.store.becomes(msgspec.structs.replace(training(4), workload=None))
    await story.settle()
    assert story.api.totals.restarts == 1


async def test_a_group_that_hangs_while_its_job_is_being_deleted_is_counted_too() -> None:
    """With `--cascade=foreground` the job stays until its pods have gone."""
    story = Story()
    story.api.put_group(LEFT_BROKEN)
    hung = training(4).pod_deleted(3, 0).came_back(3, 1, 2)
    story.store.becomes(hung.with_workload(deleting_since=at(61)))
    story.clock.seconds = 62
    await story.settle()
    assert story.api.totals.idle_gpu_seconds_by_class == {"PodDeleted": {"Broken": 60 * 32}}
    assert story.api.ledger.broken is None
    assert story.api.ledger.totals.idle_gpu_seconds["Broken"] == 60 * 32


async def test_forty_jobs_that_close_together_are_few_writes() -> None:
    story = Story()
    writer = FleetWriter(story.api, story.store, story.clock)
    closed = [IncidentTotals(f"uid-{number}", 1, at(0), "NodeLost", Outcome.RECOVERED) for number in range(40)]
    await asyncio.gather(*(writer.change(FleetChange(closed=(each,))) for each in closed))
    assert story.api.totals.incidents == {"NodeLost": {"Recovered": {"automatic": 40}}}
    assert story.api.config_patches <= 2


async def test_two_processes_that_count_the_same_one_count_it_once() -> None:
    story = Story()
    one, other = (FleetWriter(story.api, story.store, story.clock) for _ in range(2))
    change = FleetChange(closed=(IncidentTotals("uid-1", 1, at(0), "NodeLost", Outcome.RECOVERED),))
    await asyncio.gather(one.change(change), other.change(change))
    assert story.api.totals.incidents == {"NodeLost": {"Recovered": {"automatic": 1}}}


async def test_a_config_that_cannot_be_read_is_not_overwritten() -> None:
    story = Story()
    assert story.api.config is not None
    story.api.config = msgspec.structs.replace(story.api.config, unreadable="its status is damaged")
    await story.run()
    assert story.api.config_patches == 0
    assert len(story.api.ledger.uncounted) == 1
