"""Which quarantines the fleet's ledger admits, when it releases them, and which it adopts from the nodes."""

from typing import Any

import msgspec
import pytest

from recovery.core.fleet.quarantine import (
    Mark,
    Refused,
    admitted,
    cap,
    cordons,
    mark_of,
    next_review_at,
    parsed_mark,
    spared,
    taken_in,
)
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.facts import Condition, FleetFacts, GroupKey, NodeFacts, Taint, WaitingGroup
from recovery.core.model.fleet_ledger import (
    BY_HAND,
    QUARANTINE_TAINT,
    FleetLedger,
    FleetLimits,
    Quarantined,
)
from recovery.core.model.reason import Reason, because, explained
from recovery.core.model.sentence import Sentence
from tests.unit.core.fleet.quarantined import LIMITS, entry, ledger, node, only, reconcile, suspicion
from tests.unit.core.world import at

OF_THREE = FleetLimits(may_cordon=True, max_nodes=3, max_percent=100)


def by_person(node: str = "gpu-1", **fields: Any) -> Quarantined:
    return entry(node, incident="", by="jane", **fields)


def admit(
    before: FleetLedger, limits: FleetLimits, wanted: Quarantined, nodes: int = 100, shows: NodeFacts | None = None
) -> FleetLedger | Refused:
    return admitted(before, limits, wanted, nodes=nodes, now=at(10), shows=shows)


# --- caps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "max_nodes", "max_percent", "allowed"),
    [
        (1500, None, 5, 75),
        (1500, 10, 5, 10),
        (1500, 200, 5, 75),
        (119, None, 5, 5),
        (3, None, 5, 1),
        (0, None, 5, 1),
        (1500, None, 0, 0),
        (1500, 0, 5, 0),
        (8, None, 100, 8),
    ],
)
def test_the_smaller_cap_holds_and_a_small_cluster_has_one_node(
    nodes: int, max_nodes: int | None, max_percent: int, allowed: int
) -> None:
    assert cap(FleetLimits(max_nodes=max_nodes, max_percent=max_percent), nodes) == allowed


def test_a_node_within_the_caps_is_admitted_with_its_time() -> None:
    limits = msgspec.structs.replace(LIMITS, release_after_seconds=3600.0)
    after = admit(FleetLedger(), limits, entry())
    assert isinstance(after, FleetLedger)
    assert only(after) == entry(release_at=at(3600))


def test_the_same_node_again_is_the_same_ledger() -> None:
    before = ledger(entry(applied=True))
    assert admit(before, LIMITS, entry()) is before
    assert admit(before, LIMITS, entry(incident="inc-2")) is before


def test_a_node_that_another_incident_wants_while_it_is_released_is_quarantined_again() -> None:
    before = ledger(entry(applied=True, releasing="its time was over"))
    assert admit(before, LIMITS, entry()) is before, "a late repeat is no new reason"
    assert admit(before, LIMITS, entry(incident="inc-2")) == ledger(entry(incident="inc-2"))


RELEASED = {RELEASE_ANNOTATION: "2026-11-21T12:00:05Z"}


@pytest.mark.parametrize(
    ("fields", "shows"),
    [
        ({}, node(annotations=RELEASED)),
        ({}, node(bears=entry(), annotations=RELEASED)),
        ({}, node()),
        ({"release_at": at(7)}, node(bears=entry())),
        ({"release_when": "GpuUnhealthy"}, node(bears=entry())),
    ],
    ids=["by the command", "by kubectl annotate", "by others who removed the taint", "by time", "by health"],
)
def test_an_entry_that_has_ended_and_is_not_reviewed_yet_is_quarantined_again_for_a_new_reason(
    fields: dict[str, Any], shows: NodeFacts
) -> None:
    """The review comes within 30 s. Until then the node takes pods, or soon does, though the ledger has its entry."""
    before = ledger(entry(applied=True, **fields))
    for newer in (entry(incident="inc-2", since=at(9)), entry(since=at(9))):
        assert admit(before, LIMITS, newer, shows=shows) == ledger(newer)
    assert admit(before, LIMITS, entry(), shows=shows) is before, "a late repeat is no new reason"


def test_an_entry_that_its_node_shows_stands_for_any_reason() -> None:
    before = ledger(entry(applied=True))
    assert admit(before, LIMITS, entry(incident="inc-2", since=at(9)), shows=node(bears=entry())) is before


