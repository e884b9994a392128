"""The metrics that the fleet's ledger tells, computed from RecoveryConfig.status at every scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recovery.core.fleet.suspicion import suspected
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits
from recovery.core.policy.resolved import fleet_limits
from recovery.core.policy.spec import PolicyError
from recovery.ports import Clock, GroupStore


class FleetCollector(Collector):
    """A prometheus collector over the RecoveryConfig. Without a store, or while another process leads, it is silent."""

    def __init__(self, clock: Clock, prefix: str) -> None:
        """`prefix`: of every name."""
        self._clock = clock
        self._prefix = prefix
        self._store: GroupStore | None = None
        self.leads = False
        """Whether this process acts, and so tells of the fleet."""

    def follow(self, store: GroupStore) -> None:
        """Tell of the RecoveryConfig of this store from now on."""
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would collect instead, to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None or not self.leads:
            return
        config = self._store.config()
        fleet = config.fleet if config is not None else FleetLedger()
        try:
            limits = fleet_limits(config.spec) if config is not None else FleetLimits()
        except PolicyError:  # told of by the Accepted condition
            limits = FleetLimits()
        by_hand = sum(bool(entry.by) for entry in fleet.quarantined)
        quarantined = self._gauge("nodes_quarantined", "Nodes that our taint keeps free of new pods.", "by")
        quarantined.add_metric(["controller"], len(fleet.quarantined) - by_hand)
        quarantined.add_metric(["person"], by_hand)
        yield quarantined
        suspicions = self._gauge("node_suspicions", "Incidents that a node is suspected for and that count.", "node")
        for node in dict.fromkeys(each.node for each in fleet.suspicions):
            if counted := suspected(fleet, limits, node, self._clock.now()):
                suspicions.add_metric([node], len(counted))
        yield suspicions
        breaker = self._gauge("circuit_breaker_open", "Whether nothing is enforced until a person closes the breaker.")
        breaker.add_metric([], float(fleet.breaker is not None))
        yield breaker

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._prefix + name, f"{text} Told by the leader only.", labels=labels)
