"""What every replica reports about itself."""

from recovery.telemetry.catalogue import label_values as values
from recovery.telemetry.catalogue.record import PREFIX, MetricLabel, MetricRecord, MetricSource, MetricType, one_of

ALWAYS = "From the start."
ON_LINUX = "On Linux, from the start."
_VERB = MetricLabel("verb", "The verb of the request: get, list, watch, create, patch or delete.")
_RESOURCE = MetricLabel("resource", "The plural of the resource, with a subresource behind a slash.")
_QUEUE = one_of("name", "The queue.", (values.CONTROLLER,))
_CONTROLLER = one_of("controller", "The reconciler.", (values.CONTROLLER,))


def _of_process(
    name: str, kind: MetricType, unit: str, meaning: str, set_when: str, example: str, *labels: MetricLabel
) -> MetricRecord:
    return MetricRecord(f"{PREFIX}{name}", kind, meaning, unit, set_when, MetricSource.REPLICA, example, labels)


BUILD_INFO = _of_process(
    "build_info",
    MetricType.GAUGE,
    "always 1",
    "What runs.",
    ALWAYS,
    "count by (version) (recovery_build_info)",
    MetricLabel("version", "The version of the controller."),
)
LEADER = _of_process(
    "leader",
    MetricType.GAUGE,
    "0 or 1",
    "Whether this process acts: 1, or stands by: 0.",
    ALWAYS,
    "sum(recovery_leader) != 1",
)
HOLDS_FOR_ANOTHER = _of_process(
    "holds_for_another_controller",
    MetricType.GAUGE,
    "0 or 1",
    "Whether this process is elected but does nothing, because the controller of another installation, with an older "
    "Lease in another namespace, recovers the jobs.",
    ALWAYS,
    "sum(recovery_holds_for_another_controller) > 0",
)
LEADER_TRANSITIONS = _of_process(
    "leader_transitions_total",
    MetricType.COUNTER,
    "changes",
    "How often this process began to lead, or ceased to.",
    ALWAYS,
    "sum(increase(recovery_leader_transitions_total[1h])) > 4",
)
RECONCILE_DURATION = _of_process(
    "reconcile_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "Reconciles of a group.",
    "When a reconcile is over.",
    "histogram_quantile(0.99, sum by (le) (rate(recovery_reconcile_duration_seconds_bucket[5m])))",
    _CONTROLLER,
)
RECONCILE_ERRORS = _of_process(
    "reconcile_errors_total",
    MetricType.COUNTER,
    "reconciles",
    "Reconciles that ended in an error.",
    ALWAYS,
    "sum(rate(recovery_reconcile_errors_total[5m]))",
    _CONTROLLER,
)
WORKQUEUE_DEPTH = _of_process(
    "workqueue_depth",
    MetricType.GAUGE,
    "groups",
    "Groups whose reconcile is due.",
    ALWAYS,
    "max(recovery_workqueue_depth)",
    _QUEUE,
)
WORKQUEUE_WAIT = _of_process(
    "workqueue_queue_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "How long reconciles waited beyond their due time.",
    "When a reconcile begins.",
    "histogram_quantile(0.99, sum by (le) (rate(recovery_workqueue_queue_duration_seconds_bucket[5m])))",
    _QUEUE,
)
LOSS_WAIT = _of_process(
    "loss_wait_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "How long losses waited for their ledger: from the first event that a watch delivered until the write that opens "
    "the incident. No action is taken before that write.",
    "When a ledger write has opened an incident.",
    "histogram_quantile(0.99, sum by (le, cause) (rate(recovery_loss_wait_seconds_bucket[1h])))",
    one_of("cause", "What took most of the wait.", values.LOSS_WAITS),
)
EVENT_LOOP_LAG = _of_process(
    "event_loop_lag_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "How late the event loop wakes a sleeper.",
    "When the loop is sampled, twice a second.",
    "histogram_quantile(0.99, sum by (le, pod) (rate(recovery_event_loop_lag_seconds_bucket[5m])))",
)
API_REQUESTS = _of_process(
    "api_requests_total",
    MetricType.COUNTER,
    "requests",
    "Exchanges with the API server.",
    "When a request has ended.",
    'sum by (verb, resource, code) (rate(recovery_api_requests_total{code!~"2.."}[5m]))',
    _VERB,
    _RESOURCE,
    MetricLabel("code", "The HTTP status, or what came in its place."),
)
API_REQUEST_DURATION = _of_process(
    "api_request_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "How long exchanges with the API server take.",
    "When a request has ended.",
    "histogram_quantile(0.99, sum by (le, verb) (rate(recovery_api_request_duration_seconds_bucket[5m])))",
    _VERB,
    _RESOURCE,
)
WATCH_RESTARTS = _of_process(
    "watch_restarts_total",
    MetricType.COUNTER,
    "watches",
    "Watches that ended early.",
    "When a watch has ended otherwise than by its own time limit.",
    "sum by (resource, reason) (increase(recovery_watch_restarts_total[1h]))",
    _RESOURCE,
    one_of("reason", "Why it ended.", values.WATCH_ENDS),
)
WATCH_LAST_EVENT = _of_process(
    "watch_last_event_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When a watch last delivered anything, bookmarks included.",
    "From the first line of the watch.",
    "time() - recovery_watch_last_event_timestamp_seconds > 300",
    _RESOURCE,
)
UNDECODABLE_OBJECTS = _of_process(
    "undecodable_objects",
    MetricType.GAUGE,
    "objects",
    "Objects whose content cannot be read now. The controller does nothing about a job that one belongs to.",
    "From the first list. It is exported at 0 as well.",
    "max by (resource) (recovery_undecodable_objects) > 0",
    _RESOURCE,
)
STALE_WATCHES = _of_process(
    "stale_watches",
    MetricType.GAUGE,
    "0 or 1",
    "1 while the watch of a resource is silent, and the objects in the cache may be out of date. The controller begins "
    "no restart on stale facts. While nodes are stale, it quarantines none, and assumes no silent node to be dead.",
    "From the first list. It is exported at 0 as well.",
    "max by (resource) (recovery_stale_watches) > 0",
    _RESOURCE,
)
ADMISSION_UP = _of_process(
    "admission_up",
    MetricType.GAUGE,
    "0 or 1",
    "Whether this replica serves the admission webhooks. Nothing is checked while no replica does.",
    "Where admission is switched on.",
    "max(recovery_admission_up) == 0",
)
ADMISSION_REQUESTS = _of_process(
    "admission_requests_total",
    MetricType.COUNTER,
    "requests",
    "Objects that the webhooks have reviewed.",
    "Where admission is switched on. From the start for each webhook and outcome.",
    'sum by (webhook) (increase(recovery_admission_requests_total{outcome="refused"}[1d]))',
    MetricLabel("webhook", "The path of the webhook, which is the plural of what it reviews, or `prepare-trainjobs`."),
    one_of(
        "outcome",
        "`error`: a defect of the controller, and the object was admitted unchecked.",
        values.WEBHOOK_OUTCOMES,
    ),
)
CERTIFICATE_EXPIRY = _of_process(
    "certificate_expiry_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When the serving certificate of the webhooks expires.",
    "Where admission is switched on, from when the certificate can be read.",
    "(min(recovery_certificate_expiry_timestamp_seconds) - time()) / 86400 < 14",
)
_WHERE_AGENTS = "Where agents are answered (`--agent-address`)."
AGENT_REPORTS = _of_process(
    "agent_reports_total",
    MetricType.COUNTER,
    "reports",
    "Reports of agents.",
    f"{_WHERE_AGENTS} From the start for each result.",
    'sum by (result) (rate(recovery_agent_reports_total{result!="accepted"}[5m]))',
    one_of(
        "result",
        "What became of it. `standby`: the agent asks again, until the leader answers. `unavailable`: the API server "
        "did not check its token. `unanswered`: no reconcile decided in time.",
        values.AGENT_RESULTS,
    ),
)
AGENT_JOBS = _of_process(
    "agent_jobs",
    MetricType.GAUGE,
    "jobs",
    "Jobs whose agents have reported within the last 90 seconds. A standby has none.",
    _WHERE_AGENTS,
    "sum(recovery_agent_jobs)",
)
AGENT_REPORT_SECONDS = _of_process(
    "agent_report_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "How long accepted reports took until their answer was made.",
    f"{_WHERE_AGENTS} When a report has been answered.",
    "histogram_quantile(0.99, sum by (le) (rate(recovery_agent_report_seconds_bucket[5m])))",
)
AGENT_CERTIFICATE_EXPIRY = _of_process(
    "agent_certificate_expiry_timestamp_seconds",
    MetricType.GAUGE,
    "seconds since the epoch",
    "When the serving certificate of the agents' endpoint expires. It is replaced ten days before.",
    f"{_WHERE_AGENTS} From when there is one.",
    "(min(recovery_agent_certificate_expiry_timestamp_seconds) - time()) / 86400 < 5",
)
MISSING_PERMISSIONS = _of_process(
    "missing_permissions",
    MetricType.GAUGE,
    "always 1",
    "1 for each permission that was found missing at the start.",
    "From the start. No series: no permission was missing. A restart of the controller asks again.",
    "recovery_missing_permissions",
    _VERB,
    MetricLabel("resource", "As RBAC names it: `jobs.batch`."),
)


