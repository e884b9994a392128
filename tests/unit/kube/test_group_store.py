"""The store over scripted streams: indexes, notifications, and what it remembers."""

import asyncio
from datetime import UTC, datetime
from itertools import permutations

import pytest

from recovery.background import BackgroundTaskError
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.kube.ledger_index import COLLECTED_SECONDS
from recovery.kube.projections.recovery import UNREADABLE_SCHEMA_VERSION
from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX
from recovery.ports import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    NoSuchResourceError,
    Resource,
    SilentWatchError,
    TryLaterError,
)
from tests.unit.kube.store_world import (
    ALL,
    JOB_UID,
    LEDGER_NAME,
    LLM,
    WORKLOAD_UID,
    Body,
    World,
    job,
    ledger,
    load,
    names,
    pod,
    replicated,
)


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


async def test_a_watch_that_ends_by_a_bug_ends_all_by_its_name() -> None:
    world = World()
    world.api.feeds["pods"].put_nowait(ZeroDivisionError("division by zero"))
    with pytest.raises(BackgroundTaskError) as raised:
        await world.store.run()
    assert (raised.value.task, raised.value.why) == ("watch of pods", "ZeroDivisionError: division by zero")


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
    assert not world.store._objects._pods
    assert not world.store._objects._pods_on_node
    assert not world.store._objects._jobs


async def test_initializers_are_no_members(world: World) -> None:
    await world.tell(JOBS, job(name="llm-init-0", uid="init", replicated_job="dataset-initializer"))
    await world.tell(PODS, pod(0, name="init", job_uid="init", replicatedjob_name="dataset-initializer"))
    orphan = pod(0, name="orphan", job_uid="gone", replicatedjob_name="model-initializer")
    await world.tell(PODS, pod(0), pod(1, name="old", job_uid="gone", replicatedjob_name="node"), orphan)
    assert [each.name for each in world.llm.jobs] == ["llm-node-0"]
    assert names(world.llm) == ["llm-node-0-0", "old"]


async def test_a_pod_is_found_by_its_name_while_it_is_a_member(world: World) -> None:
    await world.tell(JOBS, job(name="llm-init-0", uid="init", replicated_job="dataset-initializer"))
    await world.tell(PODS, pod(0, name="init", job_uid="init", replicatedjob_name="dataset-initializer"))
    await world.tell(PODS, pod(0), pod(0, name="old", job_uid="gone", replicatedjob_name="node"))
    found = world.store.member(LLM.namespace, "llm-node-0-0")
    assert found is not None
    assert (found[0], found[1].uid, found[1].index) == (LLM, "uid-llm-node-0-0", 0)
    for name in ("init", "old", "nobody"):
        assert world.store.member(LLM.namespace, name) is None, name
    assert world.store.member("elsewhere", "llm-node-0-0") is None


