"""Stand-ins that the tests of `kube` share."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from recovery.core.model.reason import Explanation
from recovery.core.sentences import render
from recovery.ports import ApiRequest, WatchEnd
from tests.unit.fake_api import FakeApi

FIXTURES = Path(__file__).parent / "fixtures"
"""JSON from a real control plane (Kubernetes 1.36.3, JobSet 0.12.0, Trainer 2.3.0)."""

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class FakeClock:
    """`ports.Clock` that records its sleeps and does not wait."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


class Middle:
    """`ports.Entropy` that always draws the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@dataclass
class Observed:
    """Both observers, recording their calls."""

    requests: list[tuple[str, str, str]] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    watch_ends: list[WatchEnd] = field(default_factory=list)
    lists: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[tuple[str, str, str]] = field(default_factory=list)
    events: int = 0

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.requests.append((verb, resource, code))

    def watch_event(self, resource: str) -> None:
        self.events += 1

    def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None:
        self.restarts.append(message)
        self.watch_ends.append(reason)

    def listed(self, resource: str, objects: int) -> None:
        self.lists.append((resource, objects))

    def undecodable(self, resource: str, name: str, message: str) -> None:
        self.unreadable.append((resource, name, message))


def fixture(name: str) -> bytes:
    return (FIXTURES / f"{name}.json").read_bytes()


def event(type_: str, body: object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": type_, "object": body}).encode()


def bookmark(resource_version: int, *, initial_events_end: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if initial_events_end else {}
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(resource_version), "annotations": annotations}})


@dataclass(frozen=True)
class Watched:
    """The parameters of a watch."""

    resource_version: str | None
    send_initial_events: bool


class ScriptedApi(FakeApi):
    """Reads from a script: lists in `pages`, watches in `streams`.

    An exception in a stream is raised there. After the last line the watch ends. When all streams are used up, `idle`
    is set and the next watch stays silent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.streams: deque[Iterable[bytes | Exception]] = deque()
        self.pages: deque[bytes | Exception] = deque()
        self.objects: dict[tuple[str, str], bytes | Exception] = {}
        self.watches: list[Watched] = []
        self.lists: list[tuple[str, str, str]] = []
        self.namespaces: list[str | None] = []
        """The namespaces of the lists."""
        self.idle = asyncio.Event()

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        sends_initial_events = request.parameter("sendInitialEvents") == "true"
        self.watches.append(Watched(request.parameter("resourceVersion") or None, sends_initial_events))
        if not self.streams:
            self.idle.set()
            await asyncio.Event().wait()
        for line in self.streams.popleft():
            if isinstance(line, Exception):
                raise line
            yield line

    async def answer(self, request: ApiRequest) -> bytes:
        plural = request.resource.plural
        if request.verb == "list":
            selector = request.parameter("labelSelector") or request.parameter("fieldSelector")
            self.namespaces.append(request.namespace)
            self.lists.append((plural, selector, request.parameter("continue")))
            if (plural, "") not in self.objects:
                return _returned(self.pages.popleft())
        assert not request.writes, "the store writes nothing"
        return _returned(self.objects[plural, request.name or ""])


def _returned(answer: bytes | Exception) -> bytes:
    if isinstance(answer, Exception):
        raise answer
    return answer


def message(why: Explanation | None) -> str:
    """The rendered sentence. Empty: there is nothing to explain."""
    return render(why) if why is not None else ""
