"""Which changes of a pod count as a lost member."""

from typing import Any

import pytest

from recovery.ports import PODS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.member_losses import how_lost

ASKED_TO_GO = {"deletionTimestamp": "2026-11-02T08:00:00Z"}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def pod(phase: str, metadata: dict[str, str] | None = None, conditions: list[dict[str, str]] | None = None) -> Any:
    return {"metadata": metadata or {}, "status": {"phase": phase, "conditions": conditions or []}}


def change(type_: Any, before: Any, after: Any) -> ObjectChange:
    return ObjectChange(type_, PODS, after, before, 2, "taint-eviction-controller")


@pytest.mark.parametrize(("phase", "lost"), [("Running", True), ("Failed", False)])
def test_a_pod_that_has_failed_is_not_lost_again_when_it_is_taken_away(phase: str, lost: bool) -> None:
    """Seeds 2734 and 5201: the taint eviction controller also deletes pods that failed long ago."""
    ways = (
        change("MODIFIED", pod(phase), pod(phase, conditions=DISRUPTED)),
        change("MODIFIED", pod(phase), pod(phase, ASKED_TO_GO)),
        change("DELETED", pod(phase, ASKED_TO_GO), pod(phase, ASKED_TO_GO)),
    )
    assert [how_lost(way, None) is not None for way in ways] == [lost, lost, lost]


@pytest.mark.parametrize(("metadata", "lost"), [(ASKED_TO_GO, False), ({}, True)])
def test_a_pod_that_was_asked_to_go_is_not_lost_again_when_it_ends(metadata: dict[str, str], lost: bool) -> None:
    """Seed 9512: its node was silent when the taint eviction controller deleted it, and reported its end much later."""
    way = change("MODIFIED", pod("Running", metadata), pod("Failed", metadata))
    assert (how_lost(way, None) is not None) is lost
