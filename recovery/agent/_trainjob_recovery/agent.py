"""The agent's loop: joins the ranks of this container, the member of its slot, its link, and in slot 0 the barrier."""

import asyncio
import contextlib
import random
import re
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .barrier_host import BarrierHost
from .console import say_on_stderr
from .joined_file import JoinedFile
from .link import BarrierLink
from .member import (
    AgentMember,
    BeginZygote,
    Effect,
    End,
    MemberSays,
    RankEnd,
    ShowJoined,
    StartRanks,
    StopRanks,
    Tell,
)
from .messages import Failure, FromBarrier, Proof, Welcome
from .ranks import RankExit
from .report import ReportEndpoint, controller_of
from .slot_progress import RankProgress
from .wire import one_line

BARRIER_PORT_OFFSET = 11
"""The barrier listens at PET_MASTER_PORT + 11."""
TICK_SECONDS = 0.5
FLUSH_SECONDS = 2.0
MEETING_LOOK_SECONDS = 0.05
"""How often the agent looks at what its ranks show, while they have not joined the others."""
LOOK_SECONDS = 1.0
"""The same at other times."""
QUICK_SECONDS = 900.0
"""How long quick looks last after the start: ranks that have not joined by then may never do so."""
_LARGEST_STEP = 2**53
_LOOPBACK = ("127.0.0.1", "::1")


class Exits(Protocol):
    async def get(self) -> RankExit: ...


class RanksOfNode(Protocol):
    """What the loop needs of `Ranks`."""

    @property
    def exits(self) -> Exits: ...

    @property
    def progress(self) -> tuple[int, Sequence[RankProgress]]: ...

    async def start(self, epoch: int, fork: bool) -> None: ...

    async def stop(self, *, grace_seconds: float, signal_number: int) -> bool: ...

    async def begin_zygote(self) -> None: ...

    async def close(self) -> None: ...

    def report_failure(self) -> None: ...


@dataclass(frozen=True)
class Settings:
    slot: int
    slots: int
    local_ranks: int
    master_addr: str
    barrier_port: int
    grace_seconds: float
    """How long ranks may take to end after the first signal."""
    signals: tuple[str, ...]
    """The names of the signals that ask the agent to end."""
    key: str | None
    """What all agents of the job know. None: admission has not said, so there is no barrier."""
    pod: str
    node: str
    controller: ReportEndpoint | None
    """None: nothing is reported, so nothing is ever permitted."""
    joined_file: str | None = None
    """Where to show that the ranks have joined. None: nowhere."""


def from_admission(environ: Mapping[str, str]) -> tuple[str | None, str, str, ReportEndpoint | None]:
    """The key, the pod, the node and the controller. Admission may have left any of them out."""
    name = re.compile("[A-Za-z0-9.-]{0,253}")
    pod, node = environ.get("RECOVERY_AGENT_POD", ""), environ.get("RECOVERY_AGENT_NODE", "")
    return (
        environ.get("RECOVERY_AGENT_JOB_UID") or None,
        pod if name.fullmatch(pod) else "",
        node if name.fullmatch(node) else "",
        controller_of(environ),
    )


