"""What an open incident calls for: standing aside, observing, holding, or the trigger.

The steps out of this module are few and each is one Plan: `say` (nothing is done, and why), `hold`, `trigger`, `close`.
"""

from datetime import datetime, timedelta

from recovery.core import budget, incident, native, phases
from recovery.core.classify import DisruptionClass, Evidence, fresh, gather, member_jobs
from recovery.core.facts import JobSetFacts, Snapshot, WorkloadFacts
from recovery.core.gates import barred, finishing
from recovery.core.ledger import AttemptAction, Closing, Ledger, Outcome, Phase
from recovery.core.plan import (
    MAX_BACKOFF_LIMIT,
    Action,
    DeleteJob,
    DeletePods,
    Plan,
    PodRef,
    RaiseBackoffLimit,
)
from recovery.core.policy import Mode, Policy, PolicyError, Restart


def judge(
    snapshot: Snapshot,
    workload: WorkloadFacts,
    ledger: Ledger,
    policy: Policy | PolicyError | None,
    now: datetime,
    news: tuple[Evidence, ...] = (),
) -> Plan:
    """What an open incident without any restart calls for.

    `news`: what came in after the controller had stood aside; only that is judged then. Empty: nothing did.
    """
    open_ = incident.incident_of(ledger)
    terms = open_.terms
    found = news[0].text if news else open_.evidence[0]
    if terms.restart == Restart.NONE:
        return say(ledger, f"{found}; policy {terms.policy_name} says restart: None, so it is left to Kubernetes")
    evidence = present(snapshot, ledger)
    # What ends the Job has decided on whatever comes in later as well.
    decided = native.takes_down(snapshot, evidence) or native.decision(snapshot, news or evidence)
    if decided is not None:
        after = stand_aside(ledger, f"{found}; standing aside, because {decided}", now)
        return Plan(after, incident.incident_of(after).reason)
    jobs = ", ".join(job.name for job in member_jobs(snapshot)) or "none"
    if open_.mode == Mode.OBSERVE:
        if isinstance(policy, Policy) and policy.mode is Mode.ENFORCE:
            return say(
                ledger,
                f"{found}; that was before policy {policy.name} was in mode Enforce, so nothing is done: delete Job "
                f"{jobs} by hand if its ranks hang",
            )
        return say(
            ledger,
            f"{found}; policy {terms.policy_name} is in mode Observe: Enforce would now delete Job {jobs}, "
            f"so that all {open_.ranks} ranks restart together",
        )
    bar = barred(workload, policy)
    if bar is not None:
        return say(ledger, f"{found}; nothing is done, because {bar}")
    window = timedelta(seconds=terms.budget_window_seconds)
    left = budget.remaining(ledger.budget, terms.budget_limit, window, now)
    if left == 0:
        frees = budget.frees_at(ledger.budget, terms.budget_limit, window, now)
        return hold(
            ledger,
            f"{found}; held, because the budget of policy {terms.policy_name} is exhausted "
            f"({terms.budget_limit} recoveries within {words(window)})",
            now,
            frees,
        )
    return trigger(
        snapshot,
        ledger,
        f"{found}; no rule matched, so the default of policy {terms.policy_name} ({terms.restart}) applies: "
        f"deleting Job {jobs} so that all {open_.ranks} ranks restart together "
        f"({left - 1} of {terms.budget_limit} recoveries left)",
        now,
    )


def present(snapshot: Snapshot, ledger: Ledger) -> tuple[Evidence, ...]:
    """The evidence of the open incident that can still be seen."""
    keys = frozenset(ledger.handled.keys)
    return tuple(item for item in gather(snapshot) if item.key in keys)


def say(ledger: Ledger, reason: str) -> Plan:
    return Plan(incident.say(ledger, reason), reason)


def stand_aside(ledger: Ledger, reason: str, now: datetime) -> Ledger:
    """Leave it to the platform, and remember that: the evidence for it may be gone before the platform has acted."""
    if incident.stood_aside(ledger):
        return incident.say(ledger, reason)
    return incident.add_attempt(ledger, AttemptAction.NONE, incident.incident_of(ledger).target, reason, now)


def hold(ledger: Ledger, reason: str, now: datetime, look_again_at: datetime | None) -> Plan:
    held = phases.enter(incident.say(ledger, reason), Phase.HELD, now)
    return Plan(held, reason, look_again_at=look_again_at)


