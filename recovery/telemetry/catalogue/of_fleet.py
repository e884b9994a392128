"""The metrics of the whole cluster, and the durations. The leader reports them; none has the labels of a job."""

from recovery.telemetry.catalogue import label_values as values
from recovery.telemetry.catalogue.record import PREFIX, MetricLabel, MetricRecord, MetricSource, MetricType, one_of

LEADS = "While this process leads."
_CLASS = one_of("failure_class", values.CLASS_MEANING, values.CLASSES)
_OUTCOME = one_of("outcome", "How the incident ended.", values.OUTCOMES)
_HANDLING = one_of(
    "handling",
    "`held`: it was Held at some time, so it waited for a user. `manual`: a user asked for the restart. "
    "`automatic`: neither.",
    values.HANDLINGS,
)
_START = "`Start`: no restart is known that it follows. "
_CAUSE = (
    "`RestartInPlace`: the agents started the processes again in their pods. The others: the action of the attempt "
    "that brought the group back, `None` if that was left to the platform."
)
_SCOPE = one_of("scope", "What is restarted.", (values.SCOPE,))


def _of_fleet(
    name: str, kind: MetricType, unit: str, meaning: str, set_when: str, example: str, *labels: MetricLabel
) -> MetricRecord:
    return MetricRecord(
        f"{PREFIX}{name}",
        kind,
        meaning,
        unit,
        set_when,
        MetricSource.LEADER,
        example,
        labels,
        preset=name.startswith("fleet_") or name in _PRESET,
    )


_PRESET = frozenset({"actions_suppressed_total", "quarantine_refusals_total", "jobs", "unprotected_jobs"})

