"""The dashboard of a job: what happens to it now, what its incidents cost, and what it may still spend."""

from recovery.dashboards.frame import FLEET_UID, JOB_UID, TO_RUNBOOK, board
from recovery.dashboards.gpu_time import gpu_time_figures
from recovery.dashboards.palette import (
    BAD,
    BADPUT_COLORS,
    CLASS_COLORS,
    GOOD,
    NEUTRAL,
    PHASE_REASONS,
    REASON_COLORS,
    WARNING,
)
from recovery.dashboards.panels import (
    GPU_HOURS,
    GPUS,
    PHASE_NAMES,
    STANDING_NAMES,
    AnyPanel,
    BoardColumn,
    Query,
    bars,
    drills,
    lines,
    of_fleet,
    of_jobs,
    oldest_incident,
    one_number,
    phase_number,
    rows,
    standing_number,
    states,
    words,
)
from recovery.dashboards.series import ETTR_OF_JOB_1H, NO_DRILL, NOT_OF_DRILLS

_JOB = "{{namespace}}/{{job_name}}"
_PHASE_COLORS = {phase: REASON_COLORS[reason] for phase, reason in PHASE_REASONS.items()}


def job_board() -> str:
    """The JSON of the dashboard."""
    return board(
        uid=JOB_UID,
        title="TrainJob recovery / Job",
        description=(
            "Failure recovery of the jobs that you choose above, best one at a time. docs/dashboards.md describes each"
            " row."
        ),
        other=(FLEET_UID, "Fleet dashboard"),
        rows={
            "Now": _now(),
            "Incidents": _incidents(),
            "Where GPU time goes": _gpu_time(),
            "Rendezvous": _rendezvous(),
            "Nodes": _nodes(),
            "Controller": _controller(),
        },
    )


def _now() -> list[AnyPanel]:
    return [
        one_number(
            "Phase",
            "Where the incident stands; Healthy: none is open. `kubectl recovery explain` says why. With several jobs"
            " chosen, the phase that comes last.",
            f"max({phase_number()})",
            unit="none",
            steps=((None, GOOD),),
            mappings=[PHASE_NAMES],
        ),
        one_number(
            "Standing",
            "Whether the program trains. Met: all ranks have met, and none has ended since. Forming: they start."
            " Broken: a rank ended and the others hang; between incidents see the runbook of RecoveryGroupBroken."
            " Unknown: the facts do not say. With several jobs chosen, the worst.",
            f"max({standing_number()})",
            unit="none",
            steps=((None, GOOD),),
            mappings=[STANDING_NAMES],
            width=3,
        ),
        one_number(
            "Open for",
            "How long the open incident has lasted. More than ten minutes is overdue: see the runbook of"
            " RecoveryOverdue. In phase Resuming all members run, and the incident does not count.",
            oldest_incident(),
            unit="s",
            steps=((None, WARNING), (600, BAD)),
            if_none="None",
            width=3,
        ),
        one_number(
            "GPUs idle now",
            "GPUs of the job that do no training because of an incident, or because its ranks hang after one.",
            f"sum({of_jobs('gpus_idle')}) or vector(0)",
            unit=GPUS,
            steps=((None, GOOD), (1, WARNING), (64, BAD)),
        ),
        one_number(
            "GPUs of the job",
            "GPUs that the group holds. During an incident: what it held when the incident began.",
            f"sum({of_jobs('job_gpus')})",
            unit=GPUS,
            steps=((None, NEUTRAL),),
            if_none="No such job",
        ),
        one_number(
            "Restarts left",
            "What the restart budget still allows. At 0 the next failure holds the group until a person acts: see the"
            " runbook of RecoveryRestartBudgetExhausted.",
            f"min({of_jobs('restart_budget_remaining')})",
            unit="none",
            steps=((None, BAD), (1, WARNING), (2, GOOD)),
            if_none="No budget",
            width=3,
        ),
        one_number(
            "Progress",
            "Share of the training that is done, as TrainJob.status.trainerStatus reports it. Only some trainings"
            " report it.",
            f"min({of_jobs('job_progress_ratio')})",
            unit="percentunit",
            steps=((None, NEUTRAL),),
            if_none="Not reported",
            width=3,
        ),
        rows(
            "Open incident",
            "What `kubectl get recoveryincidents` and the log call the incident, its cause and its phase. Cause Drill:"
            " a person caused the failure by `recovery chaos run`.",
            [
                Query(
                    f"(time() - {of_jobs('incident_start_timestamp_seconds')}) * on (namespace, job_name)"
                    f" group_left (incident, failure_class) {of_jobs('incident_info')}"
                ),
                Query(f"{phase_number()} and on (namespace, job_name) {of_jobs('incident_info')}"),
            ],
            [
                BoardColumn("namespace", "Namespace"),
                BoardColumn("job_name", "Job"),
                BoardColumn("incident", "Incident"),
                BoardColumn("failure_class", "Cause"),
                BoardColumn("Value #B", "Phase", mappings=(PHASE_NAMES,)),
                BoardColumn("Value #A", "Open for", unit="s"),
            ],
            width=16,
            height=5,
            if_none="No incident is open",
        ),
        rows(
            "Alerts that fire for these jobs",
            "A click on the alert opens its runbook.",
            [
                Query(
                    'ALERTS{alertname=~"Recovery.+", alertstate="firing", namespace=~"$namespace",'
                    ' job_name=~"$job_name"}'
                )
            ],
            [
                BoardColumn("alertname", "Alert", link=TO_RUNBOOK),
                BoardColumn("severity", "Severity", width=80),
                BoardColumn("job_name", "Job", width=120),
            ],
            width=8,
            height=5,
            if_none="No alert fires",
        ),
        lines(
            "Idle GPUs by phase",
            "Each colour is what the group waits for. The area is what the incidents cost.",
            [Query(f"sum by (reason) ({of_jobs('gpus_idle')})", "{{reason}}")],
            unit=GPUS,
            colors=REASON_COLORS,
            width=24,
            stacked=True,
        ),
    ]


