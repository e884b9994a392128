"""The fixtures with which projections are tested, and changes to them."""

import json
from datetime import datetime
from typing import Any

from tests.unit.kube.testing import fixture

JOB_UID = "88fa8d43-97ac-40cc-91e9-2a692a749c32"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21T{clock}+00:00")


def changed(name: str, **paths: Any) -> bytes:
    """A fixture with some values replaced. `status__phase` is a path, and None removes the field."""
    body = json.loads(fixture(name))
    for path, value in paths.items():
        *parents, last = path.split("__")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return json.dumps(body).encode()
