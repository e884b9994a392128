"""What every step of a decision needs of the world around the ledger."""

from datetime import datetime

import msgspec

from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError


class ReconcileContext(msgspec.Struct, frozen=True):
    """One reconcile of one group."""

    snapshot: Snapshot
    workload: WorkloadFacts
    policy: Policy | PolicyError | None
    """None: none applies; PolicyError: the one that applies cannot be read."""
    now: datetime
    epoch: int
    """As it was before this reconcile: no more than one restart enters the ledger in one write."""
