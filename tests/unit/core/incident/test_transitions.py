"""The tables of the state machine: transitions in them pass the invariants, and no others do."""

import msgspec
import pytest

from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import gather
from recovery.core.incident import invariants, lifecycle, phases
from recovery.core.incident.transitions import (
    ALLOWED_NEXT,
    ATTEMPTS,
    ENDINGS,
    TRANSITIONS,
    UNDER_WAY,
    AllowedEnding,
    AttemptLife,
    Transition,
    path,
    taken,
)
from recovery.core.model.ledger import AttemptAction, Closing, Ledger, Outcome, Phase, PhaseSpan
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import policy
from tests.unit.core.groups import training
from tests.unit.core.world import at

OPEN = tuple(phase for phase in Phase if phase is not Phase.HEALTHY)
ALLOWED = {(each.source, each.target): each for each in TRANSITIONS}
MISSING = [(source, target) for source in Phase for target in Phase if (source, target) not in ALLOWED]


def opened(*passed: Phase, mode: Mode = Mode.ENFORCE) -> Ledger:
    """An incident without an attempt that has passed these phases, one second each. The last phase is still open."""
    snapshot = training().pod_deleted(3, 0).snapshot()
    found = classify(gather(snapshot), snapshot)
    ledger = lifecycle.open_incident(Ledger(), snapshot, policy(mode), found, at(0))
    ledger = msgspec.structs.replace(ledger, totals=msgspec.structs.replace(ledger.totals, idle_gpu_seconds={}))
    first, *others = passed
    ledger = msgspec.structs.replace(
        ledger.with_incident(phases=(PhaseSpan(phase=first, started_at=at(0)),)), phase=first
    )
    for number, phase in enumerate(others, 1):
        ledger = phases.enter(ledger, phase, at(number))
    return ledger


def in_phase(phase: Phase, mode: Mode = Mode.ENFORCE) -> Ledger:
    return opened(*dict.fromkeys((Phase.DETECTED, phase)), mode=mode)


def with_attempt(ledger: Ledger, action: AttemptAction) -> Ledger:
    target = ledger.current_incident.target
    return lifecycle.add_attempt(ledger, action, target, Reason.MEMBER_LOST, "why", at(5))


def ended(ledger: Ledger, ending: AllowedEnding | None = None) -> Ledger:
    """`ending` None: any ending that the table has for this phase and mode."""
    open_ = ledger.current_incident
    last = open_.phases[-1].phase
    found = ending or next((each for each in ENDINGS if last in each.phases and open_.mode in each.modes), ENDINGS[0])
    return lifecycle.close(ledger, Closing(found.outcome, found.reason, at(9)))


def moved(source: Phase, target: Phase, *, by_restart: bool) -> tuple[Ledger, Ledger]:
    """The ledgers before and after that transition."""
    if source is Phase.HEALTHY:
        return Ledger(), ended(opened(Phase.DECIDED)) if target is Phase.HEALTHY else opened(target)
    before = in_phase(source)
    after = with_attempt(before, AttemptAction.RECREATE_GROUP) if by_restart else before
    if target is Phase.HEALTHY:
        return before, ended(after)
    if source is not target:
        return before, phases.enter(after, target, at(6))
    twice = phases.close_span(after, at(6))
    again = PhaseSpan(phase=target, started_at=at(6))
    return before, twice.with_incident(phases=(*twice.current_incident.phases, again))


def violations(before: Ledger, after: Ledger) -> tuple[str, ...]:
    """The invariants that would break. These incidents are made of phases, so their steps are of no interest here."""
    return tuple(each for each in invariants.violations(before, after) if not each.startswith("Step: "))


# --- phases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", TRANSITIONS, ids=str)
def test_a_transition_of_the_table_may_be_written(edge: Transition) -> None:
    assert violations(*moved(edge.source, edge.target, by_restart=edge.by_restart)) == ()


@pytest.mark.parametrize(("source", "target"), MISSING)
def test_a_transition_that_the_table_lacks_may_not_be_written(source: Phase, target: Phase) -> None:
    found = violations(*moved(source, target, by_restart=target is Phase.DECIDED))
    assert [each for each in found if each.startswith("Transition: ")], found


@pytest.mark.parametrize("edge", [each for each in TRANSITIONS if each.by_restart], ids=str)
def test_a_group_goes_back_to_decided_by_a_restart_only(edge: Transition) -> None:
    before, after = moved(edge.source, edge.target, by_restart=False)
    assert violations(before, after) == (f"Transition: Decided follows {edge.source} only by a restart",)


