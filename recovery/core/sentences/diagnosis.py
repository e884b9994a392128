"""What happened, and who else decides on it."""

from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective
from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _few_exits_left(details: Details) -> str:
    survives = f"only {details['exits']} more" if details["exits"] else "no more"
    return (
        f"Job {details['job']} (backoffLimit {details['limit']}) survives {survives} exits, and "
        f"{details['ranks']} ranks may exit while they wait"
    )


def _trained_to_the_end(details: Details) -> str:
    others = details["others"]
    end = f" and container {others} failed the pod" if others else ", but the pod failed"
    return f"container {details['containers']} of pod {details['pod']} exited 0{end}, so its Job decides what follows"


_LOSSES = {
    "PodDeleted": ("pod was deleted", "pods were deleted"),
    "PodFailed": ("pod failed", "pods failed"),
    "PodDisrupted": ("pod was disrupted", "pods were disrupted"),
    "ContainerRestarted": ("container exited", "containers exited"),
    "ProcessEnded": ("process ended", "processes ended"),
    "NodeLost": ("pod was lost with its node", "pods were lost with their nodes"),
    "NodeFault": ("pod runs on a faulty node", "pods run on faulty nodes"),
    "MemberMissing": ("member is missing", "members are missing"),
    "MemberReplaced": ("member was replaced", "members were replaced"),
    "JobDeleted": ("Job was deleted", "Jobs were deleted"),
    "JobFailing": ("Job is failing", "Jobs are failing"),
}


def _losses(details: Details) -> str:
    one, several = _LOSSES.get(str(details["kind"]), (f"sign of {details['kind']}", f"signs of {details['kind']}"))
    detail = f" ({details['detail']})" if details["detail"] else ""
    within = f" within {details['seconds']} s" if details["seconds"] and details["count"] != 1 else ""
    return f"{details['count']} {one if details['count'] == 1 else several}{detail}{within}"


TEXTS: dict[Sentence | Reason, Text] = {
    Reason.MEMBER_LOST: "{evidence}",
    Sentence.LOST_TOGETHER: "{losses}; the first of them: {first}",
    Sentence.LOSSES: _losses,
    Reason.MEMBER_LOST_AGAIN: "{evidence}",
    Sentence.LOST_AGAIN_SINCE: "{evidence}; a member was lost again since",
    # --- the training is about to be complete
    Sentence.CRITERIA_MET: "Job {job} has met its success criteria",
    Sentence.MEMBER_SUCCEEDED: "{who} has Succeeded, so the training is finishing",
    Sentence.CONTAINER_SUCCEEDED: "container {containers} of pod {pod} has exited 0, so the training is finishing",
    # --- what the program is
    Reason.COLLECTIVE_ANNOTATED: f"the annotation {COLLECTIVE_ANNOTATION} of {{whose}} says {{value}}",
    Reason.COLLECTIVE_UNKNOWN: (
        f"the annotation {COLLECTIVE_ANNOTATION} of {{whose}} says {{value}}, which is none of {', '.join(Collective)}"
    ),
    Reason.COLLECTIVE_BY_LAUNCH: "{shown_by} replaces a lost rank itself",
    Sentence.STARTS_ALL_RANKS: "{shown_by} starts and ends the ranks of all pods, so only its own end and start count",
    Sentence.RANKS_ARE_INDEPENDENT: "with {shown_by} no rank waits for another",
    Reason.COLLECTIVE_ASSUMED: "nothing in its launch shows that it replaces a lost rank itself",
    # --- the user's own policies
    Reason.POD_FAILURE_POLICY: "podFailurePolicy rule {number} of Job {job} (action {action}) matches pod {pod}",
    Reason.JOB_FAILS_BY_ITS_SPEC: "Job {job} is failing with reason {failing_reason}, as its spec requires",
    Reason.MAX_RESTARTS: (
        "the failurePolicy of JobSet {jobset} allows no more restarts (maxRestarts {limit} is exhausted)"
    ),
    Reason.FAILURE_POLICY: "the failurePolicy of JobSet {jobset} decides on the failing Job {job}",
    Reason.BACKOFF_LIMIT_ZERO: "Job {job} has backoffLimit 0: it fails with its first pod",
    Reason.INDEX_FAILED: "Job {job} has given up index {index} (backoffLimitPerIndex {limit})",
    Sentence.INDEX_FAILS_NOW: "Job {job} gives up index {index} with this failure (backoffLimitPerIndex {limit})",
    Reason.TRAINED_TO_THE_END: _trained_to_the_end,
    Sentence.TRAINED_BEFORE_POD_LOST: (
        "container {containers} of pod {pod} exited 0 before the pod was lost, so its Job decides what follows"
    ),
    # --- how long the Jobs last while a restart waits
    Sentence.FAILURE_POLICY_AT_ONCE: "the failurePolicy of JobSet {jobset} decides as soon as a Job fails",
    Reason.JOB_FAILING: "Job {job} is failing",
    Reason.BACKOFF_LIMIT: _few_exits_left,
    Sentence.INDEX_EXITS_UNKNOWN: (
        "Job {job} has a backoffLimitPerIndex, and it is not known how many exits each index has left"
    ),
}
