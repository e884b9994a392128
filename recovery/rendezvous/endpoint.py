"""Answers `POST /agent/v1/report`. The cheap checks come first, and those of the head before the body is read.

Order: path and method, size, rate of the address, claims of the token, whether this replica can answer at all; then the
body; then who the API server says it is, the rate of the pod, whether the pod may speak for its Job, and the report.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

import msgspec
import structlog
from aiohttp import web

from recovery.core.model.agent_facts import AgentAnswer, AgentFacts
from recovery.core.model.facts import GroupKey, PodFacts
from recovery.http_server import HttpLimits
from recovery.ports import ApiError, Clock
from recovery.rendezvous.rates import Rates, network_of, retry_after
from recovery.rendezvous.reports import ReportError, read_report, written_answer
from recovery.rendezvous.tokens import TokenError, TokenPod, Tokens, expires_at_seconds

PATH = "/agent/v1/report"
LIMITS = HttpLimits(connections=256, body_bytes=32 * 1024, unread_bytes=8 * 1024 * 1024, idle_seconds=5.0)
"""A connection with TLS takes some 300 KB. Each carries one report, and is closed with its answer."""
ADDRESS_PER_SECOND, ADDRESS_BURST = 50.0, 200.0
"""Agents behind one address share this: those of all jobs, where the network hides the addresses of pods."""
POD_PER_SECOND, POD_BURST = 2.0, 10.0
"""An agent that asks reports every second, and at once when something happens."""
ANSWER_SECONDS_MAX = 2.0
"""How long a report waits for the reconcile that reads it."""
_UNAVAILABLE_SECONDS = 1.0
"""A standby names this delay: the Service sends the next attempt to another replica as likely as not."""

T = TypeVar("T")

_log = structlog.get_logger("recovery.rendezvous")


class Exchange(Protocol):
    """Where reports go and answers come from: `controller.agent_exchange`."""

    def reported(self, key: GroupKey, facts: AgentFacts) -> None: ...

    async def answer_to(self, key: GroupKey, sequence: int, timeout_seconds: float) -> AgentAnswer | None:
        """None: there is no answer within that time."""
        ...


class Members(Protocol):
    """The pods of all groups."""

    def synced(self) -> bool: ...

    def member(self, namespace: str, pod_name: str) -> tuple[GroupKey, PodFacts] | None:
        """The pod of that name and its group, as far as the cache knows.

        None: there is no such pod, its Job is gone, or it only prepares for the training (initializers).
        """
        ...


class ControllerSide(msgspec.Struct, frozen=True):
    """What the endpoint knows of the controller. The methods are called in the controller's event loop."""

    members: Members
    exchange: Exchange
    leads: Callable[[], bool]
    """Whether this process leads. Any thread may ask."""
    loop: asyncio.AbstractEventLoop


class EndpointObserver(Protocol):
    """What the endpoint reports about its work. Any thread may call it."""

    def refused(self, result: str) -> None:
        """A report was not taken in."""
        ...

    def answered(self, key: GroupKey, seconds: float) -> None:
        """A report was answered, this long after it had arrived."""
        ...


