"""Which containers train, by the manifest: the controller's own answer, and how lint and explain-launch show it."""

import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.diagnosis.training_container import select as selected_by_controller
from recovery.core.model.facts import WorkloadFacts
from recovery.kube.projections.workloads import decode_job
from recovery.launch.documents import documents
from recovery.launch.launch import Launch, Member
from recovery.launch.lint import lint, subjects
from recovery.launch.places import written
from recovery.launch.recoverability import training_container
from tests.unit.core.groups import group as modelled_group
from tests.unit.kube.store_world import job as job_object
from tests.unit.launch.manifests import told

ANNOTATION = "recovery.trainjob.dev/container"
GPUS: dict[str, Any] = {"limits": {"nvidia.com/gpu": 8}}

Manifest = dict[str, Any]


def container(name: str, resources: Manifest | None = None) -> Manifest:
    return {"name": name, "image": "registry.example/it:1.0", "resources": resources or {}}


def annotated(value: str | None) -> Manifest:
    return {} if value is None else {"annotations": {ANNOTATION: value}}


def pod_template(*containers: Manifest, annotation: str | None = None) -> Manifest:
    return {"metadata": annotated(annotation), "spec": {"restartPolicy": "Never", "containers": list(containers)}}


def job_set(template: Manifest, annotation: str | None = None) -> list[Manifest]:
    worker = {"name": "worker", "template": {"spec": {"parallelism": 4, "completions": 4, "template": template}}}
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "vision", **annotated(annotation)},
            "spec": {"replicatedJobs": [worker]},
        }
    ]


def runtime(template: Manifest, annotation: str | None = None) -> Manifest:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": template}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain", **annotated(annotation)},
        "spec": {"mlPolicy": {"numNodes": 4}, "template": {"spec": {"replicatedJobs": [node]}}},
    }


def train_job(template: Manifest, annotation: str | None = None, **spec: Any) -> list[Manifest]:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "llama", **annotated(annotation)},
        "spec": {"runtimeRef": {"name": "plain"}, **spec},
    }
    return [job, runtime(template)]


def launch(objects: list[Manifest]) -> Launch:
    found, *_ = (each.group for each in subjects(documents(yaml.safe_dump_all(objects))) if each.group is not None)
    assert isinstance(found, Launch)
    return found


def only_member(objects: list[Manifest]) -> Member:
    (member,) = launch(objects).members
    return member


def by_lint(objects: list[Manifest]) -> tuple[str, ...]:
    group = launch(objects)
    return tuple(each.name for each in training_container.selection(group, group.members[0]).containers)


def findings(objects: list[Manifest]) -> list[str]:
    return told(training_container.check, launch(objects))


# --- the controller's answer ---------------------------------------------------------------------------------------


def as_the_server_has_it(resources: Manifest) -> Manifest:
    """The API server writes quantities as strings."""
    return {
        kind: asked if kind == "claims" else {k: str(v) for k, v in asked.items()} for kind, asked in resources.items()
    }


def by_controller(template: Manifest, kind: str, annotation: str | None) -> tuple[str, ...]:
    body = job_object()
    containers = [
        {**each, "resources": as_the_server_has_it(each["resources"])} for each in template["spec"]["containers"]
    ]
    body["spec"]["template"] = {**template, "spec": {**template["spec"], "containers": containers}}
    modelled = modelled_group().workload
    assert modelled is not None
    workload: WorkloadFacts = msgspec.structs.replace(
        modelled, kind=kind, annotations={} if annotation is None else {ANNOTATION: annotation}
    )
    return selected_by_controller(decode_job(json.dumps(body).encode()).value.facts, workload).names


NAMES = ("node", "launcher", "main", "log-shipper")
RESOURCES: tuple[Manifest, ...] = (
    {},
    {"limits": {"cpu": 4}},
    GPUS,
    {"requests": {"amd.com/gpu": 1}},
    {"limits": {"nvidia.com/gpu": 0}},
    {"limits": {"nvidia.com/mig-1g.5gb": 2}},
    {"limits": {"nvidia.com/gpu.shared": 1}},
    {"limits": {"nvidia.com/gpumem": 3000}},
    {"limits": {"habana.ai/gaudi": 8}},
    {"limits": {"google.com/tpu": 4}},
    {"limits": {"gpu.intel.com/i915": 1}},
    {"limits": {"gpu.intel.com/xe": 1}},
    {"claims": [{"name": "gpus"}]},
    {"limits": {"nvidia.com/gpu": 8}, "claims": [{"name": "nic"}]},
)
named = st.none() | st.sampled_from((*NAMES, "mian", ""))


@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    asked=st.lists(st.sampled_from(RESOURCES), min_size=3, max_size=3),
    on_template=named,
    on_workload=named,
    kind=st.sampled_from(("TrainJob", "JobSet")),
)
@settings(max_examples=500)
def test_lint_and_the_controller_select_the_same_containers(
    names: list[str], asked: list[Manifest], on_template: str | None, on_workload: str | None, kind: str
) -> None:
    containers = (container(name, resources) for name, resources in zip(names, asked, strict=False))
    template = pod_template(*containers, annotation=on_template)
    objects = (train_job if kind == "TrainJob" else job_set)(template, on_workload)

    assert by_lint(objects) == by_controller(template, kind, on_workload)


def test_an_annotation_on_the_runtime_itself_reaches_no_job() -> None:
    """Trainer copies neither labels nor annotations of the runtime's own metadata."""
    template = pod_template(container("main"), container("log-shipper"))

    assert by_lint([runtime(template, "main")]) == ()


