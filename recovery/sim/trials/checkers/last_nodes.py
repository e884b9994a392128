"""The rule that a quarantine must not take the last nodes on which waiting groups can run."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from recovery.core.model.facts import GroupKey
from recovery.ports import NODES, RECOVERY_CONFIGS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import LONGEST_RECONCILE, GroupView, JobView, is_true, ours
from recovery.sim.trials.checkers.node_writes import cordoned, fleet_of, taints_of
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_GPU = "nvidia.com/gpu"
_OVER = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


class LastNodesSpared(CheckerRule):
    """No controller quarantines a node without which too few are left for a group that waits for nodes. It need not
    have known what changed shortly before."""

    hears = frozenset({NODES, RECOVERY_CONFIGS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._takes_pods: dict[str, tuple[bool, datetime]] = {}
        """Whether each node takes pods, and since when."""
        self._entered: dict[str, datetime] = {}
        """Nodes in the fleet's ledger, and since when."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == NODES:
            name, takes = change.body["metadata"]["name"], change.type != "DELETED" and _takes_pods(change.body)
            if name not in self._takes_pods or self._takes_pods[name][0] != takes:
                self._takes_pods[name] = (takes, at)
            return
        entries = {entry.node: entry for entry in fleet_of(change.body).quarantined}
        added = [entry for node, entry in entries.items() if node not in self._entered]
        for entry in added:
            if ours(change.actor) and not entry.by:
                yield from self._judge(entry.node, change.actor, at)
        self._entered = {node: self._entered.get(node, at) for node in entries}

    def _judge(self, wanted: str, actor: str, at: datetime) -> Iterator[Violation]:
        known = at - self._unknown_for()
        takes, since = self._takes_pods.get(wanted, (False, at))
        if not takes or since > known:
            return
        for key, group in self.world.groups.items():
            for job in self._waiting(group, known):
                gpus = _gpus_asked(next(iter(job.pods.values())))
                kind = {name: _gpus_of(node) for name, node in self.world.nodes.items() if _gpus_of(node) >= gpus}
                left = [name for name in kind if name != wanted and self._counts(name, known)]
                needed = -(-job.wanted // (min(kind.values()) // gpus)) if kind and gpus else job.wanted
                if wanted in kind and len(left) < needed <= len(kind):
                    yield self._missed(key, job, wanted, actor, at, f"{len(left)} of {needed} nodes are left for it")

    def _missed(self, key: GroupKey, job: JobView, wanted: str, actor: str, at: datetime, left: str) -> Violation:
        return self.found(at, f"{actor} enters {wanted} as quarantined, though Job {job.name} waits: {left}", key)

    def _unknown_for(self) -> timedelta:
        return LONGEST_RECONCILE + self.world.undisturbed.watch_lag()

    def _waiting(self, group: GroupView, known: datetime) -> Iterator[JobView]:
        """The group's Jobs with a pod that has waited for a node since before `known`."""
        if group.ended is not None or group.suspended or (group.jobset or {}).get("spec", {}).get("suspend"):
            return
        for job in group.jobs.values():
            over = job.suspended or "deletionTimestamp" in job.body["metadata"] or is_true(job.body, *_OVER)
            lives = group.owns(job) and job.member and not over
            if lives and any(_waits(pod, known) for pod in job.pods.values()):
                yield job

    def _counts(self, node: str, known: datetime) -> bool:
        """A controller may have counted the node as one that takes pods. It takes pods, or did so until recently."""
        takes, since = self._takes_pods[node]
        entered_at = self._entered.get(node)
        return (takes and (entered_at is None or entered_at > known)) or (not takes and since > known)


def _takes_pods(node: Body) -> bool:
    """Any taint keeps the pods of a trial off, except with effect PreferNoSchedule."""
    kept_off = any(taint["effect"] != "PreferNoSchedule" for taint in taints_of(node))
    return is_true(node, "Ready") is not None and not cordoned(node) and not kept_off


def _gpus_of(node: Body) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(_GPU, 0))


def _gpus_asked(pod: Body) -> int:
    containers = pod["spec"].get("containers", ())
    return sum(int((each.get("resources", {}).get("limits") or {}).get(_GPU, 0)) for each in containers)


def _waits(pod: Body, known: datetime) -> bool:
    metadata = pod["metadata"]
    unplaced = pod["status"]["phase"] == "Pending" and not pod["spec"].get("nodeName")
    made_at = datetime.fromisoformat(metadata["creationTimestamp"])
    return unplaced and "deletionTimestamp" not in metadata and made_at <= known
