"""What the controller needs from its environment: an API server, a clock, randomness.

Everything that decides or acts uses these Protocols, so that the same code runs against a real API server
(`recovery.kube`) and against a modelled one (`recovery.sim`), in real and in virtual time. Bodies are passed as bytes:
each reader decodes only the fields that it names, which keeps a watch on 50,000 pods cheap.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from urllib.parse import quote, urlencode

import msgspec

from recovery.core.model.config import ConfigFacts
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot, UndecodableObject
from recovery.core.model.ledger import Incident
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.progress import Progress
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet


class Resource(msgspec.Struct, frozen=True):
    """A REST resource: where its objects live and what they are called."""

    group: str
    """API group, empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path; `namespace` None on a namespaced resource means all namespaces."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


RECOVERY_GROUP_NAME = "recovery.trainjob.dev"

TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NODE_LEASE_NAMESPACE = "kube-node-lease"
"""The namespace in which each kubelet renews the Lease named after its node (`corev1.NamespaceNodeLease`)."""
EVENTS = Resource("", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
AGENT_PARAMETERS = "recovery-agent"
"""Name of the ConfigMap with the parameters of the component `agent`, in the controller's own namespace."""
MUTATING_WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
RECOVERY_CONFIGS = Resource(RECOVERY_GROUP_NAME, "v1alpha1", "recoveryconfigs", "RecoveryConfig", namespaced=False)
CLUSTER_RECOVERY_POLICIES = Resource(
    RECOVERY_GROUP_NAME, "v1alpha1", "clusterrecoverypolicies", "ClusterRecoveryPolicy", namespaced=False
)
RECOVERY_POLICIES = Resource(RECOVERY_GROUP_NAME, "v1alpha1", "recoverypolicies", "RecoveryPolicy")
RECOVERY_GROUPS = Resource(RECOVERY_GROUP_NAME, "v1alpha1", "recoverygroups", "RecoveryGroup")
RECOVERY_INCIDENTS = Resource(RECOVERY_GROUP_NAME, "v1alpha1", "recoveryincidents", "RecoveryIncident")
RECOVERY_DRILLS = Resource(RECOVERY_GROUP_NAME, "v1alpha1", "recoverydrills", "RecoveryDrill")


class PatchKind(StrEnum):
    """The content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """`propagationPolicy` of a delete: what happens to the dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"


class WatchEnd(StrEnum):
    """Why a watch ended before its time limit, or could not be opened."""

    EXPIRED = "Expired"
    """The position is too old: everything is listed again."""
    ENDED = "Ended"
    """The server ended the stream early."""
    FORBIDDEN = "Forbidden"
    """The server refuses it: a permission or the CRD is missing."""
    UNREACHABLE = "Unreachable"
    """No answer, or one that cannot be understood."""
    SILENT = "Silent"
    """The connection is open but nothing arrives on it, not even bookmarks: everything is listed again."""


class ApiRequest(msgspec.Struct, frozen=True):
    """A REST verb on a resource. `str()` reads like kubectl: `patch recoverygroups/status team-a/llm`."""

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""
    query: Mapping[str, str | int] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    tests: bool = False
    """The body is a JSON patch with a `test` operation."""
    once: bool = False
    """The request is never retried, because nothing waits for it."""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.target} {where}".rstrip()

    @property
    def target(self) -> str:
        """The plural, with the subresource if there is one."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def dry_run(self) -> bool:
        """The server processes the request as usual, but stores nothing."""
        return bool(self.parameter("dryRun"))

    @property
    def writes(self) -> bool:
        """The request may change something. A dry run never does, so it may be retried like a read."""
        return self.method != "GET" and not self.dry_run

    @property
    def timeout_seconds(self) -> int:
        """After how long the server ends a watch. Raises KeyError for other verbs."""
        return int(self.query["timeoutSeconds"])

    def parameter(self, name: str) -> str:
        """A query parameter as text. Empty: the request does not have it."""
        return str(self.query.get(name, ""))

    def url(self, server: str) -> str:
        """The encoded URL. Names also come from users (annotations, command lines), so none of them is trusted."""
        path = self.resource.path(_quoted(self.namespace), _quoted(self.name), self.subresource)
        return f"{server}{path}?{urlencode(self.query)}" if self.query else f"{server}{path}"


def _quoted(segment: str | None) -> str | None:
    return None if segment is None else quote(segment, safe="")


_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


class ApiError(Exception):
    """The API server answered with an error, or not at all. Subclasses say what the caller has to do next.

    `status` is the HTTP status (None: no answer arrived), `reason` the machine-readable `Status.reason`.
    """

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ReadAgainError(ApiError):
    """The known state is out of date or the outcome unknown: read the object and decide again. Never just retry."""


class ConflictError(ReadAgainError):
    """409: a resourceVersion or UID precondition no longer holds."""


class AlreadyExistsError(ReadAgainError):
    """409 AlreadyExists: an object of that name exists. It is success only if that is the intended object."""


class TestFailedError(ReadAgainError):
    """422 from a JSON patch whose `test` operation did not hold."""

    __test__ = False  # not a pytest class


class NotFoundError(ReadAgainError):
    """404 for an object."""


class UnknownOutcomeError(ReadAgainError):
    """A write was sent but its result is unknown (time-out, 5xx, lost connection): it may have been applied or not."""


class ExpiredError(ReadAgainError):
    """410: the resourceVersion or the continue token is too old. List again."""


class TryLaterError(ApiError):
    """The server refused to handle the request now (429, or a read met 5xx or a lost connection): nothing was applied.

    `retry_after_seconds`: the delay that the server asked for. None: it named none.
    """

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds


class SilentWatchError(TryLaterError):
    """A watch has been silent for longer than a healthy server allows."""


class RefusedError(ApiError):
    """The request will never succeed as it stands (400, 403, 422 validation, webhook denial): give up and report it."""


class ForbiddenError(RefusedError):
    """403: a permission is missing; the message names verb and resource."""


class NamespaceTerminatingError(RefusedError):
    """403: the namespace is being deleted and accepts nothing new. The objects in it are deleted as well."""


class UnauthorizedError(RefusedError):
    """401: the credentials were not accepted, even after a refresh."""


class UntrustedServerError(RefusedError):
    """Nothing was sent, because the server did not prove that it is the API server."""


class NoSuchResourceError(RefusedError):
    """404 for the resource itself: its CRD is not installed."""


UNDECODABLE = (ValueError, OverflowError, RecursionError)
"""The errors that the content of an object can cause while it is read. (msgspec raises ValueErrors, and so does Python
for bytes that are not text. A MemoryError is about this process, not about the object.)"""


class UndecodableError(RefusedError):
    """An object in an answer of the API server cannot be read. The message names the object and the field."""

    def __init__(self, found: UndecodableObject) -> None:
        super().__init__(found.sentence)
        self.found = found


class NotLeadingError(ApiError):
    """This process may no longer lead, so the write was not sent or was abandoned: leave it to the leader."""


class ApiClient(Protocol):
    """Sends requests to an API server; `recovery.api_verbs` builds them. Raises `ApiError` subclasses only."""

    async def send(self, request: ApiRequest) -> bytes:
        """The body of a successful answer."""
        ...

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        """Lines of `{"type": ..., "object": ...}`, bookmarks included, until the server ends the stream."""
        ...


class Clock(Protocol):
    """Time: `now` is for timestamps, `monotonic_seconds` for measuring, `sleep` for waiting."""

    def now(self) -> datetime:
        """The time, timezone-aware and in UTC."""
        ...

    def monotonic_seconds(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Entropy(Protocol):
    """Randomness, which a seed determines in tests. `random.Random` fits."""

    def uniform(self, a: float, b: float) -> float: ...


class LossWait(StrEnum):
    """What took most of the time from the event of a loss until its ledger."""

    QUEUE = "queue"
    """The reconciles of other groups, or an event loop that was busy."""
    REQUESTS = "requests"
    """The API server's answers to the live reads and to the write."""
    BACKOFF = "backoff"
    """A reconcile failed, and the next one had to wait."""