def _incidents() -> list[AnyPanel]:
    return [
        states(
            "Phases",
            "When incidents were open, and how long each phase took. The same phase long each time is where to look.",
            Query(phase_number(), _JOB),
            mapping=PHASE_NAMES,
            height=5,
        ),
        bars(
            "Incidents by cause",
            "Incidents that began in this time range, without drills. The same cause again and again: the next restart"
            " will not help.",
            Query(
                f"round(sum by (failure_class) (increase({of_jobs('failures_total', NO_DRILL)}[$__range]))) > 0",
                "{{failure_class}}",
            ),
            unit="none",
            colors=CLASS_COLORS,
            decimals=0,
            if_none="No incident",
        ),
        bars(
            "Phases of the last incident",
            "Seconds of each phase, also of a drill. Compare them with docs/architecture.md: what normally takes how"
            " long.",
            Query(f"max by (phase) ({of_jobs('last_phase_duration_seconds')}) > 0", "{{phase}}"),
            unit="s",
            colors=_PHASE_COLORS,
            if_none="No incident yet",
        ),
        lines(
            "Restart budget",
            "What is left of the restarts that the policy allows within its window. Spent ones come back when they"
            " leave the window.",
            [
                Query(f"min by (namespace, job_name) ({of_jobs('restart_budget_remaining')})", f"{_JOB} left"),
                Query(f"max by (namespace, job_name) ({of_jobs('restart_budget_limit')})", f"{_JOB} limit"),
            ],
            unit="none",
            width=8,
            stepped=True,
        ),
        one_number(
            "Drills",
            "Incidents of this time range that `recovery chaos run` caused. They are no failures: Incidents by cause"
            " leaves them out.",
            f"round(sum({drills()})) or vector(0)",
            unit="none",
            steps=((None, NEUTRAL),),
            width=24,
        ),
    ]


def _gpu_time() -> list[AnyPanel]:
    idle = of_jobs("gpu_idle_seconds_total", NOT_OF_DRILLS)
    return [
        *gpu_time_figures("the job's", "the suspended group"),
        lines(
            "Effective training time of the last hour",
            "ETTR of each moment's last hour.",
            [Query(f'{ETTR_OF_JOB_1H}{{namespace=~"$namespace", job_name=~"$job_name"}}', _JOB)],
            unit="percentunit",
            width=24,
            top=1,
        ),
        bars(
            "GPU-hours lost by phase",
            "What idle GPUs waited for.",
            Query(f"sort_desc(sum by (reason) (increase({idle}[$__range])) / 3600 > 0)", "{{reason}}"),
            unit=GPU_HOURS,
            colors=REASON_COLORS,
            if_none="Nothing lost",
        ),
        bars(
            "GPU-hours lost by cause",
            "The same GPU-hours by what caused the incident.",
            Query(
                f"sort_desc(sum by (failure_class)"
                f" (increase({of_jobs('gpu_idle_by_class_seconds_total', NO_DRILL)}[$__range])) / 3600 > 0)",
                "{{failure_class}}",
            ),
            unit=GPU_HOURS,
            colors=CLASS_COLORS,
            if_none="Nothing lost",
        ),
        bars(
            "Badput by type",
            "The same GPU-hours in the types of Google's goodput reports.",
            Query(f"sort_desc(sum by (badput) (increase({idle}[$__range])) / 3600 > 0)", "{{badput}}"),
            unit=GPU_HOURS,
            colors=BADPUT_COLORS,
            if_none="Nothing lost",
        ),
    ]


