"""Black holes: nodes on which every pod dies or never starts. They are suspected and quarantined while a group starts.

Such a node says that it is Ready. As no pod stays on it, it is empty, and the scheduler picks it again and again. The
cause is a broken driver, a full disk, a network plugin that is down, or an image that cannot be pulled there. It shows
while a group starts: a member fails there at once, or waits for its container, while the same container runs on other
nodes. What many nodes show is the fault of the job or the registry, and makes none of the nodes suspect.

A pod that hangs without a reason (ContainerCreating: volumes, sandbox) is no evidence: only Events say why, and those
are not read.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import fleet_changes
from recovery.core.decision.verdict import Call, Verdict, message_counts, suspected
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, gather
from recovery.core.diagnosis.membership import member_count, member_jobs, place, pods_of, rank
from recovery.core.diagnosis.refusals import is_shared
from recovery.core.diagnosis.signature import EXITED
from recovery.core.fleet import quarantine, suspicion
from recovery.core.fleet.suspicion import may_be_the_nodes
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.model.facts import ContainerFacts, NodeFacts, PodFacts, Snapshot
from recovery.core.model.fleet_ledger import FleetChange, Suspicion
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Action, ChangeFleet
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode

LASTS = timedelta(minutes=2)
"""What keeps a pod from starting for less than this may pass by itself: a registry is slow, a plugin restarts."""
SHARED_WITHIN = timedelta(seconds=30)
"""A fault that all ranks have shows on the others within this time of the first."""
QUICK = timedelta(seconds=60)
"""A process that ran for longer than this has started. It may then have ended because it waited for others."""
_OF_THE_NODE = frozenset(
    {
        # kubelet, pkg/kubelet/images/types.go; k8s.io/cri-api/pkg/errors
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        # kubelet, pkg/kubelet/kuberuntime/kuberuntime_container.go and pkg/kubelet/container/sync_result.go
        "CreateContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "RunContainerError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
    }
)
"""Reasons why a container waits that may be the node's fault. A missing ConfigMap or an invalid image name is not."""
_PULLS = frozenset({"ErrImagePull", "ImagePullBackOff"})
_OF_THE_REGISTRY = re.compile(
    r"(resolve reference|manifest).*not found|(manifest|name) unknown|unauthori[sz]ed|failed to authori[sz]e"
    r"|access .*denied|denied: |forbidden|too ?many ?requests",
    re.IGNORECASE | re.DOTALL,
)
"""A registry's answers for an image that is gone, that this job may not pull, or that is pulled too often (OCI
distribution-spec, error codes; containerd, core/remotes/docker). Nodes that already have the image still run it."""
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_MAX_QUOTE = 300


class BlackHole(msgspec.Struct, frozen=True):
    """A node on which members of a starting group fail or wait, while others run elsewhere."""

    pod: PodFacts
    """The member on the node that shows it."""
    why: str
    """In words, with the evidence."""
    stays: bool
    """The pod stays there, whatever happens to the node: it waits, or is restarted in place. False: its Job has
    replaced it."""
    began_at: datetime
    """When the first of the pods that show it came to the node."""
    counts_at: datetime
    """When it begins to count against the node. In the future: it counts if nothing changes until then."""

    @property
    def node(self) -> str:
        return self.pod.node


class _Trouble(msgspec.Struct, frozen=True):
    """What keeps one member from running."""

    pod: PodFacts
    what: str
    failures: int
    """How often this pod has failed. 0: it has not failed, it waits."""
    blames: bool
    """It may be the node's fault."""

    @property
    def since(self) -> datetime:
        """When the kubelet accepted the pod, but not before the pod was created: the kubelet's clock may lag."""
        return max(self.pod.accepted_at or self.pod.created_at, self.pod.created_at)


# --- what is seen --------------------------------------------------------------------------------------------------


