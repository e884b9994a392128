"""Alerts about one job, by its namespace and name. Those that explain others come first."""

from recovery.dashboards.alert import Alert, AlertSeverity
from recovery.dashboards.series import DEAD_MEMBER, INCIDENT_SEEN, job_series

_J = "namespace, job_name"
_JOB = "{{ $labels.namespace }}/{{ $labels.job_name }}"
_EXPLAIN = "Run `recovery explain {{ $labels.job_name }} -n {{ $labels.namespace }}`."
# In phase Resuming all ranks are Ready. A job that seldom reports progress may already train in it.
_IDLE_FOR_SURE = f'sum by ({_J}) ({job_series("recovery_gpus_idle")}{{reason!="resume"}})'
_START = job_series("recovery_incident_start_timestamp_seconds")
_PHASE = job_series("recovery_job_phase")
_STANDING = job_series("recovery_job_standing")
_PARTICIPANTS = job_series("recovery_rendezvous_participants")
_REMAINING = job_series("recovery_restart_budget_remaining")
_LIMIT = job_series("recovery_restart_budget_limit")
_CRASH_LOOP = job_series("recovery_job_crash_loop")
_GPUS = job_series("recovery_job_gpus")
_PROGRESS_AT = job_series("recovery_job_progress_timestamp_seconds")
_PROGRESS = job_series("recovery_job_progress_ratio")
_NOT_STARTED = job_series("recovery_gpus_not_started")
_PROOF_VALID = job_series("recovery_proof_valid")
_SMALLER_SINCE = job_series("recovery_group_reduced_start_timestamp_seconds")

OVERDUE_SECONDS = 600
IDLE_GPUS_MIN = 64
IDLE_SHARE = 0.1
LOW_SHARE = 0.25
LOOP_RESTARTS = 3
STALLED_SECONDS = 1800
SMALLER_SECONDS = 3600
NOT_PROVEN_SECONDS = 3600
SEEN_SLACK_SECONDS = 60
"""A member may have died this long after the last sample in which its incident was open."""

_ATTENDED = (
    # Only a running controller attends to an incident. An incident that a stopped one left open helps no one.
    f"(last_over_time({INCIDENT_SEEN}[1d]) >= on ({_J}) ({DEAD_MEMBER} - {SEEN_SLACK_SECONDS}))"
    " and on () (sum(recovery_leader) > 0)"
)

