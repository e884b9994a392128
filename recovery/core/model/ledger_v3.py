"""Reads ledgers and records from before schemaVersion 4, whose reasons were sentences, as present ones.

Versions 1 and 2 lack fields of version 3, and each of those fields has a default. Version 4 changed the reasons: they
became codes, and what used to be read from a sentence became fields. The names on the wire were chosen so that a ledger
of version 3 decodes as one of version 4, except that each reason is `Unknown` and each message is empty. This module
supplies both from the sentences.

This is the only module that reads sentences. It knows those of the last version that wrote them (commit 3338a6b). An
unknown sentence keeps the reason `Unknown`, and its text becomes the message.
"""

import re
from collections.abc import Iterable

import msgspec

from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    ClosedIncident,
    Closing,
    Considered,
    Incident,
    Ledger,
    MessageRelation,
    Phase,
)
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer

NEWEST_VERSION = 3


class _Attempt(msgspec.Struct, frozen=True):
    reason: str


class _Incident(msgspec.Struct, frozen=True):
    reason: str = ""
    attempts: tuple[_Attempt, ...] = ()
    considered: tuple[str, ...] = ()
    would: str = ""


class _ClosedIncident(msgspec.Struct, frozen=True):
    reason: str


class _Answer(msgspec.Struct, frozen=True):
    answer: str


class _Ledger(msgspec.Struct, frozen=True):
    """Only the fields that hold sentences."""

    incident: _Incident | None = None
    requests: tuple[_Answer, ...] = ()
    history: tuple[_ClosedIncident, ...] = ()
    reason: str = ""


class _KeptIncident(msgspec.Struct, frozen=True):
    told: str = ""
    """Empty: an older CRD has dropped it."""
    undecided: bool | None = None
    """None: an older controller wrote the ledger, or an older CRD has dropped it."""


class _Kept(msgspec.Struct, frozen=True):
    incident: _KeptIncident | None = None


class _Breaker(msgspec.Struct, frozen=True):
    reason: str


class _FleetLedger(msgspec.Struct, frozen=True):
    breaker: _Breaker | None = None


class _Config(msgspec.Struct, frozen=True):
    status: _FleetLedger = _FleetLedger()


_decode_sentences = msgspec.json.Decoder(_Ledger).decode
_decode_ledger = msgspec.json.Decoder(Ledger).decode
_decode_incident_sentences = msgspec.json.Decoder(_Incident).decode
_decode_incident = msgspec.json.Decoder(Incident).decode
_decode_closing = msgspec.json.Decoder(Closing).decode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_config_sentences = msgspec.json.Decoder(_Config).decode


def decode_ledger(status: bytes | msgspec.Raw) -> Ledger:
    """The status of a RecoveryGroup of schemaVersion 1, 2 or 3. Raises ValueError or OverflowError as msgspec does."""
    ledger, old = _decode_ledger(status), _decode_sentences(status)
    if ledger.message:  # version 4, labelled 3 for a downgrade (docs/install.md): it is still complete
        return restore_dropped(ledger, status)
    incident = ledger.incident
    if incident is not None and old.incident is not None:
        incident = _incident(incident, old.incident, incident.closing)
    history = tuple(_closed(now, was) for now, was in zip(ledger.history, old.history, strict=True))
    converted = msgspec.structs.replace(
        ledger,
        incident=incident,
        requests=tuple(_answer(now, was) for now, was in zip(ledger.requests, old.requests, strict=True)),
        history=history,
        reason=_latest_reason(old.reason, incident, history),
        message=old.reason,
    )
    return _with_undecided(converted)


def restore_dropped(ledger: Ledger, status: bytes | msgspec.Raw) -> Ledger:
    """The ledger of schemaVersion 4 or later as it was written, where a CRD of an earlier version has dropped `told` or
    `undecided`, or where a controller of an earlier version has not written them.

    That CRD keeps the codes, and they show nearly as much. Without them a loss that arrived while another one was left
    to the platform would never be judged.
    """
    kept, incident = _decode_kept(status).incident, ledger.incident
    if incident is None or kept is None:
        return ledger
    if not kept.told and incident.attempt is not None:
        relation = MessageRelation.ATTEMPT if incident.reason is incident.attempt.reason else MessageRelation.ELSE
        ledger = ledger.with_incident(told=relation)
    return _with_undecided(ledger) if kept.undecided is None else ledger


