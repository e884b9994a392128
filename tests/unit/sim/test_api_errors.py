"""Whatever the API server does to a kubelet's requests, each pod's status is written in the end, and none is lost."""

import pytest

from recovery import api_verbs
from recovery.ports import (
    LEASES,
    NODES,
    PODS,
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TryLaterError,
    UnknownOutcomeError,
)
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeDeath
from recovery.sim.virtual_time import virtual_time
from tests.unit.sim.cluster import QUICK, obedient_cluster

ERRORS: list[tuple[ApiError, bool]] = [
    (ConflictError("conflict", status=409), False),
    (NotFoundError("not found", status=404), False),
    (TryLaterError("too many requests", status=429, retry_after_seconds=1.0), False),
    (UnknownOutcomeError("time-out"), False),
    (UnknownOutcomeError("time-out"), True),
]


@pytest.mark.parametrize(("error", "applied"), ERRORS)
def test_a_status_is_written_again_until_it_is_taken(error: ApiError, applied: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster() as c:
            c.api.next("patch", PODS, error, times=3, applied=applied)
            await c.bind("p")
            await c.pass_seconds(5)
            assert c.phase("p") == "Running"
            c.kubelets.exit_container("p", 3)
            await c.pass_seconds(5)
            assert c.container("p")["state"]["terminated"]["exitCode"] == 3

    scenario()


@pytest.mark.parametrize(("error", "applied"), ERRORS)
def test_a_deletion_is_repeated_until_the_object_is_gone(error: ApiError, applied: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster() as c:
            await c.bind("p", finalizers=("keep",))
            await c.pass_seconds(1)
            await api_verbs.delete(c.api, PODS, "p", namespace="default")
            c.api.next("delete", PODS, error, times=1, applied=applied)
            await c.pass_seconds(10)
            c.api.release_finalizers("p")
            if isinstance(error, NotFoundError):
                return  # The server says that the object is gone: no more requests.
            assert c.gone("p")

    scenario()


@pytest.mark.parametrize(("error", "applied"), ERRORS)
def test_nodes_register_and_beat_through_errors(error: ApiError, applied: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster() as c:
            for verb, resource in (("create", NODES), ("patch", NODES), ("create", LEASES), ("patch", LEASES)):
                c.api.next(verb, resource, error, times=2, applied=applied)
            c.kubelets.revive_node("node-0")
            await c.pass_seconds(30)
            before = len(c.api.writes_of("patch", "leases"))
            await c.pass_seconds(30)
            assert len(c.api.writes_of("patch", "leases")) == before + 3

    scenario()


@virtual_time
async def test_what_changed_while_a_write_failed_is_in_the_next_write() -> None:
    async with obedient_cluster() as c:
        c.api.next("patch", PODS, TryLaterError("overloaded", status=429, retry_after_seconds=5.0))
        await c.bind("p")
        await c.pass_seconds(1)
        c.kubelets.exit_container("p", 3)
        await c.pass_seconds(10)
        assert c.phase("p") == "Failed"
        assert len(c.api.writes_of("patch", "pods")) == 1


@virtual_time
async def test_what_is_refused_for_good_ends_the_model_and_says_why() -> None:
    async def break_down() -> None:
        async with obedient_cluster() as c:
            c.api.next("patch", PODS, ForbiddenError("pods/status is forbidden", status=403))
            await c.bind("p")
            await c.pass_seconds(1)

    with pytest.raises(ExceptionGroup) as raised:
        await break_down()
    assert raised.group_contains(ForbiddenError, match="pods/status is forbidden")


@pytest.mark.parametrize(("expire", "say_so"), [(False, False), (True, False), (True, True)])
def test_no_pod_is_lost_when_the_watch_breaks(expire: bool, say_so: bool) -> None:
    @virtual_time
    async def scenario() -> None:
        async with obedient_cluster() as c:
            for name in ("stays", "deleted", "forced"):
                await c.bind(name)
            await c.pass_seconds(1)
            c.api.silent = True
            await api_verbs.delete(c.api, PODS, "deleted", namespace="default")
            await api_verbs.delete(c.api, PODS, "forced", namespace="default", grace_seconds=0)
            for index in range(5):
                await c.bind(f"new-{index}")
            lists = c.api.lists
            c.api.silent = False
            c.api.disconnect(expire=expire, say_so=say_so)
            await c.pass_seconds(4)
            assert (c.api.lists > lists) is expire
            assert sorted(process.pod.name for process in c.workload.running) == [
                *(f"new-{index}" for index in range(5)),
                "stays",
            ]
            assert c.gone("deleted")

    scenario()


@virtual_time
async def test_a_bookmark_spares_a_list() -> None:
    async with obedient_cluster(KubeletSettings(start_seconds=(0.0, 0.0), writes_leases=False)) as c:
        await c.pass_seconds(100)
        c.api.server.compact()  # This compacts the watch's first version, but not its last bookmark.
        c.api.disconnect()
        await c.bind("p")
        await c.pass_seconds(1)
        assert c.phase("p") == "Running"
        assert c.api.lists == 1


@virtual_time
async def test_a_list_that_fails_is_repeated() -> None:
    async with obedient_cluster() as c:
        await c.pass_seconds(1)
        c.api.next("list", PODS, TryLaterError("overloaded", status=429), times=2)
        c.api.disconnect(expire=True)
        await c.bind("p")
        await c.pass_seconds(2)
        assert c.phase("p") == "Running"


@virtual_time
async def test_writes_in_flight_are_bounded() -> None:
    settings = KubeletSettings(start_seconds=(0.0, 0.0), writes_in_flight=4)
    async with obedient_cluster(settings, nodes=10) as c:
        for index in range(60):
            await c.bind(f"p-{index}", node=f"node-{index % 10}")
        await c.pass_seconds(1)
        assert all(c.phase(f"p-{index}") == "Running" for index in range(60))
        assert c.api.most_writes_in_flight == 4
        assert len(c.api.writes_of("patch", "pods")) == 60


@virtual_time
async def test_a_node_that_is_cut_off_holds_up_no_one() -> None:
    settings = KubeletSettings(start_seconds=(0.0, 0.0), writes_in_flight=1)
    async with obedient_cluster(settings, nodes=2) as c:
        await c.bind("p", node="node-0")
        await c.pass_seconds(QUICK)
        c.kubelets.kill_node("node-0", NodeDeath.PARTITION)
        c.kubelets.exit_container("p", 1)
        await c.bind("q", node="node-1")
        await c.pass_seconds(QUICK)
        assert (c.phase("p"), c.phase("q")) == ("Running", "Running")
