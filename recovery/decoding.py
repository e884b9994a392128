"""From JSON to the record of an object, or to one typed error that says which object cannot be read, and why.

Everything that reads objects of the API server decodes through here, so that the content of one object never ends more
than the reading of that object. What is wrong with the rest of an object does not keep its metadata from being read:
the error names the object and the group that it belongs to.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS, UNDECODABLE, Resource, UndecodableError
from recovery.workloads.jobset import JOBSET_NAME_LABEL

DEPTH_MAX = 100
"""Levels of JSON that are kept where there are too many: more than lead to any field that is read here."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_OPENING = frozenset(b"[{")
_QUOTE = ord('"')

T = TypeVar("T")


class ObjectVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata as far as the next write of the object is tied to what was read."""

    resource_version: str


class AnnotatedObjectVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata as far as a patch of the annotations is tied to what was read."""

    uid: str
    resource_version: str
    annotations: dict[str, str] | None = None
    """None: the object has no such map, and a patch must not reach into it."""


class _Labels(msgspec.Struct, frozen=True):
    group: msgspec.Raw = msgspec.field(name=JOBSET_NAME_LABEL, default=msgspec.Raw(b'""'))


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Each field undecoded, so that one that is wrong does not hide the others."""

    name: msgspec.Raw = msgspec.Raw(b'""')
    namespace: msgspec.Raw = msgspec.Raw(b'""')
    uid: msgspec.Raw = msgspec.Raw(b'""')
    resource_version: msgspec.Raw = msgspec.Raw(b'""')
    labels: msgspec.Raw = msgspec.Raw(b"{}")


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_labels = msgspec.json.Decoder(_Labels).decode
_decode_text = msgspec.json.Decoder(str).decode


def decoded(resource: Resource, decode: Callable[[msgspec.Raw], T], raw: bytes | msgspec.Raw) -> T:
    """What `decode` makes of the object. Raises UndecodableError, and nothing else that its content could cause."""
    try:
        return at_any_depth(decode, raw)
    except UNDECODABLE as error:
        raise UndecodableError(_undecodable(resource, raw, error)) from error


def name_of(raw: msgspec.Raw) -> str:
    """The object's name by its metadata alone; empty: it says none."""
    return _text(_metadata(raw).name)


def at_any_depth(decode: Callable[[msgspec.Raw], T], body: bytes | msgspec.Raw) -> T:
    """What `decode` makes of the JSON, however deep it is nested. Raises what `decode` raises.

    msgspec gives up at some 1,000 levels (RecursionError) even in fields that it skips, and an API server takes 10,000.
    No projection reads a field that deep.
    """
    try:
        return decode(msgspec.Raw(body))
    except RecursionError:
        return decode(msgspec.Raw(shallow(bytes(body))))


def shallow(body: bytes) -> bytes:
    """The JSON with null in place of every value that is nested deeper than DEPTH_MAX, in time linear in its length."""
    kept: list[bytes] = []
    depth = kept_to = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first == _QUOTE:
            continue
        if first in _OPENING:
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept += (body[kept_to : token.start()], b"null")
        else:
            if depth == DEPTH_MAX + 1:
                kept_to = token.end()
            depth -= 1
    return b"".join((*kept, body[kept_to:]))


def _undecodable(resource: Resource, raw: bytes | msgspec.Raw, error: Exception) -> UndecodableObject:
    metadata = _metadata(raw)
    name, namespace = _text(metadata.name), _text(metadata.namespace)
    return UndecodableObject(
        kind=resource.kind,
        namespace=namespace,
        name=name,
        uid=_text(metadata.uid),
        problem=str(error) or type(error).__name__,
        group=_group(resource, namespace, name, metadata.labels),
        resource_version=_text(metadata.resource_version),
    )


def _metadata(raw: bytes | msgspec.Raw) -> _Metadata:
    try:
        return at_any_depth(_decode_object, raw).metadata
    except UNDECODABLE:
        return _Metadata()


def _group(resource: Resource, namespace: str, name: str, labels: msgspec.Raw) -> GroupKey | None:
    """A workload and its JobSet have the name of the group; on Jobs and pods JobSet writes it as a label."""
    if resource in (PODS, JOBS):
        try:
            name = _text(_decode_labels(labels).group)
        except UNDECODABLE:
            return None
    elif resource not in (TRAIN_JOBS, JOB_SETS):
        return None
    return GroupKey(namespace, name) if namespace and name else None


def _text(raw: msgspec.Raw) -> str:
    """Empty: it is no string."""
    try:
        return _decode_text(raw)
    except UNDECODABLE:
        return ""
