"""Whole agents over loopback, with ranks that are only pretended and a controller of the tests."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from recovery.agent._trainjob_recovery import barrier_host
from recovery.agent._trainjob_recovery.agent import Agent, Settings, from_admission
from recovery.agent._trainjob_recovery.joined_file import joined_path
from recovery.agent._trainjob_recovery.ranks import RankExit
from recovery.agent._trainjob_recovery.report import ReportEndpoint
from recovery.agent._trainjob_recovery.slot_progress import RankProgress
from tests.unit.patience import comes

from .fake_controller import FakeController, answer_response, fake_controller, response
from .launches import free_master_port


@dataclass
class FakeRanks:
    """One rank. It runs until a test ends it."""

    slot: int
    runs: int | None = None
    """The epoch that runs. None: none does."""
    starts: list[tuple[int, bool]] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    zygotes: int = 0
    closed: bool = False
    exits: asyncio.Queue[RankExit] = field(default_factory=asyncio.Queue)
    shows: RankProgress = field(default_factory=RankProgress)

    @property
    def progress(self) -> tuple[int, list[RankProgress]]:
        return (self.starts[-1][0], [self.shows]) if self.starts else (1, [])

    async def start(self, epoch: int, fork: bool) -> None:
        assert self.runs is None, "epochs overlap"
        self.starts.append((epoch, fork))
        self.runs, self.shows = epoch, RankProgress()

    async def stop(self, *, grace_seconds: float, signal_number: int) -> bool:
        self.signals.append(signal_number)
        await asyncio.sleep(0.01)
        self.runs = None
        return True

    async def begin_zygote(self) -> None:
        self.zygotes += 1

    async def close(self) -> None:
        assert self.runs is None
        self.closed = True

    def report_failure(self) -> None:
        pass

    def arrive(self) -> None:
        self.shows = RankProgress(time.monotonic())

    def join(self) -> None:
        self.shows = replace(self.shows, joined_at=time.monotonic())

    def make_step(self, step: int, first: int) -> None:
        self.shows = replace(self.shows, step=step, first=first, absolute=True, step_at=time.monotonic())

    def end(self, exit_code: int) -> None:
        assert self.runs is not None
        self.exits.put_nowait(
            RankExit(
                epoch=self.runs,
                local_rank=0,
                rank=self.slot,
                exit_code=exit_code,
                signal=None,
                message="ValueError: x",
                step=None,
            )
        )


@dataclass
class Agents:
    ranks: list[FakeRanks]
    agents: list[Agent]
    codes: list["asyncio.Task[int]"]
    said: list[str]

    def all_run(self, epoch: int) -> bool:
        return all(each.runs == epoch for each in self.ranks)

    @property
    def permitted(self) -> bool:
        return all(each.zygotes == 1 for each in self.ranks)


@asynccontextmanager
async def running(
    count: int, controller: ReportEndpoint | None, key: str | None = "uid", joined_files: Path | None = None
) -> AsyncIterator[Agents]:
    """`joined_files`: where the joined file of each slot is."""
    port, said = free_master_port(), list[str]()
    ranks = [FakeRanks(slot) for slot in range(count)]
    agents = [
        Agent(
            Settings(
                slot,
                count,
                1,
                "127.0.0.1",
                port,
                30.0,
                (),
                key,
                f"pod-{slot}",
                "node",
                controller,
                None if joined_files is None else str(joined_files / f"joined-{slot}"),
            ),
            ranks[slot],
            say=said.append,
        )
        for slot in range(count)
    ]
    codes = [asyncio.ensure_future(agent.run()) for agent in agents]
    try:
        yield Agents(ranks, agents, codes, said)
    finally:
        for code in codes:
            code.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await code


def restarts(report: dict[str, Any]) -> bytes:
    """Restart whatever is asked for."""
    action = {"barrier": report["barrier"], "epoch": report["epoch"], "do": "Restart"}
    return answer_response(alone=0, action=action if report["state"] == "asking" else None)


@asynccontextmanager
async def permitted(
    folder: Path, respond: Callable[[dict[str, Any]], bytes] = lambda _: answer_response(), count: int = 4
) -> AsyncIterator[tuple[Agents, FakeController]]:
    async with fake_controller(folder) as fake:
        fake.respond = respond
        async with running(count, fake.controller, joined_files=folder) as agents:
            await comes(lambda: agents.permitted)
            await comes(lambda: agents.agents[0].host is not None and agents.agents[0].host.barrier.state == "running")
            yield agents, fake


async def test_a_failed_rank_restarts_all_alone_and_is_reported(tmp_path: Path) -> None:
    async with permitted(tmp_path) as (agents, fake):
        agents.ranks[2].end(1)
        await comes(lambda: agents.all_run(2))
        assert [each.starts for each in agents.ranks] == [[(1, False), (2, True)]] * 4
        await comes(lambda: fake.reports[-1]["state"] == "running" and fake.reports[-1]["epoch"] == 2)
        (ended,) = fake.reports[-1]["ended"]
        assert (ended["epoch"], ended["slot"], ended["by"], ended["pod"]) == (1, 2, "Alone", "pod-2")


async def test_several_failures_at_once_are_asked_about_and_restart_once(tmp_path: Path) -> None:
    async with permitted(tmp_path, restarts) as (agents, fake):
        for slot in (0, 1, 3):
            agents.ranks[slot].end(1)
        await comes(lambda: agents.all_run(2))
        await comes(lambda: fake.reports[-1]["state"] == "running" and fake.reports[-1]["epoch"] == 2)
        assert [each["by"] for each in fake.reports[-1]["ended"]] == ["Answer"]
        assert [len(each.starts) for each in agents.ranks] == [2] * 4


async def test_a_replica_that_stands_by_is_asked_past_at_once_and_is_no_trouble(tmp_path: Path) -> None:
    """A Service spreads the reports over the leader and its standby."""
    answers = []

    def every_third(report: dict[str, Any]) -> bytes:
        answers.append(report["state"])
        return restarts(report) if len(answers) % 3 == 0 else response(b"", "503 Unavailable", "Retry-After: 30")

    async with permitted(tmp_path, every_third) as (agents, fake):
        agents.ranks[2].end(1)
        await comes(lambda: agents.all_run(2))
        assert [each["by"] for each in fake.reports[-1]["ended"]] == ["Answer"]
        assert not any("has not answered" in each for each in agents.said), agents.said


async def test_all_done_finishes_and_every_agent_exits_with_0(tmp_path: Path) -> None:
    async with permitted(tmp_path) as (agents, fake):
        for each in agents.ranks:
            each.end(0)
        assert await asyncio.gather(*agents.codes) == [0] * 4
        assert all(each.closed for each in agents.ranks)
        assert fake.reports[-1]["state"] == "finished"


async def test_a_controller_that_says_exit_ends_all_with_1(tmp_path: Path) -> None:
    def exits(report: dict[str, Any]) -> bytes:
        action = {"barrier": report["barrier"], "epoch": report["epoch"], "do": "Exit"}
        return answer_response(alone=0, action=action if report["state"] == "asking" else None)

    async with permitted(tmp_path, exits) as (agents, fake):
        agents.ranks[1].end(1)
        assert await asyncio.gather(*agents.codes) == [1] * 4
        assert fake.reports[-1]["state"] == "exiting"


async def test_without_a_controller_only_the_failed_agent_exits() -> None:
    async with running(3, None) as agents:
        await comes(lambda: agents.all_run(1))
        agents.ranks[1].end(1)
        assert await agents.codes[1] == 1
        assert [each.runs for each in agents.ranks] == [1, None, 1]
        assert not agents.codes[0].done()


async def test_without_a_key_an_agent_is_alone() -> None:
    async with running(1, None, key=None) as agents:
        await comes(lambda: agents.all_run(1))
        agents.ranks[0].end(0)
        assert await agents.codes[0] == 0


async def test_a_signal_goes_to_the_ranks_and_the_group_restarts_nothing(tmp_path: Path) -> None:
    async with permitted(tmp_path) as (agents, fake):
        agents.agents[2].on_signal(signal.SIGINT)
        assert await agents.codes[2] == 1
        assert agents.ranks[2].signals == [signal.SIGINT]
        await comes(lambda: fake.reports[-1]["state"] == "leaving")
        agents.ranks[1].end(1)
        assert await agents.codes[1] == 1
        assert agents.ranks[3].runs == 1


async def test_a_taken_port_leaves_an_agent_as_torchrun() -> None:
    with socket.socket(socket.AF_INET) as taken:
        taken.bind(("", 0))
        taken.listen()
        said: list[str] = []
        ranks = FakeRanks(0)
        port = taken.getsockname()[1]
        agent = Agent(Settings(0, 1, 1, "127.0.0.1", port, 30.0, (), "uid", "", "", None), ranks, say=said.append)
        code = asyncio.ensure_future(agent.run())
        await comes(lambda: ranks.runs == 1)
        await comes(lambda: said != [])
        ranks.end(1)
        assert await code == 1
        assert "cannot be used" in said[0]


def test_what_admission_left_out_is_missing() -> None:
    assert from_admission({}) == (None, "", "", None)
    environ = {"RECOVERY_AGENT_JOB_UID": "uid", "RECOVERY_AGENT_POD": "a b", "RECOVERY_AGENT_NODE": "node-1"}
    assert from_admission(environ) == ("uid", "", "node-1", None)


def joined(folder: Path) -> list[str]:
    """The slots whose joined file is there."""
    return sorted(path.name.removeprefix("joined-") for path in folder.glob("joined-*"))


async def test_ranks_that_join_are_reported_and_shown_to_the_probe_until_they_are_stopped(tmp_path: Path) -> None:
    async with permitted(tmp_path) as (agents, fake):
        for each in agents.ranks[:3]:
            each.arrive()
        await comes(lambda: fake.reports[-1]["waiting"] == [3])
        assert joined(tmp_path) == []
        agents.ranks[3].arrive()
        for each in agents.ranks:
            each.join()
        await comes(lambda: fake.reports[-1]["joined"] == 4)
        await comes(lambda: joined(tmp_path) == ["0", "1", "2", "3"])

        agents.ranks[2].end(1)
        await comes(lambda: agents.all_run(2))
        assert joined(tmp_path) == []
        await comes(lambda: fake.reports[-1]["state"] == "running" and fake.reports[-1]["waitingCount"] == 4)
        for each in agents.ranks:
            each.arrive()
            each.join()
        await comes(lambda: fake.reports[-1]["joined"] == 4)
        assert [each["epoch"] for each in fake.reports[-1]["rendezvous"]] == [1, 2]
        await comes(lambda: joined(tmp_path) == ["0", "1", "2", "3"])
        agents.agents[1].on_signal(signal.SIGTERM)
        assert await agents.codes[1] == 1
        assert joined(tmp_path) == ["0", "2", "3"]


async def test_a_file_of_an_earlier_container_is_removed_before_the_ranks_start(tmp_path: Path) -> None:
    (tmp_path / "joined-0").touch()
    async with running(1, None, joined_files=tmp_path) as agents:
        await comes(lambda: agents.all_run(1))
        assert joined(tmp_path) == []


async def test_a_joined_file_that_cannot_be_written_is_said_and_changes_nothing_else(tmp_path: Path) -> None:
    async with running(1, None, joined_files=tmp_path / "nowhere") as agents:
        await comes(lambda: agents.all_run(1))
        agents.ranks[0].arrive()
        agents.ranks[0].join()
        await comes(lambda: any("joined-0 cannot be written" in each for each in agents.said))
        assert agents.ranks[0].runs == 1


async def test_steps_are_reported_once_all_have_made_one_and_once_they_pass_the_failure(tmp_path: Path) -> None:
    async with permitted(tmp_path) as (agents, fake):
        for each in agents.ranks:
            each.arrive()
            each.join()
            each.make_step(12, 0)
        await comes(lambda: fake.reports[-1].get("steps", {}).get("lowest") == 12)
        for each in agents.ranks:
            each.make_step(20, 0)
        agents.ranks[1].end(1)
        await comes(lambda: agents.all_run(2))
        for each in agents.ranks:
            each.make_step(11, 10)
        await comes(lambda: fake.reports[-1].get("steps", {}).get("lowest") == 11)
        for each in agents.ranks:
            each.make_step(21, 10)
        await comes(lambda: fake.reports[-1]["steps"]["lowest"] == 21)
        assert fake.reports[-1]["steps"]["first"] == 10


async def test_reports_are_frequent_while_ranks_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter here than in a pod, where it is some seconds. The controller asks for a report every 30 s."""
    monkeypatch.setattr(barrier_host, "MEETING_EVERY_SECONDS", 0.05)
    async with permitted(tmp_path) as (agents, fake):
        agents.ranks[0].arrive()
        await comes(lambda: fake.reports[-1]["arrived"] == 1)
        before = len(fake.reports)
        await comes(lambda: len(fake.reports) >= before + 5)
        for each in agents.ranks:
            each.arrive()
            each.join()
        await comes(lambda: fake.reports[-1]["joined"] == 4)
        after = len(fake.reports)
        await asyncio.sleep(0.5)  # ten times as long as between two reports before
        assert len(fake.reports) == after


@pytest.mark.parametrize(("given", "path"), [("", None), ("/a/joined", "/a/joined"), ("joined", None)])
def test_the_joined_file_is_where_the_container_wants_it(given: str, path: str | None) -> None:
    said: list[str] = []
    assert joined_path({"RECOVERY_JOINED_FILE": given}, said.append) == path
    assert len(said) == (given == "joined")
    assert joined_path({}, said.append) is None
