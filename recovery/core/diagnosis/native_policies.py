"""What the Job's and the JobSet's own policies decide about the same failure. They take precedence.

A decision is a matching podFailurePolicy rule (except `Count`, the default), an index that exceeds its
backoffLimitPerIndex, a failurePolicy for a failing Job, an exhausted maxRestarts, or `backoffLimit: 0`. Any other
exhausted backoffLimit, or a missing failurePolicy, is no decision about this failure: it is what happens without a
decision (a cascade of eight exits exhausts the default limit of six).

`Ignore` is different: it is a wish that the loss is not counted. If the other ranks hang without the pod, the group is
recreated and not charged, unless the policy leaves such pods to their Job (`onNativeIgnore: StandAside`).

It does not matter here *what* the others decide: the controller stands aside and watches. If the JobSet restarts, the
incident adopts that restart as its action. If the JobSet fails, the incident ends as Failed. For the same reason, rules
with message patterns are not evaluated: the JobSet decides about any failing Job.

Sources: KEP-3329 (podFailurePolicy), KEP-262 (JobSet failurePolicy), jobset v0.12 `failure_policy.go`.
"""

from collections.abc import Iterable
from datetime import datetime

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.membership import failing, restarts_of
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.native_policy_facts import ExitCodesRequirement, PodFailureRule
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

