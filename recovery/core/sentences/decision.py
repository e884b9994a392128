"""What is decided about a group, and what it waits for."""

from recovery.core.model.reason import Reason, Sentence
from recovery.core.sentences.text import Details, Text, and_more


def _quarantining(details: Details) -> str:
    return f"quarantining node {details['node']} and " if details["node"] else ""


def _restart(details: Details) -> str:
    return (
        f"{details['found']}; {details['why']}: {_quarantining(details)}deleting Job {details['jobs']} so that all "
        f"{details['ranks']} ranks restart together ({details['left']})"
    )


def _restart_again(details: Details) -> str:
    why = f"; {details['why']}" if details["why"] else ""
    return (
        f"{details['found']}{why}; attempt {details['attempt']}: {_quarantining(details)}deleting Job "
        f"{details['jobs']} once more"
    )


def _free_of_charge(details: Details) -> str:
    incident = details["incident"]
    return f"free of charge: the same storm as incident {incident}" if incident else "free of charge"


def _would_hold(details: Details) -> str:
    exhausted = f" (onExhausted: {details['on_exhausted']})" if details["on_exhausted"] else ""
    return f"hold the group{exhausted}, because {details['why']}"


def _would_restart(details: Details) -> str:
    node = f"quarantine node {details['node']} and " if details["node"] else ""
    free = f", {details['free']}" if details["free"] else ""
    return f"{node}delete Job {details['jobs']}, so that all {details['ranks']} ranks restart together{free}"


def _same_error(details: Details) -> str:
    node, other = details["node"], details["other"]
    where = f"on node {node} as on node {other}" if other else f"again on node {node}"
    return (
        f"exit code {details['code']} with the same message ({details['message']}) came early {where}: an error of the "
        "job itself, which no restart fixes"
    )


def _adopted(details: Details) -> str:
    jobset = details["jobset"]
    who = f"JobSet {jobset} restarts the group itself" if jobset else "another client deleted the group's Job"
    return f"{details['said']}; {who}: adopted as this incident's restart"


def _no_backoff(details: Details) -> str:
    hurry = f", and {details['hurry']}" if details["hurry"] else ""
    return f"{details['why']}; no backoff, because {details['refused']}{hurry}"


def _no_failure(details: Details) -> str:
    signs = details["signs"]
    return f"no failure ({signs} older or expected signs of restarts are a baseline)" if signs else "no failure"


def _baseline(details: Details) -> str:
    more = f" ({details['more']} more like it)" if details["more"] else ""
    return (
        f"{details['loss']}{more}: that is too long ago, or from before the policy was in mode Enforce, and the rank "
        "runs again, so nothing is done; if the ranks hang since, recovery restart "
        f"{details['job']} --reason TEXT"
    )


def _asked_for(details: Details) -> str:
    return f"{details['verb']} asked for{_who(details)}"


def _accepted(details: Details) -> str:
    return f"{details['verb']}{_who(details)}: {details['what']}"


def _who(details: Details) -> str:
    by = f" by {details['by']}" if details["by"] else ""
    return f"{by}: {details['note']}" if details["note"] else by


def _waiting_for_teardown(details: Details) -> str:
    return f"waiting for {details['pod']}{and_more(details['more'])} to be gone"


def _waiting_for_ready(details: Details) -> str:
    return f"waiting for {details['who']}{and_more(details['more'])} to be Ready"


_OBSERVED: dict[Sentence | Reason, Text] = {
    Sentence.WOULD_LEAVE: "leave it to Kubernetes",
    Sentence.WOULD_FAIL: "make the JobSet fail",
    Sentence.WOULD_HOLD: _would_hold,
    Sentence.WOULD_RESTART: _would_restart,
    Sentence.WOULD_RECREATE_JOB_SET: "delete JobSet {jobset}, so that Trainer creates it again",
    Sentence.WOULD_BY: "{would} ({why})",
    Sentence.WOULD_BUT_BREAKER: "Enforce would now {would}; {breaker}",
    Sentence.WOULD_BUT_OBSERVE: "policy {policy} is in mode Observe: Enforce would now {would}",
    Sentence.TOO_LATE_BY_BREAKER: (
        "{said}; that was while the circuit breaker was open, so nothing is done: recovery restart {workload} if its "
        "ranks hang"
    ),
    Sentence.TOO_LATE_BY_MODE: (
        "{said}; that was before policy {policy} was in mode Enforce, so nothing is done: recovery restart {workload} "
        "if its ranks hang"
    ),
    Sentence.SINCE_BREAKER_CLOSED: (
        "the circuit breaker was closed, and another member was lost since: that is an incident of its own"
    ),
    Sentence.SINCE_ENFORCED: (
        "the policy was switched to Enforce, and another member was lost since: that is an incident of its own"
    ),
}

