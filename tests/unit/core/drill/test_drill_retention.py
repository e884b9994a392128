"""Which drills are deleted: those that are over, unless they still count towards the limit of a day."""

import msgspec

from recovery.core.drill.retention import surplus
from recovery.core.model.config import DrillsSpec
from recovery.core.model.drill import DrillEnd, DrillFacts, DrillVerdict
from recovery.core.model.reason import Reason
from tests.unit.core.drills import drill, named
from tests.unit.core.groups import training
from tests.unit.core.world import at

WORLD = training()
HOUR = 3600.0
ONE_IS_KEPT = DrillsSpec(max_per_namespace=1)


def over(name: str, *, hours: float, acknowledged: int = 1) -> DrillFacts:
    """A drill that was created so many hours ago, and ended at once."""
    created = -hours * HOUR
    found = drill(
        named(WORLD, 3),
        name=name,
        created=created,
        acknowledged=acknowledged,
        end=DrillEnd(at(created), Reason.DRILL_DONE),
    )
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, verdict=DrillVerdict.PASSED))


def deleted(*drills: DrillFacts) -> list[str]:
    return [each.name for each in surplus(drills, ONE_IS_KEPT, at(0))]


def test_the_oldest_of_too_many_are_deleted() -> None:
    assert deleted(over("old", hours=30), over("older", hours=40), over("new", hours=25)) == ["older", "old"]


def test_many_drills_make_no_room_below_the_limit_of_a_day() -> None:
    drills = over("counts", hours=23), over("refused", hours=22, acknowledged=0), over("new", hours=1)
    assert deleted(*drills) == ["refused"]