def test_an_entry_that_its_node_does_not_show_yet_stands() -> None:
    before = ledger(entry())
    assert admit(before, LIMITS, entry(incident="inc-2", since=at(9)), shows=node()) is before


def test_a_node_that_was_recreated_is_another_one() -> None:
    before = ledger(entry(applied=True))
    assert admit(before, LIMITS, entry(node_uid="newer")) == ledger(entry(node_uid="newer"))


@pytest.mark.parametrize(
    ("limits", "nodes", "field"),
    [
        (FleetLimits(may_cordon=True, max_percent=2), 100, "spec.quarantine.maxPercent 2"),
        (FleetLimits(may_cordon=True, max_nodes=2), 100, "spec.quarantine.maxNodes 2"),
    ],
)
def test_a_refusal_names_the_cap_the_figures_and_the_field(limits: FleetLimits, nodes: int, field: str) -> None:
    refused = admit(ledger(entry("gpu-1"), entry("gpu-2")), limits, entry("gpu-3"), nodes)
    assert refused == Refused(because(Reason.QUARANTINE_CAP, count=2, cap=2, field=f"RecoveryConfig {field}"))


def test_without_permission_nothing_is_admitted() -> None:
    refused = admit(FleetLedger(), FleetLimits(), entry())
    assert refused == Refused(because(Reason.QUARANTINE_NOT_ALLOWED))


def test_a_persons_quarantine_is_never_refused_counts_and_has_no_end() -> None:
    limits = FleetLimits(may_cordon=False, max_nodes=1, release_after_seconds=60.0)
    after = admit(ledger(entry("gpu-1")), limits, by_person("gpu-2"))
    assert after == ledger(entry("gpu-1"), by_person("gpu-2"))
    allowed = msgspec.structs.replace(limits, may_cordon=True)
    assert admit(ledger(by_person("gpu-2")), allowed, entry("gpu-1")) == Refused(
        because(Reason.QUARANTINE_CAP, count=1, cap=1, field="RecoveryConfig spec.quarantine.maxNodes 1")
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        "{",
        "[]",
        '{"reason": "r", "since": "2026-11-21T12:00:00"}',
        '{"reason": "r", "since": "2026-11-21T12:00:00Z", "releaseAt": "2026-11-21T12:00:00"}',
        '{"reason": "r", "since": "2026-11-21T12:00:00Z", "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=["empty", "no JSON", "no object", "no zone", "an end without a zone", "deeper than any Python reads"],
)
def test_a_mark_on_a_node_that_cannot_be_made_out_is_none(value: str) -> None:
    assert parsed_mark(value) is None


def test_a_release_that_never_ends_in_time_is_no_time() -> None:
    limits = msgspec.structs.replace(LIMITS, release_after_seconds=1e12)
    assert admit(FleetLedger(), limits, entry()) == ledger(entry())


@pytest.mark.parametrize("wanted", [False, True])
def test_a_cordon_that_is_there_keeps_its_owner_and_another_is_ours_if_it_is_wanted(wanted: bool) -> None:
    """A cordon of the quarantine before, which no entry calls ours any more, would stay on the node for good."""
    assert cordons(node(), wanted=wanted) is wanted
    assert cordons(node(bears=entry()), wanted=wanted) is True
    assert cordons(node(unschedulable=True), wanted=wanted) is False
    assert cordons(node(bears=entry(), taints=()), wanted=wanted) is False, "others have taken it over"


# --- the last feasible nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "feasible", "members", "per_node", "is_spared"),
    [
        ("a", "abcd", 4, 1, True),
        ("a", "abcde", 4, 1, False),
        ("a", "abc", 4, 2, False),
        ("a", "ab", 4, 2, True),
        ("x", "ab", 4, 1, False),
    ],
)
def test_the_last_nodes_of_a_waiting_group_are_spared(
    wanted: str, feasible: str, members: int, per_node: int, is_spared: bool
) -> None:
    fleet = FleetFacts(nodes=9, feasible=tuple(feasible), pods_per_node=per_node)
    refused = spared(FleetLedger(), wanted, fleet, members)
    assert (refused is not None) == is_spared
    if refused is not None:
        assert refused.why.reason is Reason.QUARANTINE_LAST_NODES


