"""The dashboard of the fleet: is anything broken, how many GPUs are idle, since when, and which job."""

from recovery.dashboards import controller_row, rendezvous_row
from recovery.dashboards.frame import FLEET_UID, JOB_UID, TO_JOB_OF_ROW, TO_JOB_OF_SERIES, TO_RUNBOOK, board
from recovery.dashboards.gpu_time import gpu_time_figures
from recovery.dashboards.palette import (
    BAD,
    BADPUT_COLORS,
    CLASS_COLORS,
    GOOD,
    HANDLING_COLORS,
    NEUTRAL,
    OUTCOME_COLORS,
    REASON_COLORS,
    WARNING,
)
from recovery.dashboards.panels import (
    GPU_HOURS,
    GPUS,
    PHASE_NAMES,
    AnyPanel,
    BoardColumn,
    Query,
    bars,
    broken_groups,
    drills,
    lines,
    observed,
    of_fleet,
    of_jobs,
    oldest_incident,
    one_number,
    phase_number,
    rows,
    states,
    words,
)
from recovery.dashboards.series import ETTR_OF_FLEET_1H, ETTR_OF_JOB_1H, NO_DRILL, NOT_OF_DRILLS

_BAD_FROM_ONE = ((None, GOOD), (1, BAD))
_OPEN = of_jobs("incident_info")


def fleet_board() -> str:
    """The JSON of the dashboard."""
    return board(
        uid=FLEET_UID,
        title="TrainJob recovery / Fleet",
        description=(
            "Failure recovery of all training jobs. The first row answers whether anything is broken, how many GPUs"
            " are idle, since when, and in which job. docs/dashboards.md describes each row."
        ),
        other=(JOB_UID, "Job dashboard"),
        rows={
            "Now": _now(),
            "Incidents": _incidents(),
            "Where GPU time goes": _gpu_time(),
            "Rendezvous": rendezvous_row.panels(),
            "Nodes": _nodes(),
            "Controller": controller_row.panels(),
        },
    )


