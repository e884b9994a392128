"""Orphaned ledgers: a RecoveryGroup that a user deletes, and ledgers of jobs that are deleted during an incident."""

import msgspec
import pytest

from recovery.core.model.ledger import Ledger
from recovery.core.model.waits import Suspension
from recovery.ports import (
    JOBS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
    AlreadyExistsError,
    ForbiddenError,
    NotFoundError,
    TryLaterError,
)
from tests.unit.controller.fakes import KEY
from tests.unit.controller.scene import TRIGGERED, Scene, closed, lost
from tests.unit.core.groups import training
from tests.unit.core.world import at

RECORD = "train-0d2f5c9e-1-20261121120000"


async def interrupted() -> Scene:
    """A scene whose job was deleted while its group was restarting. Its ledger still exists."""
    scene = Scene()
    await scene.reconcile()
    scene.api.requests.clear()
    scene.store.becomes(msgspec.structs.replace(lost(), workload=None))
    return scene


# --- a RecoveryGroup that is deleted ---------------------------------------------------------------------------------


async def test_a_ledger_that_was_deleted_after_the_cache_had_shown_it_is_gone_for_us_as_well() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.store.becomes(training(4))
    await scene.reconcile(2)  # the cache has shown our write
    scene.api.groups.clear()
    await scene.reconcile(3)
    assert scene.ears.plans[-1].ledger == Ledger()


async def test_our_own_write_counts_for_as_long_as_the_cache_has_not_shown_it() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.store.lags = True
    scene.store.becomes(lost().job_deleted(1))
    await scene.reconcile(2)
    assert scene.ears.plans[-1].ledger.epoch == 1


