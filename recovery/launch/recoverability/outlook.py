"""What would happen to the job today, in three sentences, and what the controller in mode Enforce would do about it."""

from recovery.launch.launch import Launch, Member
from recovery.launch.recoverability.effective import (
    NODE_MARKED_SECONDS,
    NOT_READY,
    UNREACHABLE,
    backoff_limit,
    backoff_limit_written,
    grace_seconds,
    is_mpi,
    losses_to_fail,
    patience_seconds,
    pods_per_job,
    restart_policy,
    trains,
)
from recovery.launch.recoverability.ttl import for_good
from recovery.launch.recoverability.words import counted, span
from recovery.launch.views import ReplicatedJob

_RECREATES = "The controller in Enforce recreates the whole group at once, within its policy's budget."
_ADOPTS = "The controller adopts a restart that follows, and never doubles it."
_LEAVES = (
    " If no other node is free, the others give up after a while, and with restartPolicy Never they then leave their "
    "nodes: set whileWaiting: Release in the policy, or use restartPolicy OnFailure."
)
_ASIDE = "The controller stands aside: that is your decision."


def outlook(launch: Launch) -> tuple[str, ...]:
    """What follows if a pod, all ranks or a node is lost. Empty: the runtime is not known, or the job may not train."""
    if not launch.members or not trains(launch):
        return ()
    member = max(launch.members, key=lambda each: (each.gpus_per_pod, each.pods))
    if is_mpi(launch):
        return (_mpi_pod(launch), _mpi_cascade(launch), _node(launch, member))
    return (_pod(launch, member), _cascade(launch, member), _node(launch, member))


def _pod(launch: Launch, member: Member) -> str:
    job, start = member.job, "If a pod is lost today:"
    if backoff_limit(job) == 0:
        return f"{start} its Job fails at once (backoffLimit 0), {_after_job_failed(launch)}"
    if restart_policy(job) == "OnFailure":
        reaction = "a container that fails is restarted in place, and a pod that is gone is replaced"
    else:
        reaction = "the Job replaces it"
    if launch.nodes < 2:
        return (
            f"{start} {reaction}, and no other waits for it; at {counted(losses_to_fail(job), 'failure')} "
            f"{backoff_limit_written(job)} is used up, and the Job fails, {_after_job_failed(launch)}"
        )
    waiting = launch.gpus - member.gpus_per_pod
    held = f" with {counted(waiting, 'GPU')}" if waiting > 0 else ""
    pods = "pod hangs" if launch.nodes == 2 else f"{launch.nodes - 1:,} pods hang"
    return (
        f"{start} {reaction}, alone, while the other {pods}{held} until the collective in which they wait times out "
        f"(10 min by default with NCCL). {_RECREATES}{_rules_first(job)}"
    )


def _rules_first(job: ReplicatedJob) -> str:
    actions = {each.action for each in job.pod_failure_rules}
    decides = sorted(actions & {"FailJob", "FailIndex"})
    said = ""
    if decides:
        said += (
            f" Where a rule of its podFailurePolicy with {' or '.join(decides)} matches the pod, that decides instead, "
            "and the controller stands aside."
        )
    if "Ignore" in actions:
        said += " Where a rule with Ignore matches the pod, the budget is not charged."
    return said


def _cascade(launch: Launch, member: Member) -> str:
    job, start = member.job, "If all ranks exit at once:"
    if backoff_limit(job) == 0 or launch.nodes < 2:
        return f"{start} the same."
    needed, pods = losses_to_fail(job), pods_per_job(member)
    never = restart_policy(job) == "Never"
    if pods >= needed:
        kind = "failed pod" if never else "restart"
        rescued = (
            " The controller in Enforce recreates the group before that if it acts within the first seconds, "
            "and afterwards only with onTerminalFailure: RecreateJobSet."
        )
        return (
            f"{start} {backoff_limit_written(job)} is used up at {counted(needed, kind)} of {pods:,}, and the Job "
            f"fails, {_after_job_failed(launch)}{rescued if launch.job_set.failure_policy is None else ''}"
        )
    reaction = "the Job replaces its pods" if never else "they are restarted in place"
    survived = (needed - 1) // pods
    if job.backoff_limit_per_index is not None:
        survived = min(survived, job.backoff_limit_per_index)
    return (
        f"{start} {reaction} one by one, and they may find each other again; {backoff_limit_written(job)} stands "
        f"{counted(survived, 'time')} of that. {_RECREATES}"
    )


