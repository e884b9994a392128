"""The client against a server: what it sends, what it retries, and what it does not retry."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from recovery import api_verbs
from recovery.kube import http as http_module
from recovery.kube.client import TRIES_MAX, WRITES_IN_FLIGHT_MAX, KubeApiClient
from recovery.kube.http import REQUEST_SECONDS_MAX, HttpTransport
from recovery.kube.session import open_session
from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX
from recovery.ports import (
    NODES,
    PODS,
    RECOVERY_GROUPS,
    ConflictError,
    ExpiredError,
    PatchKind,
    Propagation,
    RefusedError,
    SilentWatchError,
    TestFailedError,
    TryLaterError,
    UnauthorizedError,
    UnknownOutcomeError,
)
from tests.unit.kube.server import OBJECT, Server, hang_up, status, stream
from tests.unit.kube.testing import FakeClock, Middle, Observed
from tests.unit.patience import GUARD_SECONDS, time_passes


async def test_reads_are_addressed_as_the_api_server_expects(client: KubeApiClient, server: Server) -> None:
    assert await api_verbs.get(client, PODS, "p", namespace="a") == OBJECT
    await api_verbs.list_page(
        client, NODES, label_selector="a=b,c", field_selector="x=y", resource_version="0", limit=5, continue_token="t"
    )
    await api_verbs.list_page(client, RECOVERY_GROUPS, namespace="a")
    get, nodes, groups = server.received
    assert (get.method, get.path, dict(get.query)) == ("GET", "/api/v1/namespaces/a/pods/p", {})
    assert get.headers["Authorization"] == "Bearer secret"
    assert (nodes.path, dict(nodes.query)) == (
        "/api/v1/nodes",
        {"labelSelector": "a=b,c", "fieldSelector": "x=y", "resourceVersion": "0", "limit": "5", "continue": "t"},
    )
    assert groups.path == "/apis/recovery.trainjob.dev/v1alpha1/namespaces/a/recoverygroups"
    assert dict(groups.query) == {}


async def test_a_log_is_plain_text_and_asked_for_once_whatever_the_answer(
    client: KubeApiClient, server: Server
) -> None:
    async def read() -> bytes:
        return await api_verbs.pod_log(
            client, "p", namespace="a", container="node", previous=True, tail_lines=64, limit_bytes=100
        )

    server.script.append(stream(b"step 7\n", b"NCCL error\n"))
    assert await read() == b"step 7\nNCCL error\n"
    [request] = server.received
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/a/pods/p/log")
    assert dict(request.query) == {"container": "node", "previous": "true", "tailLines": "64", "limitBytes": "100"}

    server.script.append(status(503, "ServiceUnavailable"))
    with pytest.raises(TryLaterError):
        await read()
    assert len(server.received) == 2


async def test_writes_carry_their_body_and_its_kind(client: KubeApiClient, server: Server) -> None:
    await api_verbs.create(client, PODS, {"kind": "Eviction"}, namespace="a", name="p", subresource="eviction")
    await api_verbs.patch(
        client, RECOVERY_GROUPS, "g", [{"op": "x"}], kind=PatchKind.JSON, namespace="a", subresource="status"
    )
    await api_verbs.delete(client, PODS, "p", namespace="a")
    await api_verbs.delete(
        client,
        PODS,
        "p",
        namespace="a",
        uid="u",
        resource_version="7",
        propagation=Propagation.FOREGROUND,
        grace_seconds=0,
    )
    create, patch, delete, careful = server.received
    assert (create.method, create.path) == ("POST", "/api/v1/namespaces/a/pods/p/eviction")
    assert create.headers["Content-Type"] == "application/json"
    assert (patch.method, patch.path.rpartition("/")[2]) == ("PATCH", "status")
    assert (patch.headers["Content-Type"], patch.json) == ("application/json-patch+json", [{"op": "x"}])
    assert (delete.method, delete.json) == ("DELETE", {"preconditions": {}})
    assert careful.json == {
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


async def test_a_name_cannot_lead_to_another_path(client: KubeApiClient, server: Server) -> None:
    await api_verbs.get(client, PODS, "../b?x#y", namespace="a/b")
    assert server.received[0].path == "/api/v1/namespaces/a%2Fb/pods/..%2Fb%3Fx%23y"


async def test_what_was_not_applied_is_tried_again(
    client: KubeApiClient, server: Server, clock: FakeClock, observed: Observed
) -> None:
    server.script.extend(
        [status(429, headers={"Retry-After": "2"}), status(429), status(429, headers={"Retry-After": "3600"})]
    )
    assert await api_verbs.delete(client, PODS, "p", namespace="a", uid="u") == OBJECT
    assert clock.slept == pytest.approx([2 * 1.1, 0.4 * 0.75, 10 * 1.1])
    assert observed.requests == [("delete", "pods", "429")] * 3 + [("delete", "pods", "200")]


async def test_trying_again_has_an_end(client: KubeApiClient, server: Server) -> None:
    server.script.extend([status(503, message="not ready")] * 10)
    with pytest.raises(TryLaterError, match="list pods: not ready"):
        await api_verbs.list_page(client, PODS)
    assert len(server.received) == TRIES_MAX


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(409, "Conflict"), ConflictError),
        (status(422, "Invalid"), TestFailedError),
        (status(500), UnknownOutcomeError),
        (status(400), RefusedError),
        (status(302), RefusedError),
    ],
    ids=["409", "422", "500", "400", "302"],
)
async def test_everything_else_goes_to_the_caller_at_once(
    client: KubeApiClient, server: Server, answer: object, error: type[Exception]
) -> None:
    assert callable(answer)
    server.script.append(answer)
    with pytest.raises(error):
        await api_verbs.patch(client, PODS, "p", [{"op": "test", "path": "/a"}], kind=PatchKind.JSON, namespace="a")
    assert len(server.received) == 1


async def test_a_write_whose_answer_is_lost_is_not_repeated(
    client: KubeApiClient, server: Server, observed: Observed
) -> None:
    async def lose(request: web.Request) -> web.StreamResponse:
        hang_up(request)
        return web.Response()

    server.script.append(lose)
    with pytest.raises(UnknownOutcomeError):
        await api_verbs.create(client, PODS, {}, namespace="a")
    assert len(server.received) == 1
    assert observed.requests == [("create", "pods", "connection")]


async def test_a_write_that_gets_no_answer_in_time_has_an_unknown_outcome(
    server: Server, tmp_path: Path, clock: FakeClock, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, release = asyncio.Event(), asyncio.Event()

    async def stall(_: web.Request) -> web.StreamResponse:
        stalled.set()
        await release.wait()
        return web.Response()

    server.script.append(stall)
    async with open_session(kubeconfig=server.kubeconfig(tmp_path)) as session:
        client = KubeApiClient(HttpTransport(session, clock=clock, observer=observed), clock=clock, entropy=Middle())
        writing = asyncio.create_task(api_verbs.create(client, PODS, {}, namespace="a"))
        await stalled.wait()
        time_passes(REQUEST_SECONDS_MAX, monkeypatch)
        with pytest.raises(
            UnknownOutcomeError, match=r"create pods a: no answer from http://127.0.0.1:\d+ within 30 s"
        ):
            await writing
        release.set()
    assert observed.requests == [("create", "pods", "timeout")]


async def test_a_write_that_never_left_is_tried_again(server: Server, tmp_path: Path, clock: FakeClock) -> None:
    server.url = "http://127.0.0.1:1"
    async with open_session(kubeconfig=server.kubeconfig(tmp_path)) as session:
        client = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=Middle())
        with pytest.raises(TryLaterError, match="create pods a: "):
            await api_verbs.create(client, PODS, {}, namespace="a")
    assert len(clock.slept) == TRIES_MAX - 1


async def test_writes_in_flight_are_bounded_and_reads_pass_them_by(client: KubeApiClient, server: Server) -> None:
    release = asyncio.Event()

    async def stuck(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(body=OBJECT)

    server.script.extend([stuck] * WRITES_IN_FLIGHT_MAX)
    writes = [asyncio.create_task(api_verbs.delete(client, PODS, f"p{number}", namespace="a")) for number in range(80)]
    while server.script:
        await asyncio.sleep(0.005)
    await api_verbs.get(client, PODS, "p", namespace="a")
    assert Counter(request.method for request in server.received) == {"DELETE": WRITES_IN_FLIGHT_MAX, "GET": 1}
    release.set()
    await asyncio.gather(*writes)


class TestCredentials:
    """A token in a file that changes while the client runs."""

    @pytest.fixture
    def token(self, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text("old")
        return path

    @pytest.fixture
    async def client(
        self, server: Server, tmp_path: Path, token: Path, clock: FakeClock
    ) -> AsyncIterator[KubeApiClient]:
        async with open_session(kubeconfig=server.kubeconfig(tmp_path, {"tokenFile": str(token)})) as session:
            yield KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=Middle())

    async def test_a_refused_token_is_read_again_once(self, client: KubeApiClient, server: Server, token: Path) -> None:
        token.write_text("new")
        server.script.append(status(401, "Unauthorized"))
        assert await api_verbs.create(client, PODS, {}, namespace="a") == OBJECT
        assert [request.headers["Authorization"] for request in server.received] == ["Bearer old", "Bearer new"]

    async def test_a_token_that_stays_refused_is_an_error(self, client: KubeApiClient, server: Server) -> None:
        server.script.extend([status(401)] * 5)
        with pytest.raises(UnauthorizedError):
            await api_verbs.get(client, PODS, "p", namespace="a")
        assert len(server.received) == 2

    async def test_no_new_token_says_why(self, client: KubeApiClient, server: Server, token: Path) -> None:
        token.unlink()
        server.script.append(status(401))
        with pytest.raises(UnauthorizedError, match="no new credentials: kubeconfig "):
            await api_verbs.get(client, PODS, "p", namespace="a")

    async def test_a_burst_of_refusals_is_one_refresh(self, server: Server, tmp_path: Path, clock: FakeClock) -> None:
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "t"},
        }
        runs = tmp_path / "runs"
        command = f"echo run >> {runs}; echo '{json.dumps(credential)}'"
        plugin = {"apiVersion": credential["apiVersion"], "command": "sh", "args": ["-c", command]}
        server.script.extend([status(401)] * 10)
        async with open_session(kubeconfig=server.kubeconfig(tmp_path, {"exec": plugin})) as session:
            client = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=Middle())
            await asyncio.gather(*(api_verbs.get(client, PODS, "p", namespace="a") for _ in range(10)))
        assert runs.read_text().split() == ["run"] * 2

    async def test_a_burst_of_refusals_runs_a_plugin_that_fails_once(
        self, server: Server, tmp_path: Path, clock: FakeClock
    ) -> None:
        """Each run may open a browser or prompt on the terminal. A later refusal runs the plugin again."""
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "t"},
        }
        runs = tmp_path / "runs"
        command = f"test -e {runs}; seen=$?; echo run >> {runs}; test $seen = 1 && echo '{json.dumps(credential)}'"
        plugin = {"apiVersion": credential["apiVersion"], "command": "sh", "args": ["-c", command]}
        server.script.extend([status(401)] * 11)
        async with open_session(kubeconfig=server.kubeconfig(tmp_path, {"exec": plugin})) as session:
            client = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=Middle())
            reads = (api_verbs.get(client, PODS, "p", namespace="a") for _ in range(10))
            failed = await asyncio.gather(*reads, return_exceptions=True)
            assert [str(error).count("exec: sh exited with 1") for error in failed] == [1] * 10
            assert runs.read_text().split() == ["run"] * 2
            with pytest.raises(UnauthorizedError):
                await api_verbs.get(client, PODS, "p", namespace="a")
        assert runs.read_text().split() == ["run"] * 3


async def lines_of(client: KubeApiClient, **arguments: str) -> list[bytes]:
    return [line async for line in api_verbs.watch(client, PODS, timeout_seconds=9, **arguments)]  # type: ignore[arg-type]


async def test_a_watch_yields_lines_of_any_length(client: KubeApiClient, server: Server, observed: Observed) -> None:
    huge = b'{"type":"ADDED","object":{"x":"' + b"x" * 3_000_000 + b'"}}'
    server.script.append(stream(b'{"a":', b"1}\n" + huge[:70_000], huge[70_000:] + b'\n{"b":2}\n{"cut off":'))
    assert await lines_of(client, resource_version="5", label_selector="a") == [b'{"a":1}', huge, b'{"b":2}']
    assert dict(server.received[0].query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "labelSelector": "a",
        "timeoutSeconds": "9",
    }
    assert observed.requests == [("watch", "pods", "200")]


async def test_a_streaming_list_is_asked_for(client: KubeApiClient, server: Server) -> None:
    server.script.append(stream())
    assert [line async for line in api_verbs.watch(client, PODS, send_initial_events=True)] == []
    query = server.received[0].query
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in query


async def test_a_watch_that_breaks_delivers_what_came_and_then_says_so(client: KubeApiClient, server: Server) -> None:
    server.script.append(stream(b"1\n2\n", cut_off=True))
    lines = api_verbs.watch(client, PODS)
    assert [await anext(lines), await anext(lines)] == [b"1", b"2"]
    with pytest.raises(TryLaterError, match=r"watch pods: the connection to http.* broke in the middle of the answer"):
        await anext(lines)


async def test_a_watch_on_which_nothing_comes_is_given_up_though_its_connection_stands(
    server: Server, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"1\n")
        await release.wait()
        return response

    async def headless(_: web.Request) -> web.StreamResponse:
        asked.set()
        await release.wait()
        return web.Response()

    async with open_session(kubeconfig=server.kubeconfig(tmp_path)) as session:
        transport = HttpTransport(session, clock=clock)
        server.script.extend([silent, headless])
        lines = watching(transport)
        assert await anext(lines) == b"1"
        time_passes(WATCH_IDLE_SECONDS_MAX, monkeypatch)
        with pytest.raises(SilentWatchError, match="nothing comes on it"):
            await anext(lines)
        begun = asyncio.create_task(anext(watching(transport)))
        await asked.wait()
        time_passes(REQUEST_SECONDS_MAX, monkeypatch)
        with pytest.raises(TryLaterError, match=r"no answer from http://127.0.0.1:\d+ within 30 s"):
            await begun
        release.set()


def watching(transport: HttpTransport) -> AsyncGenerator[bytes, None]:
    return api_verbs.watch(transport, PODS, resource_version="7", send_initial_events=False, timeout_seconds=300)


async def test_a_watch_from_a_forgotten_position_is_expired(client: KubeApiClient, server: Server) -> None:
    server.script.append(status(410, "Expired", "too old resource version"))
    with pytest.raises(ExpiredError):
        await lines_of(client, resource_version="1")


async def test_a_watch_that_is_left_closes_its_connection(client: KubeApiClient, server: Server) -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"line\n")
                await asyncio.sleep(0.005)
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    server.script.append(endless)
    watch = api_verbs.watch(client, PODS)
    assert await anext(watch) == b"line"
    await watch.aclose()
    await asyncio.wait_for(gone.wait(), GUARD_SECONDS)


async def test_a_connection_that_takes_no_options_is_watched_without_them(
    client: KubeApiClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "DEAD_PEER_IDLE_SECONDS", 1 << 30)  # the kernel refuses it
    server.script.append(stream(b"1\n"))
    assert await lines_of(client) == [b"1"]
