"""Incidents that a controller of one version begins and one of another version continues.

This module runs under two versions of the package, so it uses only what both have. Under commit 3338a6b, the last one
that wrote schemaVersion 3, it wrote the fixtures beside it:

    git worktree add /tmp/earlier 3338a6b
    cp -r tests/unit/upgrade /tmp/earlier/tests/unit/
    cd /tmp/earlier && PYTHONPATH=. python -m tests.unit.upgrade.scenarios

Under the present version, `test_upgrade_from_v3` continues from each of these ledgers.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

# Imported by name, because these modules differ between the versions.
driver: Any = import_module("tests.unit.core.driver")
NativeRule: Any = vars(import_module("tests.unit.core.groups"))["PodFailureRule"]
Mode, OnExhausted = driver.Mode, driver.OnExhausted

FIXTURES = Path(__file__).parent / "fixtures"
"""One line for each step: its time, its actions, and the ledger that was written then."""
RECORDS = FIXTURES / "records"
"""The first RecoveryIncident of each scenario that has one."""
BREAKER = FIXTURES / "fleet" / "breaker.json"
"""The status of a RecoveryConfig whose circuit breaker is open."""
WORKLOAD_UID = "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"

Step = tuple[float, World, Any]
"""When the controller reconciles, in seconds; the world as it is then; the policy."""


def policy(*args: Any, **settings: Any) -> Any:
    """A policy that leaves to the Job what its podFailurePolicy ignores, as it was before the field existed."""
    made, ways = driver.policy(*args, **settings), vars(driver).get("OnNativeIgnore")
    return made if ways is None else msgspec.structs.replace(made, on_native_ignore=ways.STAND_ASIDE)


def rule(code: int, action: str) -> Any:
    when = {"onExitCodes": {"operator": "In", "values": [code]}}
    return msgspec.convert({"name": "mine", "action": action, "when": when}, driver.Rule)


def natively(code: int) -> Any:
    """The user's own podFailurePolicy ignores that exit code."""
    wanted = {"action": "Ignore", "on_exit_codes": {"operator": "In", "values": [code]}}
    return msgspec.convert(wanted, NativeRule)


def back(world: World, seconds: float, policy_: Any) -> Iterator[Step]:
    """The old group terminates, and the new one comes up."""
    yield seconds, world.job_deleted(seconds), policy_
    world = world.job_deleted(seconds).all_deleted(seconds + 1).recreated(seconds + 5)
    yield seconds + 6, world, policy_
    world = world.all_ready(seconds + 10)
    for later in range(11, 15):
        yield seconds + later, world, policy_


def enforced() -> Iterator[Step]:
    """The controller triggers a restart, and the group comes up."""
    world = training().pod_deleted(3, 0)
    yield 0.2, world, policy()
    yield 0.4, world, policy()
    yield from back(world, 1, policy())


def stood_aside() -> Iterator[Step]:
    """The user's own podFailurePolicy decides, and nothing changes for a long time."""
    enforce = policy()
    world = training(rules=(natively(42),)).pod_failed(2, 42, 0)
    for seconds in (1, 2, 30, 300):
        yield seconds, world, enforce
    whole = world.came_back(2, 302, 310)
    for seconds in (311, 317, 318, 319):
        yield seconds, whole, enforce


def stood_aside_said_more() -> Iterator[Step]:
    """Then another loss follows, and its decision waits until the evidence has settled."""
    enforce = policy(rules=(rule(43, "FailJob"),), may_fail_jobs=True)
    world = training(rules=(natively(42),)).pod_failed(2, 42, 0)
    yield 1, world, enforce
    yield 9, world, enforce
    world = world.pod_failed(1, 1, 20, message="KeyError: 'lr'")
    for seconds in (20.1, 21, 23):
        yield seconds, world, enforce
    yield from back(world, 24, enforce)


def stood_aside_twice() -> Iterator[Step]:
    """Two losses, and the user's own podFailurePolicy decides on both."""
    enforce = policy()
    world = training(rules=(natively(42),)).pod_failed(2, 42, 0)
    yield 1, world, enforce
    world = world.pod_failed(1, 42, 5)
    yield 6, world, enforce
    yield 7, world, enforce
    world = world.pod_failed(0, 42, 8)
    for seconds in (9, 10, 60):
        yield seconds, world, enforce
    whole = world.came_back(0, 61, 70).came_back(1, 61, 70).came_back(2, 61, 70)
    for seconds in (71, 77, 78, 79):
        yield seconds, whole, enforce


