"""The texts of what `core.drill` finds."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _unexpected_incidents(details: Details) -> str:
    incidents = "1 incident was" if str(details["count"]) == "1" else f"{details['count']} incidents were"
    return f"{incidents} opened, {details['expected']} expected"


TEXTS: dict[Sentence | Reason, Text] = {
    Sentence.EVENT_OF_DRILL: "drill {drill}: {said}",
    Reason.DRILL_LIMIT_OF_DAY: (
        "{count} repeats of drills of this job count within 24 hours, and RecoveryConfig spec.drills.perJobAndDay is"
        " {limit}; wait, or raise it"
    ),
    Reason.DRILL_OVERLAPS: (
        "drill {other} of the same job is running; wait until it ends, or run recovery chaos abort {other}"
    ),
    Reason.DRILL_TOO_LONG: (
        "spec.expiresAt is {expires}; use a time in the future, at most 4 hours after the creation of the drill"
    ),
    Reason.DRILL_NAMES_NO_MEMBER: "pod {pod} is no member of {job}, or has ended already, so its failure is no drill",
    Reason.DRILL_AS_EXPECTED: "as expected: {what}",
    Reason.DRILL_UNEXPECTED_INCIDENTS: _unexpected_incidents,
    Reason.DRILL_NOT_RECOVERED: "incident {incident} {state}",
    Reason.DRILL_TOO_SLOW: "the recovery took {seconds} s, longer than {limit} s",
    Reason.DRILL_TOO_COSTLY: "the incidents left {gpu_seconds} GPU-seconds idle, more than {limit}",
    Reason.DRILL_RESUMED_EARLIER: "the training continued from step {step}, before {expected}",
    Reason.DRILL_RESUME_UNKNOWN: "it is not known from which step the training continued: {why}",
    Reason.DRILL_DISTURBED: "something else than the drill happened during it: {what}",
    Reason.DRILL_ABANDONED: "the client that ran the drill did not end it before {expires}",
}
