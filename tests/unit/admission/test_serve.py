"""Admission beside a controller: HTTPS, a thread of its own, and nothing that could end or block the process."""

import asyncio
import base64
import json
import logging
import random
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from kopf._core.reactor import inventory
from structlog.testing import capture_logs

from recovery.admission import serve, webhooks
from recovery.admission.certificates import Certificates, SelfMade, make_certificates
from recovery.admission.https_server import WEBHOOK_LIMITS
from recovery.admission.serve import AdmissionServer, ClusterAccess, serve_admission
from recovery.admission.settings import AdmissionSettings
from recovery.controller.clock import SystemClock
from recovery.kube.informer import INITIAL_EVENTS_END
from recovery.ports import RECOVERY_GROUP_NAME, ApiError
from tests.unit.admission.api import recovery_config, recovery_policy
from tests.unit.fake_api import Object
from tests.unit.launch.pages import BASES, merged

GROUPS = {
    RECOVERY_GROUP_NAME: ("v1alpha1", ["recoverypolicies", "clusterrecoverypolicies", "recoveryconfigs"]),
    "batch": ("v1", ["jobs"]),
    "trainer.kubeflow.org": ("v1alpha1", ["trainjobs", "trainingruntimes", "clustertrainingruntimes"]),
    "apiextensions.k8s.io": ("v1", ["customresourcedefinitions"]),
}


JOB, RUNTIME = (each for each in yaml.safe_load_all((BASES / "torch.yaml").read_text()) if each)


class Cluster127:
    """As much of an API server as admission asks for; everything that it asks is noted."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization."""
        self.refuses = False
        self.silent = False
        """It takes requests and never answers."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, request.headers.get("Authorization", "")))
        while self.silent:
            await asyncio.sleep(0.02)
        if self.refuses:
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        if "watch" in request.query:
            return await self._watch(request)
        if request.path.endswith("/clustertrainingruntimes/torch-prepared"):
            return web.json_response(RUNTIME)
        return web.json_response(self._discovery(request.path))

    def _discovery(self, path: str) -> Object:
        parts = path.strip("/").split("/")
        if parts == ["api"]:
            return {"versions": ["v1"]}
        if parts == ["api", "v1"]:
            return {"resources": [_resource("namespaces"), _resource("events")]}
        if parts == ["apis"]:
            versions = {name: {"version": version} for name, (version, _) in GROUPS.items()}
            return {
                "groups": [
                    {"name": name, "versions": [version], "preferredVersion": version}
                    for name, version in versions.items()
                ]
            }
        return {"resources": [_resource(plural) for plural in GROUPS[parts[1]][1]]}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        end = {"metadata": {"resourceVersion": "1", "annotations": {INITIAL_EVENTS_END: "true"}}}
        await response.write(json.dumps({"type": "BOOKMARK", "object": end}).encode() + b"\n")
        while request.transport is not None and not request.transport.is_closing():
            await asyncio.sleep(0.02)
        return response


def _resource(plural: str) -> Object:
    return {"name": plural, "kind": plural, "singularName": plural, "namespaced": True, "verbs": ["list", "watch"]}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster127]:
    made = Cluster127()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


class Folder:
    """Certificates as cert-manager leaves them, and a kubeconfig."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.port = _free_port()
        self.reviews: list[tuple[str, str]] = []
        """Webhook and outcome of each, as the thread of the webhooks reports them."""
        self.kubeconfig = path / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                    "clusters": [{"name": "tests", "cluster": {"server": url}}],
                    "users": [{"name": "tests", "user": {"token": "secret"}}],
                }
            )
        )

    def certify(self, days_ago: int = 0) -> Certificates:
        """Put a new certificate, made so long ago, in place of the one that is there.

        Both files at once, as the kubelet replaces those of a Secret.
        """
        made = make_certificates(["127.0.0.1"], datetime.now(UTC) - timedelta(days=days_ago), Certificates())
        version = Path(tempfile.mkdtemp(dir=self.path))
        (version / "tls.crt").write_bytes(made.serving)
        (version / "tls.key").write_bytes(made.key)
        data, new = self.path / "..data", version / "..data"
        new.symlink_to(version)
        new.replace(data)
        for name in ("tls.crt", "tls.key"):
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(data / name)
        return made

    def replace(self, name: str, content: bytes) -> None:
        """One file alone."""
        new = self.path / f"{name}.new"
        new.write_bytes(content)
        new.replace(self.path / name)

    @asynccontextmanager
    async def admission(self, *, self_made: bool = False) -> AsyncIterator[AdmissionServer]:
        settings = AdmissionSettings("127.0.0.1", self.port, None if self_made else self.path)
        cluster = ClusterAccess("recovery-system", str(self.kubeconfig))
        count = self.reviews.append
        async with serve_admission(
            settings, cluster, SystemClock(), random.Random(1), lambda *review: count(review)
        ) as admission:
            yield admission

    async def review(self, made: Certificates, request: Object, path: str = "") -> Object:
        """What the webhook answers; `path` empty: the one that judges that kind."""
        trusting = ssl.create_default_context(cadata=made.authorities.decode())
        url = f"https://127.0.0.1:{self.port}/{path or request['resource']['resource']}"
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
            session.post(url, json=review) as response,
        ):
            answer: Object = (await response.json())["response"]
            return answer

    async def comes_to_serve(self, made: Certificates) -> bool:
        """Whether a good object is allowed, once this certificate is served. Raises TimeoutError if it never is."""
        async with asyncio.timeout(10):
            while True:
                try:
                    return bool((await self.review(made, asked(recovery_policy())))["allowed"])
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)