def adopted() -> Iterator[Step]:
    """JobSet restarts the group itself."""
    world = training().pod_deleted(3, 0).restarted_by_jobset()
    yield 1, world, policy()
    yield 2, world, policy()
    yield from back(world, 3, policy())


def adopted_under_observe() -> Iterator[Step]:
    """After the record of what Enforce would have done, someone deletes the Job, twice."""
    observe = policy(Mode.OBSERVE)
    world = training().pod_failed(3, 42, 0)
    yield 1, world, observe
    yield 2, world, observe
    world = world.job_deleted(3)
    yield 4, world, observe
    world = world.all_deleted(5).recreated(10)
    yield 11, world, observe
    world = world.all_started(15).restarted_by_jobset()
    yield 16, world, observe
    yield from back(world, 17, observe)


def held_by_budget() -> Iterator[Step]:
    """The budget is exhausted until its window allows another attempt."""
    enforce = policy(limit=1, window_seconds=100)
    world = training().pod_deleted(3, 0)
    yield 0.2, world, enforce
    yield from back(world, 1, enforce)
    world = world.job_deleted(1).all_deleted(2).recreated(6).all_ready(11).pod_deleted(2, 30)
    for seconds in (31, 32, 99, 101):
        yield seconds, world, enforce
    yield from back(world, 102, enforce)


def suspended_by_budget() -> Iterator[Step]:
    """The budget is exhausted, and a held group must occupy no GPUs."""
    enforce = policy(limit=0, on_exhausted=OnExhausted.SUSPEND)
    world = training().pod_deleted(3, 0)
    yield 1, world, enforce
    world = world.with_workload(suspended=True, annotations={"recovery.trainjob.dev/suspended-by": "0d2f5c9e-1"})
    yield 2, world, enforce
    yield 30, world, enforce


def held_by_verdict() -> Iterator[Step]:
    """The same error occurs again early, on another node."""
    may = policy(limits=driver.FleetLimits(may_cordon=True, max_percent=5))
    message = "KeyError: 'lr'"
    world = training(born=-30).pod_failed(2, 134, 0, message=message)
    yield 1, world, may
    world = world.recreated(10).all_ready(20)
    for seconds in (22, 23, 24):
        yield seconds, world, may
    world = world.with_pod(2, node="gpu-9").pod_failed(2, 134, 60, message=message)
    for seconds in (61, 62, 120, 4000):
        yield seconds, world, may
    asked = world.asked("recovery.trainjob.dev/retry", at(4001).isoformat())
    yield 4001.5, asked, may
    yield 4001.7, asked, may


def held_by_fail_job() -> Iterator[Step]:
    """A rule says FailJob, and the JobSet is made to fail."""
    enforce = policy(rules=(rule(42, "FailJob"),), may_fail_jobs=True)
    world = training().pod_failed(2, 42, 0)
    yield 1, world, enforce
    yield 4, world, enforce
    yield 5, world, enforce
    failed = world.jobset_failed(8)
    for seconds in (9, 10, 11):
        yield seconds, failed, enforce


def fail_job_not_allowed() -> Iterator[Step]:
    """A rule says FailJob, and RecoveryConfig does not allow it."""
    enforce = policy(rules=(rule(42, "FailJob"),))
    world = training().pod_failed(2, 42, 0)
    for seconds in (1, 4, 5, 60):
        yield seconds, world, enforce


def observed() -> Iterator[Step]:
    """What Enforce would do is decided once, and the group recovers by itself."""
    observe = policy(Mode.OBSERVE)
    world = training().pod_failed(3, 42, 0)
    for seconds in (1, 2, 60, 3600):
        yield seconds, world, observe
    whole = world.came_back(3, 3601, 3610)
    for seconds in (3611, 3617, 3618, 3619):
        yield seconds, whole, observe