_DECIDED_BY_USER = frozenset({"PodFailurePolicy", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"})
"""Reasons of a failing Job that only a setting of the user can cause."""


def decision(snapshot: Snapshot, evidence: Iterable[Evidence], *, ignored_stay: bool) -> Explanation | None:
    """The native decision about this evidence, None if there is none.

    Evidence of pods whose Job is not in the snapshot does not count. `ignored_stay`: a rule that ignores a pod leaves
    it to its Job. It decides only about that pod: a second loss that no rule ignores still leaves the group without a
    member.
    """
    jobs = {job.uid: job for job in snapshot.jobs}
    judged = [(jobs[item.job_uid], item) for item in evidence if item.job_uid in jobs and item.is_loss]
    fate = _of_the_job(snapshot, judged)
    if fate is not None or not judged:
        return fate
    left = [_left_to_its_job(job, item, ignored_stay=ignored_stay) for job, item in judged]
    return left[0] if all(left) else None


def undecided(snapshot: Snapshot, evidence: tuple[Evidence, ...], *, ignored_stay: bool) -> tuple[Evidence, ...]:
    """The evidence that is not left to the Job. It is left if the training of the pod had succeeded, and with
    `ignored_stay` also if a rule ignores the pod."""
    jobs = {job.uid: job for job in snapshot.jobs}
    return tuple(
        item
        for item in evidence
        if item.job_uid not in jobs
        or not item.is_loss
        or not _left_to_its_job(jobs[item.job_uid], item, ignored_stay=ignored_stay)
    )


def ignored(snapshot: Snapshot, evidence: Iterable[Evidence]) -> Explanation | None:
    """The first rule with action Ignore, if such rules match all of these pods. None: one of them counts."""
    jobs = {job.uid: job for job in snapshot.jobs}
    rules = [
        _rule(jobs[item.job_uid], item, "Ignore") if item.job_uid in jobs and item.is_loss else None
        for item in evidence
    ]
    return rules[0] if rules and all(rules) else None


def trained_to_the_end(evidence: Iterable[Evidence]) -> Explanation | None:
    """Why all evidence is left to the Job under any policy: the training of each pod had succeeded. Else None."""
    found = [_trained_to_the_end(item) for item in evidence if item.is_loss]
    return found[0] if found and all(found) else None


def _left_to_its_job(job: JobFacts, item: Evidence, *, ignored_stay: bool) -> Explanation | None:
    return (_rule(job, item, "Ignore") if ignored_stay else None) or _trained_to_the_end(item)


def _not_counted(job: JobFacts, item: Evidence) -> Explanation | None:
    """Why the pod does not count for the limits of the Job, or of its index. None: it does."""
    return _rule(job, item, "Ignore") or _trained_to_the_end(item)


def _trained_to_the_end(item: Evidence) -> Explanation | None:
    """The pod was lost after its training containers exited 0, so recreating the group would repeat the training."""
    pod = item.pod
    if pod is None or not ended_well(pod):
        return None
    names = ", ".join(each.name for each in pod.containers)
    if item.kind in {LossKind.POD_DELETED, LossKind.POD_DISRUPTED} and _ended_before(pod, item.at):
        return explained(Sentence.TRAINED_BEFORE_POD_LOST, Reason.TRAINED_TO_THE_END, containers=names, pod=pod.name)
    if item.kind is not LossKind.POD_FAILED:
        return None
    others = ", ".join(each.name for each in pod.other_containers if each.exit is not None and each.exit.code != 0)
    return because(Reason.TRAINED_TO_THE_END, containers=names, pod=pod.name, others=others)


def _ended_before(pod: PodFacts, moment: datetime | None) -> bool:
    """The training had ended before that moment, so a deletion of the pod at that moment did not end it."""
    ends = [each.exit.finished_at for each in pod.containers if each.exit is not None]
    return moment is not None and all(end is not None and end < moment for end in ends)


def takes_down(snapshot: Snapshot, evidence: Iterable[Evidence]) -> Explanation | None:
    """The native decision that ends or restarts the whole Job, None if there is none."""
    jobs = {job.uid: job for job in snapshot.jobs}
    lost = (item for item in evidence if item.job_uid in jobs and item.is_loss)
    return _of_the_job(snapshot, [(jobs[item.job_uid], item) for item in lost])


def _of_the_job(snapshot: Snapshot, judged: list[tuple[JobFacts, Evidence]]) -> Explanation | None:
    for job, item in judged:
        found = (
            _rule(job, item, "FailJob")
            or _rule(job, item, "FailIndex")
            or _backoff_limit_zero(job, item)
            or _index_failed(job, item)
            or _failure_policy(snapshot, job)
        )
        if found is not None:
            return found
    return None


def _failure_policy(snapshot: Snapshot, job: JobFacts) -> Explanation | None:
    failing_reason = failing(job)
    if failing_reason in _DECIDED_BY_USER:
        return because(Reason.JOB_FAILS_BY_ITS_SPEC, job=job.name, failing_reason=failing_reason or "")
    jobset = snapshot.jobset
    if jobset is None or jobset.failure_policy is None:
        return None
    if jobset.restarts_counted >= jobset.failure_policy.max_restarts:
        limit = jobset.failure_policy.max_restarts
        return because(Reason.MAX_RESTARTS, jobset=jobset.name, limit=limit)
    if failing_reason is not None or restarts_of(snapshot) > job.restart_attempt:
        return because(Reason.FAILURE_POLICY, jobset=jobset.name, job=job.name)
    return None


def _backoff_limit_zero(job: JobFacts, item: Evidence) -> Explanation | None:
    if job.backoff_limit > 0 or _not_counted(job, item):
        return None
    return because(Reason.BACKOFF_LIMIT_ZERO, job=job.name)


def _index_failed(job: JobFacts, item: Evidence) -> Explanation | None:
    """The index of the pod fails permanently, or another has. The Job continues without it and replaces no pod of it.

    `backoffLimitPerIndex` counts the failures of each index (KEP-3850). Recreating the Job would give the index more
    retries than the user allows. `maxFailedIndexes` decides whether the whole Job then fails, and the reason of its
    failure shows that.
    """
    limit = job.backoff_limit_per_index
    if limit is None:
        return None
    if job.failed_indexes:
        return because(Reason.INDEX_FAILED, job=job.name, index=job.failed_indexes, limit=limit)
    pod = item.pod
    if pod is None or item.kind not in _COUNTS_FOR_INDEX or pod.index_failures < limit or _not_counted(job, item):
        return None
    return explained(Sentence.INDEX_FAILS_NOW, Reason.INDEX_FAILED, job=job.name, index=str(pod.index), limit=limit)


_COUNTS_FOR_INDEX = frozenset({LossKind.POD_FAILED, LossKind.POD_DELETED, LossKind.POD_DISRUPTED, LossKind.NODE_LOST})
"""The kinds of loss that count as a failed pod of the index. A container restarted in place does not."""


def _rule(job: JobFacts, item: Evidence, action: str) -> Explanation | None:
    """The first podFailurePolicy rule that matches the pod, if it has that action. Count is no decision."""
    if item.pod is None:
        return None
    matching = ((n, rule) for n, rule in enumerate(job.pod_failure_rules) if _matches(rule, item))
    number, first = next(matching, (0, None))
    if first is None or first.action != action:
        return None
    return because(Reason.POD_FAILURE_POLICY, number=number, job=job.name, action=action, pod=item.pod.name)


def _matches(rule: PodFailureRule, item: Evidence) -> bool:
    """Matches as the Job controller does: only exit codes of ended containers, never 0, and one condition suffices.

    The Job controller checks exit codes only once the pod has Failed. A pod whose training has failed permanently
    reaches that phase when its sidecars have ended. The rule is checked before that, because afterwards it would be too
    late to stand aside. A later deletion does not change what the Job controller will find.
    """
    pod = item.pod
    if pod is None:
        return False
    if rule.on_exit_codes is not None:
        failed = pod.phase == "Failed" or item.kind is LossKind.POD_FAILED or _failed_before(pod, item.at)
        return failed and _exit_code_matches(rule.on_exit_codes, pod)
    return any(
        condition.type == pattern.type and condition.status == pattern.status
        for pattern in rule.on_pod_conditions
        for condition in pod.conditions
    )


def _failed_before(pod: PodFacts, moment: datetime | None) -> bool:
    """All training containers had ended before that moment. None restarts: rules require restartPolicy Never."""
    ended = bool(pod.containers) and all(each.exit is not None for each in pod.containers)
    return ended and _ended_before(pod, moment)


def _exit_code_matches(requirement: ExitCodesRequirement, pod: PodFacts) -> bool:
    for container in pod.all_containers:
        if container.exit is None or container.exit.code == 0:
            continue
        if requirement.container_name is not None and requirement.container_name != container.name:
            continue
        listed = container.exit.code in requirement.values
        if listed == (requirement.operator == "In"):
            return True
    return False