def seen(snapshot: Snapshot, now: datetime, *, failures: int, failing_for: timedelta) -> tuple[BlackHole, ...]:
    """The black holes that a starting group shows, sorted by node, including those that only count later.

    `failures`: this many failures of one rank on the node count, `failing_for` after the first of its pods came there.
    Members are compared within one ReplicatedJob, because only they have the same containers.
    """
    found: dict[str, BlackHole] = {}
    kinds = {job.uid: job.replicated_job for job in member_jobs(snapshot)}
    troubles = tuple(_troubles(snapshot, now))
    ill = {trouble.pod.uid for trouble in troubles}
    pods = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job)]
    running = [pod for pod in pods if pod.running and pod.deleting_since is None and pod.uid not in ill]
    for kind in sorted(set(kinds.values())):
        mine = [trouble for trouble in troubles if kinds[trouble.pod.job_uid] == kind]
        well = {pod.node for pod in running if kinds[pod.job_uid] == kind}
        for hole in _of_kind(mine, well, failures, failing_for):
            if hole.node not in found and _open_to_pods(snapshot.nodes.get(hole.node)):
                found[hole.node] = hole
    return tuple(found[node] for node in sorted(found))


def _of_kind(troubles: list[_Trouble], well: set[str], failures: int, failing_for: timedelta) -> Iterator[BlackHole]:
    """`well`: nodes on which others of the same kind run."""
    troubled = {trouble.pod.node for trouble in troubles}
    others = len(well - troubled)
    if is_shared(len(troubled), others):
        return
    while_ = f"while members run on {others} other node{'s' if others > 1 else ''}"
    # A rank that fails wherever it is placed has a fault of its own.
    places: dict[tuple[str, int | str], set[str]] = {}
    for each in troubles:
        places.setdefault((each.pod.job_uid, rank(each.pod)), set()).add(each.pod.node)
    for node in sorted(troubled - well):
        for each in troubles:
            who = (each.pod.job_uid, rank(each.pod))
            if each.pod.node != node or not each.blames or len(places[who]) > 1:
                continue
            same = [other for other in troubles if (other.pod.job_uid, rank(other.pod)) == who]
            times, since = sum(other.failures for other in same), min(other.since for other in same)
            if each.failures and times < failures:
                continue
            often = f", {times} times there" if times > 1 else ""
            lasts = failing_for if each.failures else LASTS
            stays = each.pod.phase != "Failed"
            yield BlackHole(each.pod, f"{each.what}{often}, {while_}", stays, since, since + lasts)
            break


def _troubles(snapshot: Snapshot, now: datetime) -> Iterator[_Trouble]:
    """One for each pod that failed while it started, or that something keeps from starting."""
    jobs = {job.uid for job in member_jobs(snapshot)}
    failed: set[str] = set()
    for item in gather(snapshot):
        pod = item.pod
        if item.kind not in EXITED or pod is None or not pod.node or pod.uid in failed or pod.job_uid not in jobs:
            continue
        if _runs_on(pod, now):
            continue
        failed.add(pod.uid)
        blames = _ended_quickly(item) and may_be_the_nodes(classify((item,), snapshot).root)
        reason = f" ({pod.reason})" if item.exit is None and pod.reason else ""
        yield _Trouble(pod, f"{item.text}{reason}", _failures(pod), blames)
    for job in member_jobs(snapshot):
        for pod in pods_of(snapshot, job):
            if pod.running or pod.deleting_since is not None or not pod.node or pod.uid in failed:
                continue
            waits = (each for each in (*pod.init_containers, *pod.containers) if each.waiting_reason not in _ON_ITS_WAY)
            first = next(waits, None)
            if first is not None:
                said = f": {first.waiting_message[:_MAX_QUOTE]}" if first.waiting_message else ""
                what = f"{place(pod)} waits: {first.waiting_reason}{said}"
                yield _Trouble(pod, what, 0, _blames(first))


def _blames(waiting: ContainerFacts) -> bool:
    """The reason why the container waits may be the node's fault."""
    reason = waiting.waiting_reason
    return reason in _OF_THE_NODE and not (reason in _PULLS and _OF_THE_REGISTRY.search(waiting.waiting_message))


def _runs_on(pod: PodFacts, now: datetime) -> bool:
    """The pod has outlived what ended its earlier process."""
    starts = [each.running_since for each in pod.containers if each.running_since is not None]
    return pod.running and now - max(starts) >= QUICK