def observed_too_late() -> Iterator[Step]:
    """The policy is switched to Enforce while an incident that only observes is open; then a member is lost again."""
    world = training().pod_failed(3, 42, 0)
    yield 1, world, policy(Mode.OBSERVE)
    enforce = policy(since=10)
    for seconds in (11, 12, 60):
        yield seconds, world, enforce
    world = world.pod_failed(1, 42, 70)
    for seconds in (71, 72, 73, 74):
        yield seconds, world, enforce


def too_late_without_a_verdict() -> Iterator[Step]:
    """The policy is switched to Enforce before a verdict under Observe."""
    rules = (rule(43, "FailJob"),)
    world = training().pod_failed(3, 42, 0)
    yield 0.5, world, policy(Mode.OBSERVE, rules=rules, may_fail_jobs=True)
    for seconds in (1.5, 4, 5, 60):
        yield seconds, world, policy(since=1, rules=rules, may_fail_jobs=True)


def backoff_suspended() -> Iterator[Step]:
    """The second restart in a row waits, with the workload suspended."""
    waits = policy(backoff=driver.Backoff(initial=timedelta(seconds=60)))
    world = training().pod_deleted(3, 0)
    yield 0.2, world, waits
    yield from back(world, 1, waits)
    world = world.job_deleted(1).all_deleted(2).recreated(6).all_ready(11).pod_deleted(2, 30)
    yield 31, world, waits
    yield 32, world, waits
    world = world.job_deleted(32).with_workload(
        suspended=True, annotations={"recovery.trainjob.dev/suspended-by": "0d2f5c9e-2"}
    )
    yield 33, world, waits
    yield 40, world, waits


def backoff_withheld() -> Iterator[Step]:
    """The job has a deadline, so the second restart in a row waits without a suspension."""
    waits = policy(backoff=driver.Backoff(initial=timedelta(seconds=60)))
    job = training(backoff_limit=50).with_workload(active_deadline_seconds=3600)
    world = job.pod_deleted(3, 0)
    yield 0.2, world, waits
    yield from back(world, 1, waits)
    world = world.job_deleted(1).all_deleted(2).recreated(6).all_ready(11).pod_deleted(2, 30)
    for seconds in (31, 32, 50, 151, 152):
        yield seconds, world, waits
    yield from back(world, 153, waits)


def requests_answered() -> Iterator[Step]:
    """A person asks for a restart, a retry and an empty budget: one is carried out, one refused."""
    enforce = policy(limit=1)
    world = training()
    asked = world.asked("recovery.trainjob.dev/retry", at(0).isoformat())
    yield 0.5, asked, enforce
    asked = asked.asked("recovery.trainjob.dev/restart", at(1).isoformat())
    yield 1.5, asked, enforce
    yield 1.7, asked, enforce
    asked = asked.asked("recovery.trainjob.dev/reset-budget", at(2).isoformat())
    yield 2.5, asked, enforce
    yield from back(asked, 3, enforce)


def quarantine_refused() -> Iterator[Step]:
    """A rule says ReplaceNode, and RecoveryConfig allows no quarantine."""
    enforce = policy(rules=(rule(134, "ReplaceNode"),))
    world = training().pod_failed(2, 134, 0)
    for seconds in (1, 4):
        yield seconds, world, enforce
    yield from back(world, 5, enforce)


def storm() -> Iterator[Step]:
    """Nodes are being lost, and the restart waits until no more are lost."""
    assumes = policy(
        fencing=driver.FencingMode.ASSUME_DEAD,
        may_assume_dead=True,
        assume_dead_seconds=0,
        limits=driver.FleetLimits(may_cordon=True, max_percent=5),
    )
    world = training().node_silent("gpu-2", 0).nodes_lost(("gpu-2", 0), ("gpu-50", 0), ("gpu-51", 1))
    for seconds in (2, 3, 4.5, 5):
        yield seconds, world, assumes


def waits_for_capacity() -> Iterator[Step]:
    """After the trigger, one pod finds no node. That is reported once, after a while."""
    enforce = policy()
    world = training().pod_deleted(3, 0)
    yield 0.2, world, enforce
    world = world.job_deleted(1).all_deleted(2).recreated(5).all_scheduled()
    short = world.with_pod(1, node="").unschedulable(1, "0/9 nodes are available")
    for seconds in (6, 40, 41, 100):
        yield seconds, short, enforce
    whole = world.all_ready(110)
    for seconds in (111, 117, 118, 119):
        yield seconds, whole, enforce