def _of_system(name: str, kind: MetricType, unit: str, meaning: str, example: str) -> MetricRecord:
    """As prometheus_client's ProcessCollector names them, on Linux only. The example is of our processes: others have
    these metrics as well."""
    return MetricRecord(
        f"process_{name}",
        kind,
        meaning,
        unit,
        ON_LINUX,
        MetricSource.REPLICA,
        f"{example} and on (instance) recovery_leader",
    )


OF_SYSTEM = (
    _of_system(
        "cpu_seconds_total",
        MetricType.COUNTER,
        "seconds",
        "CPU time that the process has used.",
        "rate(process_cpu_seconds_total[5m])",
    ),
    _of_system(
        "resident_memory_bytes",
        MetricType.GAUGE,
        "bytes",
        "Memory of the process that is resident.",
        "process_resident_memory_bytes / 2^20",
    ),
    _of_system(
        "virtual_memory_bytes",
        MetricType.GAUGE,
        "bytes",
        "Virtual memory of the process.",
        "process_virtual_memory_bytes / 2^20",
    ),
    _of_system(
        "start_time_seconds",
        MetricType.GAUGE,
        "seconds since the epoch",
        "When the process started.",
        "time() - process_start_time_seconds",
    ),
    _of_system(
        "open_fds",
        MetricType.GAUGE,
        "file descriptors",
        "File descriptors that the process has open.",
        "process_open_fds / process_max_fds",
    ),
    _of_system(
        "max_fds",
        MetricType.GAUGE,
        "file descriptors",
        "File descriptors that the process may have open.",
        "process_open_fds / process_max_fds",
    ),
)
"""prometheus_client gives them HELP lines of its own."""

OF_PROCESS = (
    BUILD_INFO,
    LEADER,
    HOLDS_FOR_ANOTHER,
    LEADER_TRANSITIONS,
    RECONCILE_DURATION,
    RECONCILE_ERRORS,
    WORKQUEUE_DEPTH,
    WORKQUEUE_WAIT,
    LOSS_WAIT,
    EVENT_LOOP_LAG,
    API_REQUESTS,
    API_REQUEST_DURATION,
    WATCH_RESTARTS,
    WATCH_LAST_EVENT,
    UNDECODABLE_OBJECTS,
    STALE_WATCHES,
    ADMISSION_UP,
    ADMISSION_REQUESTS,
    CERTIFICATE_EXPIRY,
    AGENT_REPORTS,
    AGENT_JOBS,
    AGENT_REPORT_SECONDS,
    AGENT_CERTIFICATE_EXPIRY,
    MISSING_PERMISSIONS,
)
