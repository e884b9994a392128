"""Where the time of a stopped training goes, and which other time incidents book."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from recovery.core.incident import lifecycle, phases
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Closing, Incident, Ledger, Outcome, Phase, PhaseSpan
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.step import WAITING
from recovery.sim.training.rounds import Round, TrainingOutcome
from recovery.sim.trials.lost_time import (
    Account,
    Booked,
    Circumstance,
    Dated,
    Outage,
    after_the_end,
    beyond,
    booked,
    broken_sums,
    broken_totals,
    lost_time,
    outages,
    recovered_late,
)


def at(seconds: float) -> datetime:
    return datetime(2026, 11, 2, tzinfo=UTC) + timedelta(seconds=seconds)


OUTAGE = Outage(at(100.4), at(160.0))


def dated(moment: float, seen: float | None = None, gone: float | None = None, *, inferred: bool = False) -> Dated:
    return Dated(at(moment), at(moment if seen is None else seen), None if gone is None else at(gone), inferred)


def incident(
    since: float, until: float, ending: str = "Recovered/AllRanksReady", opened: float | None = None
) -> Booked:
    return Booked("i-1", at(since), at(until), ending, opened_at=None if opened is None else at(opened))


def told(*incidents: Booked, signs: tuple[Dated, ...] = (), known: tuple[Circumstance, ...] = ()) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in lost_time(OUTAGE, incidents, signs, known):
        found[each.account] = round(found.get(each.account, 0.0) + each.seconds, 3)
    return found


def test_an_incident_from_the_first_dated_evidence_to_the_meeting_books_the_whole_outage() -> None:
    assert told(incident(100, 160.9), signs=(dated(100),)) == {Account.BOOKED: 59.6}


def test_a_start_after_the_dated_evidence_leaves_time_unexplained() -> None:
    assert told(incident(110, 161), signs=(dated(100, seen=101),)) == {Account.UNEXPLAINED: 9.6, Account.BOOKED: 50.0}


def test_an_end_before_all_ranks_met_is_named_after_the_incident() -> None:
    early = told(incident(100, 150, "Observed/LeftToKubernetes"), signs=(dated(100),))
    assert early == {Account.BOOKED: 49.6, "after Observed/LeftToKubernetes": 10.0}


@pytest.mark.parametrize(
    ("verified", "account"), [(True, "after Recovered/AllRanksReady"), (False, Account.UNVERIFIED)]
)
def test_ready_alone_may_be_wrong_about_the_meeting_and_a_joined_probe_may_not(verified: bool, account: str) -> None:
    said = Booked("i-1", at(100), at(150), "Recovered/AllRanksReady", verified=verified)
    assert told(said, signs=(dated(100),)) == {Account.BOOKED: 49.6, account: 10.0}


@pytest.mark.parametrize(
    ("met", "sign", "account"),
    [
        (95, 140, Account.UNDATED),
        (95, 120, Account.UNDATED),
        (95, 100, "after Recovered/ProgressNotSeen"),
        (85, 140, "after Recovered/ProgressNotSeen"),
    ],
    ids=["a sign after that", "a sign while it stands still", "a sign before the end", "they met before it"],
)
def test_a_stop_within_an_incident_of_which_nothing_shows_before_its_end(met: float, sign: float, account: str) -> None:
    """Seed 6360: a node lost power while the controller waited for progress, and became silent only later."""
    outage = replace(OUTAGE, formed_at=at(met))
    ended = incident(90, 110, "Recovered/ProgressNotSeen")
    stretches = list(lost_time(outage, (replace(ended, verified=True),), (dated(sign),)))
    after = next(each for each in stretches if each.since == at(110))
    assert after.account == account


def test_what_lies_before_the_first_dated_evidence_is_undated() -> None:
    assert told(incident(140, 160), signs=(dated(140),)) == {Account.UNDATED: 39.6, Account.BOOKED: 20.0}
    assert told() == {Account.UNDATED: 59.6}


def test_a_date_that_was_not_readable_when_the_incident_was_opened_is_told_apart() -> None:
    late = (dated(110, seen=155), dated(140))
    gone = (dated(110, seen=110, gone=120), dated(140))
    for signs in (late, gone):
        assert told(incident(140, 160, opened=141), signs=signs) == {
            Account.UNDATED: 9.6,
            Account.UNREADABLE: 30.0,
            Account.BOOKED: 20.0,
        }


def test_a_replacement_is_a_sign_that_an_incident_may_count_from_a_later_loss() -> None:
    signs = (dated(110, inferred=True), dated(140))
    assert told(incident(140, 160, opened=141), signs=signs) == {
        Account.UNDATED: 9.6,
        Account.REPLACED: 30.0,
        Account.BOOKED: 20.0,
    }


def test_signs_of_another_outage_do_not_count() -> None:
    assert told(signs=(dated(50), dated(200))) == {Account.UNDATED: 59.6}


def test_circumstances_excuse_the_time_that_no_incident_books() -> None:
    known = (Circumstance(at(0)), Circumstance(at(120), "paused"), Circumstance(at(130)))
    assert told(incident(140, 160), signs=(dated(100),), known=known) == {
        Account.UNEXPLAINED: 29.6,
        "paused": 10.0,
        Account.BOOKED: 20.0,
    }


def test_after_what_takes_the_ranks_down_nothing_is_expected_until_they_met() -> None:
    known = (Circumstance(at(0)), Circumstance(at(120), "suspended", takes_down=True), Circumstance(at(130)))
    assert told(incident(100, 120, "Superseded/JobSuspended"), signs=(dated(100),), known=known) == {
        Account.BOOKED: 19.6,
        "suspended": 10.0,
        "starts after: suspended": 30.0,
    }


def test_a_suspension_that_is_a_moment_older_than_the_stop_has_taken_the_ranks_down() -> None:
    known = (Circumstance(at(0)), Circumstance(at(100), "suspended", takes_down=True), Circumstance(at(130)))
    assert told(signs=(dated(101),), known=known) == {"suspended": 29.6, "starts after: suspended": 30.0}


@pytest.mark.parametrize(("formed_at", "account"), [(90, "starts after: workload gone"), (97, Account.UNEXPLAINED)])
def test_ranks_that_had_met_before_their_workload_was_gone_belong_to_it(formed_at: float, account: str) -> None:
    """Another workload of the same name exists before their processes have ended (seed 2166)."""
    gone = Circumstance(at(95), "workload gone", takes_down=True, for_good=True)
    known = (Circumstance(at(0)), gone, Circumstance(at(96)))
    stop = replace(OUTAGE, formed_at=at(formed_at))
    accounts = {each.account: each.seconds for each in lost_time(stop, (), (dated(100),), known)}
    assert accounts == {account: 59.6}


def test_what_stopped_before_the_policy_was_what_it_is_is_a_baseline() -> None:
    known = (Circumstance(at(0), "no policy"), Circumstance(at(120), baseline_until=at(120)))
    assert told(signs=(dated(100),), known=known) == {"no policy": 19.6, "stopped before the policy": 40.0}


def test_the_whole_outage_is_on_some_account() -> None:
    known = (Circumstance(at(0)), Circumstance(at(105), "paused"), Circumstance(at(130)))
    accounts = told(incident(90, 103), incident(135, 170), signs=(dated(101),), known=known)
    assert round(sum(accounts.values()), 3) == 59.6


def test_time_that_an_incident_books_while_the_training_ran_is_told_apart() -> None:
    stops = (OUTAGE, Outage(at(170), at(180)))
    found = [(each.account, each.seconds) for each in beyond(incident(99, 181), stops)]
    assert found == [(Account.EARLY, 1.4), (Account.BETWEEN, 10.0), (Account.LATE, 1.0)]
    assert [each.account for each in beyond(incident(300, 310), stops)] == [Account.NEVER]
    assert [each.account for each in beyond(incident(101, 160), stops)] == []


def test_an_incident_that_was_opened_when_all_was_well_again_is_told_apart() -> None:
    found = [(each.account, each.seconds) for each in beyond(incident(100.4, 200, opened=190), (OUTAGE,))]
    assert found == [(Account.BACKDATED, 30.0), (Account.LATE, 10.0)]


def test_time_after_the_training_has_ended_is_no_time_in_which_it_ran() -> None:
    ended = ((at(200), at(300)), (at(400), at(500)))
    found = [(each.account, each.seconds) for each in beyond(incident(190, 450), (), ended)]
    assert found == [(Account.NEVER, 10.0), (Account.ENDED, 100.0), (Account.NEVER, 100.0), (Account.ENDED, 50.0)]
    assert [each.account for each in beyond(incident(210, 290), (), ended)] == [Account.ENDED]


def test_a_training_has_ended_until_its_ranks_meet_once_more() -> None:
    made = [Round("t", ("job-1",), 2, at(met), 0, 1.0, None, at(until)) for met, until in ((1, 50), (60, 80), (90, 95))]
    ends = (TrainingOutcome.FINISHED, TrainingOutcome.BROKEN, TrainingOutcome.FINISHED)
    for each, outcome in zip(made, ends, strict=True):
        each.outcome = outcome
    assert list(after_the_end(made, at(200))) == [(at(50), at(60)), (at(95), at(200))]


def test_time_until_the_first_report_of_progress_is_told_apart() -> None:
    waits = replace(incident(100.4, 200), resuming=((at(161), at(200)),))
    found = [(each.account, each.seconds) for each in beyond(waits, (OUTAGE,))]
    assert found == [(Account.LATE, 1.0), (Account.UNREPORTED, 39.0)]
    lost_again = replace(incident(100.4, 260), resuming=((at(161), at(190)),))
    found = [(each.account, each.seconds) for each in beyond(lost_again, (OUTAGE, Outage(at(190), at(260))))]
    assert found == [(Account.BETWEEN, 1.0), (Account.UNREPORTED, 29.0)]


def test_time_until_a_held_group_has_outlived_its_error_is_told_apart() -> None:
    held = replace(incident(100.4, 200), outlives=((at(150), at(190)),))
    found = [(each.account, each.seconds) for each in beyond(held, (OUTAGE,))]
    assert found == [(Account.OUTLIVES, 30.0), (Account.LATE, 10.0)]


def test_how_late_a_recovery_is_told() -> None:
    assert recovered_late(incident(100, 161), (OUTAGE,)) == timedelta(seconds=1)
    assert recovered_late(incident(100, 158), (OUTAGE,)) == timedelta(seconds=-2)
    assert recovered_late(incident(100, 158, "Held/RunsWholeAgain"), (OUTAGE,)) is None
    assert recovered_late(incident(300, 310), (OUTAGE,)) is None


@pytest.mark.parametrize(("lost_again_at", "late"), [(160.1, 1), (160, -39)])
def test_a_recovery_is_right_though_a_rank_is_lost_again_in_the_second_that_dates_it(
    lost_again_at: float, late: float
) -> None:
    """Seed 7434: the last rank is Ready at 160, and may have been Ready until 161."""
    again = Outage(at(lost_again_at), at(200), formed_at=OUTAGE.until)
    assert recovered_late(incident(100, 161), (OUTAGE, again)) == timedelta(seconds=late)


def test_one_stop_within_a_second_is_judged_as_any_other() -> None:
    assert recovered_late(incident(100, 100.9), (Outage(at(100.4), at(160)),)) == timedelta(seconds=-59.1)


def test_outages_lie_between_rounds_and_the_end_of_a_finished_training_is_none() -> None:
    def round_(formed: float, ended: float | None, outcome: TrainingOutcome | None = None) -> Round:
        return Round("team-a/llm", ("job",), 2, at(formed), 0, 0.1, None, at(ended) if ended else None, outcome=outcome)

    broken = TrainingOutcome.BROKEN
    assert list(outages([round_(0, 10, broken), round_(20, 30, broken)], at(90))) == [
        Outage(at(10), at(20), formed_at=at(0)),
        Outage(at(30), at(90), over=False, formed_at=at(20)),
    ]
    assert not list(outages([], at(90)))
    assert not list(outages([round_(0, None)], at(90)))
    assert not list(outages([round_(0, 10, TrainingOutcome.FINISHED)], at(90)))


# --- books -----------------------------------------------------------------------------------------------------------


def books() -> Ledger:
    """A closed incident of 16 GPUs over 60 s, booked by the production's own functions."""
    opened = Incident(
        id="i-1",
        number=1,
        started_at=at(100),
        detected_at=at(101),
        disruption_class="Killed",
        cause="Exit137",
        mode="Enforce",
        pinned=PinnedPolicy("default", "u", 1, "RecreateGroupOnPodRestart", 10, 86400.0, 900.0),
        step=WAITING,
        gpus=16,
    )
    ledger = phases.enter(Ledger(incident=opened), Phase.DETECTED, at(100))
    ledger = phases.enter(ledger, Phase.DECIDED, at(101))
    ledger = phases.enter(ledger, Phase.SCHEDULING, at(130))
    return lifecycle.close(ledger, Closing(Outcome.RECOVERED, Reason.ALL_RANKS_READY, at(160)))


