"""What the controller needs of the world: an API server, a clock, chance.

Everything that decides or acts speaks to these Protocols, so that one and the same code runs against a real API server
(`recovery.kube`) and against a modelled one (`recovery.sim`), in real and in virtual time. Bodies travel as bytes: each
reader decodes only the fields that it names, which is what keeps a watch on 50,000 pods cheap.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from urllib.parse import quote, urlencode

import msgspec

from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Progress, Snapshot, UndecodableObject
from recovery.core.model.ledger_object import LedgerObject
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
"""Where each kubelet renews a Lease of its node's name (`corev1.NamespaceNodeLease`)."""
EVENTS = Resource("", "v1", "events", "Event")
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


class PatchKind(StrEnum):
    """The content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """`propagationPolicy` of a delete: what becomes of the dependants."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"


class WatchEnd(StrEnum):
    """Why a watch ended otherwise than by its own time limit, or could not be opened."""

    EXPIRED = "Expired"
    """The position is too old: everything is listed again."""
    ENDED = "Ended"
    """The server ended the stream early."""
    FORBIDDEN = "Forbidden"
    """The server refuses it: a permission or the CRD is missing."""
    UNREACHABLE = "Unreachable"
    """No answer, or one that cannot be understood."""
    SILENT = "Silent"
    """The connection stands and nothing comes on it, not even bookmarks: everything is listed again."""


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
    """It is not sent again, whatever the answer: nothing waits for it."""

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
        """The server does all that it would do for the request, and stores nothing."""
        return bool(self.parameter("dryRun"))

    @property
    def writes(self) -> bool:
        """It may change something. A dry run never does: like a read it may be sent again."""
        return self.method != "GET" and not self.dry_run

    @property
    def timeout_seconds(self) -> int:
        """After how long the server ends a watch. Raises KeyError for other verbs."""
        return int(self.query["timeoutSeconds"])

    def parameter(self, name: str) -> str:
        """A query parameter as text. Empty: the request does not have it."""
        return str(self.query.get(name, ""))

    def url(self, server: str) -> str:
        """Already encoded. Names come from users too (annotations, command lines), so nothing in them is trusted."""
        path = self.resource.path(_quoted(self.namespace), _quoted(self.name), self.subresource)
        return f"{server}{path}?{urlencode(self.query)}" if self.query else f"{server}{path}"


def _quoted(segment: str | None) -> str | None:
    return None if segment is None else quote(segment, safe="")


_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


class ApiError(Exception):
    """An answer of the API server other than success, or none. Subclasses name the response that the caller owes.

    `status` is the HTTP status (None: no answer arrived), `reason` the machine-readable `Status.reason`.
    """

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ReadAgainError(ApiError):
    """What was known is out of date or the outcome is unknown: read the object, decide again. Never blindly repeat."""


class ConflictError(ReadAgainError):
    """409: a resourceVersion or UID precondition no longer holds."""


class AlreadyExistsError(ReadAgainError):
    """409 AlreadyExists: an object of that name is there; success only if it is the one that was meant."""


class TestFailedError(ReadAgainError):
    """422 from a JSON patch whose `test` operation did not hold."""

    __test__ = False  # not a pytest class


class NotFoundError(ReadAgainError):
    """404 for an object."""


class UnknownOutcomeError(ReadAgainError):
    """A write was sent and no verdict came back (time-out, 5xx, lost connection): it may have been applied or not."""


class ExpiredError(ReadAgainError):
    """410: the resourceVersion or the continue token is too old: list again."""


class TryLaterError(ApiError):
    """The server refused to handle the request now (429, or a read met 5xx or a lost connection): nothing was applied.

    `retry_after_seconds`: what the server asked for; None where it named nothing.
    """

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds


class SilentWatchError(TryLaterError):
    """A watch has said nothing for longer than a server that is well lets it be silent."""


class RefusedError(ApiError):
    """The request will never succeed as it stands (400, 403, 422 validation, webhook denial): give up, say so."""


class ForbiddenError(RefusedError):
    """403: a permission is missing; the message names verb and resource."""


class NamespaceTerminatingError(RefusedError):
    """403: the namespace is being deleted and takes nothing new; what this was about goes with it."""


class UnauthorizedError(RefusedError):
    """401: the credentials were not accepted, even after a refresh."""


class UntrustedServerError(RefusedError):
    """Nothing was sent: the server does not prove that it is the API server."""


class NoSuchResourceError(RefusedError):
    """404 for the resource itself: its CRD is not installed."""


