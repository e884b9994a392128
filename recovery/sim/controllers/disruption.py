"""The condition DisruptionTarget, which a controller sets on a pod before it deletes the pod."""

from datetime import datetime

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp


def disruption_patch(pod: Body, reason: str, message: str, now: datetime) -> Body | None:
    """A strategic merge patch of the pod's status, with its UID as precondition. None: the condition is already set.

    A condition that was already True keeps its lastTransitionTime (podutil.UpdatePodCondition).
    """
    said = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    conditions = pod.get("status", {}).get("conditions") or ()
    known: Body = next((condition for condition in conditions if condition["type"] == "DisruptionTarget"), {})
    if said.items() <= known.items():
        return None
    since = known.get("lastTransitionTime") if known.get("status") == "True" else None
    condition = {**said, "lastTransitionTime": since or timestamp(now)}
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
