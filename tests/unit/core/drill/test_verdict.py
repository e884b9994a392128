"""How a drill ended: what it expects and the records of its incidents in, its cases and its verdict out."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.drill.verdict import exceeded, final_cases, judge, worst
from recovery.core.model.drill import (
    DrillCase,
    DrillEnd,
    DrillFacts,
    DrillRef,
    DrillSpec,
    DrillVerdict,
    Hypothesis,
    Objectives,
    ResumesPast,
)
from recovery.core.model.ledger import Incident, IncidentHandling, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.training_steps import TrainingSteps
from tests.unit.core.drills import WORKLOAD, drill, named
from tests.unit.core.groups import training
from tests.unit.report.records import BEGAN, GPUS, attempt, phase, record

UID = "uid-lose-a-rank-x7k2p"
WORLD = training()
PAST_CHECKPOINT = Hypothesis(resumes_past=ResumesPast.CHECKPOINT)


def later(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def spec(**changes: Any) -> DrillSpec:
    return DrillSpec(WORKLOAD, "lose-a-rank", later(3600), **changes)


def caused(repeat: int = 1, *, at: float = 0, **changes: Any) -> Incident:
    """An incident of the drill that recovered after 20 seconds, which began `at` seconds after the first one."""
    ref = DrillRef("lose-a-rank-x7k2p", UID, repeat)
    of_repeat: dict[str, Any] = {"number": repeat, "id": f"1f458b22-{repeat}"}
    return record(started_at=later(at), drill=ref, **(of_repeat | changes)).incident


def strange(*, at: float = 5) -> Incident:
    """An incident that the drill did not cause."""
    return record(started_at=later(at), id="1f458b22-9", number=9).incident


def case(found: DrillSpec, *incidents: Incident, repeat: int = 1, now: float = 60) -> DrillCase:
    made = judge(found, UID, repeat, incidents, later(now))
    assert made.message, "a case says why"
    return made


def verdict(found: DrillSpec, *incidents: Incident, now: float = 60) -> tuple[DrillVerdict, Reason]:
    made = case(found, *incidents, now=now)
    return made.verdict, made.reason


# --- one repeat ----------------------------------------------------------------------------------------------------


def test_a_repeat_whose_expectations_held_has_passed_and_says_what_it_cost() -> None:
    made = case(spec(), caused())
    assert (made.verdict, made.reason) == (DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED)
    assert (made.incidents, made.attempts, made.actions) == (("1f458b22-1",), 1, ("RecreateGroup",))
    assert (made.recovery_seconds, made.idle_gpu_seconds) == (20.0, 20.0 * GPUS)
    assert made.seconds_by_phase == {
        "Detected": 1.0,
        "TearingDown": 4.0,
        "Scheduling": 1.0,
        "Starting": 4.0,
        "Rendezvous": 10.0,
    }
    assert "as far as Ready pods show it" in made.message


def test_two_incidents_of_a_repeat_add_up() -> None:
    two = spec(hypothesis=Hypothesis(incidents=2))
    made = case(two, caused(), caused(at=100, id="1f458b22-2", number=2, attempts=(attempt(), attempt(number=2))))
    assert made.verdict is DrillVerdict.PASSED
    assert (made.attempts, made.idle_gpu_seconds, made.recovery_seconds) == (3, 40.0 * GPUS, 120.0)
    assert made.seconds_by_phase["Rendezvous"] == 20.0


def test_incidents_of_other_repeats_and_of_other_drills_are_not_its_own() -> None:
    other = record(id="1f458b22-8", drill=DrillRef("other", "uid-other")).incident
    assert case(spec(), caused(), caused(2, at=100), other).incidents == ("1f458b22-1",)


@pytest.mark.parametrize(("count", "expected"), [(0, 1), (2, 1), (1, 0)])
def test_another_number_of_incidents_has_failed(count: int, expected: int) -> None:
    made = [caused(at=100.0 * number, id=f"1f458b22-{number}") for number in range(count)]
    hypothesis = Hypothesis(incidents=expected)
    assert verdict(spec(hypothesis=hypothesis), *made) == (DrillVerdict.FAILED, Reason.DRILL_UNEXPECTED_INCIDENTS)


def test_no_incident_passes_where_none_is_expected() -> None:
    made = case(spec(hypothesis=Hypothesis(incidents=0)))
    assert (made.verdict, made.recovery_seconds, made.message) == (
        DrillVerdict.PASSED,
        None,
        "as expected: no incident",
    )


@pytest.mark.parametrize("outcome", [None, *(each for each in Outcome if each is not Outcome.RECOVERED)])
def test_an_incident_that_did_not_recover_has_failed(outcome: Outcome | None) -> None:
    assert verdict(spec(), caused(outcome=outcome)) == (DrillVerdict.FAILED, Reason.DRILL_NOT_RECOVERED)


def test_a_failure_of_its_own_beside_the_drill_makes_it_inconclusive() -> None:
    assert verdict(spec(), caused(), strange()) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


def test_a_failure_of_its_own_within_the_incident_makes_it_inconclusive() -> None:
    assert verdict(spec(), caused(charged=True)) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


def test_a_charge_that_is_expected_disturbs_nothing() -> None:
    expected = spec(hypothesis=Hypothesis(charged=1))
    assert verdict(expected, caused(charged=True)) == (DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED)


@pytest.mark.parametrize("reason", [Reason.START_TIMEOUT, Reason.RENDEZVOUS_TIMEOUT, Reason.IN_PLACE_TIMEOUT])
def test_a_charge_because_the_group_did_not_come_back_has_failed(reason: Reason) -> None:
    again = (attempt(), attempt(number=2, reason=reason))
    restarted = caused(charged=True, attempts=again, restarts=2, drill_restarts=1)
    assert verdict(spec(), restarted) == (DrillVerdict.FAILED, Reason.DRILL_NOT_RECOVERED)


def test_a_charge_for_a_failure_and_a_restart_that_was_too_slow_is_inconclusive() -> None:
    again = (attempt(), attempt(number=2), attempt(number=3, reason=Reason.START_TIMEOUT))
    restarted = caused(charged=True, attempts=again, restarts=3, drill_restarts=1)
    assert verdict(spec(), restarted) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


def test_ranks_that_hang_after_the_recovery_have_not_recovered() -> None:
    recovered = caused()
    assert recovered.closing is not None
    hangs = msgspec.structs.replace(recovered, closing=msgspec.structs.replace(recovered.closing, still_broken=True))
    assert verdict(spec(), hangs) == (DrillVerdict.FAILED, Reason.DRILL_NOT_RECOVERED)


@pytest.mark.parametrize("handling", [IncidentHandling.MANUAL, IncidentHandling.HELD])
def test_a_recovery_with_the_help_of_a_person_is_inconclusive(handling: IncidentHandling) -> None:
    assert verdict(spec(), caused(handling=handling)) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


def test_an_incident_of_another_drill_disturbs_it() -> None:
    other = record(id="1f458b22-8", number=8, drill=DrillRef("other", "uid-other")).incident
    assert verdict(spec(), caused(), other) == (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


# --- objectives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "reason"), [("20s", Reason.DRILL_AS_EXPECTED), ("19s", Reason.DRILL_TOO_SLOW)])
def test_the_recovery_may_take_as_long_as_the_objective(limit: str, reason: Reason) -> None:
    assert case(spec(slo=Objectives(recovery=limit)), caused()).reason is reason


@pytest.mark.parametrize(("most", "reason"), [(1280, Reason.DRILL_AS_EXPECTED), (1279, Reason.DRILL_TOO_COSTLY)])
def test_the_incidents_may_cost_as_much_as_the_objective(most: float, reason: Reason) -> None:
    assert case(spec(slo=Objectives(idle_gpu_seconds=most)), caused()).reason is reason


OPEN = (phase(Phase.DETECTED, 0, 1), phase(Phase.TEARING_DOWN, 1, None))


@pytest.mark.parametrize(("now", "reason"), [(30, None), (31, Reason.DRILL_TOO_SLOW)])
def test_an_open_incident_counts_up_to_now(now: float, reason: Reason | None) -> None:
    found = exceeded(spec(slo=Objectives(recovery="30s")), [caused(outcome=None, phases=OPEN)], later(now))
    assert (found.reason if found is not None else None) is reason


@pytest.mark.parametrize(("now", "reason"), [(10, None), (11, Reason.DRILL_TOO_COSTLY)])
def test_the_phase_in_progress_costs_up_to_now(now: float, reason: Reason | None) -> None:
    slo = Objectives(idle_gpu_seconds=10.0 * GPUS)
    found = exceeded(spec(slo=slo), [caused(outcome=None, phases=OPEN)], later(now))
    assert (found.reason if found is not None else None) is reason


def test_gpus_that_a_suspension_gave_back_cost_nothing() -> None:
    released = (phase(Phase.DETECTED, 0, 1), phase(Phase.BACKOFF, 1, None, released=True))
    slo = Objectives(idle_gpu_seconds=10.0 * GPUS)
    assert exceeded(spec(slo=slo), [caused(outcome=None, phases=released)], later(600)) is None


def test_before_the_first_incident_nothing_is_exceeded() -> None:
    slo = Objectives(recovery="1s", idle_gpu_seconds=0)
    assert exceeded(spec(slo=slo), [], later(600)) is None


# --- where the training continued -----------------------------------------------------------------------------------


STEPS: dict[str, tuple[TrainingSteps | None, int | None, DrillVerdict, Reason]] = {
    "from the checkpoint": (
        TrainingSteps(110, absolute=True, resumed=100),
        100,
        DrillVerdict.PASSED,
        Reason.DRILL_AS_EXPECTED,
    ),
    "from a later one": (
        TrainingSteps(110, absolute=True, resumed=105),
        100,
        DrillVerdict.PASSED,
        Reason.DRILL_AS_EXPECTED,
    ),
    "from an earlier one": (
        TrainingSteps(110, absolute=True, resumed=99),
        100,
        DrillVerdict.FAILED,
        Reason.DRILL_RESUMED_EARLIER,
    ),
    "from any, as none is known": (
        TrainingSteps(110, absolute=True, resumed=1),
        None,
        DrillVerdict.PASSED,
        Reason.DRILL_AS_EXPECTED,
    ),
    "from the beginning": (
        TrainingSteps(110, absolute=True, resumed=0),
        None,
        DrillVerdict.FAILED,
        Reason.DRILL_RESUMED_EARLIER,
    ),
    "no agent": (None, 100, DrillVerdict.INCONCLUSIVE, Reason.DRILL_RESUME_UNKNOWN),
    "no step yet": (TrainingSteps(110, absolute=True), 100, DrillVerdict.INCONCLUSIVE, Reason.DRILL_RESUME_UNKNOWN),
    "steps of processes": (TrainingSteps(110, resumed=0), 100, DrillVerdict.INCONCLUSIVE, Reason.DRILL_RESUME_UNKNOWN),
}


@pytest.mark.parametrize(("steps", "checkpoint", "wanted", "reason"), STEPS.values(), ids=STEPS)
def test_the_training_continues_from_its_checkpoint(
    steps: TrainingSteps | None, checkpoint: int | None, wanted: DrillVerdict, reason: Reason
) -> None:
    found = spec(hypothesis=PAST_CHECKPOINT, checkpoint_step=checkpoint)
    assert verdict(found, caused(training_steps=steps)) == (wanted, reason)
    assert verdict(spec(), caused(training_steps=steps))[0] is DrillVerdict.PASSED, "only judged if it is expected"


def test_each_incident_of_a_repeat_continues_from_the_checkpoint() -> None:
    found = spec(hypothesis=Hypothesis(incidents=2, resumes_past=ResumesPast.CHECKPOINT), checkpoint_step=100)
    early = caused(training_steps=TrainingSteps(110, absolute=True, resumed=0))
    fine = caused(at=100, id="1f458b22-2", number=2, training_steps=TrainingSteps(110, absolute=True, resumed=100))
    assert verdict(found, early, fine) == (DrillVerdict.FAILED, Reason.DRILL_RESUMED_EARLIER)


def test_a_case_says_how_many_steps_were_lost() -> None:
    made = case(spec(), caused(training_steps=TrainingSteps(110, absolute=True, resumed=100)))
    assert (made.resumed_step, made.lost_steps) == (100, 10)


# --- the whole run --------------------------------------------------------------------------------------------------


def run(
    *repeats: int, reason: Reason | None = Reason.DRILL_DONE, ended: float = 1000, of: int = 3, **changes: Any
) -> DrillFacts:
    """A run of `of` repeats that named a pod in these ones. `reason` None: its client never ended it."""
    pods = [named(WORLD, 3, number, repeat=repeat) for number, repeat in enumerate(repeats, 1)]
    end = DrillEnd(later(ended), reason, "because") if reason is not None else None
    return msgspec.structs.replace(drill(*pods, repeat=of, end=end, **changes), created_at=later(-5))


def verdicts(found: DrillFacts, *incidents: Incident) -> list[tuple[int, DrillVerdict, Reason]]:
    return [(each.repeat, each.verdict, each.reason) for each in final_cases(found, incidents, later(2000))]


PASSED = (DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED)


def test_each_repeat_is_judged_by_its_own_incidents() -> None:
    made = [caused(1), caused(2, at=100, outcome=Outcome.HELD), caused(3, at=200)]
    assert verdicts(run(1, 2, 3), *made) == [
        (1, *PASSED),
        (2, DrillVerdict.FAILED, Reason.DRILL_NOT_RECOVERED),
        (3, *PASSED),
    ]


def test_a_disturbance_belongs_to_the_repeat_that_ran() -> None:
    found = verdicts(run(1, 2, of=2), caused(1), strange(at=50), caused(2, at=100))
    assert found == [(1, DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED), (2, *PASSED)]


@pytest.mark.parametrize("at", [-10, 1001], ids=["before the drill", "after it"])
def test_a_failure_outside_of_the_run_disturbs_nothing(at: float) -> None:
    assert verdicts(run(1, of=1), strange(at=at), caused(1)) == [(1, *PASSED)]


DISTURBED = (DrillVerdict.INCONCLUSIVE, Reason.DRILL_DISTURBED)


def test_a_failure_disturbs_a_repeat_that_expects_no_incident() -> None:
    none = Hypothesis(incidents=0)
    assert verdicts(run(1, of=1, hypothesis=none)) == [(1, *PASSED)]
    assert verdicts(run(1, of=1, hypothesis=none), strange(at=50)) == [(1, *DISTURBED)]


def test_a_failure_before_the_first_act_disturbs_the_first_repeat() -> None:
    assert verdicts(run(1, of=1), strange(at=10), caused(1, at=100)) == [(1, *DISTURBED)]


def test_an_incident_of_another_drill_disturbs_the_run() -> None:
    other = record(started_at=later(5), id="1f458b22-8", number=8, drill=DrillRef("other", "uid-other")).incident
    assert verdicts(run(1, of=1), caused(1), other) == [(1, *DISTURBED)]


def test_a_clock_of_the_client_that_is_behind_hides_no_failure() -> None:
    assert verdicts(run(1, of=1, ended=-300), caused(1), strange(at=30)) == [(1, *DISTURBED)]


def test_names_that_do_not_count_begin_no_repeat() -> None:
    found = drill(
        named(WORLD, 3), named(WORLD, 2, 2, repeat=2), acknowledged=1, end=DrillEnd(later(9), Reason.DRILL_DONE)
    )
    assert verdicts(found, caused(1)) == [(1, *PASSED)]


def test_a_run_that_is_stopped_between_repeats_has_an_aborted_one() -> None:
    found = verdicts(run(1, reason=Reason.DRILL_PRECONDITION), caused(1))
    assert found == [(1, *PASSED), (2, DrillVerdict.ABORTED, Reason.DRILL_PRECONDITION)]


STOPPED: dict[str, tuple[Incident, ...]] = {
    "while its incident is open": (caused(1, outcome=None, phases=OPEN),),
    "before its incident opened": (),
    "at its end": (caused(3),),
}


@pytest.mark.parametrize(("incidents", "repeat"), list(zip(STOPPED.values(), (1, 1, 3), strict=True)), ids=STOPPED)
def test_a_repeat_that_is_stopped_is_aborted(incidents: tuple[Incident, ...], repeat: int) -> None:
    found = verdicts(run(repeat, reason=Reason.DRILL_INTERRUPTED), *incidents)
    assert found == [(repeat, DrillVerdict.ABORTED, Reason.DRILL_INTERRUPTED)]


FAILED: dict[str, tuple[Incident, Reason]] = {
    "too slow": (caused(1, outcome=None, phases=OPEN), Reason.DRILL_TOO_SLOW),
    "held": (caused(1, outcome=Outcome.HELD), Reason.DRILL_NOT_RECOVERED),
}


@pytest.mark.parametrize(("incident", "reason"), FAILED.values(), ids=FAILED)
def test_a_repeat_that_has_failed_stays_failed_when_the_run_is_stopped(incident: Incident, reason: Reason) -> None:
    stopped = run(1, reason=Reason.DRILL_TOO_SLOW)
    slow = drill(*stopped.spec.pods, slo=Objectives(recovery="30s"), end=stopped.spec.end, repeat=3)
    assert verdicts(slow, incident) == [(1, DrillVerdict.FAILED, reason)]


def test_a_run_whose_client_is_gone_is_aborted() -> None:
    found = verdicts(run(1, reason=None), caused(1))
    assert found == [(1, *PASSED), (2, DrillVerdict.ABORTED, Reason.DRILL_ABANDONED)]


def test_the_worst_case_is_the_verdict_of_the_run() -> None:
    def of(*found: DrillVerdict) -> DrillVerdict:
        return worst(DrillCase(number, each, Reason.DRILL_DONE) for number, each in enumerate(found, 1))

    assert of(DrillVerdict.PASSED, DrillVerdict.PASSED) is DrillVerdict.PASSED
    assert of(DrillVerdict.PASSED, DrillVerdict.INCONCLUSIVE) is DrillVerdict.INCONCLUSIVE
    assert of(DrillVerdict.INCONCLUSIVE, DrillVerdict.ABORTED) is DrillVerdict.ABORTED
    assert of(DrillVerdict.ABORTED, DrillVerdict.FAILED, DrillVerdict.PASSED) is DrillVerdict.FAILED
    assert of() is DrillVerdict.ABORTED, "no repeat was judged"
