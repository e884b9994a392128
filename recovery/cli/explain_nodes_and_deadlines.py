"""The lines of `explain` about a job's nodes, and about what comes next by time alone."""

from collections.abc import Iterator
from datetime import datetime

from recovery.cli.formatting import moment
from recovery.core.decision.resuming import deadline_of
from recovery.core.fleet import quarantine, suspicion
from recovery.core.incident import fencing
from recovery.core.model.durations import in_words
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.plan.actions import Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError

Deciding = Policy | PolicyError | None
"""The policy argument of `decide`."""


def node_lines(
    snapshot: Snapshot, policy: Deciding, fleet: FleetLedger, incident: Incident | None, now: datetime
) -> Iterator[str]:
    """The evidence against nodes of the job: those of its pods, of the incident's suspects, and those replaced.

    `fleet`: the ledger in RecoveryConfig.status. A node without such evidence gets no line.
    """
    names = _names(snapshot, incident)
    fates = fencing.fates_of_nodes(snapshot, policy, now)
    limits = policy.limits if isinstance(policy, Policy) else FleetLimits()
    entries = {entry.node: entry for entry in fleet.quarantined}
    for name in names:
        if name in fates:
            fate = fates[name]
            dead = "its processes count as dead: " if fate.dead_since is not None else ""
            yield f"{dead}{fate.why}"
        if name in entries:
            yield from _quarantine_lines(entries[name])
        suspected = suspicion.suspected(fleet, limits, name, now)
        if suspected:
            times = f"{len(suspected)} of {limits.suspicions} suspicions that call for its replacement"
            yield f"node {name} is suspected: {times} (incident {', '.join(suspected)})"
    others = [name for name in entries if name not in names]
    if others:
        are = "nodes that are not this job's are" if len(others) > 1 else "node that is not this job's is"
        yield f"{len(others)} {are} quarantined (recovery nodes)"
    if incident is not None and incident.storm:
        yield f"its failure is part of {incident.storm}: {incident.storm_what}"


def avoided_lines(ledger: Ledger, now: datetime) -> Iterator[str]:
    """The nodes that this group avoids. Other groups may use them."""
    for each in ledger.avoided:
        if now < each.until:
            why = f": {each.reason}" if each.reason else ""
            yield f"this group avoids node {each.node} until {moment(each.until)}{why}"


def _names(snapshot: Snapshot, incident: Incident | None) -> list[str]:
    found = [pod.node for pod in snapshot.pods]
    if incident is not None:
        found += [suspect.node for suspect in incident.suspects]
        found += [node for attempt in incident.attempts for node in attempt.nodes]
    return sorted({name for name in found if name})


def _quarantine_lines(entry: Quarantined) -> Iterator[str]:
    by = entry.by or (f"incident {entry.incident}" if entry.incident else "the controller")
    state = "" if entry.applied else "; its taint has not been seen yet"
    yield f"node {entry.node} is quarantined since {moment(entry.since)} by {by}: {entry.reason}{state}"
    yield f"node {entry.node} {_release_words(entry)}"


def _release_words(entry: Quarantined) -> str:
    if entry.releasing:
        return f"is being released: {entry.releasing}"
    ways = []
    signs = quarantine.signs_of(entry)
    if signs:
        ways.append(f"when {' and '.join(signs)} {'ends' if len(signs) == 1 else 'have ended'}")
    if entry.release_at is not None:
        ways.append(f"at {moment(entry.release_at)}")
    ways.append(f"by hand (recovery release {entry.node})")
    return f"is released {' or '.join(ways)}"


def next_lines(plan: Plan, snapshot: Snapshot, policy: Deciding, now: datetime) -> Iterator[str]:
    """What happens by time alone, and what the job waits for. Empty if no incident is open and no time is set."""
    ledger = plan.ledger
    known = set()
    if ledger.next_attempt_at is not None:
        known.add(ledger.next_attempt_at)
        yield f"{_attempt_words(ledger)} at {moment(ledger.next_attempt_at)}"
    if ledger.incident is None and ledger.restart_ended_at is not None and isinstance(policy, Policy):
        earliest = ledger.restart_ended_at + policy.backoff.min_interval
        if earliest > now:
            interval = in_words(policy.backoff.min_interval)
            yield f"a restart waits until {moment(earliest)} (spec.backoff.minInterval {interval})"
    for name, fate in fencing.fates_of_nodes(snapshot, policy, now).items():
        if fate.changes_at is not None:
            known.add(fate.changes_at)
            yield f"node {name} is assumed dead at {moment(fate.changes_at)}, unless it answers before"
    open_ = ledger.incident if ledger.incident is not None and ledger.incident.closing is None else None
    if open_ is not None and ledger.phase is Phase.RESUMING and deadline_of(ledger) > now:
        known.add(deadline_of(ledger))
        steps, past = open_.training_steps, "the training reports progress"
        if steps is not None:
            past = f"all ranks have passed step {steps.before}" if steps.absolute else "every rank has made a step"
        yield f"the incident closes at {moment(deadline_of(ledger))}, or as soon as {past}"
    if open_ is not None and open_.step.verdict is not None and not open_.step.fails_job:
        yield f"nothing until someone runs recovery retry {snapshot.key.name}"
    requeue_at = plan.requeue_at
    if requeue_at is not None and requeue_at not in known and requeue_at > now:
        yield f"the controller decides again at {moment(requeue_at)} at the latest"
    elif open_ is not None and not known and open_.step.verdict is None:
        yield "the controller decides again when one of the job's objects changes"


def _attempt_words(ledger: Ledger) -> str:
    if ledger.phase is Phase.HELD:
        return "the budget lets the next attempt through"
    if ledger.incident is not None and ledger.incident.step.withheld:
        return "the group is restarted, unless it has recovered by itself,"
    return "the job is resumed, and the next attempt begins"
