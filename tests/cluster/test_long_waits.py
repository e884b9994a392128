"""A node is away for 12 minutes, and no other one is free. The ranks give up every 30 seconds, and each job lives on.

One job for each way to wait, on each runtime, side by side, each with nodes that only its pods may use. The Job
controller, JobSet and the scheduler are real. The kubelets and the Job controller wait between two tries as they do by
default.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product

import pytest

from recovery import api_verbs
from recovery.ports import JOB_SETS, NODES, PatchKind
from recovery.sim.training.trace import EventKind
from tests.cluster.acts import lose, set_room
from tests.cluster.conftest import KUBELET, TRAINING, StartsController
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import Fleet, Job, apply, policy, train_job
from tests.cluster.test_recoveries import PREPARED, SHIPPED
from tests.cluster.verdict import remember

pytestmark = pytest.mark.usefixtures("no_complaints")

RANKS, GPUS = 4, 8
AWAY_SECONDS, CAPACITY_WAIT_SECONDS, GIVES_UP_SECONDS = 12 * 60.0, 4 * 60.0, 30.0
LATE_SECONDS = {(SHIPPED, "Hold"): 360.0, (PREPARED, "Hold"): 660.0, (PREPARED, "HoldThenRelease"): 660.0}
"""A kubelet waits up to 5 minutes before it starts a container again, a Job up to 10 before it creates a pod again.
Released groups resume at once. A group of which no pod waits for a node is not released, as while its Job backs off."""
POOL = "tests.recovery.trainjob.dev/pool"


@dataclass(frozen=True)
class Waiter:
    """A job that waits for the node that it has lost."""

    job: Job
    runtime: str
    way: str
    node: str = ""

    def met_after(self, moment: datetime) -> float | None:
        """How many seconds after that moment its ranks met. None: they have not."""
        met = [each.formed_at for each in self.job.fleet.world.rounds(self.job.training) if each.formed_at > moment]
        return (min(met) - moment).total_seconds() if met else None

    def exits(self) -> int:
        return len(self.job.fleet.world.trace.of(self.job.training, EventKind.PROCESS_EXITED))


@asynccontextmanager
async def waiters(installed: ControlPlane, namespace: str) -> AsyncIterator[list[Waiter]]:
    """A job for each way on each runtime. All of them train."""
    kinds = tuple(product((SHIPPED, PREPARED), ("Hold", "Release", "HoldThenRelease")))
    impatient = replace(TRAINING, join_timeout_seconds=GIVES_UP_SECONDS)
    async with Fleet.running(
        installed, nodes=RANKS * len(kinds), training=impatient, kubelet=KUBELET, prefix="wait"
    ) as fleet:
        found = []
        for number, (runtime, way) in enumerate(kinds):
            name = f"{way.lower()}-{runtime}"
            for node in fleet.nodes[number * RANKS : (number + 1) * RANKS]:
                label = {"metadata": {"labels": {POOL: name}}}
                await api_verbs.patch(fleet.api, NODES, node, label, kind=PatchKind.MERGE)
            rules = {"whileWaiting": way, "capacityWait": f"{CAPACITY_WAIT_SECONDS:.0f}s"}
            await apply(installed, namespace, policy(name, teardown={"graceSeconds": 1}, **rules))
            await apply(installed, None, await _runtime_in_pool(installed, runtime, name))
            made = train_job(name, ranks=RANKS, gpus=GPUS, runtime=name)
            made["metadata"]["annotations"] = {"recovery.trainjob.dev/policy": name}
            await apply(installed, namespace, made)
            found.append(Waiter(Job(installed, fleet, namespace, name, RANKS), runtime, way))
        for waiter in found:
            await waiter.job.trains()
        yield found
        for waiter in found:
            await waiter.job.remove()
            await installed.kubectl("delete", "clustertrainingruntime", waiter.job.name)


async def _runtime_in_pool(installed: ControlPlane, runtime: str, pool: str) -> dict[str, object]:
    """The runtime under the pool's name, for pods that only the pool's nodes take."""
    found = json.loads(await installed.kubectl("get", "clustertrainingruntime", runtime, "-o", "json"))
    pods = found["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pods["nodeSelector"] = {POOL: pool}
    head = {"name": pool, "labels": found["metadata"]["labels"]}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": head, "spec": found["spec"]}


@pytest.mark.timeout(2400)
async def test_each_job_waits_and_trains_when_the_node_is_back(
    installed: ControlPlane, namespace: str, controller: StartsController
) -> None:
    async with waiters(installed, namespace) as all_, controller():
        fleet = all_[0].job.fleet
        for number, waiter in enumerate(all_):
            before = await remember(waiter.job)
            all_[number] = replace(waiter, node=before[3].node)
            await set_room(fleet, [before[3].node], room=False)
            await lose(waiter.job, 3)
        lost_at = fleet.clock.now()
        await asyncio.sleep(AWAY_SECONDS)
        assert not [waiter.job.name for waiter in all_ if waiter.met_after(lost_at) is not None]
        back_at = fleet.clock.now()
        await set_room(fleet, [waiter.node for waiter in all_], room=True)
        async with asyncio.timeout(max(LATE_SECONDS.values()) + 60.0):
            while any(waiter.met_after(back_at) is None for waiter in all_):
                await asyncio.sleep(1.0)
        for waiter in all_:
            await assert_waited(waiter, back_at)


async def assert_waited(waiter: Waiter, back_at: datetime) -> None:
    """The job was restarted once, for one charge. Others could have its GPUs for as long as its policy says."""
    [incident] = await waiter.job.closed_incidents(1)
    totals = (await waiter.job.ledger())["totals"]
    late, free = waiter.met_after(back_at), incident.get("releasedGpuSeconds", 0.0)
    print(
        f"{waiter.job.name}: met {late:.0f} s after the node was back, {waiter.exits()} exits, {free:.0f} GPU-seconds"
    )
    assert (incident["outcome"], totals["restarts"], totals["charged"]) == ("Recovered", 1, 1)
    assert late is not None
    assert late < LATE_SECONDS.get((waiter.runtime, waiter.way), 60.0)
    held_for = {"Hold": AWAY_SECONDS, "Release": 0.0, "HoldThenRelease": CAPACITY_WAIT_SECONDS}[waiter.way]
    assert free <= RANKS * GPUS * (AWAY_SECONDS - held_for)
    if (waiter.runtime, waiter.way) not in LATE_SECONDS:
        assert free >= RANKS * GPUS * (AWAY_SECONDS - held_for - 120.0)
    job_sets = {each["metadata"]["name"]: each for each in await waiter.job.items(JOB_SETS)}
    assert "terminalState" not in job_sets[waiter.job.name].get("status", {})
    if (waiter.runtime, waiter.way) == (SHIPPED, "Hold"):
        assert waiter.exits() > 6 + RANKS, "more than the retries of the shipped runtime"
