"""The suspect's log is read beside the trigger. Nothing waits for it, and its text goes into the incident only."""

import asyncio
import io
import json
from collections.abc import Iterator

import msgspec
import pytest
import structlog

from recovery.controller.suspect_logs import READS_AT_ONCE, SuspectLogs
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident, Outcome
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.core.plan.log_to_read import LogToRead
from recovery.core.policy.spec import Mode
from recovery.ports import (
    EVENTS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    ApiRequest,
    ForbiddenError,
    RefusedError,
    UnknownOutcomeError,
)
from recovery.telemetry.logs import configure_logs
from recovery.telemetry.observer import Telemetry
from tests.unit.controller.fakes import KEY, LedgersApi
from tests.unit.controller.scene import STALE, Scene
from tests.unit.core.groups import training
from tests.unit.core.world import World
from tests.unit.fake_api import sent
from tests.unit.telemetry.world import Scrape

CANARY = "canary-7f3a"
TRIGGER = ["delete Job", "patch Job", *4 * ["delete Pod"]]


class LogsApi(LedgersApi):
    """Serves the log of every pod."""

    def __init__(self, log: bytes = b"step 7\nNCCL error\n") -> None:
        super().__init__()
        self.log = log
        self.answers = asyncio.Event()
        """Clear: no read of a log is answered."""
        self.answers.set()
        self.reads = 0
        self.reading = 0
        self.reading_most = 0
        self.bodies: list[tuple[str, bytes]] = []
        """Every write: its verb and kind, and its body."""

    async def send(self, request: ApiRequest) -> bytes:
        if request.body is not None:
            self.bodies.append((str(sent(request)), request.body))
        if request.subresource != "log":
            return await super().send(request)
        self.reads += 1
        self.reading += 1
        self.reading_most = max(self.reading_most, self.reading)
        try:
            await self.answers.wait()
            return await super().send(request)
        finally:
            self.reading -= 1

    async def answer(self, request: ApiRequest) -> bytes:
        return self.log if request.subresource == "log" else await super().answer(request)


def failed() -> World:
    """Rank 2 has exited, and its pod still exists."""
    return training(4).pod_failed(2, 1, 0, message="CUDA error")


def scene(log: bytes = b"step 7\nNCCL error\n", *, world: World | None = None, mode: Mode = Mode.ENFORCE) -> Scene:
    return Scene(world if world is not None else failed(), mode=mode, api=LogsApi(log), logs=True)


def api_of(found: Scene) -> LogsApi:
    assert isinstance(found.api, LogsApi)
    return found.api


async def triggered(found: Scene) -> None:
    """The first reconcile ends without the log, which arrives afterwards."""
    api_of(found).answers.clear()
    await found.reconcile()
    api_of(found).answers.set()
    await read_through(found)


async def read_through(found: Scene) -> None:
    """Wait until the read has ended."""
    assert found.logs is not None
    async with asyncio.timeout(30):
        while found.logs.reading(KEY):
            await asyncio.sleep(0.01)


def incident(found: Scene) -> Incident:
    return found.api.ledger.current_incident


async def record_of(found: Scene) -> Incident:
    """The group recovers, and its incident is closed and recorded; returns the record as it was sent."""
    found.store.becomes(failed().job_deleted(2).recreated(5).all_ready(20))
    await found.reconcile(21)
    closing = incident(found).closing
    assert closing is not None
    assert closing.outcome is Outcome.RECOVERED
    await found.reconcile(21)
    [created] = found.api.sent("create", RECOVERY_INCIDENTS)
    return msgspec.convert(created.body["spec"], Incident)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The controller's log at level debug."""
    before, stream = structlog.get_config(), io.StringIO()
    configure_logs("debug", stream, "json")
    try:
        yield stream
    finally:
        structlog.configure(**before)


async def test_the_log_is_kept_in_the_incident_and_in_its_record() -> None:
    found = scene()
    await triggered(found)
    await found.reconcile(2)
    pod = failed().pod(2)
    expected = SuspectLog(pod.name, pod.containers[0].name, termination_message="CUDA error", tail="step 7\nNCCL error")
    assert incident(found).suspect_log == expected
    assert found.one_recovery()
    assert (await record_of(found)).suspect_log == expected
    assert api_of(found).reads == 1


async def test_the_trigger_does_not_wait_for_a_log_that_never_comes_and_the_incident_says_why() -> None:
    found = scene()
    api_of(found).answers.clear()
    again = await found.reconcile()
    assert found.actions == TRIGGER, "all of it is written, and the read is still under way"
    assert api_of(found).reading == 1
    assert again is not None
    assert again <= 1, "the reconcile comes back for the log"
    await read_through(found)
    assert api_of(found).reading == 0, "it is given up on"
    recorded = (await record_of(found)).suspect_log
    assert recorded is not None
    assert (recorded.absent, recorded.tail, recorded.termination_message) == (LogAbsence.TIMED_OUT, "", "CUDA error")
    assert api_of(found).reads == 1, "and not repeated"


async def test_a_read_that_is_refused_is_not_repeated() -> None:
    found = scene()
    found.api.next("get", PODS, ForbiddenError("pods/log is forbidden", status=403))
    await found.reconcile()
    await read_through(found)
    for seconds in (2, 3, 4):
        await found.reconcile(seconds)
    kept = incident(found).suspect_log
    assert kept is not None
    assert kept.absent is LogAbsence.FORBIDDEN
    assert api_of(found).reads == 1
    assert found.actions[: len(TRIGGER)] == TRIGGER