FLEET_INCIDENTS = _of_fleet(
    "fleet_incidents_total",
    MetricType.COUNTER,
    "incidents",
    "Incidents that have ended, over all jobs.",
    f"{LEADS} It rises when an incident has ended.",
    'sum by (outcome) (increase(recovery_fleet_incidents_total{handling="automatic", failure_class!="Drill"}[7d]))',
    _CLASS,
    _OUTCOME,
    _HANDLING,
)
FLEET_GPU_IDLE_SECONDS = _of_fleet(
    "fleet_gpu_idle_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "GPU-seconds lost to incidents of all jobs, those of deleted jobs included.",
    f"{LEADS} It runs while an incident is open.",
    'sum by (badput) (increase(recovery_fleet_gpu_idle_seconds_total{reason!="drill"}[1d])) / 3600',
    one_of("reason", values.COUNTED_MEANING, values.COUNTED_REASONS),
    _CLASS,
    one_of("badput", "The same in the words of Google's goodput taxonomy.", values.BADPUT),
)
FLEET_GPU_RELEASED_SECONDS = _of_fleet(
    "fleet_gpu_released_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "GPU-seconds that the controller's own suspensions of jobs gave back to the cluster.",
    f"{LEADS} It runs while such a suspension is in force.",
    "increase(recovery_fleet_gpu_released_seconds_total[1d]) / 3600",
)
FLEET_GROUP_RESTARTS = _of_fleet(
    "fleet_group_restarts_total",
    MetricType.COUNTER,
    "restarts",
    "Restarts of groups of all jobs after failures, adopted ones of the platform included. Those of drills do not "
    "count.",
    f"{LEADS} It rises with each attempt that restarts a group.",
    "increase(recovery_fleet_group_restarts_total[1h])",
    _SCOPE,
)
FLEET_WOULD_RESTART = _of_fleet(
    "fleet_would_restart_total",
    MetricType.COUNTER,
    "restarts",
    "Restarts of groups that Enforce would have made in incidents of mode Observe.",
    f"{LEADS} It rises when such an incident has ended.",
    "increase(recovery_fleet_would_restart_total[7d])",
)
FLEET_WOULD_GPU_IDLE_SECONDS = _of_fleet(
    "fleet_would_gpu_idle_seconds_total",
    MetricType.COUNTER,
    "GPU-seconds",
    "Idle GPU-seconds of those incidents, with the restarts of Enforce and without. An estimate: "
    "[reports.md](reports.md#how-figures-are-made) has the formulas. The difference is what Enforce would have saved.",
    f"{LEADS} It rises when such an incident has ended.",
    '(increase(recovery_fleet_would_gpu_idle_seconds_total{by="platform"}[7d]) '
    '- ignoring(by) increase(recovery_fleet_would_gpu_idle_seconds_total{by="enforce"}[7d])) / 3600',
    one_of("by", "`enforce`: with its restarts. `platform`: without them.", values.ENFORCE_OR_PLATFORM),
)
JOBS = _of_fleet(
    "jobs",
    MetricType.GAUGE,
    "jobs",
    "Workloads by the mode of the policy that applies; `none`: no policy applies, or it cannot be used.",
    LEADS,
    'recovery_jobs{mode="none"} > 0',
    one_of("mode", "The mode in force: an open circuit breaker makes each `observe`.", (*values.MODES, values.NO_MODE)),
)
PAUSED = _of_fleet(
    "paused",
    MetricType.GAUGE,
    "0 or 1",
    "Whether the RecoveryConfig pauses all recoveries, or cannot be read, which pauses them as well.",
    LEADS,
    "recovery_paused == 1",
)
CIRCUIT_BREAKER_OPEN = _of_fleet(
    "circuit_breaker_open",
    MetricType.GAUGE,
    "0 or 1",
    "Whether the circuit breaker is open. No policy enforces until someone closes it.",
    LEADS,
    "recovery_circuit_breaker_open == 1",
)
NODES_QUARANTINED = _of_fleet(
    "nodes_quarantined",
    MetricType.GAUGE,
    "nodes",
    "Nodes that have the quarantine taint of the controller.",
    LEADS,
    "sum(recovery_nodes_quarantined)",
    one_of("by", "Who asked for it.", values.QUARANTINED_BY),
)
NODES_QUARANTINED_LIMIT = _of_fleet(
    "nodes_quarantined_limit",
    MetricType.GAUGE,
    "nodes",
    "How many nodes may be quarantined at once now: the smaller cap of the RecoveryConfig. 0: it allows none.",
    LEADS,
    "sum(recovery_nodes_quarantined) >= max(recovery_nodes_quarantined_limit > 0)",
)
NODE_SUSPICIONS = _of_fleet(
    "node_suspicions",
    MetricType.GAUGE,
    "incidents",
    "Incidents that a node is suspected for and that count.",
    f"{LEADS} A series for each node that is suspected.",
    "topk(5, recovery_node_suspicions)",
    MetricLabel("node", "The name of the node."),
)
UNPROTECTED_JOBS = _of_fleet(
    "unprotected_jobs",
    MetricType.GAUGE,
    "jobs",
    "Jobs that hang after a loss until someone acts. [commands.md](commands.md) describes each reason.",
    LEADS,
    "sum(recovery_unprotected_jobs)",
    one_of("reason", "What keeps the controller from acting.", values.UNPROTECTED_REASONS),
)
PHASE_DURATION = _of_fleet(
    "phase_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "Phases of incidents.",
    "When a phase has ended.",
    'histogram_quantile(0.9, sum by (le, phase) (rate(recovery_phase_duration_seconds_bucket{drill="false"}[1d])))',
    one_of("phase", "A phase that has ended.", tuple(phase for phase in values.PHASES if phase != "Healthy")),
    _SCOPE,
    one_of("drill", "Whether a drill caused the incident.", (values.NO_DRILL, values.DRILL)),
)
INCIDENT_DURATION = _of_fleet(
    "incident_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "Incidents, from the failure to their end.",
    "When an incident has ended.",
    "histogram_quantile(0.9, sum by (le) "
    '(rate(recovery_incident_duration_seconds_bucket{outcome="Recovered", handling="automatic", '
    'failure_class!="Drill"}[7d])))',
    _CLASS,
    _OUTCOME,
    _HANDLING,
)
RENDEZVOUS_DURATION = _of_fleet(
    "rendezvous_duration_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "From the first arrival until all members have joined, where an agent or a joined probe measures it.",
    "When a rendezvous has ended. Where both measure it, only the agent's observation counts. A rendezvous that ends "
    "while the leader changes is not counted, nor are more than 60 in an hour that the agents of one job report.",
    "histogram_quantile(0.9, sum by (le, cause) "
    '(rate(recovery_rendezvous_duration_seconds_bucket{outcome="Joined"}[1d])))',
    one_of(
        "source",
        "What measures it. `agent`: from when the first rank calls `init_process_group` until the last call returns. "
        "`joined-probe`: from when all members run until the probe of each says that it has joined.",
        values.RENDEZVOUS_SOURCES,
    ),
    one_of(
        "outcome",
        "`Joined`: all members have joined. `Interrupted`: a further loss, a restart or a time-out came before that.",
        values.RENDEZVOUS_OUTCOMES,
    ),
    one_of("cause", f"{_START}{_CAUSE}", values.RENDEZVOUS_CAUSES),
)
RENDEZVOUS_SINCE_TRIGGER = _of_fleet(
    "rendezvous_since_trigger_seconds",
    MetricType.HISTOGRAM,
    "seconds",
    "From the trigger of a restart until all members have joined, where an agent measures it.",
    "When a rendezvous that follows a restart has been joined. In place the trigger is the failure that ended the "
    "processes, else it is the start of the attempt in the ledger.",
    "histogram_quantile(0.9, sum by (le, cause) (rate(recovery_rendezvous_since_trigger_seconds_bucket[1d])))",
    one_of("cause", _CAUSE, values.RESTART_CAUSES),
)
DECISIONS = _of_fleet(
    "decisions_total",
    MetricType.COUNTER,
    "decisions",
    "Decisions about incidents, suppressed ones included.",
    "When the ledger write that holds the decision has succeeded.",
    "sum by (action, reason) (increase(recovery_decisions_total[1d]))",
    one_of("action", "What is done; under Observe, what Enforce would do.", values.ACTIONS),
    MetricLabel("reason", "The reason code of the decision, as in status and Events."),
    one_of("mode", "The mode of the incident.", values.MODES),
)
ACTIONS_SUPPRESSED = _of_fleet(
    "actions_suppressed_total",
    MetricType.COUNTER,
    "actions",
    "Actions called for and not taken.",
    "When the ledger write that holds the decision has succeeded.",
    "sum by (reason) (increase(recovery_actions_suppressed_total[1d]))",
    one_of("reason", "What kept the action from being taken.", values.SUPPRESSED),
)
QUARANTINE_REFUSALS = _of_fleet(
    "quarantine_refusals_total",
    MetricType.COUNTER,
    "refusals",
    "Nodes that were called for quarantine and not quarantined.",
    "When the ledger write that holds the refusal has succeeded.",
    "sum by (reason) (increase(recovery_quarantine_refusals_total[1d]))",
    one_of(
        "reason",
        "`cap`: as many nodes are quarantined as RecoveryConfig allows. "
        "`namespace_cap`: as many for jobs of that namespace. "
        "`unconfirmed`: only messages of one namespace blame the node. "
        "`permission`: the RecoveryConfig does not allow it. "
        "`feasible`: a job would have too few nodes left, or it is not known yet whether it would.",
        values.REFUSALS,
    ),
)

OF_FLEET = (
    FLEET_INCIDENTS,
    FLEET_GPU_IDLE_SECONDS,
    FLEET_GPU_RELEASED_SECONDS,
    FLEET_GROUP_RESTARTS,
    FLEET_WOULD_RESTART,
    FLEET_WOULD_GPU_IDLE_SECONDS,
    JOBS,
    PAUSED,
    CIRCUIT_BREAKER_OPEN,
    NODES_QUARANTINED,
    NODES_QUARANTINED_LIMIT,
    NODE_SUSPICIONS,
    UNPROTECTED_JOBS,
)
DURATIONS_AND_DECISIONS = (
    PHASE_DURATION,
    INCIDENT_DURATION,
    RENDEZVOUS_DURATION,
    RENDEZVOUS_SINCE_TRIGGER,
    DECISIONS,
    ACTIONS_SUPPRESSED,
    QUARANTINE_REFUSALS,
)
