"""Our own suspension of a workload."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Text

TEXTS: dict[Sentence | Reason, Text] = {
    Sentence.RESUMED_BEFORE: "another client has resumed this job before",
    Reason.KUEUE: "Kueue owns the suspension of this job ({known_by})",
    Reason.DEADLINE: "a suspension would reset the deadline of the {kind} ({seconds} s)",
    Reason.SUSPENSION_RELEASED: "the controller ends its suspension, because {why}",
    Reason.RESUMED_BY_OTHERS: "another client has resumed it",
    Reason.NOT_SUSPENDED_IN_TIME: "it was not suspended in time",
    Reason.SUSPENSION_OVER: "the suspension of incident {incident} is over: the {kind} is resumed",
}
