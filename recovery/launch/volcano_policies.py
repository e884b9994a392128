"""Checks what happens to a Volcano Job that loses a pod, and which of its policies Volcano refuses, ignores or follows.

Sources: Volcano 1.9 to 1.15, pkg/webhooks/admission/jobs/validate/util.go (validatePolicies), pkg/controllers/job
(applyPolicies) and state/{running,restarting}.go. The policies of the task come before those of the job, and the first
that matches decides. Without a match the action is SyncJob. It leaves a failed pod as it is, and creates a deleted pod
again without restarting the others. A Job is Failed at the maxRetry-th restart of its whole life. Pods are created from
the template as it is, so a restartPolicy that is left out is Always.
"""

import difflib
from collections.abc import Iterator, Sequence

from recovery.launch.fields import is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Setting
from recovery.launch.places import Place
from recovery.launch.processes import gpus_of
from recovery.launch.recoverability.pods import RESTARTED_IN_PLACE
from recovery.launch.views import LifecyclePolicy, Task, VolcanoJob
from recovery.launch.volcano import named, plugin_of

VOLCANO_REFUSED = Code("volcano-refused", Severity.ERROR, "Volcano refuses a policy or a task, or ignores it")
GROUP_NOT_RESTARTED = Code("group-not-restarted", Severity.WARNING, "no policy restarts the group when a pod is lost")
NEVER_COMPLETES = Code("never-completes", Severity.WARNING, "the pods restart after the training has succeeded")
FEW_RETRIES = Code("few-retries", Severity.NOTE, "maxRetry ends the job after few failures in its whole life")
CODES = (VOLCANO_REFUSED, GROUP_NOT_RESTARTED, NEVER_COMPLETES, FEW_RETRIES)

ANY = "*"
_EVENTS = (ANY, "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated")
_ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob"),
    "ResumeJob",
)
_RESTARTS_ALL = "RestartJob"
_RESTARTS_SOME = {"RestartTask": "the pods of its task", "RestartPod": "that pod", "RestartPartition": "its partition"}
_ANSWERS = frozenset({_RESTARTS_ALL, *_RESTARTS_SOME, "AbortJob", "TerminateJob", "CompleteJob"})
"""Actions that decide what happens to the job."""
_LOSSES = {
    "PodFailed": "a pod that fails is left as it is",
    "PodEvicted": "a pod that is drained, preempted or deleted is made again alone",
}
"""What SyncJob does at each event."""
_MAX_RETRY, _MAX_RETRY_FEW = 3, 3
_POLICIES = "policies: [{events: [PodFailed, PodEvicted], action: RestartJob}]"


def check(job: VolcanoJob) -> Iterator[LintFinding]:
    job = named(job)
    yield from _same_names(job.tasks)
    yield from _refused(job.policies)
    for task in job.tasks:
        yield from _refused(task.policies)
    group = [task for task in _group(job) if task.replicas]
    several = sum(task.replicas or 0 for task in group) > 1
    for task in group:
        yield from _never_completes(task)
        if several:
            yield from _in_place(task)
    if several:
        yield from _losses(job, group)
        yield from _retries(job, group)


def settings(job: VolcanoJob) -> Iterator[Setting]:
    """What Volcano does when a pod is lost."""
    job = named(job)
    for task in _group(job):
        for event, otherwise in _LOSSES.items():
            policy = _policy_for(job, task, event)
            target, name = f"task {task.name}", f"at {event}"
            if policy is None:
                yield Setting(target, name, "SyncJob", f"no policy is for it: {otherwise}")
            else:
                yield Setting(target, name, policy.action, "the first policy that fits", policy.place)
    asked = job.max_retry or 0
    rule = "the manifest" if asked else "the default of Volcano's webhook"
    yield Setting("Job", "maxRetry", str(asked or _MAX_RETRY), rule, job.place / "spec" / "maxRetry" if asked else None)


def _group(job: VolcanoJob) -> list[Task]:
    """Tasks whose pods train together: the ranks of the pytorch plugin, else those with accelerators."""
    plugin = plugin_of(job)
    if plugin is not None:
        return [task for task in job.tasks if task.name in (plugin.master, plugin.worker)]
    return [task for task in job.tasks if any(gpus_of(each.resources) for each in task.pods.containers)]


# --- what is refused -------------------------------------------------------------------------------------------------


def _same_names(tasks: Sequence[Task]) -> Iterator[LintFinding]:
    for number, task in enumerate(tasks):
        if task.name in (other.name for other in tasks[:number]):
            message = f"two tasks are called {task.name}: Volcano refuses the job"
            yield LintFinding(VOLCANO_REFUSED, task.place / "name", message, "give each task a name of its own")


def _refused(policies: Sequence[LifecyclePolicy]) -> Iterator[LintFinding]:
    """What Volcano refuses in the policies of a job, or of a task."""
    events: list[str] = []
    codes: list[int] = []
    for policy in policies:
        yield from _form(policy)
        for event, place in policy.events.items():
            if event in events:
                message = f"event {event} stands in two policies: Volcano refuses the job"
                yield LintFinding(VOLCANO_REFUSED, place, message, "keep one of them")
        if policy.exit_code is not None and policy.exit_code in codes:
            message = f"exitCode {policy.exit_code} stands in two policies: Volcano refuses the job"
            yield LintFinding(VOLCANO_REFUSED, policy.place / "exitCode", message, "keep one of them")
        events += policy.events
        codes += [policy.exit_code] if policy.exit_code is not None else []
    if ANY in events and len(set(events)) > 1:
        place = next(policy.place for policy in policies if ANY in policy.events)
        message = "a policy for * stands beside others for events: Volcano refuses the job"
        yield LintFinding(VOLCANO_REFUSED, place, message, "name the events that it is for, or remove the others")