JOB_ALERTS = (
    Alert(
        name="RecoveryDeadMemberUnattended",
        # A failed pod remains after the platform has replaced it, so a death more than a day ago means nothing.
        expr=f"time() - ({DEAD_MEMBER} > time() - 86400 unless on ({_J}) ({_ATTENDED}))",
        for_seconds=300,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} has a dead member, and no incident of the controller is about it.",
        description=f"A member of {_JOB} died {{{{ $value | humanizeDuration }}}} ago while others run. "
        "kube-state-metrics reports this without the controller. The other ranks wait for it. "
        "Run `recovery status -n {{ $labels.namespace }}`, and check that the controller runs.",
        per_job=True,
    ),
    Alert(
        name="RecoveryHeldGPUs",
        expr=f'sum by ({_J}) ({job_series("recovery_gpus_idle")}{{reason="hung"}}) > 0'
        f' and on ({_J}) {_PHASE}{{phase="Held"}} == 1',
        for_seconds=300,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} is held and keeps its GPUs ({{{{ $value }}}}).",
        description=f"{_JOB} stopped training, waits for a person, and its GPUs stay allocated. "
        f"{_EXPLAIN} Then run `recovery retry`, or suspend or delete the job.",
        per_job=True,
    ),
    Alert(
        name="RecoveryHeld",
        expr=f'{_PHASE}{{phase="Held"}} == 1',
        for_seconds=300,
        severity=AlertSeverity.WARNING,
        summary=f"{_JOB} is held until a person acts.",
        description=f"{_JOB} does not train, and the controller does not restart it again by itself. {_EXPLAIN}",
        per_job=True,
        explained_by=("RecoveryHeldGPUs",),
    ),
    Alert(
        name="RecoveryGroupBroken",
        # While an incident is open, its own alerts count: it may repair the group. A group without GPUs hangs too.
        expr=f'sum by ({_J}) ({job_series("recovery_gpus_idle")}{{reason="hung"}})'
        f' and on ({_J}) {_STANDING}{{standing="Broken"}} == 1 and on ({_J}) {_PHASE}{{phase="Healthy"}} == 1',
        for_seconds=300,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} hangs, and nothing restarts it (idle GPUs: {{{{ $value }}}}).",
        description=f"A rank of {_JOB} ended, its other ranks wait for it, and no incident is open. "
        f"{_EXPLAIN} Then run `recovery retry`, or suspend or delete the job.",
        per_job=True,
    ),
    Alert(
        name="RecoveryRestartBudgetExhausted",
        expr=f"{_REMAINING} == 0 and on ({_J}) {_LIMIT} > 0",
        for_seconds=60,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} has no recovery left in its budget.",
        description=f"The restart budget of {_JOB} is used up: the next failure stops the job. "
        f"{_EXPLAIN} When the cause is gone, run `recovery reset-budget`.",
        per_job=True,
    ),
    Alert(
        name="RecoveryCrashLoop",
        expr=f"{_CRASH_LOOP} == 1",
        for_seconds=60,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} fails again and again, and its JobSet or another client restarts it.",
        description=f"{_JOB} has restarted more often than its budget allows. The controller cannot stop that. "
        f"{_EXPLAIN} It says what restarts the job, and how to stop it.",
        per_job=True,
    ),
    Alert(
        name="RecoveryBudgetLow",
        expr=f"{_REMAINING} > 0 and on ({_J}) {_REMAINING} <= on ({_J}) clamp_min({LOW_SHARE} * {_LIMIT}, 1)"
        f" and on ({_J}) {_LIMIT} > 1",
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary=f"{_JOB} has little of its budget left (recoveries: {{{{ $value }}}}).",
        description=f"Most of the restart budget of {_JOB} is used up. {_EXPLAIN}",
        per_job=True,
    ),
    Alert(
        name="RecoveryRendezvousStuck",
        # Before all pods have run at once, RecoveryNotStarted is about those that do not.
        expr=f'{_PARTICIPANTS}{{state="joined"}} < ignoring (state) {_PARTICIPANTS}{{state="expected"}}'
        f" unless on ({_J}) {_NOT_STARTED}",
        for_seconds=300,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} waits for members to join (joined: {{{{ $value }}}}).",
        description=f"The ranks of {_JOB} started, and after 5 minutes some have not joined. The others wait for them. "
        f"{_EXPLAIN} In an incident, it names a missing rank.",
        per_job=True,
    ),
    Alert(
        name="RecoveryOverdue",
        expr=f'time() - {_START} > {OVERDUE_SECONDS} unless on ({_J}) {_PHASE}{{phase=~"Held|Resuming"}} == 1',
        # An age does not flap. With a longer `for`, RecoveryGPUsIdle, which this alert explains, would page first.
        for_seconds=0,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_JOB} has not recovered for {{{{ $value | humanizeDuration }}}}.",
        description=f"The incident of {_JOB} has been open for {{{{ $value | humanizeDuration }}}}. {_EXPLAIN}",
        per_job=True,
        explained_by=("RecoveryRendezvousStuck", "RecoveryCircuitBreakerOpen", "RecoveryPaused"),
    ),
    Alert(
        name="RecoveryGPUsIdle",
        expr=f"{_IDLE_FOR_SURE} >= {IDLE_GPUS_MIN}"
        f" and on ({_J}) ({_IDLE_FOR_SURE} >= on ({_J}) ({IDLE_SHARE} * {_GPUS}))",
        for_seconds=600,
        severity=AlertSeverity.CRITICAL,
        summary=f"{{{{ $value }}}} GPUs of {_JOB} are idle.",
        description=f"{{{{ $value }}}} GPUs of {_JOB} have been idle for 10 minutes because of failures. {_EXPLAIN}",
        per_job=True,
        explained_by=(
            "RecoveryHeldGPUs",
            "RecoveryGroupBroken",
            "RecoveryRendezvousStuck",
            "RecoveryOverdue",
            "RecoveryCircuitBreakerOpen",
            "RecoveryPaused",
        ),
    ),
    Alert(
        name="RecoveryRestartLoop",
        expr=f"sum by ({_J}) (increase({job_series('recovery_group_restarts_total')}[1h])) >= {LOOP_RESTARTS}",
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary=f'{_JOB} has restarted {{{{ $value | printf "%.0f" }}}} times within an hour.',
        description=f"{_JOB} fails again and again. Each restart costs its work since the last checkpoint. {_EXPLAIN}",
        per_job=True,
        explained_by=("RecoveryRestartBudgetExhausted", "RecoveryCrashLoop"),
    ),
    Alert(
        name="RecoveryNotStarted",
        expr=f"sum by ({_J}) ({_NOT_STARTED}) > 0",
        for_seconds=1800,
        severity=AlertSeverity.WARNING,
        summary=f"{_JOB} holds GPUs ({{{{ $value }}}}) and has not started for 30 minutes.",
        description=f"Some pods of {_JOB} run and hold GPUs, others cannot start. {_EXPLAIN}",
        per_job=True,
    ),
    Alert(
        name="RecoveryProgressStalled",
        expr=f"time() - {_PROGRESS_AT} > {STALLED_SECONDS}"
        f" and on ({_J}) {_PROGRESS} < 1 and on ({_J}) {_GPUS} > 0 unless on ({_J}) {_START}",
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary=f"{_JOB} has reported no progress for {{{{ $value | humanizeDuration }}}}.",
        description=f"{_JOB} reported progress before, and stopped. No incident is open, so it may hang. {_EXPLAIN}",
        per_job=True,
        explained_by=("RecoveryGroupBroken",),
    ),
    Alert(
        name="RecoveryFewerNodes",
        expr=f"time() - {_SMALLER_SINCE} > {SMALLER_SECONDS}",
        for_seconds=60,
        severity=AlertSeverity.WARNING,
        summary=f"{_JOB} has had fewer nodes than it wants for {{{{ $value | humanizeDuration }}}}.",
        description=f"{_JOB} lost nodes that nothing has replaced, so it trains more slowly. "
        f"It grows by itself once there is room. {_EXPLAIN}",
        per_job=True,
        explained_by=("RecoveryCircuitBreakerOpen", "RecoveryPaused"),
    ),
    Alert(
        name="RecoveryNotProven",
        expr=f"{_PROOF_VALID} == 0",
        # A job that has just started can be drilled within that time, and a recovery in progress becomes a proof.
        for_seconds=NOT_PROVEN_SECONDS,
        severity=AlertSeverity.INFO,
        summary=f"Nothing proves that {_JOB} recovers from a failure.",
        description=f"The policy of {_JOB} asks for a proof (drill.maxAge). There is none, it is too old, or the "
        f"runtime, the policy or the image has changed since. {_EXPLAIN} Then run a drill.",
        per_job=True,
    ),
)