class _RefusedError(Exception):
    """The report is refused after its body was read."""

    def __init__(self, status: int, result: str, why: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.result = result
        self.headers = headers or {}


class Endpoint:
    """The handler of reports. It runs in the endpoint's own event loop."""

    def __init__(
        self,
        tokens: Tokens,
        controller: ControllerSide,
        clock: Clock,
        observer: EndpointObserver,
        numbers: Iterator[int],
    ) -> None:
        """`numbers` rises as long as the process lives: the exchange leaves out a report with a lower number."""
        self._tokens = tokens
        self._controller = controller
        self._clock = clock
        self._observer = observer
        self._addresses: Rates[str] = Rates(clock, per_second=ADDRESS_PER_SECOND, burst=ADDRESS_BURST)
        self._pods: Rates[str] = Rates(clock, per_second=POD_PER_SECOND, burst=POD_BURST)
        self._sequence = numbers

    def routes(self) -> list[web.RouteDef]:
        return [web.post(PATH, self.report)]

    def check_head(self, request: web.Request) -> None:
        """Refuse what the head alone shows to be wrong. Raises web.HTTPException."""
        if request.path != PATH:
            raise _of_status(404, "there is nothing here")
        if request.method != "POST":
            raise _of_status(405, "reports are sent with POST", {"Allow": "POST"})
        try:
            self._check_size(request)
            self._check_address(request)
            self._check_claims(request)
            self._check_standing()
        except _RefusedError as refused:
            self._observer.refused(refused.result)
            raise _of_status(refused.status, str(refused), refused.headers) from None

    def _check_size(self, request: web.Request) -> None:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise _RefusedError(415, "malformed", "a report is not compressed")
        if request.content_length is None or "Transfer-Encoding" in request.headers:
            raise _RefusedError(411, "malformed", "a report has a Content-Length")
        if request.content_length > LIMITS.body_bytes:
            raise _RefusedError(413, "too_large", f"a report has at most {LIMITS.body_bytes} bytes")

    def _check_address(self, request: web.Request) -> None:
        if wait := self._addresses.wait_seconds(network_of(request.remote)):
            raise _RefusedError(429, "limited", "too many reports come from this address", retry_after(wait))

    def _check_claims(self, request: web.Request) -> None:
        try:
            expires_at_seconds(_token(request), self._clock.now().timestamp())
        except TokenError as error:
            raise _RefusedError(401, "unauthenticated", str(error)) from None

    def _check_standing(self) -> None:
        if not self._controller.leads():
            raise _unavailable("standby", "this replica stands by")
        if not self._controller.members.synced():
            raise _unavailable("standby", "this replica does not know all pods yet")

    async def report(self, request: web.Request) -> web.Response:
        began = self._clock.monotonic_seconds()
        try:
            pod = await self._authenticated(request)
            if wait := self._pods.wait_seconds(pod.uid):
                raise _RefusedError(429, "limited", "this pod reports too often", retry_after(wait))
            body = await request.read()
            key, answer = await self._in_controller(self._taken_in(pod, body))
        except _RefusedError as refused:
            self._observer.refused(refused.result)
            raise _of_status(refused.status, str(refused), refused.headers) from None
        self._observer.answered(key, self._clock.monotonic_seconds() - began)
        return web.Response(
            body=written_answer(answer), content_type="application/json", headers={"Connection": "close"}
        )

    async def _authenticated(self, request: web.Request) -> TokenPod:
        try:
            return await self._tokens.pod(_token(request))
        except TokenError as error:
            raise _RefusedError(401, "unauthenticated", str(error)) from None
        except ApiError as error:
            _log.warning("a token cannot be checked", error=str(error))
            raise _unavailable("unavailable", "the token cannot be checked now") from None

    async def _taken_in(self, found: TokenPod, body: bytes) -> tuple[GroupKey, AgentAnswer]:
        """Runs in the controller's event loop."""
        member = self._controller.members.member(found.namespace, found.name)
        if member is None or member[1].uid != found.uid:
            raise _RefusedError(403, "forbidden", f"pod {found.namespace}/{found.name} is no member of a group")
        key, pod = member
        if pod.index != 0:
            raise _RefusedError(403, "forbidden", "the pod with completion index 0 alone reports for its Job")
        sequence = next(self._sequence)
        try:
            facts = read_report(
                body, job_uid=pod.job_uid, pod_uid=pod.uid, received_at=self._clock.now(), sequence=sequence
            )
        except ReportError as error:
            raise _RefusedError(400, "malformed", str(error)) from None
        self._controller.exchange.reported(key, facts)
        answer = await self._controller.exchange.answer_to(key, sequence, ANSWER_SECONDS_MAX)
        if answer is None:
            raise _unavailable("unanswered", "nothing has been decided about this report yet")
        self._check_standing()  # the term may have ended meanwhile, and the next leader may decide otherwise
        return key, answer

    async def _in_controller(self, work: Awaitable[T]) -> T:
        """The result of this work, which is done in the controller's event loop."""

        async def done() -> T:
            return await work

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(done(), self._controller.loop))


def _token(request: web.Request) -> str:
    """The bearer token. Raises TokenError."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise TokenError("a report bears a token")
    return token.strip()


def _unavailable(result: str, why: str) -> _RefusedError:
    return _RefusedError(503, result, why, retry_after(_UNAVAILABLE_SECONDS))


def _of_status(status: int, why: str, headers: dict[str, str] | None = None) -> web.HTTPException:
    """The refusal as aiohttp raises it. The connection is closed with it: its body may be unread."""
    return _Refusal(status, headers={**(headers or {}), "Connection": "close"}, text=f"{why}\n")


class _Refusal(web.HTTPException):
    """A refusal with a status of the caller's choice."""

    def __init__(self, status: int, *, headers: dict[str, str], text: str) -> None:
        self.status_code = status
        super().__init__(headers=headers, text=text)
