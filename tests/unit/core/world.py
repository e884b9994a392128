"""A small world to decide about: one TrainJob, its JobSet, its Job and its pods, as facts that tests change in words.

Each method returns the world after one event, dated in seconds since START. No event causes another: a deleted pod is
not replaced until the test says so, because the tests are about moments.
"""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from recovery.core.diagnosis.finishing import ended_by_itself
from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.trained import all_ran_at
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.annotations import SUSPENDED_BY_ANNOTATION
from recovery.core.model.birth_settings import BirthSettings, BirthTrial
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import (
    Condition,
    ContainerFacts,
    ExitFacts,
    FleetFacts,
    GroupKey,
    JobFacts,
    JobSetFacts,
    NodeFacts,
    PodFacts,
    Room,
    Snapshot,
    Taint,
    UndecodableObject,
    WaitingGroup,
    WorkloadFacts,
)
from recovery.core.model.lost_node import LostNode
from tests.unit.core.consistency import checked
from tests.unit.core.pods import new_pod, on_its_node, running

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
TOLERATED = "nvidia.com/gpu"
"""Key of the taint that GPU nodes have and all training pods tolerate."""


_CHECKED: "deque[World]" = deque(maxlen=2)
"""The latest worlds that were found consistent. Each reconcile takes two snapshots of one world."""


def at(seconds: float) -> datetime:
    """This many seconds after START. Negative: before START."""
    return START + timedelta(seconds=seconds)


def whole(seconds: float) -> datetime:
    """The same time as the API server or a kubelet writes it: in whole seconds."""
    return at(seconds).replace(microsecond=0)


