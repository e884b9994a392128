"""Reads the pods on single nodes, of all namespaces."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from recovery.core.model.demand import Toleration
from recovery.core.model.facts import GroupKey
from recovery.kube.cluster_reader import read_all
from recovery.kube.gpus_in_use import gpus_held
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.pods import decode_pod
from recovery.ports import PODS, ApiClient

_DAEMON_SET = "DaemonSet"


class PodOnNode(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    group: GroupKey
    """Without a name: it belongs to no group."""
    gpus: int
    tolerations: tuple[Toleration, ...]
    of_daemon_set: bool


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    controller: bool = False


class _Owners(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_Owner, ...] = ()


class _Owned(msgspec.Struct, frozen=True):
    metadata: _Owners


_decode_owned = msgspec.json.Decoder(_Owned).decode


async def read_pods_on(client: ApiClient, nodes: Iterable[str]) -> Mapping[str, tuple[PodOnNode, ...]]:
    """The pods on these nodes that have not ended, by node. Raises ApiError."""
    names = tuple(dict.fromkeys(nodes))
    found = await asyncio.gather(*(_read(client, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _read(client: ApiClient, node: str) -> tuple[PodOnNode, ...]:
    selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    listed = await read_all(client, PODS, None, _decode, field_selector=selector)
    return tuple(entry.value for entry in listed.entries)


def _decode(raw: bytes | msgspec.Raw) -> ObjectEntry[PodOnNode]:
    entry = decode_pod(raw)
    facts = entry.value.facts
    owners = _decode_owned(raw).metadata.owner_references
    pod = PodOnNode(
        namespace=entry.namespace,
        name=entry.name,
        uid=entry.uid,
        group=entry.value.group,
        gpus=gpus_held(facts),
        tolerations=facts.demand.tolerations,
        of_daemon_set=any(owner.controller and owner.kind == _DAEMON_SET for owner in owners),
    )
    return ObjectEntry(entry.namespace, entry.name, entry.uid, entry.resource_version, pod)
