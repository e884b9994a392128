"""Requests of users and administrators take place during a trial as its plan says."""

import pytest

from recovery.core.incident.requests import ANNOTATIONS, Verb
from recovery.ports import JOBS, PODS, RECOVERY_CONFIGS, RECOVERY_POLICIES, TRAIN_JOBS, Resource
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial import TrialOutcome
from tests.simulation.trials.injected import FAULT, both, found, made, recreated, runs_at_the_end, well_over
from tests.simulation.trials.small import (
    LLM,
    happening,
    in_world,
    outcome_of,
    states,
    writes,
)

pytestmark = pytest.mark.long

# Users.


def changes_of(outcome: TrialOutcome, resource: Resource, path: tuple[str, ...]) -> list[tuple[float, object]]:
    """When the field changed from the fault on, and to what. None: the field is missing."""
    told: list[tuple[float, object]] = []
    value: object = None
    for moment, what, body in states(outcome, resource, "" if resource == RECOVERY_CONFIGS else LLM.name):
        field: object = body if what != "DELETED" else {}
        for key in path:
            field = field.get(key) if isinstance(field, dict) else None
        if field != value:
            value = field
            told.append((moment, value))
    return [each for each in told if each[0] >= FAULT]


def test_user_suspend() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_SUSPEND, seconds=60.0))
    assert changes_of(outcome, TRAIN_JOBS, ("spec", "suspend")) == [(FAULT, True), (FAULT + 60, False)]
    assert recreated(outcome, PODS) >= FAULT + 60
    well_over(outcome, FaultKind.USER_SUSPEND, 60.0)


def test_user_delete() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_DELETE))
    assert [what for moment, what, _ in states(outcome, TRAIN_JOBS) if moment >= FAULT] == ["DELETED"]
    assert found(outcome, TRAIN_JOBS) == found(outcome, PODS) == []
    assert happening(outcome, FaultKind.USER_DELETE).until is None


def test_user_recreate() -> None:
    outcome = outcome_of(in_world(FaultKind.USER_RECREATE))
    first, again = (body["metadata"]["uid"] for _, what, body in states(outcome, TRAIN_JOBS) if what == "ADDED")
    assert first != again
    assert [body["metadata"]["uid"] for body in found(outcome, TRAIN_JOBS)] == [again]
    assert runs_at_the_end(outcome)


def test_user_pause() -> None:
    """A member lost during the pause is handled only afterwards."""
    outcome = both(FaultKind.USER_PAUSE, 60.0)
    told = changes_of(outcome, TRAIN_JOBS, ("metadata", "annotations", "recovery.trainjob.dev/paused"))
    assert told == [(FAULT, "maintenance"), (FAULT + 60, None)]
    assert recreated(outcome, JOBS) >= FAULT + 60
    well_over(outcome, FaultKind.USER_PAUSE, 60.0)


def test_pause_all() -> None:
    outcome = both(FaultKind.PAUSE_ALL, 60.0)
    assert changes_of(outcome, RECOVERY_CONFIGS, ("spec", "paused")) == [(FAULT, True), (FAULT + 60, False)]
    assert recreated(outcome, JOBS) >= FAULT + 60
    well_over(outcome, FaultKind.PAUSE_ALL, 60.0)


@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        (FaultKind.USER_RESTART, Verb.RESTART),
        (FaultKind.USER_RETRY, Verb.RETRY),
        (FaultKind.USER_RESET_BUDGET, Verb.RESET_BUDGET),
    ],
    ids=str,
)
def test_a_user_asks_for_something(kind: FaultKind, verb: Verb) -> None:
    outcome = outcome_of(in_world(kind))
    told = changes_of(outcome, TRAIN_JOBS, ("metadata", "annotations", ANNOTATIONS[verb]))
    assert told[0][0] == FAULT
    assert "sre" in str(told[0][1])
    assert any(record.request.resource.plural == "recoverygroups" for record in writes(outcome)), "it is answered"
    assert (len(made(outcome, JOBS)) == 2) is (kind is FaultKind.USER_RESTART)


def test_policy_observe() -> None:
    outcome = outcome_of(in_world(FaultKind.POLICY_OBSERVE, seconds=60.0))
    told = changes_of(outcome, RECOVERY_POLICIES, ("spec", "mode"))
    assert told == [(FAULT, "Observe"), (FAULT + 60, "Enforce")]
    well_over(outcome, FaultKind.POLICY_OBSERVE, 60.0)


def test_policy_delete() -> None:
    outcome = outcome_of(in_world(FaultKind.POLICY_DELETE, seconds=60.0))
    told = changes_of(outcome, RECOVERY_POLICIES, ("spec", "mode"))
    assert told == [(FAULT, None), (FAULT + 60, "Enforce")]
    well_over(outcome, FaultKind.POLICY_DELETE, 60.0)
