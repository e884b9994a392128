"""The metric of objects that cannot be read, counted in the caches at every scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.ports import GroupStore
from recovery.telemetry.catalogue.of_process import UNDECODABLE_OBJECTS
from recovery.telemetry.families import filled


class UndecodableCollector(Collector):
    """A prometheus collector over a store; without one it is silent. Every replica has caches, and tells of them."""

    def __init__(self) -> None:
        self._store: GroupStore | None = None

    def follow(self, store: GroupStore) -> None:
        """Tell of the objects of this store from now on."""
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would collect instead, to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None:
            return
        yield filled(UNDECODABLE_OBJECTS, {(resource,): count for resource, count in self._store.undecodable().items()})
