"""The objects of a plan's jobs as users write them: runtime, workload and policy."""

from typing import Any

from recovery.core.model.config import CONFIG_NAME
from recovery.ports import JOB_SETS, PODS, RECOVERY_CONFIGS, RECOVERY_POLICIES, TRAIN_JOBS, Resource
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES
from recovery.sim.api.server import ApiServer
from recovery.sim.kubelets.processes import SIGTERM_CODE
from recovery.sim.training.training import EXITS_AFTER_VARIABLE
from recovery.sim.trials.plan import JobPlan, TrialPlan

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
INITIALIZER = "dataset-initializer"
TRAINER = "node"
"""The name of the ReplicatedJob that trains, and of its container. Trainer finds both by this name."""
WORKERS = "workers"
"""The ReplicatedJob of a bare JobSet."""
NATIVE_CODE = 42
"""The exit code that the Job's own podFailurePolicy decides about."""
_AGAIN = {
    "name": "again",
    "action": "RestartJobSetAndIgnoreMaxRestarts",
    "onJobFailureReasons": ["PodFailurePolicy"],
}
"""The rule of a failurePolicy that restarts without a limit what a podFailurePolicy has failed."""
_POD_FAILURES: dict[PodFailures, Body] = {
    PodFailures.NONE: {},
    PodFailures.IGNORE: {
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [143]}},
            ]
        }
    },
    PodFailures.FAIL_INDEX: {
        "backoffLimitPerIndex": 2,
        "podFailurePolicy": {
            "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [NATIVE_CODE]}}]
        },
    },
}
SELECTED_BY = "recovery-trial/job"
CONTAINER_ANNOTATION = "recovery.trainjob.dev/container"
"""On a pod template: the name of the container that trains."""
COLLECTIVE_ANNOTATION = "recovery.trainjob.dev/collective"
"""On a TrainJob or JobSet: what the loss of a rank means to the others."""
_COLLECTIVES = {TrainingKind.SELF_HEALING: "SelfHealing", TrainingKind.INDEPENDENT: "Independent"}
LAUNCHER = "launcher"
"""The ReplicatedJob of the launcher of MPI, which is one pod."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NO_IMAGE = "example.com/never-pushed"
"""The image of a broken sidecar. The trial's kubelets cannot pull it."""
HELPER_SECONDS = 5
"""How long a helper runs before it exits with 0."""
_NAMES = {
    Sidecar.HELPER: "helper",
    Sidecar.BROKEN: "broken-sidecar",
    Sidecar.SHIPPER: "log-shipper",
    Sidecar.NATIVE: "native-sidecar",
}
KILLABLE = tuple(_NAMES[sidecar] for sidecar in (Sidecar.SHIPPER, Sidecar.NATIVE))
"""Containers that run beside the one that trains until something ends them."""


def resized_job(job: JobPlan) -> str:
    """Name of the Job whose size a user would change: the one that trains."""
    return f"{job.name}-{WORKERS if job.runtime is PlannedRuntime.BARE_JOBSET else TRAINER}-0"


def runtime_name(job: JobPlan) -> str:
    return f"{job.namespace}-{job.name}"


def objects_of(job: JobPlan) -> list[tuple[Resource, Body]]:
    """All objects of the job, in the order in which they are created."""
    made: list[tuple[Resource, Body]] = []
    if job.runtime is not PlannedRuntime.BARE_JOBSET:
        made.append((CLUSTER_TRAINING_RUNTIMES, runtime_of(job)))
    if job.policy is not None:
        made.append((RECOVERY_POLICIES, policy_of(job)))
    made.append(workload_of(job))
    return made


def config_of(plan: TrialPlan) -> Body:
    """The RecoveryConfig."""
    return {
        "apiVersion": RECOVERY_CONFIGS.api_version,
        "kind": RECOVERY_CONFIGS.kind,
        "metadata": {"name": CONFIG_NAME},
        "spec": dict(plan.config),
    }


def policy_of(job: JobPlan) -> Body:
    """The job's RecoveryPolicy, which selects only this job."""
    spec = {"selector": {"matchLabels": {SELECTED_BY: job.name}}, **(job.policy or {})}
    return {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryPolicy",
        "metadata": {"name": job.name, "namespace": job.namespace},
        "spec": spec,
    }


def workload_of(job: JobPlan) -> tuple[Resource, Body]:
    """The job's TrainJob or, for a bare JobSet, its JobSet."""
    labels = {SELECTED_BY: job.name}
    if job.admission is JobAdmission.BY_KUEUE:
        labels[QUEUE_LABEL] = "training"
    metadata: Body = {"name": job.name, "namespace": job.namespace, "labels": labels}
    if job.training in _COLLECTIVES:
        metadata["annotations"] = {COLLECTIVE_ANNOTATION: _COLLECTIVES[job.training]}
    suspend: Body = {} if job.admission is JobAdmission.AT_ONCE else {"suspend": True}
    if job.runtime is PlannedRuntime.BARE_JOBSET:
        replicated = [_replicated_job(job, WORKERS, step="", pods=job.pods)]
        spec: Body = {"replicatedJobs": replicated, **suspend, **_ttl(job)}
        return JOB_SETS, {
            "apiVersion": JOB_SETS.api_version,
            "kind": "JobSet",
            "metadata": metadata,
            "spec": spec,
        }
    gpus = {"nvidia.com/gpu": str(job.gpus_per_pod)}
    trainer = {"numNodes": _trainer_pods(job), "resourcesPerNode": {"limits": gpus, "requests": dict(gpus)}}
    deadline = {} if job.deadline_seconds is None else {"activeDeadlineSeconds": job.deadline_seconds}
    return TRAIN_JOBS, {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": runtime_name(job)}, "trainer": trainer, **suspend, **deadline},
    }


