"""An API server that does what the test says, a store that shows what the test says, and ears for what is told.

The fake server knows one thing by itself: RecoveryGroups with their resourceVersions, because compare-and-swap is what
these tests are about. Every other write succeeds, unless the test has said what comes instead; what a read gives, the
test puts there.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from recovery.core.decision.protection import Protection
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger, LedgerObject
from recovery.core.plan.actions import Plan
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import Mode, PolicySpec
from recovery.ports import (
    RECOVERY_GROUPS,
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    PatchKind,
    Propagation,
    Resource,
)
from tests.unit.core.world import World, at

KEY = GroupKey("ml", "train")


class SetClock:
    """`ports.Clock` that stands still until a test moves it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return at(self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Request(msgspec.Struct, frozen=True):
    """One write as it arrived."""

    verb: str
    resource: Resource
    name: str
    namespace: str | None
    body: Any = None
    subresource: str = ""
    kind: PatchKind | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: Propagation | None = None
    grace_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.kind}"


class Script(msgspec.Struct):
    """What becomes of one request: its answer is lost (`applied`), or it is refused."""

    verb: str
    resource: Resource
    error: Exception | None
    applied: bool
    meanwhile: Callable[[], object] | None
    name: str | None


class FakeApi:
    """`ports.ApiClient`: notes every write and answers as scripted; what is not scripted succeeds."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.groups: dict[str, LedgerObject] = {}
        self.objects: dict[tuple[Resource, str], dict[str, Any]] = {}
        """What `get` gives, by resource and name."""
        self._scripts: list[Script] = []
        self._version = 100

    # --- for the test ----------------------------------------------------------------------------------------------

    def next(
        self,
        verb: str,
        resource: Resource,
        error: Exception | None = None,
        *,
        applied: bool = False,
        meanwhile: Callable[[], object] | None = None,
        name: str | None = None,
    ) -> None:
        """The next such request meets `error`; before it is handled, `meanwhile` happens."""
        self._scripts.append(Script(verb, resource, error, applied, meanwhile, name))

    def put_group(self, ledger: Ledger, *, schema_version: int = SCHEMA_VERSION) -> LedgerObject:
        """Somebody writes the RecoveryGroup of `train`, or creates it."""
        uid = "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"
        name = f"{KEY.name}-{uid}"
        made = LedgerObject(
            name, KEY.namespace, "group-1", self._next_version(), uid, KEY.name, ledger, schema_version=schema_version
        )
        self.groups[name] = made
        return made

    def said(self) -> list[str]:
        """All writes, in order, in words."""
        return [str(request) for request in self.requests]

    def sent(self, verb: str, resource: Resource) -> list[Request]:
        return [request for request in self.requests if request.verb == verb and request.resource == resource]

    @property
    def ledger(self) -> Ledger:
        """The one ledger there is."""
        (group,) = self.groups.values()
        return group.ledger

    # --- the port --------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        found = self.objects.get((resource, name))
        if found is None:
            raise NotFoundError(f"{resource.kind} {name} not found", status=404)
        return msgspec.json.encode(found)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> bytes:
        raise AssertionError("facts come from the store")

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        raise AssertionError("facts come from the store")

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        sent = msgspec.json.decode(msgspec.json.encode(body))
        metadata = sent["metadata"]
        return self._handle(Request("create", resource, metadata["name"], namespace, sent, subresource))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        sent = msgspec.json.decode(msgspec.json.encode(body))
        return self._handle(Request("patch", resource, name, namespace, sent, subresource, kind))

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        return self._handle(
            Request(
                "delete",
                resource,
                name,
                namespace,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_seconds=grace_seconds,
            )
        )

    # --- the server ------------------------------------------------------------------------------------------------

    def _handle(self, request: Request) -> bytes:
        self.requests.append(request)
        script = self._script_for(request)
        if script is None:
            return self._apply(request)
        self._scripts.remove(script)
        if script.meanwhile is not None:
            script.meanwhile()
        if script.error is None:
            return self._apply(request)
        if script.applied:
            self._apply(request)
        raise script.error

    def _script_for(self, request: Request) -> Script | None:
        fitting = (
            script
            for script in self._scripts
            if script.verb == request.verb
            and script.resource == request.resource
            and script.name in {None, request.name}
        )
        return next(fitting, None)

    def _apply(self, request: Request) -> bytes:
        if request.resource != RECOVERY_GROUPS:
            return b"{}"
        if request.verb == "create":
            return self._created(request)
        group = self.groups.get(request.name)
        if group is None:
            raise NotFoundError("no such RecoveryGroup", status=404)
        version, status = request.body
        if version["value"] != group.resource_version:
            raise ConflictError("the object has been modified", status=409)
        ledger = msgspec.convert(status["value"], Ledger)
        return self._put(msgspec.structs.replace(group, resource_version=self._next_version(), ledger=ledger))

    def _created(self, request: Request) -> bytes:
        if request.name in self.groups:
            raise AlreadyExistsError("it exists", status=409, reason="AlreadyExists")
        reference = request.body["spec"]["workloadRef"]
        made = LedgerObject(
            name=request.name,
            namespace=str(request.namespace),
            uid=f"group-{len(self.groups) + 1}",
            resource_version=self._next_version(),
            workload_uid=reference["uid"],
            group=request.body["spec"]["group"],
            ledger=Ledger(),
        )
        return self._put(made)

    def _put(self, group: LedgerObject) -> bytes:
        self.groups[group.name] = group
        metadata = {"name": group.name, "uid": group.uid, "resourceVersion": group.resource_version}
        return msgspec.json.encode({"metadata": metadata, "status": group.ledger})

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


class FakeStore:
    """`ports.GroupStore` of one group: `cached` in the cache, `live` read live, ledgers as the fake server has them."""

    def __init__(self, api: FakeApi, world: World, *, mode: Mode = Mode.ENFORCE) -> None:
        self._api = api
        self.cached = world
        self.live = world
        self.live_reads = 0
        self.is_synced = True
        self.lags = False
        """The cache of ledgers shows `lagging`, whatever the server has."""
        self.lagging: LedgerObject | None = None
        spec = PolicySpec(mode=mode)
        self.policy = PolicyFacts("default", KEY.namespace, "policy-1", 1, spec, at(-86_400), at(-86_400))
        self.live_policy: PolicyFacts | None = None
        """None: the same as in the cache."""

    def becomes(self, world: World) -> None:
        """The cluster changes, and the cache has seen it."""
        self.cached = self.live = world

    def synced(self) -> bool:
        return self.is_synced

    def keys(self) -> Iterable[GroupKey]:
        return (KEY,)

    def snapshot(self, key: GroupKey) -> Snapshot:
        return self.cached.snapshot()

    def policies(self, namespace: str) -> PolicySet:
        return PolicySet((self.policy,))

    async def read_policies_live(self, namespace: str) -> PolicySet:
        return PolicySet((self.live_policy or self.policy,))

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self.lagging if self.lags else self._of(workload_uid)

    def undecodable(self) -> Mapping[str, int]:
        return {}

    def ledger_objects(self) -> Iterable[LedgerObject]:
        return tuple(self._api.groups.values())

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        workload = self.cached.workload
        return [
            group
            for group in self._api.groups.values()
            if group.group == key.name and (workload is None or group.workload_uid != workload.uid)
        ]

    def collected(self) -> Iterable[GroupKey]:
        return ()

    def nodes(self) -> Mapping[str, NodeFacts]:
        return self.cached.snapshot().nodes

    def config(self) -> ConfigFacts | None:
        return None

    async def read_config_live(self) -> ConfigFacts | None:
        return None

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return self.live.snapshot().nodes.get(name)

    def subscribe(self, changed: Callable[[GroupKey], None]) -> None:
        raise AssertionError("a reconciler is told what to look at")

    async def read_live(self, key: GroupKey) -> Snapshot:
        self.live_reads += 1
        return self.live.snapshot(live=True)

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self._of(workload_uid)

    def _of(self, workload_uid: str) -> LedgerObject | None:
        return next((group for group in self._api.groups.values() if group.workload_uid == workload_uid), None)


class Ears:
    """`ControllerObserver` that notes what it is told."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.protections: list[Protection] = []
        self.writes: list[tuple[Ledger, Ledger]] = []
        self.finished: list[tuple[GroupKey, str | None]] = []
        self.leads: list[bool] = []

    def decided(self, key: GroupKey, before: Ledger, plan: Plan) -> None:
        self.plans.append(plan)

    def protection_found(self, key: GroupKey, found: Protection) -> None:
        self.protections.append(found)

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        self.writes.append((before, after))

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        self.finished.append((key, error))

    def queue_waited(self, seconds: float, depth: int) -> None:
        pass

    def leadership_changed(self, *, leads: bool) -> None:
        self.leads.append(leads)
