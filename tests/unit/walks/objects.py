"""Objects and stories for the tests of what a walk records and waits for."""

from typing import Any

from tests.contract.scene import INDEX, Event, Object, Story
from tests.walks.history import Stories

NAMESPACE = "walk-1-abc"
AT = "2026-11-02T08:00:00Z"
LATER = "2026-11-02T08:00:02Z"


def owned_by(owner: Object) -> list[Object]:
    return [{"kind": owner["kind"], "uid": owner["metadata"]["uid"], "controller": True}]


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", at: str = AT) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def job(uid: str = "job-1", name: str = "llm-node-0", *conditions: Object, **status: Any) -> Object:
    spec = {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 1,
        "template": {"spec": {"restartPolicy": "Never"}},
    }
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid}
    return {"kind": "Job", "metadata": metadata, "spec": spec, "status": {**status, "conditions": list(conditions)}}


def pod(owner: Object, index: int, uid: str, phase: str = "Running", made_at: str = AT, **metadata: Any) -> Object:
    """A pod on the node `walk-1-abc-0`. It is Ready if it runs."""
    ready = [condition("Ready", "True" if phase == "Running" else "False")]
    container = {"name": "node", "restartCount": 0, "ready": True, "state": {"running": {}}}
    whole = {
        "name": f"{owner['metadata']['name']}-{index}-abcde",
        "namespace": NAMESPACE,
        "uid": uid,
        "ownerReferences": owned_by(owner),
        "annotations": {INDEX: str(index)},
        "creationTimestamp": made_at,
        **metadata,
    }
    status = {"phase": phase, "conditions": ready, "containerStatuses": [container]}
    return {"kind": "Pod", "metadata": whole, "spec": {"nodeName": "walk-1-abc-0"}, "status": status}


def stories(*events: tuple[str, Object]) -> Stories:
    """The stories of these watch events, in this order."""
    told = Stories(Story(), Story(), Story(), Story())
    of_kind = {"TrainJob": told.train_jobs, "JobSet": told.job_sets, "Job": told.jobs, "Pod": told.pods}
    for position, (kind, body) in enumerate(events, start=1):
        versioned = {**body, "metadata": {**body["metadata"], "resourceVersion": str(position)}}
        of_kind[body["kind"]].hear(Event(kind, versioned))
    return told
