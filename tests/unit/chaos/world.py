"""A job on four nodes in the modelled API server, with a stand-in for the controller. Time is virtual."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from recovery.chaos.chaos_run import ChaosRun, RunOutcome
from recovery.chaos.job_state import JobMember, JobState
from recovery.chaos.run_plan import planned
from recovery.chaos.tools import ChaosTools
from recovery.core.drill.verdict import final_cases, worst
from recovery.core.model.drill import DrilledWorkload, DrillFacts
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import SCHEMA_VERSION, Incident
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.standing import Standing
from recovery.kube.incident_records import decode_record
from recovery.kube.projections.drills import decode_drill
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.ports import (
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_DRILLS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    ApiClient,
    ApiRequest,
    PatchKind,
)
from recovery.scenario.experiment import Experiment, read_experiment
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.kinds.nodes import node_kind
from recovery.sim.api.server import ApiServer
from recovery.sim.virtual_time import VirtualClock
from tests.unit.cli.test_status import open_incident

KEY = GroupKey("research", "llm")
UID = "uid-llm"
RANKS = 4
RECOVERED_AFTER_SECONDS = 6.0

FILE = """
name: lose-a-rank
target: {job: research/llm}
seed: 7
"""
POD_KILL = FILE + "chaos:\n- {kind: PodChaos, action: pod-kill, mode: one}\n"
ON_NODES = FILE + (
    "hypothesis: {incidents: 0}\n"
    "slo: {recovery: 20s}\n"
    "chaos:\n"
    "- {kind: PhysicalMachineChaos, action: cordon, mode: one}\n"
    "- {kind: PhysicalMachineChaos, action: taint, mode: one}\n"
    "- {kind: PhysicalMachineChaos, action: condition, mode: one}\n"
)


class FakeKiller:
    """`ProcessKiller` that only notes what it was asked for."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        self.killed.append(f"{namespace}/{pod}/{container}")
        return "killed 1 process"


