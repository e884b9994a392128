"""A Job that is gone is remembered if its group had trained: no object shows any more that its ranks are down."""

import asyncio

import msgspec
import pytest

from recovery.core.model.facts import Snapshot
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS, ApiRequest, NotFoundError
from tests.unit.kube.store_world import JOB_UID, LLM, Body, World, job, listed, load, pod
from tests.unit.kube.testing import fixture


def gone(snapshot: Snapshot) -> list[str]:
    return [each.uid for each in snapshot.gone_jobs]


async def test_a_job_that_had_trained_is_remembered_with_the_time_at_which_it_was_seen_to_go(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1))
    before = world.llm.jobs[0]
    assert await world.tell(JOBS, job(), type_="DELETED") == {"default/llm": 1}
    (found,) = world.llm.gone_jobs
    assert found == msgspec.structs.replace(before, gone_at=world.clock.now(), resource_version=found.resource_version)
    assert world.llm.jobs == ()


async def test_one_that_had_not_trained_is_not(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1, state="pod_pending"))
    await world.tell(JOBS, job(), type_="DELETED")
    assert gone(world.llm) == []


async def test_of_one_name_only_the_newest_is(world: World) -> None:
    """Each restart leaves one. A job that is restarted all year must not fill the memory."""
    for uid in (JOB_UID, "next"):
        await world.tell(JOBS, job(uid=uid))
        await world.tell(PODS, pod(0, job_uid=uid), pod(1, job_uid=uid))
        await world.tell(JOBS, job(uid=uid), type_="DELETED")
    assert gone(world.llm) == ["next"]


@pytest.mark.parametrize("workload_first", [True, False])
async def test_without_its_workload_none_is_remembered(world: World, workload_first: bool) -> None:
    """The streams have no order. What an earlier TrainJob left must not look like a loss of the next one."""
    await world.tell(PODS, pod(0), pod(1))
    deletions = [(TRAIN_JOBS, load("trainjob")), (JOBS, job())]
    for resource, body in deletions if workload_first else reversed(deletions):
        await world.tell(resource, body, type_="DELETED")
    await world.tell(JOB_SETS, load("jobset"), type_="DELETED")
    await world.tell(TRAIN_JOBS, load("trainjob"))
    assert gone(world.llm) == []


class TestLive:
    def serve(self, world: World, *jobs: Body) -> None:
        world.api.objects |= {
            ("trainjobs", "llm"): fixture("trainjob"),
            ("jobsets", "llm"): fixture("jobset"),
            ("jobs", ""): listed("Job", *jobs),
            ("pods", ""): listed("Pod"),
            ("nodes", "gpu-0001"): fixture("node"),
            ("events", ""): listed("Event"),
        }

    async def test_a_job_that_only_the_live_read_does_not_find_is_gone(self, world: World) -> None:
        await world.tell(PODS, pod(0), pod(1))
        self.serve(world)
        live = await world.store.read_live(LLM)
        assert gone(live) == [JOB_UID]
        assert [each.gone_at for each in live.gone_jobs] == [world.clock.now()]

    async def test_one_that_it_finds_is_not(self, world: World) -> None:
        await world.tell(PODS, pod(0), pod(1))
        self.serve(world, job())
        assert gone(await world.store.read_live(LLM)) == []

    async def test_what_the_watch_has_shown_is_known_to_the_live_read(self, world: World) -> None:
        await world.tell(PODS, pod(0), pod(1))
        await world.tell(JOBS, job(), type_="DELETED")
        self.serve(world, job(uid="next"))
        assert gone(await world.store.read_live(LLM)) == [JOB_UID]

    async def test_so_is_what_it_shows_during_the_live_read(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.tell(PODS, pod(0), pod(1))
        self.serve(world)
        answer = world.api.answer

        async def meanwhile(request: ApiRequest) -> bytes:
            if request.resource == JOBS:
                await world.tell(JOBS, job(), type_="DELETED")
            return await answer(request)

        monkeypatch.setattr(world.api, "answer", meanwhile)
        assert gone(await world.store.read_live(LLM)) == [JOB_UID]

    @pytest.mark.parametrize(
        "changing",
        [
            pytest.param([], id="it is gone"),
            pytest.param([{"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}], id="it is being deleted"),
            pytest.param([{"spec": {"suspend": True}}], id="it is suspended"),
            pytest.param([{"spec": {"parallelism": 2, "completions": 2}}], id="it has another size"),
            pytest.param([{"status": {"conditions": [{"type": "Failed", "status": "True"}]}}], id="it has failed"),
            pytest.param(
                [{"metadata": {"labels": {"jobset.sigs.k8s.io/restart-attempt": "1"}}}], id="it is of the next attempt"
            ),
            pytest.param(
                [{"metadata": {"annotations": {"recovery.trainjob.dev/torn-down-by": "other"}}}], id="it is claimed"
            ),
        ],
    )
    async def test_what_created_a_job_that_changes_is_read_after_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch, changing: list[Body]
    ) -> None:
        """JobSet counts its restart before it deletes the Jobs. In the other order, its restart would look like the
        deletion by a client."""
        self.serve(world, *(merged(at_rest(), change) for change in changing))
        rounds = await rounds_of(world, monkeypatch)
        assert rounds[:3] == [["pods"], ["jobs", "jobsets", "trainjobs"], ["jobsets", "trainjobs"]]

    async def test_a_group_whose_jobs_are_at_rest_takes_two_rounds_and_four_requests(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.serve(world, at_rest())
        world.api.objects["pods", ""] = listed("Pod", pod(0))
        await world.tell(NODES, load("node"))
        assert await rounds_of(world, monkeypatch) == [["pods"], ["jobs", "jobsets", "trainjobs"]]

    async def test_a_trainjob_without_its_jobset_is_read_after_that(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A TrainJob that is being deleted loses its JobSet."""
        self.serve(world)
        world.api.objects["jobsets", "llm"] = NotFoundError("gone")
        asked: list[str] = []
        answer = world.api.answer

        async def noted(request: ApiRequest) -> bytes:
            asked.append(request.resource.plural)
            return await answer(request)

        monkeypatch.setattr(world.api, "answer", noted)
        await world.store.read_live(LLM)
        assert [each for each in asked if each in {"jobsets", "trainjobs"}][-1] == "trainjobs"


def at_rest() -> Body:
    """The Job as its JobSet has created it."""
    return merged(job(), {"spec": {"parallelism": 4, "completions": 4}})


def merged(body: Body, change: Body) -> Body:
    both = dict(body)
    for key, value in change.items():
        both[key] = merged(body.get(key, {}), value) if isinstance(value, dict) else value
    return both


async def rounds_of(world: World, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a live read requests at once, in order."""
    rounds: list[list[str]] = []
    in_flight = 0
    answer = world.api.answer

    async def noted(request: ApiRequest) -> bytes:
        nonlocal in_flight
        if not in_flight:
            rounds.append([])
        rounds[-1].append(request.resource.plural)
        in_flight += 1
        await asyncio.sleep(0)
        in_flight -= 1
        return await answer(request)

    monkeypatch.setattr(world.api, "answer", noted)
    await world.store.read_live(LLM)
    return [sorted(each) for each in rounds]
