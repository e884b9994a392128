"""Decodes the JSON of an object into a record, or raises one typed error that says which object is unreadable, and why.

Everything that reads objects of the API server decodes through here, so that bad content of one object affects only the
reading of that object. The metadata is read even if the rest of the object is wrong: the error names the object and the
group that it belongs to.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS, UNDECODABLE, Resource, UndecodableError
from recovery.workloads.jobset import JOBSET_NAME_LABEL

DEPTH_MAX = 100
"""Levels of JSON that `shallow` keeps. No field that is read here is nested as deep."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_OPENING = frozenset(b"[{")
_QUOTE = ord('"')

T = TypeVar("T")


class ObjectVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that ties the next write of the object to the version that was read."""

    resource_version: str


class AnnotatedObjectVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that ties a patch of the annotations to the version that was read."""

    uid: str
    resource_version: str
    annotations: dict[str, str] | None = None
    """None: the object has no annotations, so a patch has to add the whole map."""


class _Labels(msgspec.Struct, frozen=True):
    group: msgspec.Raw = msgspec.field(name=JOBSET_NAME_LABEL, default=msgspec.Raw(b'""'))


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields are left undecoded, so that a malformed one does not hide the others."""

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
    """Decode the object with `decode`. Any error that its content causes is raised as UndecodableError."""
    try:
        return at_any_depth(decode, raw)
    except UNDECODABLE as error:
        raise UndecodableError(_undecodable(resource, raw, error)) from error


def name_of(raw: msgspec.Raw) -> str:
    """The object's name, read from its metadata only. Empty: it has no readable name."""
    return _text(_metadata(raw).name)


def at_any_depth(decode: Callable[[msgspec.Raw], T], body: bytes | msgspec.Raw) -> T:
    """Decode JSON of any depth with `decode`. Raises what `decode` raises.

    msgspec raises RecursionError at about 1,000 levels, even in fields that it skips, and an API server accepts 10,000.
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
    """A workload and its JobSet have the name of the group. JobSet labels its Jobs and pods with it."""
    if resource in (PODS, JOBS):
        try:
            name = _text(_decode_labels(labels).group)
        except UNDECODABLE:
            return None
    elif resource not in (TRAIN_JOBS, JOB_SETS):
        return None
    return GroupKey(namespace, name) if namespace and name else None


def _text(raw: msgspec.Raw) -> str:
    """Empty: the value is not a string."""
    try:
        return _decode_text(raw)
    except UNDECODABLE:
        return ""
