"""What the controller reports about itself while it runs. Telemetry implements it."""

from typing import Protocol

from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import Protection
from recovery.core.plan.actions import Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.ports import LossWait


class ControllerObserver(Protocol):
    """The methods are called after the fact. They must not raise and must not take long."""

    def decided(self, key: GroupKey, before: Ledger, plan: Plan) -> None:
        """A reconcile has made a decision (a decision that only requests a live read is not reported)."""
        ...

    def facts_read(self, key: GroupKey, snapshot: Snapshot, policy: Policy | PolicyError | None) -> None:
        """A reconcile decides on these facts. The workload exists, but its ledger may be unreadable.

        `policy` None: none applies; PolicyError: the one that applies cannot be used.
        """
        ...

    def protection_found(self, key: GroupKey, found: Protection) -> None:
        """A reconcile has found out whether the job is protected. Its ledger may be unreadable."""
        ...

    def agents_reported(self, key: GroupKey, facts: AgentFacts) -> None:
        """The agents of a group have reported. It is called before the reconcile that the report brings, if it does."""
        ...

    def workload_gone(self, key: GroupKey) -> None:
        """A reconcile has found that the workload does not exist any more."""
        ...

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """A ledger write has succeeded. The change is effective only now."""
        ...

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        """A reconcile is over. `error`: the class name of what went wrong, None if nothing did."""
        ...

    def queue_waited(self, seconds: float) -> None:
        """A group waited this long beyond its due time."""
        ...

    def loss_waited(self, cause: LossWait, seconds: float) -> None:
        """The ledger of a loss was written so long after its first event, mostly for this cause."""
        ...

    def leadership_changed(self, *, leads: bool) -> None:
        """This process has begun to lead, or has ceased to."""
        ...

    def holds_for_another(self, *, holds: bool) -> None:
        """This process has the Lease, but does nothing while a controller with an older Lease acts; or no longer so."""
        ...
