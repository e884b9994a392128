"""The metric of groups that have not started. No ledger shows them, because a healthy job has none.

Each reconcile of a group finds out whether it has started. The last result is remembered here and reported at the
scrape, so that a scrape reads no pods, of which there may be 50,000.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.diagnosis.not_started import NotStarted
from recovery.core.model.facts import GroupKey
from recovery.ports import GroupStore
from recovery.telemetry.catalogue.of_jobs import GPUS_NOT_STARTED
from recovery.telemetry.families import family


class StartCollector(Collector):
    """A prometheus collector over the results of reconciles, which only the leader has. Without a store it is silent.

    It has a series for each group that has not started, with the current reason. It ends when the group has started.
    """

    def __init__(self) -> None:
        self._store: GroupStore | None = None
        self._found: dict[GroupKey, NotStarted] = {}

    def follow(self, store: GroupStore) -> None:
        """Report the groups of this store from now on."""
        self._store = store

    def forget(self) -> None:
        """A term begins or ends: earlier results are out of date."""
        self._found.clear()

    def reconciled(self, key: GroupKey, found: NotStarted | None) -> None:
        """A reconcile of the group is over. `found` None: it has started, or is not watched."""
        if found is not None:
            self._found[key] = found
        else:
            self._found.pop(key, None)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None:
            return
        there = frozenset(self._store.keys())
        self._found = {key: found for key, found in self._found.items() if key in there}
        held = family(GPUS_NOT_STARTED)
        for key, found in self._found.items():
            held.add_metric((key.namespace, key.name, found.hindrance), found.gpus)
        yield held