@pytest.fixture
def folder(cluster: Cluster127, tmp_path: Path) -> Folder:
    return Folder(tmp_path, cluster.url)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def asked(new: Object, old: Object | None = None) -> Object:
    """The request of an AdmissionReview."""
    kind, (group, _, version) = new["kind"], new["apiVersion"].partition("/")
    plural = {"RecoveryPolicy": "recoverypolicies"}.get(kind, kind.lower() + "s")
    return {
        "uid": "1",
        "namespace": new["metadata"].get("namespace", ""),
        "resource": {"group": group, "version": version, "resource": plural},
        "operation": "UPDATE" if old is not None else "CREATE",
        "userInfo": {"username": "ann"},
        "object": new,
        "oldObject": old,
    }


async def comes(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "admission"]


# --- what is answered ----------------------------------------------------------------------------------------------


BAD = recovery_policy(budget={"limit": -1, "window": "7d"})
ENDING = {**BAD, "metadata": {**BAD["metadata"], "deletionTimestamp": "2026-03-01T12:00:00Z"}}
LABELLED = {**BAD, "metadata": {**BAD["metadata"], "labels": {"team": "a"}}}
PAUSED = recovery_config(paused=True)

ANSWERS: dict[str, tuple[Object, bool, int]] = {
    "a good one": (asked(recovery_policy()), True, 0),
    "a bad one": (asked(BAD), False, 0),
    "a good one becomes bad": (asked(BAD, recovery_policy()), False, 0),
    "a bad one is labelled": (asked(LABELLED, BAD), True, 2),
    "a bad one loses its last finalizer": (asked(ENDING, BAD), True, 0),
    "a pause": (asked(PAUSED), True, 1),
}


