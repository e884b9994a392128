"""Which Events a change of the ledger makes: one for each change, and the same Event again for the same change."""

from datetime import UTC, datetime

import msgspec
import pytest

from recovery.core.model.ledger import Attempt, AttemptAction, Closing, Considered, Incident, Ledger, Outcome, Phase
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.model.standing import Broken, Standing
from recovery.core.model.step import WAITING, Step, StepType
from recovery.core.plan.actions import EmitEvent
from recovery.core.plan.kubernetes_events import events
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import at

AT = datetime(2026, 11, 2, 9, tzinfo=UTC)
TERMS = PinnedPolicy("default", "uid-policy", 1, "RecreateGroupOnPodRestart", 10, 86400.0, 900.0)
SENTENCE = "what was seen; what is done"
CAP = Considered("ReplaceNode", Reason.QUARANTINE_CAP, "quarantine cap reached: 2 of 2 nodes")


def incident(**changes: object) -> Incident:
    known = Incident("inc-1", 1, AT, AT, "HardwareFault", "Xid79", "Enforce", TERMS, WAITING, message=SENTENCE)
    return msgspec.structs.replace(known, **changes)


def attempt(number: int, action: AttemptAction, *nodes: str) -> Attempt:
    return Attempt(number, number, action, AT, Reason.DEFAULT_RESTART, f"why attempt {number}", nodes=nodes)


def ledger(phase: Phase = Phase.DECIDED, **changes: object) -> Ledger:
    return Ledger(phase=phase, incident=incident(**changes))


def told(before: Ledger, after: Ledger) -> list[tuple[str, str, str]]:
    """The key, reason and note of each Event."""
    return [(each.key, each.reason, each.note) for each in events(before, after)]


OPEN = ledger(Phase.DETECTED)
FAILING = Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, message="a rule says so", fails_job=True)
FIRST = attempt(1, AttemptAction.RECREATE_GROUP)


def test_a_quarantine_that_is_asked_for_is_told_by_the_attempt_that_asks_for_it() -> None:
    asked = ledger(attempts=(attempt(1, AttemptAction.REPLACE_NODE, "gpu-1"),))
    assert told(Ledger(), asked) == [("inc-1.attempt-1", "ReplacingNode", "why attempt 1")]


def test_a_quarantine_that_is_refused_is_told_with_the_cap_beside_the_restart() -> None:
    refused = ledger(
        attempts=(FIRST,), considered=(CAP, Considered("RecreateGroup", Reason.SAME_ERROR_AGAIN, "the job's own error"))
    )
    assert told(OPEN, refused) == [
        ("inc-1.attempt-1", "RecreatingGroup", "why attempt 1"),
        ("inc-1.not-quarantined-1", "QuarantineRefused", CAP.message),
    ]


def test_what_was_refused_before_is_not_told_again() -> None:
    before = ledger(attempts=(FIRST,), considered=(CAP,))
    again = ledger(attempts=(FIRST, attempt(2, AttemptAction.RECREATE_GROUP)), considered=(CAP,))
    assert [reason for _, reason, _ in told(before, again)] == ["RecreatingGroup"]


def test_refusals_of_many_nodes_are_one_event_for_each_attempt() -> None:
    """The Event's name follows from the attempt, so the API server keeps one, however many nodes are refused later."""
    names = set()
    before = OPEN
    for number in range(200):
        refused = Considered("ReplaceNode", Reason.QUARANTINE_CAP, f"node-{number} not quarantined", f"node-{number}")
        assert before.incident is not None
        after = before.with_incident(considered=(*before.incident.considered, refused))
        names |= {each.key for each in events(before, after)}
        before = after
    assert len(names) == 1


def test_the_same_refusal_with_other_figures_is_not_told_again() -> None:
    before = ledger(attempts=(FIRST,), considered=(CAP,))
    grown = msgspec.structs.replace(CAP, message="quarantine cap reached: 3 of 2 nodes")
    assert told(before, ledger(attempts=(FIRST,), considered=(grown,))) == []


def test_fencing_is_told_when_it_begins_and_not_while_it_lasts() -> None:
    decided, fencing = ledger(attempts=(FIRST,)), ledger(Phase.FENCING, attempts=(FIRST,))
    assert told(decided, fencing) == [("inc-1.fencing-1", "Fencing", SENTENCE)]
    assert told(fencing, ledger(Phase.FENCING, attempts=(FIRST,), message="still the same")) == []


def test_fencing_of_another_attempt_has_a_name_of_its_own() -> None:
    both = (FIRST, attempt(2, AttemptAction.RECREATE_GROUP))
    [(key, *_)] = told(ledger(attempts=both), ledger(Phase.FENCING, attempts=both))
    assert key == "inc-1.fencing-2"


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [(Reason.BUDGET_EXHAUSTED, "Held"), (Reason.SAME_ERROR_AGAIN, "HeldUntilRetry")],
)
def test_a_hold_for_an_error_and_a_hold_for_the_budget_have_different_event_reasons(
    verdict: Reason, reason: str
) -> None:
    assert told(OPEN, ledger(Phase.HELD, step=Step(StepType.HELD, reason=verdict))) == [
        ("inc-1.held-0", reason, SENTENCE)
    ]