def with_span(ledger: Ledger, number: int, span: PhaseSpan) -> Incident:
    spans = ledger.current_incident.phases
    return msgspec.structs.replace(ledger.current_incident, phases=(*spans[:number], span, *spans[number + 1 :]))


def test_the_books_of_the_product_are_in_order() -> None:
    ledger = books()
    assert not list(broken_sums(ledger.current_incident))
    assert not list(broken_totals([ledger.current_incident], ledger.totals))
    assert booked(ledger.current_incident, at(900)) == incident(100, 160)


def test_a_gap_between_phases_breaks_them() -> None:
    ledger = books()
    span = msgspec.structs.replace(ledger.current_incident.phases[1], ended_at=at(120), idle_gpu_seconds=304.0)
    gap, missing = broken_sums(with_span(ledger, 1, span))
    assert gap.startswith("the phases of incident i-1 are not contiguous: Decided ends at")
    assert missing == "incident i-1 books 800.000 GPU-seconds of 60.000 s with 16 GPUs"


def test_phases_that_do_not_reach_the_end_break_them() -> None:
    ledger = books()
    span = msgspec.structs.replace(ledger.current_incident.phases[2], ended_at=at(159))
    assert list(broken_sums(with_span(ledger, 2, span))) == [
        "the phases of incident i-1 do not reach from its start to its end"
    ]


def test_totals_that_count_a_phase_twice_break_them() -> None:
    ledger = books()
    assert list(broken_totals([ledger.current_incident], Totals(idle_gpu_seconds={"Decided": 976.0}))) == [
        "the totals say 976.000 GPU-seconds, the incidents 960.000"
    ]


def test_the_time_between_incidents_in_which_a_group_hung_counts_for_itself() -> None:
    ledger = books()
    totals = ledger.totals
    hung = msgspec.structs.replace(totals, idle_gpu_seconds={**totals.idle_gpu_seconds, "Broken": 500.0})
    assert not list(broken_totals([ledger.current_incident], hung))
