"""What happens to the fleet in each scenario, and what is measured.

All figures of one run come from one controller, one scenario after the other. Each loss hits another group.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from recovery.ports import JOBS, PODS, RECOVERY_GROUPS, RECOVERY_INCIDENTS
from tests.bench.scale.cluster import Cluster
from tests.bench.scale.controller import Controller
from tests.bench.scale.fleet import Fleet, Group, Pod, stamp
from tests.bench.scale.server import Request, Server

_UID_LENGTH = len("-00000000-0000-0000-0000-000000000000")
_PATIENCE_SECONDS = 300.0
_BURST_SECONDS = 5.0
_RACK = 64
"""Nodes that fall silent at once, but at most each twentieth of the fleet."""


@dataclass(frozen=True)
class Figure:
    """One measured number of a scenario. Less is better."""

    scenario: str
    what: str
    value: float
    digits: int = 0


@dataclass(frozen=True)
class Sizes:
    """How much happens."""

    trials: int
    """Losses at rest for each size of group."""
    bursts: int
    """How often a burst is repeated, each time with a loss in its middle."""
    events: int
    """Pod changes of a burst, all within five seconds."""


class Run:
    """One controller and its fleet."""

    def __init__(self, controller: Controller, server: Server, cluster: Cluster, sizes: Sizes) -> None:
        self.controller = controller
        self.server = server
        self.cluster = cluster
        self.sizes = sizes
        self.figures: list[Figure] = []
        self._unhurt = list(cluster.fleet.groups.values())
        random.Random(1).shuffle(self._unhurt)

    @property
    def fleet(self) -> Fleet:
        return self.cluster.fleet

    def unhurt(self, size: int | None = None) -> list[Group]:
        """The groups that have lost nothing yet."""
        return [group for group in self._unhurt if size is None or group.size == size]

    def group_sizes(self) -> list[int]:
        return sorted({group.size for group in self._unhurt})

    def lose_one(self, group: Group) -> float:
        """One of its pods disappears."""
        self.hurt([group])
        return self.cluster.lose(random.choice(list(group.lives().pods.values())))

    def hurt(self, groups: Iterable[Group]) -> None:
        """No other scenario uses these groups."""
        names = {group.name for group in groups}
        self._unhurt = [group for group in self._unhurt if group.name not in names]

    def note(self, scenario: str, what: str, value: float, digits: int = 0) -> None:
        self.figures.append(Figure(scenario, what, value, digits))

    # What the controller did.

    def firsts(self, since: int, groups: Iterable[Group]) -> Mapping[str, dict[str, float]]:
        """When each group saw its first request of a kind, by kind and name of the group."""
        names = {group.name for group in groups}
        found: dict[str, dict[str, float]] = {"ledger": {}, "claim": {}, "pod": {}, "job": {}}
        for request in self.server.seen[since:]:
            kind, name = _meaning(request)
            if kind and name in names:
                found[kind].setdefault(name, request.at)
        return found

    async def until(self, since: int, kind: str, groups: Sequence[Group]) -> None:
        """Wait until each of the groups has seen such a request, or for the patience."""
        end = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.002 if len(groups) == 1 else 0.2
        while len(self.firsts(since, groups)[kind]) < len(groups) and time.monotonic() < end:
            await asyncio.sleep(pause)

    async def until_recorded(self, since: int, count: int) -> None:
        """Wait until so many incidents are recorded: the groups are whole again."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            seen = self.server.seen[since:]
            if sum(each.verb == "create" and each.plural == RECOVERY_INCIDENTS.plural for each in seen) >= count:
                return
            await asyncio.sleep(0.5)


def _meaning(request: Request) -> tuple[str, str]:
    """What the request does, and to which group."""
    if request.plural == RECOVERY_GROUPS.plural and request.verb == "patch":
        return "ledger", request.name[:-_UID_LENGTH]
    if request.plural == JOBS.plural and request.verb in ("patch", "delete"):
        return "claim" if request.verb == "patch" else "job", request.name.removesuffix("-node-0")
    if request.plural == PODS.plural and request.verb == "delete":
        return "pod", request.name.rpartition("-node-0-")[0]
    return "", ""


def _milliseconds(began: float, at: float | None) -> float:
    return (at - began) * 1000 if at is not None else float("inf")


