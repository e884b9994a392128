"""Which rule of a policy decides an incident: the first that matches the root."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.core.diagnosis.classify import Disruption, DisruptionClass, Finding
from recovery.core.diagnosis.evidence import LossKind
from recovery.core.diagnosis.matching import Answer, may_change
from recovery.core.model.facts import (
    ContainerFacts,
    ExitFacts,
)
from recovery.core.model.rules import Rule, RuleAction
from tests.unit.core.diagnosis.matched import (
    BAD_GPU,
    IN_42,
    NOT_IN_42,
    OF_NODE,
    PREEMPTED,
    RESTARTED,
    answer,
    ended,
    finding,
    gpu,
    pod,
    rule,
    snapshot,
)
from tests.unit.core.world import at

# --- which rule, which cause ---------------------------------------------------------------------------------------


def decided(found: Answer) -> tuple[str, int] | None:
    """The name and the position of the deciding rule."""
    return None if found.match is None else (found.match.rule.name, found.match.number)


def test_the_first_match_decides() -> None:
    rules = (rule(name="no", onClass=["UserError"]), rule("FailJob", "b", **IN_42), rule("Ignore", "c"))
    assert decided(answer(rules, finding(pod()))) == ("b", 1)


def test_no_match_is_no_decision() -> None:
    assert answer((rule(onClass=["UserError"]),), finding(pod())) == Answer()
    assert answer((), finding(pod())) == Answer()


def test_the_root_is_asked_about_and_no_cause_after_it() -> None:
    root, later = finding(pod(1), means=DisruptionClass.KILLED), finding(pod(2), means=DisruptionClass.USER_ERROR)
    assert decided(answer((rule("FailJob", onClass=["UserError"]),), root, later)) is None
    found = answer((rule("FailJob", onClass=["UserError"]), rule(name="b", onClass=["Killed"])), root, later)
    assert decided(found) == ("b", 1)
    assert found.match is not None
    assert found.match.finding is root


def test_no_rule_meets_the_exit_code_of_a_cascade() -> None:
    root, cascade = finding(pod(1, ContainerFacts("node", exit=ExitFacts(137)))), finding(pod(2), cascade=True)
    assert answer((rule("FailJob", **IN_42),), root, cascade) == Answer()


def test_where_nothing_but_consequence_is_known_it_is_asked_about() -> None:
    assert decided(answer((rule("FailJob", **IN_42),), finding(pod(), cascade=True))) == ("a", 0)


def test_ignore_takes_a_cause_out_and_the_next_one_is_the_root() -> None:
    drained, crashed = finding(pod(1), LossKind.POD_DISRUPTED, DisruptionClass.POD_DISRUPTED), finding(pod(2))
    rules = (rule("Ignore", "drains", onClass=["PodDisrupted"]), rule("FailJob", "codes", **IN_42))
    found = answer(rules, drained, crashed)
    assert decided(found) == ("codes", 1)
    assert [(each.rule.name, each.finding) for each in found.ignored] == [("drains", drained)]
    # The default decides what no rule matches. The ignored cause stays out.
    found = answer(rules[:1], drained, crashed)
    assert (found.match, len(found.ignored)) == (None, 1)


def test_consequence_is_ignored_with_its_cause() -> None:
    drained = finding(pod(1), LossKind.POD_DISRUPTED, DisruptionClass.POD_DISRUPTED)
    rules = (rule("Ignore", "drains", onClass=["PodDisrupted"]), rule("FailJob", "codes", **IN_42))
    found = answer(rules, drained, finding(pod(2), cascade=True))
    assert (found.match, [each.finding for each in found.ignored]) == (None, [drained])


def test_no_rule_is_asked_about_what_a_person_asks_for() -> None:
    wish = finding(None, LossKind.MANUAL, DisruptionClass.MANUAL)
    assert answer((rule("Ignore"),), wish) == Answer()
    assert may_change((rule("Ignore"),), Disruption((wish,)), snapshot()) is False


HELD_LATER = rule("FailJob", "later", onNodeConditions=[{"type": "GpuUnhealthy", "for": "90s"}])


def test_it_says_when_time_alone_would_make_an_earlier_rule_match() -> None:
    facts = snapshot(gpu(BAD_GPU))
    found = answer((HELD_LATER, rule(name="now")), finding(pod()), facts=facts)
    assert (decided(found), found.changes_at) == (("now", 1), at(30))
    # A rule below the deciding one never will.
    assert answer((rule(name="now"), HELD_LATER), finding(pod()), facts=facts).changes_at is None
    # Time does not help where another requirement of the rule fails.
    both = msgspec.structs.replace(HELD_LATER, when=msgspec.structs.replace(HELD_LATER.when, on_class=("Killed",)))
    assert answer((both,), finding(pod()), facts=facts).changes_at is None
    found = answer((HELD_LATER, rule(name="now")), finding(pod()), facts=facts, now=at(30))
    assert (decided(found), found.changes_at) == (("later", 0), None)


WHENS = st.sampled_from(
    [
        {},
        IN_42,
        NOT_IN_42,
        OF_NODE,
        {"onClass": ["Killed", "UserError"]},
        {"onClass": ["PodDisrupted"]},
        {"onMessagePattern": "Xid"},
        {"targetReplicatedJobs": ["node"]},
        {"targetReplicatedJobs": ["launcher"]},
        {"onNodeConditions": [{"type": "GpuUnhealthy", "for": "90s"}]},
        {"onNodeConditions": [{"type": "GpuUnhealthy"}]},
        {"onNodeTaints": [{"key": "nvidia.com/xid"}]},
        {"onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
)


RULES = st.lists(
    st.builds(lambda action, when: rule(action, **when), st.sampled_from(list(RuleAction)), WHENS), max_size=5
)


PODS = st.sampled_from([pod(3), pod(2), PREEMPTED, RESTARTED, ended("Xid 79"), None])


FINDINGS = st.lists(
    st.builds(
        lambda lost, kind, means, cascade: finding(lost, kind, means, cascade=cascade),
        PODS,
        st.sampled_from(list(LossKind)),
        st.sampled_from(list(DisruptionClass)),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(RULES, RULES, FINDINGS)
def test_rules_below_the_one_that_decides_change_nothing(
    rules: list[Rule], more: list[Rule], found: list[Finding]
) -> None:
    facts = snapshot(gpu(BAD_GPU))
    before = answer(tuple(rules), *found, facts=facts)
    if before.match is None:
        return
    kept = rules[: max(match.number for match in (before.match, *before.ignored)) + 1]
    assert answer((*kept, *more), *found, facts=facts) == before


@given(RULES, FINDINGS)
def test_what_is_only_consequence_decides_nothing_beside_a_cause(rules: list[Rule], found: list[Finding]) -> None:
    causes = [each for each in found if not each.cascade]
    facts = snapshot(gpu(BAD_GPU))
    if causes:
        assert answer(tuple(rules), *found, facts=facts) == answer(tuple(rules), *causes, facts=facts)


# --- may late evidence change it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ((), False),
        ((rule("RecreateGroup"), rule("ReplaceNode")), False),
        ((rule("FailJob", **IN_42),), True),
        ((rule("RecreateGroup"), rule("Ignore", **IN_42)), True),
        ((rule("FailJob", targetReplicatedJobs=["node"]),), True),
        ((rule("FailJob", targetReplicatedJobs=["launcher"]),), False),
    ],
    ids=["no rules", "none that ends or ignores", "FailJob", "Ignore", "of this ReplicatedJob", "of another"],
)
def test_late_evidence_matters_only_to_ignore_and_fail_job(rules: tuple[Rule, ...], may: bool) -> None:
    assert may_change(rules, Disruption((finding(pod()),)), snapshot()) is may


def test_a_loss_whose_job_is_unknown_may_match_any_target() -> None:
    facts = msgspec.structs.replace(snapshot(), jobs=())
    assert may_change((rule("FailJob", targetReplicatedJobs=["launcher"]),), Disruption((finding(pod()),)), facts)