def test_a_jobset_that_is_made_to_fail_is_told_as_that_and_not_as_held() -> None:
    failing = ledger(Phase.HELD, step=FAILING, rule="own-exit-codes")
    assert told(OPEN, failing) == [("inc-1.fail-job-0", "FailingJob", SENTENCE)]
    assert told(failing, ledger(Phase.HELD, step=FAILING, rule="own-exit-codes", message="still failing")) == []


def test_a_hold_that_turns_into_a_failure_is_told() -> None:
    [(_, reason, _)] = told(ledger(Phase.HELD), ledger(Phase.HELD, step=FAILING))
    assert reason == "FailingJob"


def test_a_rule_is_told_by_what_it_led_to() -> None:
    by_rule = ledger(attempts=(FIRST,), rule="bad-gpu")
    assert [reason for _, reason, _ in told(OPEN, by_rule)] == ["RecreatingGroup"]


def test_a_rule_that_led_to_nothing_new_is_told_once() -> None:
    held = ledger(Phase.HELD)
    by_rule = ledger(Phase.HELD, rule="bad-gpu")
    assert told(held, by_rule) == [("inc-1.rule-0", "RuleDecided", SENTENCE)]
    assert told(by_rule, by_rule) == []
    assert told(by_rule, ledger(Phase.HELD, rule="")) == [], "the default is no rule"


def test_the_same_change_makes_the_same_events() -> None:
    after = ledger(Phase.FENCING, attempts=(FIRST,), considered=(CAP,))
    assert events(OPEN, after) == events(OPEN, after)
    assert len({event.key for event in events(OPEN, after)}) == 3


def test_the_end_is_told_once() -> None:
    closing = Closing(Outcome.FAILED, Reason.FAIL_JOB_RULE, AT)
    failing = ledger(Phase.HELD, step=FAILING)
    closed = ledger(Phase.HEALTHY, step=FAILING, closing=closing)
    assert [reason for _, reason, _ in told(failing, closed)] == ["IncidentFailed"]
    assert told(closed, closed) == []


# --- as decisions make them ------------------------------------------------------------------------------------------


def test_of_a_pod_that_blocks_its_group_on_a_silent_node() -> None:
    controller = Controller(policy())
    evicted = training().node_silent("gpu-2", 0).evicted(2, 300, reason="DeletionByTaintManager")
    controller.reconcile(evicted, 301)
    going = evicted.job_deleted(302).all_deleted(302)
    for index in (0, 1, 3):
        going = going.with_pod(index, gone_at=at(310))
    for seconds in (320, 330, 340):
        controller.reconcile(going, seconds)
    controller.settle(going.node_back("gpu-2").recreated(400).all_ready(420), 421)
    assert controller.events == ["RecreatingGroup", "Fencing", "IncidentRecovered"]


def test_of_a_loss_that_the_controller_only_observes() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    controller.reconcile(training().pod_failed(3, 42, 0), 1)
    (event,) = [action for action in controller.done if isinstance(action, EmitEvent)]
    assert (event.reason, event.note) == ("MemberLost", controller.incident.message)


def test_of_an_exit_code_that_a_rule_calls_the_end_of_the_job() -> None:
    fails = Rule("own-codes", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))
    controller = Controller(policy(rules=(fails,), may_fail_jobs=True))
    failed = training().pod_failed(3, 42, 0)
    controller.reconcile(failed, 1)
    assert controller.events == ["MemberLost"], "its cause has not settled yet"
    controller.reconcile(failed, 10)
    controller.reconcile(failed, 11)
    assert controller.events == ["MemberLost", "FailingJob"]


def test_of_a_node_that_may_not_be_quarantined() -> None:
    replace = Rule("bad-node", RuleAction.REPLACE_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (137,))))
    controller = Controller(policy(rules=(replace,)))
    controller.reconcile(training().with_node("gpu-3").pod_failed(3, 137, 0), 10)
    assert controller.events == ["RecreatingGroup", "QuarantineRefused"]


def test_a_group_that_is_left_hanging_is_one_event() -> None:
    closing = Closing(Outcome.HELD, Reason.FAIL_JOB_RULE, AT, still_broken=True)
    hangs = Broken(AT, AT, "inc-1", "HardwareFault", 16, "pod llm-0-1 ended")
    closed = msgspec.structs.replace(ledger(Phase.HEALTHY, closing=closing), standing=Standing.BROKEN, broken=hangs)
    note = "The group has been Broken since 2026-11-02 09:00:00Z: pod llm-0-1 ended. Its other ranks hang."
    assert told(OPEN, closed) == [("inc-1.closed", "IncidentHeld", SENTENCE), ("inc-1.broken", "GroupBroken", note)]
    recorded = msgspec.structs.replace(closed, incident=None)
    assert told(closed, recorded) == []
    assert told(recorded, msgspec.structs.replace(recorded, standing=Standing.MET, broken=None)) == []
