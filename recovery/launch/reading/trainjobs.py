"""TrainJobs and their runtimes."""

from collections.abc import Iterator

from recovery.launch import removed
from recovery.launch.fields import Field
from recovery.launch.findings import Code, Severity
from recovery.launch.kinds import CLUSTER_TRAINING_RUNTIME, RUNTIMES, TRAIN_JOB
from recovery.launch.reading.jobsets import job_set_spec
from recovery.launch.reading.numbers import number, pods
from recovery.launch.reading.objects import annotations_of, labels_of, name_of, namespace_of, required
from recovery.launch.reading.pods import env, pod_template, resources
from recovery.launch.views import (
    MlPolicy,
    MpiPolicy,
    PodGroupPolicy,
    PodPatch,
    Runtime,
    RuntimeRef,
    TorchPolicy,
    Trainer,
    TrainJob,
)

RUNTIME_KIND = Code("runtime-kind", Severity.ERROR, "runtimeRef names something that is no runtime of Trainer")
DRAFT_FAILURE_POLICY = Code(
    "draft-failure-policy", Severity.WARNING, "a failurePolicy of the TrainJob, which is a draft of Trainer"
)
CODES = (RUNTIME_KIND, DRAFT_FAILURE_POLICY)

_NAME_A_RUNTIME = "write spec.runtimeRef.name: the runtime to train with, such as torch-distributed"

# The fields of Trainer 2.3 (pkg/apis/trainer/v1alpha1/{trainjob,trainingruntime}_types.go).
_TRAIN_JOB = ("runtimeRef", "initializer", "trainer", "runtimePatches", "suspend", "activeDeadlineSeconds", "managedBy")
_RUNTIME_REF = ("name", "apiGroup", "kind")
_TRAINER = ("image", "command", "args", "env", "numNodes", "resourcesPerNode", "numProcPerNode")
_RUNTIME = ("mlPolicy", "podGroupPolicy", "template")
_OTHER_FRAMEWORKS = ("flux", "jax", "xgboost")
_ML_POLICY = ("numNodes", "torch", "mpi", *_OTHER_FRAMEWORKS)
_TORCH = ("envInjection",)
_MPI = ("numProcPerNode", "mpiImplementation", "sshAuthMountPath", "runLauncherAsNode")
_POD_GROUP_PLUGINS = ("coscheduling", "volcano")


def train_job(body: Field) -> TrainJob:
    """A document of kind TrainJob."""
    spec, kind = body["spec"], body["kind"].text()
    drafted = _draft_failure_policy(spec["runPolicy"])
    removed_or_unknown(spec, kind, (*_TRAIN_JOB, "runPolicy") if drafted else _TRAIN_JOB)
    required(spec, "runtimeRef", "spec.runtimeRef", _NAME_A_RUNTIME)
    return TrainJob(
        name=name_of(body),
        place=body.place,
        runtime=_runtime_ref(spec["runtimeRef"], kind),
        namespace=namespace_of(body),
        trainer=_trainer(spec["trainer"], kind) if spec["trainer"].there else None,
        initializers={
            f"{what}-initializer": spec["initializer"][what].place
            for what in ("dataset", "model")
            if spec["initializer"][what].there
        },
        patches=tuple(patch for each in spec["runtimePatches"].items() for patch in _patches(each)),
        suspended=bool(spec["suspend"].flag()),
        active_deadline_seconds=number(spec["activeDeadlineSeconds"], least=1, most=2**63 - 1),
        managed_by=spec["managedBy"].text(),
        labels=labels_of(body["metadata"]),
        annotations=annotations_of(body["metadata"]),
    )


def _draft_failure_policy(run_policy: Field) -> bool:
    """Whether this is the runPolicy of the draft KEP-4162, not the one of training-operator v1. The finding says so.

    `failurePolicy` is its only field, and v1 had none of that name. At runtime there is nothing to recognise: a Trainer
    that knows the field translates it into the policies of the JobSet and its Jobs, and these go first.
    """
    policy = run_policy["failurePolicy"]
    if not policy.there or len(run_policy.mapping()) > 1:
        return False
    policy.finding(
        DRAFT_FAILURE_POLICY,
        "runPolicy.failurePolicy is of the draft KEP-4162: Trainer 2.3 has no such field. A Trainer that has it makes "
        "of it the failurePolicy of the JobSet, and podFailurePolicy and backoffLimit 0 of its Jobs; these decide "
        "before the controller, which then stands aside",
        "write rules into a RecoveryPolicy, or failurePolicy and podFailurePolicy into the template of the runtime",
    )
    return True