_VERDICTS: dict[Sentence | Reason, Text] = {
    Reason.RESTART_NONE: "policy {policy} says restart: None, so it is left to Kubernetes",
    Reason.DEFAULT_RESTART: "no rule matched, so the default of policy {policy} ({restart}) applies",
    Sentence.RULE_SAYS: "rule {rule} ({match}) says {action}",
    Sentence.RULE_IGNORES: "rule {rule} ({match}) says {action}, so it is left to Kubernetes",
    Reason.RULE_FAIL_JOB_NOT_ALLOWED: "{says}, which RecoveryConfig does not allow (spec.allow.failJob)",
    Sentence.AND: "{why}, and {more}",
    Sentence.BUT: "{why}, but {refused}",
    Sentence.BUT_MEMBER_RUNS: ("{why}, but {refused}; its member still runs there, so the group is left as it is"),
    Reason.NODE_UNKNOWN: "no node is known for it",
    Sentence.NODE_MAY_NOT_BE_CORDONED: (
        "node {node} is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"
    ),
    Sentence.NOT_QUARANTINED: "node {node} is not quarantined: {why}",
    Reason.SAME_ERROR_AGAIN: _same_error,
    Reason.USER_RESIZED: (
        "Job {job} has {size} pods and its successor would have {template}, so a restart would undo that size"
    ),
    Reason.FINISH_OVERDUE: (
        "{done}, but it has not ended within {timeout} after the loss; a restart would throw away what is done, so a "
        "person decides"
    ),
    Reason.BAD_CHECKPOINT: (
        "exit code {code} with the same message ({message}) came at the same step ({step}) as before the restart: a "
        "suspected bad checkpoint"
    ),
    Reason.SETTLING: "its cause may still come in: the rules are asked when it has settled",
    Reason.STORM: "{what} ({storm}): waiting until no more are",
    Reason.GROUP_PENDING: (
        "policy {policy} says {restart}, and {pod} is Pending: the restart waits until the group has started"
    ),
}

_HELD: dict[Sentence | Reason, Text] = {
    Sentence.HELD: "{found}; held, because {why}{then}",
    Sentence.HELD_SUSPENDED: "; suspended, so that its GPUs are free",
    Sentence.HELD_FAILING: "; the JobSet is made to fail",
    Sentence.HELD_UNTIL_RETRY: "; recovery retry ends that",
    Sentence.HELD_FAILING_BY_BUDGET: "; the JobSet is made to fail (onExhausted: FailJob)",
    Sentence.HELD_NOT_SUSPENDED: "; it is not suspended, because {why}",
    Sentence.HELD_NOT_FAILED: "; it is not made to fail, because RecoveryConfig does not allow FailJob",
}