@pytest.mark.parametrize(("request_body", "allowed", "warnings"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_answers(folder: Folder, request_body: Object, allowed: bool, warnings: int) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answer = await folder.review(made, request_body)
    assert (answer["allowed"], len(answer.get("warnings", []))) == (allowed, warnings)
    assert "patch" not in answer
    outcome = "refused" if not allowed else "warned" if warnings else "allowed"
    assert folder.reviews == [(request_body["resource"]["resource"], outcome)]


async def test_a_refusal_names_every_field_and_its_fix_and_is_no_error_of_ours(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    made = folder.certify()
    with caplog.at_level(logging.WARNING):
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            answer = await folder.review(made, asked(BAD))
    assert answer["status"] == {
        "code": 422,
        "message": "spec.budget.limit: -1 is negative; 0 allows no recovery at all; "
        "spec.budget.window: '7d' is not a duration; write it like 24h, 15m, 10s or 500ms",
    }
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kopf")] == []


RESERVED = merged(JOB, {"spec": {"trainer": {"env": [{"name": "PET_NNODES", "value": "2"}]}}})
NO_NODES = merged(RESERVED, {"spec": {"trainer": {"numNodes": 0}}})
LEAVING = merged(RESERVED, {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}})
NO_SIDECAR = merged(
    RUNTIME,
    {"spec": {"mlPolicy": {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}}}},
)

LAUNCH_ANSWERS: dict[str, tuple[Object, list[str]]] = {
    "a good job": (asked(JOB), []),
    "a bad job": (asked(NO_NODES), ["bad-number", "reserved-env"]),
    "a bad job is labelled": (asked(merged(NO_NODES, {"metadata": {"labels": {"a": "b"}}}), NO_NODES), []),
    "a bad job that is being deleted": (asked(LEAVING, JOB), []),
    "a bad runtime": (asked(NO_SIDECAR), ["injection-target"]),
    "a runtime becomes bad": (asked(NO_SIDECAR, RUNTIME), ["injection-target"]),
}


@pytest.mark.parametrize(("request_body", "refused"), LAUNCH_ANSWERS.values(), ids=LAUNCH_ANSWERS.keys())
async def test_train_jobs_and_runtimes_are_refused_with_a_line_for_each_error(
    folder: Folder, request_body: Object, refused: list[str]
) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answer = await folder.review(made, request_body)
    lines = answer.get("status", {}).get("message", "").splitlines()
    assert [line.partition(": ")[0] for line in lines] == refused
    assert answer["allowed"] is not bool(refused)
    assert not {"patch", "warnings"} & set(answer)


BIG = merged(NO_NODES, {"metadata": {"annotations": {"notes": "x" * 1024 * 1024}}})


async def test_one_over_the_bound_is_admitted_with_a_warning_and_a_deep_one_refused_with_a_message(
    folder: Folder,
) -> None:
    deep: Object = {}
    for _ in range(400):
        deep = {"deeper": deep}
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        big = await folder.review(made, asked(BIG))
        nested = await folder.review(made, asked(merged(JOB, {"spec": {"trainer": deep}})))
    assert big["allowed"]
    assert "too large to be checked" in big["warnings"][0]
    assert nested["status"] == {"code": 422, "message": "the object is nested more than 100 levels deep"}
    assert folder.reviews == [("trainjobs", "warned"), ("trainjobs", "refused")]


async def test_an_object_of_another_namespace_than_its_request_gets_no_verdict_and_nothing_is_read_for_it(
    cluster: Cluster127, folder: Folder
) -> None:
    made = folder.certify()
    theirs = merged(JOB, {"metadata": {"namespace": "victim"}, "spec": {"runtimeRef": {"kind": "TrainingRuntime"}}})
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        with pytest.raises(aiohttp.ContentTypeError, match="400"):
            await folder.review(made, {**asked(theirs), "namespace": "team"})
    assert not [path for _, path, _ in cluster.requests if "victim" in path]


CPUS = {"requests": {"cpu": 4, "nvidia.com/gpu": None}, "limits": {"cpu": 8, "nvidia.com/gpu": None}}
MISCOUNTED = merged(JOB, {"spec": {"trainer": {"numProcPerNode": None, "resourcesPerNode": CPUS}}})
PREPARED = merged(
    MISCOUNTED, {"metadata": {"annotations": {"recovery.trainjob.dev/prepare-launch": "true", "team": "a"}}}
)


async def test_who_asks_for_it_gets_one_field_and_the_record_of_it(folder: Folder) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answers = [
            await folder.review(made, asked(each), webhooks.PREPARE_PATH) for each in (PREPARED, MISCOUNTED, JOB)
        ]
    assert [answer["allowed"] for answer in answers] == [True] * 3
    assert ["patch" in answer for answer in answers] == [True, False, False]
    patch = json.loads(base64.b64decode(answers[0]["patch"]))
    record = "spec.trainer.numProcPerNode=8 (one for each CPU of the limit of 8, rounded up)"
    assert sorted(patch, key=lambda each: str(each["path"])) == [
        {"op": "add", "path": "/metadata/annotations/recovery.trainjob.dev~1prepared", "value": record},
        {"op": "add", "path": "/spec/trainer/numProcPerNode", "value": 8},
    ]


BORN: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "llm-node-0", "namespace": "team", "labels": {"jobset.sigs.k8s.io/jobset-name": "llm"}},
}