def runtime(body: Field) -> Runtime:
    """A document of kind TrainingRuntime or ClusterTrainingRuntime."""
    spec, kind = body["spec"], body["kind"].text()
    removed_or_unknown(spec, kind, _RUNTIME)
    policy, groups = spec["mlPolicy"], spec["podGroupPolicy"]
    return Runtime(
        kind=kind,
        name=name_of(body),
        place=body.place,
        job_set=job_set_spec(spec["template"]["spec"]),
        namespace=namespace_of(body),
        labels=labels_of(body["metadata"]),
        ml_policy=_ml_policy(policy, kind) if policy.there else None,
        pod_groups=_pod_groups(groups) if groups.there else None,
        annotations=annotations_of(body["metadata"]),
    )


def removed_or_unknown(field: Field, kind: str, names: tuple[str, ...]) -> None:
    """Reports every field that the API does not have, with what became of it, or what was meant."""
    for name, below in field.fields():
        if name in names:
            continue
        gone = removed.fix_of(kind, below.place)
        if gone is None:
            below.unknown(names)
        else:
            below.finding(gone.code, gone.message, gone.fix)


def _runtime_ref(field: Field, kind: str) -> RuntimeRef:
    removed_or_unknown(field, kind, _RUNTIME_REF)
    if field.there:
        required(field, "name", "spec.runtimeRef.name", _NAME_A_RUNTIME)
    reference = RuntimeRef(field.place, field["name"].text(), field["kind"].text(), field["apiGroup"].text())
    if not is_runtime(reference):
        meant = f"{reference.kind or CLUSTER_TRAINING_RUNTIME.name} of {reference.api_group or TRAIN_JOB.group}"
        field.finding(
            RUNTIME_KIND,
            f"runtimeRef names a {meant}, which is no kind of runtime: Trainer's webhook refuses the job",
            f"write kind: {' or kind: '.join(each.name for each in RUNTIMES)}, and apiGroup: {TRAIN_JOB.group}",
        )
    return reference


def is_runtime(reference: RuntimeRef) -> bool:
    """Whether Trainer knows that kind and group (pkg/webhooks/trainjob_webhook.go: "unsupported runtime")."""
    kinds = ("", *(each.name for each in RUNTIMES))
    return reference.kind in kinds and reference.api_group in ("", TRAIN_JOB.group)


def _trainer(field: Field, kind: str) -> Trainer:
    removed_or_unknown(field, kind, _TRAINER)
    return Trainer(
        place=field.place,
        image=field["image"].text(),
        command=field["command"].texts(),
        args=field["args"].texts(),
        env=env(field["env"]),
        num_nodes=pods(field["numNodes"], least=1),
        num_proc_per_node=_processes(field["numProcPerNode"]),
        resources=resources(field["resourcesPerNode"]),
    )


def _processes(field: Field) -> int | str | None:
    """A word stays a word, and `processes` reports it: how to fix it depends on the runtime."""
    return field.value if isinstance(field.value, str) else number(field, least=1)


def _patches(field: Field) -> Iterator[PodPatch]:
    """One of `runtimePatches`, which may patch several ReplicatedJobs."""
    for each in field["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].items():
        pods_of_it = pod_template(each["template"]["spec"]["template"])
        yield PodPatch(each["name"].text(), pods_of_it, field["manager"].text())


def _ml_policy(field: Field, kind: str) -> MlPolicy:
    removed_or_unknown(field, kind, _ML_POLICY)
    return MlPolicy(
        place=field.place,
        num_nodes=pods(field["numNodes"], least=1),
        torch=_torch(field["torch"], kind) if field["torch"].there else None,
        mpi=_mpi(field["mpi"], kind) if field["mpi"].there else None,
        others=tuple(name for name in _OTHER_FRAMEWORKS if field[name].there),
    )


def _torch(field: Field, kind: str) -> TorchPolicy:
    removed_or_unknown(field, kind, _TORCH)
    targets = field["envInjection"]["targets"].items()
    pairs = ((each["jobName"].text(), name) for each in targets for name in each["containerNames"].texts())
    return TorchPolicy(field.place, tuple(pairs))


def _mpi(field: Field, kind: str) -> MpiPolicy:
    removed_or_unknown(field, kind, _MPI)
    return MpiPolicy(
        place=field.place,
        num_proc_per_node=number(field["numProcPerNode"], least=1),
        implementation=field["mpiImplementation"].text(),
        run_launcher_as_node=field["runLauncherAsNode"].flag(),
    )


def _pod_groups(field: Field) -> PodGroupPolicy:
    plugin = next((name for name in _POD_GROUP_PLUGINS if field[name].there), "")
    return PodGroupPolicy(field.place, plugin)
