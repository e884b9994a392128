"""The values that apply to a job if its manifest sets none: the defaults of JobSet, the Job and the API server.

Sources: JobSet 0.12.0 `jobset_webhook.go` (Default), Kubernetes 1.36.3 `pkg/apis/batch/v1/defaults.go`,
`pkg/controller/job/job_controller.go`, `plugin/pkg/admission/defaulttolerationseconds`.
"""

from collections.abc import Iterator

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.launch import Launch, Member, Setting
from recovery.launch.places import Place
from recovery.launch.recoverability.words import counted
from recovery.launch.views import ManifestToleration, PodTemplate, ReplicatedJob

NODE_MARKED_SECONDS = 50
"""From a node's last heartbeat until it is marked Ready=Unknown (node-monitor-grace-period, since Kubernetes 1.32)."""
PATIENCE_SECONDS = 300
"""tolerationSeconds that the API server adds for both taints of a lost node."""
GRACE_SECONDS = 30
BACKOFF_LIMIT = 6
BACKOFF_LIMIT_PER_INDEX = 2**31 - 1
"""The default of backoffLimit if the Job has a backoffLimitPerIndex, which then decides for each index."""
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_NO_EXECUTE = "NoExecute"


def runtime_alone(launch: Launch) -> bool:
    """Whether a runtime is judged by itself. Its TrainJobs will set the number of nodes."""
    return launch.train_job is None and launch.runtime is not None


def trains(launch: Launch) -> bool:
    """Whether the job trains. A runtime's job does. A user's own JobSet does if it has GPUs, or runs torchrun."""
    if launch.runtime is not None or launch.gpus:
        return True
    return any(member.main is not None and isinstance(run_by(member.main), Torchrun) for member in launch.members)


def is_group(launch: Launch) -> bool:
    """Whether the pods train together, so that the others wait when one is lost. A runtime by itself counts too,
    because its jobs may do so."""
    return trains(launch) and (launch.nodes >= 2 or (runtime_alone(launch) and launch.nodes > 0))


def is_mpi(launch: Launch) -> bool:
    """Whether mpirun starts and ends all ranks. A launcher that restarts in place then restarts all of them."""
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy is not None and policy.mpi is not None


def pods_start_alone(launch: Launch) -> bool:
    """Whether each pod starts its own ranks, as with torchrun, so that a restarted pod has no ranks to join. mpirun and
    Flux start the ranks of all pods from one pod."""
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy is None or (policy.mpi is None and "flux" not in policy.others)


def runs_script(launch: Launch, member: Member) -> bool:
    """Whether the command of the main container trains. Under MPI only the launcher's does, and the others run sshd."""
    return not is_mpi(launch) or member.job.ancestor == "trainer"


def size(launch: Launch) -> str:
    """What waits when one member is lost: `1,024 GPUs`, `16 pods`, `the whole group`."""
    if runtime_alone(launch):
        return "the whole group"
    return counted(launch.gpus, "GPU") if launch.gpus else counted(launch.nodes, "pod")


def others_hang(launch: Launch) -> str:
    """When one pod is lost: `the other 15 pods hang`."""
    if runtime_alone(launch):
        return "the others hang"
    others = launch.nodes - 1
    return "the other pod hangs" if others == 1 else f"the other {others:,} pods hang"


def restart_policy(job: ReplicatedJob) -> str:
    return job.pods.restart_policy or "OnFailure"


def backoff_limit(job: ReplicatedJob) -> int:
    if job.backoff_limit is not None:
        return job.backoff_limit
    return BACKOFF_LIMIT if job.backoff_limit_per_index is None else BACKOFF_LIMIT_PER_INDEX


def backoff_limit_written(job: ReplicatedJob) -> str:
    """`backoffLimit 3`, `backoffLimit 6 (the default)`."""
    if job.backoff_limit is None and job.backoff_limit_per_index is not None:
        return f"backoffLimitPerIndex {job.backoff_limit_per_index} and no backoffLimit"
    return f"backoffLimit {backoff_limit(job)}" + (" (the default)" if job.backoff_limit is None else "")


def job_spec(job: ReplicatedJob) -> Place:
    return job.place / "template" / "spec"


