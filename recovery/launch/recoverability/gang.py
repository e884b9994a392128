"""Checks whether all pods of a group are scheduled together.

Sources: Trainer 2.3.0 `plugins/{coscheduling,volcano}` (minMember counts the pods of every ReplicatedJob of the
runtime, and no plugin sets schedulerName), scheduler-plugins `coscheduling/core` (PreFilter refuses a pod that has
fewer siblings than minMember), Volcano `plugins/gang` (a job with fewer valid tasks than minMember is not scheduled).
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.recoverability.effective import runtime_alone
from recovery.launch.recoverability.words import counted
from recovery.launch.views import PodGroupPolicy

NO_GANG_SCHEDULING = Code("no-gang-scheduling", Severity.NOTE, "a part of the group may hold GPUs while it waits")
GANG_SCHEDULER_UNNAMED = Code(
    "gang-scheduler-unnamed", Severity.NOTE, "no pod names the scheduler of the podGroupPolicy"
)
GANG_WAITS_FOR_ITSELF = Code("gang-waits-for-itself", Severity.ERROR, "the gang waits for pods that wait for the gang")
CODES = (NO_GANG_SCHEDULING, GANG_SCHEDULER_UNNAMED, GANG_WAITS_FOR_ITSELF)

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_DEFAULT = frozenset({"", "default-scheduler"})
_GANG_LABEL = "scheduling.x-k8s.io/pod-group"
_GANG_ANNOTATION = "scheduling.k8s.io/group-name"


def check(launch: Launch) -> Iterator[LintFinding]:
    groups = launch.runtime.pod_groups if launch.runtime is not None else None
    if groups is None or not groups.plugin:
        yield from _no_gang(launch)
        return
    schedulers = {job.pods.scheduler_name for job in launch.job_set.jobs}
    if schedulers and schedulers <= _DEFAULT:
        yield _scheduler_unnamed(groups)
    elif _heeded(groups.plugin, schedulers):
        yield from _waits_for_itself(launch, groups)


def _no_gang(launch: Launch) -> Iterator[LintFinding]:
    if launch.nodes < 2 or not launch.gpus or runtime_alone(launch) or QUEUE_LABEL in launch.labels:
        return
    for member in launch.members:
        pods = member.template
        if pods.scheduler_name not in _DEFAULT or _GANG_LABEL in pods.labels or _GANG_ANNOTATION in pods.annotations:
            return
    smallest = min(member.gpus_per_pod for member in launch.members if member.gpus_per_pod)
    how = "add a podGroupPolicy to the runtime, or " if launch.runtime is not None else ""
    yield LintFinding(
        NO_GANG_SCHEDULING,
        launch.place,
        f"nothing schedules the {counted(launch.nodes, 'pod')} together: where there is room for some of them only, "
        f"these hold up to {launch.gpus - smallest:,} of {counted(launch.gpus, 'GPU')} and wait for the rest",
        f"{how}queue the job in Kueue by the label {QUEUE_LABEL}",
    )


def _scheduler_unnamed(groups: PodGroupPolicy) -> LintFinding:
    name = "volcano" if groups.plugin == "volcano" else "scheduler-plugins-scheduler"
    return LintFinding(
        GANG_SCHEDULER_UNNAMED,
        groups.place,
        f"podGroupPolicy.{groups.plugin} makes a PodGroup, and no pod names a scheduler: unless the cluster's default "
        "scheduler heeds PodGroups, or a webhook names another, the pods are scheduled one by one",
        f"set schedulerName in the pod templates of the runtime, as the scheduler is called there: {name}",
    )


def _heeded(plugin: str, schedulers: set[str]) -> bool:
    """Whether every pod goes to a scheduler that honours the PodGroup. Only then is it certain that none is bound."""
    return schedulers == {"volcano"} if plugin == "volcano" else not schedulers & _DEFAULT


def _waits_for_itself(launch: Launch, groups: PodGroupPolicy) -> Iterator[LintFinding]:
    jobs = launch.job_set.jobs
    waiting = next((job for job in jobs if job.depends_on or job.depends_on_ready), None)
    if waiting is None:
        return
    first, state = (waiting.depends_on[0], "Complete") if waiting.depends_on else (waiting.depends_on_ready[0], "Ready")
    yield LintFinding(
        GANG_WAITS_FOR_ITSELF,
        groups.place,
        f"Trainer counts the pods of all {len(jobs)} ReplicatedJobs into minMember, and those of {waiting.name} are "
        f"made only once {first} is {state}: the scheduler waits for all of them before it starts any, so that none "
        "ever starts",
        f"remove podGroupPolicy.{groups.plugin}, and queue the job in Kueue by the label {QUEUE_LABEL}",
    )
