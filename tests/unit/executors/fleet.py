"""Nodes and a RecoveryConfig on the modelled API server, and a store that shows their present or earlier state."""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import NodeFacts, UndecodableObject
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger, Quarantined
from recovery.executors.fleet_ledger import FleetWriter
from recovery.kube.projections.nodes import decode_node
from recovery.kube.projections.recovery import decode_config
from recovery.ports import (
    NODES,
    RECOVERY_CONFIGS,
    ApiClient,
    ApiRequest,
    ConflictError,
    NotFoundError,
    NotLeadingError,
    PatchKind,
    UndecodableError,
)
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from tests.unit.controller.fakes import FakeStore, LedgersApi, SetClock
from tests.unit.core.groups import training
from tests.unit.core.world import at
from tests.unit.fake_api import FakeApi

Body = dict[str, Any]


class Fleet:
    """`nodes` Ready nodes, named from `gpu-0` on, and a RecoveryConfig with that spec. None: no RecoveryConfig."""

    def __init__(self, *, nodes: int = 4, spec: Body | None = None) -> None:
        self.clock = SetClock(10)
        self.server = ApiServer((*core_kinds(), *recovery_kinds()), clock=self.clock, entropy=Random(1))
        self.client = ServerApi(self.server)
        for number in range(nodes):
            self._add_node(f"gpu-{number}")
        if spec is not None:
            named = {"apiVersion": RECOVERY_CONFIGS.api_version, "kind": RECOVERY_CONFIGS.kind}
            self.server.create(RECOVERY_CONFIGS, {**named, "metadata": {"name": CONFIG_NAME}, "spec": spec})

    def _add_node(self, name: str) -> None:
        self.server.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self.patch_node(name, {"spec": {"taints": []}})
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}
        self.server.patch(NODES, name, {"status": {"conditions": [ready]}}, kind=PatchKind.MERGE, subresource="status")

    def patch_node(self, name: str, patch: Body) -> None:
        """Another client writes to the node, with a merge patch."""
        self.server.patch(NODES, name, patch, kind=PatchKind.MERGE)

    def patch_config(self, patch: Body) -> None:
        self.server.patch(RECOVERY_CONFIGS, CONFIG_NAME, patch, kind=PatchKind.MERGE)

    def uid(self, name: str) -> str:
        return str(self.node(name)["metadata"]["uid"])

    def node(self, name: str) -> Body:
        return self.server.get(NODES, name)

    def taints(self, name: str) -> list[str]:
        """Each taint as `KEY=VALUE`, without the key's domain."""
        found = self.node(name)["spec"].get("taints") or ()
        return [f"{each['key'].split('/')[-1]}={each.get('value', '')}" for each in found]

    def cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def annotated(self, name: str) -> bool:
        return QUARANTINE_ANNOTATION in (self.node(name)["metadata"].get("annotations") or {})

    def is_quarantined(self, name: str) -> bool:
        tainted = any(each["key"] == QUARANTINE_TAINT for each in self.node(name)["spec"].get("taints") or ())
        assert tainted == self.annotated(name), "taint and annotation come and go together"
        return tainted

    @property
    def quarantined(self) -> list[str]:
        """The nodes that have our taint."""
        return [each["metadata"]["name"] for each in self.server.objects(NODES) if self.is_quarantined(_name(each))]

    @property
    def status(self) -> Body:
        found: Body = self.server.get(RECOVERY_CONFIGS, CONFIG_NAME).get("status") or {}
        return found

    @property
    def ledger(self) -> FleetLedger:
        return msgspec.convert(self.status, FleetLedger)

    @property
    def entry(self) -> Quarantined:
        (one,) = self.ledger.quarantined
        return one

    def wanted(self, name: str = "gpu-1", incident: str = "inc-1", **fields: Any) -> Quarantined:
        made = Quarantined(
            node=name,
            node_uid=self.uid(name),
            reason="XID 79",
            since=at(5),
            incident=incident,
            node_sign="GpuFaultOnNode",
        )
        return msgspec.structs.replace(made, **fields)

    def writer(self, store: "Store | None" = None, api: ApiClient | None = None) -> FleetWriter:
        """A writer. Each call stands for another process."""
        return FleetWriter(api or self.client, store or Store(self), self.clock)


class ServerApi(FakeApi):
    """The modelled API server. The process that sends can die at one of its patches."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__()
        self._client = ModelClient(server, "controller")
        self.ends_at: int | None = None
        """The process dies at that patch, counted from 1, and nothing that it sends later arrives. None: it lives."""
        self.applies_the_last = False
        """Whether the patch at which it dies is still applied."""

    @property
    def patched(self) -> list[str]:
        """Plural and name of each patch that was sent."""
        return [f"{each.resource.plural} {each.name}" for each in self.requests if each.verb == "patch"]

    def restart(self) -> None:
        """Another process takes over."""
        self.ends_at = None

    async def answer(self, request: ApiRequest) -> bytes:
        patches = len(self.patched)
        if request.verb == "patch" and self.ends_at is not None and patches >= self.ends_at:
            if patches == self.ends_at and self.applies_the_last:
                await self._client.send(request)
            raise NotLeadingError("the process has ended")
        return await self._client.send(request)


class Store(FakeStore):
    """Shows the server as it is. `freeze` stops updates of the cache; live reads are never frozen."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(LedgersApi(), training(1))
        self._fleet = fleet
        self._frozen: tuple[ConfigFacts | None, Mapping[str, NodeFacts]] | None = None
        self.read_nodes: list[str] = []
        self.unreadable = ""
        """The name of the node that a live read cannot read."""
        self.read_configs = 0

    def freeze(self) -> None:
        self._frozen = (self._config(), self._nodes())

    def hide(self, name: str) -> None:
        """Remove that node from the frozen cache."""
        assert self._frozen is not None
        config, nodes = self._frozen
        self._frozen = (config, {each: facts for each, facts in nodes.items() if each != name})

    def see_config(self) -> None:
        """Let the frozen cache catch up on the RecoveryConfig, but not on the nodes."""
        assert self._frozen is not None
        self._frozen = (self._config(), self._frozen[1])

    def config(self) -> ConfigFacts | None:
        return self._frozen[0] if self._frozen is not None else self._config()

    def nodes(self) -> Mapping[str, NodeFacts]:
        return self._frozen[1] if self._frozen is not None else self._nodes()

    async def read_config_live(self) -> ConfigFacts | None:
        self.read_configs += 1
        return self._config()

    async def read_node_live(self, name: str) -> NodeFacts | None:
        self.read_nodes.append(name)
        if name == self.unreadable:
            raise UndecodableError(UndecodableObject("Node", "", name, "", "no"))
        return self._nodes().get(name)

    def _config(self) -> ConfigFacts | None:
        found = self._fleet.server.find(RECOVERY_CONFIGS, CONFIG_NAME)
        return None if found is None else decode_config(msgspec.json.encode(found)).value

    def _nodes(self) -> Mapping[str, NodeFacts]:
        found = (decode_node(msgspec.json.encode(each)).value for each in self._fleet.server.objects(NODES))
        return {each.name: each for each in found}


STALE = ConflictError("the object has been modified", status=409)
GONE = NotFoundError("gone", status=404)


def _name(body: Body) -> str:
    return str(body["metadata"]["name"])
