"""Whole trials: byte-for-byte replay, removed faults, healing, leadership, and which errors are our own bugs."""

import asyncio
import gc
from datetime import datetime, timedelta

import msgspec
import pytest
import structlog

from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import FaultRates, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import (
    LLM,
    QUIET,
    at,
    at_event,
    happening,
    in_world,
    outcome_of,
    second,
    with_faults,
    writes,
)

pytestmark = pytest.mark.long

STORMY = msgspec.structs.replace(
    QUIET, seed=11, rates=FaultRates(process=0.01, request=0.05, line=0.01), replicas=2, active_seconds=200.0
)
_outcomes: dict[bytes, TrialOutcome] = {}


def ran(plan: TrialPlan) -> TrialOutcome:
    """Runs each plan once."""
    key = msgspec.json.encode(plan)
    if key not in _outcomes:
        _outcomes[key] = run_trial(plan)
    return _outcomes[key]


def stormy() -> TrialOutcome:
    lost = (in_world(FaultKind.POD_KILL, 60.0), in_world(FaultKind.CONTAINER_KILL, 120.0, number=1))
    return ran(with_faults(*lost, plan=STORMY))


def trace(outcome: TrialOutcome, until: datetime) -> list[tuple[datetime, str]]:
    """All changes and requests before that time."""
    evidence = outcome.evidence
    told = [
        (moment, f"{change.actor} {change.type} {change.revision} {msgspec.json.encode(change.body)!r}")
        for change, moment in zip(evidence.changes, evidence.change_times, strict=True)
        if moment < until
    ]
    told += [
        (record.at, f"{record.actor} {record.process} {record.number} {record.request} {record.code} {record.applied}")
        for record in evidence.requests
        if record.at < until
    ]
    return told


# Repetition.


def test_the_same_plan_is_the_same_trial() -> None:
    plan = with_faults(in_world(FaultKind.POD_KILL))
    again = run_trial(plan)
    assert again.trace_hash == outcome_of(*plan.faults).trace_hash
    assert trace(again, again.evidence.ends_at) == trace(outcome_of(*plan.faults), again.evidence.ends_at)


@pytest.mark.parametrize(
    "other",
    [
        with_faults(in_world(FaultKind.POD_KILL), seed=2),
        with_faults(in_world(FaultKind.POD_KILL, 100.5)),
        with_faults(in_world(FaultKind.POD_KILL, indexes=(1,))),
        with_faults(in_world(FaultKind.POD_KILL), healing_seconds=601.0),
        with_faults(),
    ],
    ids=["seed", "moment", "index", "length", "no fault"],
)
def test_another_plan_is_another_trial(other: TrialPlan) -> None:
    assert ran(other).trace_hash != outcome_of(in_world(FaultKind.POD_KILL)).trace_hash


def test_faults_that_were_drawn_replay_as_a_list() -> None:
    outcome = stormy()
    assert outcome.plan.rates == FaultRates()
    assert len(outcome.plan.faults) >= 10
    assert {fault.key.actor for fault in outcome.plan.faults} == {"world", "controller-0", "controller-1"}
    assert all(fault.at_seconds is not None for fault in outcome.plan.faults)

    again = ran(outcome.plan)

    assert again.trace_hash == outcome.trace_hash
    assert again.plan == outcome.plan


def test_a_plan_survives_being_written_down() -> None:
    plan = stormy().plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=TrialPlan) == plan


def test_striking_out_a_fault_leaves_what_came_before_it_untouched() -> None:
    outcome = stormy()
    faults = sorted(outcome.plan.faults, key=lambda fault: fault.at_seconds or 0.0)
    for struck in faults[::2]:
        assert struck.at_seconds is not None
        left = tuple(fault for fault in outcome.plan.faults if fault != struck)
        without = ran(msgspec.structs.replace(outcome.plan, faults=left))
        until = at(struck.at_seconds)
        assert trace(without, until) == trace(outcome, until), str(struck.key)
        assert struck.key not in {each.fault.key for each in without.evidence.happenings}
        assert without.trace_hash != outcome.trace_hash


def test_the_plan_of_an_outcome_leaves_out_what_found_no_one_to_hit() -> None:
    lost, no_one = in_world(FaultKind.POD_KILL), in_world(FaultKind.POD_KILL, 150.0, number=1, indexes=(7,))
    never = at_event(FaultKind.TIMEOUT, 100_000)
    assert outcome_of(lost, no_one, never).plan.faults == (lost,)


# Healing.


def test_no_fault_begins_in_the_healing_or_lasts_into_it() -> None:
    evidence = stormy().evidence
    assert evidence.healing_from == at(200.0)
    assert max(each.at for each in evidence.happenings) < evidence.healing_from
    lasting = [each.at + timedelta(seconds=abs(each.fault.seconds)) for each in evidence.happenings]
    assert max(lasting) <= evidence.healing_from
    assert not [record for record in evidence.requests if record.fault and record.at > evidence.healing_from]


