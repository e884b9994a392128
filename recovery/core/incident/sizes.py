"""The size of an elastic group: which sizes are allowed, which one the group has, and what the ledger records about it.

A size is the number of pods of the one Job that trains. Only a restart changes it (`core.decision.resizing`).
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis.membership import member_count, member_jobs
from recovery.core.diagnosis.queued import queued_by
from recovery.core.diagnosis.resized import resized, template_size
from recovery.core.incident import phases
from recovery.core.model.facts import JobFacts, Snapshot, WorkloadFacts
from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence


def allowed(elastic: PinnedElastic, nodes: int, wanted_nodes: int) -> bool:
    """The group may run with this many nodes. The wanted size is always allowed, and more than that never is."""
    if nodes == wanted_nodes:
        return True
    if not elastic.min_nodes <= nodes <= min(elastic.max_nodes, wanted_nodes) or nodes % elastic.multiple_of:
        return False
    return not elastic.allowed_sizes or nodes in elastic.allowed_sizes


def largest(elastic: PinnedElastic, at_most: int, wanted_nodes: int) -> int | None:
    """The largest allowed size of at most `at_most` nodes. None: every allowed size is larger."""
    if at_most >= wanted_nodes:
        return wanted_nodes
    sizes = range(min(at_most, elastic.max_nodes), elastic.min_nodes - 1, -1)
    return next((nodes for nodes in sizes if allowed(elastic, nodes, wanted_nodes)), None)


def only_job(snapshot: Snapshot) -> JobFacts | None:
    """The only Job of the group. None: the group has several, or none now."""
    jobs = member_jobs(snapshot)
    return jobs[0] if len(jobs) == 1 and snapshot.expected_jobs <= 1 else None


def smallest(elastic: PinnedElastic, wanted_nodes: int) -> int:
    """The smallest allowed size."""
    sizes = range(elastic.min_nodes, min(elastic.max_nodes, wanted_nodes) + 1)
    return next((nodes for nodes in sizes if allowed(elastic, nodes, wanted_nodes)), wanted_nodes)


def resizable(snapshot: Snapshot) -> JobFacts | Explanation:
    """The Job whose number of pods is the size of the group, or why its size cannot be changed now."""
    job = only_job(snapshot)
    if job is None:
        count = max(snapshot.expected_jobs, len(member_jobs(snapshot)))
        return because(Reason.SIZE_FIXED, why=f"the group has {count} Jobs, and only a single Job is resized")
    if job.completions is None or job.parallelism != job.completions:
        return because(Reason.SIZE_FIXED, why=f"Job {job.name} does not run all of its pods at once")
    if job.gang:
        why = f"{job.gang} asks for all pods of Job {job.name} at once, with a number of its own"
        return because(Reason.SIZE_FIXED, why=why)
    if job.pinned:
        why = f"Kueue chooses the node of each pod of Job {job.name} by its topology"
        return because(Reason.SIZE_FIXED, why=why)
    if job.succeeded:
        return because(Reason.INDEX_SUCCEEDED, job=job.name, count=job.succeeded)
    return job


def wanted_nodes(ledger: Ledger, snapshot: Snapshot, job: JobFacts) -> int:
    """How many nodes the group should have. A user's own resize changes that."""
    known = ledger.elastic
    if known is None or by_user(job):
        return member_count(job)
    template = template_size(snapshot, job)
    return known.wanted_nodes if template is None else min(known.wanted_nodes, template)


def quota_kept(workload: WorkloadFacts, wanted_nodes: int) -> Explanation | None:
    """The note that Kueue keeps the quota of the full size, because it counts the pods that the TrainJob or the JobSet
    asks for. None: Kueue does not manage the workload."""
    return explained(Sentence.QUOTA_KEPT, Reason.KUEUE, nodes=wanted_nodes) if queued_by(workload) else None


def by_user(job: JobFacts) -> bool:
    """Another client has changed the size that the Job was created with."""
    return job.born_nodes is not None and job.born_nodes != member_count(job)


def undone_by_restart(ledger: Ledger, snapshot: Snapshot) -> Explanation | None:
    """Which user's resize a restart would undo. None: there is none, or the birth settings or the template give the
    successor the same size."""
    why, job, settings = resized(snapshot), only_job(snapshot), ledger.birth_settings
    if why is None or job is None:
        return why
    by_settings = settings.nodes if settings is not None else None
    successor = template_size(snapshot, job) if by_settings is None else by_settings
    return None if successor == member_count(job) else why


def gpus_per_node(snapshot: Snapshot, job: JobFacts) -> int:
    """Accelerators of one pod of the Job. The template counts where no pod is left."""
    asked = sum(each.accelerators for each in job.containers)
    return max((pod.gpus for pod in snapshot.pods if pod.job_uid == job.uid), default=asked)


