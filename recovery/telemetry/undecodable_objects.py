"""The metric of objects that cannot be read, counted in the caches at every scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recovery.ports import GroupStore


class UndecodableCollector(Collector):
    """A prometheus collector over a store; without one it is silent. Every replica has caches, and tells of them."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: of every name."""
        self._prefix = prefix
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
        undecodable = GaugeMetricFamily(
            f"{self._prefix}undecodable_objects",
            "Objects whose content cannot be read now. The controller does nothing about a job that one belongs to. "
            "Told by every replica.",
            labels=("resource",),
        )
        for resource, count in self._store.undecodable().items():
            undecodable.add_metric([resource], count)
        yield undecodable