def _now() -> list[AnyPanel]:
    return [
        one_number(
            "Open incidents",
            "Incidents that are not over yet, drills included. The table below names the jobs. Follow a job's link to"
            " its dashboard.",
            f"count({_OPEN}) or vector(0)",
            unit="none",
            steps=_BAD_FROM_ONE,
            width=3,
        ),
        one_number(
            "Broken groups",
            "Groups whose ranks hang while no incident is open, so nothing restarts them. RecoveryGroupBroken names the"
            " jobs in the table of alerts, and its runbook says what to do.",
            f"count({broken_groups()}) or vector(0)",
            unit="none",
            steps=_BAD_FROM_ONE,
            width=3,
        ),
        one_number(
            "GPUs idle now",
            "GPUs that do no training because of an incident, or because their group hangs after one. GPUs that a"
            " suspension gave back are not in it."
            " If the number stays high for ten minutes, open the job with the most idle GPUs.",
            f"sum({of_jobs('gpus_idle')}) or vector(0)",
            unit=GPUS,
            steps=((None, GOOD), (1, WARNING), (64, BAD)),
        ),
        one_number(
            "Oldest open incident",
            "How long the oldest open incident has lasted. More than ten minutes is overdue: see the runbook of"
            " RecoveryOverdue. In phase Resuming all members run, and the incident does not count.",
            oldest_incident(),
            unit="s",
            steps=((None, WARNING), (600, BAD)),
            if_none="None",
        ),
        one_number(
            "Share of GPUs idle",
            "Idle GPUs as a share of the GPUs of all selected jobs. A small share of a large fleet is still many GPUs:"
            " read it beside the number of GPUs.",
            f"(sum({of_jobs('gpus_idle')}) / sum({of_jobs('job_gpus')})) or vector(0)",
            unit="percentunit",
            steps=((None, GOOD), (0.01, WARNING), (0.1, BAD)),
            decimals=1,
            width=3,
        ),
        one_number(
            "Jobs under recovery policies",
            "Jobs that a policy selects. Jobs without a policy do not count: see the panel of jobs by mode.",
            f"count({of_jobs('job_info')}) or vector(0)",
            unit="none",
            steps=((None, NEUTRAL),),
            width=3,
        ),
        one_number(
            "Recovery acts",
            "Whether the controller may act. Paused: a person has paused all recovery in the RecoveryConfig."
            " Breaker open: too many recoveries failed, and a person has to close the circuit breaker. No leader:"
            " see the row Controller.",
            f"({of_fleet('paused')} + 2 * {of_fleet('circuit_breaker_open')}) or vector(-1)",
            unit="none",
            steps=((None, BAD),),
            mappings=[
                words(
                    {
                        "-1": ("No leader", BAD),
                        "0": ("Yes", GOOD),
                        "1": ("Paused", WARNING),
                        "2": ("Breaker open", BAD),
                        "3": ("Paused, breaker open", BAD),
                    }
                )
            ],
        ),
        rows(
            "Jobs with an open incident",
            "One row for each open incident. A click on the job opens its dashboard. Held: the controller waits for a"
            " person; the job's dashboard and `kubectl recovery explain` say what for. Cause Drill: a person caused the"
            " failure by `recovery chaos run`.",
            [
                Query(
                    f"(time() - {of_jobs('incident_start_timestamp_seconds')})"
                    f" * on (namespace, job_name) group_left (incident, failure_class) {_OPEN}"
                ),
                Query(f"sum by (namespace, job_name) ({of_jobs('gpus_idle')}) and on (namespace, job_name) {_OPEN}"),
                Query(f"{phase_number()} and on (namespace, job_name) {_OPEN}"),
                Query(
                    f"max by (namespace, job_name) ({of_jobs('restart_budget_remaining')})"
                    f" and on (namespace, job_name) {_OPEN}"
                ),
            ],
            [
                BoardColumn("namespace", "Namespace", link=TO_JOB_OF_ROW),
                BoardColumn("job_name", "Job", link=TO_JOB_OF_ROW),
                BoardColumn("failure_class", "Cause"),
                BoardColumn("Value #C", "Phase", mappings=(PHASE_NAMES,)),
                BoardColumn("Value #A", "Open for", unit="s"),
                BoardColumn("Value #B", "GPUs idle"),
                BoardColumn("Value #D", "Restarts left"),
                BoardColumn("incident", "Incident"),
            ],
            width=15,
            height=9,
            if_none="No incident is open",
        ),
        rows(
            "Alerts that fire",
            "Alerts of this controller that fire now. A click on the alert opens its runbook.",
            [
                Query(
                    "sum by (alertname, severity, namespace, job_name)"
                    ' (ALERTS{alertname=~"Recovery.+", alertstate="firing"})'
                )
            ],
            [
                BoardColumn("alertname", "Alert", link=TO_RUNBOOK),
                BoardColumn("severity", "Severity", width=80),
                BoardColumn("job_name", "Job", link=TO_JOB_OF_ROW, width=120),
            ],
            width=9,
            height=9,
            if_none="No alert fires",
        ),
        lines(
            "Idle GPUs by phase",
            "Each colour is what the group waits for. Long orange-red areas (hung) wait for a person or for a policy;"
            " long yellow areas (rendezvous) wait for members: see the row Rendezvous.",
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
            "Phases of jobs with incidents",
            "A line for each job that had an incident in this time range. A click opens the job's dashboard. Several"
            " jobs at the same moment point to a node, a rack or the network.",
            Query(f"{phase_number()} > 0", "{{namespace}}/{{job_name}}"),
            mapping=PHASE_NAMES,
            to=TO_JOB_OF_SERIES,
        ),
        bars(
            "Incidents by cause",
            "Incidents that began in this time range, without drills. If most are Unknown, add rules to the policy: see"
            " the runbook of RecoveryUnclassifiedFailures.",
            Query(
                f"round(sum by (failure_class) (increase({of_jobs('failures_total', NO_DRILL)}[$__range]))) > 0",
                "{{failure_class}}",
            ),
            unit="none",
            colors=CLASS_COLORS,
            width=6,
            decimals=0,
            if_none="No incident",
        ),
        bars(
            "How incidents ended, whole cluster",
            "Incidents that closed in this time range, without drills. Failed: the job is over. Superseded:"
            " another event replaced the incident. Observed: the policy only watches.",
            Query(
                f"round(sum by (outcome) (increase({of_fleet('fleet_incidents_total', NO_DRILL)}[$__range]))) > 0",
                "{{outcome}}",
            ),
            unit="none",
            colors=OUTCOME_COLORS,
            width=6,
            decimals=0,
            if_none="No incident closed",
        ),
        bars(
            "Who handled incidents, whole cluster",
            "Closed incidents, without drills, that needed no person (automatic), that a person asked for (manual), and"
            " that waited for a person (held). Many held ones: raise the restart budget, or write rules for their"
            " causes.",
            Query(
                f"round(sum by (handling) (increase({of_fleet('fleet_incidents_total', NO_DRILL)}[$__range]))) > 0",
                "{{handling}}",
            ),
            unit="none",
            colors=HANDLING_COLORS,
            width=6,
            decimals=0,
            if_none="No incident closed",
        ),
        bars(
            "Typical time of an incident, by handling",
            "The median from the failure to the end, for incidents that closed in this time range, without drills. It"
            " is interpolated in the buckets of a histogram, so of a few long incidents it is a rough figure. Compare"
            " the automatic ones with your target: the others contain the time until a person acted.",
            Query(
                "histogram_quantile(0.5, sum by (le, handling)"
                f" ({observed(f'recovery_incident_duration_seconds_bucket{{{NO_DRILL}}}')}))",
                "{{handling}}",
            ),
            unit="s",
            colors=HANDLING_COLORS,
            width=6,
            decimals=0,
            if_none="No incident closed",
        ),
        bars(
            "Drills",
            "Incidents of this time range that `recovery chaos run` caused, by job. They are no failures: the other"
            " panels of this row leave them out.",
            Query(f"round(sum by (namespace, job_name) ({drills()})) > 0", "{{namespace}}/{{job_name}}"),
            unit="none",
            colors={},
            width=24,
            height=6,
            decimals=0,
            if_none="No drill",
        ),
    ]


