"""The certificates of the endpoint: an authority that lives for ten years, and serving certificates for thirty days.

Agents get the authority when their pod is created, in an environment variable, and trust nothing else for as long as
they live. So the authority's key is kept, in a Secret that all replicas share. Each replica signs its own serving
certificate with it, in memory, and replaces it after twenty days; the next connection has the new one.

An authority is replaced only if it cannot be read, or a year before its end. Agents that know only the old one do not
report any more then: a process that fails ends their job's group, as it does without an agent.
"""

import os
import ssl
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import structlog
from cryptography import x509

from recovery import api_verbs
from recovery.certificates import (
    Authority,
    CertificateError,
    make_authority,
    make_serving,
    read_authority,
    same_version,
    serving_names,
    two_thirds_over,
)
from recovery.decoding import ObjectVersion
from recovery.ports import (
    AGENT_PARAMETERS,
    CONFIG_MAPS,
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    NotFoundError,
    PatchKind,
    Resource,
    TestFailedError,
)

NAME = AGENT_PARAMETERS
"""Of the Service, of the Secret with the authority, and of the ConfigMap that the admission policy reads."""
CA_KEY = "ca.crt"
SECRETS = Resource("", "v1", "secrets", "Secret")

AUTHORITY_VALIDITY = timedelta(days=3650)
AUTHORITY_LEFT_MIN = timedelta(days=365)
SERVING_VALIDITY = timedelta(days=30)
RECONCILE_SECONDS = 60.0
LEADERSHIP_SECONDS = 5.0
"""How often it looks whether this process leads: who begins to lead publishes the authority soon."""
SWAPS_MAX = 5

_log = structlog.get_logger("recovery.rendezvous")


class _Kept(msgspec.Struct, frozen=True):
    certificate: bytes = msgspec.field(name="ca.crt", default=b"")
    key: bytes = msgspec.field(name="ca.key", default=b"")


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectVersion
    data: _Kept = _Kept()


class _Parameters(msgspec.Struct, frozen=True):
    """The ConfigMap. `data` None: it has none, so a patch has to add the whole map."""

    metadata: ObjectVersion
    data: dict[str, str] | None = None


class AgentCertificates:
    """Keeps the Secret, the published authority and the serving certificate in agreement."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        namespace: str,
        listening_host: str,
        folder: Path,
        leads: Callable[[], bool],
    ) -> None:
        """`folder`: where the serving certificate and its key are written, because TLS reads them from files. `leads`:
        whether this process leads. Only the leader publishes the authority."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._names = serving_names(NAME, namespace, listening_host)
        self._leads = leads
        self._file = folder / "tls.pem"
        self._authority: Authority | None = None
        self._serving: x509.Certificate | None = None
        self._context: ssl.SSLContext | None = None
        self._complaint = ""

    def context(self) -> ssl.SSLContext:
        """The context of the next connection. `reconcile` has to have succeeded once."""
        assert self._context is not None
        return self._context

    def expires_at(self) -> datetime | None:
        """When the serving certificate expires. None: there is none yet."""
        return None if self._serving is None else self._serving.not_valid_after_utc

    async def keep(self) -> None:
        """Reconcile every minute, and when this process begins to lead, until cancelled. The caller does it first."""
        led, reconciled_at = self._leads(), self._clock.monotonic_seconds()
        while True:
            await self._clock.sleep(LEADERSHIP_SECONDS)
            leads, now = self._leads(), self._clock.monotonic_seconds()
            if (leads and not led) or now - reconciled_at >= RECONCILE_SECONDS:
                await self._reconcile_again()
                reconciled_at = now
            led = leads

    async def _reconcile_again(self) -> None:
        try:
            await self.reconcile()
        except (ApiError, CertificateError) as error:  # the served one is valid for days
            self._complain(f"the certificate of the agents' endpoint could not be looked after: {error}")
        else:
            self._complaint = ""

    async def reconcile(self) -> None:
        """Agree on the authority, sign a certificate if one is due, and publish the authority.

        Raises ApiError, CertificateError.
        """
        authority = await self._agreed()
        if self._authority is None or authority.certificate != self._authority.certificate or self._is_due():
            self._serve_with(authority)
        if self._leads():
            await self._publish(authority)

    def _is_due(self) -> bool:
        return self._serving is None or two_thirds_over(self._serving, self._clock.now())

    def _serve_with(self, authority: Authority) -> None:
        made = make_serving(authority, NAME, self._names, self._clock.now(), SERVING_VALIDITY)
        self._file.touch(mode=0o600)
        self._file.write_bytes(made.certificate + made.key)
        context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._file)
        finally:
            os.unlink(self._file)
        self._serving = x509.load_pem_x509_certificate(made.certificate)
        self._authority, self._context = authority, context
        _log.info(
            "agents are served with a new certificate",
            names=self._names,
            expires=f"{self._serving.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC",
        )

    async def _agreed(self) -> Authority:
        """The authority that all replicas sign with."""
        where = f"Secret {self._namespace}/{NAME}"
        for _ in range(SWAPS_MAX):
            try:
                raw = await api_verbs.get(self._client, SECRETS, NAME, namespace=self._namespace)
            except NotFoundError:
                raise CertificateError(
                    f"{where} is not there to keep the authority in; apply manifests/components/agent"
                ) from None
            secret = msgspec.json.decode(raw, type=_Secret)
            now = self._clock.now()
            found = read_authority(secret.data.certificate, secret.data.key)
            if found is not None and found.certificate.not_valid_after_utc - now > AUTHORITY_LEFT_MIN:
                return found
            made = make_authority(NAME, now, AUTHORITY_VALIDITY)
            value = _Kept(made.certificate_pem, made.key_pem)
            patch = [same_version(secret.metadata), {"op": "add", "path": "/data", "value": value}]
            try:
                await api_verbs.patch(
                    self._client, SECRETS, NAME, patch, kind=PatchKind.JSON, namespace=self._namespace
                )
            except (ConflictError, TestFailedError):
                continue  # another replica was first
            _log.info("an authority for the agents' endpoint was made", secret=where)
            return made
        raise CertificateError(f"{where} changes faster than it can be written")

    async def _publish(self, authority: Authority) -> None:
        """Give the authority to the agents of new pods. Without the ConfigMap no pod gets an agent: it stays away."""
        try:
            raw = await api_verbs.get(self._client, CONFIG_MAPS, NAME, namespace=self._namespace)
        except NotFoundError:
            return
        found, text = msgspec.json.decode(raw, type=_Parameters), authority.certificate_pem.decode()
        if found.data is not None and found.data.get(CA_KEY) == text:
            return
        value: object = {CA_KEY: text} if found.data is None else text
        patch = [
            same_version(found.metadata),
            {"op": "add", "path": "/data" if found.data is None else f"/data/{CA_KEY}", "value": value},
        ]
        try:
            await api_verbs.patch(
                self._client, CONFIG_MAPS, NAME, patch, kind=PatchKind.JSON, namespace=self._namespace
            )
        except (NotFoundError, ConflictError, TestFailedError):
            return  # it has just changed; the next reconcile reads it again
        _log.info("the authority was published to agents", config_map=f"{self._namespace}/{NAME}")

    def _complain(self, words: str) -> None:
        """Log the complaint, unless it is the same as the last one."""
        if words != self._complaint:
            _log.warning(words)
        self._complaint = words