def begun(ledger: Ledger, snapshot: Snapshot, job: JobFacts, nodes: int, now: datetime, *, undoes: bool) -> Ledger:
    """The ledger whose latest attempt restarts the group with this many nodes. `undoes`: it undoes a failed growth."""
    known, gpus = ledger.elastic, nodes * gpus_per_node(snapshot, job)
    state = ElasticState(
        nodes=nodes,
        wanted_nodes=wanted_nodes(ledger, snapshot, job),
        since=known.since if known is not None else ledger.current_incident.started_at,
        gpus=gpus,
        failed_growths=(known.failed_growths if known is not None else 0) + undoes,
    )
    resized = phases.resize(ledger.with_incident(ranks=nodes), gpus)
    return msgspec.structs.replace(resized, elastic=state)


def as_born(ledger: Ledger, snapshot: Snapshot, job: JobFacts) -> Ledger:
    """The ledger with the size that the Job was created with by birth settings, if the Job still has that size."""
    known, nodes = ledger.elastic, member_count(job)
    if job.born_nodes != nodes or (known is not None and known.nodes == nodes):
        return ledger
    gpus = nodes * gpus_per_node(snapshot, job)
    if known is None:
        open_ = ledger.current_incident
        state = ElasticState(nodes=nodes, wanted_nodes=open_.ranks, since=open_.started_at, gpus=gpus)
    else:
        wanted = wanted_nodes(ledger, snapshot, job)
        state = msgspec.structs.replace(known, nodes=nodes, wanted_nodes=wanted, gpus=gpus)
    return msgspec.structs.replace(ledger, elastic=state)


def found_smaller(ledger: Ledger, snapshot: Snapshot, job: JobFacts) -> Ledger:
    """The ledger with the size of a Job that was created with fewer nodes than its template says, if another client
    deleted the ledger that knew of it. A user's own size is in the birth settings."""
    nodes, template = member_count(job), template_size(snapshot, job)
    if ledger.birth_settings is not None or job.born_nodes != nodes or template is None or nodes >= template:
        return ledger
    gpus = nodes * gpus_per_node(snapshot, job)
    state = ElasticState(nodes=nodes, wanted_nodes=template, since=job.created_at, gpus=gpus)
    return msgspec.structs.replace(ledger, elastic=state)


def booked(ledger: Ledger, until: datetime) -> Ledger:
    """The ledger whose totals include the time that the group has run with fewer nodes, up to `until`."""
    known = ledger.elastic
    if known is None or known.running_since is None:
        return ledger
    seconds = max(0.0, (until - known.running_since).total_seconds())
    totals = msgspec.structs.replace(
        ledger.totals,
        reduced_seconds=round(ledger.totals.reduced_seconds + seconds, 3),
        gained_gpu_seconds=round(ledger.totals.gained_gpu_seconds + seconds * known.gpus, 3),
    )
    return msgspec.structs.replace(
        ledger,
        totals=totals,
        elastic=msgspec.structs.replace(known, running_since=None, room_since=None, room_nodes=None),
    )


def interrupted(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Ledger:
    """The ledger of a group that does not run whole although no member was lost.

    If a user deleted the Job, the time that it ran is booked. A loss opens an incident, which knows the moment.
    """
    known, jobs = ledger.elastic, member_jobs(snapshot)
    if known is None or known.running_since is None:
        return ledger
    made_at = max((job.created_at for job in jobs), default=None)
    if made_at is not None:
        return booked(ledger, min(made_at, now)) if made_at > known.running_since else ledger
    if not snapshot.pods:
        return booked(ledger, now)
    ends = (pod.deleting_since or pod.gone_at for pod in snapshot.pods)
    ended_at = min((end for end in ends if end is not None and end > known.running_since), default=None)
    return booked(ledger, min(ended_at, now)) if ended_at is not None else ledger


def running(ledger: Ledger, since: datetime) -> Ledger:
    """The ledger of a group that runs again since `since`. With all wanted nodes it no longer counts as smaller."""
    known = ledger.elastic
    if known is None or known.running_since is not None:
        return ledger
    if known.nodes >= known.wanted_nodes:
        return msgspec.structs.replace(ledger, elastic=None)
    failed = 0 if _has_grown(ledger) else known.failed_growths
    running_ = msgspec.structs.replace(known, running_since=since, failed_growths=failed)
    return msgspec.structs.replace(ledger, elastic=running_)


def _has_grown(ledger: Ledger) -> bool:
    """The last restart of the incident that ends now is a growth."""
    attempts = ledger.incident.attempts if ledger.incident is not None else ()
    restarts = [attempt.action for attempt in attempts if attempt.action is not AttemptAction.NONE]
    return bool(restarts) and restarts[-1] is AttemptAction.GROW
