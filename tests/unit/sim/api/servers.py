"""A server with a few kinds that have no rules of their own, and objects to put into it."""

import random
from datetime import datetime, timedelta
from typing import Any

import msgspec

from recovery.ports import EVENTS, JOB_SETS, JOBS, LEASES, NODES, PODS, RECOVERY_POLICIES, Resource
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.server import ApiServer
from recovery.sim.virtual_time import BEGIN

TEAM = "team-a"


class SetClock:
    """`ports.Clock` that a test sets by hand. Nothing sleeps by it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the server waits for nothing")


KINDS = (
    ServedKind(resource=PODS),
    ServedKind(resource=JOBS),
    ServedKind(resource=JOB_SETS),
    ServedKind(resource=RECOVERY_POLICIES, tracks_managers=True),
    ServedKind(resource=NODES, counts_generation=False),
    ServedKind(resource=LEASES, has_status=False, counts_generation=False),
    ServedKind(resource=EVENTS, has_status=False, counts_generation=False),
)


def serving(*kinds: ServedKind, clock: SetClock | None = None) -> ApiServer:
    """Without `kinds`, the server has all of the above."""
    return ApiServer(kinds or KINDS, clock=clock or SetClock(), entropy=random.Random(7))


def named(name: str, **metadata: Any) -> Body:
    return {"metadata": {"name": name, **metadata}, "spec": {"size": 1}}


def pod(name: str, *, node: str = "", **metadata: Any) -> Body:
    spec: Body = {"containers": [{"name": "trainer", "image": "torch"}], "terminationGracePeriodSeconds": 30}
    return {"metadata": {"name": name, **metadata}, "spec": {**spec, **({"nodeName": node} if node else {})}}


def made(server: ApiServer, resource: Resource, body: Body) -> Body:
    """Create the object, in the team's namespace if it is namespaced."""
    return server.create(resource, body, namespace=TEAM if resource.namespaced else None)


def meta(body: Body) -> Body:
    metadata: Body = body["metadata"]
    return metadata


def told(line: bytes) -> tuple[str, str, str]:
    """Type, name and resourceVersion of a line of a watch. A bookmark's name is empty."""
    event = msgspec.json.decode(line)
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name", ""), metadata["resourceVersion"]
