"""Jobs without a policy cost the controller no request. What they cost in memory, `make bench` measures."""

from collections.abc import Iterable

import pytest

from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController
from tests.cluster.idle_jobs import idle_jobs, until_quiet
from tests.cluster.scene import Fleet

pytestmark = pytest.mark.central

JOBS_COUNT = 20


async def test_jobs_without_a_policy_cause_no_request(
    namespace: str, fleet: Fleet, proxy: ApiProxy, controller: StartsController
) -> None:
    """Neither when they are created nor when they are deleted. They need no pods, because requests are for a group."""
    async with controller() as process:
        asked = len(proxy.requests)
        async with idle_jobs(fleet.api, namespace, JOBS_COUNT):
            assert await until_quiet(process) >= JOBS_COUNT, "it has seen every one of them"
            assert for_the_jobs(proxy.requests[asked:], namespace) == []
        await until_quiet(process)
        assert for_the_jobs(proxy.requests[asked:], namespace) == []


def for_the_jobs(requests: Iterable[SeenRequest], namespace: str) -> list[str]:
    """Requests for the whole cluster or this namespace. Jobs of other tests, in stuck namespaces, may have a policy.

    It leaves out the Lease, and watches that continue from their last version: a busy API server ends some watches.
    """
    asked = (
        seen
        for seen in requests
        if seen.namespace in (None, namespace) and seen.resource != "leases" and not goes_on(seen)
    )
    return [f"{seen.method} {seen.path}?{seen.query}" for seen in asked]


def goes_on(seen: SeenRequest) -> bool:
    """It is a watch that continues, and lists nothing again."""
    return seen.is_watch and "resourceVersion=" in seen.query and "sendInitialEvents" not in seen.query
