"""How many signs an incident has: the ledger counts all of them, and has the words of the first ones."""

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.incident.evidence_counts import (
    MAX_EVIDENCE_COUNTS,
    MEMBER_MISSING,
    MEMBER_REPLACED,
    counted,
    first_seen,
    losses,
)
from recovery.core.incident.lifecycle import MAX_EVIDENCE
from recovery.core.model.evidence_count import EvidenceCount
from recovery.core.sentences import render
from tests.unit.core.driver import Controller, observing
from tests.unit.core.groups import training
from tests.unit.core.world import World, whole


def deleted(world: World, *ranks: int, seconds: float = 0) -> World:
    for rank in ranks:
        world = world.pod_deleted(rank, seconds)
    return world


def test_a_group_of_sixteen_that_is_deleted_within_a_second_says_so() -> None:
    controller = Controller()
    controller.reconcile(deleted(training(16), *range(16)), 0.5)
    assert controller.incident.evidence_counts == (EvidenceCount("PodDeleted", 16, "", whole(0), whole(0)),)
    assert controller.incident.message.startswith("16 pods were deleted within 1 s; the first of them: pod train-")


def test_losses_that_come_in_later_are_counted_once() -> None:
    controller = observing()
    world = deleted(training(16), 0, 1, 2)
    controller.reconcile(world, 0.5)
    world = deleted(world, *range(3, 16), seconds=1)
    controller.reconcile(world, 1.5)
    controller.reconcile(world, 2.5)
    assert controller.incident.evidence_counts == (EvidenceCount("PodDeleted", 16, "", whole(0), whole(1)),)


def test_a_thousand_ranks_do_not_grow_the_ledger() -> None:
    small, large = Controller(), Controller()
    small.reconcile(training(32).all_deleted(0), 0.5)
    large.reconcile(training(1024).all_deleted(0), 0.5)
    assert [each.count for each in large.incident.evidence_counts] == [1024]
    assert len(large.incident.evidence) == MAX_EVIDENCE
    sizes = [len(msgspec.json.encode(each.incident)) for each in (small, large)]
    assert abs(sizes[1] - sizes[0]) < 200


def test_a_single_loss_is_named_as_before() -> None:
    controller = Controller()
    controller.reconcile(deleted(training(), 2), 0.5)
    assert render(first_seen(controller.incident)) == controller.incident.evidence[0]


def test_each_kind_of_loss_is_counted_with_who_disrupted_it() -> None:
    world = training(8).evicted(1, 0).evicted(2, 3).evicted(3, 4, reason="PreemptionByScheduler").pod_failed(5, 1, 5)
    controller = observing()
    controller.reconcile(world, 5.5)
    assert [(each.kind, each.detail, each.count) for each in controller.incident.evidence_counts] == [
        ("PodDisrupted", "EvictionByEvictionAPI", 2),
        ("PodDisrupted", "PreemptionByScheduler", 1),
        ("PodFailed", "", 1),
    ]
    first = "2 pods were disrupted (EvictionByEvictionAPI) within 4 s; the first of them"
    assert render(first_seen(controller.incident)).startswith(first)


def test_invented_reasons_of_disruptions_do_not_grow_the_ledger() -> None:
    world = training(64)
    for rank in range(64):
        world = world.evicted(rank, 0, reason=f"Invented{rank}")
    controller = observing()
    controller.reconcile(world, 0.5)
    counts = controller.incident.evidence_counts
    assert len(counts) == MAX_EVIDENCE_COUNTS + 1
    assert sum(each.count for each in counts) == 64


def test_signs_without_a_date_are_counted_without_a_time() -> None:
    signs = [Evidence(f"pod-{rank}/lost", LossKind.POD_FAILED, f"pod {rank} failed", "job-1") for rank in range(2)]
    [count] = counted((), signs)
    assert count == EvidenceCount("PodFailed", 2)
    assert render(losses(count)) == "2 pods failed"


def test_each_kind_of_sign_has_words() -> None:
    no_signs = {LossKind.MANUAL, LossKind.ROOM, LossKind.AGENT_BLOCKS_START, LossKind.JOB_SET_FAILED}
    kinds = set(LossKind) - no_signs
    for kind in (*kinds, MEMBER_MISSING, MEMBER_REPLACED):
        assert "sign" not in render(losses(EvidenceCount(str(kind), 2))), kind