_RESTARTS: dict[Sentence | Reason, Text] = {
    Sentence.SEEN_THEN: "{found}; {what}",
    Sentence.STANDING_ASIDE: "{found}; standing aside, because {decided}",
    Sentence.NOTHING_DONE: "{found}; nothing is done, because {bar}",
    Reason.MEMBERS_RUN_AGAIN: "that is over and all {ranks} ranks run: waiting until they are Ready",
    Sentence.RESTART: _restart,
    Sentence.RESTART_AGAIN: _restart_again,
    Sentence.BUDGET_LEFT: "{count} of {limit} recoveries left",
    Sentence.FREE_OF_CHARGE: _free_of_charge,
    Sentence.WITHHELD: (
        "{why}; not before {until} (attempt {number} in a row waits {wait}), and the job is not suspended until then, "
        "because {not_ours}"
    ),
    Sentence.NO_BACKOFF: _no_backoff,
    Sentence.BACKOFF_ENDS_EARLY: "{why}; the backoff ends early, because {hurry}",
    Sentence.STAYS_SUSPENDED: "{why}; it stays suspended for {wait} first (attempt {number} in a row)",
    Reason.TIME_TO_START: "the group has been given its time to start",
    Sentence.LEFT_ALONE: "{why}: left alone",
    Sentence.ADOPTED: _adopted,
    Reason.MEMBER_REPLACED: "{evidence} before all ranks ran; it is replaced without a restart of the others",
    Sentence.NOT_CARRIED_OUT: "{evidence}; decided, but not carried out, because {bar}",
    Reason.API_REFUSES: "{evidence}; decided, but the API server refuses it: {error}",
    Sentence.RANKS_HAVE_MET: "all {ranks} ranks have begun or joined since, so there is nothing to restart for",
    Sentence.READY_MEANWHILE: (
        "the restart was not carried out, and all {ranks} ranks have become Ready since: left alone"
    ),
    Sentence.ALL_READY: "all {ranks} ranks are Ready (source: {source}, verified: {verified})",
    Sentence.ALL_JOINED: "all {ranks} ranks have joined (source: {source}, verified: {verified})",
    Sentence.ALL_READY_AND_COMPLETE: (
        "all {ranks} ranks became Ready, and {what} is complete (source: {source}, verified: {verified})"
    ),
    Reason.TRAINING_PROGRESSES: (
        "all {ranks} ranks are Ready, and the training progresses (source: progress, verified: true)"
    ),
    Reason.PROGRESS_NOT_SEEN: (
        "all {ranks} ranks are Ready, but the training reported no progress within {seconds} s "
        "(source: {source}, verified: {verified})"
    ),
}

_WAITS: dict[Sentence | Reason, Text] = {
    Reason.FENCING: "fencing: {pod} may still run: {fate}",
    Reason.WAITING_FOR_TEARDOWN: _waiting_for_teardown,
    Sentence.WAITING_FOR_FINALIZER: "waiting for Job {jobs} to be gone: its pods are; a finalizer holds it",
    Sentence.WAITING_FOR_OLD_JOB_SET: "waiting for JobSet {jobset} and its Jobs to be gone",
    Reason.WAITING_FOR_JOB_SET: "waiting for Trainer to create the JobSet again",
    Reason.WAITING_FOR_RESUME: "waiting for {who} to carry out that it is resumed",
    Reason.TRAINER_RESUMES: "JobSet {jobset} is suspended, its TrainJob is not: waiting for Trainer to resume it",
    Sentence.WAITING_FOR_JOB: "waiting for JobSet to create the Job again",
    Reason.WAITING_FOR_PODS: "{count} of {ranks} pods have been created so far, {placed} of them have a node",
    Reason.PODS_REFUSED: "Job {job} cannot create its pods: {why}",
    Reason.WAITING_FOR_CAPACITY: "waiting for capacity: {pod}: {why}",
    Reason.WAITING_FOR_READY: _waiting_for_ready,
    Reason.JOB_WITHOUT_PODS: "Job {job} got no pods for {seconds} s",
    Reason.START_TIMEOUT: "not all ranks ran within {seconds} s of being scheduled",
    Reason.WAITING_FOR_PROGRESS: "all {ranks} ranks are Ready; waiting for the training to report progress",
    Reason.RENDEZVOUS_TIMEOUT: "not all ranks joined within {seconds} s of running; {what}",
    Reason.BUDGET_WINDOW_PASSED: "{evidence}; held until the budget's window let it through",
    Sentence.HOLE_SEEN: "{what}",
    Reason.NODE_SWALLOWS_PODS: "{what}: {case}",
    Sentence.HOLE_NOT_QUARANTINED: "{held}, but it is not quarantined: {refused}",
    Sentence.HOLE_QUARANTINED: "{held}: quarantining it; nothing is restarted, its Job replaces the pod",
    Sentence.HOLE_QUARANTINED_POD_STAYS: (
        "{held}: quarantining it; nothing is restarted, its pod there has to be deleted by hand"
    ),
}

