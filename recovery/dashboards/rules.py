"""The recording rules: the leader's series without the labels of the scrape, and what follows from them."""

from dataclasses import dataclass

from recovery.dashboards.series import (
    BADPUT_OF_FLEET_1D,
    BADPUT_OF_FLEET_1H,
    DEAD_MEMBER,
    ETTR_OF_FLEET_1D,
    ETTR_OF_FLEET_1H,
    ETTR_OF_JOB_1D,
    ETTR_OF_JOB_1H,
    INCIDENT_SEEN,
    NOT_OF_DRILLS,
    fleet_series,
    job_series,
)
from recovery.telemetry.catalogue import CATALOGUE, MetricSource, MetricType
from recovery.telemetry.catalogue.of_fleet import DURATIONS_AND_DECISIONS

INTERVAL_SECONDS = 30
"""The interval of the rule groups. In `sum_over_time` of a recorded gauge each sample stands for this many seconds."""

_LEADERS = [
    record
    for record in CATALOGUE
    if record.source is MetricSource.LEADER
    and record.type is not MetricType.HISTOGRAM
    and record not in DURATIONS_AND_DECISIONS
]
JOB_METRICS = tuple(record.name for record in _LEADERS if record.per_job)
FLEET_METRICS = tuple(record.name for record in _LEADERS if not record.per_job)

_SCRAPE_LABELS = "instance, pod, endpoint, container, service, job"
"""The labels that a scrape adds to ours. They change with the leader, and with the kind of monitor."""


@dataclass(frozen=True)
class RecordingRule:
    record: str
    expr: str


