"""What can keep the controller from a restart: one order, and who asks what of it."""

import pytest

from recovery.core.decision.guards import ASKED, GUARDS, Guard, Move, Question, first_stop
from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.ledger import Ledger
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def question(world: World, rules: Policy | None = None, *, forced: bool = False) -> Question:
    snapshot = world.snapshot()
    assert snapshot.workload is not None
    context = ReconcileContext(snapshot, snapshot.workload, rules or policy(), at(1), 0)
    return Question(context, Ledger(), forced=forced)


def guard(move: Move, asked: Question) -> Guard | None:
    stop = first_stop(move, asked)
    return None if stop is None else stop.guard


@pytest.mark.parametrize("move", Move)
def test_each_move_asks_in_the_one_order(move: Move) -> None:
    assert list(ASKED[move]) == [each for each in GUARDS if each in ASKED[move]]


@pytest.mark.parametrize("move", Move)
def test_no_move_restarts_a_training_that_finishes_or_writes_what_may_not_be_written(move: Move) -> None:
    assert {Guard.FINISHED, Guard.BARRED} <= set(ASKED[move])


def test_a_person_may_restart_a_group_that_trains() -> None:
    assert guard(Move.BY_HAND, question(training(4))) is None


def test_a_pause_bars_a_restart_unless_it_is_forced() -> None:
    paused = training(4).paused()
    assert paused.workload is not None
    assert PAUSED_ANNOTATION in paused.workload.annotations
    assert guard(Move.BY_HAND, question(paused)) is Guard.BARRED
    assert guard(Move.BY_HAND, question(paused, forced=True)) is None


def test_a_training_that_finishes_is_not_restarted_even_if_that_is_forced() -> None:
    assert guard(Move.BY_HAND, question(training(4).succeeded(0), forced=True)) is Guard.FINISHED


def test_that_a_training_finishes_is_said_before_that_its_policy_only_observes() -> None:
    assert guard(Move.BY_HAND, question(training(4).succeeded(0), policy(mode=Mode.OBSERVE))) is Guard.FINISHED