_FAILED: dict[Sentence | Reason, Text] = {
    Sentence.JOB_SET_WAS_FAILED: "JobSet {jobset} has been failed",
    Reason.NATIVE_POLICY: "JobSet {jobset} failed, because {decided}",
    Reason.PLATFORM_GAVE_UP: "the platform gave up: JobSet {jobset} is Failed ({detail})",
    Sentence.LEFT_AS_IT_IS: "{gave_up}; it is left as it is",
    Sentence.NOT_RECREATED: "{gave_up}; it is not created again, because {refused}",
    Sentence.NOBODY_RECREATES_IT: "a JobSet without a TrainJob would not be created again",
    Sentence.RECREATING_JOB_SET: (
        "{gave_up}; policy {policy} says onTerminalFailure: RecreateJobSet: deleting it, so that Trainer creates it "
        "again"
    ),
}

_WITHOUT_INCIDENT: dict[Sentence | Reason, Text] = {
    Reason.WORKLOAD_GONE: "the workload is gone",
    Reason.NO_POLICY: "no RecoveryPolicy applies to this job",
    Sentence.NO_USABLE_POLICY: "the RecoveryPolicy that applies cannot be used: {error}",
    Sentence.PAUSED_UNTIL_RESUMED: "paused by annotation: nothing is watched for until it is resumed",
    Sentence.PAUSED_UNTIL_THEN: "{pause}: nothing is watched for until then",
    Reason.BASELINE: _baseline,
    Reason.NO_FAILURE: _no_failure,
    Sentence.LOST_BUT_FINISHING: "{evidence}, but {done}: left alone for {timeout}",
    Reason.NODE_SILENT: "no failure yet: {fate}",
    Reason.NOT_STARTED: "has not started: {words}",
    Sentence.NOT_STARTED_BY_NODE: "has not started: {why}",
    Reason.JOB_SET_FAILED: "JobSet {jobset} is Failed; its end has been reported",
    Sentence.FAILED_LONG_AGO: "JobSet {jobset} failed before this policy or long ago: left alone",
    Reason.INCIDENT_RECORDED: "incident {incident} is closed: {message}",
}

_REQUESTS: dict[Sentence | Reason, Text] = {
    Reason.RESTARTED_BY_HAND: _asked_for,
    Sentence.RESTART_BY_HAND: (
        "{found}: deleting Job {jobs} so that all {ranks} ranks restart together, free of charge; no checkpoint is "
        "known of, so steps since the last one are lost"
    ),
    Sentence.ANSWERED_BY_INCIDENT: "incident {incident}: {why}",
    Sentence.ACCEPTED: _accepted,
    Sentence.REFUSED: "{verb} is refused: {why}",
    Reason.BUDGET_RESET: "{charges} charges no longer count",
    Reason.BACKOFF_SKIPPED: "the backoff is over: it is resumed as soon as the old group is gone",
    Reason.REQUEST_EXPIRED: "it was asked for at {at}, too long ago",
    Reason.REQUEST_PREMATURE: "it is dated {at}, which is yet to come",
    Reason.NO_INCIDENT: "no incident is open",
    Reason.NOTHING_HELD_BACK: "nothing is held back: the group is in phase {phase}",
    Reason.HELD_FOR_GOOD: "the group is Held for good",
    Reason.RESTART_UNDER_WAY: "a restart is under way (phase {phase})",
    Reason.NO_JOB: "there is no Job to restart",
    Sentence.JOB_SET_HAS_ENDED: "JobSet {jobset} is {state}",
    Sentence.FORCE_OVERRIDES: "{why} (force overrides that)",
}

TEXTS: dict[Sentence | Reason, Text] = {
    **_WITHOUT_INCIDENT,
    **_VERDICTS,
    **_OBSERVED,
    **_HELD,
    **_RESTARTS,
    **_WAITS,
    **_FAILED,
    **_REQUESTS,
}