def _with_undecided(ledger: Ledger) -> Ledger:
    """The ledger with what an earlier controller concluded from the message of the incident: if it is not that of the
    attempt that left a loss to the platform, evidence has come in since that is not left to the platform."""
    incident = ledger.incident
    if incident is None or incident.closing is not None or incident.attempt is None:
        return ledger
    if incident.attempt.action is not AttemptAction.NONE:
        return ledger
    return ledger.with_incident(undecided=incident.told is not MessageRelation.ATTEMPT)


def decode_record(spec: bytes | msgspec.Raw) -> Incident:
    """The spec of a RecoveryIncident without a schemaVersion. Raises ValueError or OverflowError as msgspec does.

    The fields of its closing are beside its own fields.
    """
    closing = _decode_closing(spec)
    incident = msgspec.structs.replace(_decode_incident(spec), closing=closing)
    return _incident(incident, _decode_incident_sentences(spec), closing)


def restore_breaker(fleet: FleetLedger, config: bytes | msgspec.Raw) -> FleetLedger:
    """The fleet's ledger with the sentence that an earlier version wrote when it opened the circuit breaker.

    The status of a RecoveryConfig has no version: a breaker's reason is either a code or a sentence.
    """
    breaker, old = fleet.breaker, _decode_config_sentences(config).status.breaker
    if breaker is None or old is None or breaker.reason is not Reason.UNKNOWN:
        return fleet
    # Only recoveries in vain have ever opened it.
    known = msgspec.structs.replace(breaker, reason=Reason.RECOVERIES_IN_VAIN, message=breaker.message or old.reason)
    return msgspec.structs.replace(fleet, breaker=known)


def _latest_reason(sentence: str, incident: Incident | None, history: tuple[ClosedIncident, ...]) -> Reason | None:
    """The code of the ledger's sentence, which is usually that of its incident."""
    if not sentence:
        return None
    same = (each.reason for each in (incident, *history[:1]) if each is not None and each.message == sentence)
    return next(same, reason_of(sentence))


# --- the parts of a ledger -----------------------------------------------------------------------------------------

_THEN = "; then "
"""Separates the first and the latest sentence of an attempt that left the loss to the platform."""
_ADOPTED = ": adopted as this incident's restart"
"""The end of the sentence of a restart by the platform."""
_TOO_LATE = "if its ranks hang"
"""The end of the sentence that leaves a loss from before mode Enforce to a person."""


def _incident(incident: Incident, old: _Incident, closing: Closing | None) -> Incident:
    attempts = tuple(_attempt(now, was) for now, was in zip(incident.attempts, old.attempts, strict=True))
    # For a closed incident this code is not needed, and its sentence cannot be separated from how it closed.
    reason = closing.outcome_reason if closing is not None else _reason_of_incident(old.reason)
    is_held = closing is None and incident.phases and incident.phases[-1].phase is Phase.HELD
    by_budget = is_held and not incident.held_message and reason in {Reason.BUDGET_EXHAUSTED, Reason.ATTEMPTS_EXHAUSTED}
    would_message = _without_adopted_restart(old.reason) if old.would and closing is None else ""
    return msgspec.structs.replace(
        incident,
        attempts=attempts,
        would_message=would_message,
        too_late=_TOO_LATE in old.reason,
        held_reason=reason_of(incident.held_message) if incident.held_message else None,
        considered=tuple(_considered(text) for text in old.considered),
        exhausted=reason if by_budget else None,
        # The sentence of a closed incident ends with how it closed.
        reason=reason,
        message=old.reason,
        told=MessageRelation.ELSE if closing is not None else _relation(old),
    )


def _reason_of_incident(sentence: str) -> Reason:
    return reason_of(sentence) if sentence else Reason.MEMBER_LOST


def _relation(old: _Incident) -> MessageRelation:
    if not old.attempts:
        return MessageRelation.ELSE if old.reason else MessageRelation.ATTEMPT
    if old.reason == old.attempts[-1].reason:
        return MessageRelation.ATTEMPT
    return MessageRelation.MORE if old.reason.startswith(old.attempts[-1].reason) else MessageRelation.ELSE


def _without_adopted_restart(sentence: str) -> str:
    """What was said about the loss, without the platform's restart that was reported after it."""
    began, adopted, _ = sentence.partition(_ADOPTED)
    return began.rpartition("; ")[0] if adopted else began


def _attempt(attempt: Attempt, old: _Attempt) -> Attempt:
    message, _, then = old.reason.partition(_THEN) if attempt.action is AttemptAction.NONE else (old.reason, "", "")
    return msgspec.structs.replace(attempt, reason=reason_of(message), message=message, then=then)


