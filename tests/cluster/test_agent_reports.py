"""Who may report, asked of a real API server: tokens, audiences, deleted pods, slots, and the rights of the component.

The endpoint runs here as the shipped ServiceAccount, over the real store. The last test runs the whole controller.
"""

import asyncio
import json
import random
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from recovery.controller.clock import SystemClock
from recovery.core.model.agent_facts import AgentAnswer, AgentFacts
from recovery.core.model.facts import GroupKey
from recovery.kube.group_store import KubeGroupStore
from recovery.ports import ApiClient
from recovery.rendezvous.endpoint import PATH, ControllerSide
from recovery.rendezvous.serve import AgentServer, serve_agents
from recovery.rendezvous.settings import AgentSettings
from recovery.rendezvous.tokens import AUDIENCE
from tests.cluster.agents import (
    labelled_namespace,
    runtime_patch,
    service_account,
    set_parameters,
    switch_off,
    torchrun_job,
)
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Object, apply, install_component, until
from tests.cluster.test_birth_settings import as_controller

pytestmark = pytest.mark.central

REPORT = {
    "v": 1,
    "barrier": "0123456789abcdef",
    "epoch": 1,
    "state": "running",
    "stateAgeSeconds": 1.0,
    "epochAgeSeconds": 1.0,
    "slots": 2,
}


@dataclass
class Answers:
    """An exchange that permits everything at once, and what the endpoint has said about its work."""

    taken: list[tuple[GroupKey, AgentFacts]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    leads: bool = True

    def reported(self, key: GroupKey, facts: AgentFacts) -> None:
        self.taken.append((key, facts))

    async def answer_to(self, key: GroupKey, sequence: int, timeout_seconds: float) -> AgentAnswer:
        return AgentAnswer(permitted=True, alone=3)

    def refused(self, result: str) -> None:
        self.results.append(result)

    def answered(self, key: GroupKey, seconds: float) -> None:
        self.results.append("accepted")


@dataclass
class Place:
    """A job with two pods, and an endpoint that knows them."""

    control_plane: ControlPlane
    namespace: str
    answers: Answers
    port: int
    authority: str

    async def pod(self, slot: int) -> Object:
        return await pod_of(self.control_plane, self.namespace, slot)

    async def token(self, pod: Object | None, audience: str = AUDIENCE) -> str:
        """A token as the kubelet requests it for that pod. None: one that is bound to no pod."""
        asked = ["create", "token", "default", "-n", self.namespace, f"--audience={audience}", "--duration=10m"]
        if pod is not None:
            meta = pod["metadata"]
            bound = ("--bound-object-kind=Pod", f"--bound-object-name={meta['name']}")
            asked += [*bound, f"--bound-object-uid={meta['uid']}"]
        return (await self.control_plane.kubectl(*asked)).strip()

    async def post(self, token: str) -> tuple[int, str]:
        return await post(self.port, self.authority, token)


async def post(port: int, authority: str, token: str, report: Object = REPORT) -> tuple[int, str]:
    """Report over TLS, trusting what the ConfigMap has."""
    trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(GUARD_SECONDS),
        aiohttp.ClientSession(connector=trusting) as session,
        session.post(f"https://127.0.0.1:{port}{PATH}", json=report, headers=headers) as response,
    ):
        return response.status, await response.text()


async def pod_of(control_plane: ControlPlane, namespace: str, slot: int) -> Object:
    """The pod of that slot, once the Job controller has made it."""
    selector = f"-l=batch.kubernetes.io/job-completion-index={slot}"
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            said = await control_plane.kubectl("get", "pods", "-n", namespace, selector, "-o", "json")
            living = [pod for pod in json.loads(said)["items"] if "deletionTimestamp" not in pod["metadata"]]
            if living:
                return dict(living[0])
            await asyncio.sleep(0.2)


