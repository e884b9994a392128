"""The metrics of the cluster's state that the RecoveryConfig holds, computed at every scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.fleet.quarantine import cap
from recovery.core.fleet.suspicion import suspected
from recovery.core.model.config import ConfigFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits
from recovery.core.policy.resolved import fleet_limits
from recovery.core.policy.spec import PolicyError
from recovery.ports import Clock, GroupStore
from recovery.telemetry.catalogue import of_fleet
from recovery.telemetry.families import filled, preset_labels
from recovery.telemetry.jobs_found import FoundJobs


class FleetCollector(Collector):
    """A prometheus collector over the RecoveryConfig and the workloads. Without a store, or while another process
    leads, it is silent."""

    def __init__(self, clock: Clock, jobs: FoundJobs) -> None:
        self._clock = clock
        self._jobs = jobs
        self._store: GroupStore | None = None
        self.leads = False
        """Whether this process leads, and so reports the fleet."""

    def follow(self, store: GroupStore) -> None:
        """Report the RecoveryConfig of this store from now on."""
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None or not self.leads:
            return
        config = self._store.config()
        fleet = config.fleet if config is not None else FleetLedger()
        limits = _limits(config)
        by_hand = sum(bool(entry.by) for entry in fleet.quarantined)
        yield filled(
            of_fleet.NODES_QUARANTINED,
            {("controller",): len(fleet.quarantined) - by_hand, ("person",): by_hand},
        )
        # Without a RecoveryConfig no quarantine is allowed.
        allowed = cap(limits, len(self._store.nodes())) if limits.may_cordon else 0
        yield filled(of_fleet.NODES_QUARANTINED_LIMIT, {(): allowed})
        suspicions: dict[tuple[str, ...], float] = {}
        for node in dict.fromkeys(each.node for each in fleet.suspicions):
            if counted := suspected(fleet, limits, node, self._clock.now()):
                suspicions[(node,)] = len(counted)
        yield filled(of_fleet.NODE_SUSPICIONS, suspicions)
        yield filled(of_fleet.CIRCUIT_BREAKER_OPEN, {(): float(fleet.breaker is not None)})
        yield filled(of_fleet.PAUSED, {(): float(config is not None and config.pause is not None)})
        yield self._by_mode()

    def _by_mode(self) -> Metric:
        counts: dict[tuple[str, ...], float] = dict.fromkeys(preset_labels(of_fleet.JOBS), 0)
        for job in self._jobs.present().values():
            counts[(job.mode,)] += 1
        return filled(of_fleet.JOBS, counts)


def _limits(config: ConfigFacts | None) -> FleetLimits:
    try:
        return fleet_limits(config.spec) if config is not None else FleetLimits()
    except PolicyError:  # reported by the Accepted condition
        return FleetLimits()
