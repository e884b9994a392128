"""While our own suspension has freed the GPUs, an incident costs no GPU time: that time is released, not idle."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident import phases
from recovery.core.model.ledger import Phase, PhaseSpan
from recovery.core.policy.resolved import Backoff
from tests.unit.core.decision.test_backoff import WAITS, in_backoff
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import at

GPUS = 32


def spans(controller: Controller) -> list[tuple[Phase, bool]]:
    return [(span.phase, span.released) for span in controller.incident.phases]


def test_it_begins_when_the_last_pod_is_gone_and_ends_when_the_suspension_is_ended() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    assert controller.ledger.idle_gpus == 0
    controller.reconcile(world, 310.3)
    assert controller.ledger.idle_gpus == GPUS, "the group waits for its pods again"
    controller.settle(world.released().unsuspended(311).all_ready(314), 314.2)
    (record,) = controller.recorded[1:]
    assert [(span.phase, span.released, span.started_at) for span in record.phases] == [
        (Phase.DETECTED, False, at(300)),
        (Phase.DECIDED, False, at(300.2)),
        (Phase.TEARING_DOWN, False, at(300.6)),
        (Phase.BACKOFF, True, at(303.1)),
        (Phase.BACKOFF, False, at(310.3)),
    ]
    released = sum(span.released_gpu_seconds for span in record.phases)
    assert released == pytest.approx((310.3 - 303.1) * GPUS)
    assert controller.ledger.totals.released_gpu_seconds == pytest.approx(released)
    assert record.closing is not None
    length = (record.closing.ended_at - record.started_at).total_seconds()
    idle = sum(span.idle_gpu_seconds for span in record.phases)
    assert idle + released == pytest.approx(length * GPUS)
    assert controller.ledger.history[0].released_gpu_seconds == pytest.approx(released)


def test_a_pod_that_still_ends_keeps_its_gpus() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    busy = training(4)
    pods = world.snapshot().pods + busy.snapshot().pods[:1]
    snapshot = msgspec.structs.replace(world.snapshot(), pods=pods)
    marked = phases.mark_released(controller.ledger, snapshot, at(304))
    assert marked.holds_gpus_idle
    assert not controller.ledger.holds_gpus_idle


def test_a_withheld_restart_holds_its_gpus() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(seconds=10))))
    world = training(4).with_workload(active_deadline_seconds=86_400).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    assert not any(released for _, released in spans(controller))
    assert controller.ledger.idle_gpus == GPUS


def test_the_idle_gpu_seconds_by_class_are_those_by_phase() -> None:
    controller = Controller(WAITS)
    in_backoff(controller)
    totals = controller.ledger.totals
    assert set(totals.idle_gpu_seconds_by_class) == {"PodDeleted"}
    assert totals.idle_gpu_seconds_by_class["PodDeleted"] == totals.idle_gpu_seconds


def test_merged_spans_keep_both_kinds_of_gpu_seconds() -> None:
    controller = Controller(WAITS)
    in_backoff(controller)
    ledger = controller.ledger
    before = sum(span.idle_gpu_seconds + span.released_gpu_seconds for span in ledger.current_incident.phases)
    for number in range(phases.MAX_SPANS):
        phase = Phase.STARTING if number % 2 else Phase.SCHEDULING
        ledger = phases.enter(ledger, phase, at(304 + number))
    incident = ledger.current_incident
    assert len(incident.phases) == phases.MAX_SPANS
    total = sum(span.idle_gpu_seconds + span.released_gpu_seconds for span in incident.phases)
    lasting = (incident.phases[-1].started_at - at(303.1)).total_seconds() * GPUS
    assert total == pytest.approx(before + lasting)
    assert sum(span.released_gpu_seconds for span in incident.phases) == pytest.approx(
        ledger.totals.released_gpu_seconds
    )


def test_a_second_span_of_a_phase_is_no_transition() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    controller.reconcile(world, 310.3)
    assert spans(controller)[-2:] == [(Phase.BACKOFF, True), (Phase.BACKOFF, False)]
    assert controller.incident.phases[-1] == PhaseSpan(Phase.BACKOFF, at(310.3))
