"""Tokens of ServiceAccounts: which token a process reads, and whether the API server accepts it."""

import json
from pathlib import Path

from tests.cluster.controlplane.start import ControlPlane


def token_of(process: int) -> str:
    """The token that the process would read now."""
    mounts = [line.split()[4] for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
    [folder] = [mount for mount in mounts if mount.endswith("/kubernetes.io/serviceaccount")]
    return Path(f"/proc/{process}/root{folder}/token").read_text()


async def is_accepted(control_plane: ControlPlane, token: str) -> bool:
    """Whether the API server accepts the token. It caches an acceptance for 10 s."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    printed = await control_plane.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    return bool(json.loads(printed)["status"].get("authenticated", False))
