"""Only a change of the mode changes the time since which a policy enforces."""

from datetime import datetime

import msgspec

from recovery.core.policy.enforcement import Enforcement
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.core.policy.spec import Mode, PolicySpec
from tests.unit.core.world import at

SWITCHED = Enforcement(at(100), 3)


def facts(
    mode: Mode = Mode.ENFORCE, *, generation: int = 3, written: float = 100, recorded: Enforcement = SWITCHED
) -> PolicyFacts:
    """`written`: when the owner of the mode field last wrote."""
    spec = PolicySpec(mode=mode)
    return PolicyFacts("default", "ml", "u", generation, spec, at(0), mode_since=at(written), recorded=recorded)


def since(policy: PolicyFacts) -> datetime:
    return resolve(policy).since


def test_where_nothing_is_recorded_the_date_of_the_owner_is_taken_over() -> None:
    assert facts(recorded=Enforcement()).enforcement == SWITCHED
    assert since(facts(recorded=Enforcement())) == at(100)


def test_a_label_and_the_same_mode_by_a_second_owner_move_nothing() -> None:
    """Neither makes a new generation, but both give an owner of the mode field a new date."""
    edited = facts(written=500)
    assert edited.enforcement == SWITCHED
    assert since(edited) == at(100)


def test_another_field_of_the_spec_moves_nothing_and_is_noted() -> None:
    edited = facts(written=500, generation=4)
    assert edited.enforcement == Enforcement(at(100), 4)
    assert since(edited) == at(100)


def test_observe_ends_it_and_enforce_begins_again() -> None:
    observing = facts(Mode.OBSERVE, generation=4, written=200)
    assert observing.enforcement == Enforcement()
    again = facts(generation=5, written=300, recorded=observing.enforcement)
    assert again.enforcement == Enforcement(at(300), 5)
    assert since(again) == at(300)


def test_there_and_back_while_no_one_watched_moves_it() -> None:
    """The change to Observe and back takes two generations, and the owner of the mode field has written since."""
    again = facts(generation=5, written=300)
    assert again.enforcement == Enforcement(at(300), 5)


def test_two_edits_by_others_while_no_one_watched_do_not_move_it() -> None:
    assert facts(generation=5, written=100).enforcement == Enforcement(at(100), 5)


def test_a_status_of_an_earlier_policy_of_that_name_does_not_count() -> None:
    restored = msgspec.structs.replace(facts(generation=1, written=500), created_at=at(500))
    assert restored.enforcement == Enforcement(at(500), 1)
