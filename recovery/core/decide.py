"""decide(snapshot, ledger, policy, now) -> Plan: what one look at one group calls for. Pure and total.

The order of the questions is the product: is the job anybody's business at all; is this a failure or a baseline; have
the user's own policies decided already; may we act; does the budget allow it. Only the last answer deletes something,
and only from facts read live. Deciding twice on the same facts changes nothing the second time.

This module asks what comes before an incident and dispatches; `judge` decides on an incident, `follow` sees it through.
"""

from datetime import datetime

import msgspec

from recovery.core import incident, phases
from recovery.core.announce import events
from recovery.core.classify import STALE_AFTER, Disruption, DisruptionClass, Evidence, fresh, gather
from recovery.core.facts import JobSetFacts, Snapshot, WorkloadFacts
from recovery.core.follow import first_look, in_incident
from recovery.core.gates import finishing, left_alone
from recovery.core.judge import failed
from recovery.core.ledger import Ledger, Phase
from recovery.core.plan import Plan, ReadLive, RecordIncident
from recovery.core.policy import Policy, PolicyError, paused
from recovery.core.summary import summarise


def decide(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Plan:
    """One look. `policy` None: none applies; PolicyError: the one that applies cannot be read."""
    workload = snapshot.workload
    if workload is None:
        return Plan(ledger, "the TrainJob is gone")
    if ledger.incident is None:
        plan = _between_incidents(snapshot, workload, ledger, policy, now)
    elif ledger.incident.closing is not None:
        plan = _record(snapshot, ledger)
    else:
        plan = in_incident(snapshot, workload, ledger, policy, now)
    if any(isinstance(action, ReadLive) for action in plan.actions) or (
        not snapshot.live and _settled(plan.ledger) != _settled(ledger)
    ):
        return Plan(ledger, plan.reason, actions=(ReadLive(),))
    if plan.ledger == ledger and ledger.incident is None:
        return plan
    after = summarise(plan.ledger, workload, now)
    return msgspec.structs.replace(plan, ledger=after, actions=(*plan.actions, *events(ledger, after)))


def _settled(ledger: Ledger) -> tuple[object, ...]:
    """What a cache may never decide on: a loss that is noted, an attempt, a hold, an end. All but phases and sentences.

    A cache that lags may show a job suspended that has been resumed since, a group whole that has just lost a member,
    or no Job where there is one; closing an incident on that would lose its recovery, adopting would double it.
    """
    found = ledger.incident
    settled = (found.id, found.attempts, found.target, found.closing) if found is not None else None
    return settled, ledger.epoch, ledger.handled, ledger.phase is Phase.HELD


def _between_incidents(
    snapshot: Snapshot, workload: WorkloadFacts, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime
) -> Plan:
    if policy is None:
        return Plan(ledger, "no RecoveryPolicy applies to this job")
    if isinstance(policy, PolicyError):
        return Plan(ledger, f"the RecoveryPolicy that applies cannot be used: {policy}")
    alone = left_alone(snapshot, workload)
    if alone is not None:
        return Plan(ledger, alone[1])
    if paused(workload):
        return Plan(ledger, "paused by annotation: nothing is watched for until it is resumed")
    assert snapshot.jobset is not None, "left_alone has checked it"
    if snapshot.jobset.terminal_state == "Failed":
        return _already_failed(snapshot, snapshot.jobset, ledger, policy, now)
    seen = gather(snapshot)
    evidence = fresh(snapshot, seen, since=policy.since, handled=ledger.handled, now=now)
    if not evidence:
        why = f" ({len(seen)} older or expected signs of restarts are a baseline)" if seen else ""
        return Plan(ledger, f"no failure{why}")
    done = finishing(snapshot)
    if done is not None:  # a cache that says so is right: nothing takes a success back
        return Plan(ledger, f"{evidence[0].text}, but {done}: left alone")
    opened = incident.open_incident(ledger, snapshot, policy, Disruption(evidence), now)
    return first_look(snapshot, workload, opened, policy, now)


def _already_failed(snapshot: Snapshot, jobset: JobSetFacts, ledger: Ledger, policy: Policy, now: datetime) -> Plan:
    """A JobSet found Failed: reported once if it failed on our watch or shortly before, and never touched."""
    condition = jobset.condition("Failed")
    if jobset.uid == ledger.handled.terminal_jobset_uid:
        return Plan(ledger, f"JobSet {jobset.name} is Failed; its end has been reported")
    at = condition.since if condition is not None else None
    if condition is None or at is None or at < policy.since.replace(microsecond=0) or now - at > STALE_AFTER:
        return Plan(ledger, f"JobSet {jobset.name} failed before this policy or long ago: left alone")
    text = f"JobSet {jobset.name} is Failed: {condition.message or condition.reason}"
    end = Evidence(f"{jobset.uid}/failed", DisruptionClass.JOB_SET_FAILED, text, "", at=at)
    evidence = fresh(snapshot, gather(snapshot), since=policy.since, handled=ledger.handled, now=now)
    opened = incident.open_incident(
        ledger, snapshot, policy, Disruption((*evidence, end)), now, ended_at=phases.within_second(at, now)
    )
    return failed(snapshot, jobset, opened, now)


def _record(snapshot: Snapshot, ledger: Ledger) -> Plan:
    closed = incident.incident_of(ledger)
    reason = f"incident {closed.id} is closed: {closed.reason}"
    return Plan(incident.into_history(ledger, snapshot), reason, first=(RecordIncident(closed),))
