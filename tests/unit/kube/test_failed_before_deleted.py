"""A client that deletes each failed pod at once: what had ended before the deletion is remembered from the watch."""

from recovery.core.diagnosis.evidence import LossKind, gather
from recovery.ports import PODS
from tests.unit.kube.store_world import LLM, Body, World, pod
from tests.unit.kube.test_first_deletions import LAST_DELETE, first, with_deletion
from tests.unit.kube.test_group_store_live import serve

CODE = 41


def exited(body: Body, *, failed: bool = True) -> Body:
    """Its container has ended in the second of the deletion."""
    [status] = body["status"]["containerStatuses"]
    status |= {
        "ready": False,
        "state": {"terminated": {"exitCode": CODE, "startedAt": "2026-11-21T09:00:00Z", "finishedAt": LAST_DELETE}},
    }
    body["status"] |= {"phase": "Failed" if failed else "Running"}
    return body


def deleted(body: Body) -> Body:
    return with_deletion(body, LAST_DELETE, 0)


async def kinds(world: World) -> list[tuple[LossKind, int | None]]:
    return [(each.kind, each.exit.code if each.exit else None) for each in gather(world.llm) if each.pod is not None]


async def test_a_pod_that_fails_and_is_deleted_in_one_second_has_failed(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, exited(pod(0)))
    await world.tell(PODS, deleted(exited(pod(0))))
    assert None in first(world.llm).ended_before_deletion
    assert await kinds(world) == [(LossKind.POD_FAILED, CODE)]


async def test_a_pod_that_failed_before_its_deletion_has_failed_once_its_object_is_gone(world: World) -> None:
    await world.tell(PODS, exited(pod(0)))
    await world.tell(PODS, deleted(exited(pod(0))))
    await world.tell(PODS, deleted(exited(pod(0))), type_="DELETED")
    assert first(world.llm).gone_at is not None
    assert await kinds(world) == [(LossKind.POD_FAILED, CODE)]


async def test_so_it_is_where_the_watch_shows_only_the_failure_and_the_end(world: World) -> None:
    await world.tell(PODS, exited(pod(0)))
    await world.tell(PODS, deleted(exited(pod(0))), type_="DELETED")
    assert await kinds(world) == [(LossKind.POD_FAILED, CODE)]


async def test_a_live_read_knows_that_a_pod_failed_before_its_deletion(world: World) -> None:
    await world.tell(PODS, exited(pod(0)))
    serve(world, pods=[deleted(exited(pod(0))), pod(1)])
    assert None in first(await world.store.read_live(LLM)).ended_before_deletion


async def test_an_exit_counts_although_the_pod_failed_only_after_the_deletion(world: World) -> None:
    """Another container still ran when the pod was deleted."""
    await world.tell(PODS, exited(pod(0), failed=False))
    await world.tell(PODS, deleted(exited(pod(0))))
    [ended] = first(world.llm).ended_before_deletion
    assert ended is not None
    assert ended.code == CODE
    assert await kinds(world) == [(LossKind.POD_FAILED, CODE)]


async def test_a_pod_that_was_deleted_first_has_not_failed(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(PODS, deleted(pod(0)))
    await world.tell(PODS, deleted(exited(pod(0))))
    assert await kinds(world) == [(LossKind.POD_DELETED, None)]


async def test_a_watch_that_was_interrupted_shows_no_order(world: World) -> None:
    """Both happened in one second, so the deletion counts as the cause."""
    await world.tell(PODS, pod(0))
    await world.tell(PODS, deleted(exited(pod(0))))
    assert await kinds(world) == [(LossKind.POD_DELETED, None)]