async def test_a_preparation_that_is_complete_is_no_member_any_more(world: World) -> None:
    preparation = job(name="llm-prepare-0", uid="prepare", replicated_job="prepare")
    await world.tell(JOBS, preparation)
    await world.tell(PODS, pod(0, name="preparing", job_uid="prepare", replicatedjob_name="prepare"))
    assert names(world.llm) == ["preparing"]
    preparation["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    await world.tell(JOBS, preparation)
    assert names(world.llm) == []
    assert [each.name for each in world.llm.jobs] == ["llm-node-0"]


async def test_a_job_set_of_someone_else_is_left_alone(world: World) -> None:
    foreign = load("jobset")
    foreign["metadata"]["ownerReferences"][0]["uid"] = "an earlier TrainJob"
    await world.tell(JOB_SETS, foreign)
    await world.tell(PODS, pod(0))
    snapshot = world.llm
    assert snapshot.workload is not None
    assert (snapshot.jobset, snapshot.jobs, snapshot.pods) == (None, (), ())


async def test_every_change_of_a_part_is_reported(world: World) -> None:
    for resource, name in ((TRAIN_JOBS, "trainjob"), (JOB_SETS, "jobset")):
        suspended = load(name)
        suspended["spec"]["suspend"] = True
        assert await world.tell(resource, suspended) == {"default/llm": 1}
    assert await world.tell(JOBS, job(members=3)) == {"default/llm": 1}
    assert await world.tell(PODS, pod(0)) == {"default/llm": 1}
    assert await world.tell(PODS, pod(0, state="pod_restarted")) == {"default/llm": 1}
    assert await world.tell(RECOVERY_GROUPS, load("recoverygroup")) == {"default/llm": 1}
    assert await world.tell(RECOVERY_POLICIES, load("recoverypolicy")) == {"default/llm": 1}
    elsewhere = load("recoverypolicy")
    elsewhere["metadata"] |= {"namespace": "elsewhere", "uid": "elsewhere"}
    assert await world.tell(RECOVERY_POLICIES, elsewhere) == {}


async def test_a_node_is_reported_only_when_something_of_it_counts_and_only_to_groups_on_it(world: World) -> None:
    node = load("node")
    assert await world.tell(NODES, node) == {}
    await world.tell(PODS, pod(0), pod(1))
    assert await world.tell(NODES, node) == {}
    gpu = {"type": "GpuUnhealthy", "status": "True", "reason": "XID79", "message": "seen at 10:00:00"}
    for path, value in (
        ("conditions", [{"type": "Ready", "status": "False"}]),
        ("conditions", [{"type": "Ready", "status": "Unknown"}]),
        ("conditions", [{"type": "Ready", "status": "Unknown"}, gpu]),
        ("taints", [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]),
        ("unschedulable", True),
    ):
        node["status" if path == "conditions" else "spec"][path] = value
        assert await world.tell(NODES, node) == {"default/llm": 1}, path
    gpu |= {"message": "seen at 10:00:10", "lastHeartbeatTime": "2026-11-21T10:00:10Z"}
    node["metadata"]["labels"] = {"any": "label"}
    assert await world.tell(NODES, node) == {}
    await world.tell(PODS, pod(0), pod(1), type_="DELETED")
    assert await world.tell(NODES, node, type_="DELETED") == {}


async def test_a_node_that_does_not_exist_is_gone_once_all_nodes_are_known() -> None:
    world = World()
    running = asyncio.create_task(world.store.run())
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOB_SETS, load("jobset"))
    await world.tell(JOBS, job())
    await world.tell(PODS, pod(0))
    await world.end_lists(TRAIN_JOBS, JOB_SETS, JOBS, PODS)
    assert (world.llm.nodes, world.llm.gone_nodes) == ({}, frozenset())
    await world.end_lists(NODES)
    assert world.llm.gone_nodes == {"gpu-0001"}
    await world.tell(NODES, load("node"))
    assert (list(world.llm.nodes), world.llm.gone_nodes) == (["gpu-0001"], frozenset())
    assert list(world.store.nodes()) == ["gpu-0001"]
    await world.tell(NODES, load("node"), type_="DELETED")
    assert (dict(world.llm.nodes), world.llm.gone_nodes) == ({}, frozenset({"gpu-0001"}))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


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
    assert world.llm.trained_members == {JOB_UID: 2}
    await world.tell(JOBS, job(), type_="DELETED")
    assert list(world.llm.trained_at) == [job.uid for job in world.llm.gone_jobs] == [JOB_UID]
    assert world.llm.trained_members == {}


