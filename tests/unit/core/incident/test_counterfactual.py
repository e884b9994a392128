"""What Enforce would have saved in an incident under Observe, estimated from that incident's facts."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.incident.counterfactual import enforce_estimate
from recovery.core.model.enforce_estimate import EnforceEstimate, summed
from recovery.core.model.ledger import AttemptAction, Incident, Outcome, Phase
from tests.unit.report.records import BEGAN, GPUS, attempt, phase, record

NOTHING = EnforceEstimate()
RANKS = 8
WAITS = (phase(Phase.DETECTED, 0, 2), phase(Phase.DECIDED, 2, 20))
ADOPTED = (
    phase(Phase.DETECTED, 0, 2),
    phase(Phase.DECIDED, 2, 352),
    phase(Phase.TEARING_DOWN, 352, 362),
    phase(Phase.SCHEDULING, 362, 363),
    phase(Phase.STARTING, 363, 383),
    phase(Phase.RENDEZVOUS, 383, 393),
)


def observed(**changes: Any) -> Incident:
    fields: dict[str, Any] = {"mode": "Observe", "attempts": (), "phases": WAITS, "would": "RecreateGroup"}
    outcome = changes.pop("outcome", Outcome.OBSERVED)
    return record(outcome=outcome, **(fields | changes)).incident


def test_where_the_platform_restarted_the_group_what_is_saved_is_the_time_before_that() -> None:
    incident = observed(phases=ADOPTED, attempts=(attempt(AttemptAction.ADOPTED),))
    found = enforce_estimate(incident, None)
    assert (found.restarts, found.platform_idle_gpu_seconds) == (1, 393 * GPUS)
    assert found.saved_gpu_seconds == 350 * GPUS


def test_where_a_rank_was_restarted_in_place_the_others_wait_for_their_collective() -> None:
    found = enforce_estimate(observed(), None)
    assert found.platform_idle_gpu_seconds == 600 * GPUS
    assert found.idle_gpu_seconds == (2 + RANKS * 0.15) * GPUS


def test_the_wait_for_one_failure_ends_with_the_next_so_no_second_counts_twice() -> None:
    """A rank that crashes every minute makes the others wait for a minute each time."""
    found = [
        enforce_estimate(
            observed(started_at=BEGAN + timedelta(seconds=60 * n)), BEGAN + timedelta(seconds=60 * (n - 1))
        )
        for n in range(1, 11)
    ]
    assert summed(found).platform_idle_gpu_seconds == 600 * GPUS
    assert enforce_estimate(observed(), BEGAN - timedelta(hours=5)).platform_idle_gpu_seconds == 600 * GPUS


def test_ranks_that_have_timed_out_wait_no_longer_and_enforce_costs_more() -> None:
    found = enforce_estimate(observed(disruption_class="CommunicationFailure"), None)
    assert found.platform_idle_gpu_seconds == 0
    assert found.saved_gpu_seconds < 0


@pytest.mark.parametrize("would", ["", "Hold", "FailJob"])
def test_where_enforce_would_have_restarted_nothing_there_is_nothing_to_estimate(would: str) -> None:
    assert enforce_estimate(observed(would=would), None) == NOTHING


def test_of_an_incident_under_enforce_there_is_none() -> None:
    assert enforce_estimate(msgspec.structs.replace(observed(), mode="Enforce"), None) == NOTHING


@pytest.mark.parametrize(
    "changes",
    [{"outcome": Outcome.SUPERSEDED}, {"outcome": Outcome.FAILED}, {"disruption_class": "JobFailed"}],
    ids=["the job was deleted", "the job failed for good", "no baseline"],
)
def test_where_nothing_was_measured_the_restart_is_counted_and_no_time(changes: dict[str, Any]) -> None:
    assert enforce_estimate(observed(**changes), None) == EnforceEstimate(restarts=1)