@dataclass(frozen=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other, every `INTERVAL_SECONDS`."""

    name: str
    rules: tuple[RecordingRule, ...]


def recording_groups() -> tuple[RuleGroup, ...]:
    """All recording rules. A group reads what the groups before it record."""
    return (
        RuleGroup("recovery-jobs", tuple(map(_of_job, JOB_METRICS))),
        RuleGroup("recovery-fleet", tuple(map(_of_fleet, FLEET_METRICS))),
        RuleGroup("recovery-goodput", (*_goodput("1h"), *_goodput("1d"), *_badput())),
        RuleGroup("recovery-independent", _independent()),
    )


def with_own_namespace(vector: str) -> str:
    """The series with the namespace that the exporter wrote, also where the scrape renamed it.

    A scrape without honorLabels puts its target's namespace in the label and ours in `exported_namespace`.
    """
    return f'label_replace({vector}, "namespace", "$1", "exported_namespace", "(.+)")'


def _of_job(metric: str) -> RecordingRule:
    expr = f"max without ({_SCRAPE_LABELS}, exported_namespace) ({with_own_namespace(metric)})"
    return RecordingRule(job_series(metric), expr)


def _of_fleet(metric: str) -> RecordingRule:
    return RecordingRule(fleet_series(metric), f"max without ({_SCRAPE_LABELS}, namespace) ({metric})")


def _held(by: str, window: str) -> str:
    """GPU-seconds that the jobs held within the window, without those that our suspensions gave back."""
    gpus = f"sum_over_time({job_series('recovery_job_gpus')}[{window}])"
    released = f"sum_over_time({job_series('recovery_gpus_released')}[{window}])"
    # No released series means that nothing was released. That must not remove the job from the result.
    return f"{INTERVAL_SECONDS} * (sum{by} ({gpus}) - (sum{by} ({released}) or 0 * sum{by} ({gpus})))"


def _goodput(window: str) -> tuple[RecordingRule, ...]:
    by_job = " by (namespace, job_name)"
    of_job = f"increase({job_series('recovery_gpu_idle_seconds_total')}{{{NOT_OF_DRILLS}}}[{window}])"
    of_fleet = f"increase({fleet_series('recovery_fleet_gpu_idle_seconds_total')}{{{NOT_OF_DRILLS}}}[{window}])"
    jobs, fleet = {"1h": (ETTR_OF_JOB_1H, ETTR_OF_FLEET_1H), "1d": (ETTR_OF_JOB_1D, ETTR_OF_FLEET_1D)}[window]
    return (
        RecordingRule(jobs, f"clamp_min(1 - sum{by_job} ({of_job}) / ({_held(by_job, window)} > 0), 0)"),
        RecordingRule(fleet, f"clamp_min(1 - sum ({of_fleet}) / ({_held('', window)} > 0), 0)"),
    )


def _badput() -> tuple[RecordingRule, ...]:
    idle = f"{fleet_series('recovery_fleet_gpu_idle_seconds_total')}{{{NOT_OF_DRILLS}}}"
    return (
        RecordingRule(BADPUT_OF_FLEET_1H, f"sum by (badput) (increase({idle}[1h]))"),
        RecordingRule(BADPUT_OF_FLEET_1D, f"sum by (badput) (increase({idle}[1d]))"),
    )


_JOBSET_LABEL = "label_jobset_sigs_k8s_io_jobset_name"
_MEMBER_LABEL = "label_jobset_sigs_k8s_io_replicatedjob_name"
KUBE_STATE_METRICS_LABELS = ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name")
"""The pod labels that kube-state-metrics must be allowed to export, by --metric-labels-allowlist."""

_STUCK_SECONDS = 60
"""A deleted pod ends within its grace period. A pod that exists this much later has no kubelet to end it."""


def _of_pods(metric: str) -> str:
    """A metric of kube-state-metrics by namespace and pod, whether its scrape honours its labels or not."""
    named = f'label_replace({with_own_namespace(metric)}, "pod", "$1", "exported_pod", "(.+)")'
    return f"max by (namespace, pod) ({named})"


def _independent() -> tuple[RecordingRule, ...]:
    """What kube-state-metrics reports about members, and when we last had an incident of that job open."""
    pods = f'kube_pod_labels{{{_JOBSET_LABEL}!="", {_MEMBER_LABEL}!~"dataset-initializer|model-initializer"}}'
    member = (
        f'max by (namespace, pod, job_name) (label_replace(label_replace({with_own_namespace(pods)}, "pod", "$1", '
        f'"exported_pod", "(.+)"), "job_name", "$1", "{_JOBSET_LABEL}", "(.+)"))'
    )
    owned = _of_pods('kube_pod_owner{owner_kind="Job"}')
    phase = {name: _of_pods(f'kube_pod_status_phase{{phase="{name}"}}') for name in ("Failed", "Running")}
    failed = f"({_of_pods('kube_pod_completion_time')} or {_of_pods('kube_pod_created')}) and {phase['Failed']} == 1"
    stuck = f"{_of_pods('kube_pod_deletion_timestamp')} < time() - {_STUCK_SECONDS}"
    # Only Trainer's training containers count. A sidecar may restart at any time.
    restarted = _of_pods('kube_pod_container_status_last_terminated_timestamp{container="node"}')
    # Of a job that a person deletes, only pods that cannot end still run. Such a job has lost no member.
    leaving = _of_pods("kube_pod_deletion_timestamp")
    running = f"({phase['Running']} unless {leaving} unless {restarted})"
    gone = f"(({failed}) or ({stuck}) or {restarted})"
    named = f"{gone} * on (namespace, pod) group_left (job_name) {member}"
    dead = f"max by (namespace, job_name) ({named} and on (namespace, pod) {owned})"
    alive = f"sum by (namespace, job_name) ({running} * on (namespace, pod) group_left (job_name) {member})"
    opened = job_series("recovery_incident_start_timestamp_seconds")
    return (
        RecordingRule(DEAD_MEMBER, f"{dead} and on (namespace, job_name) {alive} > 0"),
        RecordingRule(INCIDENT_SEEN, f"timestamp({opened})"),
    )
