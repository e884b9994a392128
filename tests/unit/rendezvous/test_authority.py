"""The authority that all replicas share, the certificates that they sign, and what the leader publishes."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.certificates import CertificateError
from recovery.ports import CONFIG_MAPS, ConflictError, ForbiddenError
from recovery.rendezvous.authority import (
    CA_KEY,
    LEADERSHIP_SECONDS,
    NAME,
    RECONCILE_SECONDS,
    SECRETS,
    SERVING_VALIDITY,
    AgentCertificates,
)
from tests.unit.admission.api import StillClock
from tests.unit.fake_api import Object, ObjectsApi
from tests.unit.patience import GUARD_SECONDS

NOW = datetime.now(UTC).replace(microsecond=0)
"""TLS checks certificates by the clock of the system."""
WHERE = "recovery-system"
HOST = f"{NAME}.{WHERE}.svc"


def clock_of_now() -> StillClock:
    clock = StillClock()
    clock.time = NOW
    return clock


def api(*, parameters: Object | None = None) -> ObjectsApi:
    """What the component ships. `parameters`: `data` of the ConfigMap; None: it has none."""
    found = ObjectsApi()
    meta = {"name": NAME, "namespace": WHERE}
    found.put(SECRETS, {"kind": "Secret", "metadata": dict(meta)})
    data: dict[str, Any] = {} if parameters is None else {"data": parameters}
    found.put(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": dict(meta), **data})
    return found


def replica(
    client: ObjectsApi, folder: Path, clock: StillClock | None = None, *, leads: bool = False
) -> AgentCertificates:
    return AgentCertificates(
        client,
        clock=clock or clock_of_now(),
        namespace=WHERE,
        listening_host="",
        folder=folder,
        leads=lambda: leads,
    )


def stored(client: ObjectsApi) -> dict[str, bytes]:
    found = client.find("secrets", WHERE, NAME)
    assert found is not None
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


def published(client: ObjectsApi) -> dict[str, str]:
    found = client.find("configmaps", WHERE, NAME)
    assert found is not None
    return dict(found.get("data", {}))


async def trusted(context: ssl.SSLContext, authority: str, name: str = HOST) -> bool:
    """Whether a client that trusts this authority alone accepts the server under this name."""
    client = ssl.create_default_context(cadata=authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    async with server, asyncio.timeout(GUARD_SECONDS):
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        return True


async def test_all_replicas_serve_what_agents_with_the_published_authority_trust(tmp_path: Path) -> None:
    client = api(parameters={"url": "https://x"})
    standby, leader = replica(client, tmp_path), replica(client, tmp_path, leads=True)
    await standby.reconcile()
    assert published(client) == {"url": "https://x"}, "a standby publishes nothing"
    await leader.reconcile()
    authority = published(client)[CA_KEY]
    assert authority == stored(client)["ca.crt"].decode()
    assert published(client)["url"] == "https://x"
    for each in (standby, leader):
        assert await trusted(each.context(), authority)
        assert not await trusted(each.context(), authority, "other.recovery-system.svc")
    assert list(tmp_path.iterdir()) == [], "no key stays on a disk"


async def test_nothing_is_written_again_while_nothing_differs(tmp_path: Path) -> None:
    client = api()
    leader = replica(client, tmp_path, leads=True)
    for _ in range(3):
        await leader.reconcile()
    assert [str(each) for each in client.applied] == ["patch Secret", "patch ConfigMap"]


async def test_two_replicas_that_start_at_once_agree(tmp_path: Path) -> None:
    client = api()
    both = [replica(client, tmp_path / name) for name in "ab"]
    for name in "ab":
        (tmp_path / name).mkdir()
    await asyncio.gather(*(each.reconcile() for each in both))
    authority = stored(client)["ca.crt"].decode()
    assert [await trusted(each.context(), authority) for each in both] == [True, True]
    assert len(client.applied) == 1


async def test_the_serving_certificate_is_renewed_and_the_authority_stays(tmp_path: Path) -> None:
    client, clock = api(), clock_of_now()
    leader = replica(client, tmp_path, clock, leads=True)
    await leader.reconcile()
    first, authority, expires = leader.context(), published(client)[CA_KEY], leader.expires_at()
    assert expires is not None
    assert abs(expires - (NOW + SERVING_VALIDITY)) < timedelta(seconds=1)
    clock.time = NOW + timedelta(days=19)
    await leader.reconcile()
    assert leader.context() is first
    clock.time = NOW + timedelta(days=21)
    await leader.reconcile()
    assert leader.context() is not first
    renewed = leader.expires_at()
    assert renewed is not None
    assert renewed > expires
    assert published(client)[CA_KEY] == authority


async def test_an_authority_in_its_last_year_is_replaced(tmp_path: Path) -> None:
    client, clock = api(), clock_of_now()
    leader = replica(client, tmp_path, clock, leads=True)
    await leader.reconcile()
    authority = published(client)[CA_KEY]
    clock.time = NOW + timedelta(days=3650 - 364)
    await leader.reconcile()
    assert published(client)[CA_KEY] != authority
    assert published(client)[CA_KEY] == stored(client)["ca.crt"].decode()


@pytest.mark.parametrize("damage", [{"ca.crt": "AAAA"}, {"ca.key": "AAAA"}, {"ca.key": ""}, {}])
async def test_an_authority_that_cannot_be_used_is_replaced(tmp_path: Path, damage: dict[str, str]) -> None:
    client = api()
    leader = replica(client, tmp_path, leads=True)
    await leader.reconcile()
    found = client.find("secrets", WHERE, NAME)
    assert found is not None
    found["data"] = {**found["data"], **damage} if damage else {}
    await leader.reconcile()
    authority = published(client)[CA_KEY]
    assert authority == stored(client)["ca.crt"].decode()
    assert await trusted(leader.context(), authority)


async def test_where_the_kill_switch_was_used_nothing_brings_the_parameters_back(tmp_path: Path) -> None:
    client = api()
    client.remove("configmaps", WHERE, NAME)
    leader = replica(client, tmp_path, leads=True)
    await leader.reconcile()
    assert client.find("configmaps", WHERE, NAME) is None
    assert leader.expires_at() is not None


async def test_without_the_secret_it_says_what_to_apply(tmp_path: Path) -> None:
    client = api()
    client.remove("secrets", WHERE, NAME)
    with pytest.raises(CertificateError, match=r"Secret recovery-system/recovery-agent .*manifests/components/agent"):
        await replica(client, tmp_path).reconcile()


async def test_a_secret_that_keeps_changing_is_given_up(tmp_path: Path) -> None:
    client = api()
    client.next("patch", SECRETS, ConflictError("changed"), times=5)
    with pytest.raises(CertificateError, match="changes faster"):
        await replica(client, tmp_path).reconcile()


@asynccontextmanager
async def kept(each: AgentCertificates, clock: StillClock) -> AsyncIterator[None]:
    keeping = asyncio.create_task(each.keep())
    await clock.sleeping.wait()
    yield
    keeping.cancel()


async def passes(clock: StillClock, seconds: float) -> None:
    """Time passes, and the keeper looks again."""
    clock.time += timedelta(seconds=seconds)
    clock.wake()
    async with asyncio.timeout(GUARD_SECONDS):
        await clock.sleeping.wait()


async def test_who_begins_to_lead_publishes_within_seconds(tmp_path: Path) -> None:
    client, clock, leading = api(), clock_of_now(), False
    each = AgentCertificates(
        client, clock=clock, namespace=WHERE, listening_host="", folder=tmp_path, leads=lambda: leading
    )
    await each.reconcile()
    async with kept(each, clock):
        await passes(clock, LEADERSHIP_SECONDS)
        assert CA_KEY not in published(client)
        leading = True
        await passes(clock, LEADERSHIP_SECONDS)
        assert CA_KEY in published(client)
        reads = len(client.requests)
        await passes(clock, LEADERSHIP_SECONDS)
        assert len(client.requests) == reads


async def test_a_failure_after_the_start_is_logged_once_and_the_served_certificate_stays(tmp_path: Path) -> None:
    client, clock = api(), clock_of_now()
    leader = replica(client, tmp_path, clock, leads=True)
    await leader.reconcile()
    context = leader.context()
    with capture_logs() as logs:
        client.next("get", SECRETS, ForbiddenError("no"), times=2)
        async with kept(leader, clock):
            for _ in range(2):
                await passes(clock, RECONCILE_SECONDS)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "the certificate of the agents' endpoint could not be looked after: no"
    ]
    assert leader.context() is context
