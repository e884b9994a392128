"""Keeps what only earlier states of a pod show about its deletion: its first date, whose it is, what had ended before.

The kubelet deletes a pod a second time when its processes have ended, with a grace period of 0. That gives the deletion
a later date. If the Job was suspended and is resumed meanwhile, the later date would make the end of a pod of the
earlier run look like a loss of the present one.

The Job controller stops tracking a pod before it deletes it on purpose, and after it has counted the end of a pod that
another client deletes. So the order shows whose deletion it is. The Job itself may not show it: if it is resumed within
a fraction of a second, its controller writes no condition, and the watch of Jobs may lag behind the watch of pods.

Some clients delete each failed pod at once. Exits and deletions have dates of whole seconds, so only the order of the
states shows that the pod failed before it was deleted.
"""

import msgspec

from recovery.kube.projections.pods import PodRecord

_ENDED = frozenset({"Failed", "Succeeded"})


def remembering(pod: PodRecord, before: PodRecord | None) -> PodRecord:
    """The pod with what an earlier state of it shows about its deletion. `before` None: none is known."""
    if before is None or before.facts.uid != pod.facts.uid:
        return pod
    return _dated(_ended(_let_go(pod, before), before), before)


def _let_go(pod: PodRecord, before: PodRecord) -> PodRecord:
    facts = pod.facts
    lives = facts.deleting_since is None and facts.phase not in _ENDED
    if not before.facts.let_go and not (lives and before.tracked and not pod.tracked):
        return pod
    return msgspec.structs.replace(pod, facts=msgspec.structs.replace(facts, let_go=True))


def _ended(pod: PodRecord, before: PodRecord) -> PodRecord:
    known, facts = before.facts, pod.facts
    if facts.deleting_since is None:
        return pod
    ended = known.ended_before_deletion
    if known.deleting_since is None:
        exits = (each for container in known.all_containers for each in (container.exit, container.last_exit))
        ended = (*(each for each in exits if each is not None), *((None,) if known.phase == "Failed" else ()))
    if ended == facts.ended_before_deletion:
        return pod
    return msgspec.structs.replace(pod, facts=msgspec.structs.replace(facts, ended_before_deletion=ended))


def _dated(pod: PodRecord, before: PodRecord) -> PodRecord:
    known, facts = before.facts, pod.facts
    if facts.deleting_since is None:
        return pod
    since, again = known.deleting_since, known.deletion_dated_again
    if since is None:
        # A pod that has ended is deleted at once. The kubelet has no reason to do it again.
        since = facts.deleting_since
        again = facts.deletion_dated_again and known.phase not in _ENDED
    if (since, again) == (facts.deleting_since, facts.deletion_dated_again):
        return pod
    return msgspec.structs.replace(
        pod, facts=msgspec.structs.replace(facts, deleting_since=since, deletion_dated_again=again)
    )
