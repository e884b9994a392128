"""Reads past the cache return what the API server has, whatever the watches have reported."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import Mode
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.pods import PodRecord, decode_pod
from recovery.ports import (
    EVENTS,
    NODES,
    PODS,
    RECOVERY_POLICIES,
    ApiRequest,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    TryLaterError,
)
from tests.unit.kube.store_world import (
    JOB_UID,
    LEDGER_NAME,
    LLM,
    WORKLOAD_UID,
    Body,
    World,
    cluster_policy,
    config,
    job,
    listed,
    load,
    names,
    pod,
)
from tests.unit.kube.testing import fixture, message


@pytest.fixture
async def world(world: World) -> World:
    serve(world, pods=[pod(0), pod(1)])
    return world


def serve(world: World, *, pods: list[Body], jobs: list[Body] | None = None) -> None:
    world.api.objects |= {
        ("trainjobs", "llm"): fixture("trainjob"),
        ("jobsets", "llm"): fixture("jobset"),
        ("jobs", ""): listed("Job", *(jobs if jobs is not None else [job()])),
        ("pods", ""): listed("Pod", *pods),
        ("nodes", "gpu-0001"): fixture("node"),
        ("events", ""): listed("Event"),
    }


async def test_it_sees_what_the_cache_would_see(world: World) -> None:
    await world.tell(NODES, load("node"))
    live = await world.store.read_live(LLM)
    assert live.live
    assert list(live.trained_at) == [JOB_UID]
    assert list(live.nodes) == ["gpu-0001"]
    await world.tell(PODS, *json.loads(world.api.objects["pods", ""])["items"])  # type: ignore[arg-type]
    cached = world.llm
    assert names(live) == names(cached)
    as_cached = msgspec.structs.replace(live, live=False, read_at=None, fleet=None)
    assert msgspec.structs.replace(as_cached, pods=(), jobs=(), workload=None, jobset=None) == (
        msgspec.structs.replace(cached, pods=(), jobs=(), workload=None, jobset=None)
    )
    selector = "jobset.sigs.k8s.io/jobset-name=llm"
    assert world.api.lists == [("pods", selector, ""), ("jobs", selector, "")], "pods before their owners"


async def test_a_large_group_is_read_in_pages_of_one_state(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"": ("next", [pod(0)]), "next": ("", [pod(1)])}
    limits: list[str] = []
    answer = world.api.answer

    async def paged(request: ApiRequest) -> bytes:
        if request.resource != PODS:
            return await answer(request)
        token, pods = pages[request.parameter("continue")]
        limits.append(request.parameter("limit"))
        metadata = {"resourceVersion": "7", "continue": token}
        return json.dumps({"kind": "PodList", "metadata": metadata, "items": pods}).encode()

    monkeypatch.setattr(world.api, "answer", paged)
    assert names(await world.store.read_live(LLM)) == ["llm-node-0-0", "llm-node-0-1"]
    assert limits == ["500", "500"]


async def test_a_pod_that_the_cache_has_in_the_same_version_is_not_decoded_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.tell(PODS, pod(0), pod(1))
    same, changed = pod(0), pod(1)
    same["metadata"]["resourceVersion"] = world.llm.pods[0].resource_version
    changed["metadata"]["resourceVersion"] = "999999"
    serve(world, pods=[same, changed])
    decodes: list[str] = []

    def noted(raw: msgspec.Raw) -> ObjectEntry[PodRecord]:
        entry = decode_pod(raw)
        decodes.append(entry.name)
        return entry

    monkeypatch.setattr("recovery.kube.live_reader.decode_pod", noted)
    live = await world.store.read_live(LLM)
    assert decodes == ["llm-node-0-1"]
    assert live.pods[0] is world.llm.pods[0]
    assert live.pods[1].resource_version == "999999"


async def test_it_is_dated_by_its_beginning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server answers slowly, the facts are older than the answer."""
    answer = world.api.answer

    async def slowly(request: ApiRequest) -> bytes:
        world.clock.seconds += 3.0
        return await answer(request)

    monkeypatch.setattr(world.api, "answer", slowly)
    before = world.clock.now()
    assert (await world.store.read_live(LLM)).read_at == before < world.clock.now()


async def test_what_is_not_there_is_none(world: World) -> None:
    world.api.objects["trainjobs", "llm"] = NotFoundError("gone")
    world.api.objects["jobsets", "llm"] = NotFoundError("gone")
    live = await world.store.read_live(LLM)
    assert (live.workload, live.jobset) == (None, None)


async def test_pods_that_vanished_are_there_whether_the_watch_has_told_of_them_or_not(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1))
    await world.tell(PODS, pod(0), type_="DELETED")
    serve(world, pods=[pod(0, name="replacement")])
    world.clock.seconds = 9.0
    live = await world.store.read_live(LLM)
    assert [(each.name, each.gone_at is not None) for each in live.pods] == [
        ("llm-node-0-0", True),
        ("llm-node-0-1", True),
        ("replacement", False),
    ]
    assert live.pods[1].gone_at == world.clock.now()


