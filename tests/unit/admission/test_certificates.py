"""Self-made certificates: one for all replicas, trusted by the API server, renewed without a gap."""

import asyncio
import base64
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from recovery.admission.certificates import (
    VALIDITY,
    Certificates,
    SelfMade,
    make_certificates,
    must_be_made,
)
from recovery.certificates import CertificateError, serving_names
from tests.unit.admission.api import NOW, PolicyApi, StillClock
from tests.unit.fake_api import Object

SERVICE = "recovery-admission.recovery-system.svc"
NAMES = [SERVICE, "127.0.0.1"]
SECRET = ("secrets", "recovery-system", "recovery-admission")
CONFIGURATION = ("validatingwebhookconfigurations", "", "recovery-admission")
OPTIONAL = [
    *((f"{kind}webhookconfigurations", "", "recovery-launch") for kind in ("validating", "mutating")),
    ("mutatingwebhookconfigurations", "", "recovery-birth-settings"),
]
"""Objects of components that the platform may have installed."""


def secret() -> Object:
    """The Secret as it is shipped."""
    return {"kind": "Secret", "metadata": {"name": "recovery-admission", "namespace": "recovery-system"}}


def configuration(name: str = "recovery-admission", kind: str = "ValidatingWebhookConfiguration") -> Object:
    webhooks = [{"name": f"{each}.example", "clientConfig": {"service": {"name": "x"}}} for each in ("a", "b")]
    return {"kind": kind, "metadata": {"name": name}, "webhooks": webhooks}


def replica(api: PolicyApi, folder: Path, clock: StillClock | None = None) -> SelfMade:
    folder.mkdir(exist_ok=True)
    return SelfMade(
        api,
        clock=clock or StillClock(),
        namespace="recovery-system",
        listening_host="127.0.0.1",
        folder=folder,
    )


def bundles(api: PolicyApi, key: tuple[str, str, str] = CONFIGURATION) -> list[bytes]:
    """The authorities that the API server trusts, for each webhook."""
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in api.object(key)["webhooks"]]


def trusted(authorities: bytes, served: Path, name: str) -> bool:
    """Whether a client with these authorities accepts the server under this name. The handshake runs in memory."""
    client_context = ssl.create_default_context(cadata=authorities.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(served, served)
    ends = [ssl.MemoryBIO() for _ in range(4)]
    client = client_context.wrap_bio(ends[0], ends[1], server_hostname=name)
    server = server_context.wrap_bio(ends[2], ends[3], server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
            ends[2].write(ends[1].read())
            ends[0].write(ends[3].read())
    return client.version() is not None


def serial(certificates: Certificates) -> int:
    return x509.load_pem_x509_certificate(certificates.serving).serial_number


# --- making --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "accepted"), [(SERVICE, True), ("127.0.0.1", True), ("other.svc", False)])
async def test_the_api_server_trusts_it_under_its_names(tmp_path: Path, name: str, accepted: bool) -> None:
    api, clock = PolicyApi(secret(), configuration()), StillClock()
    clock.time = NOW.now(NOW.tzinfo)  # a handshake uses the real time
    made = replica(api, tmp_path, clock)
    await made.reconcile()
    assert [trusted(bundle, made.file, name) for bundle in bundles(api)] == [accepted, accepted]


def test_the_key_that_signed_is_kept_nowhere() -> None:
    made = make_certificates(NAMES, NOW, Certificates())
    assert made.authorities.count(b"BEGIN CERTIFICATE") == made.serving.count(b"BEGIN CERTIFICATE") == 1
    assert made.key.count(b"BEGIN PRIVATE KEY") == 1
    serving = x509.load_pem_x509_certificate(made.serving)
    assert serving.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("", [SERVICE]),
        ("::", [SERVICE]),
        ("10.1.2.3", [SERVICE]),
        ("127.0.0.1", NAMES),
        ("admission.example", [SERVICE]),
    ],
)
def test_only_names_that_all_replicas_share(host: str, names: Sequence[str]) -> None:
    assert serving_names("recovery-admission", "recovery-system", host) == names


@pytest.mark.parametrize(
    ("age", "due"), [(0.0, False), (0.6, False), (0.7, True), (1.1, True)], ids=["new", "young", "two thirds", "over"]
)
def test_it_is_renewed_after_two_thirds_of_its_life(age: float, due: bool) -> None:
    made = make_certificates(NAMES, NOW, Certificates())
    assert must_be_made(made, NAMES, NOW + VALIDITY * age) is due


@pytest.mark.parametrize("part", ["authorities", "serving", "key"])
def test_what_is_damaged_is_recreated(part: str) -> None:
    made = make_certificates(NAMES, NOW, Certificates())
    parts = {"authorities": made.authorities, "serving": made.serving, "key": made.key, part: b"damaged"}
    assert must_be_made(Certificates(**parts), NAMES, NOW)


def test_one_for_other_names_is_recreated() -> None:
    assert must_be_made(make_certificates([SERVICE], NOW, Certificates()), NAMES, NOW)


# --- agreeing ------------------------------------------------------------------------------------------------------


async def test_replicas_that_start_at_once_serve_the_same(tmp_path: Path) -> None:
    api = PolicyApi(secret(), configuration())
    replicas = [replica(api, tmp_path / str(number)) for number in range(3)]
    await asyncio.gather(*(each.reconcile() for each in replicas))
    assert len({each.file.read_bytes() for each in replicas}) == 1
    assert len([key for key, _ in api.patches if key == SECRET]) == 1
    assert len([key for key, _ in api.patches if key == CONFIGURATION]) == 1


