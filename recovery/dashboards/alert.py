"""One alert as Prometheus evaluates it."""

from dataclasses import dataclass
from enum import StrEnum

RUNBOOKS = "https://runbooks.invalid"
"""Where `runbook_url` leads until an installation puts its own address there, as docs/monitoring.md says.

The pages have no public address. The top-level domain `invalid` is reserved, so no host can ever have this name (RFC
2606).
"""


class AlertSeverity(StrEnum):
    """critical: a person acts now. warning: a person acts today. info: worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Alert:
    """One alerting rule. `summary` and `description` are Prometheus templates."""

    name: str
    expr: str
    for_seconds: int
    severity: AlertSeverity
    summary: str
    description: str
    """What is wrong, with which job, and what to run."""
    per_job: bool = False
    """The labels namespace and job_name identify one job."""
    explained_by: tuple[str, ...] = ()
    """While one of these alerts fires, this one does not. An alert per job counts only for the same job."""

    @property
    def runbook_url(self) -> str:
        return f"{RUNBOOKS}/{self.name}.md"


def firing(names: tuple[str, ...]) -> str:
    """The series that Prometheus itself writes for alerts that fire."""
    return f'ALERTS{{alertname=~"{"|".join(names)}", alertstate="firing"}}'
