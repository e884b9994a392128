"""The store over scripted streams: indexes, notifications, what is remembered, and live reads."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from recovery.core.facts import GroupKey, Snapshot
from recovery.core.policy import Mode
from recovery.kube.projections.recovery import UNREADABLE_SCHEMA_VERSION
from recovery.kube.store import KubeGroupStore
from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    RefusedError,
    Resource,
    TryLaterError,
)
from recovery.workloads.trainjob import TrainJobAdapter
from tests.unit.kube.testing import FakeClock, Middle, Observed, ScriptedApi, bookmark, event, fixture

LLM = GroupKey("default", "llm")
WORKLOAD_UID = "1a93898b-ffca-4ca8-9e18-ad099985668f"
JOB_UID = "88fa8d43-97ac-40cc-91e9-2a692a749c32"
LEDGER_NAME = f"llm-{WORKLOAD_UID}"
ALL = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, NODES, RECOVERY_POLICIES, RECOVERY_GROUPS)

Body = dict[str, Any]


class FedApi(ScriptedApi):
    """Watches that a test feeds, one queue for each resource."""

    def __init__(self) -> None:
        super().__init__()
        self.feeds: dict[str, asyncio.Queue[bytes | Exception]] = {each.plural: asyncio.Queue() for each in ALL}
        self.selectors: dict[str, str] = {}

    async def watch(self, resource: Resource, *, label_selector: str = "", **_: object) -> AsyncGenerator[bytes, None]:
        self.selectors[resource.plural] = label_selector
        while True:
            line = await self.feeds[resource.plural].get()
            if isinstance(line, Exception):
                raise line
            yield line


class World:
    """A store, the cluster that it sees, and what it told."""

    def __init__(self) -> None:
        self.api = FedApi()
        self.clock = FakeClock()
        self.observed = Observed()
        self.store = KubeGroupStore(
            self.api, TrainJobAdapter(), clock=self.clock, entropy=Middle(), observer=self.observed
        )
        self.notified: Counter[str] = Counter()
        self.store.subscribe(lambda key: self.notified.update([str(key)]))
        self.version = 1000

    async def settle(self) -> None:
        while any(not feed.empty() for feed in self.api.feeds.values()):
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def tell(self, resource: Resource, *bodies: Body, type_: str = "MODIFIED") -> Counter[str]:
        """Let a watch tell of objects, each newer than all before; who was notified."""
        self.notified.clear()
        for body in bodies:
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self.api.feeds[resource.plural].put_nowait(event(type_, body))
        await self.settle()
        return self.notified

    async def end_lists(self, *resources: Resource) -> None:
        for resource in resources:
            self.api.feeds[resource.plural].put_nowait(bookmark(self.version, initial_events_end=True))
        await self.settle()

    @property
    def llm(self) -> Snapshot:
        return self.store.snapshot(LLM)


def load(name: str) -> Body:
    body: Body = json.loads(fixture(name))
    return body


def pod(index: int, *, state: str = "pod_running", name: str = "", job_uid: str = JOB_UID, **labels: str) -> Body:
    body = load(state)
    metadata = body["metadata"]
    metadata["name"] = name or f"llm-node-0-{index}"
    metadata["uid"] = f"uid-{metadata['name']}"
    metadata["ownerReferences"][0]["uid"] = job_uid
    metadata["labels"]["batch.kubernetes.io/job-completion-index"] = str(index)
    metadata["labels"] |= {f"jobset.sigs.k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return body


def job(*, name: str = "llm-node-0", uid: str = JOB_UID, replicated_job: str = "node", members: int = 2) -> Body:
    body = load("job")
    body["metadata"] |= {"name": name, "uid": uid}
    body["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = replicated_job
    body["spec"] |= {"parallelism": members, "completions": members}
    return body


def names(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.pods]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A synced store that knows the TrainJob llm, its JobSet, and its Job of two members."""
    world = World()
    running = asyncio.create_task(world.store.run())
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOB_SETS, load("jobset"))
    await world.tell(JOBS, job())
    await world.end_lists(*ALL)
    assert world.store.synced()
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_synced_only_when_every_list_is_there() -> None:
    world = World()
    running = asyncio.create_task(world.store.run())
    for resource in ALL:
        assert not world.store.synced()
        await world.end_lists(resource)
    assert world.store.synced()
    label = "jobset.sigs.k8s.io/jobset-name"
    assert {plural for plural, selector in world.api.selectors.items() if selector == label} == {"jobs", "pods"}
    running.cancel()


