"""Summaries of single trials and of all together."""

from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Ledger
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import TrialPlan
from recovery.sim.trials.shrink import Shrunk
from recovery.sim.trials.summary import counterexample, fault_words, report, summarize
from recovery.sim.trials.trial import TrialOutcome
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.trials.story import LLM, Story, violation

KILL = TrialFault(FaultKey("world", 0, FaultKind.POD_KILL), at_seconds=60.0, job="team-a/llm", indexes=(1, 2))
TIMEOUT = TrialFault(FaultKey("controller-0", 17, FaultKind.TIMEOUT), at_seconds=61.25)


def outcome(story: Story, *violations: Violation, faults: tuple[TrialFault, ...] = (), seed: int = 1) -> TrialOutcome:
    return TrialOutcome(
        plan=TrialPlan(seed=seed, jobs=(LLM,), faults=faults),
        evidence=story.evidence,
        violations=violations,
        trace_hash="cafe",
        requests=100,
        simulated_seconds=9000.0,
        cpu_seconds=0.5,
        coverage={"fault:pod-kill": 2},
    )


def test_incidents_and_restarts_are_those_of_all_workloads_as_told_last() -> None:
    story = Story()
    story.ledger(10, Ledger(totals=Totals(incidents=1, restarts=1)))
    story.ledger(20, Ledger(totals=Totals(incidents=2, restarts=4)))
    story.ledger(30, Ledger(totals=Totals(incidents=1, restarts=0)), job="eval")
    told = report(outcome(story))
    assert (told.incidents, told.restarts) == (3, 4)


def test_a_report_says_what_broke_and_when() -> None:
    told = report(outcome(Story(), violation(61.5), violation(70, "once more")))
    assert told.violations == ("OneCharge at +00:01:01.500: two charges", "OneCharge at +00:01:10.000: once more")
    assert told.invariant == "OneCharge"
    assert report(outcome(Story())).invariant == ""


def test_trials_add_up() -> None:
    story = Story()
    story.ledger(10, Ledger(totals=Totals(incidents=1, restarts=2)))
    summary = summarize([report(outcome(story)), report(outcome(story, violation(1), violation(2)))])
    assert dict(summary.rows()) == {
        "trials": "2",
        "simulated hours": "5.0",
        "requests": "200",
        "incidents": "2",
        "restarts": "4",
        "trials with a violation": "1",
        "CPU-seconds": "1.0",
        "hours per CPU-second": "5.0",
    }
    assert summary.coverage == {"fault:pod-kill": 4}


def test_a_fault_in_words() -> None:
    assert fault_words(KILL) == "world/0/pod-kill at 60 s of team-a/llm indexes 1, 2"
    assert fault_words(TIMEOUT) == "controller-0/17/timeout at 61.25 s"
    exit_ = TrialFault(FaultKey("world", 3, FaultKind.CRASH_LOOP), 600.0, 5.0, "team-a/llm", code=1)
    assert fault_words(exit_) == "world/3/crash-loop at 5 s of team-a/llm for 600 s code 1"


def test_a_counterexample_tells_what_is_needed_to_understand_it() -> None:
    story = Story()
    story.happens(60, FaultKind.POD_KILL, "a pod was deleted")
    found = outcome(story, violation(200), violation(300, "three charges"), faults=(KILL, TIMEOUT))
    assert list(counterexample(found, "recovery simulate --seed 1")) == [
        "seed 1 breaks OneCharge at +00:03:20.000: two charges",
        "  and OneCharge at +00:05:00.000: three charges",
        "",
        "5400 s with faults, 3600 s of healing; controllers: 2, lease 15 s; nodes of 8 GPUs, spare: 2",
        'RecoveryConfig {"allow":{"failJob":true}}',
        'job team-a/llm: shipped, 4 pods of 8 GPUs, grace 30 s, policy {"mode":"Enforce"}',
        "",
        "Faults:",
        "  world/0/pod-kill at 60 s of team-a/llm indexes 1, 2",
        "  controller-0/17/timeout at 61.25 s",
        "",
        "Timeline:",
        "  ! +00:01:00.000  a pod was deleted",
        "  > +00:03:20.000  OneCharge: two charges",
        "    +01:30:00.000  healing begins: nothing breaks from now on",
        "",
        "Again: recovery simulate --seed 1",
    ]


def test_of_a_shrunk_one_the_smallest_is_told() -> None:
    found = outcome(Story(), violation(200), faults=(KILL, TIMEOUT))
    small = outcome(Story(), violation(90, "two charges at once"), faults=(TIMEOUT,))
    lines = list(counterexample(found, "…", Shrunk(small, runs=12, replays=True, complete=True)))
    assert "Faults, 1 of 2, none can be left out (12 runs):" in lines
    assert "  > +00:01:30.000  OneCharge: two charges at once" in lines
    assert not any("pod-kill" in line for line in lines)


def test_shrinking_that_did_not_get_to_its_end_says_so() -> None:
    found = outcome(Story(), violation(200), faults=(KILL, TIMEOUT))
    used_up = list(counterexample(found, "…", Shrunk(found, runs=200, replays=True, complete=False)))
    assert "Faults, 2 of 2, not to the end (200 runs):" in used_up
    different = list(counterexample(found, "…", Shrunk(found, runs=1, replays=False, complete=False)))
    assert any("which is a bug of the simulation" in line for line in different)
