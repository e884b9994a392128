"""Quarantine, suspicion, the circuit breaker, and the pause of the whole cluster."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _in_vain(details: Details) -> str:
    count = details["recoveries"]
    recoveries = "1 recovery" if count == 1 else f"{count} recoveries"
    return (
        f"{recoveries} within {details['minutes']} minutes brought no progress "
        f"(RecoveryConfig spec.circuitBreaker.recoveries {details['limit']})"
    )


def _pauses(details: Details) -> str:
    why = f": {details['why']}" if details["why"] else ""
    return f"RecoveryConfig {details['config']} pauses all recoveries{why}"


def _suspected(details: Details) -> str:
    before = f"; the one before is from incident {details['before']}" if details["before"] else ""
    return f"node {details['node']} is suspected ({details['count']} of {details['most']} suspicions{before})"


TEXTS: dict[Sentence | Reason, Text] = {
    Reason.QUARANTINE_NOT_ALLOWED: "RecoveryConfig spec.allow.cordon does not allow quarantine",
    Reason.QUARANTINE_CAP: "quarantine cap reached: {count} of {cap} nodes ({field})",
    Reason.QUARANTINE_NAMESPACE_CAP: (
        "namespace {namespace} has caused {count} of the {cap} quarantines that one namespace may cause without a "
        "condition, taint or device of the node that confirms them"
    ),
    Reason.MESSAGE_UNCONFIRMED: (
        "only messages of pods in namespace {namespace} blame node {node}; a condition, taint or device of the node, "
        "or a job of another namespace, has to confirm them"
    ),
    Sentence.LAST_NODES: ("{whose} needs this node: {left} nodes fit its pods, and it takes {needed}"),
    Sentence.TOO_FEW_NODES: ("{whose} needs this node: only {left} nodes fit its pods, and it takes {needed}"),
    Reason.FEASIBLE_NODES_UNKNOWN: "it is not known yet whether enough other nodes fit the pods of all groups",
    Reason.NODE_PROVEN: "{proof} is proof enough against node {node}",
    Reason.NODE_SUSPECTED: _suspected,
    Reason.NODE_SUSPECTED_TWICE: "this incident suspects node {node} for the second time",
    Reason.RECOVERIES_IN_VAIN: _in_vain,
    Reason.BREAKER_OPEN: "the circuit breaker is open: {why}; recovery reset-breaker closes it",
    Sentence.BREAKER_OPENED: (
        "the circuit breaker is open: {why}; every policy of the cluster counts as mode Observe until someone runs "
        "recovery reset-breaker"
    ),
    Sentence.BREAKER_CLOSED: (
        "the circuit breaker is closed: policies in mode Enforce act again; it had opened because {why}"
    ),
    Reason.GLOBAL_PAUSE: _pauses,
    Sentence.NO_USABLE_CONFIG: "{error}",
    Sentence.CONFIG_UNREADABLE: "RecoveryConfig {config} cannot be read ({error}), so all recoveries are paused",
}
