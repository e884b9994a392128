"""Replays a trial change by change: the API server's objects of the elastic group at each moment."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL
from recovery.core.model.ledger import Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_GROUPS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.observed_world import world_of
from recovery.sim.trials.manifests import JOBSET_LABEL
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial import TrialOutcome
from tests.simulation.elastic.plans import elastic_of

SETTLED = timedelta(seconds=30)
"""A group is at rest after this long without an event."""


@dataclass
class Seen:
    """The API server's objects at one moment."""

    at: datetime
    until: datetime = datetime.min
    """When the next change comes, or the trial ends."""
    ledger: Ledger = field(default_factory=Ledger)
    labelled: bool = False
    """The RecoveryGroup carries the label by which the admission policy finds its settings."""
    jobset: Body | None = None
    jobs: dict[str, Body] = field(default_factory=dict)
    """Jobs of the elastic group, by UID."""
    pods: dict[str, Body] = field(default_factory=dict)
    """Pods of all groups, by UID."""
    nodes: dict[str, Body] = field(default_factory=dict)

    @property
    def job(self) -> Body | None:
        """The Job of the group. None: there is none, or it is being deleted."""
        found = [job for job in self.jobs.values() if "deletionTimestamp" not in job["metadata"]]
        return found[0] if len(found) == 1 else None

    def pods_of(self, job: Body) -> list[Body]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.pods.values() if _owner(pod) == uid]

    @property
    def whole(self) -> Body | None:
        """The Job of the group if all of its pods are ready, on nodes that are ready. None: it does not run whole."""
        job = self.job
        return job if job is not None and self._all_run(job) else None

    @property
    def trains(self) -> Body | None:
        """The same, but also for a Job that is being deleted: its pods train until they go. None: some do not run."""
        return next((job for job in self.jobs.values() if self._all_run(job)), None)

    def _all_run(self, job: Body) -> bool:
        if job["spec"].get("suspend"):
            return False
        fit = sum(
            _is(pod, "Ready") and "deletionTimestamp" not in pod["metadata"] and self._runs(pod)
            for pod in self.pods_of(job)
        )
        return bool(fit == job["spec"]["parallelism"])

    def _runs(self, pod: Body) -> bool:
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        return node is not None and _is(node, "Ready")

    def free_nodes(self, avoided: Sequence[str] = ()) -> int:
        """How many nodes could run one more pod of the group. Every pod takes a whole node."""
        held = {pod["spec"].get("nodeName") for pod in self.pods.values() if not _over(pod)}
        return sum(
            name not in held and name not in avoided and _is(node, "Ready") and not _closed(node)
            for name, node in self.nodes.items()
        )


def _owner(body: Body) -> str:
    return str(next((owner["uid"] for owner in body["metadata"].get("ownerReferences", ())), ""))


def _is(body: Body, condition: str) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _over(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}


def _closed(node: Body) -> bool:
    """The node takes no new pods of the group. Kubernetes' own taints do not count: they go soon after it is Ready."""
    taints = (taint for taint in node["spec"].get("taints") or () if taint["effect"] != "PreferNoSchedule")
    foreign = any(not taint["key"].startswith("node.kubernetes.io/") for taint in taints)
    return foreign or bool(node["spec"].get("unschedulable"))


@dataclass(frozen=True)
class Trial:
    """A finished trial, and its elastic group."""

    outcome: TrialOutcome
    job: JobPlan
    elastic: PinnedElastic

    @staticmethod
    def of(outcome: TrialOutcome) -> "Trial":
        job = outcome.plan.jobs[0]
        return Trial(outcome, job, elastic_of(job))

    def seconds(self, at: datetime) -> float:
        return (at - self.outcome.evidence.began_at).total_seconds()

    def steps(self) -> Iterator[tuple[ObjectChange, Seen]]:
        """Each change with the state after it. The state is the same object each time, updated."""
        evidence = self.outcome.evidence
        seen = Seen(evidence.began_at)
        nexts = (*evidence.change_times[1:], evidence.ends_at)
        for change, at, until in zip(evidence.changes, evidence.change_times, nexts, strict=True):
            seen.at, seen.until = at, until
            self._take(change, seen)
            yield change, seen

    @property
    def last(self) -> Seen:
        """The state at the end."""
        return deque((seen for _, seen in self.steps()), maxlen=1).pop()

    def undisturbed_seconds(self, since: datetime, until: datetime) -> float:
        """The part of that time in which nothing delayed the controllers."""
        return world_of(self.outcome.evidence).undisturbed.seconds(since, until)

    def _take(self, change: ObjectChange, seen: Seen) -> None:
        body = change.body
        metadata = body["metadata"]
        gone = change.type == "DELETED"
        if change.resource == NODES:
            _keep(seen.nodes, metadata["name"], body, gone=gone)
        elif change.resource == PODS:
            _keep(seen.pods, metadata["uid"], body, gone=gone)
        elif change.resource == JOBS and metadata.get("labels", {}).get(JOBSET_LABEL) == self.job.name:
            _keep(seen.jobs, metadata["uid"], body, gone=gone)
        elif change.resource == JOB_SETS and metadata["name"] == self.job.name:
            seen.jobset = None if gone else body
        elif change.resource == RECOVERY_GROUPS and body["spec"]["group"] == self.job.name:
            seen.ledger = msgspec.convert(body.get("status") or {}, Ledger) if not gone else Ledger()
            seen.labelled = BIRTH_SETTINGS_LABEL in metadata.get("labels", {})

    def rests(self) -> Iterator[tuple[Seen, Body]]:
        """The group at rest, with its Job: for `SETTLED` it has run whole without an incident, and controllers could
        see it."""
        since: datetime | None = None
        for _, seen in self.steps():
            job = seen.whole if seen.ledger.incident is None else None
            if job is None:
                since = None
                continue
            since = since or seen.at
            if seen.until - since >= SETTLED and self.undisturbed_seconds(since, seen.until) >= SETTLED.total_seconds():
                yield seen, job


def _keep(known: dict[str, Body], name: str, body: Body, *, gone: bool) -> None:
    if gone:
        known.pop(name, None)
    else:
        known[name] = body
