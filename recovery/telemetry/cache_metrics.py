"""The metrics of the caches: what cannot be read, and what is stale. They are counted at every scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.ports import GroupStore
from recovery.telemetry.catalogue.of_process import STALE_WATCHES, UNDECODABLE_OBJECTS
from recovery.telemetry.families import filled


class CacheCollector(Collector):
    """A prometheus collector over a store; without one it is silent. Every replica has caches, and reports them."""

    def __init__(self) -> None:
        self._store: GroupStore | None = None

    def follow(self, store: GroupStore) -> None:
        """Report the caches of this store from now on."""
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None:
            return
        undecodable, stale = self._store.undecodable(), self._store.stale()
        yield filled(UNDECODABLE_OBJECTS, {(resource,): count for resource, count in undecodable.items()})
        yield filled(STALE_WATCHES, {(resource,): int(resource in stale) for resource in undecodable})