def _failures(pod: PodFacts) -> int:
    """How often a process of the pod has ended, but at least 1: the pod may have been refused before any began."""
    return max((each.restarts + (each.exit is not None) for each in pod.containers), default=0) or 1


def _ended_quickly(item: Evidence) -> bool:
    """It ended quickly or never began. A container that could not start has the start 1970 (containerd) or none."""
    ended = item.exit
    if ended is None or ended.started_at is None or ended.finished_at is None or ended.started_at.timestamp() <= 0:
        return True
    return ended.finished_at - ended.started_at < QUICK


def _open_to_pods(node: NodeFacts | None) -> bool:
    """Nothing keeps the next pod off the node. A node that is lost, cordoned or quarantined does no more harm."""
    return node is not None and node.ready and not quarantine.takes_no_pods(node)


# --- what becomes of it --------------------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True):
    """What a starting group asks of the fleet."""

    change: FleetChange = FleetChange()
    """What the fleet's ledger does not have yet."""
    explanations: tuple[Explanation, ...] = ()
    """What counts against which node; in an incident only what is new. Empty: nothing."""
    replace: tuple[BlackHole, Verdict] | None = None
    """The node that calls for another restart, away from it. None: none does."""
    requeue_at: datetime | None = None
    """When more will count against a node by time alone. None: never."""

    def actions(self, epoch: int) -> tuple[Action, ...]:
        return (ChangeFleet(epoch, self.change),) if self.change != FleetChange() else ()


def before_training(context: ReconcileContext, policy: Policy) -> Asked:
    """What a group that has never run whole asks of the fleet. Nothing else is done and no incident is opened: the Job
    replaces what fails.

    The suspicion is recorded under the name of this start. If it is enough, the same write quarantines the node. What
    is recorded is never asked for again, so that a user who releases the node is not overruled.
    """
    jobset = context.snapshot.jobset
    if policy.mode is not Mode.ENFORCE or jobset is None:
        return Asked()
    name = f"start-{jobset.uid[:8]}"
    holes, requeue_at = _counted(context, policy, failures=2, failing_for=LASTS)
    members = sum(map(member_count, member_jobs(context.snapshot)))
    known = tuple(
        _held_against(each, _case(context, policy, each, name)) for each in holes if _known(policy, each, name)
    )
    new = [each for each in holes if not _known(policy, each, name)]
    asked = _ask(context, policy, name, new, members, alone=True)
    return msgspec.structs.replace(
        asked, explanations=(*known, *asked.explanations), requeue_at=asked.requeue_at or requeue_at
    )


def in_incident(context: ReconcileContext, ledger: Ledger) -> Asked:
    """What the group of an open incident asks for while it starts again.

    The suspicion comes first, once for each node. If it is enough, the node is replaced: by a quarantine if the Job has
    already replaced the pod, else by another restart of the group, because nothing else takes the pod off the node.
    """
    policy, open_ = context.policy, ledger.current_incident
    restart = restart_of(ledger)
    if not isinstance(policy, Policy) or open_.storm or restart is None:
        return Asked()
    holes, requeue_at = _counted(context, policy, failures=1, failing_for=SHARED_WITHIN)
    new = [each for each in holes if not _known(policy, each, open_.id)]
    asked = _ask(context, policy, open_.id, new, open_.ranks, alone=False)
    replace: tuple[BlackHole, Verdict] | None = None
    for hole in holes:
        before = _known(policy, hole, open_.id)
        if before is None or replace is not None or _placed_elsewhere(context.snapshot, hole):
            continue
        case = _case(context, policy, hole, open_.id)
        twice = because(Reason.NODE_SUSPECTED_TWICE, node=hole.node)
        why = twice if before.at < restart.started_at else case.why if case.enough and hole.stays else None
        if why is not None:
            replace = (hole, Verdict(Call.REPLACE_NODE, why, node_names=(hole.node,), still_runs=True))
    return msgspec.structs.replace(asked, replace=replace, requeue_at=asked.requeue_at or requeue_at)


def _placed_elsewhere(snapshot: Snapshot, hole: BlackHole) -> bool:
    """The Job's replacement pod has another node. A restart of the group would only take that node from it."""
    return any(
        pod.job_uid == hole.pod.job_uid and rank(pod) == rank(hole.pod) and pod.node not in ("", hole.node)
        for pod in snapshot.pods
        if pod.phase not in {"Succeeded", "Failed"} and pod.deleting_since is None and pod.gone_at is None
    )


