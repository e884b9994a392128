"""The texts of what `core.drill` finds."""

from recovery.core.model.reason import Reason, Sentence
from recovery.core.sentences.text import Text

TEXTS: dict[Sentence | Reason, Text] = {
    Reason.DRILL_ACCEPTED: "a failure of the {count} named pods counts as a drill",
    Reason.DRILL_LIMIT_OF_DAY: (
        "the job has had {count} drills in the last 24 hours, and the RecoveryConfig allows {limit}; wait, or raise"
        " drills.perJobAndDay"
    ),
    Reason.DRILL_OVERLAPS: "drill {other} of the same job runs; wait for its end, or run recovery chaos abort {other}",
    Reason.DRILL_TOO_LONG: "expiresAt is {expires}; it must be in the future, and at most 4 hours after the creation",
    Reason.DRILL_NAMES_NO_MEMBER: "pod {pod} is no running member of {job}, so its failure is no drill",
    Reason.DRILL_AS_EXPECTED: "as expected: {what}",
    Reason.DRILL_UNEXPECTED_INCIDENTS: "{count} incidents were opened, {expected} expected",
    Reason.DRILL_NOT_RECOVERED: "incident {incident} {state}",
    Reason.DRILL_TOO_SLOW: "the recovery took {seconds} s, longer than {limit} s",
    Reason.DRILL_TOO_COSTLY: "{gpu_seconds} GPU-seconds were idle, more than {limit}",
    Reason.DRILL_RESUMED_EARLIER: "the training continued from step {step}, before {expected}",
    Reason.DRILL_RESUME_UNKNOWN: "nothing shows from which step the training continued: {why}",
    Reason.DRILL_DISTURBED: "a failure that the drill did not cause fell into it: {what}",
    Reason.DRILL_DONE: "all repeats were run",
    Reason.DRILL_ABANDONED: "the client of the drill has not ended it before {expires}",
}
