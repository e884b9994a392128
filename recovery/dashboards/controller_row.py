"""The row Controller: whether the controller itself works. Every replica reports on itself, so the series are raw."""

from recovery.dashboards.palette import BAD, GOOD, NEUTRAL, WARNING
from recovery.dashboards.panels import CORES, AnyPanel, Query, bars, lines, one_number, states, words

_P99 = "histogram_quantile(0.99, sum by (le{more}) (rate(recovery_{name}_bucket[$__rate_interval])))"


def panels() -> list[AnyPanel]:
    """The panels in their order."""
    return [*_election(), *_work(), *_api(), *_admission()]


def _election() -> list[AnyPanel]:
    return [
        states(
            "Leader",
            "Which replica leads. No leader for more than a minute, or two at once, is an alert of its own: see the"
            " runbooks of RecoveryControllerAbsent and RecoverySplitBrain.",
            Query("max by (pod) (recovery_leader)", "{{pod}}"),
            mapping=words({"0": ("Standby", NEUTRAL), "1": ("Leads", GOOD)}),
            width=12,
            height=5,
        ),
        bars(
            "Versions",
            "Replicas by the version that they run. Two versions for long: a rollout is stuck.",
            Query("count by (version) (recovery_build_info)", "{{version}}"),
            unit="none",
            colors={},
            width=4,
            height=5,
            decimals=0,
        ),
        one_number(
            "Changes of leader",
            "In this time range. A planned restart makes up to two. If there are more, see memory and event loop lag.",
            "round(sum(increase(recovery_leader_transitions_total[$__range])))",
            unit="none",
            steps=((None, NEUTRAL),),
            height=5,
        ),
        one_number(
            "Missing permissions",
            "Permissions that the controller needs and does not have. `kubectl recovery preflight` names them.",
            "count(max by (verb, resource) (recovery_missing_permissions)) or vector(0)",
            unit="none",
            steps=((None, GOOD), (1, BAD)),
            height=5,
        ),
    ]


def _work() -> list[AnyPanel]:
    return [
        lines(
            "Reconciles: slowest of a hundred",
            "p99 of one reconcile, interpolated in the buckets of the histogram. More than a second: look at the"
            " latency of API requests first.",
            [Query(_P99.format(name="reconcile_duration_seconds", more=", pod"), "{{pod}}")],
            unit="s",
            width=8,
        ),
        lines(
            "Queue: groups that are due",
            "Groups whose reconcile is due and has not begun. A line that only grows: the controller cannot keep up.",
            [Query("sum by (pod) (recovery_workqueue_depth)", "{{pod}}")],
            unit="none",
            width=8,
        ),
        lines(
            "Failed reconciles",
            "Errors per second. The controller tries again; errors that persist are in its log under the same job.",
            [Query("sum by (pod) (rate(recovery_reconcile_errors_total[$__rate_interval]))", "{{pod}}")],
            unit="cps",
            width=8,
        ),
        lines(
            "Event loop lag: slowest of a hundred",
            "p99 of how late the process wakes. More than 0.25 s: the process lacks CPU.",
            [Query(_P99.format(name="event_loop_lag_seconds", more=", pod"), "{{pod}}")],
            unit="s",
            width=8,
        ),
        lines(
            "CPU",
            "CPU time that the process uses, in cores. At the limit of the container, latency grows: raise the limit.",
            [
                Query(
                    "sum by (pod)"
                    " (rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) recovery_leader)",
                    "{{pod}}",
                )
            ],
            unit=CORES,
            width=8,
        ),
        lines(
            "Memory",
            "Resident memory. It grows with jobs and pods, and then stays level.",
            [Query("sum by (pod) (process_resident_memory_bytes and on (instance) recovery_leader)", "{{pod}}")],
            unit="bytes",
            width=8,
        ),
        lines(
            "Losses until their incident: slowest of a hundred",
            "p99 over an hour from the first event of a loss until the ledger has its incident, by what took most of"
            " it. More than a second by `queue`: the process lacks CPU. By `requests` or `backoff`: look at the"
            " latency and the answers of API requests.",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, cause) (rate(recovery_loss_wait_seconds_bucket[1h])))",
                    "{{cause}}",
                )
            ],
            unit="s",
            width=24,
        ),
    ]


def _api() -> list[AnyPanel]:
    return [
        lines(
            "API requests by answer",
            "Requests per second to the API server by HTTP status. 429 and 5xx: the API server is overloaded. 403: a"
            " permission is missing.",
            [Query("sum by (code) (rate(recovery_api_requests_total[$__rate_interval]))", "{{code}}")],
            unit="reqps",
            width=8,
        ),
        lines(
            "API requests: slowest of a hundred",
            "p99 by verb. Watches last minutes by design and are left out.",
            [
                Query(
                    _P99.format(name="api_request_duration_seconds", more=", verb").replace(
                        "_bucket[", '_bucket{verb!="watch"}['
                    ),
                    "{{verb}}",
                )
            ],
            unit="s",
            width=8,
        ),
        lines(
            "Age of the last watch event",
            "Since the quietest watch of each replica last delivered anything, bookmarks included. More than five"
            " minutes: the runbook of RecoveryWatchStale says how to find the resource.",
            [Query("max by (pod) (time() - (recovery_watch_last_event_timestamp_seconds > 0))", "{{pod}}")],
            unit="s",
            width=8,
        ),
    ]


def _admission() -> list[AnyPanel]:
    return [
        one_number(
            "Undecodable objects",
            "Objects that the controller cannot read. It leaves their groups alone. The log names object and field.",
            "sum(max by (resource) (recovery_undecodable_objects)) or vector(0)",
            unit="none",
            steps=((None, GOOD), (1, BAD)),
            width=4,
        ),
        one_number(
            "Certificate expires in",
            "Of the certificate that the admission webhooks serve. See the runbook of RecoveryCertificateExpiring.",
            "min(recovery_certificate_expiry_timestamp_seconds) - time()",
            unit="s",
            steps=((None, BAD), (7 * 86400, WARNING), (14 * 86400, GOOD)),
            width=4,
            if_none="No webhooks",
        ),
        one_number(
            "Admission webhooks",
            "Whether a replica serves the webhooks, so that policies and jobs are checked when they are created.",
            "max(recovery_admission_up)",
            unit="none",
            steps=((None, NEUTRAL),),
            mappings=[words({"0": ("Down", BAD), "1": ("Up", GOOD)})],
            width=4,
            if_none="Not installed",
        ),
        bars(
            "Admission answers",
            "Requests to the webhooks in this time range. error: the webhook itself failed, and the object was let"
            " through or refused by the failurePolicy.",
            Query("round(sum by (outcome) (increase(recovery_admission_requests_total[$__range])))", "{{outcome}}"),
            unit="none",
            colors={"allowed": GOOD, "warned": WARNING, "refused": "#7777DD", "error": BAD},
            width=12,
            height=4,
            decimals=0,
            if_none="No webhooks",
        ),
    ]
