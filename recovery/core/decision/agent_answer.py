"""What the agents of a group are answered, from the ledger as it was written. Pure, like `decide`."""

from datetime import datetime

from recovery.core.decision import in_place
from recovery.core.decision.judged import as_judged
from recovery.core.diagnosis.agent_view import epoch_in, one_job
from recovery.core.diagnosis.collective import collective_of
from recovery.core.diagnosis.evidence import gather
from recovery.core.diagnosis.freshness import STALE_AFTER, fresh
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import budget
from recovery.core.incident.preconditions import barred, unwatched
from recovery.core.model.agent_facts import AgentAction, AgentAnswer, AgentFacts, AgentOrder, AgentState
from recovery.core.model.collective import Collective
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.step import StepType
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError, Restart

_GOES_ON = frozenset({AgentState.BROKEN, AgentState.LEAVING, AgentState.EXITING, AgentState.FINISHED})
"""States in which the agents begin no restart."""


def answer_of(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> AgentAnswer:
    """The answer to the report in the snapshot. `ledger`: what this reconcile has written, or has left as it is."""
    agent = snapshot.agent
    if agent is None or not isinstance(policy, Policy) or not _may(snapshot, agent, policy):
        return AgentAnswer()
    # A reconcile may do something else first, such as to answer a person. The agents then ask again.
    judged = not in_place.epoch_ended(agent) or _is_judged(snapshot, agent, ledger, policy, now)
    if judged and not _may_wait(ledger, policy, now):
        return AgentAnswer()
    return AgentAnswer(
        permitted=True,
        alone=_alone(agent, ledger, policy, now),
        in_place_seconds=policy.in_place.timeout.total_seconds(),
        action=_action(agent, ledger) if judged else None,
    )


def _may(snapshot: Snapshot, agent: AgentFacts, policy: Policy) -> bool:
    """Agents of this group may wait for a decision when a process ends, instead of ending as torchrun does."""
    workload = snapshot.workload
    if workload is None or not policy.in_place.enabled or policy.in_place.max_in_a_row == 0:
        return False
    if barred(workload, policy) is not None or unwatched(snapshot, workload) is not None:
        return False
    if policy.restart is Restart.NONE and not policy.rules:
        return False
    if agent.state in _GOES_ON or not one_job(snapshot, agent):
        return False
    if collective_of(snapshot).collective is not Collective.REQUIRED:
        return False
    [job] = member_jobs(snapshot)
    return policy.override_native or not _decides_natively(job)


def _is_judged(snapshot: Snapshot, agent: AgentFacts, ledger: Ledger, policy: Policy, now: datetime) -> bool:
    """The end that the agents ask about is in an incident, or opens none. False: the next reconcile will judge it."""
    epoch = in_place.epoch_ended(agent)
    if snapshot.undecodable:
        return False
    shown = as_judged(snapshot, ledger, policy, now)
    item = next((each for each in gather(shown) if each.process is not None and each.process.epoch == epoch), None)
    if item is None:  # an earlier end is judged first, or the pod is gone
        return in_place.epoch_ended(shown.agent) == epoch
    return not fresh(shown, (item,), since=policy.since, handled=ledger.handled, now=now)


def _decides_natively(job: JobFacts) -> bool:
    """The Job decides about exit codes, or fails with its first pod. A restart in place would hide the exit from it."""
    return bool(job.pod_failure_rules) or job.backoff_limit == 0


def _may_wait(ledger: Ledger, policy: Policy, now: datetime) -> bool:
    """No incident has decided against a restart in place, and the budget has room for one."""
    open_ = ledger.incident
    if ledger.phase is Phase.HELD or ledger.broken is not None:
        return False
    if open_ is not None and open_.closing is None:
        return open_.step.type is StepType.WAITING or in_place.under_way(ledger) is not None or _goes_down(ledger)
    return budget.remaining(ledger.budget, policy.budget_limit, policy.budget_window, now) > 0


def _goes_down(ledger: Ledger) -> bool:
    """The group is being recreated. Its agents wait for the end of their pods: an exit would count as a failure."""
    return ledger.current_incident.step.type is StepType.RESTARTING


def _alone(agent: AgentFacts, ledger: Ledger, policy: Policy, now: datetime) -> int:
    """How many restarts the agents may begin by themselves. None while an incident is open, or while one that they made
    is not in the ledger: the next one would follow from a decision that is not made."""
    waiting = (each for each in agent.ended if now - each.ended_at < STALE_AFTER)
    if ledger.incident is not None or any(not _is_handled(agent.key_of(each.epoch), ledger) for each in waiting):
        return 0
    in_place_left = policy.in_place.max_in_a_row - ledger.in_place_in_row
    left = budget.remaining(ledger.budget, policy.budget_limit, policy.budget_window, now)
    return max(0, min(policy.in_place.alone, in_place_left, left))


def _is_handled(epoch: str, ledger: Ledger) -> bool:
    return any(epoch_in(key) == epoch for key in ledger.handled.keys)


def _action(agent: AgentFacts, ledger: Ledger) -> AgentAction | None:
    """What the agents do about the epoch that they ask about. None: they ask about none, or nothing is decided."""
    epoch, open_ = in_place.epoch_ended(agent), ledger.incident
    if not epoch:
        return None
    if open_ is None:
        return AgentAction(agent.barrier, agent.epoch, AgentOrder.EXIT)
    if open_.closing is None and in_place.under_way(ledger) is not None and open_.target.epoch == epoch:
        return AgentAction(agent.barrier, agent.epoch, AgentOrder.RESTART)
    return None
