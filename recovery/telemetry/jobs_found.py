"""What the last reconcile of each job has read, so that a scrape reads no pods, of which there may be 50,000.

Everything that changes these facts starts a reconcile: the workload, its pods, the policies, the RecoveryConfig. (A
progress report does not, so it is not kept here.) Only the leader reconciles. A scrape before the first reconcile of a
job in this term reads that job itself, once: otherwise the first scrape of a new leader would lack jobs.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from recovery.core.diagnosis.membership import member_jobs, members_ready
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.policy.resolved import Policy
from recovery.core.policy.selection import applicable
from recovery.core.policy.spec import Mode, PolicyError
from recovery.ports import GroupStore
from recovery.telemetry.catalogue.label_values import NO_MODE


class FoundJob(msgspec.Struct, frozen=True):
    """What metrics show about a job beyond its ledger."""

    workload_uid: str
    kind: str
    """TrainJob or JobSet."""
    gpus: int
    """GPUs that its pods hold."""
    members_ready: int
    selected: bool
    """A policy selects it, even if that policy cannot be used."""
    mode: str = NO_MODE
    """observe or enforce; none: no usable policy selects it."""
    budget_limit: int = 0
    budget_window: timedelta | None = None
    """None: there is no usable policy."""
    asks_for_proof: bool = False
    """The policy acts, and wants a proof of a limited age that the job recovers."""


class FoundJobs:
    """All workloads of a store, as they were last read. Without a store there are none."""

    def __init__(self) -> None:
        self._store: GroupStore | None = None
        self._found: dict[GroupKey, FoundJob] = {}

    def follow(self, store: GroupStore) -> None:
        """Read the workloads of this store from now on."""
        self._store = store

    def forget(self) -> None:
        """A term begins or ends: earlier facts are out of date."""
        self._found.clear()

    def read(self, key: GroupKey, snapshot: Snapshot, policy: Policy | PolicyError | None) -> None:
        """A reconcile decides on these facts. `policy` is the result of `applicable`."""
        found = _found(snapshot, policy)
        if found is not None:
            self._found[key] = found
        else:
            self._found.pop(key, None)  # there may never be a scrape whose `present` would forget it

    def present(self) -> Mapping[GroupKey, FoundJob]:
        """The jobs whose workload exists."""
        store = self._store
        if store is None:
            return {}
        present: dict[GroupKey, FoundJob] = {}
        for key in tuple(store.keys()):
            found = self._found.get(key) or _read_in(store, key)
            if found is not None:
                present[key] = found
        self._found = present
        return present

    def read_others(self) -> Iterator[None]:
        """Read the jobs that no reconcile of this term has read, one at each step."""
        for key in tuple(self._store.keys()) if self._store is not None else ():
            if self._store is not None and key not in self._found:
                found = _read_in(self._store, key)
                if found is not None:
                    self._found[key] = found
                yield


def _read_in(store: GroupStore, key: GroupKey) -> FoundJob | None:
    """Read the job from the store. None: the workload no longer exists."""
    snapshot = store.snapshot(key)
    if snapshot.workload is None:
        return None
    return _found(snapshot, applicable(store.policies(key.namespace), snapshot.workload))


def _found(snapshot: Snapshot, policy: Policy | PolicyError | None) -> FoundJob | None:
    workload = snapshot.workload
    if workload is None:
        return None
    job_uids = frozenset(job.uid for job in member_jobs(snapshot))
    found = FoundJob(
        workload_uid=workload.uid,
        kind=workload.kind,
        gpus=sum(pod.gpus for pod in snapshot.pods if pod.holds_gpus),
        members_ready=members_ready(snapshot, job_uids),
        selected=policy is not None,
    )
    if not isinstance(policy, Policy):
        return found
    return msgspec.structs.replace(
        found,
        mode=policy.mode.lower(),
        budget_limit=policy.budget_limit,
        budget_window=policy.budget_window,
        asks_for_proof=policy.mode is Mode.ENFORCE and policy.proof_max_age is not None,
    )
