"""Signs that a member was lost, and what a user's own policies decide about it, read from raw objects.

It is independent of `recovery.core`, because it is used to judge that. Sources: KEP-3329 (podFailurePolicy), KEP-262
(JobSet failurePolicy), the fields of v1.PodStatus.
"""

from datetime import datetime, timedelta

from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange

_ORDINARY = frozenset({"node.kubernetes.io/unschedulable"})
"""Taints that only repeat what the node's spec says."""
DECIDED_BY_USER = frozenset({"PodFailurePolicy", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"})
"""Reasons of a failing Job that only a setting of the user can cause."""


def how_lost(change: ObjectChange, container: str | None) -> str | None:
    """How this change of a pod loses a member, in words. None: it loses none.

    `container`: the container that trains; only its exits count. None: nothing shows which one trains, so none counts.
    """
    body, before = change.body, change.before
    if change.type == "ADDED" or before is None:
        return None
    status, old = body.get("status") or {}, before.get("status") or {}
    if old.get("phase") == "Failed":
        return None  # It was lost when it failed. The taint eviction controller deletes such pods as well.
    if change.type == "DELETED":
        return "is gone"
    if "deletionTimestamp" in body["metadata"] and "deletionTimestamp" not in before["metadata"]:
        return f"was deleted by {change.actor}"
    if "deletionTimestamp" in before["metadata"]:
        return None  # It was lost when its deletion was requested, no matter how late a silent node reports its end.
    if status is old:
        return None
    if _fails(status, old) and not has_succeeded(body, container):
        return "failed"
    if _disrupted(status) and not _disrupted(old):
        return "is being disrupted"
    return "lost a container" if _ends(status, container) > _ends(old, container) else None


def dated_at(change: ObjectChange, container: str | None, at: datetime) -> datetime | None:
    """The earliest date of a loss in this pod or Job after the change. None: it has none.

    `container`: as for `how_lost`. `at`: when the change was made; this dates an object that is removed without a
    deletionTimestamp.
    """
    metadata, status = change.body["metadata"], change.body.get("status") or {}
    texts = [each["lastTransitionTime"] for each in status.get("conditions") or () if _says_lost(each)]
    for each in status.get("containerStatuses") or ():
        ended = [(each.get(state) or {}).get("terminated") for state in ("state", "lastState")]
        if each["name"] == container:
            texts += [one.get("finishedAt") for one in ended if one is not None and one["exitCode"] != 0]
    if change.type == "ADDED":
        texts.append(metadata["creationTimestamp"])
    moments = [datetime.fromisoformat(text) for text in texts if text]
    if "deletionTimestamp" in metadata:
        grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
        moments.append(datetime.fromisoformat(metadata["deletionTimestamp"]) - grace)
    elif change.type == "DELETED":
        moments.append(at)
    return min(moments, default=None)


def _says_lost(condition: Body) -> bool:
    return condition["status"] == "True" and condition["type"] in {"DisruptionTarget", "FailureTarget", "Failed"}


def _fails(status: Body, old: Body) -> bool:
    return bool(status.get("phase") == "Failed" and old.get("phase") != "Failed")


def container_of(pod: Body, name: str | None) -> Body | None:
    """The status of the pod's container of that name. None: it has no status yet, or there is no such container."""
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((each for each in found if each["name"] == name), None)


def has_succeeded(pod: Body, container: str | None) -> bool:
    """The container that trains has exited with 0. The others do not count."""
    ended = ((container_of(pod, container) or {}).get("state") or {}).get("terminated")
    return ended is not None and ended["exitCode"] == 0


def node_trouble(change: ObjectChange) -> str | None:
    """What went wrong with a node in this change, in words. None: nothing."""
    if change.type == "ADDED":
        return None
    if change.type == "DELETED":
        return "is gone"
    body, before = change.body, change.before or {}
    for kind, status in _conditions(body).items():
        if _conditions(before).get(kind) == status:
            continue
        if kind == "Ready" and status != "True":
            return "is not Ready" if status == "False" else "does not answer"
        if kind != "Ready" and status == "True":
            return f"has {kind}"
    known = {taint["key"] for taint in before.get("spec", {}).get("taints") or ()}
    taints = [taint["key"] for taint in body.get("spec", {}).get("taints") or ()]
    return next((f"is tainted with {key}" for key in taints if key not in known and key not in _ORDINARY), None)


def _conditions(body: Body) -> dict[str, str]:
    found = (body.get("status") or {}).get("conditions") or ()
    return {each["type"]: each["status"] for each in found}


def _disrupted(status: Body) -> bool:
    found = status.get("conditions") or ()
    return any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in found)


def _ends(status: Body, container: str | None) -> int:
    """How many processes of that container have failed, as far as the status shows."""
    found = (each for each in status.get("containerStatuses") or () if each["name"] == container)
    return sum(each.get("restartCount", 0) + _is_over(each) for each in found)


def _is_over(container: Body) -> bool:
    """The container's latest process has failed. While the container waits to restart, only `lastState` shows it."""
    state = container.get("state") or {}
    ended = state.get("terminated")
    if ended is None and "waiting" in state:
        ended = (container.get("lastState") or {}).get("terminated")
    return ended is not None and ended.get("exitCode") != 0


def decision_about_pod(job: Body, change: ObjectChange, container: str | None) -> str | None:
    """What the end of this pod, or of its training container, has decided about the whole Job. None: nothing.

    The Job controller applies the podFailurePolicy once the pod is Failed. If other containers keep it Running, the
    training has ended before that, and later no rule can decide differently.
    """
    assert change.resource == PODS
    status, old = change.body.get("status") or {}, (change.before or {}).get("status") or {}
    name = change.body["metadata"]["name"]
    fails = _fails(status, old)
    # A trainer that saves when it is asked to terminate may exit 0, and has not completed its training.
    if fails and has_succeeded(change.body, container) and "deletionTimestamp" not in change.body["metadata"]:
        return f"the training of pod {name} had succeeded when the pod failed"
    if (
        not fails
        and not (_disrupted(status) and not _disrupted(old))
        and _ends(status, container) == _ends(old, container)
    ):
        return None
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules", ())):
        if _matches(rule, status):
            if rule["action"] in {"FailJob", "FailIndex"}:
                return f"podFailurePolicy rule {number} ({rule['action']}) matches pod {name}"
            return None
    return None


def _matches(rule: Body, status: Body) -> bool:
    codes = rule.get("onExitCodes")
    if codes is not None:
        return any(_code_matches(codes, each) for each in _containers(status))
    return any(
        have["type"] == want["type"] and have["status"] == want.get("status", "True")
        for want in rule.get("onPodConditions", ())
        for have in status.get("conditions") or ()
    )


def _containers(status: Body) -> list[Body]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _code_matches(codes: Body, container: Body) -> bool:
    ended = (container.get("state") or {}).get("terminated")
    if ended is None or ended["exitCode"] == 0 or codes.get("containerName", container["name"]) != container["name"]:
        return False
    listed = ended["exitCode"] in codes["values"]
    return bool(listed == (codes["operator"] == "In"))


def decision_about_job(job: Body, jobset: Body | None, reason: str) -> str | None:
    """Which policy decided about a Job that begins to fail for this reason. None: none did; it ran out of retries."""
    name = job["metadata"]["name"]
    if reason in DECIDED_BY_USER:
        return f"Job {name} is failing with reason {reason}, as its own spec asks"
    if jobset is not None and jobset["spec"].get("failurePolicy") is not None:
        return f"the failurePolicy of JobSet {jobset['metadata']['name']} decides on the failing Job {name}"
    return None