class GroupChanged(Protocol):
    """What a store calls when something about a group has changed."""

    def __call__(self, key: GroupKey, *, loss: bool) -> None:
        """`loss`: the group may have lost a member with this change (`core.diagnosis.loss_signs`)."""
        ...


class GroupStore(Protocol):
    """The facts about all groups, kept current by informers. Only the `read_*` methods send requests."""

    def synced(self) -> bool:
        """All informers have listed at least once. Before that, absence from the cache means nothing."""
        ...

    def keys(self) -> Iterable[GroupKey]:
        """Every workload known, with or without a policy."""
        ...

    def snapshot(self, key: GroupKey) -> Snapshot:
        """The cached facts. For an unknown key the snapshot has no workload.

        It includes the fleet if the group has fewer nodes than wanted and no open incident.
        """
        ...

    def progress(self, key: GroupKey) -> Progress | None:
        """The last progress report of the training. None: there is none. A report does not notify subscribers."""
        ...

    def policies(self, namespace: str) -> PolicySet:
        """The namespace's policies, the cluster's, and the RecoveryConfig."""
        ...

    def every_policy(self) -> Iterable[PolicyFacts]:
        """Every RecoveryPolicy and ClusterRecoveryPolicy known."""
        ...

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """The RecoveryGroup of that workload. None: there is none, as far as the cache knows."""
        ...

    def ledgers_of(self, key: GroupKey) -> Sequence[LedgerObject]:
        """The RecoveryGroups of all workloads of that name, existing or gone, as far as the cache knows."""
        ...

    def ledger_objects(self) -> Iterable[LedgerObject]:
        """Every RecoveryGroup known."""
        ...

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        """RecoveryGroups of other workloads of that name than the present one. Those are gone, and these soon will be.

        A RecoveryGroup that was collected in the middle of an incident, or while its group was Broken, is still listed
        for a while: it may have been deleted at the same moment as its workload.
        """
        ...

    def collected(self) -> Iterable[GroupKey]:
        """The groups with `orphans` that have been deleted already, so that no list of ledgers contains them."""
        ...

    def undecodable(self) -> Mapping[str, int]:
        """How many objects of each resource, by plural, cannot be read now. 0: all can be read."""
        ...

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        """The unreadable RecoveryGroups whose workload is unknown too."""
        ...

    def stale(self) -> Mapping[str, datetime]:
        """The resources whose watch is silent, by plural, and when it last reported. Empty: all are current."""
        ...

    def nodes(self) -> Mapping[str, NodeFacts]:
        """Every node known, by name. The mapping is live."""
        ...

    def config(self) -> ConfigFacts | None:
        """The RecoveryConfig. None: there is none, as far as the cache knows."""
        ...

    def drills(self) -> Iterable[DrillFacts]:
        """Every RecoveryDrill known."""
        ...

    def saw_drill(self, body: bytes) -> None:
        """Take in the answer to a write of a RecoveryDrill, before the watch shows it. Raises UndecodableError."""
        ...

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        """The recorded incidents of the workload, oldest first. Raises ApiError."""
        ...

    def subscribe(self, changed: GroupChanged) -> None:
        """Call `changed` for a group whenever a fact, a policy or its RecoveryGroup has changed. For a group with fewer
        nodes than wanted, call it also when there may be room for more."""
        ...

    async def read_live(self, key: GroupKey) -> Snapshot:
        """Read TrainJob, JobSet, Jobs and pods from the API server. Tombstones, nodes and the fleet are the cache's.

        An object that cannot be read is named in the snapshot, which has its last readable state if there is one.

        A node of the pods is read live if the cache does not have it as Ready or has it as out of service, and so is
        the Lease of an unreachable node. For a group with fewer nodes than wanted and no open incident, the pods of all
        workloads on nodes that seem to have room are read live as well.
        """
        ...

    async def read_config_live(self) -> ConfigFacts | None:
        """The RecoveryConfig as the API server has it now. None: there is none."""
        ...

    async def read_node_live(self, name: str) -> NodeFacts | None:
        """The node as the API server has it now. None: it does not exist. Raises UndecodableError."""
        ...

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None: ...

    async def read_policies_live(self, namespace: str) -> PolicySet:
        """All of them as the API server has them now. A policy that cannot be read is reported and left out."""
        ...