def _after_job_failed(launch: Launch) -> str:
    """Follows "the Job fails, "."""
    policy = launch.job_set.failure_policy
    if policy is None:
        ends = f"and the JobSet, which has no failurePolicy, fails with it {for_good(launch)}."
        return f"{ends} {_ASIDE}" if any(backoff_limit(each.job) == 0 for each in launch.members) else ends
    if policy.rules:
        return f"and JobSet does what the first matching rule of its failurePolicy says. {_ADOPTS}"
    if policy.max_restarts:
        times = counted(policy.max_restarts, "time")
        then = f"up to {times} and without delay. Then it fails {for_good(launch)}."
        return f"and JobSet restarts all pods by itself, {then} {_ADOPTS}"
    return f"and the JobSet, whose failurePolicy allows no restart, fails with it {for_good(launch)}. {_ASIDE}"


def _node(launch: Launch, member: Member) -> str:
    start = f"If a node is lost: it is marked after about {NODE_MARKED_SECONDS} s,"
    lasting = [patience_seconds(member.template, taint) for taint in (NOT_READY, UNREACHABLE)]
    grace = grace_seconds(member.template)
    waits = "" if launch.nodes < 2 else f"; {_size(launch)} wait meanwhile"
    then = _fenced(launch, member)
    if None in lasting:
        return f"{start} and its pods are never given up, because they tolerate that for ever{waits}. {then}"
    patience = max(each for each in lasting if each is not None)
    total = span(NODE_MARKED_SECONDS + patience)
    given_up = f"{start} and its pods are given up {patience} s later, after {total} in all"
    if grace == 0:
        replaced = ", and are replaced elsewhere" if backoff_limit(member.job) else ""
        return f"{given_up}{waits}; with a grace of 0 they are gone at once{replaced}. {then}"
    return (
        f"{given_up}{waits}; with a grace of {grace} s they then stay Terminating, and block every restart, until the "
        f"node is back or is proven dead. {then}"
    )


def _fenced(launch: Launch, member: Member) -> str:
    if backoff_limit(member.job) == 0:
        return f"Then its Job fails (backoffLimit 0), {_after_job_failed(launch)}"
    leaves = _LEAVES if launch.nodes > 1 and restart_policy(member.job) == "Never" else ""
    return (
        "The controller in Enforce recreates the group once the Node object is deleted or tainted "
        "node.kubernetes.io/out-of-service, or with fencing AssumeDead after assumeDeadAfter (60 s)."
        f"{_rules_first(member.job)}{leaves}"
    )


def _size(launch: Launch) -> str:
    return counted(launch.gpus, "GPU") if launch.gpus else counted(launch.nodes, "pod")


def _mpi_pod(launch: Launch) -> str:
    return (
        f"If a pod is lost today: mpirun ends all ranks when it loses one of {counted(launch.nodes, 'pod')}, and its "
        "launcher is started again, which finds a worker that is gone only once the Job has replaced it. "
        f"{_RECREATES}"
    )


def _mpi_cascade(launch: Launch) -> str:
    job = next((each.job for each in launch.members if each.job.ancestor == "trainer"), launch.members[0].job)
    failures = counted(losses_to_fail(job), "failure")
    return (
        f"If all ranks exit at once: the launcher fails and starts all of them again; after {failures} of that kind "
        f"{backoff_limit_written(job)} is used up, and the Job fails, {_after_job_failed(launch)}"
    )
