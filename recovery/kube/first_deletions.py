"""Keeps the first date of each deletion of a pod.

The kubelet deletes a pod a second time when its processes have ended, with a grace period of 0. That gives the deletion
a later date. If the Job was suspended and is resumed meanwhile, the later date would make the end of a pod of the
earlier run look like a loss of the present one.
"""

import msgspec

from recovery.kube.projections.pods import PodRecord


def dated_as_before(pod: PodRecord, before: PodRecord | None) -> PodRecord:
    """The pod with the date of its deletion that an earlier state of it shows. `before` None: none is known."""
    if before is None or before.facts.uid != pod.facts.uid or pod.facts.deleting_since is None:
        return pod
    known, facts = before.facts, pod.facts
    since, again = known.deleting_since, known.deletion_dated_again
    if since is None:
        # A pod that has ended is deleted at once. The kubelet has no reason to do it again.
        since = facts.deleting_since
        again = facts.deletion_dated_again and known.phase not in {"Failed", "Succeeded"}
    if (since, again) == (facts.deleting_since, facts.deletion_dated_again):
        return pod
    return msgspec.structs.replace(
        pod, facts=msgspec.structs.replace(facts, deleting_since=since, deletion_dated_again=again)
    )