class World(msgspec.Struct, frozen=True):
    """The group `train` and everything around it."""

    workload: WorkloadFacts | None
    jobset: JobSetFacts | None
    jobs: tuple[JobFacts, ...]
    pods: tuple[PodFacts, ...]
    trained_at: dict[str, datetime]
    job_template: JobFacts
    """The template from which JobSet creates Jobs."""
    trained_members: dict[str, int] = {}
    gone_jobs: tuple[JobFacts, ...] = ()
    """Jobs that the running controller has seen go after they had trained."""
    done: dict[str, dict[int, PodFacts]] = {}
    """The pods whose ranks have trained to their end, by Job UID and index."""
    made: int = 1
    """How many Jobs there have been, including those that are gone."""
    forgotten: tuple[PodFacts, ...] = ()
    """The gone pods that a restarted controller does not know. No later pod gets their UIDs."""
    nodes: dict[str, NodeFacts] = {}
    """The nodes that are not simply Ready."""
    gone_nodes: frozenset[str] = frozenset()
    lost_nodes: tuple[LostNode, ...] = ()
    """The lost nodes of the whole cluster."""
    cluster_nodes: int = 100
    waiting: tuple[WaitingGroup, ...] | None = ()
    """Other groups that wait for nodes. None: not known yet."""
    feasible_known: bool = True
    """Whether it is known which nodes can take the group's pods."""
    undecodable: tuple[UndecodableObject, ...] = ()
    agent: AgentFacts | None = None
    """The latest report of the agents. None: there is none."""
    leaves_out_agents: bool = True
    """The controller answers agents, so it knows the component."""
    room: Room | None = None
    """Room for more pods of the group. None: not known."""
    birth_trial: BirthTrial | None = None
    drills: tuple[DrillFacts, ...] = ()
    stale: dict[str, datetime] = {}
    """When the watch of each silent resource last reported, by plural."""
    allowed: frozenset[str] = frozenset()
    """Rules of `consistency` that the world breaks on purpose."""

    # --- what there is ---------------------------------------------------------------------------------------------

    def snapshot(self, *, live: bool = False) -> Snapshot:
        nodes = {
            pod.node: self.nodes.get(pod.node, NodeFacts(name=pod.node, ready=True, uid=f"node-{pod.node}"))
            for pod in self.pods
            if pod.node and pod.node not in self.gone_nodes
        }
        off = {
            name
            for name, node in self.nodes.items()
            if not node.ready or node.unschedulable or any(taint.key != TOLERATED for taint in node.taints)
        }
        names = (f"gpu-{number}" for number in range(self.cluster_nodes))
        feasible = tuple(name for name in names if name not in off) if self.feasible_known else None
        fleet = FleetFacts(self.cluster_nodes, self.lost_nodes, feasible, waiting=self.waiting, room=self.room)
        snapshot = Snapshot(
            key=GroupKey("ml", "train"),
            workload=self.workload,
            jobset=self.jobset,
            jobs=self.jobs,
            pods=self.pods,
            gone_jobs=self.gone_jobs,
            nodes=nodes,
            gone_nodes=self.gone_nodes,
            fleet=fleet if live or self.room is not None else None,
            birth_trial=self.birth_trial,
            trained_at=self.trained_at,
            trained_members=self.trained_members,
            done={uid: tuple(pods.values()) for uid, pods in self.done.items()},
            live=live,
            stale=self.stale,
            agent=self.agent,
            leaves_out_agents=self.leaves_out_agents and any(job.agent_image for job in self.jobs),
            undecodable=self.undecodable,
            drills=self.drills,
        )
        if not any(each is self for each in _CHECKED):
            checked(snapshot, self.allowed)
            _CHECKED.append(self)
        return snapshot

    def although(self, *rules: str) -> "World":
        """The world breaks these rules of `consistency` on purpose."""
        return msgspec.structs.replace(self, allowed=self.allowed.union(rules))

    @property
    def job(self) -> JobFacts:
        """The newest Job."""
        return self.jobs[-1]

    def pod(self, index: int) -> PodFacts:
        """The newest pod of that rank."""
        pod = self.find(index)
        assert pod is not None, f"rank {index} has no pod"
        return pod

    def find(self, index: int) -> PodFacts | None:
        """The newest pod of that rank. None: no pod of that rank is known."""
        mine = (pod for pod in reversed(self.pods) if pod.job_uid == self.job.uid and pod.index == index)
        return next(mine, None)

    # --- changes, in general ---------------------------------------------------------------------------------------

    def with_workload(self, **changes: object) -> "World":
        assert self.workload is not None
        return msgspec.structs.replace(self, workload=msgspec.structs.replace(self.workload, **changes))

    def with_jobset(self, **changes: object) -> "World":
        assert self.jobset is not None
        return msgspec.structs.replace(self, jobset=msgspec.structs.replace(self.jobset, **changes))

    def with_job(self, **changes: object) -> "World":
        """Changes the newest Job. Its resourceVersion rises, as it does in the API server."""
        version = str(int(self.job.resource_version) + 1)
        changed = msgspec.structs.replace(self.job, **{"resource_version": version, **changes})
        return msgspec.structs.replace(self, jobs=(*self.jobs[:-1], changed))

    def with_pod(self, index: int, **changes: object) -> "World":
        """Changes the newest pod of that rank."""
        return self._with_pods({self.pod(index).uid: changes})

    def _with_pods(self, changes: Mapping[str, Mapping[str, object]]) -> "World":
        """`changes`: the fields that get another value, by the UID of the pod."""
        pods = tuple(
            msgspec.structs.replace(pod, **changes[pod.uid]) if pod.uid in changes else pod for pod in self.pods
        )
        return msgspec.structs.replace(self, pods=pods)._remember()

    def _newest(self) -> list[PodFacts]:
        """The newest pod of each rank."""
        newest = {pod.index: pod for pod in self.pods if pod.job_uid == self.job.uid}
        return [newest[index] for index in range(self.job.parallelism)]

    def unreadable(self, name: str = "train-node-0-0", *, kind: str = "Pod", problem: str = "no") -> "World":
        """One more object of the group cannot be read. The facts still hold its last readable state."""
        found = UndecodableObject(kind=kind, namespace="ml", name=name, uid=f"uid-{name}", problem=problem)
        return msgspec.structs.replace(self, undecodable=(*self.undecodable, found))

    def unheard(self, *plurals: str, seconds: float = -180) -> "World":
        """The watches of these resources are silent since then. None given: all report again."""
        return msgspec.structs.replace(self, stale={plural: at(seconds) for plural in plurals})

    def readable(self) -> "World":
        """All objects can be read again."""
        return msgspec.structs.replace(self, undecodable=())

    def with_other(self, index: int, *others: ContainerFacts) -> "World":
        """Helpers and sidecars beside the training container of that rank."""
        return self.with_pod(index, other_containers=others)

    def _remember(self) -> "World":
        """What the store remembers: when all ranks first ran, how many they were, and which have trained to the end."""
        known, members = dict(self.trained_at), dict(self.trained_members)
        for job in self.jobs:
            ran_at = all_ran_at(job, self.pods) if job.uid not in known else None
            if ran_at is not None:
                known[job.uid], members[job.uid] = ran_at, member_count(job)
        done = {job.uid: self.done.get(job.uid, {}) for job in self.jobs if not job.suspended}
        for pod in self.pods:
            if pod.job_uid in done and pod.index is not None and ended_by_itself(pod):
                done[pod.job_uid] = {**done[pod.job_uid], pod.index: pod}
        return msgspec.structs.replace(self, trained_at=known, trained_members=members, done=done)

    def controller_restarted(self) -> "World":
        """Forgets what only a running controller knows: pods that vanished, and when the group trained."""
        pods = tuple(pod for pod in self.pods if pod.gone_at is None)
        forgotten = (*self.forgotten, *(pod for pod in self.pods if pod.gone_at is not None))
        known = msgspec.structs.replace(self, trained_at={}, trained_members={}, done={}, gone_jobs=())
        return msgspec.structs.replace(known, pods=pods, forgotten=forgotten)._remember()

    # --- nodes -----------------------------------------------------------------------------------------------------

    def with_node(self, name: str, **changes: object) -> "World":
        before = self.nodes.get(name, NodeFacts(name=name, ready=True, uid=f"node-{name}"))
        return msgspec.structs.replace(self, nodes={**self.nodes, name: msgspec.structs.replace(before, **changes)})

    def node_silent(self, name: str, seconds: float, *, lease_seconds: float | None = None) -> "World":
        """The kubelet has not reported for the grace period: Ready is Unknown, and its pods are marked not Ready."""
        lease = whole(lease_seconds) if lease_seconds is not None else None
        world = self.with_node(
            name,
            ready=False,
            reachable=False,
            ready_since=whole(seconds),
            ready_reason="NodeStatusUnknown",
            lease_renewed_at=lease,
        )
        for pod in world.pods:
            if pod.node == name and pod.index is not None and pod.gone_at is None:
                world = world.with_pod(pod.index, ready=False)
        return world

    def node_back(self, name: str) -> "World":
        return msgspec.structs.replace(self, nodes={key: node for key, node in self.nodes.items() if key != name})

    def node_deleted(self, name: str) -> "World":
        return msgspec.structs.replace(self, gone_nodes=self.gone_nodes | {name})

    def node_out_of_service(self, name: str, seconds: float) -> "World":
        taint = Taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute", whole(seconds))
        return self.with_node(name, taints=(taint,))

    def nodes_lost(self, *lost: tuple[str, float] | tuple[str, float, str]) -> "World":
        """Lost nodes of the cluster, each with the time and, if known, the rack. The group need not use them."""
        nodes = tuple(LostNode(name, whole(seconds), *rack) for name, seconds, *rack in lost)
        return msgspec.structs.replace(self, lost_nodes=nodes)

    # --- losses ----------------------------------------------------------------------------------------------------

    def pod_deleted(self, index: int, seconds: float, *, grace_seconds: int = 30) -> "World":
        """A client has deleted the pod. Its processes still run."""
        return self.with_pod(index, deleting_since=whole(seconds), deletion_grace_seconds=grace_seconds)

    def pod_gone(self, index: int, seconds: float) -> "World":
        """The pod object has vanished, and its Job still exists."""
        return self.with_pod(index, gone_at=at(seconds), ready=False)

    def container_exited(
        self, index: int, exit_code: int, seconds: float, *, reason: str = "Error", message: str = ""
    ) -> "World":
        """The process has ended, and the kubelet will restart the container."""
        before = self.pod(index).containers[0]
        ended = ExitFacts(exit_code, reason, message, before.running_since, whole(seconds))
        container = msgspec.structs.replace(before, running_since=None, exit=ended)
        return self.with_pod(index, containers=(container,), ready=False)

    def container_restarted(
        self, index: int, exit_code: int, seconds: float, *, back_after: float = 1, reason: str = "Error"
    ) -> "World":
        """The container has restarted in place: the same pod, a new process, Ready again."""
        exited = self.container_exited(index, exit_code, seconds, reason=reason)
        return exited.container_back(index, seconds + back_after)

    def container_back(self, index: int, seconds: float) -> "World":
        """The kubelet has restarted the container, and it is Ready."""
        before = self.pod(index).containers[0]
        container = ContainerFacts(
            name=before.name, restarts=before.restarts + 1, running_since=whole(seconds), last_exit=before.exit
        )
        return self.with_pod(index, containers=(container,), ready=True, ready_since=whole(seconds))

    def pod_failed(
        self, index: int, exit_code: int, seconds: float, *, reason: str = "Error", message: str = ""
    ) -> "World":
        """restartPolicy Never: the container has ended, and so has the pod."""
        exited = self.container_exited(index, exit_code, seconds, reason=reason, message=message)
        return exited.with_pod(index, phase="Failed")

    def evicted(self, index: int, seconds: float, *, reason: str = "EvictionByEvictionAPI") -> "World":
        condition = Condition("DisruptionTarget", "True", reason, "", whole(seconds))
        return self.pod_deleted(index, seconds).with_pod(index, conditions=(condition,))

    def replaced(self, index: int, seconds: float) -> "World":
        """The Job has created another pod for that rank. It is Pending."""
        ever = (*self.forgotten, *self.pods)
        number = sum(pod.job_uid == self.job.uid and pod.index == index for pod in ever)
        pod = new_pod(self.job, index, number, whole(seconds))
        counted = self.with_job(failed=self.job.failed + 1)
        return msgspec.structs.replace(counted, pods=(*counted.pods, pod))

    def came_back(self, index: int, created: float, ready: float) -> "World":
        """The lost pod is gone, and another one runs in its place."""
        gone = self if self.pod(index).phase == "Failed" else self.pod_gone(index, created)
        return gone.replaced(index, created).started(index, ready).pod_ready(index, ready)

    def all_came_back(self, created: float, ready: float) -> "World":
        """All other ranks have given up waiting for a lost one. Each rank has another pod."""
        world = self
        for index in range(self.job.parallelism):
            world = world.came_back(index, created, ready)
        return world

    # --- what controllers and users do -----------------------------------------------------------------------------

    def job_failing(self, reason: str, seconds: float, *, finally_: bool = False) -> "World":
        """Sets FailureTarget, which precedes Failed. `finally_`: sets Failed as well."""
        found = Condition("FailureTarget", "True", reason, f"Job was active: {reason}", whole(seconds))
        done = msgspec.structs.replace(found, type="Failed")
        return self.with_job(conditions=(*self.job.conditions, found, *((done,) if finally_ else ())))

    def jobset_failed(self, seconds: float, message: str = "jobset failed due to one or more job failures") -> "World":
        condition = Condition("Failed", "True", "FailedJobs", message, whole(seconds))
        return self.with_jobset(terminal_state="Failed", conditions=(condition,))

    def jobset_completed(self) -> "World":
        condition = Condition("Completed", "True", "AllJobsCompleted", "jobset completed successfully")
        return self.with_jobset(terminal_state="Completed", conditions=(condition,))

    def succeeded(self, index: int) -> "World":
        """The rank's process ended with exit code 0, at an unknown time."""
        container = self.pod(index).containers[0]
        ended = ExitFacts(0, "Completed", started_at=container.running_since)
        done = msgspec.structs.replace(container, running_since=None, exit=ended)
        return self.with_pod(index, phase="Succeeded", ready=False, containers=(done,))

    def success_criteria_met(self, seconds: float) -> "World":
        condition = Condition("SuccessCriteriaMet", "True", "CompletionsReached", "", whole(seconds))
        return self.with_job(conditions=(*self.job.conditions, condition))

    def suspended(self) -> "World":
        """The user has suspended the job. Trainer and JobSet have followed."""
        return self.with_workload(suspended=True).with_jobset(suspended=True).with_job(suspended=True)

    def suspended_by(self, incident_id: str) -> "World":
        """The controller's patch has suspended the TrainJob. Trainer and JobSet have not followed yet."""
        assert self.workload is not None
        return self.with_workload(
            suspended=True, annotations={**self.workload.annotations, SUSPENDED_BY_ANNOTATION: incident_id}
        )

    def released(self) -> "World":
        """Our patch has ended the suspension: no annotation, TrainJob not suspended. Trainer has not followed yet."""
        assert self.workload is not None
        left = {key: value for key, value in self.workload.annotations.items() if key != SUSPENDED_BY_ANNOTATION}
        return self.with_workload(suspended=False, annotations=left)

    def recreated_suspended(self, seconds: float) -> "World":
        """The old Job is gone. JobSet is suspended, and has created the new Job without pods."""
        return self.with_jobset(suspended=True).job_gone().job_created(seconds).with_job(suspended=True)

    def unsuspended(self, seconds: float) -> "World":
        """Trainer and JobSet have followed the end of the suspension. The Job has pods again."""
        condition = Condition("Suspended", "False", "JobResumed", "Job resumed", whole(seconds))
        awake = self.with_jobset(suspended=False).with_job(suspended=False, conditions=(condition,))
        return awake.pods_created(seconds)

    def asked(self, annotation: str, value: str) -> "World":
        """A person has put an annotation on the TrainJob."""
        assert self.workload is not None
        return self.with_workload(annotations={**self.workload.annotations, annotation: value})

    def resumed_condition(self, seconds: float) -> Condition:
        """The condition that the Job controller writes once it has created the pods."""
        return Condition("Suspended", "False", "JobResumed", "Job resumed", whole(seconds))

    def resumed(self, seconds: float, *, dated: float | None = None) -> "World":
        """The same Job with new pods; those that were active are gone. `dated`: the condition's date; None: at once."""
        condition = self.resumed_condition(seconds if dated is None else dated)
        awake = self.with_workload(suspended=False).with_jobset(suspended=False)
        awake = awake.with_job(suspended=False, conditions=(condition,))
        pods = tuple(new_pod(awake.job, index, 50, whole(seconds)) for index in range(awake.job.parallelism))
        ended = {"Failed", "Succeeded"}
        left = tuple(pod for pod in awake.pods if pod.phase in ended or pod.deleting_since is not None)
        return msgspec.structs.replace(awake, pods=(*left, *pods))

    def paused(self, value: str = "true") -> "World":
        return self.with_workload(annotations={"recovery.trainjob.dev/paused": value})

    def job_deleted(self, seconds: float) -> "World":
        """Foreground deletion has begun. The facts do not say whether the controller, JobSet or a user asked."""
        return self.with_job(deleting_since=whole(seconds))

    def all_deleted(self, seconds: float, *, grace_seconds: int = 30) -> "World":
        """Every pod of the newest Job is being deleted."""
        deleted = {"deleting_since": whole(seconds), "deletion_grace_seconds": grace_seconds}
        return self._with_pods({pod.uid: deleted for pod in self._newest()})

    def job_gone(self, uid: str | None = None) -> "World":
        """A Job and its pods are gone, and the store forgets both. `uid` None: the newest Job."""
        uid = uid or self.job.uid
        return msgspec.structs.replace(
            self,
            jobs=tuple(job for job in self.jobs if job.uid != uid),
            pods=tuple(pod for pod in self.pods if pod.job_uid != uid),
            trained_at={key: value for key, value in self.trained_at.items() if key != uid},
            trained_members={key: value for key, value in self.trained_members.items() if key != uid},
        )

    def restarted_by_jobset(self) -> "World":
        """The JobSet has counted a restart. It deletes its Jobs later."""
        assert self.jobset is not None
        counted = self.jobset.restarts_counted + 1
        return self.with_jobset(restarts=self.jobset.restarts + 1, restarts_counted=counted)

    def job_created(self, seconds: float, *, name: str = "train-node-0") -> "World":
        """JobSet has created the Job again, without pods so far."""
        assert self.jobset is not None
        number = self.made + 1
        job = msgspec.structs.replace(
            self.job_template,
            name=name,
            uid=f"job-{number}",
            created_at=whole(seconds),
            restart_attempt=self.jobset.restarts,
            resource_version=str(number * 1000),
        )
        return msgspec.structs.replace(self, jobs=(*self.jobs, job), made=number)

    def born(self, seconds: float, settings: BirthSettings | None) -> "World":
        """The old Job is gone. JobSet creates the new one, and the API server gives it the settings."""
        world = self.job_gone().job_created(seconds)
        if settings is not None:
            size = {} if settings.nodes is None else {"parallelism": settings.nodes, "completions": settings.nodes}
            world = world.with_job(birth_revision=settings.revision_text, born_nodes=settings.nodes, **size)
        return world.pods_created(seconds)

    def pods_created(self, seconds: float) -> "World":
        made = tuple(new_pod(self.job, index, 0, whole(seconds)) for index in range(self.job.parallelism))
        return msgspec.structs.replace(self, pods=(*self.pods, *made))

    def recreated(self, seconds: float) -> "World":
        """The old Job is gone. A new one exists, and all its pods are Pending."""
        return self.job_gone().job_created(seconds).pods_created(seconds)

    # --- on the way to Ready ---------------------------------------------------------------------------------------

    def scheduled(self, index: int, seconds: float | None = None) -> "World":
        """The rank's pod has a node. `seconds` None: the facts do not say since when."""
        since = whole(seconds) if seconds is not None else None
        return self.with_pod(index, **on_its_node(self.pod(index), since))

    def unschedulable(self, index: int, message: str) -> "World":
        condition = Condition("PodScheduled", "False", "Unschedulable", message)
        return self.with_pod(index, conditions=(condition,))

    def started(self, index: int, seconds: float) -> "World":
        placed = self if self.pod(index).node else self.scheduled(index)
        return placed.with_pod(index, **running(whole(seconds)))

    def pod_ready(self, index: int, seconds: float) -> "World":
        return self.with_pod(index, ready=True, ready_since=whole(seconds))

    def all_scheduled(self, seconds: float | None = None) -> "World":
        since = whole(seconds) if seconds is not None else None
        return self._with_pods({pod.uid: on_its_node(pod, since) for pod in self._newest()})

    def all_started(self, seconds: float) -> "World":
        runs = running(whole(seconds))
        waiting = (pod for pod in self._newest() if not pod.running)
        return self._with_pods({pod.uid: ({} if pod.node else on_its_node(pod, None)) | runs for pod in waiting})

    def all_ready(self, seconds: float) -> "World":
        """Every rank runs and is Ready since then."""
        world = self.all_started(seconds)
        return world._with_pods({pod.uid: {"ready": True, "ready_since": whole(seconds)} for pod in world._newest()})
