"""A controller of this version starts where one of an earlier version stopped during an incident."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from recovery.core.decision.decide import decide
from recovery.core.model.ledger import Ledger, MessageRelation, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, EmitEvent, Plan, ResumeWorkload
from recovery.core.policy.selection import applicable
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_GROUPS, RECOVERY_POLICIES, TRAIN_JOBS
from tests.unit.kube.store_world import JOB_UID, LLM, WORKLOAD_UID, Body, World, job, load, pod

STOPPED = datetime(2026, 11, 21, 12, 50, 7, tzinfo=UTC)
"""The time at which the earlier controller wrote the fixture: its trigger was sent and the Job was ending."""


def of_today(body: Body, created_seconds: int) -> Body:
    """An object created that long after STOPPED. A pod runs and is Ready from that second on."""
    at = (STOPPED + timedelta(seconds=created_seconds)).isoformat().replace("+00:00", "Z")
    body["metadata"]["creationTimestamp"] = at
    for container in body["status"].get("containerStatuses", []):
        container["state"] = {"running": {"startedAt": at}}
    for condition in body["status"].get("conditions", []):
        condition["lastTransitionTime"] = at
    return body


def reconcile(world: World, ledger: Ledger, seconds: int) -> Plan:
    """One reconcile of facts that count as live."""
    snapshot = msgspec.structs.replace(world.llm, live=True)
    assert snapshot.workload is not None
    policy = applicable(world.store.policies("default"), snapshot.workload)
    return decide(snapshot, ledger, policy, STOPPED + timedelta(seconds=seconds))


@pytest.fixture
async def world(world: World) -> World:
    await world.tell(NODES, load("node"))
    await world.tell(RECOVERY_POLICIES, load("recoverypolicy"))
    await world.tell(RECOVERY_GROUPS, load("recoverygroup-v1"))
    return world


async def test_an_incident_of_version_1_goes_on_to_its_end_without_a_second_trigger(world: World) -> None:
    found = world.store.ledger_object(LLM, WORKLOAD_UID)
    assert found is not None
    assert found.ledger.incident is not None
    dying = job()
    dying["metadata"]["deletionTimestamp"] = "2026-11-21T12:50:07Z"
    await world.tell(JOBS, dying)
    plan = reconcile(world, found.ledger, 2)
    assert plan.ledger.phase is Phase.TEARING_DOWN
    plans = [plan]
    await world.tell(JOBS, job(), type_="DELETED")
    await world.tell(JOBS, of_today(job(uid="new", members=4), 4))
    await world.tell(PODS, *(of_today(pod(rank, job_uid="new"), 6) for rank in range(4)))
    for seconds in range(7, 12):
        plans.append(reconcile(world, plans[-1].ledger, seconds))
    assert not [action for plan in plans for action in plan.actions if isinstance(action, DeleteJob)]
    assert plans[-1].ledger.incident is None
    closed, *_ = plans[-1].ledger.history
    assert (closed.id, closed.outcome, closed.attempts) == (found.ledger.incident.id, Outcome.RECOVERED, 1)
    assert plans[-1].ledger.budget.charges == found.ledger.budget.charges, "it was charged already"
    assert JOB_UID not in [each.uid for each in world.llm.jobs]


async def test_a_backoff_of_version_2_is_waited_out_and_the_workload_is_resumed_once(world: World) -> None:
    """The ledger asks for a suspension until 12:51:10."""
    await world.tell(RECOVERY_GROUPS, load("recoverygroup-v2"))
    found = world.store.ledger_object(LLM, WORKLOAD_UID)
    assert found is not None
    open_ = found.ledger.current_incident
    assert (open_.reason, open_.told) == (Reason.DEFAULT_RESTART, MessageRelation.ATTEMPT)
    workload, jobset, suspended = load("trainjob"), load("jobset"), of_today(job(uid="new", members=4), 49)
    workload["metadata"].setdefault("annotations", {})["recovery.trainjob.dev/suspended-by"] = open_.id
    for body in (workload, jobset, suspended):
        body["spec"]["suspend"] = True
    await world.tell(JOBS, job(), type_="DELETED")
    await world.tell(TRAIN_JOBS, workload)
    await world.tell(JOB_SETS, jobset)
    await world.tell(JOBS, suspended)
    waits = reconcile(world, found.ledger, 53)
    assert (waits.actions, waits.ledger.phase, waits.ledger.epoch) == ((), Phase.BACKOFF, 3)
    over = reconcile(world, waits.ledger, 64)
    assert [type(action) for action in over.actions] == [ResumeWorkload, EmitEvent]
    assert over.ledger.epoch == 3
