"""Alerts about the controller and about the fleet. Those that explain others come first."""

from recovery.dashboards.alert import Alert, AlertSeverity
from recovery.dashboards.series import ETTR_OF_FLEET_1H, NO_DRILL, fleet_series

WATCH_STALE_SECONDS = 300
"""The API server sends a bookmark each minute."""
CERTIFICATE_DAYS = 14
"""cert-manager renews 30 days before expiry, and the controller renews its own certificate even earlier."""
QUEUE_LAG_SECONDS = 5
LOSS_WAIT_SECONDS = 1
ERROR_SHARE = 0.05
QUARANTINE_SHARE = 0.8
UNCLASSIFIED_MIN = 3
UNCLASSIFIED_SHARE = 0.25
EFFICIENCY_MIN = 0.9

_PODS = "pods -A -l app.kubernetes.io/name=trainjob-recovery"
"""The controller's pods, in any namespace."""

_INCIDENTS = fleet_series("recovery_fleet_incidents_total")
_ERRORS = 'code=~"5..|429|timeout|connection"'
_REPLICA = "{{ $labels.instance }}"
_LOSS_WAIT = "recovery_loss_wait_seconds_bucket"
_QUEUE_WAIT = "recovery_workqueue_queue_duration_seconds_bucket"

OWN_ALERTS = (
    Alert(
        name="RecoveryControllerAbsent",
        expr="absent(recovery_leader)",
        for_seconds=300,
        severity=AlertSeverity.CRITICAL,
        summary="No recovery controller is scraped.",
        description="Jobs that lose a member hang until a person acts, or the controller is not scraped. "
        f"Run `kubectl get {_PODS}`.",
    ),
    Alert(
        name="RecoveryNoLeader",
        expr="sum(recovery_leader) == 0",
        for_seconds=120,
        severity=AlertSeverity.CRITICAL,
        summary="Recovery controllers run, and none of them leads.",
        description="Nothing recovers until one leads. "
        "Run `kubectl get lease -A --field-selector metadata.name=recovery-controller -o yaml`.",
    ),
    Alert(
        name="RecoverySplitBrain",
        expr="sum(recovery_leader) > 1 or sum(recovery_holds_for_another_controller) > 0",
        for_seconds=120,
        severity=AlertSeverity.WARNING,
        summary="Two recovery controllers are elected, by two Leases.",
        description="The one with the older Lease recovers the jobs, and the other one holds once it has seen that. "
        "Run `kubectl get lease -A`, and remove the second installation.",
    ),
    Alert(
        name="RecoveryCircuitBreakerOpen",
        expr=f"{fleet_series('recovery_circuit_breaker_open')} == 1",
        for_seconds=60,
        severity=AlertSeverity.CRITICAL,
        summary="The circuit breaker is open: no job is recovered.",
        description="Too many recoveries were futile, so the controller only observes until a person closes the "
        "breaker. Run `kubectl get recoveryconfig default -o jsonpath={.status.breaker}`, "
        "repair the cause, then run `recovery reset-breaker`.",
    ),
    Alert(
        name="RecoveryPaused",
        expr=f"{fleet_series('recovery_paused')} == 1",
        for_seconds=3600,
        severity=AlertSeverity.WARNING,
        summary="Recovery has been paused for the whole cluster for an hour.",
        description="The RecoveryConfig sets spec.paused, or cannot be read. No job is recovered. "
        "Run `kubectl get recoveryconfig default -o jsonpath={.spec}`.",
    ),
    Alert(
        name="RecoveryPermissionMissing",
        # An installation that only observes withholds permissions on purpose (manifests/overlays/observe).
        expr="max by (verb, resource) (recovery_missing_permissions) == 1"
        f' and on () {fleet_series("recovery_jobs")}{{mode="enforce"}} > 0',
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary="The controller may not {{ $labels.verb }} {{ $labels.resource }}.",
        description="The controller found at its start that it may not {{ $labels.verb }} {{ $labels.resource }}. "
        "Apply manifests/rbac, and manifests/enforce where policies enforce.",
    ),
    Alert(
        name="RecoveryWatchStale",
        expr=f"time() - recovery_watch_last_event_timestamp_seconds > {WATCH_STALE_SECONDS}",
        for_seconds=120,
        severity=AlertSeverity.WARNING,
        summary=f"{_REPLICA} has heard nothing of {{{{ $labels.resource }}}} for {{{{ $value | humanizeDuration }}}}.",
        description="The controller may act late: its cache of {{ $labels.resource }} is old. "
        f"Run `kubectl get {_PODS}`, and read their logs.",
    ),
    Alert(
        name="RecoveryUndecodableObjects",
        expr="max by (resource) (recovery_undecodable_objects) > 0",
        for_seconds=300,
        severity=AlertSeverity.WARNING,
        summary="The controller cannot read {{ $value }} of the {{ $labels.resource }}.",
        description="The jobs to which these {{ $labels.resource }} belong are not recovered. "
        "Run `recovery status -A -o wide`.",
    ),
    Alert(
        name="RecoveryAPIErrors",
        expr=f"sum by (instance) (rate(recovery_api_requests_total{{{_ERRORS}}}[5m]))"
        f" / sum by (instance) (rate(recovery_api_requests_total[5m])) > {ERROR_SHARE}",
        for_seconds=600,
        severity=AlertSeverity.WARNING,
        summary=f"{{{{ $value | humanizePercentage }}}} of the requests of {_REPLICA} fail.",
        description=f"The API server refuses, throttles or does not answer {_REPLICA}. Recoveries take longer. "
        "Run `kubectl get --raw '/readyz?verbose'`.",
    ),
    Alert(
        name="RecoveryLossWait",
        expr=f"histogram_quantile(0.99, sum by (instance, le) (rate({_LOSS_WAIT}[15m]))) > {LOSS_WAIT_SECONDS}",
        for_seconds=300,
        severity=AlertSeverity.WARNING,
        summary=f"Losses wait {{{{ $value | humanizeDuration }}}} before {_REPLICA} opens their incident.",
        description="Other groups keep the controller busy, or the API server answers slowly. Recoveries begin later "
        f"by as much. Run `kubectl top {_PODS}`.",
    ),
    Alert(
        name="RecoveryQueueLag",
        expr=f"histogram_quantile(0.99, sum by (instance, le) (rate({_QUEUE_WAIT}[5m]))) > {QUEUE_LAG_SECONDS}",
        for_seconds=600,
        severity=AlertSeverity.WARNING,
        summary=f"Reconciles of {_REPLICA} start {{{{ $value | humanizeDuration }}}} late.",
        description="The controller has more to do than it can, or its event loop is blocked. "
        f"Run `kubectl top {_PODS}`.",
    ),
    Alert(
        name="RecoveryAdmissionDown",
        expr="max(recovery_admission_up) == 0",
        for_seconds=300,
        severity=AlertSeverity.WARNING,
        summary="The admission webhooks are not served.",
        description="Policies and TrainJobs are accepted without a check. Recoveries go on. "
        f"Run `kubectl get {_PODS}`, and read their logs.",
    ),
    Alert(
        name="RecoveryCertificateExpiring",
        expr=f"min(recovery_certificate_expiry_timestamp_seconds) - time() < {CERTIFICATE_DAYS} * 86400",
        for_seconds=3600,
        severity=AlertSeverity.WARNING,
        summary="The certificate of the webhooks ends in {{ $value | humanizeDuration }}.",
        description="It was not renewed in time. When it has ended, nothing is checked any more. "
        "Run `kubectl get secret -A | grep recovery-admission`.",
    ),
    Alert(
        name="RecoveryQuarantineHigh",
        expr=f"sum({fleet_series('recovery_nodes_quarantined')}) >="
        f" {QUARANTINE_SHARE} * max({fleet_series('recovery_nodes_quarantined_limit')} > 0)",
        for_seconds=300,
        severity=AlertSeverity.WARNING,
        summary="The number of quarantined nodes ({{ $value }}) is close to the cap.",
        description="At the cap no further node is quarantined, and jobs may restart on faulty ones. "
        "Run `kubectl get recoveryconfig default -o jsonpath={.status.quarantined}`, "
        "repair nodes, then run `recovery release`.",
    ),
    Alert(
        name="RecoveryUnclassifiedFailures",
        expr=f'sum(increase({_INCIDENTS}{{failure_class=~"Unknown|unknown"}}[6h])) >= {UNCLASSIFIED_MIN}'
        f' and sum(increase({_INCIDENTS}{{failure_class=~"Unknown|unknown"}}[6h]))'
        f" / sum(increase({_INCIDENTS}{{{NO_DRILL}}}[6h])) > {UNCLASSIFIED_SHARE}",
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary='{{ $value | printf "%.0f" }} failures of the last 6 hours have no known cause.',
        description="Rules by class do not apply to them, so they get the default action. "
        "Run `kubectl get recoveryincidents -A`.",
    ),
    Alert(
        name="RecoveryUnprotectedJobs",
        expr=f"sum by (reason) ({fleet_series('recovery_unprotected_jobs')}) > 0",
        for_seconds=3600,
        severity=AlertSeverity.INFO,
        summary="Some jobs ({{ $value }}) are not protected: {{ $labels.reason }}.",
        description="If one of them loses a member, its other ranks hang until a person acts. "
        "Run `recovery status -A -o wide`.",
    ),
    Alert(
        name="RecoveryEfficiencyBurn",
        expr=f"{ETTR_OF_FLEET_1H} < {EFFICIENCY_MIN}",
        for_seconds=600,
        severity=AlertSeverity.WARNING,
        summary="Only {{ $value | humanizePercentage }} of the last hour's GPU time was without an incident.",
        description="Incidents cost more than a tenth of the fleet's GPU time within the last hour. "
        "Run `recovery status -A`.",
    ),
)
