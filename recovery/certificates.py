"""Makes certificates: an authority of our own, and serving certificates that it signs.

Admission and the agents' endpoint make theirs here, and keep them in Secrets of their own.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recovery.decoding import ObjectVersion

BACKDATED = timedelta(minutes=5)
"""The clock of a client may be behind ours."""


class CertificateError(Exception):
    """There is no certificate to serve with. The message says what to do."""


class Authority(msgspec.Struct, frozen=True):
    """A certificate authority and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)


class Serving(msgspec.Struct, frozen=True):
    """A serving certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


def make_authority(service: str, now: datetime, validity: timedelta) -> Authority:
    """An authority for the certificates of this Service.

    Each authority has its own name, because clients look for an issuer by its name before they try its key.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name(f"{service}-ca-{x509.random_serial_number():x}"[:64])
    certificate = (
        _certificate(issuer, issuer, key.public_key(), now - BACKDATED, now + validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def make_serving(
    authority: Authority, service: str, names: Sequence[str], now: datetime, validity: timedelta
) -> Serving:
    """A serving certificate for these DNS names and IP addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority_id = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id)
    subject, issuer = _name(service), authority.certificate.subject
    certificate = (
        _certificate(subject, issuer, key.public_key(), now - BACKDATED, now + validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(issuer_id, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative_name(name) for name in names]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Serving(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def read_authority(certificate: bytes, key: bytes) -> Authority | None:
    """The authority of these two PEM texts. None: they cannot be read, or do not belong together."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != found.public_key():
        return None
    return Authority(found, private)


def two_thirds_over(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether two thirds of its validity are over, so that it is time for another one."""
    validity = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + validity * 2 / 3


def serving_names(service: str, namespace: str, listening_host: str) -> list[str]:
    """The names under which clients may call us: the Service, and a loopback address if we are run by hand.

    Never a pod's own address: each replica would make another certificate for its own.
    """
    names = [f"{service}.{namespace}.svc"]
    try:
        address = ipaddress.ip_address(listening_host)
    except ValueError:
        return names
    return [*names, str(address)] if address.is_loopback else names


def same_version(metadata: ObjectVersion) -> dict[str, Any]:
    """The operation of a JSON patch that refuses it if the object has changed since it was read."""
    return {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version}


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
