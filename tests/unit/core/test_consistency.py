"""Each rule of `consistency` finds the world that breaks it. A group that trains breaks none."""

import inspect
import re

import msgspec
import pytest

from recovery.core.model.facts import Condition, ExitFacts
from recovery.core.model.native_policy_facts import PodFailureRule
from tests.unit.core import consistency
from tests.unit.core.consistency import impossible
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

GOOD = training()
IN_PLACE = training(restart_policy="OnFailure")
NODE = GOOD.pod(3).containers[0]
ENDED = ExitFacts(1, "Error", "", at(-100), at(0))
CLEAN = ExitFacts(0, "Completed", "", at(-100), at(0))


def pod(world: World = GOOD, **changes: object) -> World:
    """Changes the pod of rank 3. The store's memory stays as it was."""
    changed = msgspec.structs.replace(world.pod(3), **changes)
    pods = tuple(changed if each.uid == changed.uid else each for each in world.pods)
    return msgspec.structs.replace(world, pods=pods)


def container(world: World = GOOD, **changes: object) -> World:
    return pod(world, containers=(msgspec.structs.replace(NODE, **changes),))


def another_pod(**changes: object) -> World:
    other = msgspec.structs.replace(GOOD.pod(3), **{"name": "other", "uid": "other", **changes})
    return msgspec.structs.replace(GOOD, pods=(*GOOD.pods, other))


def dated(type_: str, seconds: float = -7200) -> tuple[Condition, ...]:
    return (Condition(type_, "True", since=at(seconds)),)


BROKEN: dict[str, World] = {
    "uid-twice": another_pod(uid=GOOD.pod(3).uid, index=7),
    "name-twice": another_pod(name=GOOD.pod(3).name, index=7),
    "two-pods-of-one-index": another_pod(),
    "trained-without-job": msgspec.structs.replace(GOOD, trained_at={"job-9": at(0)}),
    "trained-before-its-job": msgspec.structs.replace(GOOD, trained_at={"job-1": at(-9000)}),
    "gone-pod-without-job": another_pod(job_uid="job-9", gone_at=at(0)),
    "gone-before-created": pod(gone_at=at(-9000)),
    "pod-of-another-name": pod(job_name="other"),
    "pod-before-its-job": pod(created_at=at(-9000)),
    "deleted-before-created": pod(deleting_since=at(-9000), deletion_grace_seconds=30),
    "deletion-without-grace": pod(deleting_since=at(0)),
    "unschedulable-on-a-node": pod(conditions=(Condition("PodScheduled", "False", "Unschedulable"),)),
    "running-without-node": pod(node=""),
    "accepted-without-node": pod(node="", phase="Pending", ready=False, containers=(), accepted_at=at(0)),
    "pending-though-all-run": pod(phase="Pending"),
    "running-before-all-started": pod(containers=(), ready=False),
    "running-though-all-ended": container(running_since=None, exit=ENDED),
    "succeeded-though-some-run": pod(phase="Succeeded", ready=False),
    "succeeded-though-some-failed": pod(container(running_since=None, exit=ENDED), phase="Succeeded", ready=False),
    "failed-though-none-failed": pod(container(running_since=None, exit=CLEAN), phase="Failed", ready=False),
    "failed-though-restarted": IN_PLACE.pod_failed(3, 1, 0),
    "ready-but-not-running": IN_PLACE.container_exited(3, 1, 0).pod_ready(3, 0),
    "ready-before-running": pod(ready_since=at(-3595)),
    "container-in-two-states": container(waiting_reason="CrashLoopBackOff"),
    "ended-before-begun": GOOD.pod_failed(3, 1, -3595),
    "begun-before-its-pod": container(running_since=at(-4000)),
    "begun-before-the-last-end": container(IN_PLACE, restarts=1, last_exit=ENDED, running_since=at(-1)),
    "restarted-without-count": container(IN_PLACE, last_exit=ENDED, running_since=at(1)),
    "restarted-though-never": GOOD.container_restarted(3, 1, 0),
    "negative-count": pod(gpus=-1),
    "condition-before-its-object": GOOD.with_job(conditions=dated("FailureTarget")),
    "attempt-ahead-of-its-jobset": GOOD.with_job(restart_attempt=1),
    "job-before-its-jobset": GOOD.with_jobset(created_at=at(0)),
    "failed-and-complete": GOOD.with_job(conditions=(*dated("Failed", 0), *dated("Complete", 0))),
    "rules-without-never": IN_PLACE.with_job(pod_failure_rules=(PodFailureRule("FailJob"),)),
    "terminal-state-without-condition": GOOD.with_jobset(terminal_state="Failed"),
    "more-restarts-counted-than-made": GOOD.with_jobset(restarts_counted=1),
    "ready-but-unreachable": GOOD.with_node("gpu-3", reachable=False),
    "gone-but-there": GOOD,
}
"""By rule. `found` adds the fault of the last one, because `World` leaves out the nodes that are gone."""


def found(world: World, rule: str) -> list[str]:
    snapshot = world.although(*BROKEN).snapshot()
    if rule == "gone-but-there":
        snapshot = msgspec.structs.replace(snapshot, gone_nodes=frozenset({"gpu-3"}))
    return [each.split(":")[0] for each in impossible(snapshot)]


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_finds_what_breaks_it(rule: str) -> None:
    assert rule in found(BROKEN[rule], rule)


def test_every_rule_has_a_world_that_breaks_it() -> None:
    named = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', inspect.getsource(consistency)))
    assert named == set(BROKEN)


@pytest.mark.parametrize("world", [GOOD, IN_PLACE, GOOD.pod_failed(3, 1, 0), IN_PLACE.container_restarted(3, 1, 0)])
def test_a_world_that_may_be_breaks_none(world: World) -> None:
    assert impossible(world.snapshot()) == []


def test_a_world_that_cannot_be_gives_no_snapshot() -> None:
    with pytest.raises(AssertionError, match="no cluster looks like this: negative-count: pod train-node-0-3-10, gpus"):
        BROKEN["negative-count"].snapshot()


def test_a_rule_is_broken_on_purpose_by_its_name() -> None:
    world = BROKEN["negative-count"].although("negative-count")
    assert world.snapshot().pods[3].gpus == -1
