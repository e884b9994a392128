"""What every step of a decision needs besides the ledger."""

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
    """None: no policy applies. PolicyError: the policy that applies cannot be used."""
    now: datetime
    epoch: int
    """The epoch before this reconcile. One write adds at most one restart to the ledger."""
