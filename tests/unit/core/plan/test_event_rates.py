"""How many Events a condition makes that repeats or flaps. The API server keeps one object for each name."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest

from recovery.core.model.fleet_ledger import Breaker, FleetLedger
from recovery.core.model.ledger import (
    AttemptAction,
    Closing,
    Ledger,
    Outcome,
    Phase,
)
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.step import Step, StepType
from recovery.core.model.waits import Suspension
from recovery.core.plan.kubernetes_events import events, fleet_events
from tests.unit.core.plan.test_kubernetes_events import AT, CAP, FIRST, OPEN, attempt, ledger

RECONCILES = 1_000
CLOSED = ledger(Phase.HEALTHY, attempts=(FIRST,), closing=Closing(Outcome.RECOVERED, Reason.ALL_RANKS_READY, AT))
STANDS_ASIDE = attempt(1, AttemptAction.NONE)
ANSWERED = Ledger(requests=(RequestAnswer("retry", AT, True, Reason.DEFAULT_RESTART, "it is retried"),))

REFUSED = Ledger(requests=(RequestAnswer("retry", AT, False, Reason.REQUEST_EXPIRED, "it came too late"),))
HELD = Step(StepType.HELD, reason=Reason.SAME_ERROR_AGAIN, message="again")
FAILING = Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, fails_job=True)
WITHHELD = Step(StepType.WITHHELD, until=AT, lost_at=AT)

CHANGES: dict[str, tuple[Ledger, Ledger]] = {
    "MemberLost": (Ledger(), OPEN),
    "RecreatingGroup": (OPEN, ledger(attempts=(FIRST,))),
    "ReplacingNode": (OPEN, ledger(attempts=(attempt(1, AttemptAction.REPLACE_NODE, "gpu-1"),))),
    "RecreatingJobSet": (OPEN, ledger(attempts=(attempt(1, AttemptAction.RECREATE_JOB_SET),))),
    "RestartAdopted": (OPEN, ledger(attempts=(attempt(1, AttemptAction.ADOPTED),))),
    "StandingAside": (OPEN, ledger(attempts=(STANDS_ASIDE,))),
    "Fencing": (ledger(attempts=(FIRST,)), ledger(Phase.FENCING, attempts=(FIRST,))),
    "Held": (OPEN, ledger(Phase.HELD)),
    "HeldUntilRetry": (OPEN, ledger(Phase.HELD, step=HELD)),
    "FailingJob": (OPEN, ledger(Phase.HELD, step=FAILING)),
    "RuleDecided": (ledger(Phase.HELD), ledger(Phase.HELD, rule="bad-gpu")),
    "QuarantineRefused": (ledger(attempts=(FIRST,)), ledger(attempts=(FIRST,), considered=(CAP,))),
    "RestartWithheld": (ledger(attempts=(FIRST,)), ledger(Phase.BACKOFF, attempts=(FIRST,), step=WITHHELD)),
    "Released": (ledger(attempts=(FIRST,)), ledger(attempts=(FIRST,), suspension=Suspension(AT, for_room=True))),
    "Resumed": (ledger(attempts=(FIRST,), suspension=Suspension(AT)), ledger(attempts=(FIRST,))),
    "IncidentRecovered": (ledger(attempts=(FIRST,)), CLOSED),
    "RequestAccepted": (Ledger(), ANSWERED),
    "RequestRefused": (Ledger(), REFUSED),
}
"""By the reason of the Event: the ledger without the condition and the ledger with it."""


def names(ledgers: Sequence[Ledger], reason: str) -> set[str]:
    """The names of the Events with that reason that the API server keeps after these writes."""
    return {each.key for before, after in pairwise(ledgers) for each in events(before, after) if each.reason == reason}


@pytest.mark.parametrize("reason", CHANGES)
def test_a_condition_that_lasts_makes_one_event_in_one_write(reason: str) -> None:
    before, after = CHANGES[reason]
    written = [before, *RECONCILES * [after]]
    assert len(names(written, reason)) == 1
    assert all(events(each, each) == () for each in written[1:3])


@pytest.mark.parametrize("reason", CHANGES)
def test_a_condition_that_flaps_within_an_attempt_makes_one_event(reason: str) -> None:
    before, after = CHANGES[reason]
    assert len(names(RECONCILES * [before, after], reason)) == 1


def test_what_repeats_in_each_attempt_makes_one_event_an_attempt() -> None:
    """The budget bounds the attempts."""
    written = []
    for number in range(1, 6):
        attempts = tuple(attempt(each, AttemptAction.RECREATE_GROUP) for each in range(1, number + 1))
        written += RECONCILES // 5 * [ledger(attempts=attempts), ledger(Phase.FENCING, attempts=attempts)]
    assert len(names(written, "Fencing")) == 5
    assert len(names(written, "RecreatingGroup")) == 4, "the first stands in the ledger from the start"


def test_a_request_makes_one_event_however_long_its_answer_stands_in_the_ledger() -> None:
    flapping = [Ledger(), *RECONCILES * [ANSWERED, Ledger(requests=ANSWERED.requests, epoch=1)]]
    assert len(names(flapping, "RequestAccepted")) == 1


def test_a_circuit_breaker_makes_two_events_each_time_it_opens() -> None:
    """The breaker stays open until a person closes it, so people limit the number of Events."""
    opened = [Breaker(opened_at=AT + timedelta(hours=hour), reason=Reason.BREAKER_OPEN) for hour in range(3)]
    written = [FleetLedger()]
    for breaker in opened:
        written += [*RECONCILES * [FleetLedger(breaker=breaker)], FleetLedger()]
    found = [each for pair in pairwise(written) for each in fleet_events(*pair)]
    assert len(found) == len({each.key for each in found}) == 6
