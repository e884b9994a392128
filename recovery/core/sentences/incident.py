"""What prevents the controller from acting, and what limits its attempts."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _undecodable(details: Details) -> str:
    others = f" (and {details['more']} more)" if details["more"] else ""
    return f"{details['first']}{others}; nothing is done about this job until that is corrected or deleted"


_EXTENT = "(limit {limit} within {window})"

TEXTS: dict[Sentence | Reason, Text] = {
    Sentence.AS_SAID: "{message}",
    Sentence.BOTH: "{first}; {more}",
    # --- preconditions
    Sentence.JOB_WAS_DELETED: "the job was deleted",
    Reason.JOB_DELETED: "{what} is being deleted",
    Reason.JOB_COMPLETE: "{what} is {state}",
    Reason.JOB_SUSPENDED: "{what} is suspended",
    Reason.NO_JOB_SET: "the {kind} has no JobSet",
    Reason.JOB_SET_DELETED: "{what} is being deleted",
    Reason.JOB_SET_REPLACED: "the JobSet was replaced by another",
    Reason.UNDECODABLE: _undecodable,
    Reason.STALE_FACTS: "the watches of {resources} have been silent since {since}",
    Reason.POLICY_GONE: "the RecoveryPolicy was deleted or no longer selects this job",
    Reason.POLICY_INVALID: "the RecoveryPolicy cannot be used: {error}",
    Sentence.SWITCHED_TO_OBSERVE: "policy {policy} was switched to Observe",
    Sentence.IN_MODE_OBSERVE: "policy {policy} is in mode Observe",
    Reason.JOB_PAUSED: "the job is paused by annotation",
    # --- limits of attempts
    Reason.BUDGET_EXHAUSTED: f"the budget of policy {{policy}} is exhausted {_EXTENT}",
    Sentence.ATTEMPTS_BY_BUDGET: (
        f"{{count}} attempts of this incident have failed and the budget of policy {{policy}} {_EXTENT} allows no more"
    ),
    Sentence.ATTEMPTS_WHATEVER_BUDGET: (
        "{count} attempts of this incident have failed, and no incident gets more within {window}, even if the budget "
        f"of policy {{policy}} {_EXTENT} is not exhausted"
    ),
    Reason.FAILING_JOB_SET: "the controller is failing its JobSet",
}