def _considered(text: str) -> Considered:
    action, _, message = text.partition(": ")
    node = re.match(r"node (\S+) is not quarantined", message)
    refusal = _latest(message, _REFUSALS)
    reason = reason_of(message) if refusal is None else refusal
    return Considered(action=action, reason=reason, message=message, node=node.group(1) if node is not None else "")


def _answer(answer: RequestAnswer, old: _Answer) -> RequestAnswer:
    return msgspec.structs.replace(answer, reason=reason_of(old.answer), message=old.answer)


def _closed(closed: ClosedIncident, old: _ClosedIncident) -> ClosedIncident:
    return msgspec.structs.replace(closed, reason=closed.outcome_reason, message=old.reason)


# --- sentences -----------------------------------------------------------------------------------------------------

_Table = tuple[tuple[re.Pattern[str], Reason], ...]


def _table(*rows: tuple[str, Reason]) -> _Table:
    return tuple((re.compile(pattern), reason) for pattern, reason in rows)


_REFUSALS = _table(
    (r"quarantine cap reached: ", Reason.QUARANTINE_CAP),
    (r"RecoveryConfig does not allow it \(spec\.allow\.cordon\)", Reason.QUARANTINE_NOT_ALLOWED),
    (r"RecoveryConfig spec\.allow\.cordon does not allow quarantine", Reason.QUARANTINE_NOT_ALLOWED),
    (r"it is among the last on which ", Reason.QUARANTINE_LAST_NODES),
    (r"no node is known for it", Reason.NODE_UNKNOWN),
)
"""Why a node is not quarantined. Within a longer sentence that is an aside, unless the group is left alone for it."""

_BY_A_REFUSAL = re.compile(
    r"is not quarantined: .*; its member still runs there, so the group is left as it is$"
    r"|, but it is not quarantined: .*$",
    re.DOTALL,
)

_ASIDE = re.compile(
    r"; (?:it stays suspended for [^;]* first \(attempt \d+ in a row\)"
    r"|no backoff, because [^;]*"
    r"|the backoff ends early, because [^;]*"
    r"|not before \S+ \(attempt \d+ in a row waits \w+\), and the job is not suspended until then, because [^;]*"
    r"|recovery retry ends that"
    r"|suspended, so that its GPUs are free"
    r"|it is not suspended, because [^;]*"
    r"|the JobSet is made to fail(?: \(onExhausted: FailJob\))?"
    r"|it is not made to fail, because RecoveryConfig does not allow FailJob)$"
)
"""What was added about how a decision is carried out. It decides nothing."""

_WHY = re.compile(r"(the suspension is released, because |, while members run on \d+ other nodes?: ).*$", re.DOTALL)
"""The end of a sentence that only explains the decision before it."""

_WOULD_BUT_BREAKER = re.compile(r"(Enforce would now .*); the circuit breaker is open: .*closes it$", re.DOTALL)

