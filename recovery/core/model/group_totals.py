"""The counts of a group that outlast its incidents: its totals and its budget."""

from datetime import datetime

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate


class Totals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Counts that only rise: the source of every counter in /metrics."""

    incidents: int = 0
    restarts: int = 0
    """Restarts by the controller and adopted restarts of the platform."""
    drill_restarts: int = 0
    """How many of `restarts` repair what drills have caused."""
    charged: int = 0
    """Incidents that were charged to the budget."""
    failures: dict[str, int] = {}
    """Incidents by class. Those of drills have the class Drill."""
    idle_gpu_seconds: dict[str, float] = {}
    """Idle GPU-seconds by phase, and as `Broken` those between incidents."""
    idle_gpu_seconds_by_class: dict[str, dict[str, float]] = {}
    """Idle GPU-seconds by class of the incident, then by phase. For each phase the classes add up to
    `idleGpuSeconds`."""
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which a suspension by the controller had freed the GPUs. They do not count as idle."""
    reduced_seconds: float = 0.0
    """Seconds that the group ran with fewer nodes than wanted."""
    gained_gpu_seconds: float = 0.0
    """GPU-seconds that the group ran with fewer nodes than wanted, instead of waiting for nodes."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()


class BudgetState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How much of the budget is used, and how much is left."""

    charges: tuple[datetime, ...] = ()
    """When the budget was charged, newest last. Entries older than the window are dropped."""
    limit: int = 0
    """`budget.limit` of the policy."""
    remaining: int = 0
    """Recoveries left in this window."""
    adopted: tuple[datetime, ...] = ()
    """When others restarted the group after a loss for which a restart by the controller would be charged, newest last.
    They use no budget, but count towards a crash loop. Entries older than the window are dropped, and so are older ones
    beyond those that show a loop."""
    reset_at: datetime | None = None
    """When a user last reset the budget. Neither charges, adopted restarts nor attempts from before then count. None:
    never."""
