"""A Job's pods as the Job controller sees and creates them.

Source: `pkg/controller/job`, `pkg/controller/controller_utils.go` of Kubernetes 1.36.
"""

from collections.abc import Sequence
from datetime import datetime

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import grace_of, moment_of

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Keeps a finished pod's object until the Job's status has counted it (KEP-2307)."""

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Name of a label and of an annotation. The controller reads the annotation."""
FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"

LONGEST_NAME_PREFIX = 58
"""A generated name has at most 63 characters, 5 of them random."""

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def controller_of(body: Body) -> Body | None:
    """The owner reference of the object's controller. None: it has no controller."""
    for owner in body["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            found: Body = owner
            return found
    return None


def phase(pod: Body) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def deleting(body: Body) -> bool:
    return "deletionTimestamp" in body["metadata"]


def tracked(pod: Body) -> bool:
    """The pod has the tracking finalizer, so it is not counted yet."""
    return TRACKING_FINALIZER in pod["metadata"].get("finalizers", ())


def terminal(pod: Body) -> bool:
    return phase(pod) in {"Succeeded", "Failed"}


def active(pod: Body) -> bool:
    return not deleting(pod) and not terminal(pod)


def terminating(pod: Body) -> bool:
    return deleting(pod) and not terminal(pod)


def failed(pod: Body, *, replaces_failed_only: bool) -> bool:
    """A pod that is being deleted counts as failed. With `replaces_failed_only` only the phase Failed counts."""
    now = phase(pod)
    return now == "Failed" or (not replaces_failed_only and now != "Succeeded" and deleting(pod))


def condition(body: Body, kind: str) -> Body | None:
    """The condition of that type, or None if there is none."""
    for found in body.get("status", {}).get("conditions", ()):
        if found["type"] == kind:
            one: Body = found
            return one
    return None


def ready(pod: Body) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def index_of(pod: Body) -> int | None:
    """The completion index. None: the pod has none, or it is not a number."""
    text = pod["metadata"].get("annotations", {}).get(INDEX_LABEL, "")
    return int(text) if text.isdigit() else None


def failures_of_index(pod: Body) -> int:
    """How often the index had failed when this pod was created, without ignored failures."""
    return _count(pod, FAILURES_ANNOTATION)


def all_failures_of_index(pod: Body) -> int:
    return _count(pod, FAILURES_ANNOTATION) + _count(pod, IGNORED_FAILURES_ANNOTATION)


def _count(pod: Body, annotation: str) -> int:
    text = pod["metadata"].get("annotations", {}).get(annotation, "")
    return int(text) if text.isdigit() else 0


def restart_count(pod: Body) -> int:
    """The restarts of all its containers together."""
    status = pod.get("status", {})
    statuses = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    return sum(container.get("restartCount", 0) for container in statuses)


def finished_at(pod: Body) -> datetime:
    """When its last container ended. Native sidecars count, because they outlive the others. If that is unknown: when
    the pod stopped being ready, else when its deletion was requested, else when it was created.
    """
    status, metadata = pod.get("status", {}), pod["metadata"]
    sidecars = {each["name"] for each in pod["spec"].get("initContainers", ()) if each.get("restartPolicy") == "Always"}
    beside = (each for each in status.get("initContainerStatuses", ()) if each["name"] in sidecars)
    containers = (*status.get("containerStatuses", ()), *beside)
    ends = [container.get("state", {}).get("terminated") for container in containers]
    if ends and all(end and end.get("finishedAt") for end in ends):
        return max(moment_of(end["finishedAt"]) for end in ends)
    readiness = condition(pod, "Ready")
    if readiness and readiness["status"] == "False" and readiness.get("lastTransitionTime"):
        return moment_of(readiness["lastTransitionTime"])
    if deleting(pod):
        return moment_of(metadata["deletionTimestamp"]) - grace_of(metadata.get("deletionGracePeriodSeconds") or 0)
    return moment_of(metadata["creationTimestamp"])


def to_remove(pods: Sequence[Body], at_least: int, completions: int | None) -> list[Body]:
    """The active pods to delete: those with an invalid or duplicate index, then the least worth keeping.

    There are at least `at_least`, if there are as many pods. `completions` None: the Job is not Indexed.
    """
    if completions is None:
        return sorted(pods, key=_worth)[:at_least] if at_least else []
    indexes = [index_of(pod) for pod in pods]
    in_order = len(set(indexes)) == len(indexes) and all(each is not None and each < completions for each in indexes)
    if in_order and at_least == 0:
        return []  # the result of almost every sync
    removed: list[Body] = []
    kept: dict[int, Body] = {}
    beyond: list[Body] = []
    for pod in sorted(pods, key=lambda pod: (_index_or_less(pod), _worth(pod))):
        index = index_of(pod)
        if index is None:
            removed.append(pod)
        elif index >= completions:
            beyond.append(pod)
        else:
            if index in kept:
                removed.append(kept[index])
            kept[index] = pod
    removed += beyond
    if len(removed) < at_least:
        removed += sorted(kept.values(), key=_worth)[: at_least - len(removed)]
    return removed


def _index_or_less(pod: Body) -> int:
    index = index_of(pod)
    return -1 if index is None else index


def _worth(pod: Body) -> tuple[bool, int, bool, float, int, float]:
    """Sort key, least worth keeping first: unbound, pending, not ready, newly ready or created, often restarted."""
    status = pod.get("status", {})
    readiness = condition(pod, "Ready")
    is_ready = readiness is not None and readiness["status"] == "True"
    ready_since = moment_of(readiness["lastTransitionTime"]).timestamp() if readiness and is_ready else 0.0
    restarts = max((container.get("restartCount", 0) for container in status.get("containerStatuses", ())), default=0)
    made_at = moment_of(pod["metadata"]["creationTimestamp"]).timestamp()
    bound = bool(pod["spec"].get("nodeName"))
    return (bound, _PHASES.get(phase(pod), 0), is_ready, -ready_since, -restarts, -made_at)


def make_pod(job: Body, index: int | None, failures: tuple[int, int] | None) -> Body:
    """A new pod from the Job's template, to be created with a generated name.

    `index` None: the Job is not Indexed. `failures`: the index's counted and ignored failures. None: the Job has no
    backoffLimitPerIndex.
    """
    template, name = job["spec"]["template"], job["metadata"]["name"]
    given = template.get("metadata", {})
    labels, annotations = dict(given.get("labels", {})), dict(given.get("annotations", {}))
    spec = _spec(template["spec"], indexed=index is not None)
    prefix = f"{name}-"
    if index is not None:
        labels[INDEX_LABEL] = annotations[INDEX_LABEL] = str(index)
        spec["hostname"] = f"{name}-{index}"
        prefix = f"{name[: LONGEST_NAME_PREFIX - len(f'-{index}-')]}-{index}-"
    if failures is not None:
        annotations[FAILURES_ANNOTATION] = str(failures[0])
        if failures[1]:
            annotations[IGNORED_FAILURES_ANNOTATION] = str(failures[1])
    metadata: Body = {
        "generateName": prefix,
        "labels": labels,
        "finalizers": [*given.get("finalizers", ()), TRACKING_FINALIZER],
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": job["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _spec(template: Body, *, indexed: bool) -> Body:
    """The pod's spec. It shares unchanged parts with the Job's template, because the server never changes them."""
    spec = dict(template)
    if indexed:
        for key in ("initContainers", "containers"):
            if key in spec:
                spec[key] = [_with_index(container) for container in spec[key]]
    return spec


def _with_index(container: Body) -> Body:
    env: list[Body] = container.get("env", [])
    if any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in env):
        return container
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_LABEL}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": field}]}