async def test_that_all_members_ran_is_seen_in_passing(world: World) -> None:
    """It is seen before any read and in either order of the streams. Later the objects no longer show it."""
    for members_first in (True, False):
        await world.tell(JOBS, job(), type_="DELETED")
        streams = [(PODS, [pod(0), pod(1)]), (JOBS, [job()])]
        for resource, bodies in streams if members_first else reversed(streams):
            await world.tell(resource, *bodies)
        await world.tell(PODS, pod(1, state="pod_pending"))
        assert list(world.llm.trained_at) == [JOB_UID]
        await world.tell(PODS, pod(0), pod(1), type_="DELETED")


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_since_when_a_group_trained_does_not_depend_on_the_order_of_the_list(order: tuple[int, ...]) -> None:
    """A member failed and was replaced while no controller ran. If the Job counted as trained only since
    then, the loss would seem to come before the training, and the survivors would hang."""
    failed, replacement = pod(1, name="llm-node-0-1-old"), pod(1, name="llm-node-0-1-new")
    ended = {"exitCode": 1, "startedAt": "2026-11-21T09:27:54Z", "finishedAt": "2026-11-21T09:50:00Z"}
    failed["status"] |= {"phase": "Failed", "conditions": []}
    failed["status"]["containerStatuses"][0] |= {"state": {"terminated": ended}, "ready": False, "started": False}
    replacement["metadata"]["creationTimestamp"] = "2026-11-21T09:50:40Z"
    replacement["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2026-11-21T09:50:41Z"
    listed = [pod(0), failed, replacement]
    world = World()
    running = asyncio.create_task(world.store.run())
    await world.tell(JOBS, job(), type_="ADDED")
    await world.end_lists(JOBS)
    await world.tell(PODS, *(listed[number] for number in order), type_="ADDED")
    await world.end_lists(*(each for each in ALL if each is not JOBS))
    assert world.llm.trained_at == {JOB_UID: datetime(2026, 11, 21, 9, 27, 54, tzinfo=UTC)}
    running.cancel()


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


async def test_ledgers_of_other_workloads_of_the_name_are_orphans(world: World) -> None:
    await world.tell(RECOVERY_GROUPS, ledger("earlier"), load("recoverygroup"), ledger("others", name="other"))
    assert [orphan.workload_uid for orphan in world.store.orphans(LLM)] == ["earlier"]
    assert world.store.orphans(GroupKey("elsewhere", "llm")) == ()
    await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
    assert {orphan.workload_uid for orphan in world.store.orphans(LLM)} == {"earlier", WORKLOAD_UID}
    await world.tell(RECOVERY_GROUPS, ledger("earlier"), load("recoverygroup"), type_="DELETED")
    assert world.store.orphans(LLM) == ()
    assert list(world.store._ledgers._ledgers_of) == [GroupKey("default", "other")], "nothing is left behind"


async def test_a_ledger_that_was_collected_in_mid_incident_stays_an_orphan_for_a_while(world: World) -> None:
    """The ledger may vanish together with its workload, and only the ledger has what is still to be recorded."""
    open_ = load("recoverygroup")
    open_["status"]["phase"] = "Decided"
    open_["status"]["incident"] = {
        "id": "0d2f5c9e-3",
        "step": {"type": "Waiting"},
        "number": 3,
        "startedAt": "2026-11-02T08:00:00Z",
        "detectedAt": "2026-11-02T08:00:01Z",
        "class": "PodDeleted",
        "cause": "PodDeleted",
        "mode": "Enforce",
        "terms": {"policyName": "p", "policyUID": "u", "policyGeneration": 1, "restart": "", "budgetLimit": 1}
        | {"budgetWindowSeconds": 60.0, "startTimeoutSeconds": 60.0},
    }
    await world.tell(RECOVERY_GROUPS, open_)
    await world.tell(RECOVERY_GROUPS, open_, type_="DELETED")
    assert world.store.ledger_object(LLM, WORKLOAD_UID) is None
    assert list(world.store.ledger_objects()) == []
    assert world.store.orphans(LLM) == (), "its job is there: who deleted the ledger has begun anew"
    assert list(world.store.collected()) == [LLM], "a new leader has no other way to know"
    await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
    assert [orphan.workload_uid for orphan in world.store.orphans(LLM)] == [WORKLOAD_UID]
    world.clock.seconds += COLLECTED_SECONDS
    assert world.store.orphans(LLM) == ()


async def test_a_ledger_that_was_collected_while_its_group_was_broken_stays_one_too(world: World) -> None:
    hung = load("recoverygroup")
    hung["status"]["broken"] = {
        "since": "2026-11-02T08:00:00Z",
        "bookedFrom": "2026-11-02T08:00:12Z",
        "incident": "0d2f5c9e-3",
        "class": "PodDeleted",
    }
    await world.tell(RECOVERY_GROUPS, hung)
    await world.tell(RECOVERY_GROUPS, hung, type_="DELETED")
    await world.tell(TRAIN_JOBS, load("trainjob"), type_="DELETED")
    assert [orphan.workload_uid for orphan in world.store.orphans(LLM)] == [WORKLOAD_UID]


async def test_while_a_crd_is_gone_nothing_is_known_and_when_it_is_back_nothing_is_left(world: World) -> None:
    await world.tell(RECOVERY_GROUPS, load("recoverygroup"))
    feed = world.api.feeds[RECOVERY_GROUPS.plural]
    for _ in range(3):
        feed.put_nowait(NoSuchResourceError("the CRD is not installed"))
    await world.settle()
    assert not world.store.synced()
    assert world.observed.restarts == ["the CRD is not installed"]
    world.notified.clear()
    await world.end_lists(RECOVERY_GROUPS)
    assert world.store.synced()
    assert world.store.ledger_object(LLM, WORKLOAD_UID) is None
    assert world.notified == {"default/llm": 1}


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


async def test_a_copy_of_a_ledger_in_another_namespace_takes_nothing_away(world: World) -> None:
    copy = load("recoverygroup")
    copy["metadata"] |= {"namespace": "restored", "uid": "copy"}
    for type_ in ("ADDED", "DELETED"):
        await world.tell(RECOVERY_GROUPS, *([load("recoverygroup")] if type_ == "ADDED" else []), copy, type_=type_)
        assert world.store.ledger_object(LLM, WORKLOAD_UID) is not None


async def test_a_ledger_under_another_name_is_no_ones(world: World) -> None:
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


async def test_how_many_jobs_a_group_is_made_of(world: World) -> None:
    assert world.llm.expected_jobs == 1
    body = load("jobset")
    body["spec"]["replicatedJobs"] = replicated("dataset-initializer", "prepare", "launcher", "node", replicas=2)
    await world.tell(JOB_SETS, body)
    assert world.llm.expected_jobs == 6, "an initializer is not waited for"
    done = [job(name=f"llm-prepare-{each}", uid=f"prepare-{each}", replicated_job="prepare") for each in range(2)]
    for each in done:
        each["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    await world.tell(JOBS, *done)
    assert world.llm.expected_jobs == 4, "nor is what has done its part"
    await world.tell(JOB_SETS, body, type_="DELETED")
    assert world.llm.expected_jobs == 0


PROGRESS = {"progressPercentage": 40, "lastUpdatedTime": "2026-11-21T10:00:00Z"}


def reporting(seconds: int, **status: object) -> Body:
    trainjob = load("trainjob")
    told = PROGRESS | {"lastUpdatedTime": f"2026-11-21T10:00:{seconds:02}Z"}
    trainjob["status"] = {**trainjob.get("status", {}), "trainerStatus": told, **status}
    return trainjob


async def test_a_report_of_progress_reconciles_no_group_and_is_there_to_be_read(world: World) -> None:
    """Training processes report every few seconds. 200 of them would cause 40 reconciles a second."""
    await world.tell(TRAIN_JOBS, reporting(1))
    assert await world.tell(TRAIN_JOBS, reporting(6)) == {}
    assert world.llm.workload is not None
    assert world.llm.workload.progress is not None
    assert world.llm.workload.progress.updated_at.second == 6
    assert world.store.progress(LLM) == world.llm.workload.progress
    assert world.llm.workload.resource_version == str(world.version)


async def test_a_report_that_comes_with_anything_else_reconciles_the_group(world: World) -> None:
    await world.tell(TRAIN_JOBS, reporting(1))
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    assert await world.tell(TRAIN_JOBS, reporting(6, conditions=[complete])) == {"default/llm": 1}


async def test_a_report_that_a_recovery_waits_for_reconciles_the_group(world: World) -> None:
    await world.tell(TRAIN_JOBS, reporting(1))
    await world.tell(RECOVERY_GROUPS, load("recoverygroup-resuming"))
    assert await world.tell(TRAIN_JOBS, reporting(6)) == {"default/llm": 1}


@pytest.mark.parametrize(
    ("resource", "body"),
    [(PODS, pod(0)), (JOBS, job()), (JOB_SETS, load("jobset")), (TRAIN_JOBS, load("trainjob"))],
    ids=lambda each: each.plural if isinstance(each, Resource) else "",
)
async def test_a_change_of_nothing_that_a_decision_reads_reconciles_no_group(
    world: World, resource: Resource, body: Body
) -> None:
    """In a busy cluster most changes are such changes: a label, a managed field, a status that says the same again."""
    await world.tell(resource, body)
    body["metadata"].setdefault("labels", {})["example.com/seen"] = "yes"
    # A policy may select the workload by any label.
    assert await world.tell(resource, body) == ({"default/llm": 1} if resource == TRAIN_JOBS else {})
    assert await world.tell(resource, body, body) == {}
    assert _version(world, resource) == str(world.version)


async def test_a_pod_that_changes_its_group_notifies_both(world: World) -> None:
    await world.tell(PODS, pod(0))
    moved = await world.tell(PODS, pod(0, jobset_name="other"))
    assert moved == {"default/llm": 1, "default/other": 1}


def _version(world: World, resource: Resource) -> str:
    """The resourceVersion of the group's only object of that kind: a write names it."""
    snapshot = world.llm
    assert snapshot.workload is not None
    assert snapshot.jobset is not None
    versions = {
        TRAIN_JOBS: snapshot.workload.resource_version,
        JOB_SETS: snapshot.jobset.resource_version,
        JOBS: snapshot.jobs[0].resource_version,
        PODS: snapshot.pods[0].resource_version if snapshot.pods else "",
    }
    return versions[resource]


async def test_when_a_resource_becomes_stale_every_group_is_notified_and_its_facts_say_so(world: World) -> None:
    heard = world.clock.now()
    world.notified.clear()
    world.api.feeds["pods"].put_nowait(SilentWatchError("nothing comes"))
    await world.settle()
    world.clock.seconds += WATCH_IDLE_SECONDS_MAX
    world.api.feeds["pods"].put_nowait(TryLaterError("no answer in time"))
    await world.settle()
    assert world.store.stale().keys() == {"pods"}
    assert abs(world.store.stale()["pods"] - heard).total_seconds() < 1
    assert world.store.snapshot(LLM).stale == world.store.stale()
    assert world.notified[str(LLM)] == 1
    await world.end_lists(PODS)
    assert (world.store.stale(), world.store.snapshot(LLM).stale) == ({}, {})
    assert world.notified[str(LLM)] == 2
