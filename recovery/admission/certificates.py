"""Self-made certificates for clusters without cert-manager, in one Secret for all replicas.

An authority signs one serving certificate, and then its key is discarded. So the content of the Secret can impersonate
the webhook and nothing else. Replicas agree by compare-and-swap on the Secret. After a renewal the bundle that the API
server trusts also has the old authority, because another replica serves the old certificate until it reads the Secret.
"""

import base64
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from recovery import api_verbs
from recovery.certificates import (
    CertificateError,
    make_authority,
    make_serving,
    same_version,
    serving_names,
    two_thirds_over,
)
from recovery.decoding import ObjectVersion
from recovery.ports import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    Resource,
    TestFailedError,
)

SECRET_NAME = "recovery-admission"  # noqa: S105 - its name, not its content
CONFIGURATION_NAME = "recovery-admission"
"""The ValidatingWebhookConfiguration of policies and of the RecoveryConfig."""
LAUNCH_CONFIGURATION_NAME = "recovery-launch"
"""The ValidatingWebhookConfiguration and the MutatingWebhookConfiguration of TrainJobs and runtimes, where the platform
has installed them (manifests/admission/launch)."""
BIRTH_CONFIGURATION_NAME = "recovery-birth-settings"
"""The MutatingWebhookConfiguration of Jobs, where it is installed (manifests/admission/birth-settings)."""
SERVICE_NAME = "recovery-admission"
SECRETS = Resource("", "v1", "secrets", "Secret")
WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)

_OF_COMPONENTS = (
    (WEBHOOK_CONFIGURATIONS, LAUNCH_CONFIGURATION_NAME),
    (MUTATING_WEBHOOK_CONFIGURATIONS, LAUNCH_CONFIGURATION_NAME),
    (MUTATING_WEBHOOK_CONFIGURATIONS, BIRTH_CONFIGURATION_NAME),
)
"""Without the component there is neither the configuration nor the permission to read it."""

VALIDITY = timedelta(days=365)
RECONCILE_SECONDS = 60.0
"""Between checks of the Secret and of the webhook configuration, which a user may have applied again."""
SWAPS_MAX = 5

_log = structlog.get_logger("recovery.admission")


class Certificates(msgspec.Struct, frozen=True):
    """All in PEM. `authorities`: the newest first, then the previous one while it is valid."""

    authorities: bytes = msgspec.field(name="ca.crt", default=b"")
    serving: bytes = msgspec.field(name="tls.crt", default=b"")
    key: bytes = msgspec.field(name="tls.key", default=b"")


def make_certificates(names: Sequence[str], now: datetime, before: Certificates) -> Certificates:
    """Make certificates for these DNS names and IP addresses. They replace `before`, but keep its valid authority."""
    authority = make_authority(SERVICE_NAME, now, VALIDITY)
    serving = make_serving(authority, SERVICE_NAME, names, now, VALIDITY)
    kept = [old for old in _authorities(before) if old.not_valid_after_utc > now][:1]
    authorities = (authority.certificate, *kept)
    return Certificates(
        authorities=b"".join(each.public_bytes(serialization.Encoding.PEM) for each in authorities),
        serving=serving.certificate,
        key=serving.key,
    )


def must_be_made(certificates: Certificates, names: Sequence[str], now: datetime) -> bool:
    """Whether they are missing, unreadable or for other names, or two thirds of their validity are over."""
    try:
        serving = x509.load_pem_x509_certificate(certificates.serving)
        serialization.load_pem_private_key(certificates.key, password=None)
        alternative = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return True
    missing = set(names) - {str(name.value) for name in alternative}
    return bool(missing) or not _authorities(certificates) or two_thirds_over(serving, now)


