"""Whether Kueue manages a workload. If so, quota and `spec.suspend` belong to Kueue."""

from recovery.core.model.annotations import KUEUE_PATCH_MANAGER, KUEUE_QUEUE_LABEL
from recovery.core.model.facts import WorkloadFacts


def queued_by(workload: WorkloadFacts) -> str:
    """The sign that Kueue manages the workload, in words. Empty: there is none."""
    queue = workload.labels.get(KUEUE_QUEUE_LABEL)
    if queue is not None:
        return f"queue {queue}"
    return f"runtimePatches of manager {KUEUE_PATCH_MANAGER}" if KUEUE_PATCH_MANAGER in workload.patched_by else ""
