"""A reconcile names the Lease of its controller in the ledger, and answers the ledger of another installation."""

import msgspec
import pytest

from recovery.core.model.writer_lease import WriterLease
from recovery.ports import JOBS, RECOVERY_GROUPS
from tests.unit.controller.scene import STALE, Scene
from tests.unit.core.world import at

OURS = WriterLease("recovery-system", "lease-b", at(-600), 15)
OLDER = WriterLease("ml-infra", "lease-a", at(-3600), 15)
YOUNGER = WriterLease("ml-infra", "lease-c", at(-60), 15)
AGAIN = msgspec.structs.replace(OURS, uid="lease-d", created_at=at(-1))
"""Our Lease, deleted and created again."""


async def test_each_ledger_names_the_lease_of_its_writer() -> None:
    scene = Scene(lease=OURS)
    await scene.reconcile()
    assert scene.api.ledger.writer == OURS
    assert scene.one_recovery()


async def test_a_controller_without_an_election_names_none() -> None:
    scene = Scene()
    await scene.reconcile()
    assert scene.api.ledger.writer is None


@pytest.mark.parametrize(
    ("found", "claims"),
    [(YOUNGER, True), (OLDER, False), (OURS, False), (AGAIN, False), (None, False)],
    ids=["younger", "older", "ours", "ours, created again", "no election"],
)
async def test_a_ledger_of_a_younger_lease_is_claimed_once_so_that_its_writer_learns_of_us(
    found: WriterLease | None, claims: bool
) -> None:
    scene = Scene(lease=OURS)
    await scene.reconcile()
    await scene.reconcile()
    scene.api.put_group(msgspec.structs.replace(scene.api.ledger, writer=found))
    before = len(scene.api.writes)
    for _ in range(3):
        await scene.reconcile()
    later = scene.api.writes[before:]
    assert len([write for write in later if write.resource == RECOVERY_GROUPS]) == int(claims)
    assert scene.api.ledger.writer == (OURS if claims else found)


async def test_what_another_controller_wrote_first_is_seen_before_the_next_write() -> None:
    scene = Scene(lease=OURS)

    def faster() -> None:
        scene.api.put_group(msgspec.structs.replace(scene.api.ledger, writer=OLDER))

    scene.api.next("patch", RECOVERY_GROUPS, STALE, meanwhile=faster)
    scene.api.next("delete", JOBS, meanwhile=lambda: names.extend(each.writer for each in scene.seen))
    names: list[WriterLease | None] = []
    await scene.reconcile()
    assert OLDER in names
