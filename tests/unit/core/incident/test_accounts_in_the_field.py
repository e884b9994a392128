"""No ledger in the field is refused because of its account of GPU time."""

import msgspec
import pytest

from recovery.core.incident import phases
from recovery.core.incident.invariants import violations
from recovery.core.model.ledger import Ledger, Phase
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training


def opened() -> Ledger:
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    return controller.ledger


def broken(before: Ledger, after: Ledger) -> list[str]:
    return [each for each in violations(before, after) if each.startswith(("Monotone", "Idle", "Released"))]


@pytest.mark.parametrize("released", [False, True])
def test_a_total_with_more_digits_than_ours_does_not_fall_by_a_phase_without_length(released: bool) -> None:
    edited = 1234.5674
    known = opened()
    running = known.current_incident.phases[-1]
    totals = msgspec.structs.replace(
        known.totals,
        idle_gpu_seconds={running.phase: edited},
        idle_gpu_seconds_by_class={known.current_incident.disruption_class: {running.phase: edited}},
        released_gpu_seconds=edited,
    )
    before = msgspec.structs.replace(known, totals=totals).with_incident(
        phases=(*known.current_incident.phases[:-1], msgspec.structs.replace(running, released=released))
    )
    assert broken(before, phases.enter(before, Phase.STARTING, running.started_at)) == []
