"""Draws a trial of an elastic group from a seed: its sizes, and what appears, leaves, dies and crashes around it.

This is another family of trials, with the admission policy installed, so that those of `plan_generator` do not change.
"""

import random
from collections.abc import Iterator, Mapping

from recovery.core.model.pinned_policy import PinnedElastic
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import NATIVE_CODE
from recovery.sim.trials.plan import RACK_NODES, FaultRates, JobPlan, TrialPlan

ACTIVE_SECONDS = 1800.0
HEALING_SECONDS = 1200.0
"""After three growths that were undone, a group waits for eight times `growBackAfter`."""
REPLICAS = 2
_RUNTIMES = (PlannedRuntime.PREPARED, PlannedRuntime.JOINED, PlannedRuntime.JOINED, PlannedRuntime.NATIVE)
_AVOIDS: Mapping[str, object] = {
    "name": "ill",
    "when": {"onNodeConditions": [{"type": "GpuUnhealthy", "status": "True"}]},
    "action": "AvoidNode",
}
_SHRINKS: Mapping[str, object] = {
    "name": "rack",
    "when": {"onClass": ["NodeLost"]},
    "action": "Shrink",
}


def draw_elastic_plan(seed: int) -> TrialPlan:
    """The same seed gives the same plan."""
    chance = random.Random(f"elastic {seed}")
    job = _job(chance)
    spares = chance.choice((0, 0, 0, 1, 2))
    others = (_other(chance),) if chance.random() < 0.2 else ()
    rough = chance.random() < 0.4
    rates = FaultRates(process=0.003, request=0.01, line=0.002) if rough else FaultRates()
    return TrialPlan(
        seed=seed,
        jobs=(job, *others),
        faults=tuple(_faults(chance, job, spares, sum(each.pods for each in (job, *others)))),
        rates=rates,
        active_seconds=ACTIVE_SECONDS,
        healing_seconds=HEALING_SECONDS,
        replicas=REPLICAS,
        config={"allow": {"cordon": True, "assumeDead": True}},
        spare_nodes=spares,
        birth_settings=True,
    )


