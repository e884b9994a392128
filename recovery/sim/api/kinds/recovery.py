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
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    Resource,
)
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.schemas import Schema

_PACKAGED = "crd"
"""Folder of this package's parent in an installed wheel, which has no repository around it."""
_REPOSITORY = Path(__file__).resolve().parents[4]

_RESOURCES = (
    RECOVERY_POLICIES,
    CLUSTER_RECOVERY_POLICIES,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
)
_READ_FOR_THEIR_MANAGERS = frozenset({RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES})
"""The controller dates a policy's mode by its managedFields."""


@cache
def recovery_kinds() -> tuple[ServedKind, ...]:
    """Policies, the RecoveryConfig, RecoveryGroups and RecoveryIncidents. Raises FileNotFoundError without CRDs."""
    return tuple(_kind(resource, definition(resource)) for resource in _RESOURCES)


def definitions() -> Traversable:
    """The folder of the CRDs: package data in an installed wheel, the repository's own beside an editable install."""
    packaged = files("recovery.sim") / _PACKAGED
    return packaged if packaged.is_dir() else _REPOSITORY / "manifests" / "crd"


@cache
def definition(resource: Resource) -> Any:
    """The version of its CRD that is served, as YAML has it."""
    text = (definitions() / f"{resource.plural}.yaml").read_text(encoding="utf-8")
    versions = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]["versions"]  # noqa: S506 - the safe loader in C
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