async def test_without_the_right_nothing_is_read_and_nothing_is_kept() -> None:
    api = LogsApi()
    found = Scene(failed(), api=api)
    await found.reconcile()
    await found.reconcile(2)
    assert api.reads == 0
    assert incident(found).suspect_log is None
    assert not any(b"suspectLog" in body for _, body in api.bodies)


async def test_under_observe_nothing_is_triggered_and_nothing_is_read() -> None:
    found = scene(mode=Mode.OBSERVE)
    await found.reconcile()
    assert api_of(found).reads == 0


async def test_a_trigger_that_is_repeated_reads_nothing_again() -> None:
    found = scene()
    found.api.next("delete", JOBS, STALE)
    await found.reconcile()
    await read_through(found)
    assert len(found.api.sent("delete", JOBS)) == 2
    assert api_of(found).reads == 1


async def test_a_write_of_the_log_that_is_overtaken_is_made_by_the_next_reconcile() -> None:
    found = scene()
    await triggered(found)
    found.api.next("patch", RECOVERY_GROUPS, STALE)
    await found.reconcile(2)
    assert incident(found).suspect_log is None
    await found.reconcile(3)
    assert incident(found).suspect_log is not None
    assert found.one_recovery()


async def test_a_write_of_the_log_whose_outcome_is_unknown_restarts_nothing_twice() -> None:
    found = scene()
    await triggered(found)
    found.api.next("patch", RECOVERY_GROUPS, UnknownOutcomeError("the connection was lost"), applied=True)
    await found.reconcile(2)
    await found.reconcile(3)
    assert incident(found).suspect_log is not None
    assert found.one_recovery()


async def test_an_api_server_that_refuses_the_log_holds_up_nothing_and_is_asked_once(logged: io.StringIO) -> None:
    found = scene(CANARY.encode())
    await triggered(found)
    found.api.next("patch", RECOVERY_GROUPS, RefusedError(f'Invalid value: "{CANARY}"', status=422))
    for seconds in (2, 3, 4):
        await found.reconcile(seconds)
    assert incident(found).suspect_log is None
    assert len([1 for what, body in api_of(found).bodies if b"suspectLog" in body]) == 1
    assert (await record_of(found)).suspect_log is None
    assert CANARY not in logged.getvalue(), "a refusal quotes the value"
    assert "is not kept" in logged.getvalue()


async def test_a_new_leader_goes_on_with_the_log_that_the_ledger_has() -> None:
    found = scene()
    await found.reconcile()
    await read_through(found)
    await found.reconcile(2)
    found.reconciler = found.new_process()
    await found.reconcile(3)
    recorded = await record_of(found)
    assert recorded.suspect_log is not None
    assert recorded.suspect_log.tail == "step 7\nNCCL error"
    assert api_of(found).reads == 1


async def test_the_words_of_a_log_are_in_no_event_no_metric_and_no_line_of_the_controller(logged: io.StringIO) -> None:
    found = scene(f"{CANARY} Xid 79 fell off the bus\n".encode())
    telemetry = Telemetry(clock=found.clock, version="1")
    found.ears = telemetry  # type: ignore[assignment] # every observer Protocol
    found.reconciler = found.new_process()
    await found.reconcile()
    await read_through(found)
    await found.reconcile(2)
    recorded = await record_of(found)
    assert recorded.suspect_log is not None
    assert CANARY in recorded.suspect_log.tail

    with_it = {what for what, body in api_of(found).bodies if CANARY.encode() in body}
    assert with_it == {"patch RecoveryGroup", "create RecoveryIncident"}
    assert found.api.sent("create", EVENTS), "there are Events, without it"
    assert "recovery_" in Scrape(telemetry).text
    assert CANARY not in Scrape(telemetry).text
    assert str(KEY) in logged.getvalue()
    assert CANARY not in logged.getvalue()
    outside = msgspec.structs.replace(recorded, suspect_log=None)
    assert CANARY not in repr(outside), "no sentence, no evidence and no suspect of the incident quotes it"
    assert CANARY not in repr(msgspec.structs.replace(found.api.ledger, incident=None))


async def test_a_read_that_fails_by_a_bug_holds_up_nothing_and_is_logged_without_its_words(logged: io.StringIO) -> None:
    found = scene()
    found.api.next("get", PODS, ValueError(CANARY))
    await found.reconcile()
    await read_through(found)
    await found.reconcile(2)
    assert found.actions[: len(TRIGGER)] == TRIGGER
    assert incident(found).suspect_log is None
    [line] = [each for each in logged.getvalue().splitlines() if "this is a bug" in each]
    assert CANARY not in line
    found_line = json.loads(line)
    assert (found_line["level"], found_line["job"], found_line["error"]) == ("error", str(KEY), "ValueError")
    assert found_line["incident"] == incident(found).id
    assert "_read" in found_line["stack"], "where it failed"


async def test_in_a_storm_few_reads_are_under_way_at_once_and_all_of_them_end() -> None:
    api = LogsApi()
    api.answers.clear()
    logs = SuspectLogs(api)
    keys = [GroupKey("ml", f"train-{number}") for number in range(3 * READS_AT_ONCE)]
    for key in keys:
        logs.begin(key, LogToRead("1", SuspectLog("p", "node")))
    async with asyncio.timeout(30):
        while any(logs.reading(key) for key in keys):
            await asyncio.sleep(0.01)
    assert api.reading_most == READS_AT_ONCE, "the live reads of other groups find places"


async def test_the_end_of_a_term_ends_what_is_being_read() -> None:
    api = LogsApi()
    api.answers.clear()
    logs = SuspectLogs(api)
    logs.begin(KEY, LogToRead("1", SuspectLog("p", "node")))
    await asyncio.sleep(0)
    await logs.close()
    assert api.reading == 0
    assert not logs.reading(KEY)