async def test_what_is_missing_at_the_start_is_one_plain_error() -> None:
    world = World()
    for resource in (RECOVERY_POLICIES, RECOVERY_GROUPS):
        world.api.feeds[resource.plural].put_nowait(NoSuchResourceError("the CRD is not installed"))
    with pytest.raises(NoSuchResourceError, match="not installed"):
        await world.store.run()


async def test_a_snapshot_has_all_parts_of_the_group(world: World) -> None:
    await world.tell(PODS, pod(1), pod(0), pod(0, name="other", jobset_name="other"))
    await world.tell(NODES, load("node"))
    snapshot = world.llm
    assert snapshot.workload is not None
    assert snapshot.workload.uid == WORKLOAD_UID
    assert snapshot.jobset is not None
    assert [each.name for each in snapshot.jobs] == ["llm-node-0"]
    assert names(snapshot) == ["llm-node-0-0", "llm-node-0-1"]
    assert list(snapshot.nodes) == ["gpu-0001"]
    assert not snapshot.live
    assert list(world.store.keys()) == [LLM]
    assert names(world.store.snapshot(GroupKey("default", "other"))) == ["other"]


async def test_a_group_that_is_not_known_is_empty(world: World) -> None:
    assert world.store.snapshot(GroupKey("a", "b")) == Snapshot(GroupKey("a", "b"), None, None, (), ())


async def test_deleted_objects_leave_the_snapshot(world: World) -> None:
    await world.tell(PODS, pod(0))
    await world.tell(JOBS, job(), type_="DELETED")
    await world.tell(PODS, pod(0), type_="DELETED")
    await world.tell(JOB_SETS, load("jobset"), type_="DELETED")
    await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
    assert world.llm == Snapshot(LLM, None, None, (), ())
    assert list(world.store.keys()) == []
    assert not world.store._pods
    assert not world.store._pods_on_node
    assert not world.store._jobs


async def test_initializers_are_no_members(world: World) -> None:
    await world.tell(JOBS, job(name="llm-init-0", uid="init", replicated_job="dataset-initializer"))
    await world.tell(PODS, pod(0, name="init", job_uid="init", replicatedjob_name="dataset-initializer"))
    orphan = pod(0, name="orphan", job_uid="gone", replicatedjob_name="model-initializer")
    await world.tell(PODS, pod(0), pod(1, name="old", job_uid="gone", replicatedjob_name="node"), orphan)
    assert [each.name for each in world.llm.jobs] == ["llm-node-0"]
    assert names(world.llm) == ["llm-node-0-0", "old"]


