"""Which containers train, from the API's objects to the snapshot."""

import json

from recovery.core.model.collective import Collective, LaunchFacts
from recovery.core.model.container_template import ContainerTemplate, RestartRule
from recovery.core.model.facts import ContainerFacts
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.workloads import decode_job
from recovery.ports import JOBS, PODS, TRAIN_JOBS
from tests.unit.kube.store_world import JOB_UID, Body, World, job, load, pod

RUNNING = {"running": {"startedAt": "2026-11-21T09:27:54Z"}}
BROKEN = {"name": "log-shipper", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}


def with_broken_helper(index: int) -> Body:
    """The trainer runs, but the image of its helper cannot be pulled, so the pod's phase stays Pending."""
    body = pod(index)
    body["status"]["phase"] = "Pending"
    body["status"]["containerStatuses"].append(BROKEN)
    for condition in body["status"]["conditions"]:
        if condition["type"] in {"Ready", "ContainersReady"}:
            condition["status"] = "False"
    return body


def template(*containers: Body, **annotations: str) -> Body:
    body = job()
    body["spec"]["template"]["spec"]["containers"] = list(containers)
    body["spec"]["template"].setdefault("metadata", {})["annotations"] = {
        f"recovery.trainjob.dev/{name}": value for name, value in annotations.items()
    }
    return body


# --- projections ---------------------------------------------------------------------------------------------------


def test_the_containers_of_a_pod_template() -> None:
    gpus = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}, "claims": [{"name": "nic"}]}}
    nic = {"name": "proxy", "resources": {"claims": [{"name": "nic"}]}}
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    ruled = {"name": "helper", "restartPolicy": "Never", "restartPolicyRules": rules}
    facts = decode_job(json.dumps(template(gpus, nic, ruled, container="main")).encode()).value.facts
    assert facts.training_container == "main"
    assert facts.containers == (
        ContainerTemplate("main", accelerators=8),
        ContainerTemplate("proxy"),
        ContainerTemplate("helper", restart_policy="Never", restart_rules=(RestartRule("In", (42,)),)),
    )


def test_claims_are_accelerators_where_no_container_asks_for_extended_resources() -> None:
    claimed = {"name": "main", "resources": {"claims": [{"name": "gpus"}]}}
    facts = decode_job(json.dumps(template(claimed, {"name": "helper"})).encode()).value.facts
    assert [each.accelerators for each in facts.containers] == [1, 0]


def launch_of(**container: object) -> LaunchFacts | None:
    (facts,) = decode_job(json.dumps(template({"name": "main", **container})).encode()).value.facts.containers
    return facts.launch


def test_what_a_launch_shows_about_the_program() -> None:
    assert launch_of(command=["torchrun"], args=["--max-restarts=3", "train.py"]) == LaunchFacts(
        Collective.SELF_HEALING, "torchrun --max-restarts=3"
    )
    assert launch_of(env=[{"name": "PET_MAX_RESTARTS", "value": "3"}]) == LaunchFacts(
        Collective.SELF_HEALING, "PET_MAX_RESTARTS=3"
    )
    assert launch_of(command=["mpirun", "train"]) == LaunchFacts(Collective.REQUIRED, "mpirun", starts_all=True)
    assert launch_of(command=["torchrun", "train.py"]) is None
    assert launch_of() is None
    from_elsewhere = {"name": "PET_MAX_RESTARTS", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    assert launch_of(env=[from_elsewhere]) is None


def test_a_launch_that_makes_no_sense_or_is_too_long_leaves_the_job_readable() -> None:
    assert launch_of(command="torchrun --max-restarts=3") is None
    assert launch_of(command=["torchrun", 3], env={"PET_MAX_RESTARTS": "3"}) is None
    assert launch_of(command=None, args=None, env=None) is None
    assert launch_of(command=["torchrun", "--max-restarts=3"], args=["x" * 40_000]) is None


def test_the_annotation_of_a_pod_template_about_the_program() -> None:
    facts = decode_job(json.dumps(template({"name": "main"}, collective="SelfHealing")).encode()).value.facts
    assert facts.collective == "SelfHealing"


def test_limits_by_index_of_a_job() -> None:
    body = job()
    body["spec"]["backoffLimitPerIndex"] = 2
    body["status"] = {"failedIndexes": "1,3-5"}
    facts = decode_job(json.dumps(body).encode()).value.facts
    assert (facts.backoff_limit_per_index, facts.failed_indexes) == (2, "1,3-5")


def test_a_native_sidecar_is_one_of_the_others() -> None:
    body = load("pod_running")
    body["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}]
    body["status"]["initContainerStatuses"] = [
        {"name": "proxy", "ready": True, "restartCount": 1, "state": RUNNING},
        {"name": "fetch", "ready": True, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
    ]
    body["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] = "2"
    facts = decode_pod(json.dumps(body).encode()).value.facts
    assert [each.name for each in facts.other_containers] == ["proxy"]
    assert [each.name for each in facts.init_containers] == ["fetch"]
    assert facts.index_failures == 2


def test_ready_that_was_taken_although_all_containers_are() -> None:
    body = load("pod_running")
    for condition in body["status"]["conditions"]:
        condition["status"] = "False" if condition["type"] == "Ready" else condition["status"]
    assert decode_pod(json.dumps(body).encode()).value.facts.ready_denied
    assert not decode_pod(json.dumps(load("pod_running")).encode()).value.facts.ready_denied


# --- the store -----------------------------------------------------------------------------------------------------


async def test_a_broken_helper_does_not_keep_a_group_from_having_trained(world: World) -> None:
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOBS, template({"name": "node"}, {"name": "log-shipper"}))
    await world.tell(PODS, with_broken_helper(0), with_broken_helper(1))
    assert list(world.llm.trained_at) == [JOB_UID]
    for each in world.llm.pods:
        assert (each.running, each.ready) == (True, True)
        assert each.other_containers == (ContainerFacts("log-shipper", waiting_reason="ImagePullBackOff"),)


async def test_nor_if_the_pods_were_seen_before_their_job(world: World) -> None:
    """This tests the store's memory: containers that it has seen run together are remembered when a member goes."""
    await world.tell(PODS, with_broken_helper(0), with_broken_helper(1))
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOBS, template({"name": "node"}, {"name": "log-shipper"}))
    await world.tell(PODS, with_broken_helper(1), type_="DELETED")
    assert list(world.llm.trained_at) == [JOB_UID]


async def test_an_annotation_on_the_workload_counts_from_when_it_is_there(world: World) -> None:
    workload = load("trainjob")
    await world.tell(TRAIN_JOBS, workload)
    await world.tell(JOBS, template({"name": "main"}, {"name": "log-shipper"}))
    bodies = [with_broken_helper(0), with_broken_helper(1)]
    for body in bodies:
        body["status"]["containerStatuses"][0]["name"] = "main"
    await world.tell(PODS, *bodies)
    assert not world.llm.trained_at
    assert not any(each.training_known for each in world.llm.pods)
    workload["metadata"].setdefault("annotations", {})["recovery.trainjob.dev/container"] = "main"
    await world.tell(TRAIN_JOBS, workload)
    assert list(world.llm.trained_at) == [JOB_UID]
    assert all(each.running and each.training_known for each in world.llm.pods)
