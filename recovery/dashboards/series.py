"""Names of the recorded series, which rules write and alerts and dashboards read.

Only the leader reports jobs and the fleet. A raw series therefore ends with a term, and the next leader reports it
with other `instance` and `pod` labels. The recorded series has none of these labels, so it continues.
"""

PREFIX = "recovery_"

NO_DRILL = 'failure_class!="Drill"'
"""The matcher of series by class that leaves out drills. They are no failures."""
OF_DRILLS, NOT_OF_DRILLS = 'reason="drill"', 'reason!="drill"'
"""The matchers of counters of idle GPU-seconds by reason."""

ETTR_OF_JOB_1H = "namespace_job:recovery_ettr:ratio1h"
"""Share of the last hour's GPU time in which no failure kept the job's GPUs idle. Labels: namespace, job_name."""
ETTR_OF_JOB_1D = "namespace_job:recovery_ettr:ratio1d"
ETTR_OF_FLEET_1H = "cluster:recovery_ettr:ratio1h"
"""The same for all selected jobs together. No labels."""
ETTR_OF_FLEET_1D = "cluster:recovery_ettr:ratio1d"
BADPUT_OF_FLEET_1H = "cluster:recovery_badput_gpu_seconds:increase1h"
"""GPU-seconds that the fleet lost in the last hour, without those of drills. Label: badput."""
BADPUT_OF_FLEET_1D = "cluster:recovery_badput_gpu_seconds:increase1d"
DEAD_MEMBER = "namespace_job:kube_pod_dead_member_timestamp_seconds:max"
"""When the job's last dead member died, from kube-state-metrics alone: its pod failed, or is deleted and does not end,
or its container restarted in place, while other members run. No series: no member is dead. Labels: namespace, job_name.
"""
INCIDENT_SEEN = "namespace_job:recovery_incident_seen_timestamp_seconds:max"
"""When the rule saw an incident of the job open; only while one is open. Labels: namespace, job_name."""


def job_series(name: str) -> str:
    """The recorded series of a metric that has the labels namespace and job_name, as in `recovery_job_gpus`.

    Raises ValueError if the name lacks the prefix `recovery_`.
    """
    return f"namespace_job:{_checked(name)}:max"


def fleet_series(name: str) -> str:
    """The recorded series of a metric of the fleet, as in `recovery_fleet_incidents_total`.

    Raises ValueError if the name lacks the prefix `recovery_`.
    """
    return f"cluster:{_checked(name)}:max"


def _checked(name: str) -> str:
    if not name.startswith(PREFIX):
        raise ValueError(f"{name}: a metric of ours has the prefix {PREFIX}")
    return name
