"""What happens to the dependants of a deleted owner, with the Job controller beside the collector."""

from collections.abc import Callable
from typing import Any

from recovery.ports import JOBS, PODS, PatchKind, Propagation
from recovery.sim.api.kinds.core import CONFIG_MAPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.controllers.request_limiter import UNLIMITED, Limiter
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.controllers.job_world import NAMESPACE, JobWorld, job_world


async def _running(world: JobWorld, **spec: Any) -> None:
    world.create(**spec)
    await world.pass_seconds(0.5)
    world.run()
    await world.pass_seconds(20)


def _delete(world: JobWorld, propagation: Propagation | None) -> None:
    world.server.delete(JOBS, "train", namespace=NAMESPACE, propagation=propagation)


def _gone(world: JobWorld) -> bool:
    return world.server.find(JOBS, "train", NAMESPACE) is None


def _config(world: JobWorld, name: str, *owners: tuple[Body, bool], finalizers: tuple[str, ...] = ()) -> Body:
    metadata = {"name": name, "ownerReferences": _references(*owners), "finalizers": list(finalizers)}
    return world.server.create(CONFIG_MAPS, {"metadata": metadata}, namespace=NAMESPACE)


def _references(*owners: tuple[Body, bool]) -> list[Body]:
    """Each owner, and whether the dependant blocks its deletion."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner, blocks in owners
    ]


def _configs(world: JobWorld) -> list[str]:
    return [body["metadata"]["name"] for body in world.server.objects(CONFIG_MAPS)]


def _delete_config(world: JobWorld, name: str, propagation: Propagation) -> None:
    world.server.delete(CONFIG_MAPS, name, namespace=NAMESPACE, propagation=propagation)


# Jobs.


@virtual_time
async def test_the_pods_of_a_job_that_is_being_deleted_lose_their_finalizers_at_once_and_get_no_successors() -> None:
    async with job_world() as world:
        await _running(world, pods=3)
        _delete(world, Propagation.FOREGROUND)
        await world.pass_seconds(0.1)
        assert all("finalizers" not in pod["metadata"] for pod in world.pods())
        world.delete(*world.pods())
        world.let_die()
        await world.pass_seconds(60)
        assert world.pods() == []
        assert world.conditions() == {}
        assert "failed" not in world.status()


@virtual_time
async def test_pods_that_are_deleted_before_the_controller_looks_count_as_failed_on_the_dying_job() -> None:
    """RaiseBackoffLimit exists for this case."""
    async with job_world() as world:
        await _running(world, pods=16, restart_policy="OnFailure")
        world.controller.stall(True)
        _delete(world, Propagation.FOREGROUND)
        world.delete(*world.pods())
        world.controller.stall(False)
        await world.pass_seconds(0.1)
        assert world.conditions() == {"FailureTarget": "BackoffLimitExceeded"}


@virtual_time
async def test_a_new_job_of_the_same_name_starts_without_the_old_ones_failures() -> None:
    async with job_world(collects=True) as world:
        await _running(world, pods=2)
        world.end(world.pod(0), 1)
        await world.pass_seconds(1.5)
        _delete(world, Propagation.FOREGROUND)
        await world.pass_seconds(0.5)
        world.let_die()
        await world.pass_seconds(0.5)
        assert _gone(world)
        world.create()
        await world.pass_seconds(0.5)
        assert world.indexes() == [0, 1]
        assert "failed" not in world.status()


@virtual_time
async def test_an_owner_that_was_seen_to_go_is_not_asked_for() -> None:
    async with job_world(collects=True) as world:
        world.collector.limiter = limiter = Meddled(world, lambda: None)
        owner = _config(world, "owner")
        for name in ("first", "second"):
            _config(world, name, (owner, True))
        _delete_config(world, "owner", Propagation.BACKGROUND)
        await world.pass_seconds(1)
        assert _configs(world) == []
        assert limiter.taken == 4  # each is read and deleted


@virtual_time
async def test_a_job_that_someone_else_ends_lets_its_pods_go_even_those_that_were_just_being_made() -> None:
    async with job_world(per_second=20) as world:
        world.create(pods=60)
        await world.pass_seconds(0.5)
        ended = [{"type": kind, "status": "True"} for kind in ("FailureTarget", "Failed")]
        world.set_job_status(conditions=ended, startTime=timestamp(world.clock.now()))
        before = [pod["metadata"]["name"] for pod in world.pods()]
        await world.pass_seconds(20)
        assert len(world.pods()) == 60
        assert all("finalizers" not in pod["metadata"] for pod in world.pods() if pod["metadata"]["name"] in before)
        world.delete(*world.pods())
        await world.pass_seconds(20)
        assert world.pods() == []


@virtual_time
async def test_128_pods_take_a_stock_collector_nine_seconds_and_five_if_someone_else_deletes_them() -> None:
    """The collector needs 3 requests a pod at 40/s. With help, the Job controller removes the finalizer: 1 at 20/s."""
    seconds = {}
    for helped in (False, True):
        async with job_world(per_second=20, collects=True) as world:
            world.create(pods=128, backoffLimit=2**31 - 1)
            await world.pass_seconds(60)
            world.run()
            await world.pass_seconds(60)
            _delete(world, Propagation.FOREGROUND)
            began = world.clock.monotonic_seconds()
            if helped:
                world.delete(*world.pods())
            while world.pods():
                await world.pass_seconds(0.1)
                world.let_die()
            seconds[helped] = world.clock.monotonic_seconds() - began
    assert 8.5 <= seconds[False] <= 9.5
    assert 4.5 <= seconds[True] <= 5.5


# Owners and dependants of any kind.


@virtual_time
async def test_a_dependant_whose_owner_was_replaced_by_one_of_the_same_name_goes() -> None:
    async with job_world(collects=True) as world:
        owner = _config(world, "owner")
        _delete_config(world, "owner", Propagation.BACKGROUND)
        _config(world, "owner")
        _config(world, "dependant", (owner, False))
        await world.pass_seconds(1)
        assert _configs(world) == ["owner"]


@virtual_time
async def test_a_dependant_of_two_owners_stays_as_long_as_one_does() -> None:
    async with job_world(collects=True) as world:
        first, second = _config(world, "first"), _config(world, "second")
        _config(world, "dependant", (first, True), (second, True))
        _delete_config(world, "first", Propagation.FOREGROUND)
        await world.pass_seconds(1)
        assert _configs(world) == ["second", "dependant"]
        dependant = world.server.get(CONFIG_MAPS, "dependant", namespace=NAMESPACE)
        assert [owner["name"] for owner in dependant["metadata"]["ownerReferences"]] == ["second"]
        _delete_config(world, "second", Propagation.BACKGROUND)
        await world.pass_seconds(1)
        assert _configs(world) == []


@virtual_time
async def test_foreground_deletion_goes_down_the_whole_family_and_ends_with_the_eldest() -> None:
    async with job_world(collects=True) as world:
        eldest = _config(world, "eldest")
        middle = _config(world, "middle", (eldest, True))
        _config(world, "youngest", (middle, True), finalizers=("example.com/held",))
        _delete_config(world, "eldest", Propagation.FOREGROUND)
        await world.pass_seconds(60)
        assert _configs(world) == ["eldest", "middle", "youngest"]
        for name in ("eldest", "middle"):
            metadata = world.server.get(CONFIG_MAPS, name, namespace=NAMESPACE)["metadata"]
            assert metadata["finalizers"] == ["foregroundDeletion"]
        free: Body = {"metadata": {"finalizers": []}}
        world.server.patch(CONFIG_MAPS, "youngest", free, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await world.pass_seconds(1)
        assert _configs(world) == []


@virtual_time
async def test_a_dependant_that_does_not_block_is_not_waited_for() -> None:
    async with job_world(collects=True) as world:
        owner = _config(world, "owner")
        _config(world, "dependant", (owner, False), finalizers=("example.com/held",))
        _delete_config(world, "owner", Propagation.FOREGROUND)
        await world.pass_seconds(1)
        assert _configs(world) == ["dependant"]


@virtual_time
async def test_a_dependant_that_lets_go_of_its_owner_is_not_waited_for_any_longer() -> None:
    async with job_world(collects=True) as world:
        owner = _config(world, "owner")
        _config(world, "dependant", (owner, True), finalizers=("example.com/held",))
        _delete_config(world, "owner", Propagation.FOREGROUND)
        await world.pass_seconds(1)
        assert _configs(world) == ["owner", "dependant"]
        disown: Body = {"metadata": {"ownerReferences": []}}
        world.server.patch(CONFIG_MAPS, "dependant", disown, kind=PatchKind.MERGE, namespace=NAMESPACE)
        await world.pass_seconds(1)
        assert _configs(world) == ["dependant"]


class Meddled(Limiter):
    """Calls `meddle` just before the third request, which is the deletion."""

    def __init__(self, world: JobWorld, meddle: Callable[[], object]) -> None:
        super().__init__(world.clock, per_second=UNLIMITED)
        self.taken = 0
        self._meddle = meddle

    async def take(self) -> None:
        self.taken += 1
        if self.taken == 3:
            self._meddle()


@virtual_time
async def test_a_dependant_that_gets_another_owner_at_the_last_moment_stays() -> None:
    async with job_world(collects=True) as world:
        owner, other = _config(world, "owner"), _config(world, "other")

        def adopt() -> None:
            metadata = {"ownerReferences": _references((other, False))}
            patch = {"metadata": metadata}
            world.server.patch(CONFIG_MAPS, "dependant", patch, kind=PatchKind.MERGE, namespace=NAMESPACE)

        world.collector.limiter = Meddled(world, adopt)
        _delete_config(world, "owner", Propagation.BACKGROUND)
        _config(world, "dependant", (owner, False))
        await world.pass_seconds(1)
        assert _configs(world) == ["other", "dependant"]


@virtual_time
async def test_a_dependant_of_which_something_else_changes_goes_nevertheless() -> None:
    async with job_world(collects=True) as world:
        owner = _config(world, "owner")

        def touch() -> None:
            patch = {"metadata": {"labels": {"touched": "yes"}}}
            world.server.patch(CONFIG_MAPS, "dependant", patch, kind=PatchKind.MERGE, namespace=NAMESPACE)

        world.collector.limiter = limiter = Meddled(world, touch)
        _delete_config(world, "owner", Propagation.BACKGROUND)
        _config(world, "dependant", (owner, False))
        await world.pass_seconds(1)
        assert _configs(world) == []
        assert limiter.taken == 4


@virtual_time
async def test_two_that_own_each_other_can_be_deleted_in_the_foreground() -> None:
    async with job_world(collects=True) as world:
        first = _config(world, "first")
        second = _config(world, "second", (first, True))
        own = {"metadata": {"ownerReferences": _references((second, True))}}
        world.server.patch(CONFIG_MAPS, "first", own, kind=PatchKind.MERGE, namespace=NAMESPACE)
        _delete_config(world, "first", Propagation.FOREGROUND)
        await world.pass_seconds(5)
        assert _configs(world) == []


@virtual_time
async def test_what_has_an_owner_that_stays_is_left_alone() -> None:
    async with job_world(collects=True) as world:
        owner = _config(world, "owner")
        _config(world, "dependant", (owner, True))
        revision = world.server.revision
        await world.pass_seconds(60)
        assert world.server.revision == revision


@virtual_time
async def test_a_pod_is_collected_with_its_own_grace() -> None:
    async with job_world(collects=True) as world:
        await _running(world, pods=1)
        _delete(world, Propagation.FOREGROUND)
        await world.pass_seconds(1)
        pod = world.server.get(PODS, world.pods()[0]["metadata"]["name"], namespace=NAMESPACE)
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