def trigger(snapshot: Snapshot, ledger: Ledger, reason: str, now: datetime) -> Plan:
    """Take the group down: the ledger gets the target first, then each Job is deleted by UID and resourceVersion."""
    done = finishing(snapshot)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, "JobFinishing", f"{done}: left alone", now)
    target = incident.target_of(snapshot)
    after = incident.add_attempt(ledger, AttemptAction.RECREATE_GROUP, target, reason, now)
    after = phases.enter(after, Phase.DECIDED, now)
    return Plan(after, reason, actions=takedown(snapshot, after))


def takedown(snapshot: Snapshot, ledger: Ledger) -> tuple[Action, ...]:
    """The trigger for every target Job that still lives, then the old pods: hung ranks first wait out their grace.

    The Job that lost the member comes first: should another one turn out to be Complete, it was not in vain.
    """
    open_ = incident.incident_of(ledger)
    target, suspects = open_.target, frozenset(suspect.pod for suspect in open_.suspects)
    struck = frozenset(pod.job_uid for pod in snapshot.pods if pod.name in suspects)
    alive = [job for job in snapshot.jobs if job.uid in target.job_uids and job.deleting_since is None]
    alive.sort(key=lambda job: job.uid not in struck)
    triggers = tuple(DeleteJob(ledger.epoch, job.name, job.uid, job.resource_version) for job in alive)
    return (*triggers, *pod_deletes(snapshot, ledger))


def pod_deletes(snapshot: Snapshot, ledger: Ledger) -> tuple[Action, ...]:
    """Old pods that nobody has asked to go yet, or that were given longer than the policy's grace.

    Before them the backoffLimit of their Jobs: our deletes count as failures of the dying Job.
    """
    open_ = incident.incident_of(ledger)
    limits = tuple(
        RaiseBackoffLimit(ledger.epoch, job.name, job.uid)
        for job in snapshot.jobs
        if job.uid in open_.target.job_uids and job.backoff_limit < MAX_BACKOFF_LIMIT
    )
    grace = open_.terms.grace_seconds
    pods = tuple(
        PodRef(pod.name, pod.uid)
        for pod in snapshot.pods
        if pod.job_uid in open_.target.job_uids
        and pod.gone_at is None
        and (
            pod.deleting_since is None
            or (grace is not None and pod.deletion_grace_seconds is not None and pod.deletion_grace_seconds > grace)
        )
    )
    return (*limits, DeletePods(ledger.epoch, pods, grace)) if pods else limits


def close(ledger: Ledger, outcome: Outcome, why: str, reason: str, ended_at: datetime, *, source: str = "") -> Plan:
    """End the incident; the sentence tells how it began, keeps what was said last, and adds how it ended."""
    said, attempts = incident.incident_of(ledger).reason, incident.incident_of(ledger).attempts
    if attempts and not said.startswith(attempts[0].reason):
        said = f"{attempts[0].reason}; then {said}"
    full = f"{said}; {reason}" if said and not said.endswith(reason) else reason
    closing = Closing(outcome=outcome, outcome_reason=why, ended_at=ended_at, source=source)
    return Plan(incident.close(incident.say(ledger, full), closing), full)


def failed(snapshot: Snapshot, jobset: JobSetFacts, ledger: Ledger, now: datetime) -> Plan:
    """The JobSet is terminally Failed: by the user's own policy, or because nothing was left to restart it."""
    condition = jobset.condition("Failed")
    # With its pods a failed Job takes the proof that it has trained: how it failed counts without that here.
    jobs = tuple(item for item in gather(snapshot) if item.disruption_class is DisruptionClass.JOB_FAILING)
    detail = (condition.message or condition.reason) if condition is not None else "Failed"
    detail = "; ".join((detail, *(item.text for item in jobs)))
    since = incident.incident_of(ledger).started_at
    late = fresh(snapshot, gather(snapshot), since=since, handled=ledger.handled, now=now)
    decided = native.takes_down(snapshot, (*present(snapshot, ledger), *late, *jobs))
    at = condition.since if condition is not None and condition.since is not None else now
    ended_at = phases.within_second(at, now)
    if decided is not None:
        return close(
            ledger, Outcome.FAILED, "NativePolicy", f"JobSet {jobset.name} failed, because {decided}", ended_at
        )
    reason = f"the platform gave up: JobSet {jobset.name} is Failed ({detail}); it is left as it is"
    return close(ledger, Outcome.FAILED, "PlatformGaveUp", reason, ended_at)


def words(window: timedelta) -> str:
    """A duration as a policy writes it: 24h, 90m, 10s."""
    seconds = int(window.total_seconds())
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