class Agent:
    def __init__(
        self,
        settings: Settings,
        ranks: RanksOfNode,
        *,
        say: Callable[[str], None] = say_on_stderr,
        draw: random.Random | None = None,
    ) -> None:
        """`draw` spreads dials and reports of many agents. None: from the system."""
        self.member = AgentMember(settings.slots, settings.local_ranks)
        self.host: BarrierHost | None = None
        """None: the barrier is in another slot, or there is none."""
        self._settings = settings
        self._ranks = ranks
        self._joined_file = JoinedFile(settings.joined_file, say)
        self._say = say
        self._draw = draw or random.Random()  # noqa: S311 - nothing secret is drawn
        self._link: BarrierLink | None = None
        """None: there is no barrier."""
        self._dialling: asyncio.Task[None] | None = None
        """Runs the link."""
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ranks_free = asyncio.Lock()
        self._ranks_left = False
        """Ranks were started since all were stopped."""
        self._started_at = time.monotonic()
        """When the present ranks were started."""
        self._starts = asyncio.Event()
        """Set when ranks were just started, so that the next look comes at once."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """The exit code of the container."""
        loop = asyncio.get_running_loop()
        signals = [signal.Signals[name] for name in self._settings.signals]
        for number in signals:
            loop.add_signal_handler(number, self.on_signal, number)
        try:
            self._perform(self.member.begin())
            self._essential(self._watch_ranks())
            self._essential(self._tick())
            self._optional(self._look(), "the look at the ranks", "neither joined ranks nor steps are shown")
            await self._join_the_barrier()
            code = await self._code
            await self._close()
            return code
        finally:
            for task in list(self._tasks):
                task.cancel()
            for number in signals:
                loop.remove_signal_handler(number)

    def on_signal(self, number: signal.Signals) -> None:
        self._perform(self.member.on_signal(number.name))

    async def _join_the_barrier(self) -> None:
        settings = self._settings
        if settings.key is None:
            self._say("the job's UID is not known, so that nothing is restarted in place")
            return
        addresses: Sequence[str] = (settings.master_addr,)
        if settings.slot == 0:
            host = BarrierHost(
                identity=secrets.token_hex(8),
                slots=settings.slots,
                key=settings.key,
                controller=settings.controller,
                say=self._say,
                draw=self._draw,
            )
            try:
                await host.listen(settings.barrier_port)
            except (OSError, OverflowError) as error:
                self._say(
                    f"port {settings.barrier_port} cannot be used, so that nothing is restarted in place: {error}"
                )
                return
            self.host = host
            self._optional(host.run(), "the barrier")
            addresses = _LOOPBACK
        self._link = BarrierLink(
            addresses,
            settings.barrier_port,
            key=settings.key,
            slot=settings.slot,
            inc=secrets.token_hex(8),
            events=self,
            say=self._say,
            draw=self._draw,
        )
        self._dialling = self._optional(self._link.run(), "the link to the barrier")

    async def _close(self) -> None:
        """Nothing of the ranks is left afterwards, and the others know what they must."""
        if self._ranks_left:
            self._joined_file.remove()
            async with self._ranks_free:
                await self._ranks.stop(grace_seconds=self._settings.grace_seconds, signal_number=signal.SIGTERM)
        self._ranks.report_failure()
        if self._link is not None:
            await self._link.flush(FLUSH_SECONDS)
            self._link.stop()
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling}, timeout=FLUSH_SECONDS)
        if self.host is not None:
            await self.host.close()
        await self._ranks.close()

    # ---- what the link reports ---------------------------------------------------------------------------------------

    def proof(self, mac: str) -> Proof:
        return self.member.proof(mac)

    def welcomed(self, welcome: Welcome) -> None:
        self._perform(self.member.on_welcome(time.monotonic(), welcome))

    def heard(self, message: FromBarrier) -> None:
        self._perform(self.member.on_message(time.monotonic(), message))

    # ---- what the member asks for ------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StartRanks):
                self._ranks_left, self._started_at = True, time.monotonic()
                self._starts.set()
                self._essential(self._start(effect.epoch, effect.fork))
            elif isinstance(effect, StopRanks):
                self._joined_file.remove()
                self._essential(self._stop(signal.Signals[effect.signal_name]))
            elif isinstance(effect, BeginZygote):
                self._optional(self._ranks.begin_zygote(), "the zygote")
            elif isinstance(effect, ShowJoined):
                self._joined_file.show()
            elif isinstance(effect, Tell):
                if self._link is not None:
                    self._link.send(effect.message)
            elif isinstance(effect, MemberSays):
                self._say(effect.text)
            elif isinstance(effect, End) and not self._code.done():
                self._code.set_result(effect.code)

    async def _start(self, epoch: int, fork: bool) -> None:
        self._joined_file.remove()
        async with self._ranks_free:
            try:
                await self._ranks.start(epoch, fork)
            except OSError as error:
                self._perform(self.member.on_start_failed(str(error)))
                return
        self._perform(self.member.on_started(time.monotonic(), epoch))

    async def _stop(self, number: signal.Signals) -> None:
        async with self._ranks_free:
            nothing_left = await self._ranks.stop(grace_seconds=self._settings.grace_seconds, signal_number=number)
            self._ranks_left = False
        epoch, ranks = self._ranks.progress
        self._perform(self.member.on_last_progress(time.monotonic(), epoch, ranks))
        self._perform(self.member.on_stopped(time.monotonic(), nothing_left))

    async def _watch_ranks(self) -> None:
        while True:
            end = await self._ranks.exits.get()
            failure = None if end.exit_code == 0 else self._failure(end)
            self._perform(self.member.on_rank_end(time.monotonic(), RankEnd(end.epoch, end.local_rank, failure)))

    def _failure(self, end: RankExit) -> Failure:
        step = end.step if end.step is not None and 0 <= end.step <= _LARGEST_STEP else None
        settings = self._settings
        return Failure(end.rank, end.exit_code, end.signal, one_line(end.message), step, settings.pod, settings.node)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._perform(self.member.tick(time.monotonic()))

    async def _look(self) -> None:
        """Look often while the ranks meet, and once a second afterwards: no single step costs anything here."""
        while True:
            quick = self.member.meeting and time.monotonic() < self._started_at + QUICK_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._starts.wait(), MEETING_LOOK_SECONDS if quick else LOOK_SECONDS)
            self._starts.clear()
            epoch, ranks = self._ranks.progress
            self._perform(self.member.on_progress(time.monotonic(), epoch, ranks))

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def _essential(self, job: Coroutine[Any, Any, None]) -> None:
        """Without this task no one would see how the ranks end. Its error ends the agent."""
        self._begin(job).add_done_callback(self._on_essential_end)

    def _on_essential_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._code.done():
            self._code.set_exception(error)

    def _optional(
        self, job: Coroutine[Any, Any, None], name: str, then: str = "nothing is restarted in place"
    ) -> "asyncio.Task[None]":
        """Without this job the agent goes on as torchrun."""

        def on_end(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._say(f"{name} has failed, so that {then}: {error!r}")

        task = self._begin(job)
        task.add_done_callback(on_end)
        return task

    def _begin(self, job: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