def backoff_limit_place(job: ReplicatedJob) -> Place:
    return job_spec(job) if job.backoff_limit is None else job_spec(job) / "backoffLimit"


def restart_policy_place(job: ReplicatedJob) -> Place:
    return job.pods.place / "restartPolicy" if job.pods.restart_policy else job.pods.place


def grace_seconds(template: PodTemplate) -> int:
    return GRACE_SECONDS if template.grace_seconds is None else template.grace_seconds


def pods_per_job(member: Member) -> int:
    """The pods within which a backoffLimit counts. A ReplicatedJob creates one Job for each of its replicas."""
    return max(1, member.pods // max(1, member.job.replicas or 1))


def losses_to_fail(job: ReplicatedJob) -> int:
    """How many losses at once fail the Job: more than backoffLimit pods, or backoffLimit restarts in place.

    The Job controller fails a Job of restartPolicy OnFailure when its restarts *reach* the limit
    (`pastBackoffLimitOnFailure`), and any Job when its failed pods *exceed* it.
    """
    limit = backoff_limit(job)
    return max(1, limit) if restart_policy(job) == "OnFailure" else limit + 1


def tolerations_for(template: PodTemplate, taint: str) -> list[ManifestToleration]:
    """The tolerations that can concern that NoExecute taint, in the manifest's order. Their value may still differ."""
    return [each for each in template.tolerations if each.key in {"", taint} and each.effect in {"", _NO_EXECUTE}]


def patience_seconds(template: PodTemplate, taint: str) -> int | None:
    """How long a pod stays bound to a node with that NoExecute taint before it is evicted. None: for ever.

    The API server adds 300 s if no toleration is for the taint's key or for all keys. Of the tolerations that match,
    the shortest applies (`getMinTolerationTime`).
    """
    concerned = tolerations_for(template, taint)
    if not concerned:
        return PATIENCE_SECONDS
    matching = [each for each in concerned if _tolerates(each)]
    if not matching:
        return 0
    bounded = [max(0, each.seconds) for each in matching if each.seconds is not None]
    return min(bounded) if bounded else None


def _tolerates(toleration: ManifestToleration) -> bool:
    """Whether the toleration matches a taint of a lost node. These taints have no value."""
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and bool(toleration.key) and not toleration.value


def settings(launch: Launch) -> Iterator[Setting]:
    """The settings of each member that affect a recovery."""
    for member in launch.members:
        job, pods, target = member.job, member.template, f"ReplicatedJob {member.job.name}"
        yield _setting(target, "restartPolicy", restart_policy(job), pods.restart_policy, "JobSet's", pods.place)
        yield _setting(target, "backoffLimit", backoff_limit(job), job.backoff_limit, "the Job's", job_spec(job))
        yield _setting(
            target,
            "podReplacementPolicy",
            pod_replacement_policy(job),
            job.pod_replacement_policy,
            "the Job's" if not job.pod_failure_rules else "a podFailurePolicy's",
            job_spec(job),
        )
        yield _setting(
            target,
            "terminationGracePeriodSeconds",
            grace_seconds(pods),
            pods.grace_seconds,
            "the pod's",
            pods.place,
        )
        for taint in (NOT_READY, UNREACHABLE):
            patience = patience_seconds(pods, taint)
            named = tolerations_for(pods, taint)
            yield Setting(
                target,
                f"tolerationSeconds of {taint}",
                "for ever" if patience is None else str(patience),
                "spec.tolerations of the pod template" if named else "the API server's default for every pod",
                pods.place / "tolerations" if named else None,
            )
    policy = launch.job_set.failure_policy
    if policy is not None:
        restarts = policy.max_restarts or 0
        yield _setting("JobSet", "maxRestarts", restarts, policy.max_restarts, "failurePolicy's", policy.place)


def pod_replacement_policy(job: ReplicatedJob) -> str:
    return job.pod_replacement_policy or ("Failed" if job.pod_failure_rules else "TerminatingOrFailed")


def _setting(target: str, name: str, value: object, written: object, whose: str, parent: Place) -> Setting:
    """`written`: the manifest's value. None or empty: it has none, and the default of `whose` applies."""
    if written is None or written == "":
        return Setting(target, name, str(value), f"{whose} default")
    return Setting(target, name, str(value), "the manifest", parent / name)