def test_the_last_nodes_with_accelerators_are_spared_however_many_there_are_without() -> None:
    everywhere = tuple(f"cpu-{number}" for number in range(50))
    fleet = FleetFacts(nodes=54, feasible=(*everywhere, "gpu-0", "gpu-1"), with_accelerators=("gpu-0", "gpu-1"))
    assert spared(FleetLedger(), "gpu-1", fleet, 2) is not None
    assert spared(FleetLedger(), "gpu-1", fleet, 1) is None


@pytest.mark.parametrize(
    "fleet",
    [FleetFacts(nodes=9, feasible=None), FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=None)],
)
def test_while_no_one_knows_which_nodes_are_left_none_is_taken(fleet: FleetFacts) -> None:
    assert spared(FleetLedger(), "a", fleet, 2) == Refused(because(Reason.FEASIBLE_NODES_UNKNOWN))


def test_the_sentence_tells_how_many_are_needed() -> None:
    refused = spared(FleetLedger(), "a", FleetFacts(nodes=9, feasible=("a", "b")), 2)
    assert refused == Refused(
        explained(Sentence.LAST_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=2, left=2)
    )
    fewer = spared(FleetLedger(), "a", FleetFacts(nodes=9, feasible=("a", "b")), 3)
    assert fewer == Refused(
        explained(Sentence.TOO_FEW_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=3, left=2)
    )


def waits(name: str, needed: int, feasible: str) -> WaitingGroup:
    return WaitingGroup(GroupKey("ml", name), needed, tuple(feasible))


@pytest.mark.parametrize(
    ("waiting", "for_whom"),
    [
        ([], ""),
        ([waits("b", 3, "abcd")], ""),
        ([waits("b", 4, "abcd")], "ml/b"),
        ([waits("b", 5, "abcd")], "ml/b"),  # the group would run once the nodes that are down are back
        ([waits("b", 3, "bcd")], ""),  # the node is of no use to the group
        ([waits("b", 1, "a")], "ml/b"),
        ([waits("b", 2, "abcd"), waits("c", 2, "ab")], "ml/c"),
        ([waits("c", 2, "ab"), waits("b", 2, "ac")], "ml/b"),  # the same group in every reconcile
    ],
)
def test_the_last_nodes_of_any_group_that_waits_are_spared(waiting: list[WaitingGroup], for_whom: str) -> None:
    fleet = FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=tuple(waiting))
    refused = spared(FleetLedger(), "a", fleet, 2)
    assert (refused is not None) == bool(for_whom)
    if refused is not None:
        assert refused.why.details["whose"] == f"waiting group {for_whom}"
        assert refused.why.reason is Reason.QUARANTINE_LAST_NODES


def test_the_sentence_names_the_group_that_waits() -> None:
    fleet = FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=(waits("llm", 4, "abcd"),))
    assert spared(FleetLedger(), "a", fleet, 2) == Refused(
        explained(Sentence.LAST_NODES, Reason.QUARANTINE_LAST_NODES, whose="waiting group ml/llm", needed=4, left=4)
    )


@pytest.mark.parametrize(
    ("entered", "is_spared"), [((), False), (("a",), False), (("x", "y"), False), (("b",), True), (("b", "c"), True)]
)
@pytest.mark.parametrize("whose", ["own", "other"])
def test_nodes_of_the_ledger_count_as_taken_whether_they_bear_the_taint_yet_or_not(
    entered: tuple[str, ...], is_spared: bool, whose: str
) -> None:
    """Otherwise two groups that decide in the same second would take the last two nodes."""
    mine = FleetFacts(nodes=9, feasible=tuple("abcde"))
    others = FleetFacts(nodes=9, feasible=tuple("abcdefghij"), waiting=(waits("llm", 4, "abcde"),))
    before = ledger(*(entry(name) for name in entered))
    refused = spared(before, "a", mine if whose == "own" else others, 4)
    assert (refused is not None) == is_spared


# --- what the fleet's reconciler finds due ----------------------------------------------------------------------------


def test_an_entry_is_applied_once_its_node_bears_the_taint() -> None:
    before = ledger(entry())
    assert reconcile(before, node()) is before
    assert reconcile(before, node(bears=entry())) == ledger(entry(applied=True))


def test_an_entry_whose_taint_someone_else_took_away_is_dropped() -> None:
    before = ledger(entry(applied=True))
    assert reconcile(before, node()) == FleetLedger()
    bare = node(bears=entry(), taints=())
    left = reconcile(before, bare)
    assert only(left).releasing == "others removed the taint"
    assert reconcile(left, bare) is left, "our annotation is still there"
    assert reconcile(left, node()) == FleetLedger()