UNDECODABLE = (ValueError, OverflowError, RecursionError)
"""What the content of an object can cause while it is read. (What msgspec raises are ValueErrors, and so is what Python
raises for bytes that are no text. A MemoryError is about this process, not about the object.)"""


class UndecodableError(RefusedError):
    """An object in an answer of the API server cannot be read; the message names it, and the field."""

    def __init__(self, found: UndecodableObject) -> None:
        super().__init__(found.sentence)
        self.found = found


class NotLeadingError(ApiError):
    """This process may no longer lead, so the write was not sent, or given up on: stop, and leave it to the leader."""


class ApiClient(Protocol):
    """Sends requests to an API server; `recovery.api_verbs` builds them. Raises `ApiError` subclasses only."""

    async def send(self, request: ApiRequest) -> bytes:
        """The body of a successful answer."""
        ...

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        """Lines of `{"type": ..., "object": ...}`, bookmarks included, until the server ends the stream."""
        ...


class Clock(Protocol):
    """Time. `now` is for what is written down, `monotonic_seconds` for measuring, `sleep` for waiting."""

    def now(self) -> datetime:
        """Aware, UTC."""
        ...

    def monotonic_seconds(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Entropy(Protocol):
    """Chance, so that a seed decides it in tests. `random.Random` fits."""

    def uniform(self, a: float, b: float) -> float: ...


class GroupStore(Protocol):
    """The facts about all groups, kept current by informers; reads cost no request except where they say so."""

    def synced(self) -> bool:
        """All informers have listed at least once: absence in the cache means something only from then on."""
        ...

    def keys(self) -> Iterable[GroupKey]:
        """Every workload known, with or without a policy."""
        ...

    def snapshot(self, key: GroupKey) -> Snapshot:
        """The cached facts; a key that is not known gives a snapshot without a workload.

        Those of a group that has fewer nodes than it is to have, and no open incident, include the fleet.
        """
        ...

    def progress(self, key: GroupKey) -> Progress | None:
        """What the training has reported last. None: nothing. A report alone makes no subscriber hear of its group."""
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

    def ledger_objects(self) -> Iterable[LedgerObject]:
        """Every RecoveryGroup known."""
        ...

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        """RecoveryGroups of workloads of that name other than the present one: those are gone, these soon will be.

        One that was collected in the middle of an incident is among them for a while: it may have gone in the very
        moment in which its workload went.
        """
        ...

    def collected(self) -> Iterable[GroupKey]:
        """The groups of `orphans` whose ledger has vanished already: no list of ledgers names them."""
        ...

    def undecodable(self) -> Mapping[str, int]:
        """How many objects of each resource, by plural, cannot be read now; 0 where all can."""
        ...

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        """The RecoveryGroups of which not even the workload can be read."""
        ...

    def stale(self) -> Mapping[str, datetime]:
        """The resources whose watch is silent, by plural, and when it last reported. Empty: all are current."""
        ...

    def nodes(self) -> Mapping[str, NodeFacts]:
        """Every node known, by name; the mapping changes as they do."""
        ...

    def config(self) -> ConfigFacts | None:
        """The RecoveryConfig. None: there is none, as far as the cache knows."""
        ...

    def subscribe(self, changed: Callable[[GroupKey], None]) -> None:
        """Call `changed` for a group whenever a fact, a policy or its RecoveryGroup changed, or, if it has fewer nodes
        than it is to have, when there may be room for more."""
        ...

    async def read_live(self, key: GroupKey) -> Snapshot:
        """TrainJob, JobSet, Jobs and pods read from the API server; tombstones and the fleet from the cache.

        An object that cannot be read is named in the snapshot, and is there in its last readable state if there is one.

        So are nodes, but for those that the pods name and that the cache has not as Ready, or has out of service: these
        are read as well, and the Leases of those that are not reachable. For a group that has fewer nodes than it is to
        have, and no open incident, so are the pods of all workloads on the nodes where there seems to be room.
        """
        ...

    async def read_config_live(self) -> ConfigFacts | None:
        """The RecoveryConfig as the API server has it now. None: there is none."""
        ...

    async def read_node_live(self, name: str) -> NodeFacts | None:
        """None: it does not exist. Raises UndecodableError: it cannot be read."""
        ...

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None: ...

    async def read_policies_live(self, namespace: str) -> PolicySet:
        """All of them as the API server has them now. A policy that cannot be read is reported and left out."""
        ...
