"""The store keeps the first date of each deletion of a pod, whatever later deletes write, and whether its Job asked."""

from datetime import UTC, datetime

import pytest

from recovery.core.model.facts import PodFacts, Snapshot
from recovery.ports import PODS
from tests.unit.kube.store_world import LLM, Body, World, job, listed, pod
from tests.unit.kube.test_group_store_live import serve

GRACE_SECONDS = 30
ASKED_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
LAST_DELETE = "2026-11-21T09:30:08Z"


def asked_to_go() -> Body:
    """Its deletion was requested at 09:30:00."""
    return with_deletion(pod(0), "2026-11-21T09:30:30Z", GRACE_SECONDS)


def deleted_for_good() -> Body:
    """Its processes took 8 s to end, and the kubelet has deleted it once more. A finalizer keeps it."""
    return with_deletion(pod(0), LAST_DELETE, 0)


def with_deletion(body: Body, timestamp: str, grace_seconds: int) -> Body:
    body["metadata"] |= {"deletionTimestamp": timestamp, "deletionGracePeriodSeconds": grace_seconds}
    return body


def ended(body: Body) -> Body:
    body["status"] |= {"phase": "Failed"}
    return body


def first(snapshot: Snapshot) -> PodFacts:
    return next(each for each in snapshot.pods if each.index == 0)


async def test_the_date_of_a_last_delete_takes_the_place_of_none_that_was_seen(world: World) -> None:
    await world.tell(PODS, asked_to_go())
    await world.tell(PODS, deleted_for_good())
    assert (first(world.llm).deleting_since, first(world.llm).deletion_dated_again) == (ASKED_AT, False)
    assert first(world.llm).deletion_grace_seconds == 0, "it need not be deleted by force"


async def test_the_first_date_of_a_deletion_is_kept_when_the_object_is_gone(world: World) -> None:
    await world.tell(PODS, asked_to_go())
    await world.tell(PODS, deleted_for_good())
    await world.tell(PODS, deleted_for_good(), type_="DELETED")
    assert first(world.llm).gone_at is not None
    assert first(world.llm).deleting_since == ASKED_AT


async def test_a_live_read_keeps_the_first_date_of_a_deletion(world: World) -> None:
    await world.tell(PODS, asked_to_go())
    serve(world, pods=[deleted_for_good(), pod(1)])
    assert first(await world.store.read_live(LLM)).deleting_since == ASKED_AT


async def test_where_only_the_last_delete_is_seen_the_date_may_not_be_the_first(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, deleted_for_good())
    assert first(world.llm).deletion_dated_again


async def test_a_pod_that_had_ended_is_deleted_once(world: World) -> None:
    await world.tell(PODS, ended(pod(0)))
    await world.tell(PODS, ended(deleted_for_good()))
    assert not first(world.llm).deletion_dated_again


@pytest.mark.parametrize("part", ["nodeName", "terminationGracePeriodSeconds"])
async def test_a_pod_without_a_node_or_a_grace_period_is_deleted_once(world: World, part: str) -> None:
    body = deleted_for_good()
    body["spec"][part] = "" if part == "nodeName" else 0
    await world.tell(PODS, body)
    assert not first(world.llm).deletion_dated_again


async def test_a_pod_of_the_same_name_has_a_date_of_its_own(world: World) -> None:
    await world.tell(PODS, asked_to_go())
    other = deleted_for_good()
    other["metadata"]["uid"] = "another"
    world.api.objects["jobs", ""] = listed("Job", job())
    await world.tell(PODS, other)
    found = next(each for each in world.llm.pods if each.uid == "another")
    assert found.deleting_since == datetime(2026, 11, 21, 9, 30, 8, tzinfo=UTC)


# --- whose deletion it is ------------------------------------------------------------------------------------------


def untracked(body: Body) -> Body:
    """The Job controller has removed its finalizer."""
    body["metadata"]["finalizers"] = []
    return body


async def test_a_pod_that_its_job_stops_tracking_before_the_deletion_is_let_go(world: World) -> None:
    """`deleteJobPods` of the Job controller patches the pod first, for a suspension and for a smaller Job."""
    await world.tell(PODS, pod(0))
    await world.tell(PODS, untracked(pod(0)))
    await world.tell(PODS, untracked(asked_to_go()))
    assert first(world.llm).let_go


async def test_a_pod_that_its_job_lets_go_stays_so_once_its_object_is_gone(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, untracked(pod(0)))
    await world.tell(PODS, untracked(asked_to_go()), type_="DELETED")
    assert first(world.llm).gone_at is not None
    assert first(world.llm).let_go


async def test_and_in_a_live_read_that_shows_only_the_deletion(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, untracked(pod(0)))
    serve(world, pods=[untracked(asked_to_go()), pod(1)])
    assert first(await world.store.read_live(LLM)).let_go


async def test_a_pod_that_a_client_deletes_is_not(world: World) -> None:
    """The Job controller counts it as failed, and then removes the finalizer, even if its processes still run."""
    await world.tell(PODS, pod(0))
    await world.tell(PODS, asked_to_go())
    await world.tell(PODS, untracked(asked_to_go()))
    assert not first(world.llm).let_go


async def test_a_pod_that_has_ended_and_was_counted_is_not_let_go(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, ended(pod(0)))
    await world.tell(PODS, untracked(ended(pod(0))))
    await world.tell(PODS, untracked(ended(asked_to_go())))
    assert not first(world.llm).let_go


async def test_a_pod_whose_order_of_changes_was_not_seen_is_not_let_go(world: World) -> None:
    """A watch that was interrupted shows only the last state."""
    await world.tell(PODS, pod(0))
    await world.tell(PODS, untracked(asked_to_go()))
    assert not first(world.llm).let_go


async def test_a_pod_that_was_never_tracked_is_not_let_go(world: World) -> None:
    await world.tell(PODS, untracked(pod(0)))
    await world.tell(PODS, untracked(asked_to_go()))
    assert not first(world.llm).let_go
