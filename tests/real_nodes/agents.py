"""The agents in the pods of a training on real nodes, their ranks, and the restarts in place."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.agents import labelled_namespace
from tests.cluster.controller_record import Samples
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import apply, policy
from tests.real_nodes.installation import SYSTEM, Installation
from tests.real_nodes.trainings import Object, Training

_ZYGOTE, _STORE = b"zygote_host", b"store_host"
_METRICS_PORT = 8080


@asynccontextmanager
async def in_labelled_namespace(installation: Installation, **spec: Any) -> AsyncIterator[str]:
    """A namespace whose jobs get the agent, with a policy that permits restarts in place unless `spec` forbids them."""
    plane = installation.cluster.control_plane
    namespace = await labelled_namespace(plane, "agents")
    await apply(plane, namespace, policy(**{"inPlace": {"enabled": True}, **spec}))
    try:
        yield namespace
    finally:
        await plane.kubectl("delete", "namespace", namespace, "--wait=false")


async def agents_are_injected(installation: Installation) -> Object:
    """Wait until the leader has published its authority. Returns `data` of the parameters."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not (data := await parameters(installation)).get("ca.crt"):
            await asyncio.sleep(0.2)
    return data


async def parameters(installation: Installation) -> Object:
    """`data` of the ConfigMap `recovery-agent`. Empty: it is not there."""
    asked = ("get", "configmap", "recovery-agent", "-n", SYSTEM, "--ignore-not-found", "-o", "json")
    said = await installation.cluster.control_plane.kubectl(*asked)
    return dict(json.loads(said)["data"]) if said else {}


async def accepted_reports(installation: Installation) -> float:
    """How many reports of agents the leader has accepted."""
    return (await _scraped(installation)).sum("recovery_agent_reports_total", result="accepted")


@dataclass(frozen=True)
class Measured:
    """The rendezvous in the leader's histogram."""

    count: float
    seconds: float


async def rendezvous_measured(installation: Installation) -> Measured:
    """Those of restarts in place, as agents reported them."""
    found, labels = await _scraped(installation), {"source": "agent", "cause": "RestartInPlace"}
    name = "recovery_rendezvous_duration_seconds"
    return Measured(found.sum(f"{name}_count", **labels), found.sum(f"{name}_sum", **labels))


async def _scraped(installation: Installation) -> Samples:
    url = f"http://{(await installation.leading_pod())['status']['podIP']}:{_METRICS_PORT}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return Samples(await answer.text())


async def worker(training: Training, rank: int) -> int:
    """The process id of that rank, in the machine's own PID namespace.

    The first rank of a container is executed. Later ones are forked from the zygote, so they have its command line, and
    are younger.
    """
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            agent, *others = await training.processes_of_rank(rank)
            children = [pid for pid in others if _parent(pid) == agent and _STORE not in _words(pid)]
            executed = [pid for pid in children if _ZYGOTE not in _words(pid)]
            forked = [pid for pid in children if _ZYGOTE in _words(pid)][1:]
            if executed or forked:
                return (executed or forked)[-1]
            await asyncio.sleep(0.1)


async def permitted(training: Training) -> None:
    """Wait until each agent has begun its zygote, which it does by the permission alone."""
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            for rank in range(training.ranks):
                while not any(_ZYGOTE in _words(pid) for pid in await training.processes_of_rank(rank)):
                    await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"restarts in place are not permitted\n{await training.describe()}") from None


async def has_agent(training: Training) -> list[bool]:
    """Whether each pod of the training has the agent's volume."""
    return [
        any(volume["name"] == "recovery-agent" for volume in pod["spec"]["volumes"]) for pod in await training.pods()
    ]


async def containers(training: Training) -> dict[str, tuple[str, int]]:
    """Pod's UID -> the id of its container and how often the kubelet has restarted it."""
    return {
        pod["metadata"]["uid"]: (status["containerID"], status["restartCount"])
        for pod in await training.pods()
        for status in pod["status"]["containerStatuses"]
    }


async def seconds_to_new_steps(training: Training, rank: int, *, steps: int = 3) -> float:
    """Kill the worker of that rank, and wait until the group has started once more and done that many steps."""
    starts, process = training.starts(), await worker(training, rank)
    os.kill(process, signal.SIGKILL)
    killed_at = time.monotonic()
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            while not (training.starts() > starts and training.steps_since_start() >= steps):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"no new steps after a kill of rank {rank}\n{await training.describe()}") from None
    return time.monotonic() - killed_at


async def records(training: Training, count: int) -> list[Object]:
    """Wait until that many incidents have ended and are recorded. Returns the records, oldest first."""
    await training.closed_incidents(count)
    async with asyncio.timeout(GUARD_SECONDS):
        while len(found := await training.incidents()) < count:
            await asyncio.sleep(0.1)
    return found


def _words(pid: int) -> bytes:
    """Its command line. Empty: it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _parent(pid: int) -> int:
    """0: it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