DEFECTS = {
    "of a policy": ("from_request", asked(BAD), ""),
    "of a TrainJob": ("verdict_of", asked(RESERVED), ""),
    "in preparing": ("changes_of", asked(PREPARED), webhooks.PREPARE_PATH),
    "at a birth": ("born", asked(BORN), ""),
}


@pytest.mark.parametrize(("broken", "request_body", "path"), DEFECTS.values(), ids=DEFECTS.keys())
async def test_a_defect_of_ours_admits_and_is_logged_with_its_traceback(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, broken: str, request_body: Object, path: str
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(webhooks, broken, fail)
    made = folder.certify()
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            answer = await folder.review(made, request_body, path)
    assert answer["allowed"]
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert (line["event"], line["error"]) == ("admitted unchecked: this is a bug", "a defect")
    assert line["exc_info"].__traceback__ is not None
    assert line["object"].endswith(request_body["object"]["metadata"]["name"])
    assert folder.reviews == [(path or request_body["resource"]["resource"], "error")]


async def test_nothing_is_remembered_of_what_passes(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf keeps a memo of each object until its deletion is watched; nothing is watched here."""
    remembered: list[object] = []
    monkeypatch.setattr(inventory.ResourceMemories, "_build_key", lambda _, body: remembered.append(body))
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert not (await folder.review(made, asked(RESERVED, JOB)))["allowed"]
    assert remembered == []


async def test_clients_that_send_half_a_request_keep_no_review_out(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """More than may connect, and each with almost as much as one may send."""
    made = folder.certify()
    trusting = ssl.create_default_context(cadata=made.authorities.decode())
    half = b"POST /recoverypolicies HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 900_000
    held: list[asyncio.StreamWriter] = []
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        for _ in range(WEBHOOK_LIMITS.connections + 10):
            _, writer = await asyncio.open_connection("127.0.0.1", folder.port, ssl=trusting)
            held.append(writer)
            with suppress(ConnectionError):
                writer.write(half)
                await writer.drain()
        assert (await folder.review(made, asked(recovery_policy())))["allowed"]
        for writer in held:
            writer.transport.abort()
    assert caplog.records == []


# --- how it lives --------------------------------------------------------------------------------------------------


async def test_kopf_only_reads_with_our_credentials_and_leaves_signals_to_us(
    cluster: Cluster127, folder: Folder
) -> None:
    folder.certify()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
        assert [thread.daemon for thread in threads()] == [True], "the process could not end without it"
    assert threads() == []
    assert {(method, authorization) for method, _, authorization in cluster.requests} == {("GET", "Bearer secret")}
    assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" not in {path for _, path, _ in cluster.requests}


@pytest.mark.usefixtures("nameless_user")
async def test_a_user_without_a_name_serves_too(folder: Folder) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert not (await folder.review(made, asked(BAD)))["allowed"]


async def test_the_expiry_is_that_of_the_certificate_that_is_served(folder: Folder) -> None:
    async with folder.admission() as admission:
        assert admission.certificate_expires_at() is None
        made = folder.certify()
        await comes(lambda: admission.certificate_expires_at() is not None)
        expected = x509.load_pem_x509_certificate(made.serving).not_valid_after_utc
        assert admission.certificate_expires_at() == expected


async def test_a_new_certificate_is_served_without_a_restart(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    old = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert (await folder.review(old, asked(recovery_policy())))["allowed"]
        assert await folder.comes_to_serve(folder.certify())


async def test_a_certificate_that_is_replaced_while_it_is_loaded_is_noticed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server goes on with the old one until the next replacement, which may be months later."""
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    old, load = folder.certify(), ssl.SSLContext.load_cert_chain
    new: list[Certificates] = []

    def load_and_replace(context: ssl.SSLContext, *files: Any) -> None:
        load(context, *files)
        if not new:
            new.append(folder.certify())

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_replace)
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert await folder.comes_to_serve(new[0])
    assert new[0].serving != old.serving


async def test_files_that_are_read_in_the_middle_of_their_replacement_are_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs write one file after the other. The old certificate is served meanwhile."""
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    new = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    load, misfits = ssl.SSLContext.load_cert_chain, 0

    def load_and_go_on(context: ssl.SSLContext, *files: Any) -> None:
        nonlocal misfits
        try:
            load(context, *files)
        except ssl.SSLError:
            misfits += 1
            folder.replace("tls.key", new.key)
            raise

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_and_go_on)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            folder.replace("tls.crt", new.serving)
            assert await folder.comes_to_serve(new)
    assert misfits == 1
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_files_that_never_fit_together_are_the_reason(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    new = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        folder.replace("tls.crt", new.serving)
        await comes(lambda: not admission.up)
        await comes(lambda: "SSLError" in str(admission.why_not_served))


async def test_a_certificate_that_comes_later_is_waited_for(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: any("admission has failed" in line["event"] for line in lines))
            assert "No such file" in str(admission.why_not_served)
            made = folder.certify()
            await comes(lambda: admission.up)
            assert (await folder.review(made, asked(recovery_policy())))["allowed"]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kopf")] == []


async def test_each_reason_for_not_serving_is_logged_once_until_the_webhooks_are_served(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.01)
    one, other = OSError("no disk"), ApiError("no right")
    attempts = iter([one, one, ExceptionGroup("", [one, other]), other, None, None, "serves", one, one, "serves"])
    answers: list[str | None] = []
    serves, fails = asyncio.Event(), threading.Event()

    async def attempt(*_: Any, listening: Callable[[bool], None], stop: asyncio.Event, **__: Any) -> None:
        answers.append(admission.why_not_served)
        outcome = next(attempts)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "serves":
            listening(True)
            answers.append(admission.why_not_served)
            loop.call_soon_threadsafe(serves.set)
            while not stop.is_set() and not fails.is_set():
                await asyncio.sleep(0.01)
            fails.clear()
            listening(False)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(serve, "serve_webhooks", attempt)
    folder.certify()
    with capture_logs() as lines:
        async with asyncio.timeout(20), folder.admission() as admission:
            await serves.wait()
            serves.clear()
            fails.set()
            await serves.wait()
    ended = "EndedError: the webhook server ended by itself"
    assert [line["error"] for line in lines if line["log_level"] == "error"] == [
        "OSError: no disk",
        "OSError: no disk; ApiError: no right",
        ended,
        ended,
        "OSError: no disk",
    ]
    assert answers == [
        "not listening yet",
        "OSError: no disk",
        "OSError: no disk",
        "OSError: no disk; ApiError: no right",
        "ApiError: no right",
        ended,
        ended,
        None,
        ended,
        "OSError: no disk",
        "OSError: no disk",
        None,
    ]


async def test_a_certificate_keeper_that_ends_is_named_and_admission_begins_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would otherwise be served with a certificate that nobody renews."""
    ends = threading.Event()

    async def keep(_: SelfMade) -> None:
        while not ends.is_set():
            await asyncio.sleep(0.01)
        ends.clear()

    async def reconcile(made: SelfMade) -> None:
        each = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
        made.file.write_bytes(each.serving + each.key)

    monkeypatch.setattr(SelfMade, "keep", keep)
    monkeypatch.setattr(SelfMade, "reconcile", reconcile)
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    with capture_logs() as lines:
        async with folder.admission(self_made=True) as admission:
            await comes(lambda: admission.up)
            ends.set()
            await comes(lambda: any(line["log_level"] == "error" for line in lines) and admission.up)
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["error"] == "BackgroundTaskError: the background task 'certificate keeper' has ended: it returned"


async def test_it_is_not_up_when_its_certificate_has_gone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "CERTIFICATE_RECONCILE_SECONDS", 0.02)
    folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        (folder.path / "tls.crt").unlink()
        await comes(lambda: not admission.up)
        assert threads()