async def test_but_not_those_of_others(world: World) -> None:
    preparation = job(name="llm-prepare-0", uid="prepare", replicated_job="dataset-initializer")
    preparation["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    await world.tell(PODS, pod(0, name="prepared", job_uid="prepare", replicatedjob_name="dataset-initializer"))
    serve(world, pods=[pod(0)], jobs=[job(), preparation])
    assert names(await world.store.read_live(LLM)) == ["llm-node-0-0"]


async def test_but_not_those_of_a_job_that_is_gone_or_going(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1))
    dying = job()
    dying["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    for jobs in ([], [dying]):
        serve(world, pods=[pod(0)], jobs=jobs)
        assert names(await world.store.read_live(LLM)) == ["llm-node-0-0"]


async def test_a_job_without_pods_says_what_refuses_them(world: World) -> None:
    serve(world, pods=[])
    events: list[Body] = [
        {"message": "old", "lastTimestamp": "2026-11-21T09:00:00Z"},
        {"message": "exceeded quota", "lastTimestamp": "2026-11-21T10:00:00Z"},
        {"message": "undated", "lastTimestamp": None},
    ]
    world.api.objects["events", ""] = listed("Event", *events)
    (empty,) = (await world.store.read_live(LLM)).jobs
    assert empty.failed_create == "exceeded quota"
    assert world.api.lists[-1] == (EVENTS.plural, f"involvedObject.uid={JOB_UID},reason=FailedCreate", "")


async def test_or_nothing_if_events_may_not_be_read(world: World) -> None:
    serve(world, pods=[])
    world.api.objects["events", ""] = ForbiddenError("cannot list events")
    (empty,) = (await world.store.read_live(LLM)).jobs
    assert empty.failed_create == ""


def refused_jobs(*dates: str, message: str = 'job "llm-node-0" creation failed with error: no') -> bytes:
    """Events as JobSet creates them, dated by their start, and by their second occurrence in the series."""
    events: list[Body] = [
        {
            "message": f"{message} ({number})",
            "eventTime": f"2026-11-21T{date}.000001Z",
            "lastTimestamp": None,
            "series": {"count": 2, "lastObservedTime": f"2026-11-21T{date}.250000Z"},
        }
        for number, date in enumerate(dates)
    ]
    return listed("Event", *events)


def initializer() -> Body:
    done = job(name="llm-prepare-0", uid="prepare", replicated_job="dataset-initializer")
    done["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    return done


@pytest.mark.parametrize("jobs", [[], [initializer()]], ids=["no Job at all", "none but one that is finished"])
async def test_a_job_set_without_jobs_says_what_refuses_them_and_when_it_said_so(
    world: World, jobs: list[Body]
) -> None:
    serve(world, pods=[], jobs=jobs)
    world.api.objects["events", ""] = refused_jobs("10:00:00", "11:00:00", "09:00:00")
    jobset = (await world.store.read_live(LLM)).jobset
    assert jobset is not None
    assert jobset.failed_create == 'job "llm-node-0" creation failed with error: no (1)'
    assert jobset.failed_create_at == datetime(2026, 11, 21, 11, 0, 0, 250000, tzinfo=UTC)
    uid = json.loads(fixture("jobset"))["metadata"]["uid"]
    assert world.api.lists[-1] == (EVENTS.plural, f"involvedObject.uid={uid},reason=JobCreationFailed", "")


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("spec", "suspend", True),
        ("status", "terminalState", "Failed"),
        ("metadata", "deletionTimestamp", "2026-11-21T10:00:00Z"),
    ],
)
async def test_one_that_is_to_have_none_is_not_asked_about(world: World, part: str, field: str, value: object) -> None:
    serve(world, pods=[], jobs=[])
    body = load("jobset")
    body[part][field] = value
    world.api.objects["jobsets", "llm"] = json.dumps(body).encode()
    world.api.objects["events", ""] = refused_jobs("10:00:00")
    jobset = (await world.store.read_live(LLM)).jobset
    assert jobset is not None
    assert (jobset.failed_create, jobset.failed_create_at) == ("", None)
    assert EVENTS.plural not in [plural for plural, _, _ in world.api.lists]


async def test_nor_is_one_that_has_a_job_or_one_of_whose_jobs_cannot_be_read(world: World) -> None:
    broken = job()
    broken["spec"]["parallelism"] = "many"
    for jobs in ([job()], [initializer(), job()], [broken]):
        serve(world, pods=[pod(0)], jobs=jobs)
        world.api.objects["events", ""] = refused_jobs("10:00:00")
        jobset = (await world.store.read_live(LLM)).jobset
        assert jobset is None or jobset.failed_create == ""


