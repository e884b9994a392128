"""Which changes of an object may be the loss of a member: those go before all others.

They decide nothing. A change that shows a sign is only reconciled sooner, and `evidence` says what it is. So the signs
are few and cheap to compare, and they may show too much, but they must miss no loss. Readiness is no sign: a member
that is not Ready still runs, and in a large cluster hundreds of pods change theirs every second.
"""

from recovery.core.model.facts import JobFacts, JobSetFacts, PodFacts

_ENDED = frozenset({"Failed", "Succeeded"})


def pod_may_be_lost(before: PodFacts | None, after: PodFacts) -> bool:
    """A container or the pod has ended, something evicts or deletes it, or its kubelet refuses it. `before` None: the
    pod was not known."""
    return _of_pod(after) != (_of_pod(before) if before is not None else _OF_A_WHOLE_POD)


def job_may_be_lost(before: JobFacts | None, after: JobFacts) -> bool:
    """The Job counts another failure, fails, or is being deleted."""
    return _of_job(after) != (_of_job(before) if before is not None else _OF_A_WHOLE_JOB)


def jobset_may_be_lost(before: JobSetFacts | None, after: JobSetFacts) -> bool:
    """The JobSet has restarted the group, has ended, or is being deleted."""
    return _of_jobset(after) != (_of_jobset(before) if before is not None else _OF_A_WHOLE_JOBSET)


def _of_pod(pod: PodFacts) -> tuple[object, ...]:
    ended = tuple(
        (each.name, each.restarts, each.exit) for each in pod.containers if each.restarts or each.exit is not None
    )
    conditions = tuple(each for each in pod.conditions if each.type != "PodScheduled")
    return pod.phase in _ENDED, pod.deleting_since, ended, conditions, pod.reason


_OF_A_WHOLE_POD: tuple[object, ...] = (False, None, (), (), "")


def _of_job(job: JobFacts) -> tuple[object, ...]:
    return job.deleting_since, job.failed, job.failed_indexes, job.conditions


_OF_A_WHOLE_JOB: tuple[object, ...] = (None, 0, "", ())


def _of_jobset(jobset: JobSetFacts) -> tuple[object, ...]:
    return jobset.deleting_since, jobset.terminal_state, jobset.restarts


_OF_A_WHOLE_JOBSET: tuple[object, ...] = (None, "", 0)
