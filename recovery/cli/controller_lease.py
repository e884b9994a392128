"""Who should have answered a request: what the Leases of the election show, in whatever namespace they are."""

import msgspec

from recovery import api_verbs
from recovery.controller.lease import LEASE_NAME, LeaseRecord
from recovery.decoding import decoded
from recovery.kube.response_envelopes import read_page
from recovery.ports import LEASES, ApiClient, ApiError, ForbiddenError, NotFoundError, UndecodableError

SHIPPED_NAMESPACE = "recovery-system"
"""Where the manifests install the controller, unless an overlay says otherwise. A user who may not list Leases in all
namespaces sees only this one."""
_FIELDS = f"metadata.name={LEASE_NAME}"


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""


class _FoundLease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: LeaseRecord = LeaseRecord()


_decode = msgspec.json.Decoder(_FoundLease).decode


async def holder_words(client: ApiClient) -> str:
    """Who holds the Lease, or why that is not known. Several installations: of each."""
    try:
        page = read_page(LEASES, await api_verbs.list_page(client, LEASES, field_selector=_FIELDS))
    except ForbiddenError:
        return await _shipped_words(client)
    except ApiError:
        return "Leases cannot be read"
    words = [_words(raw) for raw in page.items or ()]
    return "; ".join(words) if words else f"there is no Lease {LEASE_NAME} in any namespace"


async def _shipped_words(client: ApiClient) -> str:
    name = f"Lease {SHIPPED_NAMESPACE}/{LEASE_NAME}"
    unseen = "you may not list Leases of other namespaces"
    try:
        return _words(await api_verbs.get(client, LEASES, LEASE_NAME, namespace=SHIPPED_NAMESPACE))
    except NotFoundError:
        return f"there is no {name}, and {unseen}"
    except ApiError:
        return f"{name} cannot be read, and {unseen}"


def _words(raw: bytes | msgspec.Raw) -> str:
    try:
        lease = decoded(LEASES, _decode, raw)
    except UndecodableError as error:
        return str(error)
    name = f"Lease {lease.metadata.namespace}/{LEASE_NAME}"
    if not lease.spec.holder_identity:
        return f"no process holds {name}"
    return f"{name} is held by {lease.spec.holder_identity}, renewed at {lease.spec.renew_time or 'no time'}"