def test_an_entry_whose_node_is_gone_or_recreated_is_dropped() -> None:
    before = ledger(entry(applied=True))
    assert reconcile(before) == FleetLedger()
    assert reconcile(before, node(uid="newer")) == FleetLedger()


def test_a_cordon_that_a_person_took_away_is_not_ours_any_more() -> None:
    before = ledger(entry(applied=True))
    uncordoned = reconcile(before, node(bears=entry(), unschedulable=False))
    assert only(uncordoned).cordoned is False
    assert only(reconcile(uncordoned, node(bears=entry()))).cordoned is False


def test_a_release_lasts_until_the_node_bears_nothing_of_it() -> None:
    before = ledger(entry(applied=True, releasing="its time was over"))
    assert reconcile(before, node(bears=entry())) is before
    assert reconcile(before, node()) == FleetLedger()
    assert reconcile(before, node(bears=by_person())) == FleetLedger(), "that is a person's"


@pytest.mark.parametrize(
    ("fields", "facts", "why"),
    [
        ({"release_at": at(9)}, {}, "its time was over at"),
        ({"release_at": at(11)}, {}, ""),
        ({"release_when": "GpuUnhealthy"}, {}, "the node is Ready, and GpuUnhealthy has ended"),
        ({"release_when": "GpuUnhealthy"}, {"ready": False}, ""),
        ({"release_when": "GpuUnhealthy"}, {"conditions": (Condition("GpuUnhealthy", "True"),)}, ""),
        ({"release_when": "GpuUnhealthy"}, {"conditions": (Condition("GpuUnhealthy", "False"),)}, "the node is Ready"),
        ({"release_when": "nvidia.com/gpu-xid"}, {"taints": (Taint("nvidia.com/gpu-xid"),)}, ""),
        ({"release_when": "GpuHealthy=False"}, {"conditions": (Condition("GpuHealthy", "False"),)}, ""),
        ({"release_when": "GpuHealthy=False"}, {"conditions": (Condition("GpuHealthy", "True"),)}, "the node is Ready"),
        ({"release_when": "A, v/b"}, {"conditions": (Condition("A", "True"),)}, ""),
        ({"release_when": "A, v/b"}, {"taints": (Taint("v/b"),)}, ""),
        ({"release_when": "A, v/b"}, {}, "the node is Ready, and A and v/b have ended"),
        ({}, {"annotations": {RELEASE_ANNOTATION: "2026-11-21T12:00:00Z"}}, "released by hand at 2026-11-21T12:00:00Z"),
        ({}, {"annotations": {RELEASE_ANNOTATION: "2026-11-21T11:59:59Z"}}, ""),
        ({}, {"annotations": {RELEASE_ANNOTATION: "2099-01-01T00:00:00Z"}}, ""),
        ({}, {"annotations": {RELEASE_ANNOTATION: "soon"}}, ""),
        ({}, {}, ""),
    ],
)
def test_a_node_is_released_by_time_by_health_or_by_hand(
    fields: dict[str, Any], facts: dict[str, Any], why: str
) -> None:
    before = ledger(entry(**fields))
    bears = node(bears=entry(**fields))
    shown = dict(facts)
    if "annotations" in shown:
        shown["annotations"] = {**bears.annotations, **facts["annotations"]}
    if "taints" in shown:
        shown["taints"] = (*bears.taints, *facts["taints"])
    after = only(reconcile(before, msgspec.structs.replace(bears, **shown)))
    assert after.releasing.startswith(why)
    assert bool(after.releasing) == bool(why)


def test_a_quarantine_that_is_decided_and_not_yet_set_can_be_released_as_well() -> None:
    released = node(annotations={RELEASE_ANNOTATION: "2026-11-21T12:00:05Z"})
    after = reconcile(ledger(entry()), released)
    assert only(after).releasing
    assert reconcile(after, released) == FleetLedger()


def test_a_release_by_hand_takes_away_what_was_held_against_the_node_before() -> None:
    """Otherwise one more suspicion would quarantine the node again at once."""
    suspicions = (suspicion("inc-1", -5), suspicion("inc-2", 4), suspicion("inc-3", 6), suspicion("inc-2", 0, "gpu-2"))
    before = msgspec.structs.replace(ledger(entry(applied=True)), suspicions=suspicions)
    others = node("gpu-2")
    bears = node(bears=entry())
    released = msgspec.structs.replace(
        bears, annotations={**bears.annotations, RELEASE_ANNOTATION: "2026-11-21T12:00:05Z"}
    )
    after = reconcile(before, released, others)
    assert only(after).releasing.startswith("released by hand")
    assert after.suspicions == (suspicion("inc-3", 6), suspicion("inc-2", 0, "gpu-2"))


