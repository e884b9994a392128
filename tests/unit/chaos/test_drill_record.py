"""The RecoveryDrill of one run, as its client knows it."""

from datetime import timedelta

from recovery.chaos.drill_record import DrillRecord
from recovery.core.model.drill import DrilledWorkload, DrillSpec
from recovery.ports import RECOVERY_DRILLS
from recovery.sim.api.client import ModelClient
from recovery.sim.virtual_time import virtual_time
from tests.unit.chaos.world import KEY, UID, ChaosWorld


@virtual_time
async def test_another_drill_of_the_same_name_is_not_that_of_the_run() -> None:
    """The marks of the run have the UID of its own drill. By another UID they would stay on their nodes."""
    world = ChaosWorld()
    spec = DrillSpec(DrilledWorkload("TrainJob", KEY.name, UID), "x", world.clock.now() + timedelta(hours=1))
    api = ModelClient(world.server, "person")
    record = DrillRecord(api, world.clock, KEY, "one")
    await record.create(spec)
    uid = record.uid
    world.server.delete(RECOVERY_DRILLS, "one", namespace=KEY.namespace)
    await DrillRecord(api, world.clock, KEY, "one").create(spec)
    await record.read()
    assert uid
    assert (record.facts, record.uid) == (None, uid)