def _gpu_time() -> list[AnyPanel]:
    idle = of_jobs("gpu_idle_seconds_total", NOT_OF_DRILLS)
    return [
        *gpu_time_figures("the", "suspended groups"),
        lines(
            "Effective training time of the last hour, whole cluster",
            "ETTR of each moment's last hour, for all selected jobs of the cluster. A step down is one large incident;"
            " a slow decline is many small ones.",
            [Query(ETTR_OF_FLEET_1H, "whole cluster")],
            unit="percentunit",
            colors={"whole cluster": GOOD},
            height=8,
            top=1,
        ),
        lines(
            "Effective training time of the last hour, by job",
            "ETTR of each moment's last hour. The lowest line is the job that suffers most. A click opens its"
            " dashboard.",
            [
                Query(
                    f'{ETTR_OF_JOB_1H}{{namespace=~"$namespace", job_name=~"$job_name"}}', "{{namespace}}/{{job_name}}"
                )
            ],
            unit="percentunit",
            top=1,
            to=TO_JOB_OF_SERIES,
        ),
        bars(
            "GPU-hours lost by phase",
            "What idle GPUs waited for. Long schedule: no free nodes. Long start: images and volumes. Long hung: a"
            " person was needed.",
            Query(f"sort_desc(sum by (reason) (increase({idle}[$__range])) / 3600 > 0)", "{{reason}}"),
            unit=GPU_HOURS,
            colors=REASON_COLORS,
            if_none="Nothing lost",
        ),
        bars(
            "GPU-hours lost by cause",
            "The same GPU-hours by what caused the incident. Work on the longest bar first.",
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
            "The same GPU-hours in the types of Google's goodput reports. `other` is time in which the group was held"
            " or backed off.",
            Query(f"sort_desc(sum by (badput) (increase({idle}[$__range])) / 3600 > 0)", "{{badput}}"),
            unit=GPU_HOURS,
            colors=BADPUT_COLORS,
            if_none="Nothing lost",
        ),
        bars(
            "GPU-hours lost by job",
            "The ten jobs that lost most in this time range.",
            Query(
                f"topk(10, sum by (namespace, job_name) (increase({idle}[$__range])) / 3600 > 0)",
                "{{namespace}}/{{job_name}}",
            ),
            unit=GPU_HOURS,
            colors={},
            width=24,
            if_none="Nothing lost",
        ),
    ]