def test_a_node_that_is_only_suspected_can_be_released_of_that() -> None:
    before = FleetLedger(suspicions=(suspicion("inc-1"),))
    assert reconcile(before, node()) is before
    assert reconcile(before, node(annotations={RELEASE_ANNOTATION: "2099-01-01T00:00:00Z"})) is before, "for ever"
    assert reconcile(before, node(annotations={RELEASE_ANNOTATION: "2026-11-21T12:00:00Z"})) == FleetLedger()


@pytest.mark.parametrize("fields", [{"release_at": at(9)}, {"release_when": "GpuUnhealthy"}], ids=["time", "health"])
def test_a_release_by_time_or_health_leaves_the_suspicions_to_decay(fields: dict[str, Any]) -> None:
    made = entry(applied=True, **fields)
    before = msgspec.structs.replace(ledger(made), suspicions=(suspicion("inc-1"),))
    after = reconcile(before, node(bears=made))
    assert only(after).releasing
    assert after.suspicions == before.suspicions


def test_only_time_calls_for_a_review() -> None:
    assert next_review_at(ledger(entry()), at(10)) is None
    several = ledger(entry("a", release_at=at(50)), entry("b", release_at=at(30)), entry("c", release_at=at(20)))
    assert next_review_at(several, at(10)) == at(20)
    assert next_review_at(several, at(40)) == at(40), "it is due already"
    assert next_review_at(ledger(entry(release_at=at(50), releasing="by hand")), at(10)) is None


# --- what nodes tell that the ledger does not know -----------------------------------------------------------------


def test_a_persons_quarantine_is_taken_in() -> None:
    after = taken_in(FleetLedger(), [node(bears=by_person(reason="fan noise"))], at(10))
    assert after == ledger(by_person(reason="fan noise", applied=True))
    assert taken_in(after, [node(bears=by_person(reason="fan noise"))], at(20)) is after


def test_a_taint_that_a_person_typed_is_taken_in_without_the_cordon() -> None:
    typed = node(taints=(Taint(QUARANTINE_TAINT, BY_HAND),), unschedulable=True)
    taken = only(taken_in(FleetLedger(), [typed], at(10)))
    assert (taken.by, taken.cordoned, taken.applied) == ("someone", False, True)


def test_a_person_takes_over_from_the_controller() -> None:
    before = ledger(entry(applied=True, release_at=at(5)))
    assert taken_in(before, [node(bears=by_person())], at(10)) == ledger(by_person(applied=True))


def test_a_quarantine_of_a_ledger_that_was_lost_is_taken_back() -> None:
    ours = entry(release_at=at(100), release_when="GpuUnhealthy")
    assert taken_in(FleetLedger(), [node(bears=ours)], at(10)) == ledger(msgspec.structs.replace(ours, applied=True))


@pytest.mark.parametrize(
    "foreign",
    [
        node(taints=(Taint(QUARANTINE_TAINT, "inc-9"),)),
        node(taints=(Taint(QUARANTINE_TAINT, BY_HAND, "NoExecute"),)),
        node(taints=(Taint("node.kubernetes.io/unschedulable"),), unschedulable=True),
        node(bears=entry(), taints=()),
        node(bears=entry(), taints=(Taint(QUARANTINE_TAINT, "inc-2"),)),
        node(taints=(Taint(QUARANTINE_TAINT, "inc-9"),), annotations={QUARANTINE_ANNOTATION: "{"}),
    ],
)
def test_what_is_not_ours_is_not_taken_in(foreign: NodeFacts) -> None:
    assert taken_in(FleetLedger(), [foreign], at(10)) == FleetLedger()


def test_the_mark_tells_all_that_the_ledger_holds() -> None:
    mark = mark_of(entry(release_at=at(60), namespace="ml"), cordoned=True)
    sign = "GpuFaultOnNode"
    wanted = Mark("XID 79", at(0), incident="inc-1", release_at=at(60), cordoned=True, namespace="ml", node_sign=sign)
    assert mark == wanted
    assert (mark.taint_value, mark_of(by_person(), cordoned=True).taint_value) == ("inc-1", BY_HAND)