async def test_and_nothing_is_said_if_events_may_not_be_read_or_there_are_none(world: World) -> None:
    for answer in (ForbiddenError("cannot list events"), listed("Event")):
        serve(world, pods=[], jobs=[])
        world.api.objects["events", ""] = answer
        jobset = (await world.store.read_live(LLM)).jobset
        assert jobset is not None
        assert jobset.failed_create == ""


async def test_trouble_is_the_callers(world: World) -> None:
    world.api.objects["pods", ""] = TryLaterError("busy")
    with pytest.raises(TryLaterError):
        await world.store.read_live(LLM)


async def test_a_ledger_is_read_by_its_name(world: World) -> None:
    world.api.objects["recoverygroups", LEDGER_NAME] = fixture("recoverygroup")
    found = await world.store.read_ledger_live(LLM, WORKLOAD_UID)
    assert found is not None
    assert found.ledger.epoch == 2
    world.api.objects["recoverygroups", LEDGER_NAME] = NotFoundError("none")
    assert await world.store.read_ledger_live(LLM, WORKLOAD_UID) is None


async def test_a_ledger_that_says_it_is_anothers_is_not_written_over(world: World) -> None:
    body = load("recoverygroup")
    body["spec"]["workloadRef"]["uid"] = "another"
    world.api.objects["recoverygroups", LEDGER_NAME] = json.dumps(body).encode()
    with pytest.raises(RefusedError, match=r"spec\.workloadRef\.uid is another, .*: delete it"):
        await world.store.read_ledger_live(LLM, WORKLOAD_UID)


def lay_down(world: World, own: list[Body], of_cluster: list[Body], config: Body | None = None) -> None:
    absent = NotFoundError("there is none")
    world.api.objects |= {
        ("recoverypolicies", ""): listed("RecoveryPolicy", *own),
        ("clusterrecoverypolicies", ""): listed("ClusterRecoveryPolicy", *of_cluster),
        ("recoveryconfigs", "default"): json.dumps(config).encode() if config is not None else absent,
    }


async def test_policies_are_read_past_the_cache(world: World) -> None:
    await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
    edited, broken = load("recoverypolicy"), load("recoverypolicy")
    edited["spec"]["mode"] = "Observe"
    broken["metadata"]["name"] = "broken"
    broken["spec"]["mode"] = "Automatic"
    lay_down(world, [broken, edited], [cluster_policy()])
    mine, of_cluster = (await world.store.read_policies_live("default")).policies
    assert (mine.name, mine.spec.mode) == ("standard", Mode.OBSERVE)
    assert of_cluster.title == "ClusterRecoveryPolicy everywhere"
    assert world.api.lists == [("recoverypolicies", "", ""), ("clusterrecoverypolicies", "", "")]
    assert world.api.namespaces == ["default", None]
    assert world.observed.unreadable == [
        ("recoverypolicies", "default/broken", "Invalid enum value 'Automatic' - at `$.spec.mode`")
    ]
    (cached,) = world.store.policies("default").policies
    assert cached.spec.mode is Mode.ENFORCE, "the watch keeps the cache, not this"


async def test_a_pause_of_everything_is_read_past_the_cache(world: World) -> None:
    paused, broken = config(paused=True), config(paused="yes")
    for each in (paused, broken):
        each["metadata"]["resourceVersion"] = "9"
    lay_down(world, [], [], paused)
    live = await world.store.read_policies_live("default")
    assert live.config is not None
    assert live.config.spec.paused
    assert world.observed.unreadable == []
    lay_down(world, [], [], broken)
    live = await world.store.read_policies_live("default")
    assert live.config is not None
    assert "so all recoveries are paused" in message(live.config.pause)
    assert [(resource, name) for resource, name, _ in world.observed.unreadable] == [("recoveryconfigs", "default")]


async def test_no_policies_is_an_answer_and_no_answer_is_none(world: World) -> None:
    lay_down(world, [], [])
    assert await world.store.read_policies_live("default") == PolicySet()
    for key in (("recoverypolicies", ""), ("clusterrecoverypolicies", ""), ("recoveryconfigs", "default")):
        lay_down(world, [], [])
        world.api.objects[key] = TryLaterError("busy")
        with pytest.raises(TryLaterError):
            await world.store.read_policies_live("default")


@pytest.mark.parametrize("plural", ["recoverypolicies", "clusterrecoverypolicies"])
async def test_what_is_no_list_is_no_answer_either(world: World, plural: str) -> None:
    lay_down(world, [], [])
    world.api.objects[plural, ""] = b"<html>"
    with pytest.raises(TryLaterError, match=f"list {plural}: not a list"):
        await world.store.read_policies_live("default")
    world.api.objects[plural, ""] = b"{}"
    with pytest.raises(RefusedError, match=f"list {plural}: the answer is an object of kind ''"):
        await world.store.read_policies_live("default")


async def test_a_page_of_a_proxy_is_no_reading(world: World) -> None:
    world.api.objects["pods", ""] = b"<html>"
    with pytest.raises(TryLaterError, match="list pods: not a list"):
        await world.store.read_live(LLM)
