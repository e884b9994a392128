"""The lines that `explain` prints, as pure functions of what was read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from recovery.cli.applied_policy import AppliedPolicy
from recovery.cli.explain_evidence import evidence_lines
from recovery.cli.formatting import age, aligned, duration, moment
from recovery.cli.status_rows import IN_PART, resume_at
from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.diagnosis.collective import collective_of
from recovery.core.diagnosis.group_conditions import trains_again
from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of
from recovery.core.diagnosis.training_container import SelectedBy, select
from recovery.core.incident import budget, requests
from recovery.core.incident.preconditions import paused
from recovery.core.model.annotations import PAUSED_ANNOTATION, TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.drill import DrillRef
from recovery.core.model.facts import ContainerFacts, GroupKey, JobFacts, JobSetFacts, PodFacts, Snapshot, WorkloadFacts
from recovery.core.model.fleet_ledger import FleetChange
from recovery.core.model.ledger import (
    RESTARTS_A_TRAINING,
    Attempt,
    ClosedIncident,
    Incident,
    Ledger,
    Outcome,
    PhaseSpan,
    Suspect,
)
from recovery.core.model.protection import Protection
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule
from recovery.core.model.suspect_log import SuspectLog
from recovery.core.plan.actions import (
    Action,
    ChangeFleet,
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    ExtendBackoffLimit,
    FailJobSet,
    ForceDeletePods,
    LeaveOutAgent,
    Plan,
    RaiseBackoffLimit,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.plan.suspension import in_force, marked_by
from recovery.core.policy.spec import FencingMode, Mode
from recovery.core.sentences import render
from recovery.core.sentences.protection import remedy, sentence

_TROUBLED_PODS_MAX = 8
_INDENT = "  "


def protection_line(found: Protection) -> str:
    """Whether a loss starts a recovery; if not, why not, and what a person can do about it."""
    answer = {True: "yes", False: "no", None: "not needed"}[found.protected]
    if found.free_rules:
        answer = IN_PART
    return " ".join(words for words in (f"Protected: {answer}.", sentence(found), remedy(found)) if words)


def policy_lines(selection: AppliedPolicy, ledger: Ledger, now: datetime) -> Iterator[str]:
    """Which policy applies, why, and how much of its budget is left."""
    if not selection.name:
        yield f"none: {selection.why}"
        return
    yield f"{selection.kind} {selection.name}, {selection.why}"
    policy = selection.policy
    if policy is None:
        yield f"it cannot be used: {selection.error}"
        return
    left = budget.remaining(ledger.budget, policy.budget_limit, policy.budget_window, now)
    mode = f"{policy.mode} (it says {Mode.ENFORCE})" if policy.breaker is not None else policy.mode
    yield f"mode {mode}, restart {policy.restart}, {left} of {policy.budget_limit} recoveries left"
    yield from _titled("rules, of which the first that matches decides", _rules(policy.rules))
    if policy.fencing is FencingMode.ASSUME_DEAD:
        after, may = duration(policy.assume_dead_after), "allows" if policy.may_assume_dead else "does not allow"
        yield f"a node that does not answer is assumed dead after {after} (AssumeDead): RecoveryConfig {may} it"
    yield from (render(why) for why in (policy.global_pause, policy.breaker) if why is not None)
    frees = budget.frees_at(ledger.budget, policy.budget_limit, policy.budget_window, now)
    if frees is not None:
        yield f"the budget allows the next one at {moment(frees)}"


def readiness_lines(
    snapshot: Snapshot, workload: WorkloadFacts, ledger: Ledger, found: Protection, now: datetime
) -> Iterator[str]:
    """What the objects show right now. Nothing contradicts `found`, which the output begins with."""
    yield from (each.sentence for each in snapshot.undecodable)
    if paused(workload):
        reason = workload.annotations[PAUSED_ANNOTATION]
        yield "paused by annotation" if reason == "true" else f"paused by annotation: {reason}"
    if in_force(workload):
        until = resume_at(workload)
        ends = f"until {moment(until)}" if until is not None else "and the end is not known yet"
        yield f"the {workload.kind} is suspended by the controller for incident {marked_by(workload)}, {ends}"
    elif workload.suspended:
        yield f"the {workload.kind} is suspended"
    if workload.active_deadline_seconds is not None:
        yield _deadline_line(workload.kind, workload.active_deadline_seconds)
    if workload.progress is not None:
        ratio = workload.progress.ratio
        far = "progress" if ratio is None else f"progress {ratio:.0%}"
        yield f"{far}, reported at {moment(workload.progress.updated_at)}"
    if ledger.training_step is not None:
        yield f"step {ledger.training_step.lowest}, reported at {moment(ledger.training_step.at)}"
    jobset = snapshot.jobset
    if jobset is None:
        yield "no JobSet"
        return
    state = jobset.terminal_state or ("suspended" if jobset.suspended else "")
    yield f"JobSet {jobset.name}{', ' + state if state else ''}, {jobset.restarts} restarts of its own"
    if jobset.active_deadline_seconds is not None and jobset.uid != workload.uid:
        yield _deadline_line("JobSet", jobset.active_deadline_seconds)
    yield from _end_lines(jobset, snapshot, workload, ledger)
    if snapshot.jobs:
        program = collective_of(snapshot)
        yield f"collective {program.collective}: {render(program.why)}"
    for job in snapshot.jobs:
        yield from _job_lines(snapshot, job, _untrained_words(job, ledger, found), now)
    if not member_jobs(snapshot):
        yield "no living Job of the group"


def _end_lines(jobset: JobSetFacts, snapshot: Snapshot, workload: WorkloadFacts, ledger: Ledger) -> Iterator[str]:
    """Whether the end of the job lasts. No line: it does."""
    again = trains_again(snapshot, ledger.handled.terminal_jobset_uid)
    if again is not None:
        yield again.message
    elif jobset.terminal_state == "Failed" and jobset.ttl_seconds is not None and jobset.uid != workload.uid:
        yield (
            f"ttlSecondsAfterFinished deletes the JobSet {jobset.ttl_seconds} s after its end, and Trainer then trains "
            "the job again: remove the field from the JobSet to keep the job failed"
        )


def _deadline_line(kind: str, seconds: int) -> str:
    return (
        f"the {kind} has a deadline of {seconds} s, which a suspension would reset: a backoff does not suspend the job"
    )


_OTHERS_MAX = 8
"""At most this many states of other containers are shown for one Job."""

_NOT_TRAINED = (
    "its pods do not show that all of them have run at once; until they have, its Job replaces a lost one, and nothing "
    "is restarted"
)


def _untrained_words(job: JobFacts, ledger: Ledger, found: Protection) -> str:
    """What it means for the Job if its pods do not show that all of them have run at once."""
    if not found.protected:
        return _NOT_TRAINED
    if found.incident and job.uid not in ledger.current_incident.target.job_uids:
        return (
            "its pods have not all run at once since the restart; until they have, its Job replaces a lost one, and "
            f"incident {found.incident} restarts the group again if they do not run in time"
        )
    return "its pods do not show any more that all of them have run at once, but the RecoveryGroup does"


def _job_lines(snapshot: Snapshot, job: JobFacts, untrained: str, now: datetime) -> Iterator[str]:
    """`untrained`: what to say if its pods do not show that it has trained."""
    pods = pods_of(snapshot, job)
    ready = sum(pod.ready and pod.running and pod.deleting_since is None for pod in pods)
    gpus = sum(pod.gpus for pod in pods if pod.node)
    dying = f", being deleted for {age(job.deleting_since, now)}" if job.deleting_since is not None else ""
    yield f"Job {job.name}{dying}: {ready} of {member_count(job)} pods run and are Ready, {gpus} GPUs"
    if job.active_deadline_seconds is not None:
        yield (
            f"{_INDENT}its deadline of {job.active_deadline_seconds} s counts from the start of this Job: each restart "
            "of the group begins it again"
        )
    if job.uid not in snapshot.trained_at:
        yield f"{_INDENT}{untrained}"
    yield from _container_lines(snapshot, job, pods)
    troubled = [pod for pod in pods if not (pod.ready and pod.running and pod.deleting_since is None)]
    for pod in troubled[:_TROUBLED_PODS_MAX]:
        yield f"{_INDENT}pod {pod.name}: {_pod_words(snapshot, pod, now)}"
    if len(troubled) > _TROUBLED_PODS_MAX:
        phases = Counter(pod.phase for pod in troubled[_TROUBLED_PODS_MAX:])
        yield f"{_INDENT}and {', '.join(f'{count} {phase}' for phase, count in sorted(phases.items()))} more"
    if job.failed_create:
        yield f"{_INDENT}it cannot create pods: {job.failed_create}"


def _container_lines(snapshot: Snapshot, job: JobFacts, pods: Sequence[PodFacts]) -> Iterator[str]:
    """Which containers train if pods have more than one, and the states of the others."""
    selection = select(job, snapshot.workload)
    if selection.by is SelectedBy.UNKNOWN:
        yield (
            f"{_INDENT}it is not known which container trains, so only a lost pod opens an incident: name it with the "
            f"annotation {TRAINING_CONTAINER_ANNOTATION}"
        )
    others = Counter(f"{each.name} {_container_words(each)}" for pod in pods for each in pod.other_containers)
    if others and selection.names:
        states = ", ".join(f"{words} ({count} pods)" for words, count in sorted(others.items())[:_OTHERS_MAX])
        yield f"{_INDENT}beside the training container {', '.join(selection.names)}: {states}; these open no incident"


def _pod_words(snapshot: Snapshot, pod: PodFacts, now: datetime) -> str:
    words = [pod.phase]
    if pod.deleting_since is not None:
        words.append(f"being deleted for {age(pod.deleting_since, now)}")
    words.extend(container.waiting_reason for container in pod.containers if container.waiting_reason)
    words.extend(f"exit code {container.exit.code}" for container in pod.containers if container.exit is not None)
    words.extend(condition.reason for condition in pod.conditions if condition.reason)
    node = snapshot.nodes.get(pod.node)
    if not pod.node:
        words.append("not scheduled")
    elif node is None or node.ready:
        words.append(f"on {pod.node}")
    else:
        since = f" for {age(node.ready_since, now)}" if node.ready_since is not None else ""
        words.append(f"on {pod.node}, which is not Ready{since} ({node.ready_reason or 'no reason given'})")
    return ", ".join(words)


def _container_words(container: ContainerFacts) -> str:
    restarts = f", {container.restarts} restarts" if container.restarts else ""
    if container.running_since is not None:
        return f"running{restarts}"
    if container.exit is not None:
        return f"exited {container.exit.code}{restarts}"
    return f"{container.waiting_reason or 'not started'}{restarts}"


def _rules(rules: Sequence[Rule]) -> list[str]:
    return [
        f"{number}. {rule.name}: {rule.action}{'' if rule.charge else ', not charged to the budget'}"
        for number, rule in enumerate(rules, 1)
    ]


def action_lines(plan: Plan) -> list[str]:
    """What the plan would do to the workload, in words."""
    return [words for action in (*plan.first, *plan.actions) if (words := _action_words(action))]


def _action_words(action: Action) -> str:
    """Empty: the action only reports a decision, as records and Events do."""
    match action:
        case DeletePods():
            return f"delete {len(action.pods)} pods"
        case ForceDeletePods():
            return f"force-delete {len(action.pods)} pods whose processes count as dead"
        case SuspendWorkload():
            ends = f" until {moment(action.resume_at)}" if action.resume_at is not None else ""
            return f"suspend the job{ends}"
        case ResumeWorkload():
            return f"resume the job, which incident {action.suspended_by} has suspended"
        case ChangeFleet():
            return _change_words(action.change)
        case _:
            return _words_about_jobs(action)


def _words_about_jobs(action: Action) -> str:
    match action:
        case DeleteJob():
            return f"delete Job {action.name} (uid {action.uid})"
        case ClaimJob():
            return f"mark Job {action.name} (uid {action.uid}), whose pods go before it does"
        case RaiseBackoffLimit():
            return f"raise the backoffLimit of Job {action.name}, which is being deleted"
        case ExtendBackoffLimit():
            return f"raise the backoffLimit of Job {action.name} to {action.backoff_limit} while ranks wait for a node"
        case TouchJob():
            return f"touch Job {action.name}, so that its controller reconciles it"
        case DeleteJobSet():
            return f"delete JobSet {action.name} (uid {action.uid}), so that Trainer creates it again"
        case LeaveOutAgent():
            return f"leave the agent out of the next Jobs of JobSet {action.job_set}"
        case FailJobSet():
            return f"make JobSet {action.name} (uid {action.uid}) fail for good"
        case _:
            return ""


def _change_words(change: FleetChange) -> str:
    wishes = [f"quarantine node {each.node}" for each in change.quarantine]
    wishes += [f"note a suspicion against node {each.node} ({each.reason})" for each in change.suspicions]
    wishes += ["note for the circuit breaker that the last recovery brought no progress" for _ in change.futile]
    return " and ".join(wishes)


def request_lines(workload: WorkloadFacts, ledger: Ledger) -> Iterator[str]:
    """The requests of people, with the answers."""
    for given in ledger.requests:
        verdict = "accepted" if given.accepted else "refused"
        yield f"{given.verb}, requested at {moment(given.at)}: {verdict}: {given.message}"
    for verb, asked in requests.pending(workload, ledger):
        by = f" by {asked.by}" if asked.by else ""
        reason = f" ({asked.reason})" if asked.reason else ""
        yield f"{verb}, requested at {moment(asked.at)}{by}{reason}: no answer yet"


def incident_lines(incident: Incident, now: datetime, shown: Sequence[str] = ()) -> Iterator[str]:
    """An incident in full: open, or closed. `shown`: its evidence, as far as the objects still show it."""
    closing = incident.closing
    if closing is None:
        yield f"{incident.id}, open for {duration(now - incident.started_at)}, mode {incident.mode}"
    else:
        length = duration(closing.ended_at - incident.started_at)
        outcome = _outcome_words(closing.outcome, closing.outcome_reason, still_broken=closing.still_broken)
        yield f"{incident.id}, {outcome} after {length}, mode {incident.mode}"
    yield incident.message
    detected = duration(incident.detected_at - incident.started_at)
    lost = sum(_idle_gpu_seconds(span, incident.gpus_in(span), now) for span in incident.phases)
    released = sum(_released_gpu_seconds(span, incident.gpus_in(span), now) for span in incident.phases)
    charged = "charged to the budget" if incident.charged else "not charged to the budget"
    yield f"class {incident.disruption_class}, cause {incident.cause}, {charged}"
    if incident.drill is not None:
        yield _drill_words(incident.drill)
    decided = _decided_by(incident)
    if decided:
        yield decided
    if incident.step.verdict is not None:
        yield f"held until recovery retry: {incident.step.message}"
    if incident.step.fails_job:
        yield "the controller is failing the JobSet"
    yield f"failed at {moment(incident.started_at)}, detected {detected} later"
    freed = f", {released:.0f} released by our suspension" if released else ""
    yield f"{incident.ranks} ranks, {incident.gpus_now} GPUs, {lost:.0f} idle GPU-seconds{freed}"
    yield from _titled("Evidence", evidence_lines(incident, shown))
    yield from _titled("Suspects", _suspects(incident.suspects))
    yield from _log_lines(incident.suspect_log)
    yield from _titled("Considered, and not done", (f"- {each.action}: {each.message}" for each in incident.considered))
    yield from _titled("Attempts", _attempts(incident.attempts))
    yield from _titled("Phases", _phases(incident, now))


def _drill_words(drill: DrillRef) -> str:
    return f"drill {drill.name} (repeat {drill.repeat})"


def _decided_by(incident: Incident) -> str:
    """What decides the restart, or would under Enforce. Empty: no rule or default does, and the message says why."""
    pinned = incident.pinned
    policy = f"policy {pinned.policy_name}, generation {pinned.policy_generation}"
    if incident.rule:
        return f"decided by rule {incident.rule} of {policy}"
    if incident.disruption_class in {DisruptionClass.MANUAL, DisruptionClass.GROWTH}:
        return ""
    if incident.would or any(attempt.action in RESTARTS_A_TRAINING for attempt in incident.attempts):
        return f"decided by the default ({pinned.restart}) of {policy}: no rule matched"
    return ""


def _idle_gpu_seconds(span: PhaseSpan, gpus: int, now: datetime) -> float:
    """The GPU-seconds of an ended phase as booked, of the current phase up to now."""
    if span.ended_at is not None:
        return span.idle_gpu_seconds
    return 0.0 if span.released else (now - span.started_at).total_seconds() * gpus


def _released_gpu_seconds(span: PhaseSpan, gpus: int, now: datetime) -> float:
    """The same for the GPUs that our own suspension has released."""
    if span.ended_at is not None:
        return span.released_gpu_seconds
    return (now - span.started_at).total_seconds() * gpus if span.released else 0.0


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (_INDENT + line for line in found)


def _suspects(suspects: Sequence[Suspect]) -> list[str]:
    rows = [(each.pod, each.node, _number(each.index), _number(each.exit_code)) for each in suspects]
    return aligned(("POD", "NODE", "RANK", "EXIT"), rows) if rows else []


def _log_lines(log: SuspectLog | None) -> Iterator[str]:
    """The termination message comes first. All lines are indented, so that a tenant cannot forge other output."""
    if log is None:
        return
    if log.termination_message:
        yield from _titled(f"Termination message of {log.pod}", log.termination_message.split("\n"))
    if log.absent is not None:
        yield f"Log of {log.pod}: not read: {log.absent}"
        return
    whose = f"{log.pod}, container {log.container}{', before it restarted' if log.previous else ''}"
    yield from _titled(f"Last lines of {whose}", log.tail.split("\n"))
    if log.incomplete:
        yield "the log continues after these lines"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _attempts(attempts: Sequence[Attempt]) -> list[str]:
    return [
        f"{each.number}. {_attempt_words(each)} at {moment(each.started_at)} (epoch {each.epoch}): {each.whole_message}"
        for each in attempts
    ]


def _attempt_words(attempt: Attempt) -> str:
    return f"{attempt.action} of {', '.join(attempt.nodes)}" if attempt.nodes else str(attempt.action)


def _phases(incident: Incident, now: datetime) -> list[str]:
    rows = []
    for span in incident.phases:
        length = duration((span.ended_at or now) - span.started_at)
        lost = _idle_gpu_seconds(span, incident.gpus_in(span), now)
        lasting = f"{length} so far" if span.ended_at is None else length
        rows.append((str(span.phase), moment(span.started_at), lasting, f"{lost:.0f}"))
    return aligned(("PHASE", "SINCE", "DURATION", "IDLE-GPU-SECONDS"), rows) if rows else []


def _outcome_words(outcome: Outcome, reason: Reason, *, still_broken: bool) -> str:
    return f"{outcome} ({reason}{', its ranks still hung' if still_broken else ''})"


def last_incident_lines(closed: ClosedIncident, key: GroupKey, now: datetime) -> Iterator[str]:
    """The last closed incident, as far as the ledger has it, and the command that shows all of it."""
    length, ago = duration(closed.ended_at - closed.started_at), age(closed.ended_at, now)
    outcome = _outcome_words(closed.outcome, closed.outcome_reason, still_broken=closed.still_broken)
    yield f"{closed.id}, {outcome} {ago} ago, after {length}, cause {closed.cause}"
    if closed.drill is not None:
        yield _drill_words(closed.drill)
    if closed.message:
        yield closed.message
    yield f"all of it: recovery explain {key.name} -n {key.namespace} --incident {closed.id}"


def history_lines(history: Sequence[ClosedIncident], now: datetime) -> Iterator[str]:
    """The last incidents as a table, newest first."""
    header = ("ID", "OUTCOME", "CAUSE", "AGE", "DURATION", "ATTEMPTS", "IDLE-GPU-SECONDS")
    rows = [
        (
            each.id,
            str(each.outcome),
            f"{each.cause},drill" if each.drill is not None else each.cause,
            age(each.ended_at, now),
            duration(each.ended_at - each.started_at),
            str(each.attempts),
            f"{each.idle_gpu_seconds:.0f}",
        )
        for each in history
    ]
    yield from aligned(header, rows)