def rivals_plan() -> TrialPlan:
    """Three groups lose a node each, one after the other, and one node comes back long before the others."""
    elastic = {"minNodes": 1, "maxNodes": 4, "shrinkAfter": "20s", "growBackAfter": "60s"}
    fencing = {"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}}
    policy = {"mode": "Enforce", "backoff": {"initial": "0s"}, "elastic": elastic, "teardown": fencing}
    jobs = tuple(
        JobPlan(
            namespace=f"team-{name}",
            name=name,
            runtime=PlannedRuntime.PREPARED,
            pods=4,
            grace_seconds=5,
            policy=policy,
        )
        for name in ("one", "two", "three")
    )
    faults = tuple(
        TrialFault(
            FaultKey("world", number, FaultKind.NODE_POWER_LOSS),
            600.0 if number == 0 else 900.0,
            100.0 + 150 * number,
            str(job),
            (0,),
            0,
            Sign.NONE,
        )
        for number, job in enumerate(jobs)
    )
    return TrialPlan(
        seed=5,
        jobs=jobs,
        faults=faults,
        rates=FaultRates(),
        active_seconds=1000.0,
        healing_seconds=600.0,
        replicas=REPLICAS,
        config={"allow": {"assumeDead": True}},
        spare_nodes=0,
        birth_settings=True,
    )


def elastic_of(job: JobPlan) -> PinnedElastic:
    """The elastic settings of its policy as the controller reads them, computed without the controller."""
    said = (job.policy or {})["elastic"]
    return PinnedElastic(
        min_nodes=said["minNodes"],
        max_nodes=said["maxNodes"],
        allowed_sizes=tuple(said.get("allowedSizes", ())),
        multiple_of=said.get("multipleOf", 1),
        shrink_after_seconds=float(said["shrinkAfter"].removesuffix("s")),
        grow_back_after_seconds=float(said["growBackAfter"].removesuffix("s")),
    )


def _job(chance: random.Random) -> JobPlan:
    pods = chance.choice((8, 9, 12, 16))
    rules = [rule for rule in (_AVOIDS, _SHRINKS) if chance.random() < 0.4]
    policy: dict[str, object] = {
        "mode": "Enforce",
        "budget": {"limit": 50, "window": "24h"},
        "backoff": {"initial": chance.choice(("0s", "0s", "2s", "10s")), "max": "1m", "resetAfter": "1m"},
        "elastic": _elastic(chance, pods),
        "teardown": {"fencing": {"mode": "AssumeDead", "assumeDeadAfter": chance.choice(("0s", "10s"))}},
        **({"rules": rules} if rules else {}),
    }
    return JobPlan(
        namespace="team-a",
        name="elastic",
        runtime=chance.choice(_RUNTIMES),
        pods=pods,
        grace_seconds=chance.choice((5, 30)),
        policy=policy,
    )


def _elastic(chance: random.Random, pods: int) -> dict[str, object]:
    least, most = (
        chance.choice((1, pods // 2, pods // 2, pods // 2, pods - 2)),
        chance.choice((pods, pods, pods - 1, pods + 4)),
    )
    elastic: dict[str, object] = {
        "minNodes": least,
        "maxNodes": most,
        "shrinkAfter": chance.choice(("0s", "20s", "60s")),
        "growBackAfter": chance.choice(("30s", "60s", "90s")),
    }
    match chance.random():
        case share if share < 0.25:
            sizes = [size for size in range(least, most + 1) if chance.random() < 0.5]
            elastic["allowedSizes"] = sizes or [least]
        case share if share < 0.5:
            elastic |= {"multipleOf": 2}
    return elastic


def _other(chance: random.Random) -> JobPlan:
    """A job that is not elastic. It takes the nodes that it needs before a smaller group gets any."""
    runtime = PlannedRuntime.PREPARED
    policy: dict[str, object] = {
        "mode": "Enforce",
        "teardown": {"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}},
    }
    return JobPlan(
        namespace="team-b", name="plain", runtime=runtime, pods=chance.choice((2, 4)), grace_seconds=5, policy=policy
    )


def _faults(chance: random.Random, job: JobPlan, spares: int, pods: int) -> Iterator[TrialFault]:
    """A rack is lost first, so that most groups are smaller for a while. Then other faults follow."""
    numbers = iter(range(1000))

    def fault(
        kind: FaultKind,
        at_seconds: float,
        seconds: float = 0.0,
        *,
        indexes: tuple[int, ...] = (0,),
        node: str = "",
        code: int = 0,
    ) -> TrialFault:
        key = FaultKey("world", next(numbers), kind)
        hits = "" if node else str(job)
        at_seconds = round(min(at_seconds, ACTIVE_SECONDS - seconds - 30.0), 1)
        return TrialFault(key, round(seconds, 1), at_seconds, hits, () if node else indexes, code, Sign.NONE, node=node)

    def rank() -> tuple[int, ...]:
        return (chance.randrange(job.pods),)

    for spare in range(pods, pods + spares):  # some of them appear later
        if chance.random() < 0.6:
            yield fault(FaultKind.NODE_DRAIN, 1.0, chance.uniform(300, 1000), node=f"node-{spare}")
    lost_at = chance.uniform(90, 150)
    returns_after = chance.choice((60.0, 300.0, 600.0, 1000.0))
    match chance.random():
        case share if share < 0.6:
            yield fault(FaultKind.RACK_POWER_LOSS, lost_at, returns_after, indexes=rank())
        case share if share < 0.8:
            for number in range(chance.choice((1, 2, RACK_NODES))):
                yield fault(FaultKind.NODE_POWER_LOSS, lost_at + 5 * number, returns_after, indexes=(number,))
        case _:
            for number in range(chance.choice((1, 3))):
                yield fault(FaultKind.NODE_REMOVE, lost_at + number, returns_after, indexes=(number,))
    meanwhile = (
        FaultKind.POD_KILL,
        FaultKind.CONTAINER_KILL,
        FaultKind.NODE_POWER_LOSS,
        FaultKind.RACK_POWER_LOSS,
        FaultKind.USER_DELETE_JOB,
        FaultKind.USER_RESTART,
        FaultKind.USER_SUSPEND,
        FaultKind.NODE_UNHEALTHY,
        FaultKind.PROCESS_KILL,
        FaultKind.MANAGER_STALL,
        FaultKind.JOBSET_STALL,
    )
    weights = (5, 5, 2, 2, 4, 1, 1, 3, 4, 1, 1)
    lasts = {
        FaultKind.NODE_POWER_LOSS: (60.0, 600.0),
        FaultKind.RACK_POWER_LOSS: (60.0, 600.0),
        FaultKind.NODE_UNHEALTHY: (60.0, 300.0),
        FaultKind.PROCESS_KILL: (2.0, 60.0),
        FaultKind.USER_SUSPEND: (20.0, 120.0),
        FaultKind.MANAGER_STALL: (5.0, 40.0),
        FaultKind.JOBSET_STALL: (5.0, 40.0),
    }
    for kind in chance.choices(meanwhile, weights, k=chance.choice((1, 2, 4, 6))):
        seconds = chance.uniform(*lasts.get(kind, (0.0, 0.0)))
        at_seconds = chance.choice((lost_at + chance.uniform(0, 120), chance.uniform(200, ACTIVE_SECONDS - 100)))
        code = NATIVE_CODE if job.runtime is PlannedRuntime.NATIVE and chance.random() < 0.7 else 1
        indexes = tuple(range(chance.choice((1, REPLICAS)))) if kind is FaultKind.PROCESS_KILL else rank()
        yield fault(kind, at_seconds, seconds, indexes=indexes, code=code if kind is FaultKind.CONTAINER_KILL else 0)
    if chance.random() < 0.5:  # free nodes come and go
        begins = lost_at + chance.uniform(100, 600)
        every_seconds = chance.choice((40.0, 60.0))
        for number in range(chance.choice((6, 12, 20))):
            yield fault(FaultKind.NO_CAPACITY, begins + every_seconds * number, 20.0)