def expires_at(certificate: Path) -> datetime | None:
    """When the first certificate of a PEM file expires. None: it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectVersion
    data: Certificates = Certificates()


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: bytes = b""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


class _WebhookConfiguration(msgspec.Struct, frozen=True):
    metadata: ObjectVersion
    webhooks: list[_Webhook] = []


class SelfMade:
    """Keeps the Secret, the webhook configurations and the served file in agreement."""

    def __init__(self, client: ApiClient, *, clock: Clock, namespace: str, listening_host: str, folder: Path) -> None:
        """`folder`: where the certificate and its key are written to one file, because TLS reads them from files."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._names = serving_names(SERVICE_NAME, namespace, listening_host)
        self._complaint = ""
        self.file = folder / "tls.pem"

    async def keep(self) -> None:
        """Reconcile until cancelled. The caller does the first reconcile."""
        while True:
            await self._clock.sleep(RECONCILE_SECONDS)
            try:
                await self.reconcile()
            except (ApiError, CertificateError) as error:  # the served one is valid for months
                self._complain(f"the certificate could not be looked after: {error}")

    async def reconcile(self) -> None:
        """Make certificates if they are due, and put them where they are used. Raises ApiError, CertificateError."""
        certificates = await self._agreed()
        if not await self._inject(WEBHOOK_CONFIGURATIONS, CONFIGURATION_NAME, certificates.authorities):
            self._complain(
                f"ValidatingWebhookConfiguration {CONFIGURATION_NAME} is not there, so nothing is checked when it is "
                "written; apply manifests/admission"
            )
        for resource, name in _OF_COMPONENTS:
            with suppress(ForbiddenError):
                await self._inject(resource, name, certificates.authorities)
        content = certificates.serving + certificates.key
        if not self.file.exists() or self.file.read_bytes() != content:
            # Atomically: a certificate that is read together with the key of another would end the server.
            staged = self.file.with_suffix(".new")
            staged.touch(mode=0o600)
            staged.write_bytes(content)
            os.replace(staged, self.file)

    async def _agreed(self) -> Certificates:
        """The certificates that all replicas serve with."""
        for _ in range(SWAPS_MAX):
            try:
                raw = await api_verbs.get(self._client, SECRETS, SECRET_NAME, namespace=self._namespace)
            except NotFoundError:
                raise CertificateError(
                    f"Secret {self._namespace}/{SECRET_NAME} is not there to keep the certificate in; "
                    "apply manifests/admission"
                ) from None
            secret = msgspec.json.decode(raw, type=_Secret)
            now = self._clock.now()
            if not must_be_made(secret.data, self._names, now):
                return secret.data
            made = make_certificates(self._names, now, secret.data)
            try:
                await api_verbs.patch(
                    self._client,
                    SECRETS,
                    SECRET_NAME,
                    [same_version(secret.metadata), {"op": "add", "path": "/data", "value": made}],
                    kind=PatchKind.JSON,
                    namespace=self._namespace,
                )
            except (ConflictError, TestFailedError):
                continue  # another replica was first
            _log.info("a certificate was made", secret=f"{self._namespace}/{SECRET_NAME}", names=self._names)
            return made
        raise CertificateError(f"Secret {self._namespace}/{SECRET_NAME} changes faster than it can be written")

    async def _inject(self, resource: Resource, name: str, authorities: bytes) -> bool:
        """Make the API server trust these authorities for our webhooks. False: the webhooks are not registered."""
        try:
            raw = await api_verbs.get(self._client, resource, name)
        except NotFoundError:
            return False
        found = msgspec.json.decode(raw, type=_WebhookConfiguration)
        bundle = base64.b64encode(authorities).decode()
        places = [place for place, each in enumerate(found.webhooks) if each.client_config.ca_bundle != authorities]
        patch: list[dict[str, Any]] = [
            {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle} for place in places
        ]
        if not patch:
            return True
        try:
            operations = [same_version(found.metadata), *patch]
            await api_verbs.patch(self._client, resource, name, operations, kind=PatchKind.JSON)
        except (ConflictError, TestFailedError):
            return True  # another replica injects the same; the next reconcile shows it
        _log.info(
            "the certificate authority was injected", configuration=f"{resource.kind} {name}", webhooks=len(places)
        )
        return True

    def _complain(self, words: str) -> None:
        """Log the complaint, unless it is the same as the last one."""
        if words != self._complaint:
            _log.warning(words)
        self._complaint = words


def _authorities(certificates: Certificates) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(certificates.authorities)
    except ValueError:
        return []
