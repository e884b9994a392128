"""Our own kinds, as the CustomResourceDefinitions in `manifests/crd` declare them."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    Resource,
)
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.schemas import Schema

_PACKAGED = "crd"
"""Folder in `recovery.sim` that has the CRDs in an installed wheel, where there is no repository."""
_REPOSITORY = Path(__file__).resolve().parents[4]

_RESOURCES = (
    RECOVERY_POLICIES,
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_DRILLS,
)
_READ_FOR_THEIR_MANAGERS = frozenset({RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES})
"""The controller reads from a policy's managedFields when its mode was set."""


@cache
def recovery_kinds() -> tuple[ServedKind, ...]:
    """Policies, RecoveryConfig, groups, incidents and drills. Raises FileNotFoundError if a CRD is missing."""
    return tuple(_kind(resource, definition(resource)) for resource in _RESOURCES)


def definitions() -> Traversable:
    """The folder of the CRDs: package data in an installed wheel, the repository's own beside an editable install."""
    packaged = files("recovery.sim") / _PACKAGED
    return packaged if packaged.is_dir() else _REPOSITORY / "manifests" / "crd"


@cache
def definition(resource: Resource) -> Any:
    """The entry of the CRD's `versions` for the resource's version."""
    text = (definitions() / f"{resource.plural}.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    versions = yaml.load(text, Loader=loader)["spec"]["versions"]  # noqa: S506 - the safe loader, in C where there is one
    return next(version for version in versions if version["name"] == resource.version)


def _kind(resource: Resource, version: Any) -> ServedKind:
    schema = Schema(version["schema"]["openAPIV3Schema"])
    has_status = "status" in version.get("subresources", {})

    def complete(body: Body, before: Body | None) -> None:
        if before is None and has_status:
            body.pop("status", None)  # a create sets none: registry/customresource/strategy.go
        schema.complete(body, before)

    return ServedKind(
        resource=resource,
        has_status=has_status,
        tracks_managers=resource in _READ_FOR_THEIR_MANAGERS,
        completes_status=has_status,
        default=complete,
        validate=schema.causes,
    )
