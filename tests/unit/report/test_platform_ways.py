"""What the platform's own ways to recover would have cost, from the inputs shown beside each figure."""

from typing import Any

import pytest

from recovery.core.model.ledger import AttemptAction, Outcome
from recovery.report.incident_account import account_of
from recovery.report.platform_ways import Basis, NotCompared, PlatformWay, Way
from tests.unit.report.records import GPUS, NOW, attempt, record

START = 14
"""Seconds of Starting and Rendezvous in the record."""
SPENT = 20 * GPUS


def way(which: Way, **changes: Any) -> PlatformWay:
    [found] = [each for each in account_of(record(**changes), NOW).platform.ways if each.way is which]
    return found


def test_the_shipped_runtime_waits_for_the_collective_to_time_out() -> None:
    found = way(Way.SHIPPED_RUNTIME)
    assert found.duration_seconds == 600 + START
    assert found.idle_gpu_seconds == (600 + START) * GPUS
    assert found.saved_gpu_seconds == (600 + START) * GPUS - SPENT
    assert found.basis is Basis.COMPUTED


@pytest.mark.parametrize(("ranks", "ends"), [(7, False), (8, True)])
def test_the_shipped_runtime_fails_the_job_when_as_many_ranks_exit_as_was_measured(ranks: int, ends: bool) -> None:
    assert way(Way.SHIPPED_RUNTIME, ranks=ranks).ends_job is ends


def test_ranks_that_timed_out_already_are_not_waited_for_again() -> None:
    assert way(Way.SHIPPED_RUNTIME, disruption_class="CommunicationFailure").duration_seconds == START


def test_job_set_takes_its_measured_time_for_each_pod() -> None:
    assert way(Way.JOB_SET_FAILURE_POLICY, ranks=128).duration_seconds == pytest.approx(128 * 0.15 + START)


def test_job_set_waits_as_long_for_teardown_and_capacity_as_the_controller_did() -> None:
    teardown_and_scheduling = 5
    assert way(Way.JOB_SET_FAILURE_POLICY).duration_seconds == teardown_and_scheduling + START


def test_a_lost_node_is_evicted_first() -> None:
    assert way(Way.JOB_SET_FAILURE_POLICY, disruption_class="NodeLost").duration_seconds == 350 + 5 + START


def test_the_controller_may_have_cost_more_and_that_is_told() -> None:
    assert way(Way.JOB_SET_FAILURE_POLICY).saved_gpu_seconds < 0


def test_every_input_has_a_basis_and_a_source() -> None:
    for found in account_of(record(), NOW).platform.ways:
        assert {each.name for each in found.inputs} >= {"gpus", "ranks", "start"}
        assert all(each.source and each.unit for each in found.inputs)
        assert all(word in found.formula for word in ("gpus", "start"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"outcome": Outcome.HELD}, NotCompared.NOT_RECOVERED),
        ({"outcome": None}, NotCompared.NOT_RECOVERED),
        ({"attempts": ()}, NotCompared.NOT_RESTARTED_BY_CONTROLLER),
        ({"attempts": (attempt(AttemptAction.RESTART_IN_PLACE),)}, NotCompared.RESTARTED_IN_PLACE),
        ({"attempts": (attempt(AttemptAction.ADOPTED),)}, NotCompared.NOT_RESTARTED_BY_CONTROLLER),
        ({"disruption_class": "Manual"}, NotCompared.NO_BASELINE),
        ({"disruption_class": "JobFailed"}, NotCompared.NO_BASELINE),
        ({"gpus": 0}, NotCompared.NO_GPUS),
    ],
)
def test_what_has_no_baseline_is_not_compared(changes: dict[str, Any], why: NotCompared) -> None:
    platform = account_of(record(**changes), NOW).platform
    assert (platform.ways, platform.not_compared) == ((), why)
