"""The endpoint of unit tests: tokens without a signature, an API server that reviews them, one group, an exchange."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import aiohttp

from recovery.core.model.agent_facts import AgentAnswer, AgentFacts
from recovery.core.model.facts import GroupKey, PodFacts
from recovery.http_server import listen
from recovery.ports import ApiError, ApiRequest
from recovery.rendezvous.endpoint import LIMITS, PATH, ControllerSide, Endpoint
from recovery.rendezvous.tokens import AUDIENCE, Tokens
from tests.unit.fake_api import FakeApi
from tests.unit.patience import GUARD_SECONDS
from tests.unit.rendezvous.test_reports import REPORT

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
KEY = GroupKey("team", "llm")
CREATED = datetime(2026, 11, 28, 11, 0, tzinfo=UTC)


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(NOW.timestamp() + self.seconds, tz=UTC)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def token(
    pod: str = "llm-node-0-0-x", *, aud: Any = AUDIENCE, expires_in: float = 3600.0, uid: str = "", **claims: Any
) -> str:
    """A token as the API server issues it to that pod. The test's API server reads the pod from its claims."""
    body = {"aud": [aud] if isinstance(aud, str) else aud, "exp": NOW.timestamp() + expires_in, "pod": pod, "uid": uid}
    parts = ({"alg": "RS256"}, {**body, **claims})
    return ".".join(
        (*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), "s")
    )


class ReviewApi(FakeApi):
    """Reviews tokens. It accepts those that end in `.s`."""

    def __init__(self) -> None:
        super().__init__()
        self.error: ApiError | None = None
        """What every review ends with. None: it is answered."""
        self.held = asyncio.Event()
        """Reviews wait for it."""
        self.held.set()

    async def answer(self, request: ApiRequest) -> bytes:
        assert (request.verb, request.resource.plural) == ("create", "tokenreviews")
        await self.held.wait()
        if self.error is not None:
            raise self.error
        spec = json.loads(request.body or b"")["spec"]
        _, claims, signature = spec["token"].split(".")
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        extra = {
            "authentication.kubernetes.io/pod-name": [said["pod"]],
            "authentication.kubernetes.io/pod-uid": [said["uid"] or f"uid-of-{said['pod']}"],
        }
        user = {"username": said.get("account", "system:serviceaccount:team:default"), "extra": extra}
        if said.get("unbound"):
            user["extra"] = {}
        status = {"authenticated": signature == "s", "user": user, "audiences": spec["audiences"]}
        if signature != "s":
            status = {"authenticated": False, "error": "invalid signature"}
        return json.dumps({"kind": "TokenReview", "status": status}).encode()


def pod(name: str, index: int | None) -> PodFacts:
    return PodFacts(
        name=name,
        uid=f"uid-of-{name}",
        job_uid="job-1",
        job_name="llm-node-0",
        index=index,
        created_at=CREATED,
    )


@dataclass
class World:
    """The controller as the endpoint sees it, and what the endpoint has reported."""

    clock: HandClock = field(default_factory=HandClock)
    api: ReviewApi = field(default_factory=ReviewApi)
    leading: bool = True
    lists: bool = True
    leads_for_answers: int | None = None
    """After how many more answers its term ends. None: it does not."""
    pods: dict[tuple[str, str], tuple[GroupKey, PodFacts]] = field(default_factory=dict)
    taken: list[tuple[GroupKey, AgentFacts]] = field(default_factory=list)
    answer: AgentAnswer | None = field(default_factory=lambda: AgentAnswer(permitted=True, alone=3))
    results: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        for number, index in enumerate((0, 1, None)):
            name = f"llm-node-0-{number}-x"
            self.pods["team", name] = KEY, pod(name, index)

    # What the endpoint asks.

    def synced(self) -> bool:
        return self.lists

    def member(self, namespace: str, pod_name: str) -> tuple[GroupKey, PodFacts] | None:
        return self.pods.get((namespace, pod_name))

    def reported(self, key: GroupKey, facts: AgentFacts) -> None:
        self.taken.append((key, facts))

    async def answer_to(self, key: GroupKey, sequence: int, timeout_seconds: float) -> AgentAnswer | None:
        assert (key, sequence) == (self.taken[-1][0], self.taken[-1][1].sequence)
        if self.leads_for_answers is not None:
            self.leading = self.leads_for_answers > 0
            self.leads_for_answers -= 1
        return self.answer

    def refused(self, result: str) -> None:
        self.results.append(result)

    def answered(self, key: GroupKey, seconds: float) -> None:
        self.results.append("accepted")

    # What a test asks.

    def side(self) -> ControllerSide:
        return ControllerSide(self, self, lambda: self.leading, asyncio.get_running_loop())

    async def post(
        self,
        bearer: str | None = None,
        body: bytes | None = None,
        *,
        path: str = PATH,
        address: str = "127.0.0.1",
        **headers: str,
    ) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of the answer. `bearer` None: the token of slot 0's pod. `address`: the client's."""
        sent = {"Authorization": f"Bearer {token() if bearer is None else bearer}"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        content = json.dumps(REPORT).encode() if body is None else body
        async with (
            asyncio.timeout(GUARD_SECONDS),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0))) as session,
            session.post(f"http://127.0.0.1:{self.port}{path}", data=content, headers=sent) as response,
        ):
            return response.status, await response.text(), dict(response.headers)


@asynccontextmanager
async def answering(**fields: Any) -> AsyncIterator[World]:
    """A world whose endpoint listens, without TLS."""
    world = World(**fields)
    endpoint = Endpoint(Tokens(world.api, world.clock), world.side(), world.clock, world, count(1))
    async with listen(
        endpoint.routes(),
        "127.0.0.1",
        0,
        limits=LIMITS,
        close_seconds=0.1,
        check_head=endpoint.check_head,
    ) as world.port:
        yield world
