"""How a binding and an eviction change a pod (`BindingREST` and `EvictionREST` in kubernetes' registry/core/pod)."""

from typing import Any

import msgspec

from recovery.ports import PODS
from recovery.sim.api.error_answers import bad_request, conflict
from recovery.sim.api.kinds.kind import Body

_BINDINGS = msgspec.structs.replace(PODS, plural="pods/binding")


def bound(pod: Body, binding: Body, now: str) -> Body:
    """The pod on the binding's node. Raises 409 if it is already bound, is being deleted, is gated, or has another UID.

    The result is a new object without a new resourceVersion. The change does not raise metadata.generation.
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
    """The pod with the condition that the eviction API sets before the delete. No PodDisruptionBudget is modelled."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return _with_condition(pod, condition, now)


def _with_condition(pod: Body, condition: dict[str, Any], now: str) -> Body:
    """`UpdatePodCondition`: lastTransitionTime changes only with the status. The result has its own metadata."""
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
