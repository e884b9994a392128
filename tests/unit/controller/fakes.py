"""An API server that keeps ledgers, a store that shows what a test sets, and an observer that records its calls."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, BIRTH_SETTINGS_LABELLED
from recovery.core.model.config import ConfigFacts
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot, UndecodableObject
from recovery.core.model.ledger import SCHEMA_VERSION, Incident, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.progress import Progress
from recovery.core.model.protection import Protection
from recovery.core.plan.actions import Plan
from recovery.core.policy.resolved import Policy, PolicyFacts
from recovery.core.policy.selection import PolicySet
from recovery.core.policy.spec import Mode, PolicyError, PolicySpec
from recovery.ports import (
    RECOVERY_GROUPS,
    AlreadyExistsError,
    ApiRequest,
    ConflictError,
    GroupChanged,
    LossWait,
    NotFoundError,
    PatchKind,
    Resource,
)
from tests.unit.core.world import World, at
from tests.unit.fake_api import FakeApi, Sent, sent

KEY = GroupKey("ml", "train")


class SetClock:
    """`ports.Clock` that moves only when a test sets it, or by a sleep."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return at(self.seconds)

    def monotonic_seconds(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class LedgersApi(FakeApi):
    """Serves RecoveryGroups, with compare-and-swap. It accepts every other write and ignores it."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, LedgerObject] = {}
        self.objects: dict[tuple[Resource, str], dict[str, Any]] = {}
        """The objects to read, by resource and name."""
        self._version = 100

    def put_group(self, ledger: Ledger, *, schema_version: int = SCHEMA_VERSION) -> LedgerObject:
        """Another writer replaces or creates the RecoveryGroup of `train`."""
        uid = "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"
        name = f"{KEY.name}-{uid}"
        made = LedgerObject(
            name, KEY.namespace, "group-1", self._next_version(), uid, KEY.name, ledger, schema_version=schema_version
        )
        self.groups[name] = made
        return made

    def said(self) -> list[str]:
        """All writes as text, in order."""
        return [str(write) for write in self.writes]

    @property
    def ledger(self) -> Ledger:
        """The ledger of the only RecoveryGroup."""
        (group,) = self.groups.values()
        return group.ledger

    async def answer(self, request: ApiRequest) -> bytes:
        asked = sent(request)
        if asked.verb == "get":
            return self._read(asked)
        if asked.resource == RECOVERY_GROUPS:
            return self._created(asked) if asked.verb == "create" else self._swapped(asked)
        return b"{}"

    def _read(self, request: Sent) -> bytes:
        found = self.objects.get((request.resource, request.name))
        if found is None:
            raise NotFoundError(f"{request} {request.name}: not found", status=404)
        return msgspec.json.encode(found)

    def _swapped(self, request: Sent) -> bytes:
        group = self.groups.get(request.name)
        if group is None:
            raise NotFoundError("no such RecoveryGroup", status=404)
        if request.kind is PatchKind.MERGE:
            return self._labelled(request, group)
        version, status = request.body
        if version["value"] != group.resource_version:
            raise ConflictError("the object has been modified", status=409)
        ledger = msgspec.convert(status["value"], Ledger)
        return self._put(msgspec.structs.replace(group, resource_version=self._next_version(), ledger=ledger))

    def _labelled(self, request: Sent, group: LedgerObject) -> bytes:
        """Apply a patch of the metadata. It must name the UID, and the resourceVersion if that matters."""
        metadata = request.body["metadata"]
        assert metadata["uid"] == group.uid
        if metadata.get("resourceVersion", group.resource_version) != group.resource_version:
            raise ConflictError("the object has been modified", status=409)
        labelled = metadata["labels"][BIRTH_SETTINGS_LABEL] == BIRTH_SETTINGS_LABELLED
        return self._put(msgspec.structs.replace(group, resource_version=self._next_version(), labelled=labelled))

    def _created(self, request: Sent) -> bytes:
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
            labelled=BIRTH_SETTINGS_LABEL in request.body["metadata"].get("labels", {}),
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
    """`ports.GroupStore` of one group: `cached` is the cache, `live` a live read. Ledgers are the fake server's."""

    def __init__(self, api: LedgersApi, world: World, *, mode: Mode = Mode.ENFORCE) -> None:
        self._api = api
        self.cached = world
        self.live = world
        self.live_reads = 0
        self.is_synced = True
        self.lags = False
        """True: the cache of ledgers shows `lagging` instead of the server's state."""
        self.lagging: LedgerObject | None = None
        spec = PolicySpec(mode=mode)
        self.policy = PolicyFacts("default", KEY.namespace, "policy-1", 1, spec, at(-86_400), at(-86_400))
        self.live_policy: PolicyFacts | None = None
        """None: the same as in the cache."""

        self.unidentified: tuple[UndecodableObject, ...] = ()
        """The ledgers whose workload cannot be read either."""

    def becomes(self, world: World) -> None:
        """The cluster changes, and the cache sees the change."""
        self.cached = self.live = world

    def synced(self) -> bool:
        return self.is_synced

    def keys(self) -> Iterable[GroupKey]:
        return (KEY,)

    def snapshot(self, key: GroupKey) -> Snapshot:
        return self.cached.snapshot()

    def progress(self, key: GroupKey) -> Progress | None:
        raise NotImplementedError

    def policies(self, namespace: str) -> PolicySet:
        return PolicySet((self.policy,))

    def every_policy(self) -> Iterable[PolicyFacts]:
        return (self.policy,)

    async def read_policies_live(self, namespace: str) -> PolicySet:
        return PolicySet((self.live_policy or self.policy,))

    def ledger_object(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self.lagging if self.lags else self._of(workload_uid)

    def stale(self) -> Mapping[str, datetime]:
        return {}

    def undecodable(self) -> Mapping[str, int]:
        return {}

    def unidentified_ledgers(self) -> Sequence[UndecodableObject]:
        return self.unidentified

    def ledgers_of(self, key: GroupKey) -> Sequence[LedgerObject]:
        return [each for each in self.ledger_objects() if (each.namespace, each.group) == (key.namespace, key.name)]

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

    def drills(self) -> Iterable[DrillFacts]:
        return ()

    def saw_drill(self, body: bytes) -> None:
        raise NotImplementedError

    async def read_incidents_live(self, namespace: str, workload_uid: str) -> Sequence[Incident]:
        raise NotImplementedError

    async def read_config_live(self) -> ConfigFacts | None:
        return None

    async def read_node_live(self, name: str) -> NodeFacts | None:
        return self.live.snapshot().nodes.get(name)

    def subscribe(self, changed: GroupChanged) -> None:
        raise AssertionError("a reconciler is told what to look at")

    async def read_live(self, key: GroupKey) -> Snapshot:
        self.live_reads += 1
        return self.live.snapshot(live=True)

    async def read_ledger_live(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        return self._of(workload_uid)

    def _of(self, workload_uid: str) -> LedgerObject | None:
        return next((group for group in self._api.groups.values() if group.workload_uid == workload_uid), None)


class Ears:
    """`ControllerObserver` that records its calls."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.protections: list[Protection] = []
        self.writes: list[tuple[Ledger, Ledger]] = []
        self.finished: list[tuple[GroupKey, str | None]] = []
        self.leads: list[bool] = []
        self.loss_waits: list[tuple[LossWait, float]] = []
        self.holds: list[bool] = []
        self.reports: list[tuple[GroupKey, AgentFacts]] = []
        self.gone: list[GroupKey] = []

    def decided(self, key: GroupKey, before: Ledger, plan: Plan) -> None:
        self.plans.append(plan)

    def facts_read(self, key: GroupKey, snapshot: Snapshot, policy: Policy | PolicyError | None) -> None:
        pass

    def agents_reported(self, key: GroupKey, facts: AgentFacts) -> None:
        self.reports.append((key, facts))

    def workload_gone(self, key: GroupKey) -> None:
        self.gone.append(key)

    def protection_found(self, key: GroupKey, found: Protection) -> None:
        self.protections.append(found)

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        self.writes.append((before, after))

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        self.finished.append((key, error))

    def queue_waited(self, seconds: float) -> None:
        pass

    def loss_waited(self, cause: LossWait, seconds: float) -> None:
        self.loss_waits.append((cause, seconds))

    def holds_for_another(self, *, holds: bool) -> None:
        self.holds.append(holds)

    def leadership_changed(self, *, leads: bool) -> None:
        self.leads.append(leads)
