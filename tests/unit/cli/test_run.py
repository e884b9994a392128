"""How the controller process starts and how it ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from recovery.background import BackgroundTaskError, first_of
from recovery.cli import run
from recovery.cli.connection import CommandError, Connection
from recovery.cli.exit_codes import EXIT_FAILURE
from recovery.cli.main import app
from recovery.cli.run import Election, StopSignal, check, may_read_logs, waits_for
from recovery.ports import NODES, PODS, ForbiddenError
from recovery.rendezvous.settings import AgentSettings
from tests.unit.cli.cluster import Middle, PlainCluster, StoppedClock
from tests.unit.fake_api import Object
from tests.unit.patience import GUARD_SECONDS


@pytest.mark.parametrize(("by", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_is_a_clean_end_with_the_code_that_a_shell_expects(by: signal.Signals, exit_code: int) -> None:
    stop = StopSignal()
    async with stop.listening():
        os.kill(os.getpid(), by)
        async with asyncio.timeout(GUARD_SECONDS):
            await stop.event.wait()
    assert stop.exit_code == exit_code


async def test_the_next_ctrl_c_does_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with StopSignal().listening():
        pass
    assert signal.getsignal(signal.SIGINT) == before
    stop = StopSignal()
    async with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(GUARD_SECONDS):
            await stop.event.wait()
        assert signal.getsignal(signal.SIGINT) == before


async def test_a_stop_cuts_the_preparations_short() -> None:
    stop = StopSignal()
    asyncio.get_running_loop().call_later(0.01, stop.event.set)
    async with asyncio.timeout(GUARD_SECONDS):
        assert await stop.result_before(asyncio.sleep(60, "done")) is None


async def test_preparations_that_fail_say_so() -> None:
    async def fail() -> None:
        raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        await StopSignal().result_before(fail())
    assert await StopSignal().result_before(asyncio.sleep(0, "done")) == "done"


async def test_the_first_part_that_ends_ends_the_others_and_its_error_is_the_error() -> None:
    cancelled = []

    async def last() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def refused() -> None:
        await asyncio.sleep(0.01)
        raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        await first_of(asyncio.create_task(last()), asyncio.create_task(refused()))
    assert cancelled


async def test_a_background_task_that_ends_ends_the_process_with_one_line_and_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connection]:
        yield connection(PlainCluster())

    async def control(*_: object, reads_logs: bool) -> None:
        raise BackgroundTaskError("resync", "it returned")

    monkeypatch.setattr(run, "connect", connect)
    monkeypatch.setattr(run, "_control", control)
    with capture_logs() as logs:
        exit_code = await run._run(None, None, "127.0.0.1", 0, Election("ops", 15), None)
    assert exit_code == EXIT_FAILURE
    [line] = [line for line in logs if line["log_level"] == "error"]
    assert (line["event"], line["task"], line["error"]) == (
        "ending: a background task has ended",
        "resync",
        "it returned",
    )


# --- the election ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "election"),
    [
        ([], Election(lease_namespace=None, lease_seconds=15)),
        (["--lease-namespace", "ops", "--lease-seconds", "3"], Election(lease_namespace="ops", lease_seconds=3)),
        (["--no-leader-election"], None),
    ],
)
def test_there_is_an_election_unless_it_is_told_otherwise(
    options: list[str], election: Election | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_controller", lambda *arguments: asked.extend(arguments))
    assert CliRunner().invoke(app, ["run", *options]).exit_code == 0
    assert [each for each in asked if isinstance(each, Election)] == ([election] if election else [])


@pytest.mark.parametrize(
    ("options", "agents"),
    [([], []), (["--agent-address", ":9444"], [AgentSettings("", 9444)])],
)
def test_agents_are_answered_only_where_it_is_told_to(
    options: list[str], agents: list[AgentSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_controller", lambda *arguments: asked.extend(arguments))
    assert CliRunner().invoke(app, ["run", *options]).exit_code == 0
    assert [each for each in asked if isinstance(each, AgentSettings)] == agents


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--lease-seconds", "0"], "greater than or equal to 1"),
        (["--no-leader-election", "--lease-namespace", "ops"], "exclude each other"),
    ],
)
def test_an_election_that_cannot_be_is_wrong_usage(options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["run", *options])
    assert result.exit_code == 2
    assert says in result.stderr


class AskedCluster(PlainCluster):
    """Records in which namespaces it was asked about access to Leases."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, str]] = []

    def allows(self, review: Object) -> bool:
        wanted = review["resourceAttributes"]
        if wanted["resource"] == "leases":
            self.asked.append((wanted["verb"], wanted["namespace"], wanted["name"]))
        else:
            assert not wanted["namespace"], "all else is watched in all namespaces"
        return super().allows(review)


