"""Rules that compare what a policy says with what was done and what really happened."""

from collections.abc import Iterator
from datetime import datetime

from recovery.core.model.ledger import AttemptAction, Incident
from recovery.core.model.rules import Operator, RuleAction
from recovery.core.model.rules import Rule as PolicyRule
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.ledger_changes import LedgerChange
from recovery.sim.trials.failure_signs import LEFT, PEERS
from recovery.sim.trials.trial_evidence import Violation

_CONSEQUENCES = frozenset(LEFT[sign].code for sign in PEERS if LEFT[sign].code not in {None, 1})
"""Exit codes that only the survivors of another loss have in a trial. No fault has them."""


def rule_of(incident: Incident | None) -> PolicyRule | None:
    """The rule that decided last. None: the default did."""
    if incident is None or not incident.rule:
        return None
    return next((rule for rule in incident.pinned.rules if rule.name == incident.rule), None)


class ChargedByRule(CheckerRule):
    """A failure that a rule ignores, or declares free, costs no budget. An ignored failure does not restart the
    group."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        incident = made.after.incident if made is not None else None
        rule = rule_of(incident)
        if made is None or incident is None or rule is None:
            return
        if made.trigger is not None and made.trigger.action is AttemptAction.RECREATE_JOB_SET:
            return  # The JobSet has failed since, so onTerminalFailure decides.
        ignored = rule.action is RuleAction.IGNORE
        if made.after.totals.charged > made.before.totals.charged and (ignored or not rule.charge):
            what = "ignores it" if ignored else "says charge: false"
            yield self.found(at, f"incident {incident.id} is charged, though rule {rule.name} {what}", made.group)
        if ignored and made.trigger is not None and not made.by_hand:
            yield self.found(at, f"incident {incident.id} restarts what rule {rule.name} ignores", made.group)


class FailJobForItsCause(CheckerRule):
    """A job is made to fail only where the RecoveryConfig allows it, and only by a rule with the action FailJob or by
    `onExhausted`. A rule about exit codes never fails a job for codes that only the survivors of another loss had. The
    model of the training says what really happened."""

    hears = frozenset({RECOVERY_GROUPS})

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        made = self.written(change)
        incident = made.after.incident if made is not None else None
        if made is None or incident is None or not incident.step.fails_job:
            return
        if made.same is not None and made.same.step.fails_job:
            return
        rule = rule_of(incident)
        for sentence in self._wrong(made, incident, rule):
            yield self.found(at, f"{made.actor} makes {made.group} fail, {sentence}: {incident.message}", made.group)

    def _wrong(self, made: LedgerChange, incident: Incident, rule: PolicyRule | None) -> Iterator[str]:
        if not self.evidence.plan.config.get("allow", {}).get("failJob"):
            yield "which RecoveryConfig does not allow"
        if rule is None:
            if incident.pinned.on_exhausted != "FailJob":
                yield "which no rule and no onExhausted says"
            return
        if rule.action is not RuleAction.FAIL_JOB:
            if incident.pinned.on_exhausted != "FailJob":
                yield f"though rule {rule.name} says {rule.action}"
            return
        codes = rule.when.on_exit_codes
        if codes is None or codes.operator is not Operator.IN:
            return
        exits = [each for each in self._exits(made, incident) if each.exit_code in codes.values]
        if not exits:
            yield f"though no process ended with a code of rule {rule.name}"
        elif all(each.exit_code in _CONSEQUENCES and self._is_known(each, made) for each in exits):
            yield f"though all that ended with a code of rule {rule.name} were survivors of another loss"

    def _exits(self, made: LedgerChange, incident: Incident) -> list[TraceRecord]:
        """The exits in the Jobs that the incident is about, and in those that its restarts have created."""
        targets = {*incident.target.job_uids}
        return [
            record
            for record in self.evidence.trace.records
            if record.kind is EventKind.PROCESS_EXITED
            and (
                not targets
                or record.job_uid in targets
                or (record.training == str(made.group) and record.at >= incident.started_at)
            )
        ]

    def _is_known(self, survivor: TraceRecord, made: LedgerChange) -> bool:
        """The loss behind the survivor's exit was visible, because another container had ended before."""
        return any(
            record.kind is EventKind.RANK_LOST
            and record.job_uid == survivor.job_uid
            and record.at <= survivor.at
            and record.exit_code not in _CONSEQUENCES
            and not self._is_on_lost_node(record)
            for record in self.evidence.trace.records
        )

    def _is_on_lost_node(self, record: TraceRecord) -> bool:
        return any(each.node == record.node and each.at <= record.at for each in self.evidence.happenings if each.node)