async def test_a_preparation_that_is_complete_is_no_member_any_more(world: World) -> None:
    preparation = job(name="llm-prepare-0", uid="prepare", replicated_job="prepare")
    await world.tell(JOBS, preparation)
    await world.tell(PODS, pod(0, name="preparing", job_uid="prepare", replicatedjob_name="prepare"))
    assert names(world.llm) == ["preparing"]
    preparation["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    await world.tell(JOBS, preparation)
    assert names(world.llm) == []
    assert [each.name for each in world.llm.jobs] == ["llm-node-0"]


async def test_a_job_set_of_somebody_else_is_left_alone(world: World) -> None:
    foreign = load("jobset")
    foreign["metadata"]["ownerReferences"][0]["uid"] = "an earlier TrainJob"
    await world.tell(JOB_SETS, foreign)
    await world.tell(PODS, pod(0))
    snapshot = world.llm
    assert snapshot.workload is not None
    assert (snapshot.jobset, snapshot.jobs, snapshot.pods) == (None, (), ())


async def test_every_change_of_a_part_is_told_of(world: World) -> None:
    assert await world.tell(TRAIN_JOBS, load("trainjob")) == {"default/llm": 1}
    assert await world.tell(JOB_SETS, load("jobset")) == {"default/llm": 1}
    assert await world.tell(JOBS, job()) == {"default/llm": 1}
    assert await world.tell(PODS, pod(0)) == {"default/llm": 1}
    assert await world.tell(RECOVERY_GROUPS, load("recoverygroup")) == {"default/llm": 1}
    assert await world.tell(RECOVERY_POLICIES, load("recoverypolicy")) == {"default/llm": 1}
    elsewhere = load("recoverypolicy")
    elsewhere["metadata"] |= {"namespace": "elsewhere", "uid": "elsewhere"}
    assert await world.tell(RECOVERY_POLICIES, elsewhere) == {}


async def test_a_node_is_told_of_only_when_its_readiness_changes_and_only_to_groups_on_it(world: World) -> None:
    node = load("node")
    assert await world.tell(NODES, node) == {}
    await world.tell(PODS, pod(0), pod(1))
    assert await world.tell(NODES, node) == {}
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert await world.tell(NODES, node) == {"default/llm": 1}
    await world.tell(PODS, pod(0), pod(1), type_="DELETED")
    assert await world.tell(NODES, node, type_="DELETED") == {}


async def test_a_pod_that_vanishes_stays_known_while_its_job_lives(world: World) -> None:
    await world.tell(PODS, pod(0), pod(1))
    world.clock.seconds = 60.0
    last = pod(0, state="pod_failed_disrupted", name="llm-node-0-0")
    assert await world.tell(PODS, last, type_="DELETED") == {"default/llm": 1}
    lost = world.llm.pods[0]
    assert (lost.name, lost.phase, lost.gone_at) == ("llm-node-0-0", "Failed", world.clock.now())
    await world.tell(JOBS, job(), type_="DELETED")
    assert names(world.llm) == ["llm-node-0-1"]


async def test_that_all_members_ran_is_remembered(world: World) -> None:
    await world.tell(PODS, pod(0))
    assert world.llm.trained_at == {}
    await world.tell(PODS, pod(1))
    await world.tell(PODS, pod(1), type_="DELETED")
    await world.tell(PODS, pod(0), type_="DELETED")
    assert list(world.llm.trained_at) == [JOB_UID]
    await world.tell(JOBS, job(), type_="DELETED")
    assert world.llm.trained_at == {}


async def test_that_all_members_ran_is_seen_in_passing(world: World) -> None:
    """Before anybody looks, and whichever stream is first; afterwards the objects tell nothing of it."""
    for members_first in (True, False):
        await world.tell(JOBS, job(), type_="DELETED")
        streams = [(PODS, [pod(0), pod(1)]), (JOBS, [job()])]
        for resource, bodies in streams if members_first else reversed(streams):
            await world.tell(resource, *bodies)
        await world.tell(PODS, pod(1, state="pod_pending"))
        assert list(world.llm.trained_at) == [JOB_UID]
        await world.tell(PODS, pod(0), pod(1), type_="DELETED")


async def test_a_policy_that_cannot_be_read_is_reported_and_allows_nothing(world: World) -> None:
    await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
    assert [policy.name for policy in world.store.policies("default")] == ["standard"]
    broken = load("recoverypolicy")
    broken["spec"]["mode"] = "Automatic"
    await world.tell(RECOVERY_POLICIES, broken)
    assert world.store.policies("default") == ()
    assert world.observed.unreadable == [
        ("recoverypolicies", "default/standard", "Invalid enum value 'Automatic' - at `$.spec.mode`")
    ]
    await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
    assert len(world.store.policies("default")) == 1


async def test_the_ledger_is_found_by_the_uid_of_the_workload(world: World) -> None:
    assert world.store.ledger_object(LLM, WORKLOAD_UID) is None
    await world.tell(RECOVERY_GROUPS, load("recoverygroup"))
    found = world.store.ledger_object(LLM, WORKLOAD_UID)
    assert found is not None
    assert (found.name, found.ledger.epoch) == (LEDGER_NAME, 2)
    assert world.store.ledger_object(LLM, "another") is None
    assert world.store.ledger_object(GroupKey("elsewhere", "llm"), WORKLOAD_UID) is None
    assert list(world.store.ledger_objects()) == [found]
    assert await world.tell(RECOVERY_GROUPS, load("recoverygroup"), type_="DELETED") == {"default/llm": 1}
    assert world.store.ledger_object(LLM, WORKLOAD_UID) is None


async def test_a_ledger_that_cannot_be_read_is_marked_and_reported(world: World) -> None:
    broken = load("recoverygroup")
    broken["status"]["phase"] = "Levitating"
    await world.tell(RECOVERY_GROUPS, broken)
    found = world.store.ledger_object(LLM, WORKLOAD_UID)
    assert found is not None
    assert found.schema_version == UNREADABLE_SCHEMA_VERSION
    ((resource, name, message),) = world.observed.unreadable
    assert (resource, name) == ("recoverygroups", f"default/{LEDGER_NAME}")
    assert "$.phase" in message


async def test_a_ledger_under_another_name_is_nobodys(world: World) -> None:
    copy = load("recoverygroup")
    copy["metadata"] |= {"name": "copy", "uid": "copy"}
    await world.tell(RECOVERY_GROUPS, load("recoverygroup"), copy)
    await world.tell(RECOVERY_GROUPS, copy, type_="DELETED")
    found = world.store.ledger_object(LLM, WORKLOAD_UID)
    assert found is not None
    assert found.name == LEDGER_NAME
    assert world.observed.unreadable == [
        ("recoverygroups", "default/copy", f"is ignored: the RecoveryGroup of that workload is called {LEDGER_NAME}")
    ]


class TestLiveReads:
    """`read_live` against objects that the API server has, whatever the cache says."""

    @pytest.fixture
    async def world(self, world: World) -> World:
        self.serve(world, pods=[pod(0), pod(1)])
        return world

    def serve(self, world: World, *, pods: list[Body], jobs: list[Body] | None = None) -> None:
        page = {"metadata": {"resourceVersion": "5000"}}
        world.api.objects |= {
            ("trainjobs", "llm"): fixture("trainjob"),
            ("jobsets", "llm"): fixture("jobset"),
            ("jobs", ""): json.dumps({**page, "items": jobs if jobs is not None else [job()]}).encode(),
            ("pods", ""): json.dumps({**page, "items": pods}).encode(),
        }

    async def test_it_sees_what_the_cache_would_see(self, world: World) -> None:
        await world.tell(NODES, load("node"))
        live = await world.store.read_live(LLM)
        assert live.live
        assert list(live.trained_at) == [JOB_UID]
        assert list(live.nodes) == ["gpu-0001"]
        await world.tell(PODS, *json.loads(world.api.objects["pods", ""])["items"])  # type: ignore[arg-type]
        cached = world.llm
        assert names(live) == names(cached)
        assert msgspec.structs.replace(live, live=False, pods=(), jobs=(), workload=None, jobset=None) == (
            msgspec.structs.replace(cached, pods=(), jobs=(), workload=None, jobset=None)
        )
        selector = "jobset.sigs.k8s.io/jobset-name=llm"
        assert world.api.lists == [("pods", selector, ""), ("jobs", selector, "")], "pods before their owners"

    async def test_what_is_not_there_is_none(self, world: World) -> None:
        world.api.objects["trainjobs", "llm"] = NotFoundError("gone")
        world.api.objects["jobsets", "llm"] = NotFoundError("gone")
        live = await world.store.read_live(LLM)
        assert (live.workload, live.jobset) == (None, None)

    async def test_pods_that_vanished_are_there_whether_the_watch_has_told_of_them_or_not(self, world: World) -> None:
        await world.tell(PODS, pod(0), pod(1))
        await world.tell(PODS, pod(0), type_="DELETED")
        self.serve(world, pods=[pod(0, name="replacement")])
        world.clock.seconds = 9.0
        live = await world.store.read_live(LLM)
        assert [(each.name, each.gone_at is not None) for each in live.pods] == [
            ("llm-node-0-0", True),
            ("llm-node-0-1", True),
            ("replacement", False),
        ]
        assert live.pods[1].gone_at == world.clock.now()

    async def test_but_not_those_of_others(self, world: World) -> None:
        preparation = job(name="llm-prepare-0", uid="prepare", replicated_job="dataset-initializer")
        preparation["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
        await world.tell(PODS, pod(0, name="prepared", job_uid="prepare", replicatedjob_name="dataset-initializer"))
        self.serve(world, pods=[pod(0)], jobs=[job(), preparation])
        assert names(await world.store.read_live(LLM)) == ["llm-node-0-0"]

    async def test_but_not_those_of_a_job_that_is_gone_or_going(self, world: World) -> None:
        await world.tell(PODS, pod(0), pod(1))
        dying = job()
        dying["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        for jobs in ([], [dying]):
            self.serve(world, pods=[pod(0)], jobs=jobs)
            assert names(await world.store.read_live(LLM)) == ["llm-node-0-0"]

    async def test_a_job_without_pods_says_what_refuses_them(self, world: World) -> None:
        self.serve(world, pods=[])
        events = [
            {"message": "old", "lastTimestamp": "2026-11-21T09:00:00Z"},
            {"message": "exceeded quota", "lastTimestamp": "2026-11-21T10:00:00Z"},
            {"message": "undated", "lastTimestamp": None},
        ]
        world.api.objects["events", ""] = json.dumps({"items": events}).encode()
        (empty,) = (await world.store.read_live(LLM)).jobs
        assert empty.failed_create == "exceeded quota"
        assert world.api.lists[-1] == (EVENTS.plural, f"involvedObject.uid={JOB_UID},reason=FailedCreate", "")

    async def test_or_nothing_if_events_may_not_be_read(self, world: World) -> None:
        self.serve(world, pods=[])
        world.api.objects["events", ""] = ForbiddenError("cannot list events")
        (empty,) = (await world.store.read_live(LLM)).jobs
        assert empty.failed_create == ""

    async def test_trouble_is_the_callers(self, world: World) -> None:
        world.api.objects["pods", ""] = TryLaterError("busy")
        with pytest.raises(TryLaterError):
            await world.store.read_live(LLM)
        world.api.objects["pods", ""] = b'{"items": [{"metadata": 1}]}'
        with pytest.raises(RefusedError, match="pods: an answer of the API server cannot be read"):
            await world.store.read_live(LLM)

    async def test_a_ledger_is_read_by_its_name(self, world: World) -> None:
        world.api.objects["recoverygroups", LEDGER_NAME] = fixture("recoverygroup")
        found = await world.store.read_ledger_live(LLM, WORKLOAD_UID)
        assert found is not None
        assert found.ledger.epoch == 2
        world.api.objects["recoverygroups", LEDGER_NAME] = NotFoundError("none")
        assert await world.store.read_ledger_live(LLM, WORKLOAD_UID) is None

    async def test_policies_are_read_past_the_cache(self, world: World) -> None:
        await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
        edited, broken = load("recoverypolicy"), load("recoverypolicy")
        edited["spec"]["mode"] = "Observe"
        broken["metadata"]["name"] = "broken"
        broken["spec"]["mode"] = "Automatic"
        answer = {"metadata": {"resourceVersion": "5000"}, "items": [broken, edited]}
        world.api.objects["recoverypolicies", ""] = json.dumps(answer).encode()
        (live,) = await world.store.read_policies_live("default")
        assert (live.name, live.spec.mode) == ("standard", Mode.OBSERVE)
        assert world.api.lists[-1] == ("recoverypolicies", "", "")
        assert world.api.namespaces[-1] == "default"
        assert world.observed.unreadable == [
            ("recoverypolicies", "default/broken", "Invalid enum value 'Automatic' - at `$.spec.mode`")
        ]
        (cached,) = world.store.policies("default")
        assert cached.spec.mode is Mode.ENFORCE, "the watch keeps the cache, not this"

    async def test_no_policies_is_an_answer_and_no_answer_is_none(self, world: World) -> None:
        world.api.objects["recoverypolicies", ""] = b'{"metadata": {"resourceVersion": "5000"}, "items": []}'
        assert await world.store.read_policies_live("default") == ()
        for trouble in (TryLaterError("busy"), b"<html>"):
            world.api.objects["recoverypolicies", ""] = trouble
            with pytest.raises(TryLaterError):
                await world.store.read_policies_live("default")

    async def test_a_page_of_a_proxy_is_no_reading(self, world: World) -> None:
        world.api.objects["pods", ""] = b"<html>"
        with pytest.raises(TryLaterError, match="list pods: not a list"):
            await world.store.read_live(LLM)