async def test_a_second_reconcile_writes_nothing(tmp_path: Path) -> None:
    api = PolicyApi(secret(), configuration())
    made = replica(api, tmp_path)
    await made.reconcile()
    before, stamp = len(api.writes), made.file.stat().st_mtime_ns
    await made.reconcile()
    assert (len(api.writes), made.file.stat().st_mtime_ns) == (before, stamp)


async def test_a_renewal_leaves_the_old_certificate_trusted(tmp_path: Path) -> None:
    api, clock = PolicyApi(secret(), configuration()), StillClock()
    clock.time = NOW.now(NOW.tzinfo) - VALIDITY * 0.7
    first, second = replica(api, tmp_path / "1", clock), replica(api, tmp_path / "2", clock)
    for each in (first, second):
        await each.reconcile()
    clock.time = NOW.now(NOW.tzinfo)
    await first.reconcile()
    assert first.file.read_bytes() != second.file.read_bytes()
    [bundle, _] = bundles(api)
    assert trusted(bundle, first.file, SERVICE)
    assert trusted(bundle, second.file, SERVICE)
    await second.reconcile()
    assert first.file.read_bytes() == second.file.read_bytes()


def test_renewals_do_not_pile_up_authorities() -> None:
    made = Certificates()
    for renewals in range(5):
        made = make_certificates(NAMES, NOW + timedelta(days=50 * renewals), made)
    assert made.authorities.count(b"BEGIN CERTIFICATE") == 2


async def test_without_the_secret_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"Secret recovery-system/recovery-admission is not there .*apply man"):
        await replica(PolicyApi(configuration()), tmp_path).reconcile()


async def test_a_secret_that_is_deleted_meanwhile_is_said_and_what_is_served_stays(tmp_path: Path) -> None:
    api, clock = PolicyApi(secret(), configuration()), StillClock()
    made = replica(api, tmp_path, clock)
    await made.reconcile()
    served = made.file.read_bytes()
    keeping = asyncio.create_task(made.keep())
    with capture_logs() as lines:
        await clock.sleeping.wait()
        api.remove(*SECRET)
        clock.wake()
        await clock.sleeping.wait()
        assert made.file.read_bytes() == served
        api.store(secret())
        clock.wake()
        await clock.sleeping.wait()
    assert not keeping.done()
    assert made.file.read_bytes() != served
    assert [line["log_level"] for line in lines if "could not be looked after" in line["event"]] == ["warning"]
    keeping.cancel()


async def test_the_key_is_for_our_eyes_only(tmp_path: Path) -> None:
    made = replica(PolicyApi(secret(), configuration()), tmp_path)
    await made.reconcile()
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["tls.pem"]


# --- injecting -----------------------------------------------------------------------------------------------------


async def test_only_our_own_webhook_configuration_is_written_to(tmp_path: Path) -> None:
    api = PolicyApi(secret(), configuration(), configuration("somebody-else"))
    await replica(api, tmp_path).reconcile()
    assert {key for key, _ in api.patches} == {SECRET, CONFIGURATION}
    [written] = [operations for key, operations in api.patches if key == CONFIGURATION]
    assert [operation["path"] for operation in written] == [
        "/metadata/resourceVersion",
        "/webhooks/0/clientConfig/caBundle",
        "/webhooks/1/clientConfig/caBundle",
    ]


async def test_a_configuration_that_was_applied_again_is_trusted_again(tmp_path: Path) -> None:
    api = PolicyApi(secret(), configuration())
    made = replica(api, tmp_path)
    await made.reconcile()
    api.store(configuration())
    await made.reconcile()
    assert all(bundles(api))


async def test_without_a_webhook_configuration_it_serves_and_says_so_once(tmp_path: Path) -> None:
    api = PolicyApi(secret())
    made = replica(api, tmp_path)
    with capture_logs() as lines:
        for _ in range(3):
            await made.reconcile()
    assert made.file.exists()
    assert [line["log_level"] for line in lines if "is not there" in line["event"]] == ["warning"]


async def test_where_the_platform_has_train_jobs_judged_these_webhooks_are_trusted_too(tmp_path: Path) -> None:
    names = ("recovery-launch", "recovery-birth-settings")
    mutating = [configuration(name, "MutatingWebhookConfiguration") for name in names]
    api = PolicyApi(secret(), configuration(), configuration("recovery-launch"), *mutating)
    await replica(api, tmp_path).reconcile()
    assert {key for key, _ in api.patches} == {SECRET, CONFIGURATION, *OPTIONAL}
    [authorities] = {bundle for key in (CONFIGURATION, *OPTIONAL) for bundle in bundles(api, key)}
    assert authorities


async def test_where_it_has_not_there_is_no_right_to_look_and_nothing_to_say(tmp_path: Path) -> None:
    api = PolicyApi(secret(), configuration())
    api.forbidden.update(OPTIONAL)
    with capture_logs() as lines:
        await replica(api, tmp_path / "a").reconcile()
        api.forbidden.clear()
        await replica(api, tmp_path / "b").reconcile()
    assert [line for line in lines if line["log_level"] != "info"] == []
