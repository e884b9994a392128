"""The resources and permissions that the controller needs. Everything that is missing is reported before it starts.

Kubeflow Trainer is optional: without it the workloads are the JobSets that nothing controls. JobSet is required.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from recovery import api_verbs
from recovery.controller.lease import LEASE_NAME
from recovery.decoding import decoded
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUP_NAME,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiClient,
    ForbiddenError,
    NoSuchResourceError,
    Resource,
)

_OURS = (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_GROUPS)

WATCHED = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, NODES, *_OURS)
"""What the controller watches if Trainer is installed. It also watches RecoveryDrills, if it can."""
_OPTIONAL = frozenset({TRAIN_JOBS, RECOVERY_DRILLS})
"""Resources without which the controller starts."""

_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


class Permission(msgspec.Struct, frozen=True):
    """A verb on a resource."""

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    """Empty: all namespaces."""
    name: str = ""
    """The name of the only object. Empty: all objects."""

    @property
    def target(self) -> str:
        """In the notation of RBAC rules: `recoverygroups.recovery.trainjob.dev/status`."""
        return f"{_name(self.resource)}{'/' + self.subresource if self.subresource else ''}"


OBSERVE = (
    *(Permission(verb, resource) for resource in WATCHED for verb in ("list", "watch")),
    *(Permission("get", resource) for resource in (TRAIN_JOBS, JOB_SETS, NODES, RECOVERY_CONFIGS, RECOVERY_GROUPS)),
    Permission("create", RECOVERY_GROUPS),
    Permission("patch", RECOVERY_GROUPS, "status"),
    Permission("create", RECOVERY_INCIDENTS),
    Permission("list", RECOVERY_INCIDENTS),
    Permission("create", EVENTS),
    Permission("list", EVENTS),
)
"""Permissions that the controller needs whatever the policies say."""

ACCOUNTING = (
    Permission("get", RECOVERY_INCIDENTS),
    Permission("patch", RECOVERY_CONFIGS, "status"),
)
"""Permissions for the totals of the fleet, the circuit breaker and the ledger of quarantined nodes. Without them the
controller starts and recovers jobs."""

RECORDS = (
    Permission("delete", RECOVERY_INCIDENTS),
    Permission("patch", RECOVERY_INCIDENTS, "status"),
)
"""Permissions that keep records few: their retention (RecoveryConfig `spec.incidents`), and one record for several
incidents under Observe. All else works without them."""

POLICY_STATUS = tuple(Permission("patch", each, "status") for each in (RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES))
"""Permissions to store since when a policy enforces. Without them, any edit of the policy makes the losses before
the edit a baseline."""

DRILLS = (
    *(Permission(verb, RECOVERY_DRILLS) for verb in ("list", "watch", "delete")),
    Permission("patch", RECOVERY_DRILLS, "status"),
)
"""Permissions to answer drills, and to delete their records. Without them no failure counts as a drill."""

ENFORCE = (
    Permission("delete", JOBS),
    Permission("patch", JOBS),
    Permission("delete", PODS),
    Permission("patch", TRAIN_JOBS),
    Permission("patch", JOB_SETS),
    Permission("patch", JOB_SETS, "status"),
    Permission("delete", JOB_SETS),
)
"""What only policies in mode Enforce need. A cluster may withhold these, to be sure that nothing is touched."""


QUARANTINE = (Permission("patch", NODES),)
"""What only a RecoveryConfig with `allow.cordon` needs."""

NODE_LEASES = (Permission("get", LEASES, namespace=NODE_LEASE_NAMESPACE),)
"""Shows when the kubelet of a silent node last renewed its Lease. Without it, AssumeDead uses the Ready condition
alone."""


LOGS = (Permission("get", PODS, "log"),)
"""Switches on the evidence from the logs of suspects (manifests/components/pod-logs). Without it no log is read, and it
is not reported as missing."""


def to_lead(namespace: str) -> tuple[Permission, ...]:
    """What an election with the Lease in that namespace needs. RBAC cannot limit `create` to a name."""
    return (
        Permission("create", LEASES, namespace=namespace),
        *(Permission(verb, LEASES, namespace=namespace, name=LEASE_NAME) for verb in ("get", "patch")),
    )


async def absent_resources(client: ApiClient) -> tuple[Resource, ...]:
    """The custom resources that the API server does not serve. Raises ApiError."""
    absent = []
    for resource in (TRAIN_JOBS, JOB_SETS, *_OURS, RECOVERY_INCIDENTS, RECOVERY_DRILLS):
        try:
            await api_verbs.list_page(client, resource, limit=1)
        except NoSuchResourceError:
            absent.append(resource)
        except ForbiddenError:
            continue  # permissions are checked separately
    return tuple(absent)


def install_words(absent: Sequence[Resource]) -> str:
    """One line that names what is not installed and how to install it. Empty: everything required is installed.

    What is optional is named only beside what is required: Trainer brings JobSet, and one command applies all CRDs.
    """
    if not set(absent) - _OPTIONAL:
        return ""
    absent = [resource for resource in absent if resource != TRAIN_JOBS or JOB_SETS in absent]
    ways = {
        RECOVERY_GROUP_NAME: "kubectl apply --server-side -k manifests/crd",
        TRAIN_JOBS.group: "install Kubeflow Trainer",
        JOB_SETS.group: "install JobSet",
    }
    needed = dict.fromkeys(ways[resource.group] for resource in absent)
    return f"not installed in this cluster: {', '.join(map(_name, absent))}; {', '.join(needed)}"


def needed(permissions: Iterable[Permission], *, train_jobs: bool) -> tuple[Permission, ...]:
    """The permissions that are of use. `train_jobs` False: Trainer is not installed."""
    return tuple(each for each in permissions if train_jobs or each.resource != TRAIN_JOBS)


def permission_words(permissions: Iterable[Permission]) -> str:
    """`get, list jobs.batch; create events`."""
    verbs: dict[str, list[str]] = {}
    for permission in permissions:
        verbs.setdefault(permission.target, []).append(permission.verb)
    return "; ".join(f"{', '.join(sorted(found))} {target}" for target, found in verbs.items())


async def denied(client: ApiClient, permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """The permissions that the API server denies to us. Raises ApiError."""
    asked = tuple(permissions)
    allowed = await asyncio.gather(*(_allowed(client, permission) for permission in asked))
    return tuple(permission for permission, granted in zip(asked, allowed, strict=True) if not granted)


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


_decode_review = msgspec.json.Decoder(_Review).decode


async def _allowed(client: ApiClient, permission: Permission) -> bool:
    attributes = {
        "verb": permission.verb,
        "group": permission.resource.group,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    body = {
        "apiVersion": _ACCESS_REVIEWS.api_version,
        "kind": _ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    answer = await api_verbs.create(client, _ACCESS_REVIEWS, body)
    return decoded(_ACCESS_REVIEWS, _decode_review, answer).status.allowed


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