async def published(control_plane: ControlPlane) -> str:
    """The authority in the ConfigMap, once the leader has written it."""
    asked = ("get", "configmap", "recovery-agent", "-n", "recovery-system", "-o", "json")
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            found = json.loads(await control_plane.kubectl(*asked))["data"].get("ca.crt", "")
            if "BEGIN CERTIFICATE" in found:
                return str(found)
            await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def namespace(installed: ControlPlane) -> AsyncIterator[str]:
    """A namespace with a torchrun job of two pods, and the component."""
    await install_component(installed, "agent")
    await set_parameters(installed, **{"ca.crt": ""})
    name = await labelled_namespace(installed, "reports")
    await apply(installed, name, service_account("default"))
    body = torchrun_job("llm")
    body["spec"]["runtimePatches"] = [runtime_patch(serviceAccountName="default")]
    await apply(installed, name, body)
    for slot in (0, 1):
        await pod_of(installed, name, slot)
    yield name
    await installed.kubectl("delete", "namespace", name, "--wait=false")
    await switch_off(installed)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(installed: ControlPlane, namespace: str) -> AsyncIterator[Place]:
    answers, clock = Answers(), SystemClock()

    @asynccontextmanager
    async def connect() -> AsyncIterator[ApiClient]:
        async with as_controller(installed) as client:
            yield client

    async with as_controller(installed) as api:
        store = KubeGroupStore(api, clock=clock, entropy=random.Random(1))
        running = asyncio.create_task(store.run())
        side = ControllerSide(store, answers, lambda: answers.leads, asyncio.get_running_loop())
        server = AgentServer(
            AgentSettings("127.0.0.1", 0),
            connect,
            side,
            namespace="recovery-system",
            clock=clock,
            observer=answers,
        )
        try:
            async with serve_agents(server) as agents:
                await until("all caches are synced", store.synced)
                await until("the endpoint listens", lambda: agents.port is not None)
                yield Place(installed, namespace, answers, agents.port or 0, await published(installed))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_the_pod_of_slot_0_reports_with_its_own_token(place: Place) -> None:
    pod = await place.pod(0)
    status, said = await place.post(await place.token(pod))
    assert (status, json.loads(said)["alone"]) == (200, 3), said
    key, facts = place.answers.taken[-1]
    assert key == GroupKey(place.namespace, "llm")
    assert facts.pod_uid == pod["metadata"]["uid"]
    assert facts.job_uid == pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]
    assert abs((datetime.now(UTC) - facts.received_at).total_seconds()) < GUARD_SECONDS


async def test_other_slots_audiences_and_tokens_are_refused(place: Place) -> None:
    first, second = await place.pod(0), await place.pod(1)
    good = await place.token(first)
    header, claims, _ = good.split(".")
    _, _, other_signature = (await place.token(second)).split(".")
    taken = len(place.answers.taken)
    refused = {
        "the pod of slot 1": (await place.token(second), 403),
        "another audience": (await place.token(first, "https://kubernetes.default.svc"), 401),
        "bound to no pod": (await place.token(None), 401),
        "the signature of another token": (f"{header}.{claims}.{other_signature}", 401),
        "no signature": (f"{header}.{claims}.", 401),
        "no token": ("nothing", 401),
    }
    for what, (token, status) in refused.items():
        assert (await place.post(token))[0] == status, what
    assert len(place.answers.taken) == taken


async def test_the_token_is_of_no_use_at_the_api_server(place: Place) -> None:
    token = await place.token(await place.pod(0))
    url = f"{place.control_plane.server}/api/v1/namespaces/{place.namespace}/pods"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(url, headers={"Authorization": f"Bearer {token}"}) as response,
    ):
        assert response.status == 401


async def test_the_token_of_a_deleted_pod_is_refused_and_its_successor_reports(place: Place) -> None:
    pod = await place.pod(0)
    known, fresh = await place.token(pod), await place.token(pod)
    assert (await place.post(known))[0] == 200
    name = pod["metadata"]["name"]
    await place.control_plane.kubectl("delete", "pod", name, "-n", place.namespace, "--grace-period=0", "--force")
    async with asyncio.timeout(GUARD_SECONDS):
        while (await place.post(known))[0] != 403:  # its review is kept; the store sees the deletion a moment later
            await asyncio.sleep(0.6)
    assert (await place.post(fresh))[0] == 401
    successor = await place.pod(0)
    assert successor["metadata"]["uid"] != pod["metadata"]["uid"]
    token = await place.token(successor)
    async with asyncio.timeout(GUARD_SECONDS):
        while (await place.post(token))[0] != 200:
            await asyncio.sleep(0.6)


async def test_a_standby_sends_agents_away(place: Place) -> None:
    place.answers.leads = False
    try:
        assert (await place.post(await place.token(await place.pod(0))))[0] == 503
    finally:
        place.answers.leads = True


async def test_the_controller_serves_agents_beside_its_work(place: Place) -> None:
    kubeconfig = await place.control_plane.kubeconfig_for_service_account("recovery-system", "recovery-controller")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "controller.log"
        options = ("--agent-address", "127.0.0.1:0")
        async with ControllerProcess.running(kubeconfig, log, options=options) as controller:

            def addresses() -> list[str]:
                return [str(line["address"]) for line in controller.lines() if line.get("msg") == "serving agents"]

            await until("it serves agents", lambda: bool(addresses()))
            port = int(addresses()[0].rpartition(":")[2])
            slot_1, slot_0 = await place.token(await place.pod(1)), await place.token(await place.pod(0))
            assert (await post(port, place.authority, slot_1))[0] == 403
            async with asyncio.timeout(GUARD_SECONDS):
                while (answer := await post(port, place.authority, slot_0))[0] != 200:
                    await asyncio.sleep(1)
            assert json.loads(answer[1])["permitted"] is False, "no policy allows a restart in place"
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{controller.metrics_url()}/metrics") as response,
            ):
                metrics = await response.text()
            assert 'recovery_agent_reports_total{result="forbidden"} 1.0\n' in metrics
            assert "recovery_agent_certificate_expiry_timestamp_seconds" in metrics
