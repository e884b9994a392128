"""The condition DisruptionTarget, as those write it who are about to delete a pod."""

from datetime import datetime

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp


def disruption_patch(pod: Body, reason: str, message: str, now: datetime) -> Body | None:
    """A strategic merge patch of the pod's status that fails if the pod is another by then. None: it says so already.

    An earlier DisruptionTarget=True keeps the moment since when it is true (podutil.UpdatePodCondition).
    """
    said = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    conditions = pod.get("status", {}).get("conditions") or ()
    known: Body = next((condition for condition in conditions if condition["type"] == "DisruptionTarget"), {})
    if said.items() <= known.items():
        return None
    since = known.get("lastTransitionTime") if known.get("status") == "True" else None
    condition = {**said, "lastTransitionTime": since or timestamp(now)}
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