async def start(run: Run) -> None:
    controller = run.controller
    run.note("start", "until leading, s", controller.leading_after_seconds, 1)
    run.note("start", "until leading, CPU s", controller.leading_cpu_seconds, 2)
    await controller.quiet()
    run.note("start", "after the first reconciles, CPU s", controller.cpu_seconds(), 2)
    run.note("start", "resident memory, MB", controller.resident_mb())


async def lost(run: Run) -> None:
    """A pod disappears while nothing else happens."""
    run.cluster.frozen = True
    for size in run.group_sizes():
        ledger, job, cpu = [], [], []
        began_at = time.monotonic()
        for group in run.unhurt(size)[: run.sizes.trials]:
            since, used = len(run.server.seen), run.controller.cpu_seconds()
            began = run.lose_one(group)
            await run.until(since, "job", [group])
            cpu.append(run.controller.cpu_seconds() - used)
            found = run.firsts(since, [group])
            ledger.append(_milliseconds(began, found["ledger"].get(group.name)))
            job.append(_milliseconds(began, found["job"].get(group.name)))
            await asyncio.sleep(0.3)
            await run.controller.quiet(8)
        name = f"a loss at rest, groups of {size}"
        run.note(name, "loss to ledger, median ms", statistics.median(ledger))
        run.note(name, "loss to ledger, longest ms", max(ledger))
        run.note(name, "loss to Job delete, median ms", statistics.median(job))
        run.note(name, "until the Job's delete, median CPU ms", statistics.median(cpu) * 1000)
        run.note(name, "longest answer of the event loop, ms", run.controller.longest_answer_seconds(began_at) * 1000)
    run.cluster.frozen = False


async def _burst(run: Run, name: str, change: Callable[[], None]) -> None:
    """`change` is called for each event."""
    waits, costs, answers, hindered = [], [], [], []
    events = run.sizes.events
    for _ in range(run.sizes.bursts):
        victim, waited = run.unhurt(run.group_sizes()[0])[0], run.controller.waited_seconds()
        used, since, began, lost_at, sent = run.controller.cpu_seconds(), 0, time.monotonic(), 0.0, 0
        while sent < events:
            while sent < events * min(1.0, (time.monotonic() - began) / _BURST_SECONDS):
                change()
                sent += 1
                if sent == events // 2:
                    run.cluster.frozen, since = True, len(run.server.seen)
                    lost_at = run.lose_one(victim)
            await asyncio.sleep(0.005)
        await run.until(since, "ledger", [victim])
        await run.controller.quiet(30)
        waits.append(_milliseconds(lost_at, run.firsts(since, [victim])["ledger"].get(victim.name)))
        costs.append((run.controller.cpu_seconds() - used) * 1000 / events)
        answers.append(run.controller.longest_answer_seconds(began) * 1000)
        hindered.append(run.controller.waited_seconds() - waited)
        run.cluster.frozen = False
    run.note(name, "loss to ledger, median ms", statistics.median(waits))
    run.note(name, "loss to ledger, longest ms", max(waits))
    run.note(name, "for 1,000 events, median CPU s", statistics.median(costs), 3)
    run.note(name, "longest answer of the event loop, median ms", statistics.median(answers))
    run.note(name, "without a processor, median s", statistics.median(hindered), 2)


def _bystanders(run: Run) -> list[Pod]:
    """The pods of all groups that the bursts leave whole."""
    victims = {group.name for group in run.unhurt(run.group_sizes()[0])[: run.sizes.bursts]}
    return [pod for group in run.unhurt() if group.name not in victims for pod in group.lives().pods.values()]


async def noop(run: Run) -> None:
    """Many pods change in nothing but their resourceVersion."""
    pods, drawn = _bystanders(run), random.Random(2)
    name = f"{run.sizes.events} changes of nothing in {_BURST_SECONDS:.0f} s"
    await _burst(run, name, lambda: run.fleet.pod_changed(drawn.choice(pods)))


