"""The objects that a walk's user creates, from its plan."""

from tests.walks.plan import NATIVE_KINDS, Container, ContainerKind, JobPlan, Json, WorkloadPlan

NAME = "llm"
RUNTIME = "walked"
GRACE_SECONDS = 2
TOLERATED_SECONDS = 8
"""How long the pods stay on a lost node. This is longer than the 5 s in which the taints of a returned node go. So a
pod that was placed there meanwhile is not evicted in one run and left alone in the other.
"""
ABSENT_IMAGE = "absent"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_IMAGES = {
    ContainerKind.TRAINER: "obedient",
    ContainerKind.HELPER: "exits-0",
    ContainerKind.SHIPPER: "obedient",
    ContainerKind.NATIVE: "obedient",
    ContainerKind.DEAF: "deaf",
    ContainerKind.ABSENT: ABSENT_IMAGE,
}


def nodes_of(namespace: str) -> tuple[str, str]:
    """Names of the walk's own nodes. No other pods go there, and its own pods go nowhere else."""
    return f"{namespace}-0", f"{namespace}-1"


def job_set(plan: WorkloadPlan, namespace: str) -> Json:
    return {"metadata": {"name": NAME}, "spec": {**_job_set_spec(plan, namespace), "suspend": plan.suspended}}


def train_job(plan: WorkloadPlan) -> Json:
    spec: Json = {
        "runtimeRef": {"name": RUNTIME, "kind": "TrainingRuntime"},
        "trainer": {"numNodes": plan.jobs[0].pods},
        "suspend": plan.suspended,
    }
    if plan.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = plan.deadline_seconds
    return {"metadata": {"name": NAME}, "spec": spec}


def runtime(plan: WorkloadPlan, namespace: str) -> Json:
    """The first ReplicatedJob trains; it has one replica, as Trainer requires."""
    spec = _job_set_spec(plan, namespace)
    spec["replicatedJobs"][0]["template"]["metadata"] = {"labels": {ANCESTOR: "trainer"}}
    return {
        "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": spec}},
    }


def _job_set_spec(plan: WorkloadPlan, namespace: str) -> Json:
    nodes = nodes_of(namespace)
    # One node for each ReplicatedJob, so that the scheduler never chooses among equal nodes.
    jobs = [_replicated(job, nodes[number % len(nodes)]) for number, job in enumerate(plan.jobs)]
    spec: Json = {"replicatedJobs": jobs}
    if plan.failure_policy is not None:
        spec["failurePolicy"] = plan.failure_policy
    if plan.success_policy is not None:
        spec["successPolicy"] = plan.success_policy
    if plan.in_order:
        spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    return spec


def _replicated(plan: JobPlan, node: str) -> Json:
    spec: Json = {
        "parallelism": plan.pods,
        "completions": plan.pods if plan.completions is None else plan.completions,
        "completionMode": "Indexed",
        "backoffLimit": plan.backoff_limit,
        "backoffLimitPerIndex": plan.backoff_limit_per_index,
        "maxFailedIndexes": plan.max_failed_indexes,
        "podReplacementPolicy": plan.replacement_policy,
        "activeDeadlineSeconds": plan.deadline_seconds,
        "template": {"spec": _pod_spec(plan, node)},
    }
    if plan.failure_rules:
        spec["podFailurePolicy"] = {"rules": list(plan.failure_rules)}
    if plan.success_indexes is not None:
        spec["successPolicy"] = {"rules": [{"succeededIndexes": plan.success_indexes}]}
    replicated: Json = {
        "name": plan.name,
        "replicas": plan.replicas,
        "template": {"spec": {name: value for name, value in spec.items() if value is not None}},
    }
    if plan.depends_on is not None:
        replicated["dependsOn"] = [dict(zip(("name", "status"), plan.depends_on, strict=True))]
    return replicated


def _pod_spec(plan: JobPlan, node: str) -> Json:
    native = [_container(each) | {"restartPolicy": "Always"} for each in plan.containers if each.kind in NATIVE_KINDS]
    spec: Json = {
        "restartPolicy": plan.restart_policy,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [_container(each) for each in plan.containers if each.kind not in NATIVE_KINDS],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{lost}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATED_SECONDS,
            }
            for lost in ("not-ready", "unreachable")
        ],
    }
    return {**spec, "initContainers": native} if native else spec


def _container(plan: Container) -> Json:
    container: Json = {"name": plan.name, "image": _IMAGES[plan.kind]}
    if plan.restart_codes:
        container["restartPolicy"] = "Never"
        exits = {"operator": "In", "values": list(plan.restart_codes)}
        container["restartPolicyRules"] = [{"action": "Restart", "exitCodes": exits}]
    return container