SCENARIOS: dict[str, Callable[[], Iterator[Step]]] = {
    each.__name__: each
    for each in (
        enforced,
        stood_aside,
        stood_aside_said_more,
        stood_aside_twice,
        adopted,
        adopted_under_observe,
        held_by_budget,
        suspended_by_budget,
        held_by_verdict,
        held_by_fail_job,
        fail_job_not_allowed,
        observed,
        observed_too_late,
        too_late_without_a_verdict,
        backoff_suspended,
        backoff_withheld,
        requests_answered,
        quarantine_refused,
        storm,
        waits_for_capacity,
    )
}

_TEXTS = {"reason", "note", "message", "why", "incident", "fold"}
"""Fields of actions that each version writes differently."""


def told(action: Any) -> dict[str, Any]:
    """The fields of the action on which the versions agree."""
    fields = {name: value for name, value in json.loads(msgspec.json.encode(action)).items() if name not in _TEXTS}
    return {"type": type(action).__name__, **fields}


def reconcile(controller: Controller, step: Step) -> list[dict[str, Any]]:
    """Carry out one step, and return its actions."""
    seconds, world, controller.policy = step
    before = len(controller.done)
    carry_out = getattr(controller, "reconcile", None) or getattr(controller, "look")  # noqa: B009 - its name in 3338a6b
    carry_out(world, seconds)
    return agreed(controller.done[before:])


def agreed(actions: Iterable[Any]) -> list[dict[str, Any]]:
    """The actions that version 3 also has: it has no totals of the fleet and no Event about a group that hangs, and it
    lets a Job run out of retries while a rank waits for a node."""
    return [told(action) for action in actions if not _is_new(action)]


def _is_new(action: Any) -> bool:
    return (
        type(action).__name__ in {"CountIncidents", "ExtendBackoffLimit"}
        or getattr(action, "reason", "") == "GroupBroken"
    )


def group_of(status: dict[str, Any]) -> bytes:
    """The RecoveryGroup with that status, as the API server returns it."""
    metadata = {"name": "train", "namespace": "ml", "uid": "group-1", "resourceVersion": "1"}
    metadata["creationTimestamp"] = "2026-11-21T12:00:00Z"
    spec = {"group": "train", "workloadRef": {"kind": "TrainJob", "name": "train", "uid": WORKLOAD_UID}}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()


async def record_of(incident: Any) -> Any:
    """The RecoveryIncident as the controller creates it."""
    writer = import_module("recovery.executors.status")
    api = ClientOfThen()
    await writer.LedgerWriter(api).record("ml", writer.WorkloadReference("TrainJob", "train", WORKLOAD_UID), incident)
    return json.loads(msgspec.json.encode(api.body))


class ClientOfThen:
    """The part of 3338a6b's API client that a record needs."""

    body: Any = None

    async def create(self, resource: Any, body: Any, *, namespace: str) -> None:
        self.body = body


def breaker() -> Any:
    """The status of a RecoveryConfig whose circuit breaker has opened."""
    fleet, opens = import_module("recovery.core.fleet"), vars(import_module("recovery.core.quarantine"))["_breaker"]
    futile = tuple(fleet.Futile(f"incident-{number}", at(number)) for number in range(2))
    limits = fleet.FleetLimits(breaker_recoveries=2)
    return json.loads(msgspec.json.encode(fleet.FleetLedger(futile=futile, breaker=opens(futile, limits, at(2)))))


def main() -> None:
    FIXTURES.mkdir(exist_ok=True)
    RECORDS.mkdir(exist_ok=True)
    BREAKER.parent.mkdir(exist_ok=True)
    BREAKER.write_text(json.dumps(breaker(), indent=1) + "\n")
    for name, scenario in SCENARIOS.items():
        controller = Controller()
        steps = []
        for step in scenario():
            actions = reconcile(controller, step)
            steps.append(
                {"seconds": step[0], "actions": actions, "status": json.loads(msgspec.json.encode(controller.ledger))}
            )
        lines = ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)
        (FIXTURES / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        for incident in controller.recorded[:1]:
            (RECORDS / f"{name}.json").write_text(json.dumps(asyncio.run(record_of(incident)), indent=1) + "\n")


if __name__ == "__main__":
    main()
