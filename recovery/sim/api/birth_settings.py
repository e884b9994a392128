"""The admission policy that applies settings at birth (`manifests/components/birth-settings`), as API servers do.

No CEL is evaluated here: `recovery.launch.birth` changes the Job instead. The policy is recognised by the hash of its
content. If the policy has changed, a cluster that installs it is refused until that module and the hash are updated.
`tests/contract` checks against the real API server that the module and the policy do the same.
"""

import json
from collections import deque
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from recovery.launch.birth import born
from recovery.ports import JOBS, RECOVERY_GROUPS, Clock
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange

FOLLOWED = "650c3c622c68007b5788a94ae26ef14210d2447fae804d0cd74eece0517eb67d"
"""Hash of the policy and its binding that this module models."""
WATCH_SECONDS = 0.02
"""Delay from the write of a RecoveryGroup until the policy uses it: an API server reads parameters through a watch."""

_LABEL, _LABELLED = "recovery.trainjob.dev/birth-settings", "true"
_PACKAGED = "birth-settings"
_REPOSITORY = Path(__file__).resolve().parents[3]


class UnknownPolicyError(Exception):
    """The shipped policy is not the one that is modelled here."""


def shipped_policy() -> Traversable:
    """The policy file: package data of an installed wheel, or the repository's own file for an editable install."""
    packaged = files("recovery.sim") / _PACKAGED
    folder = packaged if packaged.is_dir() else _REPOSITORY / "manifests" / "components" / "birth-settings"
    return folder / "policy.yaml"


def hash_of(policy: str) -> str:
    """The hash of the parsed YAML, so comments do not count."""
    said = json.dumps(list(yaml.safe_load_all(policy)), sort_keys=True)
    return sha256(said.encode()).hexdigest()


@cache
def check_shipped_policy() -> None:
    """Check that the shipped policy is the modelled one. Raises UnknownPolicyError."""
    found = hash_of(shipped_policy().read_text(encoding="utf-8"))
    if found != FOLLOWED:
        raise UnknownPolicyError(
            f"{shipped_policy()} has changed: have {born.__module__} do what it says now, add what is new to "
            f"tests/contract, and set FOLLOWED to {found}"
        )


class BirthSettingsPolicy:
    """The policy in one cluster. It can be installed and removed at any time."""

    def __init__(self, server: ApiServer, clock: Clock, *, installed: bool) -> None:
        self._clock = clock
        self._installed = False
        self._labelled: dict[str, Body] = {}
        """RecoveryGroups with the label, by UID, as the policy sees them."""
        self._unseen: deque[tuple[float, ObjectChange]] = deque()
        """Changes that the policy has not seen yet, each with the time at which it will see it."""
        self.install(installed)
        server.subscribe(self._on_change, RECOVERY_GROUPS)
        server.mutate_new(JOBS, self._mutated)

    def install(self, installed: bool) -> None:
        """Install the policy, or remove it if `installed` is False."""
        if installed:
            check_shipped_policy()
        self._installed = installed

    def _on_change(self, change: ObjectChange) -> None:
        self._look()  # otherwise changes would pile up over days without a new Job
        self._unseen.append((self._clock.monotonic_seconds() + WATCH_SECONDS, change))

    def _mutated(self, job: Body) -> Body:
        return born(job, self._settings(job["metadata"]["namespace"])) if self._installed else job

    def _settings(self, namespace: str) -> Iterable[Body]:
        """The birth settings of the labelled RecoveryGroups in the namespace."""
        self._look()
        for group in self._labelled.values():
            settings = group.get("status", {}).get("birthSettings")
            if settings is not None and group["metadata"]["namespace"] == namespace:
                yield settings

    def _look(self) -> None:
        """Take over the changes that are visible by now."""
        now = self._clock.monotonic_seconds()
        while self._unseen and self._unseen[0][0] <= now:
            _, change = self._unseen.popleft()
            metadata = change.body["metadata"]
            labelled = metadata.get("labels", {}).get(_LABEL) == _LABELLED
            if labelled and change.type != "DELETED":
                self._labelled[metadata["uid"]] = change.body
            else:
                self._labelled.pop(metadata["uid"], None)
