"""Incidents under Observe that share one RecoveryIncident: a crash loop must not fill the API server with records."""

from datetime import datetime

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate


class NumberRange(msgspec.Struct, frozen=True):
    """Consecutive incident numbers."""

    first: int
    last: int


class FoldedNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node on which one of a suspect's pods ran."""

    incidents: int
    idle_gpu_seconds: float
    """All idle GPU-seconds of those incidents, not only those of the node."""


class FoldedIncidents(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Incidents with the same fingerprint, each of which followed the one before within `backoff.resetAfter`. `spec`
    describes the first of them."""

    fingerprint: str
    numbers: tuple[NumberRange, ...]
    """Numbers of these incidents within their workload, in order."""
    count: int
    started_at: datetime
    """When the first of these failures happened."""
    latest_started_at: datetime
    latest_evidence: str
    """Key of the evidence that opened the latest of these incidents, so that it is never added twice."""
    ended_at: datetime
    """When the latest of these incidents ended."""
    duration_seconds: float = 0.0
    """Duration of all these incidents together, without the time between them."""
    idle_gpu_seconds: dict[str, float] = {}
    """Idle GPU-seconds of these incidents by phase."""
    released_gpu_seconds: float = 0.0
    restarts: int = 0
    would: dict[str, int] = {}
    """In how many of these incidents Enforce would have taken each action. Incidents that it would have left to
    Kubernetes are not counted."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    nodes: dict[str, FoldedNode] = {}
    """The nodes on which these failures showed first, by name."""

    @property
    def first_number(self) -> int:
        return self.numbers[0].first

    @property
    def latest_number(self) -> int:
        return self.numbers[-1].last

    def covers(self, number: int) -> bool:
        """The incident with that number is one of these."""
        return any(each.first <= number <= each.last for each in self.numbers)