def _nodes() -> list[AnyPanel]:
    return [
        lines(
            "Quarantined nodes, whole cluster",
            "Nodes that a taint of ours keeps free of new pods, and the limit for the controller. At the limit further"
            " bad nodes stay in use: repair and release nodes first. See docs/quarantine.md.",
            [
                Query(of_fleet("nodes_quarantined"), "by {{by}}"),
                Query(of_fleet("nodes_quarantined_limit"), "limit"),
            ],
            unit="none",
            colors={"by controller": GOOD, "by person": "#7777DD", "limit": BAD},
            width=12,
            stepped=True,
        ),
        bars(
            "Suspected nodes, whole cluster",
            "Incidents that count against a node. Nodes with several are candidates for repair.",
            Query(f"sort_desc({of_fleet('node_suspicions')})", "{{node}}"),
            unit="none",
            colors={},
            width=6,
            decimals=0,
            if_none="No node is suspected",
        ),
        bars(
            "Quarantines refused, whole cluster",
            "Nodes that should have been quarantined in this time range and were not. cap: the limit is reached."
            " namespace_cap: that of the namespace is."
            " permission: the policy or the RBAC role does not allow it. feasible: the job would no longer fit."
            " unconfirmed: only messages of one namespace blame the node.",
            Query("round(sum by (reason) (increase(recovery_quarantine_refusals_total[$__range])))", "{{reason}}"),
            unit="none",
            colors={"cap": BAD, "namespace_cap": BAD, "permission": WARNING, "feasible": "#7777DD"},
            width=6,
            decimals=0,
        ),
        bars(
            "GPUs of groups that never started",
            "GPUs that groups hold although they have never run whole. They are not idle because of an incident, and"
            " nothing recovers them. The reason says what to correct.",
            Query(
                f"sum by (namespace, job_name, reason) ({of_jobs('gpus_not_started')})",
                "{{namespace}}/{{job_name}}: {{reason}}",
            ),
            unit=GPUS,
            colors={},
            width=12,
            height=6,
            decimals=0,
            if_none="All groups have started",
        ),
        bars(
            "Jobs by mode, whole cluster",
            "Workloads by the mode of the policy that applies. none: no policy selects them. observe: the controller"
            " reports and does not act.",
            Query(of_fleet("jobs"), "{{mode}}"),
            unit="none",
            colors={"enforce": GOOD, "observe": "#7777DD", "none": NEUTRAL},
            width=6,
            height=6,
            decimals=0,
        ),
        bars(
            "Unprotected jobs, whole cluster",
            "Jobs that hang after a loss until a person acts. docs/commands.md describes each reason.",
            Query(f"{of_fleet('unprotected_jobs')} > 0", "{{reason}}"),
            unit="none",
            colors={},
            width=6,
            height=6,
            decimals=0,
            if_none="All jobs are protected",
        ),
    ]
