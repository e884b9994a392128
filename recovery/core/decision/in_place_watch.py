"""Restarts in place after they are made: the ledger takes in those that the agents began alone, and follows each."""

from datetime import timedelta

from recovery.core.decision import failure_marks
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.another_attempt import try_again
from recovery.core.decision.in_place import attempted, deadline, under_way
from recovery.core.decision.on_the_way import watch_the_rendezvous, watch_the_start
from recovery.core.decision.situation import Situation
from recovery.core.diagnosis.agent_view import SILENT_AFTER, not_arrived
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import attempt_limits, lifecycle, phases
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.model.agent_facts import AgentState, RestartedBy
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, say_of_attempt, says_more

_ASKS_AGAIN_AFTER = timedelta(seconds=30)


def made_alone(situation: Situation) -> Plan | Situation:
    """The agents have restarted the group alone."""
    return taken_in(situation.context, situation.ledger) or situation


def taken_in(context: ReconcileContext, ledger: Ledger) -> Plan | None:
    """The agents have restarted the group by the permission that an earlier answer gave them. The ledger gets that
    restart, and its charge, once. None: they have not, or more was lost than that restart repairs, or no answer can
    have permitted so many restarts. (What agents report is the tenant's word, and each restart costs writes.)"""
    evidence = lifecycle.present(context.snapshot, ledger)
    alone = evidence[-1].process if evidence and all(map(_is_alone, evidence)) else None
    if alone is None or not _may_be_permitted(context, ledger):
        return None
    verdict = verdicts.of(context, ledger, evidence)
    found = because(Reason.MEMBER_LOST, evidence=ledger.current_incident.evidence[0])
    why = explained(Sentence.SEEN_THEN, Reason.RESTARTED_ALONE, found=found, what=because(Reason.RESTARTED_ALONE))
    after = attempted(context, ledger, why, alone.epoch, free=not verdict.charge)
    after = failure_marks.remembered(after, verdict.mark)
    return as_before(phases.enter(after, Phase.DECIDED, context.now), requeue_at=context.now)


def _may_be_permitted(context: ReconcileContext, ledger: Ledger) -> bool:
    if attempt_limits.refused(ledger, context.now) is not None:
        return False
    pinned = ledger.current_incident.pinned.in_place
    return pinned is None or ledger.in_place_in_row < pinned.max_in_a_row


def _is_alone(item: Evidence) -> bool:
    return item.process is not None and item.process.by is RestartedBy.ALONE


def position(context: ReconcileContext, ledger: Ledger, found: Phase) -> Phase:
    """The phase that the facts show, where `found` is what the pods show. Without a report, no one knows whether the
    processes run that the pods would show, nor whether they have joined."""
    agent, restart = context.snapshot.agent, restart_of(ledger)
    in_place = under_way(ledger) is not None
    if in_place and agent is not None and agent.state is AgentState.STOPPING:
        return Phase.STOPPING
    if found is Phase.RENDEZVOUS and not_arrived(agent):
        return Phase.STARTING
    if found is not Phase.HEALTHY or restart is None or context.now - restart.started_at >= SILENT_AFTER:
        return found
    # A report from before the restart may arrive late. It says nothing about the next epoch.
    if in_place and (agent is None or agent.key_of(agent.epoch) == ledger.current_incident.target.epoch):
        return phases.later(Phase.STARTING, ledger.phase)
    return Phase.RENDEZVOUS if _must_join(context, ledger) else found


def _must_join(context: ReconcileContext, ledger: Ledger) -> bool:
    """Before the incident the ranks had shown that they join, and since the restart no report has."""
    agent, jobs = context.snapshot.agent, member_jobs(context.snapshot)
    shown = agent is not None and agent.meets
    return not shown and ledger.current_incident.joins_proven and all(job.agent_image for job in jobs)


def watched(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The agents have their answer, and not all processes run yet."""
    agent, due_at = context.snapshot.agent, deadline(ledger)
    # A report from before the deadline does not show that the deadline is missed: those since may be lost.
    unheard = due_at is not None and agent is not None and agent.received_at < due_at <= context.now
    if agent is None or unheard:
        after = ledger if says_more(ledger) else say_of_attempt(ledger, because(Reason.WAITING_FOR_AGENTS))
        return as_before(after, requeue_at=context.now + _ASKS_AGAIN_AFTER)
    if agent.state in {AgentState.EXITING, AgentState.BROKEN, AgentState.LEAVING}:
        return try_again(context, ledger, because(Reason.AGENTS_GAVE_UP, stuck=len(agent.stuck)))
    if agent.state is AgentState.RUNNING and agent.key_of(agent.epoch) != ledger.current_incident.target.epoch:
        # The agents have done their part, even if a link is lost by now. How long the program needs to join is its own
        # matter, as in a new group.
        return (
            watch_the_start(context, ledger)
            if ledger.phase is Phase.STARTING
            else watch_the_rendezvous(context, ledger)
        )
    if due_at is not None and context.now >= due_at:
        pinned = ledger.current_incident.pinned.in_place
        seconds = int(pinned.timeout_seconds) if pinned is not None else 0
        return try_again(context, ledger, because(Reason.IN_PLACE_TIMEOUT, seconds=seconds))
    return as_before(ledger, requeue_at=due_at)