class ChaosWorld:
    """The cluster. `job` has what a test changes of the state that the engine reads of the job."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        kinds = [kind for kind in core_kinds() if kind.resource != NODES]
        ours = (RECOVERY_CONFIGS, RECOVERY_GROUPS, RECOVERY_DRILLS)
        self.server = ApiServer(
            [
                *kinds,
                replace(node_kind(), tracks_managers=True),
                *(ServedKind(resource=resource) for resource in ours),
                ServedKind(resource=RECOVERY_INCIDENTS, has_status=False),
            ],
            clock=self.clock,
            entropy=random.Random(1),
        )
        self.killer = FakeKiller()
        self.job: dict[str, Any] = {}
        self.notes: list[str] = []
        self.acknowledges = True
        self.acknowledges_after_seconds = 0.0
        self.refusal: Body | None = None
        self.writes_verdicts = True
        self.recovers_after_seconds = RECOVERED_AFTER_SECONDS
        self.incidents = 0
        self.history: list[Body] = []
        for index in range(RANKS):
            self.server.create(NODES, {"metadata": {"name": f"gpu-{index}"}, "spec": {}, "status": {"conditions": []}})
            self.add_pod(index)
        self.server.create(RECOVERY_GROUPS, _group("llm", UID), namespace="research")

    # The objects.

    def add_pod(self, index: int) -> None:
        spec = {
            "nodeName": f"gpu-{index}",
            "containers": [{"name": "node", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        }
        labels = {"jobset.sigs.k8s.io/jobset-name": "llm", "batch.kubernetes.io/job-completion-index": str(index)}
        metadata = {"generateName": f"llm-node-0-{index}-", "labels": labels}
        pod = self.server.create(PODS, {"metadata": metadata, "spec": spec}, namespace="research")
        ready = {"type": "Ready", "status": "True"}
        self.patch(PODS, pod["metadata"]["name"], {"status": {"phase": "Running", "conditions": [ready]}}, "status")

    def pods(self) -> list[Body]:
        return [pod for pod in self.server.objects(PODS) if "deletionTimestamp" not in pod["metadata"]]

    def nodes(self) -> list[Body]:
        """All nodes, without what every write changes."""
        found = []
        for node in self.server.objects(NODES):
            metadata = {
                name: value
                for name, value in node["metadata"].items()
                if name not in {"resourceVersion", "managedFields"}
            }
            found.append({**node, "metadata": metadata})
        return found

    def drills(self) -> list[DrillFacts]:
        return [decode_drill(msgspec.json.encode(body)).value for body in self.server.objects(RECOVERY_DRILLS)]

    def drill(self) -> DrillFacts:
        [found] = self.drills()
        return found

    def patch(self, resource: Any, name: str, body: Any, subresource: str = "") -> None:
        namespace = "research" if resource.namespaced else None
        self.server.patch(resource, name, body, kind=PatchKind.MERGE, namespace=namespace, subresource=subresource)

    def write_group(self, status: Body, name: str = "llm") -> None:
        self.patch(RECOVERY_GROUPS, name, {"status": {"incident": None}}, "status")
        self.patch(RECOVERY_GROUPS, name, {"status": status}, "status")

    # The controller's part.

    async def control(self) -> None:
        """Acknowledges named pods, replaces lost ones in an incident, and judges drills that have ended."""
        while True:
            await self.clock.sleep(0.1)
            for drill in self.drills():
                self._answer(drill)
            lost = sorted(set(range(RANKS)) - {_index(pod) for pod in self.pods()})
            if lost:
                await self.recover(lost)

    def _answer(self, drill: DrillFacts) -> None:
        status: Body = {}
        if self.refusal is not None and drill.status.refusal is None:
            status["refusal"] = self.refusal
        elif self._acknowledges(drill):
            status["named"] = len(drill.spec.pods)
        elif self.writes_verdicts and drill.spec.end is not None and drill.status.verdict is None:
            cases = final_cases(drill, self._recorded(), self.clock.now())
            status = {"cases": msgspec.to_builtins(cases), "verdict": str(worst(cases)), "message": "judged"}
        if status:
            self.patch(RECOVERY_DRILLS, drill.name, {"status": status}, "status")

    def _acknowledges(self, drill: DrillFacts) -> bool:
        age_seconds = (self.clock.now() - drill.created_at).total_seconds()
        due = self.acknowledges and age_seconds >= self.acknowledges_after_seconds
        return due and drill.spec.end is None and drill.status.named < len(drill.spec.pods)

    def _recorded(self) -> list[Incident]:
        body = next(iter(self.server.objects(RECOVERY_GROUPS)))
        present = decode_recovery_group(msgspec.json.encode(body)).value.ledger.incident
        records = [decode_record(msgspec.json.encode(each)).value for each in self.server.objects(RECOVERY_INCIDENTS)]
        found = {each.incident.id: each.incident for each in records}
        if present is not None:
            found.setdefault(present.id, present)
        return list(found.values())

    async def recover(self, lost: list[int]) -> None:
        drill = next((each for each in self.drills() if each.spec.end is None), None)
        status = self.begin_incident("Scheduling", drill)
        await self.clock.sleep(self.recovers_after_seconds)
        for index in lost:
            self.add_pod(index)
        self.close_incident(status)

    def begin_incident(self, phase: str, drill: DrillFacts | None, *, group: str = "llm") -> Body:
        self.incidents += 1
        now = self.stamp()
        status = {**open_incident(phase), "history": list(self.history)} if group == "llm" else open_incident(phase)
        incident = status["incident"]
        incident |= {"id": f"inc-{self.incidents}", "number": self.incidents, "startedAt": now, "detectedAt": now}
        incident["phases"] = [{"phase": phase, "startedAt": now}]
        for attempt in incident.get("attempts", ()):
            attempt["startedAt"] = now
        if drill is not None:
            repeat = drill.spec.pods[-1].repeat
            incident["drill"] = {"name": drill.name, "uid": drill.uid, "repeat": repeat}
        self.write_group(status, group)
        return status

    def close_incident(self, status: Body, **changes: Any) -> None:
        now = self.stamp()
        [span] = status["incident"]["phases"]
        closed = {**status["incident"], "phases": [{**span, "endedAt": now, "idleGpuSeconds": 96.0}]}
        closed["closing"] = {"outcome": "Recovered", "outcomeReason": "Recovered", "endedAt": now, "verified": True}
        self.write_group({**status, "phase": "Healthy", "idleGPUs": 0, "incident": closed | changes})
        self._record(closed | changes)

    def _record(self, closed: Body) -> None:
        """The RecoveryIncident, and the entry of the history that is left of the incident when the next one begins."""
        closing = closed.pop("closing")
        reference = {"kind": "TrainJob", "name": "llm", "uid": UID}
        spec = {"schemaVersion": SCHEMA_VERSION, "group": "llm", "workloadRef": reference, **closed, **closing}
        body = {"metadata": {"name": f"llm-{closed['id']}"}, "spec": spec}
        self.server.create(RECOVERY_INCIDENTS, body, namespace="research")
        names = ("id", "class", "cause", "startedAt", "reason", "drill")
        entry = {name: closed[name] for name in names if name in closed}
        times = {name: closing[name] for name in ("outcome", "outcomeReason", "endedAt")}
        self.history.insert(0, {**entry, **times, "attempts": 1, "idleGpuSeconds": 96.0})

    def stamp(self) -> str:
        return self.clock.now().isoformat().replace("+00:00", "Z")

    # The engine's part.

    async def state(self) -> JobState:
        found = JobState(
            key=KEY,
            at=self.clock.now(),
            workload=DrilledWorkload("TrainJob", "llm", UID),
            absence="",
            drills_allowed=True,
            members=await self.members(),
            standing=Standing.MET,
            protection=Protection(ProtectionReason.PROTECTED, "TrainJob", "llm"),
            protection_words="",
            budget_left=10,
            leads=True,
            leader_words="",
            drills=tuple(self.drills()),
        )
        return msgspec.structs.replace(found, **self.job)

    async def members(self) -> tuple[JobMember, ...]:
        found = [
            JobMember(pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"], _index(pod), 8, "node")
            for pod in self.pods()
        ]
        return tuple(sorted(found, key=lambda member: member.index or 0))

    def client(self) -> ApiClient:
        """Of the person who runs the drill."""
        return ModelClient(self.server, "jane")

    def tools(self, api: ApiClient | None = None) -> ChaosTools:
        return ChaosTools(api or self.client(), self.clock, random.Random(3), self.killer, self)

    async def run(self, text: str, api: ApiClient | None = None) -> RunOutcome:
        run = await self.prepared(text, api)
        return await run.run()

    async def prepared(self, text: str, api: ApiClient | None = None) -> ChaosRun:
        experiment, tools = read(text), self.tools(api)
        plan = await planned(tools, experiment)
        return ChaosRun(
            tools,
            experiment,
            plan,
            name="lose-a-rank-x7k2p",
            started_by="jane",
            note=lambda seconds, text: self.notes.append(text),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        controller = asyncio.create_task(self.control())
        try:
            yield
        finally:
            controller.cancel()
            await asyncio.wait({controller})

    @asynccontextmanager
    async def later(self, seconds: float, happens: Callable[[], object]) -> AsyncIterator[None]:
        """`happens` after so many seconds, while the context lasts."""

        async def wait() -> None:
            await self.clock.sleep(seconds)
            happens()

        async with _meanwhile(wait()):
            yield


@asynccontextmanager
async def _meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


class SendsFirst:
    """An `ApiClient` that calls `before` with each request. What `before` raises, the request raises."""

    def __init__(self, api: ApiClient, before: Callable[[ApiRequest], object]) -> None:
        self._api = api
        self._before = before

    async def send(self, request: ApiRequest) -> bytes:
        self._before(request)
        return await self._api.send(request)

    def watch(self, request: ApiRequest) -> Any:
        raise AssertionError("nothing is watched")


def read(text: str) -> Experiment:
    return read_experiment(text)


def _group(name: str, uid: str) -> Body:
    reference = {"kind": "TrainJob", "name": name, "uid": uid}
    return {"metadata": {"name": name}, "spec": {"workloadRef": reference, "group": name}}


def add_group(world: ChaosWorld, name: str) -> None:
    world.server.create(RECOVERY_GROUPS, _group(name, f"uid-{name}"), namespace="research")


def _index(pod: Body) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
