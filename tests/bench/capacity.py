"""How long the event loop is blocked while many pods wait: 5,000 nodes, 500 groups, 50,000 pods.

Every pod selects one node by its hostname, so no two pods of a group have the same demand. One run has two arms: the
plain definition, where a trigger compares every demand with every node (before), and the index (now). The result is the
longest callback while triggers come, a node changes before each, and pods come and go. The plain arm is measured on a
few groups and multiplied, because all of them would take minutes. CPU time counts, so other programs on the machine do
not affect it.
"""

import asyncio
import gc
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, JobFacts, NodeFacts, PodFacts, Snapshot
from recovery.kube.fleet_facts import FleetIndex
from recovery.kube.pending_groups import PodsToPlace
from recovery.kube.projections.pods import PodRecord
from recovery.kube.snapshots import Parts
from tests.unit.kube.plain_capacity import plain_room
from tests.unit.kube.test_waiting_groups import JOB_SET, TRAIN_JOB
from tests.unit.kube.testing import FakeClock

NODES = 5_000
GROUPS = 500
PODS = 100
"""In each group."""
PLAIN_GROUPS = 2
TRIGGERS = 50
CREATED_AT = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Row:
    """What one arm measured."""

    arm: str
    longest_milliseconds: float
    """The longest callback of the event loop."""
    answered_milliseconds: float
    """From the first query until the answer was known; 0 where a single callback computes the answer."""


class _Feed:
    """The index, and the changes that informers would pass to it."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[GroupKey, dict[str, PodRecord]] = {}
        self.jobs: dict[GroupKey, JobFacts] = {}
        self.to_place = PodsToPlace()
        self.told: list[GroupKey] = []
        self.index = FleetIndex(self.nodes, self.to_place, self._parts, clock=_Clock(), known=self.told.append)

    def _parts(self, key: GroupKey) -> Parts:
        return Parts(TRAIN_JOB, JOB_SET, (self.jobs[key],), tuple(self.pods[key].values()))

    def put_node(self, node: NodeFacts) -> None:
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.index.node_seen(before, node, listed=False)

    def put_pod(self, key: GroupKey, pod: PodFacts) -> None:
        mine = self.pods.setdefault(key, {})
        before = mine.get(pod.name)
        mine[pod.name] = PodRecord(key, "node", pod)
        self.to_place.changed(key, before, mine[pod.name])
        self.index.group_changed(key)

    def snapshot(self, key: GroupKey) -> Snapshot:
        pods = tuple(record.facts for record in self.pods[key].values())
        return Snapshot(key, TRAIN_JOB, JOB_SET.facts, (self.jobs[key],), pods, live=True)


class _Clock(FakeClock):
    """Sleeps return at once: the pauses of the background work are not measured."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def _node(number: int) -> NodeFacts:
    name = f"gpu-{number:04}"
    labels = {"kubernetes.io/hostname": name, "rack": f"rack-{number // 40}", "gpu": "h100", "zone": "a"}
    return NodeFacts(name, ready=True, gpus=8, labels=labels)


def _pod(group: int, number: int) -> PodFacts:
    name = f"gpu-{(group * 97 + number * 41) % NODES:04}"
    demand = Demand(selector=(("kubernetes.io/hostname", name),), gpus=8)
    uid = f"{group}-{number}"
    return PodFacts(uid, uid, f"job-{group}", f"job-{group}", number, CREATED_AT, phase="Pending", demand=demand)


def _fed() -> _Feed:
    feed = _Feed()
    for number in range(NODES):
        feed.put_node(_node(number))
    for group in range(GROUPS):
        key = GroupKey("ml", f"train-{group}")
        name = f"job-{group}"
        feed.jobs[key] = JobFacts(name, name, "1", "jobset", "node", CREATED_AT, parallelism=PODS, completions=PODS)
        for number in range(PODS):
            feed.put_pod(key, _pod(group, number))
    return feed


def _plainly(feed: _Feed) -> Row:
    """The definition before the index: one callback for each trigger."""
    keys = list(feed.pods)[:PLAIN_GROUPS]
    began_seconds = time.process_time()
    for key in keys:
        plain_room(tuple(record.facts.demand for record in feed.pods[key].values()), feed.nodes.values())
    seconds = (time.process_time() - began_seconds) * GROUPS / PLAIN_GROUPS
    return Row("every demand with every node", seconds * 1000, 0.0)


class _Longest:
    """The longest time that one callback of the event loop took."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.milliseconds = 0.0
        self._loop = loop
        self._last_seconds = time.process_time()
        self._handle = loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Every ready task runs once between two turns, so the result is rather more than the longest callback."""
        now_seconds = time.process_time()
        self.milliseconds = max(self.milliseconds, (now_seconds - self._last_seconds) * 1000)
        self._last_seconds = now_seconds
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


async def _indexed(feed: _Feed) -> Row:
    running = asyncio.create_task(feed.index.run())
    longest = _Longest(asyncio.get_running_loop())
    await asyncio.sleep(0)
    keys = list(feed.pods)
    began_seconds = time.process_time()
    while feed.index.facts(feed.snapshot(keys[0])).waiting is None:
        await _told(feed)
    answered = (time.process_time() - began_seconds) * 1000
    for number in range(TRIGGERS):
        key = keys[number % GROUPS]
        feed.put_node(msgspec.structs.replace(feed.nodes[f"gpu-{number:04}"], ready=bool(number % 2)))
        feed.put_pod(key, msgspec.structs.replace(_pod(number, 0), node=f"gpu-{number:04}"))
        feed.index.facts(feed.snapshot(key))
        await asyncio.sleep(0)
    # A node joins, so the index has to check again for every pod whether it fits there.
    feed.put_node(_node(NODES))
    while feed.index.facts(feed.snapshot(keys[0])).waiting is None:
        await _told(feed)
    longest.stop()
    running.cancel()
    return Row("the index", longest.milliseconds, answered)


async def _told(feed: _Feed) -> None:
    while not feed.told:
        await asyncio.sleep(0)
    feed.told.clear()


def measure() -> list[Row]:
    """Both arms."""
    feed = _fed()
    plain = _plainly(feed)
    gc.collect()
    gc.freeze()
    return [plain, asyncio.run(_indexed(feed))]


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = ["| 50,000 pods wait on 5,000 nodes | longest callback CPU ms | answered after CPU ms |", "|---|---|---|"]
    lines += [f"| {row.arm} | {row.longest_milliseconds:.1f} | {row.answered_milliseconds:.0f} |" for row in rows]
    return "\n".join(lines)