def connection(cluster: PlainCluster) -> Connection:
    return Connection(cluster, "https://plain", StoppedClock(), Middle())


async def test_the_rights_to_lead_are_asked_for_in_the_namespace_of_the_lease() -> None:
    cluster = AskedCluster()
    await check(connection(cluster), "ops")
    of_nodes, own = ("get", "kube-node-lease", ""), "recovery-controller"
    assert sorted(cluster.asked) == [("create", "ops", ""), of_nodes, ("get", "ops", own), ("patch", "ops", own)]
    cluster.asked.clear()
    await check(connection(cluster))
    assert cluster.asked == [of_nodes]


async def test_without_the_leases_of_nodes_it_starts_and_says_what_that_means() -> None:
    cluster = PlainCluster()
    cluster.denied = {("get", "leases")}
    with capture_logs() as logs:
        await check(connection(cluster))
    assert [(each["log_level"], each["missing_permissions"]) for each in logs] == [
        ("warning", "get leases.coordination.k8s.io in kube-node-lease")
    ]


async def test_with_the_roles_of_an_earlier_version_it_starts_and_says_that_the_totals_are_incomplete() -> None:
    cluster = PlainCluster()
    cluster.denied = {("get", "recoveryincidents"), ("patch", "recoveryconfigs/status")}
    with capture_logs() as logs:
        await check(connection(cluster))
    lacking = "get recoveryincidents.recovery.trainjob.dev; patch recoveryconfigs.recovery.trainjob.dev/status"
    assert [(each["log_level"], each["missing_permissions"]) for each in logs] == [("warning", lacking)]


async def test_without_the_right_to_delete_records_it_starts_and_says_that_they_stay() -> None:
    cluster = PlainCluster()
    cluster.denied = {("delete", "recoveryincidents")}
    with capture_logs() as logs:
        await check(connection(cluster))
    assert [(each["log_level"], each["missing_permissions"]) for each in logs] == [
        ("warning", "delete recoveryincidents.recovery.trainjob.dev")
    ]


async def test_rights_to_lead_that_are_missing_are_named_with_their_namespace() -> None:
    cluster = PlainCluster()
    cluster.denied = {("create", "leases"), ("patch", "leases")}
    said = r"^permissions are missing, in namespace ops \(.*\): create, patch leases\.coordination\.k8s\.io$"
    with pytest.raises(CommandError, match=said):
        await check(connection(cluster), "ops")
    await check(connection(cluster))


async def test_all_that_is_missing_is_one_line() -> None:
    cluster = PlainCluster()
    cluster.denied = {("create", "leases"), ("create", "events")}
    said = r"^permissions are missing, in all namespaces .*: create events; and in namespace ops .*: create leases"
    with pytest.raises(CommandError, match=said):
        await check(connection(cluster), "ops")


@pytest.mark.parametrize("granted", [True, False])
async def test_logs_are_read_where_the_right_is_granted_and_nothing_warns_where_it_is_not(granted: bool) -> None:
    cluster = PlainCluster()
    cluster.denied = set() if granted else {("get", "pods/log")}
    with capture_logs() as logs:
        assert await may_read_logs(connection(cluster)) is granted
        await check(connection(cluster))
    assert {each["log_level"] for each in logs} <= {"info"}
    reviewed = [each.body["spec"]["resourceAttributes"] for each in cluster.requests if each.verb == "create"]
    assert [each["resource"] for each in reviewed if each["subresource"] == "log"] == ["pods"], "asked for once"


# --- readiness ------------------------------------------------------------------------------------------------------


HEARD = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("listed", "synced", "stale", "unserved", "missing"),
    [
        ((), False, {}, None, ["pods", "nodes"]),
        (("nodes",), False, {}, "not listening yet", ["pods", "admission webhooks (not listening yet)"]),
        (("pods", "nodes"), False, {}, None, ["a watch that was refused"]),
        (("pods", "nodes"), True, {}, "OSError: no disk", ["admission webhooks (OSError: no disk)"]),
        (("pods", "nodes"), True, {"nodes": HEARD}, None, ["nodes (nothing heard since 04:05:06)"]),
        (("pods", "nodes"), True, {}, None, []),
    ],
)
def test_it_is_ready_when_all_caches_are_current_and_the_webhooks_served(
    listed: tuple[str, ...], synced: bool, stale: dict[str, datetime], unserved: str | None, missing: list[str]
) -> None:
    assert waits_for((PODS, NODES), listed, synced=synced, stale=stale, unserved=unserved) == missing
