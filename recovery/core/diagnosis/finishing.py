"""Whether the training of a group is about to be complete: a restart would throw away what is done."""

from recovery.core.diagnosis.membership import failing, member_jobs, pods_of
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.facts import Snapshot
from recovery.core.model.reason import Explanation, Reason, Sentence, told


def finishing(snapshot: Snapshot) -> Explanation | None:
    """The training is about to be complete: restarting it would throw away what is done."""
    for job in member_jobs(snapshot):
        if job.condition("Complete") is not None or job.condition("SuccessCriteriaMet") is not None:
            return told(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job=job.name)
        pods = pods_of(snapshot, job)
        done = next((pod for pod in pods if pod.phase == "Succeeded"), None)
        if done is not None or job.succeeded > 0:
            who = f"pod {done.name}" if done is not None else f"a pod of Job {job.name}"
            return told(Sentence.MEMBER_SUCCEEDED, Reason.JOB_FINISHING, who=who)
        done = next((pod for pod in pods if pod.phase != "Failed" and ended_well(pod)), None)
        if done is None and failing(job) is not None:
            # A Job that gives up takes down its pods, also those whose training was done before: it stays done.
            mine = (pod for pod in snapshot.pods if pod.job_uid == job.uid and ended_well(pod))
            done = next((pod for pod in mine if pod.deleting_since is not None or pod.gone_at is not None), None)
        if done is not None:
            names = ", ".join(each.name for each in done.containers)
            return told(Sentence.CONTAINER_SUCCEEDED, Reason.JOB_FINISHING, containers=names, pod=done.name)
    return None