def _ask(
    context: ReconcileContext, policy: Policy, name: str, holes: list[BlackHole], members: int, *, alone: bool
) -> Asked:
    """The suspicions, and at most one quarantine: the caps count what the ledger has, so another quarantine waits for
    the next reconcile. `alone`: no restart will remove the pods, so a node is quarantined even if a pod stays there.
    """
    suspicions: list[Suspicion] = []
    said: list[Explanation] = []
    requeue_at: datetime | None = None  # the restart follows the suspicion in a reconcile of its own
    for hole in holes:
        case = _case(context, policy, hole, name)
        held = _held_against(hole, case)
        wanted = None
        if case.enough and (alone or not hole.stays):
            wanted = fleet_changes.entry(context, hole.node, name, message_of(held), context.now)
        namespace = context.snapshot.key.namespace
        suspicions.append(Suspicion(hole.node, name, hole.counts_at, hole.why, namespace))
        if wanted is None:
            said.append(held)
            requeue_at = context.now if case.enough else requeue_at
            continue
        refused = fleet_changes.refused(context, policy, wanted, members)
        if refused is not None and refused.reason is Reason.FEASIBLE_NODES_UNKNOWN:
            # What the ledger has is never asked for again, so the suspicion waits for its quarantine.
            suspicions.pop()
            requeue_at = context.now + fleet_changes.UNKNOWN_AGAIN_AFTER
            continue
        if refused is not None:
            said.append(explained(Sentence.HOLE_NOT_QUARANTINED, refused.reason, held=held, refused=refused))
            continue
        sentence = Sentence.HOLE_QUARANTINED_POD_STAYS if hole.stays else Sentence.HOLE_QUARANTINED
        said.append(explained(sentence, Reason.NODE_SWALLOWS_PODS, held=held))
        requeue_at = context.now if len(suspicions) < len(holes) else requeue_at
        return Asked(FleetChange((wanted,), tuple(suspicions)), tuple(said), requeue_at=requeue_at)
    return Asked(FleetChange(suspicions=tuple(suspicions)), tuple(said), requeue_at=requeue_at)


class _Case(msgspec.Struct, frozen=True):
    enough: bool
    why: Explanation


def _held_against(hole: BlackHole, case: _Case) -> Explanation:
    return because(Reason.NODE_SWALLOWS_PODS, what=hole.why, case=case.why)


def _case(context: ReconcileContext, policy: Policy, hole: BlackHole, name: str) -> _Case:
    """What counts against the node, this black hole included. `name`: of the incident, or of the start."""
    confirmed = message_counts(context, hole.node)
    known = suspicion.held_against(policy.fleet, policy.limits, hole.node, context.now, confirmed=confirmed)
    others = [each for each in known if each != name]
    most = policy.limits.suspicions
    return _Case(len(others) + 1 >= most, suspected(hole.node, others, most))


def _known(policy: Policy, hole: BlackHole, name: str) -> Suspicion | None:
    """The suspicion of that incident, or start, against the node. None: the fleet's ledger does not have it."""
    return next((each for each in policy.fleet.suspicions if (each.node, each.incident) == (hole.node, name)), None)


def _counted(
    context: ReconcileContext, policy: Policy, *, failures: int, failing_for: timedelta
) -> tuple[list[BlackHole], datetime | None]:
    """What counts now, and when more will count by time alone. None: never.

    What happened before a person released the node does not count, nor does what is older than suspicions are kept.
    """
    if not policy.limits.may_cordon:
        return [], None
    now, nodes = context.now, context.snapshot.nodes
    found = seen(context.snapshot, now, failures=failures, failing_for=failing_for)
    held = [each for each in found if not quarantine.cleared(each.began_at, nodes.get(each.node), now)]
    ahead = min((each.counts_at for each in held if each.counts_at > now), default=None)
    past = [each for each in held if each.counts_at <= now]
    return [each for each in past if suspicion.counts(each.counts_at, policy.limits, now)], ahead
