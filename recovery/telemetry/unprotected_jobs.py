"""The metric of unprotected jobs: what the last reconcile of each job has found, counted at the scrape.

A scrape reads no pods and resolves no policies: it counts one remembered answer for each job. Everything that changes
an answer starts a reconcile, except the budget's window, which the periodic resync of all jobs covers.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.model.facts import GroupKey
from recovery.core.model.protection import UNPROTECTED, Protection, ProtectionReason
from recovery.ports import GroupStore
from recovery.telemetry.catalogue.of_fleet import UNPROTECTED_JOBS
from recovery.telemetry.families import filled


class ProtectionCollector(Collector):
    """A prometheus collector over all workloads, with or without a policy. Without a store, or while another process
    leads, it has no series. Otherwise it has one for each reason why a job can be unprotected, even at 0."""

    def __init__(self) -> None:
        self._store: GroupStore | None = None
        self._reasons: dict[GroupKey, ProtectionReason] = {}
        self.leads = False
        """Whether this process leads, and so reconciles the jobs."""

    def follow(self, store: GroupStore) -> None:
        """Count the jobs of this store from now on."""
        self._store = store

    def forget(self) -> None:
        """A term begins or ends: earlier answers are out of date."""
        self._reasons.clear()

    def found(self, key: GroupKey, found: Protection) -> None:
        """A reconcile has found the answer for this job."""
        self._reasons[key] = found.reason

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None or not self.leads:
            return
        there = frozenset(self._store.keys())
        self._reasons = {key: reason for key, reason in self._reasons.items() if key in there}
        jobs = dict.fromkeys(UNPROTECTED, 0)
        for reason in self._reasons.values():
            if reason in jobs:
                jobs[reason] += 1
        yield filled(UNPROTECTED_JOBS, {(reason,): count for reason, count in jobs.items()})
