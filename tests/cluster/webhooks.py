"""The shipped webhooks on the real API server, at a local port, because there is no Service network here."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from recovery.admission.serve import AdmissionServer, ClusterAccess, serve_admission
from recovery.admission.settings import AdmissionSettings
from recovery.controller.clock import SystemClock
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Object, until

SYSTEM = "recovery-system"


class Webhooks:
    """The shipped registration with one local port, and replicas that serve there."""

    def __init__(self, control_plane: ControlPlane, kubeconfig: Path, port: int) -> None:
        self.control_plane = control_plane
        self.kubeconfig = kubeconfig
        self.port = port

    async def register(self, component: str = "self-made") -> None:
        """Register the webhooks. `component`: their folder below manifests/admission."""
        rendered = await self.control_plane.kubectl("kustomize", str(REPOSITORY / "manifests/admission" / component))
        manifests = list(yaml.safe_load_all(rendered))
        for manifest in manifests:
            for webhook in manifest.get("webhooks", []):
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self.port}{path}"}
        await self.control_plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(manifests)
        )

    @asynccontextmanager
    async def served(self, *ports: int) -> AsyncIterator[list[AdmissionServer]]:
        """Served by one replica at the registered port, or by one at each of these ports."""
        cluster, admissions = ClusterAccess(SYSTEM, str(self.kubeconfig)), []
        async with AsyncExitStack() as stack:
            for port in ports or (self.port,):
                serving = serve_admission(
                    AdmissionSettings("127.0.0.1", port), cluster, SystemClock(), random.Random(port)
                )
                admissions.append(await stack.enter_async_context(serving))
            await until("admission is served", lambda: all(each.up for each in admissions))
            yield admissions

    async def asked(self) -> None:
        """Wait until the API server calls the webhooks: it notices a registration and its CA bundle a little later."""
        paused = config(paused=True)
        await eventually(lambda: self.said(paused), "pauses all recoveries")

    async def said(self, *objects: Object, namespace: str = "default") -> str:
        """What kubectl prints on stderr in a dry run of these objects: warnings or a refusal."""
        try:
            await self.control_plane.kubectl(
                "apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "--namespace", namespace,
                "--filename=-", stdin=yaml.safe_dump_all(objects),
            )  # fmt: skip
        except KubectlError as error:
            return error.stderr
        return ""

    async def get(self, *arguments: str) -> Object:
        asked = ("get", "-o", "json", "--show-managed-fields", *arguments)
        found: Object = json.loads(await self.control_plane.kubectl(*asked))
        return found

    async def accepted(self, *arguments: str) -> Object:
        """The condition Accepted of an object; empty while there is none."""
        conditions = (await self.get(*arguments)).get("status", {}).get("conditions", [])
        return next((dict(each) for each in conditions if each["type"] == "Accepted"), {})


def config(**spec: Any) -> Object:
    return {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryConfig",
        "metadata": {"name": "default"},
        "spec": spec,
    }


async def eventually(ask: Any, words: str, timeout_seconds: float = GUARD_SECONDS) -> str:
    """Ask until the answer contains the words."""
    answer = ""
    try:
        async with asyncio.timeout(timeout_seconds):
            while words not in (answer := str(await ask())):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{words!r} did not come; the last answer was {answer!r}") from None
    return answer
