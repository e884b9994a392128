"""The metrics of single jobs. The leader reports them for each job that a policy selects, and each with a ledger."""

from recovery.telemetry.catalogue import label_values as values
from recovery.telemetry.catalogue.record import JOB, PREFIX, MetricLabel, MetricRecord, MetricSource, MetricType, one_of

SELECTED = "From when a policy first selects the job until its workload is deleted."
_REASON = one_of("reason", "What the group waits for.", values.REASONS)
_COUNTED_REASON = one_of("reason", values.COUNTED_MEANING, values.COUNTED_REASONS)
_CLASS = one_of("failure_class", values.CLASS_MEANING, values.CLASSES)
_BADPUT = one_of("badput", "The same in the words of Google's goodput taxonomy.", values.BADPUT)


def _of_job(
    name: str, kind: MetricType, unit: str, meaning: str, set_when: str, example: str, *labels: MetricLabel
) -> MetricRecord:
    return MetricRecord(f"{PREFIX}{name}", kind, meaning, unit, set_when, MetricSource.LEADER, example, (*JOB, *labels))


JOB_GPUS = _of_job(
    "job_gpus",
    MetricType.GAUGE,
    "GPUs",
    "GPUs that the group holds. During an incident, those that it held when the incident opened.",
    SELECTED,
    "sum by (namespace) (recovery_job_gpus)",
)
JOB_INFO = _of_job(
    "job_info",
    MetricType.GAUGE,
    "always 1",
    "1 for each job that a usable policy selects, with the mode of that policy and the kind of the workload.",
    "While a usable policy selects the job. An open circuit breaker makes every mode `observe`.",
    'count by (mode) (recovery_job_info{kind="TrainJob"})',
    one_of("mode", "The mode of the policy that applies.", values.MODES),
    one_of("kind", "The kind of the workload.", values.WORKLOAD_KINDS),
)
GPUS_IDLE = _of_job(
    "gpus_idle",
    MetricType.GAUGE,
    "GPUs",
    "GPUs that are idle right now because of an incident, or because the group is Broken after one.",
    f"{SELECTED} 0 for all reasons but that of the current phase. Broken: `hung`.",
    "sum by (namespace, job_name) (recovery_gpus_idle) > 0",
    _REASON,
)
GPUS_RELEASED = _of_job(
    "gpus_released",
    MetricType.GAUGE,
    "GPUs",
    "GPUs that the controller's own suspension of the job has given back to the cluster right now.",
    f"{SELECTED} They do not count as idle.",
    "sum(recovery_gpus_released)",
)
GPU_IDLE_SECONDS = _of_job(
    "gpu_idle_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "GPU-seconds lost to incidents and to groups that are Broken after one, by what the group waited for.",
    f"{SELECTED} It runs while an incident is open or the group is Broken. `drill`: from the first drill on.",
    'sum by (reason) (increase(recovery_gpu_idle_seconds_total{reason!="drill"}[1d])) / 3600',
    _COUNTED_REASON,
    _BADPUT,
)
GPU_IDLE_BY_CLASS_SECONDS = _of_job(
    "gpu_idle_by_class_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "The GPU-seconds of recovery_gpu_idle_seconds_total by their cause. Both have the same sum.",
    f"{SELECTED} It runs while an incident is open or the group is Broken. `Drill`: from the first drill on.",
    'topk(3, sum by (failure_class) (increase(recovery_gpu_idle_by_class_seconds_total{failure_class!="Drill"}[7d])))',
    _CLASS,
)
GPU_RELEASED_SECONDS = _of_job(
    "gpu_released_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "GPU-seconds that the controller's own suspension of the job gave back to the cluster. They are not lost.",
    f"{SELECTED} It runs while such a suspension is in force.",
    "sum(increase(recovery_gpu_released_seconds_total[1d])) / 3600",
)
FAILURES = _of_job(
    "failures_total",
    MetricType.COUNTER,
    "incidents",
    "Incidents opened, drills included: they have the class `Drill`.",
    f"{SELECTED} It rises when an incident opens. Class `Drill`: from the first drill of the job on.",
    'sum by (failure_class) (increase(recovery_failures_total{failure_class!="Drill"}[7d]))',
    _CLASS,
)
GROUP_RESTARTS = _of_job(
    "group_restarts_total",
    MetricType.COUNTER,
    "restarts",
    "Restarts of the group after failures, adopted ones of the platform included. Those of drills do not count.",
    f"{SELECTED} It rises with each attempt that restarts the group.",
    "increase(recovery_group_restarts_total[1h]) > 3",
    one_of("scope", "What is restarted.", (values.SCOPE,)),
)
JOB_PHASE = _of_job(
    "job_phase",
    MetricType.GAUGE,
    "0 or 1",
    "1 for the phase that the group is in, 0 for the others.",
    SELECTED,
    'recovery_job_phase{phase="Held"} == 1',
    one_of(
        "phase",
        "The phase of the incident; Healthy is between incidents. `Detected` and `Stopping` have no series at 0.",
        values.PHASES,
    ),
)
JOB_STANDING = _of_job(
    "job_standing",
    MetricType.GAUGE,
    "always 1",
    "1 for the standing of the group, which says whether its program trains. The others have no series.",
    f"{SELECTED} `Unknown` before its first incident, and where the facts do not say.",
    "count by (standing) (recovery_job_standing)",
    one_of("standing", "See [Broken](commands.md#broken).", values.STANDINGS),
)
LAST_PHASE_DURATION = _of_job(
    "last_phase_duration_seconds",
    MetricType.GAUGE,
    "seconds",
    "How long each phase of the open incident, or of the last one, took.",
    "From the end of the phase until the next incident. After a change of leader there is none for an incident that is "
    "recorded already.",
    'recovery_last_phase_duration_seconds{phase="Scheduling"}',
    one_of("phase", "A phase that has ended.", tuple(phase for phase in values.PHASES if phase != "Healthy")),
)
INCIDENT_START = _of_job(
    "incident_start_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When the failure of the open incident happened.",
    "While an incident is open.",
    "time() - recovery_incident_start_timestamp_seconds > 600",
)
INCIDENT_INFO = _of_job(
    "incident_info",
    MetricType.GAUGE,
    "always 1",
    "1 for the open incident, with its id and its cause.",
    "While an incident is open.",
    "recovery_incident_info * on (namespace, job_name) group_left () sum by (namespace, job_name) (recovery_gpus_idle)",
    MetricLabel("incident", "The id of the incident, which is in the name of its RecoveryIncident."),
    _CLASS,
)
RENDEZVOUS_PARTICIPANTS = _of_job(
    "rendezvous_participants",
    MetricType.GAUGE,
    "members",
    "Members of the group that have joined, beside how many there must be.",
    "While an incident is in phase Starting, Rendezvous or Resuming. With an agent also outside of incidents, from the "
    "first arrival of a member until all have joined or ranks make steps.",
    'recovery_rendezvous_participants{state="joined"} '
    '< ignoring (state) recovery_rendezvous_participants{state="expected"}',
    one_of(
        "state",
        "`joined`: all ranks of the member have joined, as its agent or its joined probe shows; without either, it is "
        "Ready. `arrived`: all ranks of the member have called `init_process_group`; only with an agent. "
        "`expected`: all members.",
        (values.ARRIVED, values.JOINED, values.EXPECTED),
    ),
)
BUDGET_REMAINING = _of_job(
    "restart_budget_remaining",
    MetricType.GAUGE,
    "recoveries",
    "Recoveries left in the window of the budget.",
    SELECTED,
    "recovery_restart_budget_remaining == 0 and recovery_restart_budget_limit > 0",
)
BUDGET_LIMIT = _of_job(
    "restart_budget_limit",
    MetricType.GAUGE,
    "recoveries",
    "Recoveries that the budget allows in its window.",
    SELECTED,
    "recovery_restart_budget_remaining / recovery_restart_budget_limit < 0.25",
)
CRASH_LOOP = _of_job(
    "job_crash_loop",
    MetricType.GAUGE,
    "always 1",
    "1 for a group that others restart more often than its budget allows. The controller cannot hold them back.",
    "While the group is in a [crash loop](policy.md#crash-loops).",
    "recovery_job_crash_loop == 1",
)
PROVEN_TIMESTAMP = _of_job(
    "proven_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When the latest recovery ended that proves, or has proven, that the job recovers.",
    "From the first such recovery on, also one that only Ready pods show; see "
    "[what a proof says](chaos.md#what-a-proof-says).",
    "time() - recovery_proven_timestamp_seconds > 30 * 86400",
)
PROOF_VALID = _of_job(
    "proof_valid",
    MetricType.GAUGE,
    "0 or 1",
    "1 while the proof that the job recovers counts. 0: it is too old, outdated, unverified or missing.",
    "While a policy in mode Enforce sets `drill.maxAge`, and the job runs or has an open incident.",
    "count(recovery_proof_valid == 0)",
)
JOB_PROGRESS = _of_job(
    "job_progress_ratio",
    MetricType.GAUGE,
    "ratio",
    "Progress of the training, from 0 to 1, as the TrainJob's status.trainerStatus says.",
    "From when the job has first shown how far it has come. Most jobs never do.",
    "recovery_job_progress_ratio",
)
JOB_PROGRESS_TIMESTAMP = _of_job(
    "job_progress_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When the TrainJob's status.trainerStatus was last updated.",
    "From when the job has first shown its progress.",
    "time() - recovery_job_progress_timestamp_seconds > 1800 and recovery_job_progress_ratio < 1",
)
_SMALLER = "While the group has fewer nodes than it wants, restarts that change that included."
GROUP_NODES = _of_job(
    "group_nodes",
    MetricType.GAUGE,
    "nodes",
    "Nodes that a smaller group has. During a restart that changes them, those that it will have after it.",
    f"{_SMALLER} Only a policy with `elastic` makes a group smaller.",
    "recovery_group_nodes / recovery_group_nodes_wanted",
)
GROUP_NODES_WANTED = _of_job(
    "group_nodes_wanted",
    MetricType.GAUGE,
    "nodes",
    "Nodes that a smaller group has when it has grown back: the size of its job, or the one that its user has set.",
    _SMALLER,
    "sum(recovery_group_nodes_wanted - recovery_group_nodes)",
)
GROUP_REDUCED_START = _of_job(
    "group_reduced_start_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "Since when the group has had fewer nodes than it wants. A growth that fails does not change this time.",
    _SMALLER,
    "time() - recovery_group_reduced_start_timestamp_seconds > 3600",
)
GROUP_FAILED_GROWTHS = _of_job(
    "group_failed_growths",
    MetricType.GAUGE,
    "growths",
    "Growths in a row that failed, usually for lack of nodes. Each one doubles the wait before the next one.",
    _SMALLER,
    "recovery_group_failed_growths > 2",
)
GROUP_REDUCED_SECONDS = _of_job(
    "group_reduced_seconds_total",
    MetricType.COUNTER,
    "seconds",
    "Seconds in which the group ran with fewer nodes than it wants. Its incidents do not count.",
    f"{SELECTED} It runs while a smaller group runs, two minutes behind.",
    "increase(recovery_group_reduced_seconds_total[1d]) / 3600",
)
GPU_GAINED_SECONDS = _of_job(
    "gpu_gained_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "GPU-seconds that the group ran with fewer nodes instead of waiting for nodes.",
    f"{SELECTED} It runs while a smaller group runs, two minutes behind.",
    "sum(increase(recovery_gpu_gained_seconds_total[1d])) / 3600",
)
GPUS_NOT_STARTED = _of_job(
    "gpus_not_started",
    MetricType.GAUGE,
    "GPUs",
    "GPUs held by the pods of a group of which not all members have ever run at once. 0: no pod has a node.",
    "From the first reconcile of a group that has not started until it has run whole.",
    "sum by (reason) (recovery_gpus_not_started)",
    one_of("reason", "What keeps the group from starting.", values.HINDRANCES),
)

OF_JOBS = (
    JOB_GPUS,
    JOB_INFO,
    GPUS_IDLE,
    GPUS_RELEASED,
    GPU_IDLE_SECONDS,
    GPU_IDLE_BY_CLASS_SECONDS,
    GPU_RELEASED_SECONDS,
    FAILURES,
    GROUP_RESTARTS,
    JOB_PHASE,
    JOB_STANDING,
    LAST_PHASE_DURATION,
    INCIDENT_START,
    INCIDENT_INFO,
    RENDEZVOUS_PARTICIPANTS,
    BUDGET_REMAINING,
    BUDGET_LIMIT,
    CRASH_LOOP,
    PROVEN_TIMESTAMP,
    PROOF_VALID,
    JOB_PROGRESS,
    JOB_PROGRESS_TIMESTAMP,
    GROUP_NODES,
    GROUP_NODES_WANTED,
    GROUP_REDUCED_START,
    GROUP_FAILED_GROWTHS,
    GROUP_REDUCED_SECONDS,
    GPU_GAINED_SECONDS,
    GPUS_NOT_STARTED,
)
