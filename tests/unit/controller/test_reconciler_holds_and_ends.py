"""Ledgers that a reconcile must not write, decisions that it must stop, and how it handles the end of a group."""

import msgspec
import pytest

from recovery.controller import reconciler
from recovery.controller.readable_ledger import LedgerUnreadableError
from recovery.controller.reconciler import InvariantError
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger, Phase
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.protection import ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import BudgetSpec, PolicyError
from recovery.ports import (
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    AlreadyExistsError,
    ForbiddenError,
)
from tests.unit.controller.scene import Scene, closed, lost
from tests.unit.core.groups import training
from tests.unit.core.world import at

NEWER = SCHEMA_VERSION + 1

# --- ledgers that a reconcile must not write -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "ledger", "why"),
    [
        (NEWER, Ledger(), f"schemaVersion {NEWER}, .* run the controller version that wrote it"),
        (-1, Ledger(message="status.epoch: a string"), "epoch: a string: it holds; correct its status, or delete it"),
    ],
    ids=["newer", "damaged"],
)
async def test_a_ledger_that_cannot_be_read_holds_everything(version: int, ledger: Ledger, why: str) -> None:
    scene = Scene()
    before = scene.api.put_group(ledger, schema_version=version)
    with pytest.raises(LedgerUnreadableError, match=why):
        await scene.reconcile()
    assert scene.api.said() == []
    assert list(scene.api.groups.values()) == [before]
    assert [found.reason for found in scene.ears.protections] == [ProtectionReason.LEDGER_UNREADABLE]


async def test_a_newer_controller_that_takes_over_within_a_reconcile_holds_it() -> None:
    scene = Scene()
    scene.api.put_group(Ledger())
    scene.api.next("patch", RECOVERY_GROUPS, meanwhile=lambda: scene.api.put_group(Ledger(), schema_version=NEWER))
    with pytest.raises(LedgerUnreadableError):
        await scene.reconcile()
    assert scene.api.said() == ["patch RecoveryGroup"]


async def test_a_decision_that_breaks_an_invariant_is_stopped_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bad(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: object) -> Plan:
        trigger = DeleteJob(epoch=5, name="train-node-0", uid="job-1", resource_version="1000")
        return Plan(Ledger(epoch=5), Reason.DEFAULT_RESTART, "because", actions=(trigger,))

    scene = Scene()
    monkeypatch.setattr(reconciler, "decide", bad)
    with pytest.raises(InvariantError, match="ml/train: Epoch: goes from 0 to 5"):
        await scene.reconcile()
    assert scene.api.said() == []
    assert scene.ears.writes == []


async def test_a_policy_that_cannot_be_used_does_nothing_and_says_which() -> None:
    scene = Scene()
    spec = msgspec.structs.replace(scene.store.policy.spec, budget=BudgetSpec(window="a day"))
    scene.store.policy = msgspec.structs.replace(scene.store.policy, spec=spec)
    await scene.reconcile()
    assert scene.api.said() == []
    assert "RecoveryPolicy ml/default: spec.budget.window: 'a day'" in scene.ears.plans[-1].message


async def test_without_a_policy_nothing_happens() -> None:
    scene = Scene()
    scene.store.policy = msgspec.structs.replace(scene.store.policy, deleting=True)
    await scene.reconcile()
    assert scene.api.said() == []


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_train_job_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.store.lags = True
    await scene.reconcile()
    scene.store.becomes(msgspec.structs.replace(lost(), workload=None))
    assert await scene.reconcile() is None
    scene.api.groups.clear()
    scene.store.becomes(training(4))
    await scene.reconcile()
    assert scene.ears.plans[-1].ledger == Ledger(), "our last write is not remembered beyond the job"


async def test_a_train_job_that_goes_within_a_reconcile_ends_it() -> None:
    scene = Scene()
    scene.store.live = msgspec.structs.replace(lost(), workload=None)
    assert await scene.reconcile() is None
    assert scene.api.said() == []


async def test_a_closed_incident_is_recorded_before_the_ledger_forgets_it() -> None:
    scene = await closed()
    found: list[LedgerObject] = []
    scene.api.next("create", RECOVERY_INCIDENTS, meanwhile=lambda: found.extend(scene.api.groups.values()))
    assert await scene.reconcile() is None
    assert scene.api.said() == ["create RecoveryIncident", "patch RecoveryGroup"]
    assert found[0].ledger.incident is not None
    (request,) = scene.api.sent("create", RECOVERY_INCIDENTS)
    assert request.name == "train-0d2f5c9e-1-20261121120000"
    assert request.body["spec"]["outcome"] == "Recovered"
    assert scene.api.ledger.incident is None
    assert scene.api.ledger.phase is Phase.HEALTHY
    assert [entry.id for entry in scene.api.ledger.history] == ["0d2f5c9e-1"]


async def test_an_incident_that_cannot_be_recorded_is_kept() -> None:
    scene = await closed()
    scene.api.next("create", RECOVERY_INCIDENTS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await scene.reconcile()
    assert scene.api.said() == ["create RecoveryIncident"]
    assert scene.api.ledger.incident is not None
    await scene.reconcile()
    assert scene.api.ledger.incident is None


async def test_an_incident_whose_record_exists_moves_to_the_history() -> None:
    scene = await closed()
    scene.api.next("create", RECOVERY_INCIDENTS, AlreadyExistsError("it exists", status=409))
    await scene.reconcile()
    assert scene.api.said() == ["create RecoveryIncident", "patch RecoveryGroup"]
    assert scene.api.ledger.incident is None
    assert len(scene.api.ledger.history) == 1


async def test_a_reconcile_says_when_the_next_one_is_wanted() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.store.becomes(lost().job_deleted(1))
    assert await scene.reconcile(2) == 60, "30 s of grace and 30 s more: then the pods that are left are named"
    assert scene.clock.now() == at(2)