async def test_a_port_that_is_taken_is_the_reason_until_it_is_free(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    with socket.socket() as other:
        other.bind(("127.0.0.1", folder.port))
        other.listen()
        async with folder.admission() as admission:
            await comes(lambda: admission.why_not_served not in (None, "not listening yet"))
            assert "Address already in use" in str(admission.why_not_served)
            assert not admission.up
            other.close()
            await comes(lambda: admission.up)
            assert admission.why_not_served is None


async def test_an_expired_certificate_serves_nobody(folder: Folder) -> None:
    """The API server ends the handshake, and admits the object unchecked."""
    made = folder.certify(days_ago=400)
    async with folder.admission() as admission:
        await comes(lambda: "expired" in str(admission.why_not_served))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await folder.review(made, asked(recovery_policy()))
        assert not admission.up


async def test_it_is_not_up_while_its_thread_hangs(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(serve, "HANGS_AFTER_SECONDS", 0.5)
    made = folder.certify()
    hangs, released = threading.Event(), threading.Event()

    def hang(*_: Any) -> Any:
        hangs.set()
        released.wait(20)

    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        monkeypatch.setattr(webhooks, "from_request", hang)
        review = asyncio.create_task(folder.review(made, asked(recovery_policy())))
        await comes(hangs.is_set)
        await comes(lambda: not admission.up)
        assert "has not run for" in str(admission.why_not_served)
        released.set()
        await comes(lambda: admission.up)
        await review


async def test_a_server_that_is_cancelled_by_nobody_of_ours_is_said_and_begins_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    served = webhooks.serve_webhooks
    attempts = 0

    async def cancelled_at_first(*arguments: Any, **options: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncio.CancelledError
        await served(*arguments, **options)

    monkeypatch.setattr(serve, "serve_webhooks", cancelled_at_first)
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["error"] == "EndedError: the webhook server was cancelled"


async def test_an_api_server_that_refuses_us_is_said_and_tried_again(
    cluster: Cluster127, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "RETRY_SECONDS", 0.02)
    folder.certify()
    cluster.refuses = True
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: any("admission has failed" in line["event"] for line in lines))
            assert not admission.up
            cluster.refuses = False
            await comes(lambda: admission.up)
    assert any(line["log_level"] == "error" for line in lines)


async def test_a_thread_that_hangs_is_left_behind(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, released = threading.Event(), threading.Event()

    async def hang(*_: Any, **__: Any) -> None:
        hangs.set()
        released.wait()

    monkeypatch.setattr(serve, "serve_webhooks", hang)
    monkeypatch.setattr(serve, "THREAD_END_SECONDS_MAX", 0.05)
    folder.certify()
    try:
        with capture_logs() as lines:
            async with folder.admission():
                await comes(hangs.is_set)
        assert any("leaving it behind" in line["event"] for line in lines)
    finally:
        released.set()
    await comes(lambda: threads() == [])


async def test_an_api_server_that_does_not_answer_delays_no_end(cluster: Cluster127, folder: Folder) -> None:
    cluster.silent = True
    with capture_logs() as lines:
        async with folder.admission(self_made=True):
            await comes(lambda: bool(cluster.requests))
    cluster.silent = False
    assert threads() == []
    assert [line for line in lines if "leaving it behind" in line["event"]] == []


async def test_stopping_before_it_has_begun_is_no_failure(folder: Folder) -> None:
    with capture_logs() as lines:
        async with folder.admission():
            pass
    assert threads() == []
    assert [line for line in lines if line["log_level"] != "info"] == []
