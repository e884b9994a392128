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
    """Of those incidents, whole."""


class FoldedIncidents(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Incidents of one fingerprint that followed each other within `backoff.resetAfter`, each counted. `spec` describes
    the first of them."""

    fingerprint: str
    numbers: tuple[NumberRange, ...]
    """Of these incidents within their workload, in order."""
    count: int
    started_at: datetime
    """When the first failure happened."""
    latest_started_at: datetime
    latest_evidence: str
    """Key of the evidence that opened the latest one: the same one is never added twice."""
    ended_at: datetime
    """When the latest one ended."""
    duration_seconds: float = 0.0
    """Of all of them together, without the time between them."""
    idle_gpu_seconds: dict[str, float] = {}
    """By phase."""
    released_gpu_seconds: float = 0.0
    restarts: int = 0
    would: dict[str, int] = {}
    """In how many of them Enforce would have taken each action. Those that it would have left to Kubernetes are left
    out."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    nodes: dict[str, FoldedNode] = {}
    """By name: the nodes on which the failures showed first."""

    @property
    def first_number(self) -> int:
        return self.numbers[0].first

    @property
    def latest_number(self) -> int:
        return self.numbers[-1].last

    def covers(self, number: int) -> bool:
        """The incident with that number is one of these."""
        return any(each.first <= number <= each.last for each in self.numbers)