def test_each_transition_stands_in_the_table_once_with_its_reason() -> None:
    assert len(ALLOWED) == len(TRANSITIONS)
    assert all(each.when for each in TRANSITIONS)


def test_every_phase_is_reached_and_left() -> None:
    assert set(ALLOWED_NEXT) == set(Phase)
    assert all(ALLOWED_NEXT.values())
    assert frozenset[Phase]().union(*ALLOWED_NEXT.values()) == set(Phase)


def test_an_attempt_may_skip_any_of_its_phases() -> None:
    for number, phase in enumerate(UNDER_WAY):
        assert set(UNDER_WAY[number + 1 :]) <= ALLOWED_NEXT[phase]


def test_several_phases_may_pass_in_one_write_and_each_of_them_counts() -> None:
    before = in_phase(Phase.BACKOFF)
    after = phases.enter(before, Phase.SCHEDULING, at(6))
    fine = phases.enter(after, Phase.STARTING, at(7))
    assert path(before.incident, fine.current_incident) == (Phase.BACKOFF, Phase.SCHEDULING, Phase.STARTING)
    assert violations(before, fine) == ()
    back = phases.enter(phases.enter(after, Phase.FENCING, at(7)), Phase.TEARING_DOWN, at(8))
    assert violations(before, back) == ("Transition: Fencing does not follow Scheduling",)


def test_transitions_of_earlier_writes_are_not_checked_again() -> None:
    strange = opened(Phase.DETECTED, Phase.RENDEZVOUS, Phase.FENCING, Phase.SCHEDULING)
    assert violations(strange, phases.enter(strange, Phase.STARTING, at(6))) == ()