def runtime_of(job: JobPlan) -> Body:
    """The ClusterTrainingRuntime that only this job uses."""
    replicated = [_replicated_job(job, TRAINER, step="trainer", pods=1)]
    spec: Body = {"replicatedJobs": replicated, **_ttl(job)}
    match job.runtime:
        case PlannedRuntime.SEVERAL_JOBS:
            name = LAUNCHER if job.training is TrainingKind.LAUNCHER else "helper"
            replicated.insert(0, _replicated_job(job, name, step="", pods=_helper_pods(job)))
        case PlannedRuntime.INITIALIZED:
            replicated.insert(0, _replicated_job(job, INITIALIZER, step=INITIALIZER, pods=1))
            replicated[1]["dependsOn"] = [{"name": INITIALIZER, "status": "Complete"}]
        case PlannedRuntime.NATIVE:
            spec["failurePolicy"] = {"maxRestarts": 1}
        case PlannedRuntime.UNLIMITED:
            spec["failurePolicy"] = {"maxRestarts": 1, "rules": [_AGAIN]}
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": runtime_name(job), "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": spec}},
    }


def _ttl(job: JobPlan) -> Body:
    """A part of the JobSet's spec."""
    return {} if job.ttl_seconds is None else {"ttlSecondsAfterFinished": job.ttl_seconds}


def _helper_pods(job: JobPlan) -> int:
    return 1 if job.training is TrainingKind.LAUNCHER else max(1, job.pods // 2)


def _trainer_pods(job: JobPlan) -> int:
    return job.pods - _helper_pods(job) if job.runtime is PlannedRuntime.SEVERAL_JOBS else job.pods


def _replicated_job(job: JobPlan, name: str, *, step: str, pods: int) -> Body:
    prepared = job.runtime not in {PlannedRuntime.SHIPPED, PlannedRuntime.INITIALIZED}
    container: Body = {"name": name if step == INITIALIZER else TRAINER, "image": "example.com/training"}
    if name == LAUNCHER:
        container["command"] = ["mpirun", "-n", str(_trainer_pods(job)), "python", "train.py"]
    if not step and job.marking is Marking.ACCELERATORS:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(job.gpus_per_pod)}}
    template: Body = {
        "metadata": {},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": job.grace_seconds},
    }
    if step != INITIALIZER:
        _add_sidecars(template, job)
    job_spec: Body = {"template": template}
    if not step:
        job_spec |= {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    if prepared:
        template["spec"]["restartPolicy"] = "Never"
        template["spec"]["tolerations"] = [_tolerated("not-ready"), _tolerated("unreachable")]
        job_spec["backoffLimit"] = 1000
    if job.runtime is PlannedRuntime.JOINED:
        annotations = template["metadata"].setdefault("annotations", {})
        annotations["recovery.trainjob.dev/joined-probe"] = "readiness"
        container["readinessProbe"] = {"exec": {"command": ["test", "-f", "/tmp/recovery-joined"]}, "periodSeconds": 1}  # noqa: S108
    if job.runtime is PlannedRuntime.NATIVE:
        codes = {"operator": "In", "values": [NATIVE_CODE]}
        job_spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    if job.runtime is PlannedRuntime.UNLIMITED:
        job_spec["backoffLimit"] = 0
        codes = {"operator": "NotIn", "values": [SIGTERM_CODE]}
        job_spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    if step != INITIALIZER:
        job_spec |= _POD_FAILURES[job.pod_failures]
    labels: dict[str, Any] = {STEP_LABEL: step} if step else {}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": job_spec}}


def container_name(sidecar: Sidecar) -> str:
    return _NAMES[sidecar]


def _add_sidecars(template: Body, job: JobPlan) -> None:
    """Adds helpers before the container that trains and others after it, so its place in the list shows nothing."""
    spec = template["spec"]
    if job.marking is Marking.ANNOTATION:
        template["metadata"]["annotations"] = {CONTAINER_ANNOTATION: TRAINER}
    for sidecar in job.sidecars:
        container: Body = {"name": container_name(sidecar), "image": "example.com/sidecar"}
        match sidecar:
            case Sidecar.HELPER:
                container["env"] = [{"name": EXITS_AFTER_VARIABLE, "value": str(HELPER_SECONDS)}]
                spec["containers"].insert(0, container)
            case Sidecar.BROKEN:
                spec["containers"].append({**container, "image": NO_IMAGE})
            case Sidecar.SHIPPER:
                spec["containers"].append(container)
            case Sidecar.NATIVE:
                spec["initContainers"] = [{**container, "restartPolicy": "Always"}]


def training_container(job: JobPlan) -> str | None:
    """The container by whose exits a controller must judge the job. None: no rule says which container that is."""
    marked = job.marking is not Marking.NOTHING or not any(each is not Sidecar.NATIVE for each in job.sidecars)
    return TRAINER if marked else None


def _tolerated(taint: str) -> Body:
    return {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    }


def members(server: ApiServer, job: JobPlan) -> dict[int, Body]:
    """The job's pods that have not ended and are not being deleted, by index, without initializers.

    The index is the completion index. In a group of several Jobs, those of the second Job follow those of the first.
    """
    found = {}
    for pod in server.objects(PODS, job.namespace):
        labels = pod["metadata"].get("labels", {})
        if labels.get(JOBSET_LABEL) != job.name or labels.get(REPLICATED_JOB_LABEL) == INITIALIZER:
            continue
        if "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in {"Failed", "Succeeded"}:
            continue
        second = job.runtime is PlannedRuntime.SEVERAL_JOBS and labels.get(REPLICATED_JOB_LABEL) == TRAINER
        found[int(labels.get(INDEX_LABEL, "0")) + (_helper_pods(job) if second else 0)] = pod
    return found