def test_a_given_fault_whose_moment_has_moved_into_the_healing_does_not_take_place() -> None:
    last = outcome_of().evidence.requests[-1]
    assert last.at > at(QUIET.active_seconds + 500)
    outcome = ran(with_faults(at_event(FaultKind.PROCESS_KILL, last.number - 10, 5.0)))
    assert outcome.evidence.happenings == []
    assert outcome.trace_hash == outcome_of().trace_hash


def test_the_storm_is_survived() -> None:
    assert stormy().violations == ()


# What an outcome contains.


def test_what_an_outcome_tells() -> None:
    outcome = outcome_of(in_world(FaultKind.POD_KILL))
    assert 900.0 <= outcome.simulated_seconds < 901.0, "and a moment to stop"
    assert outcome.requests == len(outcome.evidence.requests) > 100
    assert outcome.evidence.ends_at == at(900.0)
    assert outcome.coverage["fault:pod-kill"] == 1
    assert outcome.evidence.metrics.keys() == {"controller-0"}
    samples = outcome.evidence.metrics["controller-0"].items()
    assert sum(value for name, value in samples if name.startswith("recovery_group_restarts_total{")) == 1.0


def test_nothing_is_changed_after_the_end_but_by_controllers_that_stop() -> None:
    evidence = outcome_of().evidence
    (life,) = evidence.processes
    assert life.how == "stopped"
    assert life.ended_at is not None
    assert evidence.ends_at <= life.ended_at <= evidence.ends_at + timedelta(seconds=5)


# Who leads.


def test_the_standby_takes_over_from_a_leader_that_died() -> None:
    lost = in_world(FaultKind.POD_KILL, 110.0, number=1)

    def leaders(outcome: TrialOutcome) -> list[str]:
        """The replicas that did something about the group."""
        return list(dict.fromkeys(record.actor for record in writes(outcome)))

    both = ran(with_faults(lost, replicas=2))
    (leader,) = leaders(both)
    index = int(leader[-1])
    killed = ran(with_faults(in_world(FaultKind.PROCESS_KILL, 100.0, 120.0, indexes=(index,)), lost, replicas=2))

    assert leaders(killed) == [f"controller-{1 - index}"]
    assert killed.violations == both.violations == ()


# Around it.

ENDS_IN_THE_MIDDLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def breaks(plan: TrialPlan, error: type[BaseException]) -> None:
    """The trial ends with that error, no matter what was going on."""
    with pytest.raises((error, BaseExceptionGroup)) as raised:
        run_trial(plan)
    found = raised.value
    assert isinstance(found, error) or (isinstance(found, BaseExceptionGroup) and found.subgroup(error))
    del found, raised
    gc.collect()  # What is left reports its errors now, and not in another test.


@ENDS_IN_THE_MIDDLE
def test_a_fault_of_a_job_that_is_not_there_is_a_bug_of_the_plan() -> None:
    nowhere = TrialFault(FaultKey("world", 0, FaultKind.POD_KILL), 0.0, 10.0, "team-a/nowhere", (0,))
    breaks(with_faults(nowhere), KeyError)


@ENDS_IN_THE_MIDDLE
def test_a_world_does_not_know_faults_of_requests() -> None:
    breaks(with_faults(in_world(FaultKind.CONFLICT)), KeyError)


@ENDS_IN_THE_MIDDLE
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_a_simulation_that_fails_within_a_replica_ends_the_trial(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike an error of the program, whose failures are findings."""

    def fail(*_: object) -> None:
        raise error("in the simulation")

    monkeypatch.setattr("recovery.sim.trials.trial.TrialTransport", fail)
    breaks(QUIET, error)


@ENDS_IN_THE_MIDDLE
@pytest.mark.parametrize("fails", [False, True])
def test_logs_and_garbage_collection_are_as_before(fails: bool) -> None:
    before = structlog.get_config()
    if fails:
        breaks(with_faults(in_world(FaultKind.CONFLICT)), KeyError)
    else:
        run_trial(msgspec.structs.replace(QUIET, active_seconds=10.0, healing_seconds=10.0))
    assert gc.isenabled()
    assert structlog.get_config() == before


def test_what_hits_a_request_is_told_with_its_moment() -> None:
    outcome = outcome_of(at_event(FaultKind.SERVER_ERROR, 20))
    told = happening(outcome, FaultKind.SERVER_ERROR)
    (record,) = [record for record in outcome.evidence.requests if record.fault]
    assert (record.number, record.code, record.fault) == (20, 500, told.fault)
    assert told.fault.at_seconds == pytest.approx(second(told.at), abs=0.001)
    assert told.at <= record.at
    assert str(LLM) == "team-a/llm"