async def flips(run: Run) -> None:
    """Many pods become unready and ready again."""
    pods, drawn = _bystanders(run), random.Random(3)

    def flip(pod: Pod) -> None:
        pod.state, pod.since = "unready" if pod.state == "running" else "running", stamp()
        run.fleet.pod_changed(pod)

    name = f"{run.sizes.events} flips of readiness in {_BURST_SECONDS:.0f} s"
    await _burst(run, name, lambda: flip(drawn.choice(pods)))
    for pod in pods:
        if pod.state == "unready":
            flip(pod)
    await run.controller.quiet()


async def storm(run: Run) -> None:
    """Every group that is left loses a pod at the same moment."""
    groups = run.unhurt()
    name = f"{len(groups)} groups lose a pod at once"
    since, used, began = len(run.server.seen), run.controller.cpu_seconds(), time.monotonic()
    waited = run.controller.waited_seconds()
    for group in groups:
        run.lose_one(group)
    await run.until_recorded(since, len(groups))
    found = run.firsts(since, groups)
    run.note(name, "last ledger, s", _last(began, found["ledger"], groups), 2)
    run.note(name, "last claim, s", _last(began, found["claim"], groups), 2)
    run.note(name, "median Job delete, s", statistics.median(found["job"].values()) - began if found["job"] else 0.0, 2)
    run.note(name, "last Job delete, s", _last(began, found["job"], groups), 2)
    run.note(name, "CPU s", run.controller.cpu_seconds() - used, 1)
    run.note(name, "without a processor, s", run.controller.waited_seconds() - waited, 2)
    run.note(name, "longest answer of the event loop, ms", run.controller.longest_answer_seconds(began) * 1000)
    run.note(name, "resident memory, MB", run.controller.resident_mb())


def _last(began: float, at: Mapping[str, float], groups: Sequence[Group]) -> float:
    return max(at.values()) - began if len(at) == len(groups) else float("inf")


async def rack(run: Run) -> None:
    """The nodes of a rack become silent. Each has pods of one group."""
    groups = run.unhurt()[: min(_RACK, len(run.fleet.nodes) // 20)]
    names = {next(iter(group.lives().pods.values())).node for group in groups}
    hit = {pod.job.group.name: pod.job.group for pod in run.fleet.pods.values() if pod.node in names}
    groups = list(hit.values())
    name = f"{len(names)} nodes with {len(groups)} groups fall silent"
    since, began = len(run.server.seen), time.monotonic()
    run.cluster.silence([run.fleet.nodes[each] for each in names])
    run.hurt(groups)
    await run.until_recorded(since, len(groups))
    found = run.firsts(since, groups)
    run.note(name, "last ledger, s", _last(began, found["ledger"], groups), 2)
    run.note(name, "last claim, s", _last(began, found["claim"], groups), 2)
    run.note(name, "last Job delete, s", _last(began, found["job"], groups), 2)
    run.note(name, "longest answer of the event loop, ms", run.controller.longest_answer_seconds(began) * 1000)


async def big(run: Run) -> None:
    """One after the other, the largest groups lose a pod and are recreated."""
    size = run.group_sizes()[-1]
    job, ledger, cpu, requests = [], [], [], []
    began_at = time.monotonic()
    for group in run.unhurt(size)[: run.sizes.trials]:
        since, used = len(run.server.seen), run.controller.cpu_seconds()
        began = run.lose_one(group)
        await run.until_recorded(since, 1)
        found = run.firsts(since, [group])
        ledger.append(_milliseconds(began, found["ledger"].get(group.name)))
        job.append(_milliseconds(began, found["job"].get(group.name)))
        cpu.append(run.controller.cpu_seconds() - used)
        requests.append(len(run.server.seen) - since)
        await run.controller.quiet(20)
    name = f"a recreation of {size} pods"
    run.note(name, "loss to ledger, median ms", statistics.median(ledger))
    run.note(name, "loss to Job delete, median ms", statistics.median(job))
    run.note(name, "median CPU s", statistics.median(cpu), 2)
    run.note(name, "median requests", statistics.median(requests))
    run.note(name, "longest answer of the event loop, ms", run.controller.longest_answer_seconds(began_at) * 1000)


SCENARIOS: Mapping[str, Callable[[Run], Awaitable[None]]] = {
    "start": start,
    "lost": lost,
    "noop": noop,
    "flips": flips,
    "rack": rack,
    "storm": storm,
    "big": big,
}
