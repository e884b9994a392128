"""All alerts in the order in which Prometheus evaluates them."""

from recovery.dashboards.alert import Alert, firing
from recovery.dashboards.job_alerts import JOB_ALERTS
from recovery.dashboards.own_alerts import OWN_ALERTS

ALERTS: tuple[Alert, ...] = (*OWN_ALERTS, *JOB_ALERTS)
"""An alert comes after those that explain it, because it reads the series that they wrote in the same evaluation."""

_PER_JOB = frozenset(alert.name for alert in ALERTS if alert.per_job)


def expression(alert: Alert) -> str:
    """What Prometheus evaluates: the alert's own condition, unless an alert that explains it fires.

    The rule itself contains this condition. An inhibition in Alertmanager would work only where someone configured it.
    """
    expr = alert.expr
    same_job = tuple(name for name in alert.explained_by if name in _PER_JOB)
    cluster = tuple(name for name in alert.explained_by if name not in _PER_JOB)
    if same_job:
        expr = f"({expr}) unless on (namespace, job_name) {firing(same_job)}"
    if cluster:
        expr = f"({expr}) unless on () {firing(cluster)}"
    return expr
