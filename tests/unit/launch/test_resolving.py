"""What Trainer 2.3 and JobSet 0.12 turn a TrainJob and its runtime into."""

from decimal import Decimal
from typing import Any

import pytest
import yaml

from recovery.launch.documents import document_of
from recovery.launch.launch import Launch, Member
from recovery.launch.places import written
from recovery.launch.reading import read
from recovery.launch.resolving import launch_of, launch_of_job_set, launch_of_runtime
from recovery.launch.views import JobSet, Runtime, TrainJob
from tests.unit.launch.pages import merged

TRAINER = "trainer.kubeflow.org/v1alpha1"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def train_job(**spec: Any) -> TrainJob:
    body = {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "llama"}, "spec": spec}
    view = read(document_of(body)).view
    assert isinstance(view, TrainJob)
    return view


def runtime(*jobs: dict[str, Any], **spec: Any) -> Runtime:
    """A runtime with these ReplicatedJobs. It is a torch runtime unless `mlPolicy` changes that."""
    template = {"spec": {"replicatedJobs": list(jobs)}}
    body = {
        "apiVersion": TRAINER,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch", "annotations": {"owner": "platform"}},
        "spec": {"mlPolicy": {"torch": {}}, "template": template} | spec,
    }
    view = read(document_of(body, number=1)).view
    assert isinstance(view, Runtime)
    return view