_DECISIONS = _table(
    # --- who else decides
    (r"podFailurePolicy rule \d+ of Job ", Reason.POD_FAILURE_POLICY),
    (r"is failing with reason \S+, as its own spec asks", Reason.JOB_FAILS_BY_ITS_SPEC),
    (r"allows no more restarts \(maxRestarts ", Reason.MAX_RESTARTS),
    (r"the failurePolicy of JobSet \S+ decides on the failing Job", Reason.FAILURE_POLICY),
    (r"has backoffLimit 0: it fails with its first pod", Reason.BACKOFF_LIMIT_ZERO),
    (r"(?:has given up index|gives up index) \d+ ", Reason.INDEX_FAILED),
    (r"exited 0(?:: the pod failed by| before the pod was lost)", Reason.TRAINED_TO_THE_END),
    (r": adopted as this incident's restart", Reason.PLATFORM_RESTART),
    (r"the platform gave up: JobSet ", Reason.PLATFORM_GAVE_UP),
    (r"waiting for Trainer to resume it", Reason.TRAINER_RESUMES),
    # --- verdicts
    (r"says restart: None, so it is left to Kubernetes", Reason.RESTART_NONE),
    (r"no rule matched, so the default of policy ", Reason.DEFAULT_RESTART),
    (r"delete Job .*, so that all \d+ ranks restart together", Reason.DEFAULT_RESTART),
    (r"\) says RecreateGroup\b", Reason.RULE_RECREATE_GROUP),
    (r"\) says ReplaceNode\b", Reason.RULE_REPLACE_NODE),
    (r"\) says FailJob\b", Reason.RULE_FAIL_JOB),
    (r"which RecoveryConfig does not allow \(spec\.allow\.failJob\)", Reason.RULE_FAIL_JOB_NOT_ALLOWED),
    (r"\) says Ignore, so it is left to Kubernetes", Reason.RULE_IGNORE),
    (r"is proof enough against node ", Reason.NODE_PROVEN),
    (r"node \S+ is suspected \(\d+ of \d+ suspicions", Reason.NODE_SUSPECTED),
    (r"node \S+ is the suspect of this incident for the second time", Reason.NODE_SUSPECTED_TWICE),
    (r"an error of the job itself, which no restart mends", Reason.SAME_ERROR_AGAIN),
    (r"came at the same step \(\d+\) as before the restart", Reason.BAD_CHECKPOINT),
    (r"its cause may still come in: the rules are asked when it has settled", Reason.SETTLING),
    (r"\(storm-\S+\): waiting until no more are", Reason.STORM),
    (r" is Pending: the restart waits until the group has started", Reason.GROUP_PENDING),
    (r"so nothing is done: recovery restart \S+ if its ranks hang", Reason.ENFORCED_TOO_LATE),
    (r"and another member was lost since: that is an incident of its own", Reason.MODE_SWITCHED),
    # --- why no attempt may be made
    (r"the budget of policy \S+ is exhausted \(", Reason.BUDGET_EXHAUSTED),
    (r"attempts of this incident have failed and ", Reason.ATTEMPTS_EXHAUSTED),
    (r"held, because it is being made to fail", Reason.FAILING_JOB_SET),
    (r"the circuit breaker is open: ", Reason.BREAKER_OPEN),
    (r"RecoveryConfig \S+ (?:pauses all recoveries|cannot be read)", Reason.GLOBAL_PAUSE),
    (r"policy \S+ was switched to Observe", Reason.OBSERVE_MODE),
    (r"(?:the policy|policy \S+) is in mode Observe(?!:)", Reason.OBSERVE_MODE),
    (r"the job is paused by annotation", Reason.JOB_PAUSED),
    (r"the RecoveryPolicy was deleted or no longer selects this job", Reason.POLICY_GONE),
    (r"the RecoveryPolicy cannot be used: ", Reason.POLICY_INVALID),
    (r"no RecoveryPolicy applies to this job", Reason.NO_POLICY),
    # --- on the way back
    (r"fencing: .* may still run: ", Reason.FENCING),
    (r"(?:^|; )waiting for .* to be gone(?:: its pods are; a finalizer holds it)?$", Reason.WAITING_FOR_TEARDOWN),
    (r"waiting for (?:Trainer|JobSet) to carry out that it is resumed", Reason.WAITING_FOR_RESUME),
    (r"waiting for JobSet to create the Job again", Reason.WAITING_FOR_PODS),
    (r"pods have been created so far, \d+ of them have a node", Reason.WAITING_FOR_PODS),
    (r"Job \S+ cannot create its pods: ", Reason.PODS_REFUSED),
    (r"waiting for capacity: ", Reason.WAITING_FOR_CAPACITY),
    (r"\(rank [^)]*\) waits: ", Reason.WAITING_FOR_START),
    (r", while members run on \d+ other nodes?: ", Reason.NODE_SWALLOWS_PODS),
    (r"(?:^|; )waiting for .* to be Ready$", Reason.WAITING_FOR_READY),
    (r"waiting for Trainer to make the JobSet anew", Reason.WAITING_FOR_JOB_SET),
    (r"got no pods for \d+ s", Reason.JOB_WITHOUT_PODS),
    (r"not all ranks ran within \d+ s of being scheduled", Reason.START_TIMEOUT),
    (r"not all ranks joined within \d+ s of running", Reason.RENDEZVOUS_TIMEOUT),
    (r"held until the budget's window let it through", Reason.BUDGET_WINDOW_PASSED),
    (r"decided, but the API server refuses it: ", Reason.API_REFUSES),
    (r"the suspension is released, because ", Reason.SUSPENSION_RELEASED),
    (r"somebody else has resumed (?:it|this job before)", Reason.RESUMED_BY_OTHERS),
    (r"it was not suspended in time", Reason.NOT_SUSPENDED_IN_TIME),
    (r"it is replaced without a restart of the others", Reason.MEMBER_REPLACED),
    (r"that is over and all \d+ ranks run: waiting until they are Ready", Reason.MEMBERS_RUN_AGAIN),
    (r"a member was lost again since", Reason.MEMBER_LOST_AGAIN),
    # --- what a person asked for
    (r"(?:restart|retry|reset-budget) asked for", Reason.RESTARTED_BY_HAND),
    (r"no checkpoint is known of, so steps since the last one are lost", Reason.RESTARTED_BY_HAND),
    (r"charges no longer count|^the budget was emptied$", Reason.BUDGET_RESET),
    (r"the backoff is over: it is resumed as soon as the old group is gone", Reason.BACKOFF_SKIPPED),
    (r"it was asked for at \S+, too long ago", Reason.REQUEST_EXPIRED),
    (r"it is dated \S+, which is yet to come", Reason.REQUEST_PREMATURE),
    (r"no incident is open", Reason.NO_INCIDENT),
    (r"nothing is held back: the group is in phase ", Reason.NOTHING_HELD_BACK),
    (r"the group is Held for good", Reason.HELD_FOR_GOOD),
    (r"a restart is under way \(phase ", Reason.RESTART_UNDER_WAY),
    (r"there is no Job to restart", Reason.NO_JOB),
    # --- without an incident
    (r"so the training is finishing", Reason.JOB_FINISHING),
    (r"has met its success criteria", Reason.JOB_FINISHING),
    (r"JobSet \S+ is being deleted$", Reason.JOB_SET_DELETED),
    (r"the (?:TrainJob|JobSet) is being deleted$", Reason.JOB_DELETED),
    (r"the job was deleted$", Reason.JOB_DELETED),
    (r"(?:TrainJob|JobSet \S+|JobSet) is Complete(?:d)?$", Reason.JOB_COMPLETE),
    (r"(?:TrainJob|JobSet \S+|JobSet) is Failed(?:$|; its end has been reported)", Reason.JOB_SET_FAILED),
    (r"JobSet \S+ failed before this policy or long ago: left alone", Reason.JOB_SET_FAILED),
    (r"the (?:TrainJob|JobSet) is suspended$", Reason.JOB_SUSPENDED),
    (r"the (?:TrainJob|JobSet) has no JobSet$", Reason.NO_JOB_SET),
    (r"the JobSet was replaced by another$", Reason.JOB_SET_REPLACED),
    (r"^has not started: ", Reason.NOT_STARTED),
    (r"^no failure(?:$| \()", Reason.NO_FAILURE),
    (r"^no failure yet: ", Reason.NODE_SILENT),
    (r"^the suspension of incident \S+ is over: ", Reason.SUSPENSION_OVER),
    (r"; nothing is done about this job until it can be read, or is gone$", Reason.UNDECODABLE),
    (r"^the workload is gone$", Reason.WORKLOAD_GONE),
)
"""What a sentence describes. If several match, the last one counts: sentences end with the decision."""

