"""What is decided about a group, and what it waits for."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
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
        f"{details['jobs']} again"
    )


def _crash_loop(details: Details) -> str:
    jobset, action, limit = details["jobset"], details["action"], details["max_restarts"]
    again = f"create the job again with another {'runtime' if details['kind'] == 'TrainJob' else 'failurePolicy'}"
    if action:
        by = f"a rule of the failurePolicy of JobSet {jobset} has action {action}, which maxRestarts does not limit"
        then = f"{again}, whose rule has action RestartJobSet (maxRestarts limits that) or FailJobSet"
    elif limit:
        by = f"the failurePolicy of JobSet {jobset} restarts it until maxRestarts {limit} is exhausted"
        then = f"{again}, whose maxRestarts is lower"
    else:
        by, then = f"another client restarts JobSet {jobset} or its Jobs", ""
    stop = f"spec.suspend: true in {details['kind']} {details['job']}"
    if details["kueue"]:
        stop = "spec.active: false in its Workload, because Kueue owns spec.suspend"
    return (
        f"the group restarted more than {_times(details['most'])} within {details['window']}, where policy "
        f"{details['policy']} allows {details['limit']}: {by}, and the controller cannot prevent that; to stop it, set "
        f"{stop}{f'; a failurePolicy cannot be changed: {then}' if then else ''}"
    )


def _times(count: str | int) -> str:
    return "once" if count == 1 else f"{count} times"


_FREE = "not charged to the budget"


def _budget_reset(details: Details) -> str:
    charges = (
        "1 charge no longer counts" if details["charges"] == 1 else f"{details['charges']} charges no longer count"
    )
    return f"{charges}, and neither do the restarts by others" if details["adopted"] else charges


def _free_of_charge(details: Details) -> str:
    incident = details["incident"]
    return f"{_FREE}: the same storm as incident {incident}" if incident else _FREE


def _would_hold(details: Details) -> str:
    exhausted = f" (onExhausted: {details['on_exhausted']})" if details["on_exhausted"] else ""
    return f"held the group{exhausted}, because {details['why']}"


def _would_restart(details: Details) -> str:
    node = f"quarantined node {details['node']} and " if details["node"] else ""
    free = f", {details['free']}" if details["free"] else ""
    return f"{node}deleted Job {details['jobs']}, so that all {details['ranks']} ranks restart together{free}"


def _same_error(details: Details) -> str:
    node, other = details["node"], details["other"]
    where = f", first on node {other} and now on node {node}" if other else f" on node {node}"
    return (
        f"exit code {details['code']} with the same message ({details['message']}) came back soon after the start"
        f"{where}, so it counts as an error of the job, which a restart does not fix"
    )


def _adopted(details: Details) -> str:
    jobset = details["jobset"]
    who = f"JobSet {jobset} restarts the group itself" if jobset else "another client deleted the group's Job"
    return f"{details['said']}; {who}: adopted as this incident's restart"


def _left_to_its_creator(details: Details) -> str:
    creates = f"{details['creator']} creates it again" if details["creator"] else "Trainer creates the JobSet again"
    return f"{details['said']}; {creates}: adopted as this incident's restart ({_FREE})"


def _no_backoff(details: Details) -> str:
    hurry = f", and {details['hurry']}" if details["hurry"] else ""
    return f"{details['why']}; no backoff, because {details['refused']}{hurry}"


def _no_failure(details: Details) -> str:
    signs = details["signs"]
    which = (
        "1 sign of an older or expected restart is"
        if signs == 1
        else f"{signs} signs of older or expected restarts are"
    )
    return f"no failure ({which} ignored)" if signs else "no failure"


def _not_started(details: Details, why: str | int) -> str:
    """A group with an incident has trained before, mostly with earlier Jobs."""
    return f"{'does not run whole' if details['incidents'] else 'has not started'}: {why}"


def _still_broken(details: Details) -> str:
    command = f"restart {details['job']} --reason TEXT --force" if details["forced"] else f"retry {details['job']}"
    return (
        f"{details['loss']}, and the other ranks have hung since; incident {details['incident']} closed without a "
        f"restart; run recovery {command}"
    )


def _baseline(details: Details) -> str:
    more = f" ({details['more']} more like it)" if details["more"] else ""
    return (
        f"{details['loss']}{more}: the rank runs again, and the loss is old or from before mode Enforce, so nothing is "
        f"done; if the ranks hang, run recovery restart {details['job']} --reason TEXT"
    )


def _paused(state: str, details: Details, end: str) -> str:
    more = f" ({details['more']} more like it)" if details["more"] else ""
    loss = f"; {details['loss']}{more}" if details["loss"] else ""
    counts = "this loss counts" if loss else "a rank that is lost meanwhile counts"
    return (
        f"{state}{loss}: the group is not restarted until {end}; {counts} then, unless the rank runs again and the "
        f"loss is more than {details['after']} old"
    )


def _paused_until_resumed(details: Details) -> str:
    return _paused("paused by annotation", details, "the job is resumed")


def _paused_until_then(details: Details) -> str:
    return _paused(str(details["pause"]), details, "the pause ends")


def _asked_for(details: Details) -> str:
    return f"{details['verb']} requested{_who(details)}"


def _accepted(details: Details) -> str:
    return f"{details['verb']}{_who(details)}: {details['what']}"


def _who(details: Details) -> str:
    by = f" by {details['by']}" if details["by"] else ""
    return f"{by}: {details['note']}" if details["note"] else by


def _waiting_for_teardown(details: Details) -> str:
    return f"waiting for {details['pod']}{and_more(details['more'])} to be deleted"


def _waiting_for_ready(details: Details) -> str:
    return f"waiting for {details['who']}{and_more(details['more'])} to be Ready"


def _steps_made(details: Details) -> str:
    """`step`: where the failure stopped the ranks. Empty: steps before and after the restart cannot be compared.
    `seconds`: the ranks have had so long. Empty: they have passed the step in time."""
    who, step, lowest = f"all {details['ranks']} ranks", details["step"], details["lowest"]
    over = f"; timeouts.resume ({details['seconds']} s) is over" if details["seconds"] else ""
    if step == "":
        found = f"{who} have joined and make steps again"
    elif details["passed"]:
        twice = f"{details['lost']} steps were made twice"
        found = f"{who} have passed step {step}, at which the failure stopped them; {twice}"
    else:
        found = f"{who} make steps again and have reached step {lowest} of {step}"
    return f"{found}{over} (source: agent, verified: true)"


def _waiting_for_join(details: Details) -> str:
    whose = "their" if details["more"] else "its"
    what = "have not called" if details["missing"] else "do not return from"
    who = f"{details['who']}{and_more(details['more'])}"
    return f"the rendezvous waits for {who}: {whose} processes {what} init_process_group"


def _waits_for_each_other(details: Details) -> str:
    held, own = (f"{details[key]} node{'' if details[key] == 1 else 's'}" for key in ("held", "own"))
    wait, hold = ("wait", "hold") if details["more"] else ("waits", "holds")
    return (
        f"group {details['other']}{and_more(details['more'])} also {wait}, and {hold} {held} that would take ranks of "
        f"this group, which holds {own}: they may wait for each other for ever; suspend or delete one of the jobs, and "
        "set whileWaiting: HoldThenRelease for the next time"
    )


_OBSERVED: dict[Sentence | Reason, Text] = {
    # In the past tense: the verdict is reached once, and the sentence is also read after a switch to Enforce.
    Sentence.WOULD_LEAVE: "left it to Kubernetes",
    Sentence.WOULD_FAIL: "failed the JobSet",
    Sentence.WOULD_HOLD: _would_hold,
    Sentence.WOULD_RESTART: _would_restart,
    Sentence.WOULD_RECREATE_JOB_SET: "deleted JobSet {jobset}, so that Trainer creates it again",
    Sentence.WOULD_BY: "{would} ({why})",
    Sentence.WOULD_BUT_BREAKER: "Enforce would have {would}; {breaker}",
    Sentence.WOULD_BUT_OBSERVE: "policy {policy} was in mode Observe: Enforce would have {would}",
    Sentence.TOO_LATE_BY_BREAKER: (
        "{said}; this happened while the circuit breaker was open, so nothing is done; if the ranks hang, run recovery "
        "restart {workload} --reason TEXT"
    ),
    Sentence.TOO_LATE_BY_MODE: (
        "{said}; this happened before policy {policy} was in mode Enforce, so nothing is done; if the ranks hang, run "
        "recovery restart {workload} --reason TEXT"
    ),
    Sentence.SINCE_BREAKER_CLOSED: (
        "the circuit breaker was closed, and another member was lost after that, which opens a new incident"
    ),
    Sentence.SINCE_ENFORCED: (
        "the policy was switched to Enforce, and another member was lost after that, which opens a new incident"
    ),
}

_VERDICTS: dict[Sentence | Reason, Text] = {
    Reason.RESTART_NONE: "policy {policy} sets restart: None, so the failure is left to Kubernetes",
    Reason.DEFAULT_RESTART: "no rule matched, so the default of policy {policy} ({restart}) applies",
    Sentence.RULE_SAYS: "rule {rule} ({match}) says {action}",
    Sentence.RULE_IGNORES: "rule {rule} ({match}) says {action}, so the failure is left to Kubernetes",
    Reason.RULE_FAIL_JOB_NOT_ALLOWED: "{says}, which RecoveryConfig does not allow (spec.allow.failJob)",
    Sentence.AND: "{why}, and {more}",
    Sentence.BUT: "{why}, but {refused}",
    Sentence.BUT_MEMBER_RUNS: "{why}, but {refused}; the member on it still runs, so the group is not restarted",
    Reason.NODE_UNKNOWN: "the node of the failure is not known",
    Sentence.NODE_MAY_NOT_BE_CORDONED: (
        "node {node} is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"
    ),
    Sentence.NOT_QUARANTINED: "node {node} is not quarantined: {why}",
    Reason.SAME_ERROR_AGAIN: _same_error,
    Reason.USER_RESIZED: (
        "Job {job} has {size} pods, and a restart would create it with {template} and so undo the resize"
    ),
    Reason.FINISH_OVERDUE: (
        "{done}, but the job did not end within {timeout} of that and of the loss; a restart would discard finished "
        "work, so a person has to decide"
    ),
    Reason.BAD_CHECKPOINT: (
        "exit code {code} with the same message ({message}) came back at the same step ({step}) as before the restart: "
        "the checkpoint may be bad"
    ),
    Reason.SETTLING: "evidence of the cause may still arrive: the rules are evaluated after spec.settle",
    Reason.STORM: "{what} ({storm}): waiting until no more nodes are lost",
    Reason.GROUP_PENDING: (
        "policy {policy} says {restart}, and {pod} is Pending: the restart waits until the group has started"
    ),
}

_HELD: dict[Sentence | Reason, Text] = {
    Sentence.HELD: "{found}; held, because {why}{then}",
    Sentence.HELD_SUSPENDED: "; the job is suspended to free its GPUs",
    Sentence.HELD_FAILING: "; the controller fails the JobSet",
    Sentence.HELD_UNTIL_RETRY: "; to try again, run recovery retry",
    Sentence.HELD_FAILING_BY_BUDGET: "; the controller fails the JobSet (onExhausted: FailJob)",
    Sentence.HELD_NOT_SUSPENDED: "; the job is not suspended, because {why}",
    Sentence.HELD_NOT_FAILED: (
        "; the JobSet is not failed, because RecoveryConfig does not allow it (spec.allow.failJob)"
    ),
}

_RESTARTS: dict[Sentence | Reason, Text] = {
    Sentence.SEEN_THEN: "{found}; {what}",
    Sentence.STANDING_ASIDE: "{found}; standing aside, because {decided}",
    Sentence.NOTHING_DONE: "{found}; nothing is done, because {bar}",
    Reason.MEMBERS_RUN_AGAIN: "no sign of the failure is left and all {ranks} ranks run: waiting for them to be Ready",
    Sentence.RESTART: _restart,
    Sentence.RESTART_AGAIN: _restart_again,
    Sentence.BUDGET_LEFT: "{count} of {limit} recoveries left",
    Sentence.FREE_OF_CHARGE: _free_of_charge,
    Sentence.SPARED: f"{_FREE}: {{rule}}",
    Sentence.FREE_AS_DRILL: f"{_FREE}: it is drill {{drill}}",
    Sentence.WITHHELD: (
        "{why}; the restart waits until {until} ({waits}), and the job is not suspended meanwhile, because {not_ours}"
    ),
    Sentence.NO_BACKOFF: _no_backoff,
    Sentence.BACKOFF_ENDS_EARLY: "{why}; the backoff ends early, because {hurry}",
    Sentence.STAYS_SUSPENDED: "{why}; the job stays suspended for {wait} first ({waits})",
    Sentence.IN_A_ROW: "attempt {number} in a row",
    Sentence.IN_A_ROW_WAITS: "attempt {number} in a row waits {wait}",
    Sentence.SINCE_LAST_RESTART: "the last restart ended at {ended}, and spec.backoff.minInterval is {interval}",
    Reason.TIME_TO_START: "the group has already had its time to start",
    Sentence.LEFT_ALONE: "{why}: the group is not restarted",
    Sentence.ADOPTED: _adopted,
    Reason.CRASH_LOOP: _crash_loop,
    Sentence.LEFT_TO_ITS_CREATOR: _left_to_its_creator,
    Sentence.JOB_SET_WAS_DELETED: "JobSet {jobset} was deleted",
    Reason.MEMBER_REPLACED: (
        "{evidence} before all ranks ran; its Job replaces the pod, and the other ranks are not restarted"
    ),
    Sentence.NOT_CARRIED_OUT: "{evidence}; the restart is decided but not carried out, because {bar}",
    Reason.API_REFUSES: "{evidence}; the API server refuses what the controller decided: {error}",
    Sentence.RANKS_HAVE_MET: "all {ranks} ranks have started or joined since, so no restart is needed",
    Sentence.READY_MEANWHILE: (
        "all {ranks} ranks became Ready before the restart was carried out, so it is not needed"
    ),
    Sentence.ALL_READY: "all {ranks} ranks are Ready (source: {source}, verified: {verified})",
    Sentence.ALL_JOINED: "all {ranks} ranks have joined (source: {source}, verified: {verified})",
    Sentence.ALL_READY_AND_COMPLETE: (
        "all {ranks} ranks became Ready, and {what} is complete (source: {source}, verified: {verified})"
    ),
    Reason.TRAINING_PROGRESSES: (
        "all {ranks} ranks are Ready, and the training makes progress (source: progress, verified: true)"
    ),
    Sentence.STEPS_MADE: _steps_made,
    Reason.PROGRESS_NOT_SEEN: (
        "all {ranks} ranks are Ready, but the training reported no progress within {seconds} s "
        "(source: {source}, verified: {verified})"
    ),
}

_WAITS: dict[Sentence | Reason, Text] = {
    Reason.FENCING: "fencing: {pod} may still run: {fate}",
    Reason.WAITING_FOR_TEARDOWN: _waiting_for_teardown,
    Sentence.WAITING_FOR_FINALIZER: "waiting for Job {jobs} to be deleted: its pods are gone, but a finalizer holds it",
    Sentence.WAITING_FOR_OLD_JOB_SET: "waiting for JobSet {jobset} and its Jobs to be deleted",
    Reason.WAITING_FOR_JOB_SET: "waiting for Trainer to create the JobSet again",
    Reason.WAITING_FOR_RESUME: "waiting for {who} to resume the job",
    Reason.TRAINER_RESUMES: (
        "JobSet {jobset} is suspended but its TrainJob is not: waiting for Trainer to resume the JobSet"
    ),
    Sentence.WAITING_FOR_JOB: "waiting for JobSet to create the Job again",
    Sentence.WAITING_FOR_SUCCESSOR: "waiting for the Job to replace {pod} (a Job delays pods after failures)",
    Sentence.NO_SUCCESSOR_IN_TIME: (
        "{pod} failed, and its Job has not created the next one within {seconds} s (a Job delays pods after failures)"
    ),
    Reason.WAITING_FOR_PODS: "{count} of {ranks} pods exist so far, and {placed} of them have a node",
    Reason.PODS_REFUSED: "Job {job} cannot create its pods: {why}",
    Reason.WAITING_FOR_CAPACITY: "waiting for capacity: {pod}: {why}",
    Reason.WAITS_FOR_EACH_OTHER: _waits_for_each_other,
    Sentence.WAITS_ON_NODES: "the other ranks keep their nodes, and their exits do not end the job",
    Sentence.WAITS_WITHOUT_NODES: (
        "the exits of the other ranks do not end the job, but with restartPolicy Never a rank that exits leaves its "
        "node, and others may take it: whileWaiting Release suits this job better"
    ),
    Sentence.WAITS_ON_ITS_OWN: "the exits of the other ranks count towards the backoffLimit of their Job",
    Sentence.WAIT_IS_LIMITED: "the job may fail before it has a node, because {limit}",
    Sentence.DEADLINE_RUNS: "its deadline of {seconds} s goes on",
    Reason.RELEASED: (
        "{waiting}; the job is suspended, so that others can have its GPUs; it resumes when there is room for all "
        "{ranks} ranks, after {wait} at the earliest"
    ),
    Reason.WAITING_FOR_READY: _waiting_for_ready,
    Sentence.WAITING_FOR_JOIN: _waiting_for_join,
    Reason.JOB_BACKS_OFF: (
        "{lost} pods of Job {job} were deleted before all ranks ran, and its back-off keeps it from creating others "
        "until {until}"
    ),
    Reason.JOB_WITHOUT_PODS: "Job {job} has had no pods for {seconds} s",
    Reason.START_TIMEOUT: "not all ranks started within {seconds} s after they were scheduled",
    Reason.WAITING_FOR_PROGRESS: "all {ranks} ranks are Ready; waiting for the training to report progress",
    Sentence.WAITING_FOR_STEP: (
        "all {ranks} ranks have joined; waiting until they have passed step {step}, at which the failure stopped them"
    ),
    Reason.RENDEZVOUS_TIMEOUT: "not all ranks joined within {seconds} s after all of them ran; {what}",
    Reason.BUDGET_WINDOW_PASSED: "{evidence}; the group was held until the budget allowed another attempt",
    Sentence.HOLE_SEEN: "{what}",
    Reason.NODE_SWALLOWS_PODS: "{what}: {case}",
    Sentence.HOLE_NOT_QUARANTINED: "{held}, but the node is not quarantined: {refused}",
    Sentence.HOLE_QUARANTINED: "{held}: quarantining it; the group is not restarted, and the Job replaces the pod",
    Sentence.HOLE_QUARANTINED_POD_STAYS: (
        "{held}: quarantining it; the group is not restarted: delete the pod on that node by hand"
    ),
}

_FAILED: dict[Sentence | Reason, Text] = {
    Sentence.JOB_SET_WAS_FAILED: "the controller failed JobSet {jobset}",
    Reason.NATIVE_POLICY: "JobSet {jobset} failed, because {decided}",
    Reason.PLATFORM_GAVE_UP: "the platform gave up: JobSet {jobset} is Failed ({detail})",
    Sentence.LEFT_AS_IT_IS: "{gave_up}; the controller leaves it as it is",
    Sentence.NOT_RECREATED: "{gave_up}; the controller does not recreate it, because {refused}",
    Sentence.NO_ONE_RECREATES_IT: "without a TrainJob nothing would create it again",
    Sentence.RECREATING_JOB_SET: (
        "{gave_up}; policy {policy} sets onTerminalFailure: RecreateJobSet: deleting it, so that Trainer creates it "
        "again"
    ),
}

_WITHOUT_INCIDENT: dict[Sentence | Reason, Text] = {
    Reason.WORKLOAD_GONE: "the workload does not exist",
    Reason.NO_POLICY: "no RecoveryPolicy applies to this job",
    Sentence.NO_USABLE_POLICY: "the RecoveryPolicy that applies cannot be used: {error}",
    Sentence.PAUSED_UNTIL_RESUMED: _paused_until_resumed,
    Sentence.PAUSED_UNTIL_THEN: _paused_until_then,
    Reason.BASELINE: _baseline,
    Reason.RANKS_HANG: "{hung} of {ranks} ranks still run and hang, because they had met the rank that was lost",
    Reason.STILL_BROKEN: _still_broken,
    Reason.NO_FAILURE: _no_failure,
    Sentence.LOST_BUT_FINISHING: "{evidence}, but {done}: the group is not restarted for {timeout}",
    Reason.NODE_SILENT: "no failure yet: {fate}",
    Reason.NOT_STARTED: lambda details: _not_started(details, details["words"]),
    Sentence.NOT_STARTED_BY_NODE: lambda details: _not_started(details, details["why"]),
    Reason.JOB_SET_FAILED: "JobSet {jobset} is Failed; this has been reported already",
    Sentence.FAILED_LONG_AGO: "JobSet {jobset} failed long ago, or before this policy existed: nothing is done",
    Reason.INCIDENT_RECORDED: "incident {incident} is closed: {message}",
}

_REQUESTS: dict[Sentence | Reason, Text] = {
    Reason.RESTARTED_BY_HAND: _asked_for,
    Sentence.RESTART_BY_HAND: (
        "{found}: deleting Job {jobs} so that all {ranks} ranks restart together, "
        f"{_FREE}; the steps since the last checkpoint are lost"
    ),
    Sentence.ANSWERED_BY_INCIDENT: "incident {incident}: {why}",
    Sentence.ACCEPTED: _accepted,
    Sentence.REFUSED: "{verb} is refused: {why}",
    Reason.BUDGET_RESET: _budget_reset,
    Reason.BACKOFF_SKIPPED: "the backoff is skipped: the job resumes as soon as its old pods are deleted",
    Reason.REQUEST_EXPIRED: "it was requested at {at}, which is too long ago",
    Reason.REQUEST_PREMATURE: "it is dated {at}, which is in the future",
    Reason.NO_INCIDENT: "no incident is open",
    Reason.NOTHING_HELD_BACK: "the group is in phase {phase}, and only a group in Held or Backoff can be retried",
    Reason.HELD_FOR_GOOD: "the group stays Held until its JobSet has failed",
    Reason.RESTART_UNDER_WAY: "a restart is in progress (phase {phase})",
    Reason.NO_JOB: "there is no Job to restart",
    Sentence.JOB_SET_HAS_ENDED: "JobSet {jobset} is {state}",
    Sentence.FORCE_OVERRIDES: "{why}; recovery restart {job} --reason TEXT --force overrides this",
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
