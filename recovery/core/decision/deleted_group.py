"""A client has deleted the group's Jobs, or their JobSet. JobSet creates the Jobs again, and Trainer the JobSet.

That is the incident's restart. The controller deletes nothing for it, and it costs no budget.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision.hold import no_hold
from recovery.core.decision.table import reconcile
from recovery.core.decision.terminal_jobset import made_again
from recovery.core.diagnosis.membership import member_jobs, restarts_of
from recovery.core.incident import lifecycle, phases
from recovery.core.model.facts import JobSetFacts, Snapshot, WorkloadFacts
from recovery.core.model.ledger import AttemptAction, Ledger, Phase, Target
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import attempt, message_of

_TRAINER = "TrainJob"
_DEADLINE_SLACK = timedelta(seconds=2)
"""Trainer and the API server date by different clocks, and the API server in whole seconds."""


def adopt_deletion(context: ReconcileContext, opened: Ledger) -> Plan:
    """Adopt what the platform does about the deletion that has just opened the incident."""
    return _adopted(context, opened, opened.current_incident.evidence[0])


def adopt_next_jobset(context: ReconcileContext, ledger: Ledger) -> Plan:
    """A client has deleted the JobSet while an incident was open. Adopt that Trainer creates it again.

    Whatever the phase was, the group goes down again. A hold is over, because another client restarts the group.
    """
    deleted = explained(Sentence.JOB_SET_WAS_DELETED, Reason.PLATFORM_RESTART, jobset=context.snapshot.key.name)
    return _adopted(context, no_hold(ledger), message_of(deleted))


def _adopted(context: ReconcileContext, ledger: Ledger, said: str) -> Plan:
    snapshot, before = context.snapshot, ledger.current_incident.target
    jobset, target = _that_creates(snapshot, before), before
    if jobset is not None:
        target = msgspec.structs.replace(target, job_set_uid=jobset.uid, from_restarts=restarts_of(snapshot))
    creator = "JobSet" if jobset is not None and jobset.uid == before.job_set_uid else ""
    why = explained(Sentence.LEFT_TO_ITS_CREATOR, Reason.PLATFORM_RESTART, said=said, creator=creator)
    adopted = attempt(ledger, AttemptAction.ADOPTED, target, why, context.now, free_of_charge=True)
    made = (job.created_at for job in member_jobs(snapshot) if job.uid not in target.job_uids)
    back_at = min(made, default=None) if jobset is not None else None
    began_at = context.now if back_at is None else phases.within_second(back_at, context.now)
    adopted = phases.enter(adopted, Phase.DECIDED, began_at)
    if jobset is None:
        waiting = made_again(context, lifecycle.takes_jobset(adopted, target.job_set_uid))
        assert isinstance(waiting, Plan), "the next JobSet does not exist yet"
        return waiting
    return reconcile(context, adopted)


def trainer_creates(workload: WorkloadFacts, now: datetime) -> bool:
    """Trainer creates a missing JobSet again. False: the workload is the JobSet, it has ended, or its deadline is over,
    after which Trainer itself deletes the JobSet before it reports that."""
    if workload.kind != _TRAINER or workload.condition("Failed") is not None:
        return False
    if workload.active_deadline_seconds is None:
        return True
    resumed = next((c.since for c in workload.conditions if c.type == "Suspended" and c.status == "False"), None)
    since = workload.created_at if resumed is None else resumed
    return now + _DEADLINE_SLACK < since + timedelta(seconds=workload.active_deadline_seconds)


def is_about_the_jobset(alone: Explanation) -> bool:
    """The group is left alone only because its JobSet is missing, is being deleted, or is another one."""
    return alone.reason in {Reason.NO_JOB_SET, Reason.JOB_SET_DELETED, Reason.JOB_SET_REPLACED}


def _that_creates(snapshot: Snapshot, target: Target) -> JobSetFacts | None:
    """The JobSet that creates the Jobs again. None: it does not exist yet."""
    jobset = snapshot.jobset
    if jobset is None or (jobset.uid == target.job_set_uid and jobset.deleting_since is not None):
        return None
    return jobset