_RECORDED = re.compile(r"incident \S+ is closed: ")
_ATTEMPT = re.compile(r"; attempt \d+: ")


def reason_of(sentence: str) -> Reason:
    """The code for the sentence. Unknown: the last version without codes could not write that sentence."""
    code = Reason(sentence)
    if code is not Reason.UNKNOWN:  # this is a code, but an older CRD has dropped the fields that would show that
        return code
    if _RECORDED.match(sentence):
        return Reason.INCIDENT_RECORDED
    decided_by = _BY_A_REFUSAL.search(sentence)
    refusal = _latest(decided_by.group(), _REFUSALS) if decided_by is not None else None
    if refusal is not None:
        return refusal
    decision = _essence(sentence)
    found = _latest(decision, _DECISIONS)
    if found is None and _ATTEMPT.search(decision):
        return Reason.MEMBER_LOST_AGAIN
    return Reason.UNKNOWN if found is None else found


def _essence(sentence: str) -> str:
    """The sentence without what only says how the decision is carried out."""
    while (aside := _ASIDE.search(sentence)) is not None:
        sentence = sentence[: aside.start()]
    sentence = _WHY.sub(r"\1", sentence)
    would = _WOULD_BUT_BREAKER.search(sentence)
    return sentence if would is None else sentence[: would.end(1)]


def _latest(sentence: str, table: _Table) -> Reason | None:
    """The reason whose words begin last in the sentence. If two begin at the same place, the longer match counts."""
    found = [
        (match.start(), match.end(), reason) for pattern, reason in table for match in _last(pattern.finditer(sentence))
    ]
    return max(found, key=lambda each: each[:2])[2] if found else None


def _last(matches: Iterable[re.Match[str]]) -> tuple[re.Match[str], ...]:
    return tuple(matches)[-1:]
