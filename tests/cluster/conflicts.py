"""Every write of the controller that tests a resourceVersion meets an object that has changed a moment before.

`make test-cluster-conflicts` runs the cluster suite so. A test that passes only because no one else touches a Job in
the instant of the trigger fails then: real Jobs change several times a second while their pods end.
"""

import os
from typing import Protocol

VARIABLE = "CONFLICTS"
"""Set in the environment, it turns this mode on for the whole run."""
ANNOTATION = "conflicts.example.com/write"
_DISTURBED = ("jobs", "jobsets", "trainjobs")


class Kubectl(Protocol):
    """Runs kubectl as administrator."""

    async def __call__(self, *arguments: str) -> str: ...


class Conflicts:
    """Changes the object of a write before the server sees the write. The repeated write goes through."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._refused: set[tuple[str, str]] = set()
        self.count = 0

    async def before(self, method: str, path: str, body: bytes) -> None:
        """Change the object that this request names, unless its previous write has met a change."""
        resource, namespace, name = _object_of(path)
        if resource not in _DISTURBED or b"resourceVersion" not in body:
            return
        key = (method, path)
        if key in self._refused:
            self._refused.discard(key)
            return
        self._refused.add(key)
        self.count += 1
        await self._kubectl("annotate", resource, name, "-n", namespace, "--overwrite", f"{ANNOTATION}={self.count}")


def requested() -> bool:
    return bool(os.environ.get(VARIABLE))


def _object_of(path: str) -> tuple[str, str, str]:
    """Resource, namespace and name of a request for one namespaced object, and empty strings for any other request."""
    parts = path.strip("/").split("/")
    if "namespaces" not in parts or len(parts) != parts.index("namespaces") + 4:
        return "", "", ""
    namespace, resource, name = parts[-3:]
    return resource, namespace, name