async def test_after_its_ledger_was_deleted_in_mid_incident_the_reconcile_starts_from_nothing() -> None:
    scene = Scene()
    scene.api.next("delete", JOBS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.reconcile()
    await scene.reconcile(1)
    scene.api.groups.clear()
    scene.api.requests.clear()
    await scene.reconcile(2)
    assert scene.api.said()[:3] == TRIGGERED[:3]
    assert scene.one_recovery(), "as far as the ledger that is left knows"


# --- a job that is deleted during an incident ------------------------------------------------------------------------


async def test_the_incident_of_a_job_that_was_deleted_is_recorded_as_superseded() -> None:
    scene = await interrupted()
    ledger = scene.api.ledger
    assert await scene.reconcile(9) is None
    assert scene.api.said() == ["create RecoveryIncident"]
    (request,) = scene.api.writes
    spec = request.body["spec"]
    assert (request.name, request.namespace) == (RECORD, KEY.namespace)
    assert spec["workloadRef"] == {"kind": "TrainJob", "name": "train", "uid": "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"}
    assert (spec["outcome"], spec["outcomeReason"], spec["endedAt"]) == (
        "Superseded",
        "JobDeleted",
        "2026-11-21T12:00:09Z",
    )
    assert spec["message"].endswith("; the job was deleted")
    assert all("endedAt" in phase for phase in spec["phases"])
    assert scene.api.ledger == ledger, "the ledger is about to vanish, and no one writes it any more"


async def test_whoever_follows_reports_of_its_agents_is_told_that_the_job_is_gone() -> None:
    scene = await interrupted()
    assert scene.ears.gone == []
    await scene.reconcile(3)
    assert scene.ears.gone == [KEY]


async def test_it_is_recorded_once_however_often_the_group_is_reconciled() -> None:
    scene = await interrupted()
    for seconds in (9, 10, 11):
        await scene.reconcile(seconds)
    assert scene.api.said() == ["create RecoveryIncident"]


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
@pytest.mark.parametrize("where", ["cache", "live"])
async def test_a_job_that_cannot_be_read_is_not_taken_for_deleted(kind: str, where: str) -> None:
    scene = await interrupted()
    gone = scene.store.cached
    unreadable = gone.unreadable("train", kind=kind)
    scene.store.becomes(unreadable)
    if where == "live":
        scene.store.cached = gone
    assert await scene.reconcile(9) is None
    assert scene.api.said() == []
    scene.store.becomes(gone)
    await scene.reconcile(10)
    assert scene.api.said() == ["create RecoveryIncident"]


async def test_a_pod_that_cannot_be_read_does_not_keep_a_deleted_job_from_being_recorded() -> None:
    scene = await interrupted()
    scene.store.becomes(scene.store.cached.unreadable())
    await scene.reconcile(9)
    assert scene.api.said() == ["create RecoveryIncident"]


async def test_one_that_another_process_has_recorded_is_done() -> None:
    scene = await interrupted()
    scene.reconciler = scene.new_process()
    scene.api.next("create", RECOVERY_INCIDENTS, AlreadyExistsError("it exists", status=409))
    await scene.reconcile(9)
    await scene.reconcile(10)
    assert scene.api.said() == ["create RecoveryIncident"]


async def test_one_that_had_closed_before_is_recorded_as_it_closed() -> None:
    scene = await closed()
    scene.store.becomes(msgspec.structs.replace(lost(), workload=None))
    await scene.reconcile(30)
    (request,) = scene.api.writes
    assert request.body["spec"]["outcome"] == "Recovered"


async def test_a_ledger_without_an_incident_leaves_nothing_to_record() -> None:
    scene = Scene()
    scene.api.put_group(Ledger(epoch=3))
    scene.store.becomes(msgspec.structs.replace(lost(), workload=None))
    await scene.reconcile()
    assert scene.api.said() == []


async def test_a_ledger_that_cannot_be_read_leaves_nothing_to_record() -> None:
    scene = await interrupted()
    scene.reconciler = scene.new_process()
    scene.api.put_group(scene.api.ledger, schema_version=-1)
    await scene.reconcile(9)
    assert scene.api.said() == []


async def test_the_latest_that_we_wrote_is_recorded_even_if_the_cache_has_never_shown_it() -> None:
    scene = await interrupted()
    scene.api.groups.clear()
    await scene.reconcile(9)
    assert [request.name for request in scene.api.writes] == [RECORD]
    await scene.reconcile(10)
    assert scene.api.said() == ["create RecoveryIncident"], "and it is forgotten then"


async def test_a_job_that_goes_within_a_reconcile_is_not_forgotten_before_its_incident_is_recorded() -> None:
    scene = Scene()
    await scene.reconcile()
    scene.store.lags = True
    scene.store.live = msgspec.structs.replace(lost(), workload=None)
    await scene.reconcile(2)
    scene.api.groups.clear()
    scene.store.becomes(scene.store.live)
    await scene.reconcile(3)
    assert len(scene.api.sent("create", RECOVERY_INCIDENTS)) == 1


async def test_a_job_of_the_same_name_is_reconciled_beside_it() -> None:
    scene = await interrupted()
    scene.store.becomes(lost().with_workload(uid="second"))
    await scene.reconcile(9)
    assert scene.api.said()[:4] == ["create RecoveryIncident", *TRIGGERED[:3]]


async def test_a_record_that_is_refused_stops_no_recovery_and_is_tried_again() -> None:
    scene = await interrupted()
    scene.store.becomes(lost().with_workload(uid="second"))
    scene.api.next("create", RECOVERY_INCIDENTS, ForbiddenError("no", status=403))
    assert await scene.reconcile(9) == 30, "a failure would hold up the job that is there now"
    assert scene.api.said()[:4] == ["create RecoveryIncident", *TRIGGERED[:3]]
    scene.api.requests.clear()
    await scene.reconcile(10)
    assert scene.api.sent("create", RECOVERY_INCIDENTS) != []


async def test_a_record_that_is_put_off_is_not_forgotten_even_if_the_cache_has_never_shown_the_ledger() -> None:
    scene = await interrupted()
    scene.api.groups.clear()
    scene.api.next("create", RECOVERY_INCIDENTS, TryLaterError("too many requests", status=429))
    with pytest.raises(TryLaterError):
        await scene.reconcile(9)
    (held,) = scene.reconciler.ledgers_written()
    assert held.ledger.incident is not None, "the sweep of records must know of it"
    await scene.reconcile(10)
    assert [request.name for request in scene.api.writes] == [RECORD, RECORD]
    await scene.reconcile(11)
    assert len(scene.api.writes) == 2, "and it is forgotten then"
    assert list(scene.reconciler.ledgers_written()) == []


async def test_no_one_waits_for_a_record_that_has_no_namespace_any_more() -> None:
    scene = await interrupted()
    scene.api.groups.clear()
    scene.api.next("create", RECOVERY_INCIDENTS, NotFoundError("namespaces ml not found", status=404))
    with pytest.raises(NotFoundError):
        await scene.reconcile(9)
    await scene.reconcile(10)
    assert len(scene.api.writes) == 1


async def test_a_job_that_is_replaced_within_a_reconcile_is_recorded_though_the_cache_has_never_shown_its_ledger() -> (
    None
):
    scene = Scene()
    scene.store.lags = True
    await scene.reconcile()
    scene.api.groups.clear()
    scene.store.live = training(4, born=2).with_workload(uid="second")
    await scene.reconcile(3)
    scene.store.becomes(scene.store.live)
    scene.api.requests.clear()
    await scene.reconcile(4)
    assert [request.name for request in scene.api.writes] == [RECORD]


async def test_the_ledger_is_read_of_the_job_that_was_found_and_not_of_the_one_it_replaced() -> None:
    """Without that ledger, the suspension of an open incident would look like one that is no longer wanted."""
    second = lost().with_workload(uid="second")
    scene = Scene(second)
    await scene.reconcile()
    (group,) = scene.api.groups.values()
    assert group.ledger.incident is not None
    scene.store.live = second.job_deleted(1).suspended_by(group.ledger.incident.id)
    incident = msgspec.structs.replace(group.ledger.incident, suspension=Suspension(until=at(60), landed=True))
    ledger = msgspec.structs.replace(group.ledger, incident=incident)
    scene.api.groups = {group.name: msgspec.structs.replace(group, ledger=ledger)}
    scene.reconciler = scene.new_process()
    scene.store.lags = True
    scene.store.cached = lost()
    await scene.reconcile(2)
    assert scene.api.sent("patch", TRAIN_JOBS) == []


async def test_a_ledger_that_was_made_again_is_not_hidden_by_the_one_that_was_deleted() -> None:
    scene = Scene()
    earlier = scene.api.put_group(Ledger(epoch=7))
    scene.api.groups.clear()
    await scene.reconcile()
    scene.store.lags, scene.store.lagging = True, msgspec.structs.replace(earlier, uid="group-0")
    scene.store.becomes(lost().job_deleted(1))
    await scene.reconcile(2)
    assert scene.ears.plans[-1].ledger.epoch == 1
