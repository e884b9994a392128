"""What Kueue has decided about a job, in the words of `explain` and `status`."""

from collections.abc import Iterator

from recovery.cli.formatting import moment
from recovery.core.diagnosis.queued import queued_by
from recovery.core.model.facts import Condition, WorkloadFacts
from recovery.core.plan.suspension import in_force
from recovery.kube.kueue_workloads import KueueReading, KueueWorkload

NOT_READ = "Workloads of Kueue cannot be read, so what Kueue has decided about a job is not known"
_EVICTS = (
    "Kueue evicts the job if a restart, or a backoff, leaves pods that are not Ready for longer than its "
    "waitForPodsReady.recoveryTimeout: 30m unless it is configured, which cannot be read from here"
)


def concerns_kueue(workload: WorkloadFacts) -> bool:
    """Kueue manages the job, or may: before the first admission, a suspension that is not ours may be its only sign."""
    return bool(queued_by(workload)) or (workload.suspended and not in_force(workload))


def kueue_lines(reading: KueueReading, workload: WorkloadFacts, namespace: str) -> Iterator[str]:
    """The section of `explain`. Empty: Kueue does not manage the job."""
    found, queued = reading.by_job.get(workload.uid), bool(queued_by(workload))
    if found is None and not queued:
        return
    if reading.refused:
        yield f"{NOT_READ}: {reading.refused}"
    elif found is None:
        yield "there is no Workload of the job, so Kueue does not know it, or has not seen it yet"
    if found is not None:
        yield state_of(found)
        if not found.active:  # `active: true` alone leaves Requeued False (0.19.1): Kueue does not admit it
            yield f"kubectl delete workload {found.name} -n {namespace} lets Kueue make another one, and queue the job"
    yield _EVICTS


def state_of(found: KueueWorkload) -> str:
    """What Kueue has decided about the job, and why, as its Workload says."""
    evicted = found.condition("Evicted")
    if not found.active:
        return f"Kueue has given up on the job: its Workload {found.name} is not active{_why(evicted)}"
    if evicted is not None:
        again = f"; it is queued again at {moment(found.requeue_at)}" if found.requeue_at is not None else ""
        times = f"; so far it was queued again {found.requeued} times" if found.requeued else ""
        return f"Kueue has evicted the job{_why(evicted)}{times}{again}"
    if found.condition("Admitted") is None:
        waits = found.condition("QuotaReserved", "False") or found.condition("Admitted", "False")
        return f"Kueue has not admitted the job{_why(waits)}"
    unready = found.condition("PodsReady", "False")
    if unready is not None and unready.reason == "WaitForRecovery":
        return f"Kueue waits until all pods are Ready again{_why(unready)}"
    return "Kueue has admitted the job"


def _why(condition: Condition | None) -> str:
    """Since when, and the reason and the message of Kueue. Empty: there is no condition."""
    if condition is None:
        return ""
    since = f" since {moment(condition.since)}" if condition.since is not None else ""
    message = f": {condition.message}" if condition.message else ""
    return f"{since} ({condition.reason}{message})"
