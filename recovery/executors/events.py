"""Kubernetes Events on the workload and on the RecoveryConfig, so that `kubectl describe` shows the sentences."""

from datetime import datetime

from recovery import api_verbs
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import WorkloadFacts
from recovery.core.plan.actions import EmitEvent
from recovery.ports import EVENTS, RECOVERY_CONFIGS, AlreadyExistsError, ApiClient
from recovery.workloads import resource_of

_COMPONENT = "recovery-controller"
_CLUSTER_NAMESPACE = "default"
"""For Events on cluster-scoped objects. The API server refuses any other (k/k `validation/events.go`)."""


async def emit(api: ApiClient, namespace: str, workload: WorkloadFacts, action: EmitEvent, now: datetime) -> None:
    """Create the Event. Its name is derived from the incident and the change, so a repeat is recognised and dropped."""
    about = {
        "apiVersion": resource_of(workload).api_version,
        "kind": workload.kind,
        "namespace": namespace,
        "name": workload.name,
        "uid": workload.uid,
    }
    await _create(api, namespace, about, action, now)


async def emit_on_config(api: ApiClient, config: ConfigFacts, action: EmitEvent, now: datetime) -> None:
    """As `emit`, on the RecoveryConfig, which is cluster-scoped."""
    about = {
        "apiVersion": RECOVERY_CONFIGS.api_version,
        "kind": RECOVERY_CONFIGS.kind,
        "name": config.name,
        "uid": config.uid,
    }
    await _create(api, _CLUSTER_NAMESPACE, about, action, now)


async def _create(api: ApiClient, namespace: str, about: dict[str, str], action: EmitEvent, now: datetime) -> None:
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:180]}.{action.key}", "namespace": namespace},
        "involvedObject": about,
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
        await api_verbs.create(api, EVENTS, body, namespace=namespace)
    except AlreadyExistsError:
        return
