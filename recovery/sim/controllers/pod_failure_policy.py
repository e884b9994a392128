"""What a Job's podFailurePolicy says about a failed pod.

Source: KEP-3329; `pkg/controller/job/pod_failure_policy.go` of Kubernetes 1.36.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from recovery.sim.api.kinds.kind import Body


@dataclass(frozen=True, slots=True)
class Handling:
    """How the Job handles one failed pod."""

    action: str = "Count"
    """FailJob, FailIndex, Ignore or Count. Count also applies if no rule matches."""
    message: str | None = None
    """Why the pod makes the Job fail. None: it does not."""

    @property
    def counts(self) -> bool:
        """The failure counts towards backoffLimit, and backoffLimitPerIndex if that is set."""
        return self.action != "Ignore"


_COUNTED = Handling()


def handling(policy: Body | None, pod: Body) -> Handling:
    """The handling by the first matching rule. `policy` None: the Job has none, so every failure counts."""
    if policy is None:
        return _COUNTED
    for number, rule in enumerate(policy.get("rules") or ()):
        cause = _cause(rule, pod)
        if cause is None:
            continue
        action = rule["action"]
        if action != "FailJob":
            return Handling(action)
        return Handling(action, f"{cause} matching FailJob rule at index {number}")
    return _COUNTED


def _cause(rule: Body, pod: Body) -> str | None:
    """Why the pod matches the rule, in the words of the Job's condition. None: it does not match."""
    metadata, status = pod["metadata"], pod.get("status", {})
    name = f"{metadata['namespace']}/{metadata['name']}"
    if rule.get("onExitCodes"):
        container = _container(rule["onExitCodes"], status)
        if container is None:
            return None
        code = container["state"]["terminated"]["exitCode"]
        return f"Container {container['name']} for pod {name} failed with exit code {code}"
    condition = _condition(rule.get("onPodConditions") or (), status)
    return None if condition is None else f"Pod {name} has condition {condition}"


def _container(requirement: Body, status: Body) -> Body | None:
    """The first container that matches, before init containers. Running ones and exit code 0 never match."""
    wanted, listed = requirement.get("containerName"), requirement["operator"] == "In"
    statuses: Iterable[Body] = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    for container in statuses:
        ended = container.get("state", {}).get("terminated")
        if ended is None or ended["exitCode"] == 0 or wanted not in {None, container["name"]}:
            continue
        if (ended["exitCode"] in requirement["values"]) == listed:
            return container
    return None


def _condition(patterns: Iterable[Body], status: Body) -> str | None:
    wanted = {(pattern["type"], pattern.get("status", "True")) for pattern in patterns}
    for condition in status.get("conditions", ()):
        if (condition["type"], condition["status"]) in wanted:
            return str(condition["type"])
    return None
