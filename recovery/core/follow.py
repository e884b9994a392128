"""Seeing an open incident through, from its first judgement until all ranks are Ready again or nobody can help it.

Level-triggered: every look starts from the facts, so that it does not matter which of our writes a crash came after.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core import incident, native, phases
from recovery.core.classify import Evidence, fresh, gather, group_runs_whole, member_jobs, pods_of
from recovery.core.facts import JobFacts, JobSetFacts, Snapshot, WorkloadFacts
from recovery.core.gates import barred, finishing, left_alone
from recovery.core.judge import close, failed, hold, judge, pod_deletes, say, takedown, trigger
from recovery.core.ledger import Attempt, AttemptAction, Ledger, Outcome, Phase, Target
from recovery.core.plan import Plan, ReadLive, TouchJob
from recovery.core.policy import Mode, Policy, PolicyError

TOUCH_AFTER = timedelta(seconds=60)
"""A Job without pods for this long is touched, so that its controller looks at it again (k/k 131917, 132042)."""
GIVE_UP_AFTER = timedelta(seconds=120)
"""A Job without pods for this long is given up: a new attempt."""
_SAY_AGAIN_AFTER = timedelta(seconds=30)


class _Look(msgspec.Struct, frozen=True):
    """What every step below needs of the world around the ledger."""

    snapshot: Snapshot
    workload: WorkloadFacts
    policy: Policy | PolicyError | None
    now: datetime


def in_incident(
    snapshot: Snapshot, workload: WorkloadFacts, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime
) -> Plan:
    """One look at a group whose incident is open."""
    alone = left_alone(snapshot, workload)
    if alone is not None:
        return close(ledger, Outcome.SUPERSEDED, alone[0], alone[1], now)
    jobset = snapshot.jobset
    assert jobset is not None, "left_alone has checked it"
    if jobset.uid != incident.incident_of(ledger).target.job_set_uid:
        return close(ledger, Outcome.SUPERSEDED, "JobSetReplaced", "the JobSet was replaced by another", now)
    if jobset.terminal_state == "Failed":
        return failed(snapshot, jobset, ledger, now)
    look = _Look(snapshot, workload, policy, now)
    if _platform_restarts(snapshot, jobset, ledger):
        ledger = _adopt(look, jobset, ledger)
    if incident.restarted(ledger):
        return _after_restart(look, ledger)
    return _before_restart(look, ledger)


# --- restarts that are not ours ------------------------------------------------------------------------------------


def _platform_restarts(snapshot: Snapshot, jobset: JobSetFacts, ledger: Ledger) -> bool:
    """The JobSet counted a restart of its own, or somebody else deletes the Jobs that we had not triggered."""
    target = incident.incident_of(ledger).target
    if jobset.restarts > target.from_restarts:
        return True
    if incident.restarted(ledger):
        return False
    living = {job.uid for job in snapshot.jobs if job.deleting_since is None}
    return not living.issuperset(target.job_uids)


def _adopt(look: _Look, jobset: JobSetFacts, ledger: Ledger) -> Ledger:
    """Take the platform's own restart as the attempt's action; nothing is deleted on top of it.

    A trigger of ours that is still under way and the JobSet's restart take down the same Jobs and bring back one group:
    they are one restart. It is ours if our deletion has landed, else it becomes the platform's.
    """
    before = incident.incident_of(ledger)
    outdated = [
        job.uid for job in look.snapshot.jobs if job.deleting_since is not None or job.restart_attempt < jobset.restarts
    ]
    target = Target(
        job_set_uid=jobset.uid,
        job_uids=tuple(dict.fromkeys((*before.target.job_uids, *outdated))),
        from_restarts=jobset.restarts,
    )
    by_jobset = jobset.restarts > before.target.from_restarts
    who = f"JobSet {jobset.name} restarts the group itself" if by_jobset else "somebody else deleted the group's Job"
    reason = f"{before.evidence[0]}; {who}: adopted as this incident's restart"
    under_way = _restart_of(ledger)
    if under_way is None or ledger.phase not in {Phase.DECIDED, Phase.TEARING_DOWN}:
        return incident.add_attempt(ledger, AttemptAction.ADOPTED, target, reason, look.now)
    landed = phases.position(look.snapshot, before.target) is not Phase.DECIDED
    action = under_way.action if landed else AttemptAction.ADOPTED
    attempts = tuple(
        msgspec.structs.replace(attempt, action=action) if attempt == under_way else attempt
        for attempt in before.attempts
    )
    return msgspec.structs.replace(ledger, incident=msgspec.structs.replace(before, attempts=attempts, target=target))


def _restart_of(ledger: Ledger) -> Attempt | None:
    """The latest attempt that restarted the group. None: none has."""
    attempts = incident.incident_of(ledger).attempts
    return next((a for a in reversed(attempts) if a.action is not AttemptAction.NONE), None)


# --- before any restart --------------------------------------------------------------------------------------------


def _before_restart(look: _Look, ledger: Ledger) -> Plan:
    """Nothing has been restarted: left alone on purpose, held, or barred."""
    snapshot, now = look.snapshot, look.now
    since = incident.incident_of(ledger).started_at
    more = fresh(snapshot, gather(snapshot), since=since, handled=ledger.handled, now=now)
    if more:
        ledger = incident.more_evidence(ledger, more)
    done = finishing(snapshot)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, "JobFinishing", f"{done}: left alone", now)
    if group_runs_whole(snapshot):
        return _whole_again(look, ledger)
    return judge(snapshot, look.workload, ledger, look.policy, now)


def _whole_again(look: _Look, ledger: Ledger) -> Plan:
    outcome, why = incident.outcome_when_whole(ledger)
    open_ = incident.incident_of(ledger)
    ended_at = phases.end_of_rendezvous(look.snapshot, open_.phases[-1].started_at, look.now)
    reason = f"all {open_.ranks} ranks are Ready (source: ready, verified: false)"
    return close(ledger, outcome, why, reason, ended_at, source="ready")


# --- after a restart -----------------------------------------------------------------------------------------------


def _after_restart(look: _Look, ledger: Ledger) -> Plan:
    """The group was restarted, by us or by the platform: see it through until all ranks are Ready again."""
    snapshot, now = look.snapshot, look.now
    open_ = incident.incident_of(ledger)
    restart = _restart_of(ledger)
    ours = restart is not None and restart.action is AttemptAction.RECREATE_GROUP
    place = phases.position(snapshot, open_.target)
    if place is Phase.DECIDED and ours:
        return _reissue(look, ledger)
    lost = _lost_since(snapshot, ledger)
    if lost and open_.mode == Mode.ENFORCE:
        again = fresh(snapshot, lost, since=open_.started_at, handled=ledger.handled, now=now)
        if again and ledger.phase is not Phase.HELD:
            return _lost_again(look, ledger, again, place)
        reason = f"{lost[0].text} before all ranks ran; its Job replaces it"
        ledger = incident.add_attempt(ledger, AttemptAction.NONE, open_.target, reason, now)
        ledger = incident.more_evidence(ledger, lost)
    if place is Phase.HEALTHY:
        return _whole_again(look, ledger)
    if ledger.phase is Phase.HELD:
        return Plan(ledger, open_.reason)
    ledger = phases.enter(ledger, phases.later(place, ledger.phase), now)
    reason = incident.incident_of(ledger).reason
    if place is Phase.TEARING_DOWN and ours and barred(look.workload, look.policy) is None:
        return Plan(ledger, reason, actions=pod_deletes(snapshot, ledger))
    if ledger.phase is Phase.SCHEDULING:
        return _watch_for_pods(look, ledger)
    if ledger.phase is Phase.STARTING:
        return _watch_the_start(look, ledger)
    return Plan(ledger, reason)


def _reissue(look: _Look, ledger: Ledger) -> Plan:
    """The ledger has the target, but a target Job lives on: the trigger was lost, refused as stale, or never sent."""
    bar = barred(look.workload, look.policy)
    if bar is not None:
        return say(ledger, f"{incident.incident_of(ledger).evidence[0]}; decided, but not carried out, because {bar}")
    if not look.snapshot.live:
        return Plan(ledger, incident.incident_of(ledger).reason, actions=(ReadLive(),))
    done = finishing(look.snapshot)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, "JobFinishing", f"{done}: left alone", look.now)
    decided = native.decision(look.snapshot, gather(look.snapshot))
    if decided is not None:
        return say(ledger, f"{incident.incident_of(ledger).evidence[0]}; standing aside, because {decided}")
    return Plan(ledger, incident.incident_of(ledger).reason, actions=takedown(look.snapshot, ledger))


def _lost_since(snapshot: Snapshot, ledger: Ledger) -> tuple[Evidence, ...]:
    """Losses in the group that came after the restart, not yet dealt with."""
    target = incident.incident_of(ledger).target
    keys = frozenset(ledger.handled.keys)
    return tuple(item for item in gather(snapshot) if item.job_uid not in target.job_uids and item.key not in keys)


def _lost_again(look: _Look, ledger: Ledger, lost: tuple[Evidence, ...], place: Phase) -> Plan:
    """A member was lost after the new group had run at once, before the incident was over."""
    decided = native.decision(look.snapshot, lost)
    if decided is not None:
        if place is Phase.HEALTHY:
            return _whole_again(look, incident.more_evidence(ledger, lost))
        return say(ledger, f"{lost[0].text}; standing aside, because {decided}")
    plan = _try_again(look, ledger, lost[0].text)
    if plan.ledger.epoch == ledger.epoch and plan.ledger.phase is not Phase.HELD:
        return plan  # not acted upon yet: the evidence stays fresh
    return msgspec.structs.replace(plan, ledger=incident.more_evidence(plan.ledger, lost))


def _try_again(look: _Look, ledger: Ledger, what: str) -> Plan:
    """Another trigger within the incident: not charged, but never more of them than the budget allows."""
    open_ = incident.incident_of(ledger)
    if open_.mode != Mode.ENFORCE:
        return say(ledger, f"{what}; the policy is in mode Observe, so nothing is done")
    bar = barred(look.workload, look.policy)
    if bar is not None:
        return say(ledger, f"{what}; nothing is done, because {bar}")
    triggers = sum(attempt.action is AttemptAction.RECREATE_GROUP for attempt in open_.attempts)
    if triggers >= max(1, open_.terms.budget_limit):
        return hold(ledger, f"{what}; held, because {triggers} attempts of this incident have failed", look.now, None)
    jobs = ", ".join(job.name for job in member_jobs(look.snapshot))
    return trigger(look.snapshot, ledger, f"{what}; attempt {triggers + 1}: deleting Job {jobs} once more", look.now)


def _watch_for_pods(look: _Look, ledger: Ledger) -> Plan:
    """The watchdog for a new Job that gets no pods; a Job whose pods are refused is only spoken of."""
    open_ = incident.incident_of(ledger)
    empty = [j for j in member_jobs(look.snapshot) if not j.suspended and not pods_of(look.snapshot, j)]
    if not empty or barred(look.workload, look.policy) is not None or open_.mode != Mode.ENFORCE:
        return Plan(ledger, open_.reason)
    job: JobFacts = min(empty, key=lambda j: j.created_at)
    waited = look.now - job.created_at
    if waited < TOUCH_AFTER:
        return Plan(ledger, open_.reason, look_again_at=job.created_at + TOUCH_AFTER)
    if not look.snapshot.live:
        return Plan(ledger, open_.reason, actions=(ReadLive(),))
    if job.failed_create:
        plan = say(ledger, f"Job {job.name} cannot create its pods: {job.failed_create}")
        return msgspec.structs.replace(plan, look_again_at=look.now + _SAY_AGAIN_AFTER)
    if waited >= GIVE_UP_AFTER:
        return _try_again(look, ledger, f"Job {job.name} got no pods for {GIVE_UP_AFTER.seconds} s")
    value = f"{open_.id}-{open_.attempt.number if open_.attempt is not None else 0}"
    touch = () if job.touched == value else (TouchJob(ledger.epoch, job.name, job.uid, value),)
    return Plan(ledger, open_.reason, actions=touch, look_again_at=job.created_at + GIVE_UP_AFTER)


def _watch_the_start(look: _Look, ledger: Ledger) -> Plan:
    """`timeouts.start`: all pods have a node, yet not all run."""
    open_ = incident.incident_of(ledger)
    timeout = timedelta(seconds=open_.terms.start_timeout_seconds)
    deadline = open_.phases[-1].started_at + timeout
    if look.now < deadline or open_.mode != Mode.ENFORCE:
        return Plan(ledger, open_.reason, look_again_at=deadline if look.now < deadline else None)
    return _try_again(look, ledger, f"not all ranks ran within {int(timeout.total_seconds())} s of being scheduled")