def test_a_patch_of_the_job_may_name_it() -> None:
    patched = {"name": "node", "template": {"spec": {"template": {"metadata": annotated("main")}}}}
    spec = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patched]}}}}
    template = pod_template(container("main"), container("log-shipper"))

    assert by_lint(train_job(template, runtimePatches=[{"manager": "team", **spec}])) == ("main",)


# --- what lint says ------------------------------------------------------------------------------------------------


def test_where_no_rule_selects_one_the_consequence_is_told() -> None:
    objects = job_set(pod_template(container("log-shipper"), container("main")))

    assert findings(objects) == [
        "training-container-unknown: no rule selects a training container of ReplicatedJob worker: it has log-shipper "
        "and main, none of them asks for accelerators, and no annotation names one of them, so the controller counts "
        "lost pods only, and a rank that exits or restarts inside its pod opens no incident (add the annotation "
        "recovery.trainjob.dev/container with the name of the one that trains to its pod template)"
    ]
    (finding,) = (each for each in lint(documents(yaml.safe_dump_all(objects))) if "training" in each.code.name)
    assert written(finding.place.path) == "spec.replicatedJobs[0].template.spec.template.spec.containers"


@pytest.mark.parametrize("value", ["mian", "main"])
def test_an_annotation_that_names_none_of_the_pod_template(value: str) -> None:
    objects = job_set(pod_template(container("trainer", GPUS), container("log-shipper"), annotation=value))

    assert findings(objects) == [
        f"training-container-unknown: the annotation {ANNOTATION} names {value}, and the pod template of ReplicatedJob "
        "worker has no such container, so none of them counts as the one that trains: the controller counts lost pods "
        "only, and a rank that exits or restarts inside its pod opens no incident (write one that it has: trainer or "
        "log-shipper)"
    ]
    (finding,) = training_container.check(launch(objects))
    assert finding.place.path[-3:] == ("metadata", "annotations", ANNOTATION)
    assert finding.place.path[-4] == "template"


def test_one_that_a_patch_sets_is_found_in_the_train_job() -> None:
    patched = {"name": "node", "template": {"spec": {"template": {"metadata": annotated("mian")}}}}
    spec = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patched]}}}}
    template = pod_template(container("main"), container("log-shipper"))

    (finding,) = training_container.check(launch(train_job(template, runtimePatches=[{"manager": "team", **spec}])))
    assert finding.place.document == 0
    assert written(finding.place.path).startswith("spec.runtimePatches[0].trainingRuntimeSpec")


@pytest.mark.parametrize(
    "objects",
    [
        job_set(pod_template(container("main"))),
        job_set(pod_template(container("log-shipper"), container("main", GPUS))),
        job_set(pod_template(container("log-shipper"), container("main")), "main"),
        job_set(pod_template(container("log-shipper"), container("main"), annotation="main")),
        train_job(pod_template(container("node"), container("log-shipper"))),
        train_job(pod_template(container("node"), container("log-shipper"), annotation="mian")),
        job_set(pod_template()),
    ],
    ids=["the only one", "accelerators", "workload", "template", "Trainer", "Trainer's name wins", "none at all"],
)
def test_a_job_of_which_it_is_known_is_told_nothing(objects: list[Manifest]) -> None:
    assert findings(objects) == []


# --- what explain-launch says --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "value", "rule", "at"),
    [
        (
            train_job(pod_template(container("log-shipper"), container("node"))),
            "node",
            "Trainer's name for it",
            "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[1]",
        ),
        (
            job_set(pod_template(container("main"), container("log-shipper"), annotation="main")),
            "main",
            f"the annotation {ANNOTATION} of the pod template",
            f"spec.replicatedJobs[0].template.spec.template.metadata.annotations.{ANNOTATION}",
        ),
        (
            job_set(pod_template(container("main"), container("log-shipper")), "main"),
            "main",
            f"the annotation {ANNOTATION} of the JobSet",
            f"metadata.annotations.{ANNOTATION}",
        ),
        (
            job_set(pod_template(container("actor", GPUS), container("log-shipper"), container("critic", GPUS))),
            "actor and critic",
            "they ask for accelerators",
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0]",
        ),
        (
            job_set(pod_template(container("main"))),
            "main",
            "the only container",
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0]",
        ),
        (
            job_set(pod_template(container("main"), container("log-shipper"))),
            "unknown",
            "no rule selects one: the controller counts lost pods only",
            "spec.replicatedJobs[0].template.spec.template.spec.containers",
        ),
    ],
    ids=["Trainer", "template", "workload", "accelerators", "the only one", "unknown"],
)
def test_explain_launch_names_the_training_container(objects: list[Manifest], value: str, rule: str, at: str) -> None:
    (setting,) = training_container.settings(launch(objects))

    assert setting.name == "training container"
    assert (setting.value, setting.rule) == (value, rule)
    assert setting.place is not None
    assert written(setting.place.path) == at


# --- other checks of the container -----------------------------------------------------------------------------------


def test_the_other_checks_judge_the_container_that_trains_not_the_first() -> None:
    member = only_member(job_set(pod_template(container("log-shipper"), container("main", GPUS))))

    assert member.main is not None
    assert (member.main.name, member.gpus_per_pod) == ("main", 8)


def test_all_training_containers_of_a_pod_count_for_its_gpus() -> None:
    objects = job_set(pod_template(container("actor", GPUS), container("log-shipper"), container("critic", GPUS)))

    assert only_member(objects).gpus_per_pod == 16


def test_where_none_is_known_the_first_is_judged() -> None:
    member = only_member(job_set(pod_template(container("main"), container("log-shipper"))))

    assert member.main is not None
    assert member.main.name == "main"
