"""Metrics, and a log line for what a number cannot show."""

import structlog

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import Plan
from recovery.ports import Clock, WatchEnd
from recovery.telemetry.metrics import Metrics

_log = structlog.get_logger("recovery.telemetry")


class Telemetry(Metrics):
    """Every observer Protocol of `controller` and `kube` in one object."""

    def __init__(self, *, clock: Clock, version: str) -> None:
        super().__init__(clock=clock, version=version)
        self.listed_resources: set[str] = set()
        """The resources, by plural, that have been listed at least once."""

    def decided(self, key: GroupKey, before: Ledger, plan: Plan) -> None:
        """A reconcile has made a decision. It is counted once its ledger write has succeeded."""
        self.reconciled(key, plan.not_started)
        incident = plan.ledger.incident
        _log.debug(
            plan.message,
            job=str(key),
            reason=str(plan.reason),
            incident=incident.id if incident is not None else None,
            phase=str(plan.ledger.phase),
            decision=[type(action).__name__ for action in (*plan.first, *plan.actions)],
            writes=plan.ledger != before,
        )

    def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None:
        """A watch ended before its time limit, or could not be opened. Facts may be late until it is back."""
        super().watch_restarted(resource, reason, message)
        _log.warning("a watch was interrupted", resource=resource, reason=str(reason), error=message)

    def listed(self, resource: str, objects: int) -> None:
        """All objects of a resource were read."""
        self.listed_resources.add(resource)
        _log.info("listed", resource=resource, objects=objects)

    def undecodable(self, resource: str, name: str, message: str) -> None:
        """An object cannot be decoded: the CRD is of another version, or a ledger is damaged."""
        _log.error("an object cannot be read", resource=resource, object=name, error=message)
