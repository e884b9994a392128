"""What the changes of a trial mean, kept once for all checkers.

A checker must not learn from the controller what happened to a group. So this module derives losses, native decisions
and the policy in force from the objects, without the code that is judged by them. It only uses the production code's
pure function to select policies, because no controller process can influence that.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.config import ConfigFacts
from recovery.core.model.durations import parse_duration
from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import FleetLedger, Quarantined
from recovery.core.policy.resolved import Policy, PolicyFacts
from recovery.core.policy.selection import PolicySet, applicable
from recovery.kube.projections.recovery import decode_config, decode_policy
from recovery.kube.projections.workloads import decode_job_set, decode_train_job
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    Resource,
)
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.group_views import (
    INITIALIZERS,
    ClearLoss,
    Force,
    GroupView,
    JobView,
    Loss,
    NativeDecision,
    controller_uid,
    deletion_begins,
    is_true,
    ours,
)
from recovery.sim.trials.checkers.ledger_changes import Ledgers
from recovery.sim.trials.checkers.member_losses import decision_about_job, decision_about_pod, how_lost, node_trouble
from recovery.sim.trials.checkers.undisturbed_time import UndisturbedTime
from recovery.sim.trials.manifests import TRAINER, training_container
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence
from recovery.workloads.jobset import COMPLETION_INDEX_LABEL, JOBSET_NAME_LABEL, REPLICATED_JOB_LABEL

_encode = msgspec.json.Encoder().encode


class ObservedWorld:
    """The CheckerSet or any checker reports each change and request to it, in order. It takes in each of them once."""

    def __init__(self, evidence: TrialEvidence) -> None:
        self.ledgers = Ledgers()
        self.undisturbed = UndisturbedTime(evidence)
        self.groups: dict[GroupKey, GroupView] = {}
        self.jobs: dict[str, JobView] = {}
        """Every Job that ever existed, by UID, in the order in which they were created."""
        self.nodes: dict[str, Body] = {}
        """The nodes that exist, by name."""
        self._wrongs: dict[str, tuple[datetime, str]] = {}
        """When something last went wrong with a node, and what, by name of the node."""
        self.fleet = FleetLedger()
        """The fleet's ledger in the RecoveryConfig at present."""
        self.breaker_open_since: datetime | None = None
        """None: the circuit breaker is closed."""
        self.clear_losses: list[ClearLoss] = []
        self._evidence = evidence
        self._names: dict[tuple[str, str, str], GroupKey] = {}
        """Groups of Jobs, pods and RecoveryGroups, by plural, namespace and name."""
        self._reads: dict[tuple[str, int, str, GroupKey], int] = {}
        self._policies: dict[str, PolicyFacts] = {}
        self._config: ConfigFacts | None = None
        self._revision = -1
        self._request: RequestRecord | None = None
        self._takers: dict[Resource, Callable[[ObjectChange, datetime], None]] = {
            PODS: self._pod,
            NODES: self._node,
            JOBS: self._job,
            JOB_SETS: self._jobset,
            TRAIN_JOBS: self._train_job,
            RECOVERY_GROUPS: self._ledger,
            RECOVERY_POLICIES: self._policy,
            CLUSTER_RECOVERY_POLICIES: self._policy,
            RECOVERY_CONFIGS: self._policy,
        }

    # What checkers ask.

    def group(self, key: GroupKey) -> GroupView:
        if key not in self.groups:
            self.groups[key] = GroupView(key, since=self._evidence.began_at)
        return self.groups[key]

    def group_of(self, resource: Resource, body: Body) -> GroupKey | None:
        """The group that an object belongs to. None: no group."""
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if resource in (TRAIN_JOBS, JOB_SETS):
            return GroupKey(namespace, name)
        label = metadata.get("labels", {}).get(JOBSET_NAME_LABEL)
        if label:
            return GroupKey(namespace, label)
        about = body.get("involvedObject", {})
        if about.get("kind") == RECOVERY_CONFIGS.kind:  # It has no group, although its Events are in a namespace.
            return None
        group = body.get("spec", {}).get("group") or about.get("name")
        return GroupKey(namespace, group) if group else None

    def group_of_request(self, record: RequestRecord) -> GroupKey | None:
        """The group that a request concerns. None: no group in particular."""
        request = record.request
        namespace = request.namespace or ""
        if request.resource in (TRAIN_JOBS, JOB_SETS) and request.name is not None:
            return GroupKey(namespace, request.name)
        if request.name is not None:
            return self._names.get((request.resource.plural, namespace, request.name))
        name = str(request.query.get("labelSelector", "")).partition("=")[2]
        return GroupKey(namespace, name) if name else None

    def read_at(self, record: RequestRecord, group: GroupKey) -> int | None:
        """The revision up to which the process that sent this had surely read the group's Jobs, its pods and its
        JobSet. None: it has not read all of them."""
        plurals = (PODS.plural, JOBS.plural, JOB_SETS.plural)
        found = [self._reads.get((record.actor, record.process, plural, group)) for plural in plurals]
        known = [revision for revision in found if revision is not None]
        return min(known) if len(known) == len(found) else None

    def spoiled(self, loss: ClearLoss) -> bool:
        """Another client suspended or deleted the group, or the group finished, before a controller had time to act."""
        until = loss.at + loss.NOTICED_WITHIN
        group = self.group(loss.group)
        return until > self._evidence.ends_at or any(loss.at <= at <= until for at in group.disturbances)

    def quarantine_of(self, node: str) -> Quarantined | None:
        """The entry of a node in the fleet's ledger. None: it has none."""
        return next((entry for entry in self.fleet.quarantined if entry.node == node), None)

    def jobs_of(self, uids: Iterable[str]) -> Iterator[JobView]:
        """The Jobs with these UIDs that ever existed."""
        return (self.jobs[uid] for uid in uids if uid in self.jobs)

    # What is reported to it.

    def note(self, change: ObjectChange, at: datetime) -> None:
        """Takes in a change, unless it was taken in before."""
        if change.revision <= self._revision:
            return
        self._revision = change.revision
        take = self._takers.get(change.resource)
        if take is not None:
            take(change, at)

    def heard(self, record: RequestRecord) -> None:
        """Takes in a request, unless it was taken in before."""
        if record is self._request:
            return
        self._request = record
        if record.code != 200 or record.request.verb not in {"get", "list"}:
            return
        if record.request.resource in (PODS, JOBS, JOB_SETS):
            group = self.group_of_request(record)
            if group is not None:
                self._reads[record.actor, record.process, record.request.resource.plural, group] = record.revision

    # Pods.

    def _pod(self, change: ObjectChange, at: datetime) -> None:
        metadata = change.body["metadata"]
        job = self.jobs.get(controller_uid(change.body))
        if job is None:
            return
        uid = metadata["uid"]
        group = self.group(job.group)
        index = metadata.get("labels", {}).get(COMPLETION_INDEX_LABEL, uid)
        if change.type == "ADDED":
            self._names[PODS.plural, metadata.get("namespace", ""), metadata["name"]] = job.group
            if index in job.indexes:
                self._lose(job, Loss(at, change.revision, f"pod {metadata['name']} replaced another one"))
            job.indexes.add(index)
        self._placed(job, change, at)
        lost = how_lost(change, job.container)
        # The garbage collector may delete the pods of a Job after the Job itself.
        going = "deletionTimestamp" in job.body["metadata"] or job.gone
        expected = going or job.suspended or job.is_scaled_away(change.body)
        if deletion_begins(change) and (expected or ours(change.actor)):
            job.lost_pods.add(uid)  # The Job or our controller ends it, so it is no loss from now on.
            if job.suspended:
                job.taken.append(Loss(at, change.revision, f"pod {metadata['name']} was deleted by a suspension"))
        elif lost is not None and not expected and uid not in job.lost_pods:
            self._lose(job, Loss(at, change.revision, f"pod {metadata['name']} {lost}"), of_pod=True)
        decided = decision_about_pod(job.body, change, job.container)
        if decided is not None:
            job.decisions.append(NativeDecision(change.revision, decided, Force.EVERY))
            group.hit = group.hit or decided
        # A trainer that saves when it is asked to terminate may exit 0, and has not completed its training.
        if _succeeds(change) and "deletionTimestamp" not in metadata:
            group.disturbances.append(at)
            job.decisions.append(
                NativeDecision(change.revision, f"pod {metadata['name']} has Succeeded", Force.SUCCESS)
            )
        if change.type == "DELETED":
            job.pods.pop(uid, None)
            group.removed_at = at
        else:
            job.pods[uid] = change.body
            job.ran = job.ran or job.running

    def _lose(self, job: JobView, loss: Loss, *, of_pod: bool = False) -> None:
        group = self.group(job.group)
        group.hit = group.hit or loss.text
        job.losses.append(loss)
        if len(job.losses) > 1:
            return
        if of_pod and group.facts is not None and self._is_clear(job, group, loss):
            clear = ClearLoss(job.group, group.facts.uid, job.uid, loss.at, loss.revision, loss.text)
            self.clear_losses.append(clear)
        if job.body["spec"].get("backoffLimit", 6) == 0:
            text = f"Job {job.name} has backoffLimit 0 and lost a member"
            job.decisions.append(NativeDecision(loss.revision, text, Force.FIRST))
        if group.jobset is not None and _exhausted(group.jobset):
            text = f"JobSet {group.key.name} allows no more restarts"
            job.decisions.append(NativeDecision(loss.revision, text, Force.FIRST))

    def _is_clear(self, job: JobView, group: GroupView, loss: Loss) -> bool:
        """A controller must open an incident for this first loss of an incarnation, if nothing else happens soon."""
        quiet_since = loss.at - ClearLoss.SETTLED
        disturbed = any(at > quiet_since for at in group.disturbances[-1:])
        if group.policy is None or group.paused_since is not None or disturbed or group.since > quiet_since:
            return False
        if any(each.node and each.until and each.at < group.since <= each.until for each in self._evidence.happenings):
            return False  # The kubelet may date what ended on that node before the policy changed: a baseline.
        if group.suspended or group.ended is not None or group.failed_jobsets or not group.owns(job):
            return False
        members = [each for each in group.jobs.values() if each.member]
        if any(each.decisions or each.suspended or each.deleted_by or each.losses[1:] for each in members):
            return False
        met_at = {
            record.job_uid: record.at
            for record in self._evidence.trace.of(str(group.key), EventKind.ROUND_FORMED)
            if record.at <= quiet_since
        }
        trained = all(each.uid in met_at and met_at[each.uid] >= each.began_at for each in members)
        return trained and job.running

    # Nodes.

    def _node(self, change: ObjectChange, at: datetime) -> None:
        """Notes what goes wrong with a node. It is no loss of a member, but may give reason to assume one."""
        name = change.body["metadata"]["name"]
        if change.type == "DELETED":
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = change.body
        wrong = node_trouble(change)
        if wrong is None:
            return
        self._wrongs[name] = (at, wrong)
        for job in self.jobs.values():
            on_it = any(pod["spec"].get("nodeName") == name for pod in job.pods.values())
            if on_it and not job.gone:
                group = self.group(job.group)
                group.hit = group.hit or f"node {name} {wrong}"
                job.troubles.append(Loss(at, change.revision, f"node {name} {wrong}"))

    def _placed(self, job: JobView, change: ObjectChange, at: datetime) -> None:
        """A pod that was created before its node went wrong, and bound after that, looks as if it had run there.

        If a rule waits until a condition has lasted for a while, the node goes wrong for that rule only then.
        """
        node, before = change.body["spec"].get("nodeName"), change.before or {"spec": {}}
        if node not in self._wrongs or before["spec"].get("nodeName") == node:
            return
        since, wrong = self._wrongs[node]
        made_at = datetime.fromisoformat(change.body["metadata"]["creationTimestamp"])
        if made_at < since + _longest_wait(self.group(job.group)):
            job.troubles.append(Loss(at, change.revision, f"node {node} {wrong}"))

    # Jobs and JobSets.

    def _job(self, change: ObjectChange, at: datetime) -> None:
        metadata = change.body["metadata"]
        key = self.group_of(JOBS, change.body)
        if key is None:
            return
        uid, group = metadata["uid"], self.group(key)
        if change.type == "ADDED" or uid not in self.jobs:
            container = self._training_container(key, change.body)
            job = self.jobs[uid] = group.jobs[uid] = JobView(uid, metadata["name"], key, change.body, at, container)
            self._names[JOBS.plural, key.namespace, job.name] = key
        job, before = self.jobs[uid], change.before
        job.body = change.body
        self._note_run(job, group, before, at)
        if deletion_begins(change):
            job.deleted_by = change.actor
            if not ours(change.actor):
                group.disturbances.append(at)
                self._lose(job, Loss(at, change.revision, f"Job {job.name} was deleted by {change.actor}"))
        if before is not None and is_true(before, "FailureTarget", "Failed") is None:
            failing = is_true(change.body, "FailureTarget", "Failed")
            if failing is not None:
                self._lose(job, Loss(at, change.revision, f"Job {job.name} is failing: {failing.get('reason')}"))
                decided = decision_about_job(change.body, group.jobset, str(failing.get("reason", "")))
                if decided is not None:
                    job.decisions.append(NativeDecision(change.revision, decided, Force.EVERY))
        met = is_true(change.body, "SuccessCriteriaMet", "Complete")
        if met is not None and (before is None or is_true(before, "SuccessCriteriaMet", "Complete") is None):
            text = f"Job {job.name} is {met['type']}"
            group.disturbances.append(at)
            job.decisions.append(NativeDecision(change.revision, text, Force.SUCCESS))
        if change.type == "DELETED":
            job.gone = True
            group.jobs.pop(uid, None)
            group.removed_at = at

    def _note_run(self, job: JobView, group: GroupView, before: Body | None, at: datetime) -> None:
        """Notes that this change suspends, resumes or resizes the Job."""
        was_suspended = before is not None and bool(before["spec"].get("suspend"))
        if job.suspended and not was_suspended:
            job.suspended_at, job.taken = at, []
        elif was_suspended and not job.suspended:
            job.begin_again(at)
            group.hit = group.hit or "".join(loss.text for loss in job.late[:1])
        elif before is not None and before["spec"].get("parallelism") != job.body["spec"].get("parallelism"):
            group.disturbances.append(at)
            job.indexes = {index for index in job.indexes if not (index.isdecimal() and int(index) >= job.wanted)}

    def _training_container(self, key: GroupKey, job: Body) -> str | None:
        replicated = job["metadata"]["labels"].get(REPLICATED_JOB_LABEL, "")
        if replicated in INITIALIZERS:
            return str(replicated)
        plan = self._evidence.jobs.get(key)
        return TRAINER if plan is None else training_container(plan)

    def _jobset(self, change: ObjectChange, at: datetime) -> None:
        metadata = change.body["metadata"]
        group = self.group(GroupKey(metadata.get("namespace", ""), metadata["name"]))
        if not controller_uid(change.body):
            self._workload(JOB_SETS, change, at)
        if deletion_begins(change) and not ours(change.actor):
            group.hit = group.hit or f"JobSet {metadata['name']} was deleted"
            group.deleted_jobsets.add(metadata["uid"])
        if change.type == "DELETED":
            group.jobset = None
            return
        if change.type == "ADDED":
            group.jobset_made_at = at
            group.restarts.clear()  # A recreated JobSet counts from 0 again.
        before, group.jobset = change.before, change.body
        status = change.body.get("status") or {}
        restarts = status.get("restarts", 0)
        if restarts > ((before or {}).get("status") or {}).get("restarts", 0):
            group.restarts.append((change.revision, restarts))
            group.hit = group.hit or f"JobSet {metadata['name']} restarted it"
        if status.get("terminalState") == "Failed":
            group.failed_jobsets.add(metadata["uid"])
            group.hit = group.hit or f"JobSet {metadata['name']} failed"

    # Workloads and policies.

    def _train_job(self, change: ObjectChange, at: datetime) -> None:
        self._workload(TRAIN_JOBS, change, at)

    def _workload(self, resource: Resource, change: ObjectChange, at: datetime) -> None:
        metadata = change.body["metadata"]
        group = self.group(GroupKey(metadata.get("namespace", ""), metadata["name"]))
        before = change.before
        if change.type == "DELETED":
            group.workload = group.facts = None
            group.disturbances.append(at)
            return
        group.workload, group.workload_resource = change.body, resource
        changed = before is None or any(
            metadata.get(part) != before["metadata"].get(part) for part in ("labels", "annotations")
        )
        suspended = before is not None and before["spec"].get("suspend") != change.body["spec"].get("suspend")
        if before is not None and not ours(change.actor) and (changed or suspended or deletion_begins(change)):
            if changed or deletion_begins(change):  # A healthy job stays healthy when it is suspended or resumed.
                group.hit = group.hit or f"{change.actor} changed its {resource.kind}"
            group.asked = group.asked or changed
            group.disturbances.append(at)
        if changed:
            raw = _encode(change.body)
            train_job = resource is TRAIN_JOBS
            group.facts = decode_train_job(raw).value if train_job else decode_job_set(raw).value.workload
            self._resolve(group, at)

    def _policy(self, change: ObjectChange, at: datetime) -> None:
        raw, uid = _encode(change.body), change.body["metadata"]["uid"]
        if change.resource == RECOVERY_CONFIGS:
            self._config = None if change.type == "DELETED" else decode_config(raw).value
            self.fleet = self._config.fleet if self._config is not None else FleetLedger()
            if self.fleet.breaker is None:
                self.breaker_open_since = None
            elif self.breaker_open_since is None:
                self.breaker_open_since = at
        elif change.type == "DELETED":
            self._policies.pop(uid, None)
        else:
            self._policies[uid] = decode_policy(raw).value
        for group in self.groups.values():
            self._resolve(group, at)

    def _resolve(self, group: GroupView, at: datetime) -> None:
        if group.facts is None:
            return
        in_reach = tuple(p for p in self._policies.values() if p.namespace in {"", group.key.namespace})
        found = applicable(PolicySet(in_reach, self._config), group.facts)
        policy = found if isinstance(found, Policy) else None
        was = (group.policy.uid, group.policy.mode) if group.policy is not None else None
        if was != ((policy.uid, policy.mode) if policy is not None else None):
            group.since = at
            group.disturbances.append(at)
        group.policy = policy
        annotated = group.facts.annotations.get(PAUSED_ANNOTATION, "false") != "false"
        if not (annotated or (policy is not None and policy.global_pause)):
            group.paused_since = None
        elif group.paused_since is None:
            group.paused_since = at
            group.disturbances.append(at)

    def _ledger(self, change: ObjectChange, at: datetime) -> None:
        metadata = change.body["metadata"]
        key = self.group_of(RECOVERY_GROUPS, change.body)
        if key is not None:
            self._names[RECOVERY_GROUPS.plural, key.namespace, metadata["name"]] = key
        self.ledgers.note(change, at)


def _longest_wait(group: GroupView) -> timedelta:
    """The longest `for` of a node condition in the rules of the group's policy."""
    rules = group.policy.rules if group.policy is not None else ()
    waits = (parse_duration(each.held_for, "for") for rule in rules for each in rule.when.on_node_conditions)
    return max(waits, default=timedelta())


def _exhausted(jobset: Body) -> bool:
    """The JobSet's failurePolicy allows no more restarts (KEP-262)."""
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return False
    counted: int = (jobset.get("status") or {}).get("restartsCountTowardsMax", 0)
    most: int = policy.get("maxRestarts", 0)
    return counted >= most


def _succeeds(change: ObjectChange) -> bool:
    phase, was = (((each or {}).get("status") or {}).get("phase") for each in (change.body, change.before))
    return bool(phase == "Succeeded" and was != "Succeeded")


def world_of(evidence: TrialEvidence) -> ObservedWorld:
    """The index of this trial, created at the first call."""
    found = evidence.indexes.get(ObservedWorld)
    if not isinstance(found, ObservedWorld):
        found = evidence.indexes[ObservedWorld] = ObservedWorld(evidence)
    return found
