"""Every action reaches its executor. An overtaken action is decided again, and a refusal is reported once."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from recovery.controller import reconciler
from recovery.controller.reconciler import RestlessGroupError
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import Action, DeleteJobSet, FailJobSet, JobRef, Plan, ResumeWorkload, SuspendWorkload
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.ports import (
    AGENT_PARAMETERS,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    RECOVERY_GROUPS,
    TRAIN_JOBS,
    ConflictError,
    ForbiddenError,
    UnknownOutcomeError,
)
from tests.unit.controller.scene import STALE, Scene
from tests.unit.core.decision.test_agent_blocks import pulling
from tests.unit.core.groups import training

UID = "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"
SUSPEND = SuspendWorkload(1, "0d2f5c9e-1", UID, None)
RESUME = ResumeWorkload(UID, "0d2f5c9e-1", suspended=True)
DELETE = DeleteJobSet(1, "train", "jobset-1", "7")
FAIL = FailJobSet(1, "train", "jobset-1", Reason.BUDGET_EXHAUSTED, "enough")
FAIL_BY_JOB = FailJobSet(1, "train", "jobset-1", Reason.BUDGET_EXHAUSTED, "enough", JobRef("train-node-0", "job-1"))
FORBIDDEN = ForbiddenError("jobs is forbidden", status=403)


def asks_for(monkeypatch: pytest.MonkeyPatch, *actions: Action) -> Scene:
    """A scene in which every decision has these actions."""

    def decided(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Plan:
        return Plan(ledger, Reason.DEFAULT_RESTART, "because", actions=actions)

    scene = Scene(training(4))
    monkeypatch.setattr(reconciler, "decide", decided)
    metadata = {"uid": UID, "resourceVersion": "7"}
    scene.api.objects[TRAIN_JOBS, "train"] = {"metadata": metadata, "spec": {}}
    scene.api.objects[JOB_SETS, "train"] = {"metadata": {**metadata, "uid": "jobset-1"}, "status": {}}
    return scene


@pytest.mark.parametrize(
    ("action", "request_"),
    [
        (SUSPEND, "patch TrainJob"),
        (RESUME, "patch TrainJob"),
        (DELETE, "delete JobSet"),
        (FAIL, "patch JobSet"),
        (FAIL_BY_JOB, "patch Job"),
    ],
)
async def test_each_action_is_one_write(monkeypatch: pytest.MonkeyPatch, action: Action, request_: str) -> None:
    scene = asks_for(monkeypatch, action)
    await scene.reconcile()
    assert scene.api.said() == [request_]


@pytest.mark.parametrize("action", [SUSPEND, RESUME])
async def test_a_bare_jobset_is_suspended_and_resumed_itself(monkeypatch: pytest.MonkeyPatch, action: Action) -> None:
    scene = asks_for(monkeypatch, msgspec.structs.replace(action, workload_uid="jobset-1"))
    scene.api.objects[JOB_SETS, "train"]["spec"] = {}
    scene.store.becomes(training(4).with_workload(kind="JobSet", uid="jobset-1"))
    await scene.reconcile()
    assert scene.api.said() == ["patch JobSet"]


@pytest.mark.parametrize(
    ("action", "verb", "resource"),
    [(SUSPEND, "patch", TRAIN_JOBS), (DELETE, "delete", JOB_SETS), (FAIL, "patch", JOB_SETS)],
)
async def test_a_action_that_is_stale_is_decided_again_on_live_facts(
    monkeypatch: pytest.MonkeyPatch, action: Action, verb: str, resource: Any
) -> None:
    scene = asks_for(monkeypatch, action)
    scene.api.next(verb, resource, ConflictError("the object has been modified", status=409))
    await scene.reconcile()
    assert scene.store.live_reads == 1
    assert len(scene.api.sent(verb, resource)) == 2


# --- an action that is always refused --------------------------------------------------------------------------------


async def test_a_refusal_that_lasts_is_written_once() -> None:
    scene = Scene()
    written = []
    for seconds in range(1, 5):
        scene.api.next("delete", JOBS, FORBIDDEN)
        with pytest.raises(ForbiddenError):
            await scene.reconcile(seconds)
        written.append(len(scene.api.sent("patch", RECOVERY_GROUPS)))
    assert written == [2, 2, 2, 2], "the decision, and that it was refused; nothing for the tries that follow"
    assert scene.api.ledger.reason is Reason.API_REFUSES
    assert len(scene.api.sent("delete", JOBS)) == 4


async def test_a_action_that_succeeds_after_all_takes_its_refusal_back() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, FORBIDDEN)
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    scene.api.requests.clear()
    await scene.reconcile(2)
    assert scene.api.said() == ["delete Job", "patch Job", *3 * ["delete Pod"], "patch RecoveryGroup"]
    assert "refuses" not in scene.api.ledger.message
    assert scene.one_recovery()


async def test_a_action_that_is_overtaken_after_a_refusal_is_decided_again_before_anything_is_said() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, FORBIDDEN)
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    scene.api.requests.clear()
    scene.api.next("delete", JOBS, STALE)
    await scene.reconcile(2)
    assert scene.api.said() == ["delete Job", "delete Job", "patch Job", *3 * ["delete Pod"], "patch RecoveryGroup"]


# --- the agent is left out -------------------------------------------------------------------------------------------


def blocked_by_the_agent(parameters_in: str | None = "recovery-system") -> Scene:
    """A group that waits for the agent's image since a minute. `parameters_in` None: no agents are answered. The
    reconciler adds that to what the store knows."""
    scene = Scene(msgspec.structs.replace(pulling(), leaves_out_agents=False))
    scene.agents.parameters_in = parameters_in
    scene.api.objects[CONFIG_MAPS, AGENT_PARAMETERS] = {"metadata": {"resourceVersion": "7"}, "data": {}}
    return scene


async def test_the_agent_is_left_out_after_the_ledger_and_before_the_trigger() -> None:
    scene = blocked_by_the_agent()
    await scene.reconcile(60)
    assert scene.api.said()[:4] == ["create RecoveryGroup", "patch RecoveryGroup", "patch ConfigMap", "delete Job"]
    (write,) = scene.api.sent("patch", CONFIG_MAPS)
    assert write.namespace == "recovery-system"
    assert write.body[1] == {"op": "add", "path": "/data/without", "value": "ml/train\n"}


@pytest.mark.parametrize(
    ("error", "raised", "tries"),
    [
        (FORBIDDEN, ForbiddenError, 1),
        (ConflictError("changed", status=409), RestlessGroupError, 3),
        (UnknownOutcomeError("the connection was lost"), UnknownOutcomeError, 1),
    ],
)
async def test_a_job_that_could_not_be_named_is_not_deleted_and_a_new_process_does_both(
    error: Exception, raised: type[Exception], tries: int
) -> None:
    scene = blocked_by_the_agent()
    scene.api.next("patch", CONFIG_MAPS, error, times=tries)
    with pytest.raises(raised):
        await scene.reconcile(60)
    assert (len(scene.api.sent("patch", CONFIG_MAPS)), scene.api.sent("delete", JOBS)) == (tries, [])
    scene.reconciler = scene.new_process()
    await scene.reconcile(70)
    assert len(scene.api.sent("patch", CONFIG_MAPS)) == tries + 1
    assert len(scene.api.sent("delete", JOBS)) == 1
    ledger = scene.api.ledger
    assert (ledger.epoch, ledger.totals.restarts, ledger.totals.charged, ledger.agent_left_out) == (1, 1, 0, True)


async def test_a_job_that_is_named_already_is_only_deleted() -> None:
    """The process ended after it had named the job."""
    scene = blocked_by_the_agent()
    scene.api.objects[CONFIG_MAPS, AGENT_PARAMETERS]["data"] = {"without": "ml/train\n"}
    await scene.reconcile(60)
    assert (scene.api.sent("patch", CONFIG_MAPS), len(scene.api.sent("delete", JOBS))) == ([], 1)


async def test_a_controller_that_answers_no_agents_leaves_none_out() -> None:
    scene = blocked_by_the_agent(None)
    await scene.reconcile(60)
    assert scene.api.said() == []
