"""The counts of a group that outlast its incidents: its totals, and its budget."""

from datetime import datetime

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate


class Totals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Counts that only rise: the source of every counter in /metrics."""

    incidents: int = 0
    restarts: int = 0
    """Triggers of ours plus adopted restarts of the platform."""
    charged: int = 0
    """Incidents that have cost budget."""
    failures: dict[str, int] = {}
    """By class."""
    idle_gpu_seconds: dict[str, float] = {}
    """By phase."""
    idle_gpu_seconds_by_class: dict[str, dict[str, float]] = {}
    """The same GPU-seconds by class of the incident, and then by phase: for each phase the classes sum up to the entry
    above. What an earlier version has booked has no class, and is read as of class Unknown (`ledger_restore`)."""
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which our own suspension had freed the GPUs. No part of the idle ones."""
    reduced_seconds: float = 0.0
    """Seconds in which the group ran with fewer nodes than it was to have."""
    gained_gpu_seconds: float = 0.0
    """GPU-seconds that the group ran meanwhile, and would have waited for nodes otherwise."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()


class BudgetState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What of the budget is used up, and what is left."""

    charges: tuple[datetime, ...] = ()
    """When it was charged, newest last; entries older than the window are dropped."""
    limit: int = 0
    """As the policy says it."""
    remaining: int = 0
    """Recoveries left in this window."""
    reset_at: datetime | None = None
    """When a person last emptied it; attempts from before do not count either. None: never."""