def job(name: str = "node", step: str = "trainer", container: str = "node", **changed: Any) -> dict[str, Any]:
    """A ReplicatedJob. `changed`: fragments of it as YAML in flow style, by field."""
    labels = {STEP: step} if step else {}
    pods = {"spec": {"containers": [{"name": container, "image": "torch:2", "command": ["sleep"]}]}}
    made = {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    return dict(merged(made, {field: yaml.safe_load(text) for field, text in changed.items()}))


def only(launch: Launch) -> Member:
    (member,) = launch.members
    return member


def pods_by_job(launch: Launch) -> dict[str, int]:
    return {member.job.name: member.pods for member in launch.members}


# numNodes of the TrainJob, numNodes of the runtime, parallelism of the template -> pods
@pytest.mark.parametrize(
    ("of_job", "of_runtime", "parallelism", "pods"),
    [
        (16, 2, 4, 16),
        (None, 2, 4, 2),
        (None, None, 4, 1),
        (16, None, None, 16),
        (None, None, None, 1),
    ],
)
def test_the_job_decides_how_many_nodes_and_else_the_runtime(
    of_job: int | None, of_runtime: int | None, parallelism: int | None, pods: int
) -> None:
    wanted = train_job(trainer={"numNodes": of_job} if of_job else {})
    policy: dict[str, Any] = {"torch": {}} | ({"numNodes": of_runtime} if of_runtime else {})
    template = runtime(job(template=f"spec: {{parallelism: {parallelism or 'null'}}}"), mlPolicy=policy)

    member = only(launch_of(wanted, template))

    assert (member.pods, member.job.parallelism, member.job.completions) == (pods, pods, pods)


def test_without_a_policy_numbers_come_from_the_template() -> None:
    template = runtime(job(template="spec: {parallelism: 4}"), mlPolicy=None)

    assert only(launch_of(train_job(), template)).pods == 4
    assert only(launch_of(train_job(trainer={"numNodes": 16}), template)).pods == 16


def test_only_the_first_that_is_marked_as_trainer_gets_the_nodes() -> None:
    template = runtime(job("ps", step=""), job("node"), job("more"), mlPolicy={"numNodes": 2, "torch": {}})

    assert pods_by_job(launch_of(train_job(trainer={"numNodes": 16}), template)) == {"ps": 1, "node": 16, "more": 2}


# runLauncherAsNode, numNodes of the TrainJob -> pods of launcher and node
@pytest.mark.parametrize(
    ("launcher_trains", "num_nodes", "launcher", "node"),
    [(True, 4, 1, 3), (True, 2, 1, 1), (True, 1, 1, 1), (False, 4, 1, 4), (True, None, 1, 1), (False, None, 1, 1)],
)
def test_an_mpi_launcher_that_trains_is_one_of_the_nodes(
    launcher_trains: bool, num_nodes: int | None, launcher: int, node: int
) -> None:
    policy = {"mpi": {"runLauncherAsNode": launcher_trains}}
    template = runtime(job("node", step=""), job("launcher"), mlPolicy=policy)
    wanted = train_job(trainer={"numNodes": num_nodes} if num_nodes else {})

    assert pods_by_job(launch_of(wanted, template)) == {"node": node, "launcher": launcher}


def test_an_mpi_runtime_without_nodes_keeps_its_launcher_alone() -> None:
    template = runtime(job("launcher"), mlPolicy={"mpi": {}})

    assert pods_by_job(launch_of(train_job(trainer={"numNodes": 4}), template)) == {"launcher": 1}


def test_the_trainer_decides_image_command_and_args_of_the_container_node() -> None:
    template = runtime(job(template="spec: {template: {spec: {containers: [{name: log, image: log:1}]}}}"))
    wanted = train_job(trainer={"image": "llama:1", "command": ["torchrun"], "args": ["train.py"]})

    node, log = only(launch_of(wanted, template)).template.containers

    assert (node.image, node.command, node.args) == ("llama:1", ("torchrun",), ("train.py",))
    assert (log.image, log.command) == ("log:1", ())


def test_what_the_trainer_leaves_out_stays_as_the_runtime_has_it() -> None:
    main = only(launch_of(train_job(trainer={}), runtime(job()))).main

    assert main is not None
    assert (main.image, main.command) == ("torch:2", ("sleep",))


def test_a_container_of_another_name_is_left_alone() -> None:
    wanted = train_job(trainer={"image": "llama:1", "env": [{"name": "A", "value": "b"}]})

    main = only(launch_of(wanted, runtime(job(container="trainer")))).main

    assert main is not None
    assert (main.name, main.image, main.env) == ("trainer", "torch:2", ())


def test_variables_are_merged_by_name_and_each_knows_where_it_comes_from() -> None:
    variables = "[{name: A, value: a}, {name: B, value: b}]"
    template = runtime(
        job(template=f"spec: {{template: {{spec: {{containers: [{{name: node, env: {variables}}}]}}}}}}")
    )
    wanted = train_job(trainer={"env": [{"name": "B", "value": "mine"}, {"name": "C", "value": "c"}]})

    main = only(launch_of(wanted, template)).main

    assert main is not None
    assert [(each.name, each.value, each.place.document, written(each.place.path)[-6:]) for each in main.env] == [
        ("A", "a", 1, "env[0]"),
        ("B", "mine", 0, "env[0]"),
        ("C", "c", 0, "env[1]"),
    ]


def with_resources(name: str, step: str = "trainer", container: str = "node") -> dict[str, Any]:
    """A ReplicatedJob that requests 8 GPUs and 4 CPUs and has a device claim."""
    resources = "{requests: {cpu: 4}, limits: {nvidia.com/gpu: 8}, claims: [{name: gpus}]}"
    containers = f"[{{name: {container}, resources: {resources}}}]"
    return job(name, step, container, template=f"spec: {{template: {{spec: {{containers: {containers}}}}}}}")


def test_resources_per_node_are_merged_name_by_name_and_claims_are_lost() -> None:
    wanted = train_job(trainer={"resourcesPerNode": {"requests": {"cpu": 8, "memory": "1Gi"}, "limits": {"cpu": 16}}})

    member = only(launch_of(wanted, runtime(with_resources("node"))))

    assert member.main is not None
    assert member.main.resources is not None
    assert member.main.resources.requests == {"cpu": 8, "memory": 2**30}
    assert member.main.resources.limits == {"nvidia.com/gpu": 8, "cpu": 16}
    assert member.main.resources.claims == ()
    assert written(member.main.resources.place.path) == "spec.trainer.resourcesPerNode"
    assert member.gpus_per_pod == 8


def limits_by_job(launch: Launch) -> dict[str, Decimal | None]:
    """The CPU limits of the training containers."""
    found = {member.job.name: member.main.resources for member in launch.members if member.main is not None}
    return {name: resources.limits.get("cpu") if resources else None for name, resources in found.items()}


# mlPolicy -> which ReplicatedJobs get resourcesPerNode: node (no step) and launcher (the trainer)
@pytest.mark.parametrize(
    ("policy", "node", "launcher"),
    [
        ({"mpi": {"runLauncherAsNode": True}}, 16, 16),
        ({"mpi": {"runLauncherAsNode": False}}, None, 16),
        ({"mpi": {}}, None, 16),
        (None, None, None),
    ],
)
def test_who_gets_the_resources_of_the_trainer(
    policy: dict[str, Any] | None, node: int | None, launcher: int | None
) -> None:
    template = runtime(job("node", step=""), job("launcher"), mlPolicy=policy)
    wanted = train_job(trainer={"resourcesPerNode": {"limits": {"cpu": 16}}})

    assert limits_by_job(launch_of(wanted, template)) == {"node": node, "launcher": launcher}


def test_initializers_are_no_members_by_step_or_by_name() -> None:
    template = runtime(
        job("data", step="dataset-initializer"), job("model-initializer", step=""), job("node"), job("log", step="")
    )

    launch = launch_of(train_job(trainer={"numNodes": 4}), template)

    assert pods_by_job(launch) == {"node": 4, "log": 1}
    assert [each.name for each in launch.job_set.jobs] == ["data", "model-initializer", "node", "log"]


def test_what_is_over_before_another_begins_is_no_member_unless_it_trains() -> None:
    template = runtime(
        job("fetch", step=""),
        job("node", dependsOn="[{name: fetch, status: Complete}]"),
        job("export", step="", dependsOn="[{name: node, status: Complete}]"),
    )

    assert set(pods_by_job(launch_of(train_job(), template))) == {"node", "export"}


def test_trainer_makes_one_replica_of_what_it_marks() -> None:
    template = runtime(job("node", replicas="3"), job("log", step="", replicas="3"))

    assert pods_by_job(launch_of(train_job(trainer={"numNodes": 4}), template)) == {"node": 4, "log": 3}


def patch(pods: dict[str, Any], **job: Any) -> dict[str, Any]:
    one = {"name": "node", "template": {"spec": {"template": pods}}} | job
    return {"manager": "me.example/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [one]}}}}


def test_patches_are_laid_over_the_runtime_in_their_order() -> None:
    pods = (
        "{metadata: {labels: {a: '1'}}, spec: {nodeSelector: {pool: a}, terminationGracePeriodSeconds: 5, "
        "tolerations: [{key: old}], volumes: [{name: data, emptyDir: {}}], "
        "containers: [{name: node, volumeMounts: [{name: data, mountPath: /data}]}]}}"
    )
    template = runtime(job(template=f"spec: {{template: {pods}}}"), job("log", step=""))
    spec = {
        "nodeSelector": {"zone": "b"},
        "tolerations": [{"key": "new", "tolerationSeconds": 30}],
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "data", "nfs": {"server": "s"}}, {"name": "more", "emptyDir": {}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "more", "mountPath": "/data"}]}],
    }
    wanted = train_job(
        runtimePatches=[
            patch({"metadata": {"labels": {"b": "2"}}, "spec": spec}),
            patch({"spec": {"nodeSelector": {"pool": "c"}}}),
        ]
    )

    node, log = launch_of(wanted, template).members

    assert node.template.node_selector == {"pool": "c", "zone": "b"}
    assert node.template.labels == {"a": "1", "b": "2"}
    assert [(each.key, each.seconds, each.place.document) for each in node.template.tolerations] == [("new", 30, 0)]
    assert node.template.grace_seconds == 0
    assert [(each.name, each.source) for each in node.template.volumes] == [("data", "nfs"), ("more", "emptyDir")]
    assert node.main is not None
    assert [(each.volume, each.path) for each in node.main.mounts] == [("more", "/data")]
    assert (node.main.image, log.template.node_selector) == ("torch:2", {})


