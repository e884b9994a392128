"""What a binding and an eviction make of a pod (`BindingREST` and `EvictionREST` in kubernetes' registry/core/pod)."""

from typing import Any

import msgspec

from recovery.ports import PODS
from recovery.sim.api.error_answers import bad_request, conflict
from recovery.sim.api.kinds.kind import Body

_BINDINGS = msgspec.structs.replace(PODS, plural="pods/binding")


def bound(pod: Body, binding: Body, now: str) -> Body:
    """The pod on the node that the binding names. Raises 409 if it is on one already, is being deleted, or is another.

    A new object, though not yet a new revision; it does not count as a change of the spec.
    """
    metadata = pod["metadata"]
    name = metadata["name"]
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise bad_request("target.name: Required value")
    uid = (binding.get("metadata") or {}).get("uid") or metadata["uid"]
    spec = pod.get("spec", {})
    if uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        raise conflict(PODS, name, why)
    if "deletionTimestamp" in metadata:
        raise conflict(_BINDINGS, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(_BINDINGS, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(_BINDINGS, name, f"pod {name} has non-empty .spec.schedulingGates")
    after = _with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
    return {**after, "spec": {**spec, "nodeName": node}}


def marked_for_eviction(pod: Body, now: str) -> Body:
    """The pod as the eviction API leaves it before it deletes it: no budget stands against that here."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return _with_condition(pod, condition, now)


def _with_condition(pod: Body, condition: dict[str, Any], now: str) -> Body:
    """`UpdatePodCondition`: gets a new date only if its status is another. The metadata are the new object's own."""
    status = pod.get("status", {})
    conditions = list(status.get("conditions", ()))
    at = next((index for index, old in enumerate(conditions) if old["type"] == condition["type"]), None)
    if at is None:
        conditions.append({**condition, "lastProbeTime": None, "lastTransitionTime": now})
    else:
        old = conditions[at]
        moved = old["status"] != condition["status"]
        conditions[at] = {
            **condition,
            "lastProbeTime": None,
            "lastTransitionTime": now if moved else old.get("lastTransitionTime", now),
        }
    return {**pod, "metadata": dict(pod["metadata"]), "status": {**status, "conditions": conditions}}