def test_spans_that_became_one_are_no_transition() -> None:
    long = opened(Phase.DETECTED, Phase.DECIDED, *(Phase.SCHEDULING, Phase.STARTING) * (phases.MAX_SPANS // 2 - 1))
    assert len(long.current_incident.phases) == phases.MAX_SPANS
    after = phases.enter(long, Phase.SCHEDULING, at(99))
    assert [span.phase for span in after.current_incident.phases[:2]] == [Phase.DETECTED, Phase.SCHEDULING]
    assert violations(long, after) == ()
    assert violations(long, phases.enter(long, Phase.DETECTED, at(99)))


def test_phases_without_length_are_told_apart_by_their_order() -> None:
    before = opened(Phase.DETECTED, Phase.DECIDED)
    after = before
    for phase in (Phase.HELD, Phase.TEARING_DOWN):
        after = phases.enter(after, phase, at(1))
    assert list(taken(before.incident, after.current_incident)) == [
        (Phase.DECIDED, Phase.HELD),
        (Phase.HELD, Phase.TEARING_DOWN),
    ]


def test_a_phase_that_came_back_at_the_same_moment_is_not_taken_for_the_earlier_one() -> None:
    """A person restarts a group in the moment in which it was held. A later write must not repeat that path."""
    ledger = opened(Phase.DETECTED, Phase.DECIDED)
    for phase in (Phase.HELD, Phase.DECIDED):
        ledger = phases.enter(ledger, phase, at(1))
    assert path(ledger.incident, ledger.current_incident) == (Phase.DECIDED,)
    assert violations(ledger, ledger.with_incident(message="more")) == ()


def test_a_closed_incident_takes_no_transition() -> None:
    closed = ended(in_phase(Phase.DECIDED))
    assert list(taken(closed.incident, closed.current_incident)) == []


# --- attempts -------------------------------------------------------------------------------------------------------


BEGUN = [(life, phase, mode) for life in ATTEMPTS.values() for phase in Phase for mode in Mode]


def begins(life: AttemptLife, phase: Phase, mode: Mode) -> tuple[str, ...]:
    """The violations of an attempt that begins like this."""
    before = in_phase(Phase.DECIDED if phase is Phase.HEALTHY else phase, mode)
    after = with_attempt(before, life.action)
    found = violations(before, ended(after) if phase is Phase.HEALTHY else after)
    return tuple(each for each in found if each.startswith("Attempts: "))


@pytest.mark.parametrize(("life", "phase", "mode"), BEGUN)
def test_an_attempt_begins_in_the_phases_and_modes_of_its_table_only(
    life: AttemptLife, phase: Phase, mode: Mode
) -> None:
    assert (begins(life, phase, mode) == ()) == (phase in life.begins_in and mode in life.modes)


def test_every_action_has_a_life() -> None:
    assert set(ATTEMPTS) == set(AttemptAction)
    assert all(action is life.action and life.when for action, life in ATTEMPTS.items())


@pytest.mark.parametrize("now", AttemptAction)
@pytest.mark.parametrize("was", AttemptAction)
def test_an_attempt_becomes_only_what_its_table_says(was: AttemptAction, now: AttemptAction) -> None:
    before = with_attempt(in_phase(Phase.DECIDED), was)
    (attempt,) = before.current_incident.attempts
    after = before.with_incident(attempts=(msgspec.structs.replace(attempt, action=now),))
    wrong = [f"Attempts: 1 ({was}) becomes {now}"] if was is not now and now not in ATTEMPTS[was].becomes else []
    assert [each for each in violations(before, after) if each.startswith("Attempts: ")] == wrong


def test_only_the_latest_restart_may_turn_out_to_be_the_platforms() -> None:
    before = in_phase(Phase.DECIDED)
    for action in (AttemptAction.RECREATE_GROUP, AttemptAction.REPLACE_NODE, AttemptAction.NONE):
        before = with_attempt(before, action)
    first, second, third = before.current_incident.attempts
    overtaken = before.with_incident(
        attempts=(first, msgspec.structs.replace(second, action=AttemptAction.ADOPTED), third)
    )
    assert violations(before, overtaken) == ()
    too_late = before.with_incident(
        attempts=(msgspec.structs.replace(first, action=AttemptAction.ADOPTED), second, third)
    )
    assert violations(before, too_late) == ("Attempts: 1 (RecreateGroup) becomes Adopted",)


@pytest.mark.parametrize(
    "change", [{"started_at": at(7)}, {"epoch": 7}, {"job_set_uid": "other"}, {"nodes": ("gpu-1",)}]
)
def test_what_an_attempt_was_stays(change: dict[str, object]) -> None:
    before = with_attempt(in_phase(Phase.DECIDED), AttemptAction.NONE)
    (attempt,) = before.current_incident.attempts
    after = before.with_incident(attempts=(msgspec.structs.replace(attempt, **change),))
    assert f"Attempts: 1 (None) has another {next(iter(change))}" in violations(before, after)


def test_an_attempt_may_be_told_in_other_words() -> None:
    before = with_attempt(in_phase(Phase.DECIDED), AttemptAction.NONE)
    (attempt,) = before.current_incident.attempts
    after = before.with_incident(attempts=(msgspec.structs.replace(attempt, message="another"),))
    assert violations(before, after) == ()


def test_a_loss_is_left_to_the_platform_once_until_the_group_is_restarted() -> None:
    before = with_attempt(in_phase(Phase.DECIDED), AttemptAction.NONE)
    twice = with_attempt(before, AttemptAction.NONE)
    assert violations(before, twice) == ("Attempts: 2 (None) follows 1 without a restart",)
    restarted = with_attempt(before, AttemptAction.RECREATE_GROUP)
    lost = with_attempt(restarted, AttemptAction.NONE)
    assert violations(lost, with_attempt(lost, AttemptAction.NONE)) == ()


# --- endings --------------------------------------------------------------------------------------------------------


ENDED = [(ending, phase, mode) for ending in ENDINGS for phase in OPEN for mode in Mode]


@pytest.mark.parametrize(("ending", "phase", "mode"), ENDED)
def test_an_incident_ends_in_the_phases_and_modes_of_the_table_only(
    ending: AllowedEnding, phase: Phase, mode: Mode
) -> None:
    before = in_phase(phase, mode)
    found = [each for each in violations(before, ended(before, ending)) if each.startswith("Ending: ")]
    assert (found == []) == (phase in ending.phases and mode in ending.modes)


REASONS = sorted({each.reason for each in ENDINGS})
UNKNOWN = [
    (outcome, reason)
    for outcome in Outcome
    for reason in REASONS
    if (outcome, reason) not in {(each.outcome, each.reason) for each in ENDINGS}
]


@pytest.mark.parametrize(("outcome", "reason"), UNKNOWN)
def test_an_outcome_has_a_reason_of_the_table_only(outcome: Outcome, reason: Reason) -> None:
    before = in_phase(Phase.DECIDED)
    after = lifecycle.close(before, Closing(outcome, reason, at(9)))
    assert violations(before, after) == (f"Ending: {outcome} has the reason {reason}",)


def test_every_outcome_has_an_ending_and_every_ending_its_transition() -> None:
    assert {each.outcome for each in ENDINGS} == set(Outcome)
    last = frozenset[Phase]().union(*(each.phases for each in ENDINGS))
    assert last == {each.source for each in TRANSITIONS if each.target is Phase.HEALTHY}
    assert all(each.when for each in ENDINGS)


def test_each_ending_stands_in_the_table_once() -> None:
    assert len({str(each) for each in ENDINGS}) == len(ENDINGS)
