"""A small API server on 127.0.0.1, a folder with certificates, and a client of the webhooks."""

import asyncio
import json
import random
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from recovery.admission.certificates import Certificates, make_certificates
from recovery.admission.serve import AdmissionServer, ClusterAccess, serve_admission
from recovery.admission.settings import AdmissionSettings
from recovery.controller.clock import SystemClock
from recovery.kube.informer import INITIAL_EVENTS_END
from recovery.ports import RECOVERY_GROUP_NAME
from tests.unit.admission.api import recovery_policy
from tests.unit.fake_api import Object
from tests.unit.launch.pages import BASES
from tests.unit.patience import GUARD_SECONDS

GROUPS = {
    RECOVERY_GROUP_NAME: ("v1alpha1", ["recoverypolicies", "clusterrecoverypolicies", "recoveryconfigs"]),
    "batch": ("v1", ["jobs"]),
    "trainer.kubeflow.org": ("v1alpha1", ["trainjobs", "trainingruntimes", "clustertrainingruntimes"]),
    "apiextensions.k8s.io": ("v1", ["customresourcedefinitions"]),
}


JOB, RUNTIME = (each for each in yaml.safe_load_all((BASES / "torch.yaml").read_text()) if each)


class Cluster127:
    """The part of an API server that admission uses. It records every request."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization."""
        self.refuses = False
        self.silent = False
        """It accepts requests and never answers."""

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


class Folder:
    """A folder with certificates as cert-manager writes them, and a kubeconfig."""

    def __init__(self, path: Path, url: str, port: int) -> None:
        """`url`: of the API server. `port`: of the webhooks."""
        self.path = path
        self.port = port
        self.reviews: list[tuple[str, str]] = []
        """Webhook and outcome of each review, as the webhooks' thread reports them."""
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
        """Replace the certificate by a new one, made that long ago.

        Both files change at once, as when the kubelet replaces those of a Secret.
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
        """Replace one file and leave the other."""
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
        """The answer of a webhook. `path` empty: the webhook for the object's kind."""
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
        """Wait until this certificate is served. Returns whether a good object is allowed.

        Raises TimeoutError if the certificate is never served.
        """
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                try:
                    return bool((await self.review(made, asked(recovery_policy())))["allowed"])
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)


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


BAD = recovery_policy(budget={"limit": -1, "window": "7d"})
