"""Kubernetes Events on the workload: the sentences, where `kubectl describe` shows them."""

from datetime import datetime

from recovery.core.facts import WorkloadFacts
from recovery.core.plan import EmitEvent
from recovery.ports import EVENTS, AlreadyExistsError, ApiClient
from recovery.workloads import resource_of

_COMPONENT = "recovery-controller"


async def emit(api: ApiClient, namespace: str, workload: WorkloadFacts, action: EmitEvent, now: datetime) -> None:
    """Create the Event. Its name follows from the incident and the change, so a repeat is recognised and dropped."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{workload.name[:180]}.{action.key}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": resource_of(workload).api_version,
            "kind": workload.kind,
            "namespace": namespace,
            "name": workload.name,
            "uid": workload.uid,
        },
        "type": "Warning" if action.warning else "Normal",
        "reason": action.reason,
        "message": action.note,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    try:
        await api.create(EVENTS, body, namespace=namespace)
    except AlreadyExistsError:
        return