def _form(policy: LifecyclePolicy) -> Iterator[LintFinding]:
    """What Volcano refuses in one policy by itself."""
    refuses = "Volcano refuses the job"
    if policy.unread:
        return  # the reader reports it
    if policy.events and policy.exit_code is not None:
        message = f"a policy has both an event and an exitCode: {refuses}"
        yield LintFinding(VOLCANO_REFUSED, policy.place, message, "make two policies of it")
        return
    if not policy.events and policy.exit_code is None:
        message = f"a policy has neither an event nor an exitCode: {refuses}"
        yield LintFinding(VOLCANO_REFUSED, policy.place, message, f"write {_POLICIES}")
        return
    for event, place in policy.events.items():
        if event not in _EVENTS and not is_placeholder(event):
            message = f"Volcano has no event {event!r} for policies: it refuses the job"
            yield LintFinding(VOLCANO_REFUSED, place, message, _did_you_mean(event, _EVENTS))
    if policy.exit_code == 0:
        message = f"exitCode 0 is no failure: {refuses}"
        yield LintFinding(VOLCANO_REFUSED, policy.place / "exitCode", message, "write event: TaskCompleted")
    if policy.action not in _ACTIONS and not is_placeholder(policy.action):
        form = f"Volcano has no action {policy.action!r}" if policy.action else "a policy has no action"
        follows = "it refuses the job" if policy.events else "the policy does nothing"
        place = policy.place / "action" if policy.action else policy.place
        fix = _did_you_mean(policy.action, _ACTIONS)
        yield LintFinding(VOLCANO_REFUSED, place, f"{form}: {follows}", fix)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word[:60], known, n=1)
    return f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"


# --- what a loss does ------------------------------------------------------------------------------------------------


def _never_completes(task: Task) -> Iterator[LintFinding]:
    policy = task.pods.restart_policy
    if policy not in ("", "Always"):
        return
    default = "" if policy else " (the default of pods)"
    message = (
        f"restartPolicy Always{default} restarts the containers of task {task.name} when they have succeeded too: its "
        "pods are never complete"
    )
    place = task.pods.place / "restartPolicy" if policy else task.pods.place
    yield LintFinding(NEVER_COMPLETES, place, message, "set restartPolicy: Never in its pod template")


def _in_place(task: Task) -> Iterator[LintFinding]:
    if task.pods.restart_policy != "OnFailure":
        return
    message = (
        f"restartPolicy OnFailure restarts a failed rank of task {task.name} alone, in place, while the others hang: "
        "its pod does not fail, so that no policy for PodFailed is asked"
    )
    place = task.pods.place / "restartPolicy"
    yield LintFinding(RESTARTED_IN_PLACE, place, message, "set restartPolicy: Never in its pod template")


def _losses(job: VolcanoJob, group: Sequence[Task]) -> Iterator[LintFinding]:
    """`group`: the tasks that have pods."""
    if any(policy.unread for policy in (*job.policies, *(each for task in group for each in task.policies))):
        return
    answers = {event: [_policy_for(job, task, event) for task in group] for event in _LOSSES}
    unanswered = [
        f"at {event} {follows}"
        for event, follows in _LOSSES.items()
        if any(policy is None or policy.action not in _ANSWERS for policy in answers[event])
        and not (event == "PodFailed" and _restarts_by_exit_code(job, group))
    ]
    pods = sum(task.replicas or 0 for task in group)
    if unanswered:
        place = job.place / "spec" / "policies" if job.policies else job.place / "spec"
        why = ", and ".join(unanswered)
        message = f"no policy restarts the {pods} pods together: {why}, while the other ranks hang"
        yield LintFinding(GROUP_NOT_RESTARTED, place, message, f"write {_POLICIES}")
        return
    for event, found in answers.items():
        policy = next((each for each in found if each is not None and each.action in _RESTARTS_SOME), None)
        if policy is not None and not (policy.action == "RestartTask" and len(group) == 1):
            message = f"{policy.action} at {event} restarts {_RESTARTS_SOME[policy.action]}, and the other ranks hang"
            yield LintFinding(GROUP_NOT_RESTARTED, policy.place / "action", message, "write action: RestartJob")
            return


def _restarts_by_exit_code(job: VolcanoJob, group: Sequence[Task]) -> bool:
    """Whether a policy restarts the job at an exit code. The user has then chosen which failures restart it."""
    policies = (*job.policies, *(policy for task in group for policy in task.policies))
    return any(each.exit_code is not None and each.action == _RESTARTS_ALL for each in policies)


def _policy_for(job: VolcanoJob, task: Task, event: str) -> LifecyclePolicy | None:
    """The policy that decides about that event, at any exit code. None: there is none."""
    fitting = (each for each in (*task.policies, *job.policies) if event in each.events or ANY in each.events)
    return next(fitting, None)


def _retries(job: VolcanoJob, group: Sequence[Task]) -> Iterator[LintFinding]:
    allowed = job.max_retry or _MAX_RETRY
    restarts = any(
        policy is not None and policy.action == _RESTARTS_ALL
        for task in group
        for policy in (_policy_for(job, task, event) for event in _LOSSES)
    )
    if not restarts or allowed > _MAX_RETRY_FEW:
        return
    written = f"maxRetry {allowed}" if job.max_retry else f"maxRetry {allowed} (the default)"
    times = "at the first failure" if allowed == 1 else f"at failure {allowed} in all of its life"
    place: Place = job.place / "spec" / "maxRetry" if job.max_retry else job.place / "spec"
    message = f"{written} ends the job {times}: Volcano counts restarts, and never sets the number back"
    yield LintFinding(FEW_RETRIES, place, message, "set maxRetry: 100, or what the length of the job asks for")