def test_a_job_whose_runtime_is_not_known_has_no_members() -> None:
    launch = launch_of(train_job(trainer={"numNodes": 4}), None)

    assert (launch.name, launch.members, launch.runtime, launch.nodes, launch.job_set.jobs) == (
        "llama",
        (),
        None,
        0,
        (),
    )


def test_a_runtime_by_itself_is_judged_as_a_job_that_sets_nothing() -> None:
    launch = launch_of_runtime(runtime(with_resources("node"), mlPolicy={"numNodes": 2, "torch": {}}))

    assert (launch.name, launch.train_job, launch.nodes, launch.gpus) == ("torch", None, 2, 16)
    assert (launch.place.document, launch.annotations) == (1, {"owner": "platform"})


def job_set(*jobs: dict[str, Any]) -> Launch:
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "vision"}}
    view = read(document_of(body | {"spec": {"replicatedJobs": list(jobs)}})).view
    assert isinstance(view, JobSet)
    return launch_of_job_set(view)


# replicas, parallelism, completions -> pods
@pytest.mark.parametrize(
    ("replicas", "parallelism", "completions", "pods"),
    [
        ("null", "null", "null", 1),
        ("2", "8", "8", 16),
        ("2", "null", "8", 2),
        ("1", "8", "4", 4),
        ("1", "8", "null", 8),
        ("0", "8", "8", 0),
    ],
)
def test_a_job_set_has_as_many_pods_as_its_jobs_run_at_once(
    replicas: str, parallelism: str, completions: str, pods: int
) -> None:
    spec = f"spec: {{parallelism: {parallelism}, completions: {completions}}}"
    launch = job_set(job("worker", step="", container="torch", replicas=replicas, template=spec))

    assert (launch.nodes, launch.name) == (pods, "vision")


def test_members_of_a_job_set_are_all_but_those_that_prepare() -> None:
    launch = job_set(
        with_resources("fetch", step="", container="curl"),
        job("worker", step="", container="torch", dependsOn="[{name: fetch, status: Complete}]"),
        job("dataset-initializer", step="", dependsOn="[{name: worker, status: Ready}]"),
    )

    assert [(member.job.name, member.main and member.main.name) for member in launch.members] == [
        ("worker", "torch"),
        ("dataset-initializer", "node"),
    ]