def _rendezvous() -> list[AnyPanel]:
    return [
        lines(
            "Members of the group during a rendezvous",
            "Members that have joined, and members that are expected. With an agent also those that have arrived, that"
            " is, wait for the others. Lines that do not meet: some members do not start, or do not reach the others."
            " In an incident, `kubectl recovery explain` names a missing rank.",
            [
                Query(
                    f"sum by (namespace, job_name, state) ({of_jobs('rendezvous_participants')})",
                    f"{_JOB} {{{{state}}}}",
                )
            ],
            unit="none",
            stepped=True,
            width=24,
        )
    ]


def _nodes() -> list[AnyPanel]:
    return [
        bars(
            "Suspected nodes, whole cluster",
            "Incidents that count against a node. `kubectl recovery explain` names the nodes of this job's incident.",
            Query(f"sort_desc({of_fleet('node_suspicions')})", "{{node}}"),
            unit="none",
            colors={},
            width=12,
            height=6,
            decimals=0,
            if_none="No node is suspected",
        ),
        bars(
            "GPUs of groups that never started",
            "GPUs that the group holds although it has never run whole. The reason says what to correct.",
            Query(f"sum by (namespace, job_name, reason) ({of_jobs('gpus_not_started')})", f"{_JOB}: {{{{reason}}}}"),
            unit=GPUS,
            colors={},
            width=12,
            height=6,
            decimals=0,
            if_none="Started",
        ),
        lines(
            "Nodes of a smaller group",
            "Nodes that the group has, and nodes that it wants, while a policy with elastic lets it run with"
            " fewer. Lines that stay apart: nothing replaces the lost nodes. See the runbook of RecoveryFewerNodes.",
            [
                Query(of_jobs("group_nodes"), f"{_JOB} has"),
                Query(of_jobs("group_nodes_wanted"), f"{_JOB} wants"),
            ],
            unit="none",
            stepped=True,
            if_none="It has all of its nodes",
        ),
        one_number(
            "Time with fewer nodes",
            "How long the group ran with fewer nodes than it wants in this time range. Its incidents do not"
            " count. The figure is two minutes behind.",
            f"sum(increase({of_jobs('group_reduced_seconds_total')}[$__range]))",
            unit="s",
            steps=((None, NEUTRAL),),
            width=6,
            height=8,
        ),
        one_number(
            "GPU time gained",
            "GPU-hours that the group ran with fewer nodes in this time range. It would have waited for nodes"
            " otherwise.",
            f"sum(increase({of_jobs('gpu_gained_seconds_total')}[$__range])) / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=6,
            height=8,
            decimals=1,
        ),
    ]


def _controller() -> list[AnyPanel]:
    return [
        rows(
            "Policy",
            "The kind of workload and the mode of the policy that applies. observe: the controller reports and does"
            " not act.",
            [Query(of_jobs("job_info"))],
            [
                BoardColumn("namespace", "Namespace"),
                BoardColumn("job_name", "Job"),
                BoardColumn("kind", "Kind"),
                BoardColumn("mode", "Mode"),
            ],
            width=12,
            height=5,
            if_none="No policy selects such a job",
        ),
        one_number(
            "Last proven",
            "How long ago a recovery, from a drill or from a failure, has shown that the job recovers. With several"
            " jobs chosen, the longest time. See the runbook of RecoveryNotProven.",
            f"time() - min({of_jobs('proven_timestamp_seconds')})",
            unit="s",
            steps=((None, NEUTRAL),),
            if_none="Never",
            width=6,
            height=5,
        ),
        one_number(
            "Controller",
            "Whether a controller leads and may act. If not, see the row Controller of the fleet's dashboard.",
            f"({of_fleet('paused')} + 2 * {of_fleet('circuit_breaker_open')}) or vector(-1)",
            unit="none",
            steps=((None, BAD),),
            mappings=[
                words(
                    {
                        "-1": ("No leader", BAD),
                        "0": ("Acts", GOOD),
                        "1": ("Paused", WARNING),
                        "2": ("Breaker open", BAD),
                        "3": ("Paused, breaker open", BAD),
                    }
                )
            ],
            width=6,
            height=5,
        ),
    ]
