"""The fleet's ledger: what is admitted within the caps, what is counted, what is due, and when the breaker opens."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.fleet.breaker import breaker_reset
from recovery.core.fleet.quarantine import (
    Mark,
    Refused,
    admitted,
    cap,
    changed,
    mark_of,
    next_review_at,
    parsed_mark,
    reviewed,
    spared,
    taint_value,
    taken_in,
)
from recovery.core.fleet.suspicion import suspected
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.facts import Condition, FleetFacts, GroupKey, NodeFacts, Taint, WaitingGroup
from recovery.core.model.fleet_ledger import (
    BY_HAND,
    QUARANTINE_TAINT,
    Breaker,
    FleetChange,
    FleetLedger,
    FleetLimits,
    Futile,
    Quarantined,
    Suspicion,
)
from recovery.core.model.reason import Reason, Sentence, because, told
from tests.unit.core.world import at

LIMITS = FleetLimits(may_cordon=True)
OF_THREE = FleetLimits(may_cordon=True, max_nodes=3, max_percent=100)
COUNTS = FleetLimits(may_cordon=True, breaker_recoveries=3)


def entry(node: str = "gpu-1", **fields: Any) -> Quarantined:
    """By an incident and confirmed by the node, without an end; `fields` say otherwise."""
    made = Quarantined(
        node=node, node_uid=f"uid-{node}", reason="XID 79", since=at(0), incident="inc-1", node_sign="GpuFaultOnNode"
    )
    return msgspec.structs.replace(made, **fields)


def by_person(node: str = "gpu-1", **fields: Any) -> Quarantined:
    return entry(node, incident="", by="jane", **fields)


def node(name: str = "gpu-1", bears: Quarantined | None = None, **fields: Any) -> NodeFacts:
    """`bears`: the quarantine that is set on it, as the executor sets it."""
    facts = NodeFacts(name=name, ready=True, uid=f"uid-{name}")
    if bears is not None:
        mark = msgspec.json.encode(mark_of(bears, cordoned=True)).decode()
        facts = msgspec.structs.replace(
            facts,
            unschedulable=True,
            taints=(Taint(QUARANTINE_TAINT, taint_value(bears)),),
            annotations={QUARANTINE_ANNOTATION: mark},
        )
    return msgspec.structs.replace(facts, **fields)


def ledger(*entries: Quarantined) -> FleetLedger:
    return FleetLedger(quarantined=entries)


def admit(before: FleetLedger, limits: FleetLimits, wanted: Quarantined, nodes: int = 100) -> FleetLedger | Refused:
    return admitted(before, limits, wanted, nodes=nodes, now=at(10))


def reconcile(before: FleetLedger, *nodes: NodeFacts, seconds: float = 10, limits: FleetLimits = LIMITS) -> FleetLedger:
    return reviewed(before, limits, {each.name: each for each in nodes}, at(seconds))


def only(found: FleetLedger) -> Quarantined:
    (one,) = found.quarantined
    return one


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
        '{"reason": "r", "since": "2026-11-21T12:00:00Z", "x": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
    ids=["empty", "no JSON", "no object", "no zone", "an end without a zone", "5,000 deep"],
)
def test_a_mark_on_a_node_that_cannot_be_made_out_is_none(value: str) -> None:
    assert parsed_mark(value) is None


def test_a_release_that_never_ends_in_time_is_no_time() -> None:
    limits = msgspec.structs.replace(LIMITS, release_after_seconds=1e12)
    assert admit(FleetLedger(), limits, entry()) == ledger(entry())


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


@pytest.mark.parametrize(
    "fleet",
    [FleetFacts(nodes=9, feasible=None), FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=None)],
)
def test_while_nobody_knows_which_nodes_are_left_none_is_taken(fleet: FleetFacts) -> None:
    assert spared(FleetLedger(), "a", fleet, 2) == Refused(because(Reason.FEASIBLE_NODES_UNKNOWN))


def test_the_sentence_tells_how_many_are_needed() -> None:
    refused = spared(FleetLedger(), "a", FleetFacts(nodes=9, feasible=("a", "b")), 2)
    assert refused == Refused(
        told(Sentence.LAST_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=2, left=2)
    )
    fewer = spared(FleetLedger(), "a", FleetFacts(nodes=9, feasible=("a", "b")), 3)
    assert fewer == Refused(
        told(Sentence.TOO_FEW_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=3, left=2)
    )


def waits(name: str, needed: int, feasible: str) -> WaitingGroup:
    return WaitingGroup(GroupKey("ml", name), needed, tuple(feasible))


@pytest.mark.parametrize(
    ("waiting", "for_whom"),
    [
        ([], ""),
        ([waits("b", 3, "abcd")], ""),
        ([waits("b", 4, "abcd")], "ml/b"),
        ([waits("b", 5, "abcd")], "ml/b"),  # it would run once the nodes that are down are back
        ([waits("b", 3, "bcd")], ""),  # the node is of no use to it
        ([waits("b", 1, "a")], "ml/b"),
        ([waits("b", 2, "abcd"), waits("c", 2, "ab")], "ml/c"),
        ([waits("c", 2, "ab"), waits("b", 2, "ac")], "ml/b"),  # in every reconcile the same one
    ],
)
def test_the_last_nodes_of_any_group_that_waits_are_spared(waiting: list[WaitingGroup], for_whom: str) -> None:
    fleet = FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=tuple(waiting))
    refused = spared(FleetLedger(), "a", fleet, 2)
    assert (refused is not None) == bool(for_whom)
    if refused is not None:
        assert refused.why.details["whose"] == f"group {for_whom}, which waits,"
        assert refused.why.reason is Reason.QUARANTINE_LAST_NODES


def test_the_sentence_names_the_group_that_waits() -> None:
    fleet = FleetFacts(nodes=9, feasible=tuple("abcdefgh"), waiting=(waits("llm", 4, "abcd"),))
    assert spared(FleetLedger(), "a", fleet, 2) == Refused(
        told(Sentence.LAST_NODES, Reason.QUARANTINE_LAST_NODES, whose="group ml/llm, which waits,", needed=4, left=4)
    )


@pytest.mark.parametrize(
    ("entered", "is_spared"), [((), False), (("a",), False), (("x", "y"), False), (("b",), True), (("b", "c"), True)]
)
@pytest.mark.parametrize("whose", ["own", "other"])
def test_nodes_of_the_ledger_count_as_taken_whether_they_bear_the_taint_yet_or_not(
    entered: tuple[str, ...], is_spared: bool, whose: str
) -> None:
    """Two groups that decide in the same second would take the last two else."""
    mine = FleetFacts(nodes=9, feasible=tuple("abcde"))
    others = FleetFacts(nodes=9, feasible=tuple("abcdefghij"), waiting=(waits("llm", 4, "abcde"),))
    before = ledger(*(entry(name) for name in entered))
    refused = spared(before, "a", mine if whose == "own" else others, 4)
    assert (refused is not None) == is_spared


# --- suspicion and the breaker -------------------------------------------------------------------------------------


def suspicion(incident: str, seconds: float = 0, node_: str = "gpu-1") -> Suspicion:
    return Suspicion(node_, incident, at(seconds))


def change(before: FleetLedger, what: FleetChange, limits: FleetLimits = COUNTS, seconds: float = 10) -> FleetLedger:
    after = changed(before, limits, what, nodes=100, now=at(seconds))
    assert isinstance(after, FleetLedger)
    return after


def test_suspicions_count_once_for_each_incident_and_only_for_a_while() -> None:
    once = change(FleetLedger(), FleetChange(suspicions=(suspicion("inc-1"), suspicion("inc-1", 5))))
    assert suspected(once, COUNTS, "gpu-1", at(10)) == ("inc-1",)
    twice = change(once, FleetChange(suspicions=(suspicion("inc-2", 7),)))
    assert suspected(twice, COUNTS, "gpu-1", at(10)) == ("inc-1", "inc-2")
    assert suspected(twice, COUNTS, "gpu-2", at(10)) == ()
    assert suspected(twice, COUNTS, "gpu-1", at(86_400)) == ("inc-2",)
    assert suspected(twice, COUNTS, "gpu-1", at(86_407)) == ()


def test_what_no_longer_counts_is_dropped_with_the_next_write_and_not_before() -> None:
    old = change(FleetLedger(), FleetChange(suspicions=(suspicion("inc-1"),)))
    assert change(old, FleetChange(), seconds=90_000) is old
    new = change(old, FleetChange(suspicions=(suspicion("inc-2", 89_000),)), seconds=90_000)
    assert new.suspicions == (suspicion("inc-2", 89_000),)


def test_a_namespace_pushes_no_suspicion_of_others_out_of_the_memory() -> None:
    """Whatever it does in one day."""
    theirs = tuple(Suspicion(f"gpu-{n}", f"b-{n}", at(0), "…", "b") for n in range(5))
    ledger = change(FleetLedger(), FleetChange(suspicions=theirs))
    ours = tuple(Suspicion("gpu-1", f"a-{n}", at(1 + n / 1000), "…", "a") for n in range(3_000))
    after = change(ledger, FleetChange(suspicions=ours))
    assert [each for each in after.suspicions if each.namespace == "b"] == list(theirs)
    assert len(after.suspicions) == 5 + 250


def futile(*incidents: str, seconds: float = 0) -> FleetChange:
    return FleetChange(futile=tuple(Futile(incident, at(seconds)) for incident in incidents))


def test_the_breaker_opens_at_the_count_and_says_why() -> None:
    before = change(FleetLedger(), futile("inc-1", "inc-2", "inc-2"))
    assert before.breaker is None
    after = change(before, futile("inc-3"), seconds=20)
    assert after.breaker == Breaker(at(20), Reason.RECOVERIES_IN_VAIN, recoveries=3, within_seconds=3600.0, limit=3)
    assert change(after, futile("inc-4"), seconds=30).breaker == after.breaker


def crashes(job: str, count: int, *, first: int = 0, seconds: float = 0) -> tuple[Futile, ...]:
    """Futile recoveries of one job, `namespace/name`."""
    namespace, name = job.split("/")
    return tuple(Futile(f"{job}-{number}", at(seconds), namespace, name) for number in range(first, first + count))


@pytest.mark.parametrize(
    ("jobs", "only_namespace", "counted"),
    [
        pytest.param({"a/one": 50}, None, None, id="one job counts for a third"),
        pytest.param({"a/one": 50}, "a", None, id="also where no other namespace enforces anything"),
        pytest.param({"a/one": 50, "a/two": 50, "a/three": 50}, None, None, id="one namespace counts for half"),
        pytest.param({"a/one": 50, "a/two": 50, "a/three": 50}, "a", 12, id="for all of it where it is the only one"),
        pytest.param({"a/one": 4, "a/two": 2, "b/one": 4, "b/two": 2}, None, 12, id="two namespaces fill it"),
        pytest.param({"a/one": 4, "a/two": 2, "b/one": 4, "b/two": 1}, None, None, id="one short of it"),
        pytest.param({"a/one": 50, "b/one": 4, "c/one": 4}, None, 12, id="a third of each of three jobs"),
        pytest.param({"a/same": 4, "b/same": 4, "c/same": 4}, None, 12, id="jobs of one name are different jobs"),
    ],
)
def test_no_job_and_no_namespace_opens_the_breaker_alone(
    jobs: dict[str, int], only_namespace: str | None, counted: int | None
) -> None:
    limits = FleetLimits(breaker_recoveries=12)
    every = tuple(each for job, count in jobs.items() for each in crashes(job, count))
    after = changed(
        FleetLedger(), limits, FleetChange(futile=every), nodes=9, now=at(10), only_namespace=only_namespace
    )
    assert isinstance(after, FleetLedger)
    assert (after.breaker and after.breaker.recoveries) == counted


@pytest.mark.parametrize("limit", range(2, 30))
def test_two_namespaces_open_the_breaker_whatever_the_count_is(limit: int) -> None:
    """Half of an odd count, rounded down, would leave it closed for ever."""
    every = tuple(each for job in range(6) for each in crashes(f"{'ab'[job % 2]}/job-{job}", limit))
    after = change(FleetLedger(), FleetChange(futile=every), FleetLimits(breaker_recoveries=limit))
    assert after.breaker is not None


def test_a_namespace_of_many_jobs_pushes_nobody_out_of_the_memory() -> None:
    """As one that submits its job under a new name each time."""
    limits = FleetLimits(breaker_recoveries=12)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    others = tuple(each for number in range(1_200) for each in crashes(f"a/job-{number}", 1, seconds=1))
    after = change(ledger, FleetChange(futile=others), limits)
    assert [each.namespace for each in after.futile] == ["b"] * 4 + ["a"] * 12


def test_with_a_high_limit_one_job_does_not_fill_the_memory_either() -> None:
    limits = FleetLimits(breaker_recoveries=10_000)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    after = change(ledger, FleetChange(futile=crashes("a/one", 3_000, seconds=1)), limits)
    assert [each.namespace for each in after.futile].count("b") == 4


def test_a_job_that_crashes_for_ever_pushes_nobody_out_of_the_memory() -> None:
    limits = FleetLimits(breaker_recoveries=12)
    ledger = change(FleetLedger(), FleetChange(futile=crashes("b/one", 4)), limits)
    for number in range(2_000):
        more = FleetChange(futile=crashes("a/one", 1, first=number, seconds=1 + number / 1000))
        ledger = change(ledger, more, limits)
        assert change(ledger, more, limits) == ledger, "the same once more"
    assert [(each.namespace, each.workload) for each in ledger.futile] == [("b", "one")] * 4 + [("a", "one")] * 4
    assert ledger.futile[-1].incident == "a/one-1999"


def test_a_limit_above_what_is_remembered_is_reached_with_all_that_is() -> None:
    limits = FleetLimits(breaker_recoveries=10_000)
    every = tuple(each for number in range(4) for each in crashes(f"team-{number}/job", 300))
    after = change(FleetLedger(), FleetChange(futile=every), limits)
    assert after.breaker is not None
    assert (after.breaker.recoveries, after.breaker.limit) == (1000, 1000)


def test_futile_recoveries_long_ago_do_not_open_it() -> None:
    before = change(FleetLedger(), futile("inc-1", "inc-2"))
    assert change(before, futile("inc-3", seconds=3600), seconds=3600).breaker is None


def test_where_there_is_no_breaker_nothing_is_counted_and_an_open_one_is_closed() -> None:
    assert change(FleetLedger(), futile("inc-1"), LIMITS) == FleetLedger()
    open_ = FleetLedger(breaker=Breaker(at(0), Reason.RECOVERIES_IN_VAIN))
    assert reconcile(open_, limits=LIMITS).breaker is None
    assert reconcile(open_, limits=COUNTS) is open_


def test_a_person_closes_it_and_it_counts_again() -> None:
    open_ = change(FleetLedger(), futile("inc-1", "inc-2", "inc-3"))
    assert breaker_reset(open_, None, at(60)) is open_
    assert breaker_reset(open_, at(5), at(60)) is open_, "it was asked before the breaker opened"
    assert breaker_reset(open_, at(90_000), at(60)) is open_, "it would close every breaker for a day"
    closed = breaker_reset(open_, at(60), at(60))
    assert (closed.breaker, closed.futile) == (None, ())
    assert change(closed, futile("inc-4", seconds=70), seconds=70).breaker is None
    assert breaker_reset(closed, at(60), at(90)) is closed


# --- what the fleet's reconciler finds due ----------------------------------------------------------------------------


def test_an_entry_is_applied_once_its_node_bears_the_taint() -> None:
    before = ledger(entry())
    assert reconcile(before, node()) is before
    assert reconcile(before, node(bears=entry())) == ledger(entry(applied=True))


def test_an_entry_whose_taint_somebody_else_took_away_is_dropped() -> None:
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
    """Else the next single suspicion would quarantine it again at once."""
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


# --- properties ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([f"gpu-{number}" for number in range(8)])
INCIDENTS = st.sampled_from([f"inc-{number}" for number in range(6)])
SECONDS = st.integers(0, 200_000)


@st.composite
def changes(draw: st.DrawFn) -> FleetChange:
    wanted = draw(st.lists(st.builds(lambda name, inc: entry(name, incident=inc), NAMES, INCIDENTS), max_size=3))
    more = draw(
        st.lists(st.builds(lambda name, inc, sec: Suspicion(name, inc, at(sec)), NAMES, INCIDENTS, SECONDS), max_size=3)
    )
    count = draw(st.lists(st.builds(lambda inc, sec: Futile(inc, at(sec)), INCIDENTS, SECONDS), max_size=3))
    return FleetChange(tuple(wanted), tuple(more), tuple(count))


WALK = settings(max_examples=80, deadline=None, derandomize=True)


@WALK
@given(
    st.lists(st.tuples(changes(), st.integers(0, 40_000)), max_size=8),
    st.integers(0, 4),
    st.integers(0, 100),
    st.integers(1, 40),
)
def test_whatever_comes_the_caps_hold_and_nothing_counts_twice(
    walk: list[tuple[FleetChange, int]], max_nodes: int, max_percent: int, nodes: int
) -> None:
    limits = FleetLimits(may_cordon=True, max_nodes=max_nodes, max_percent=max_percent, breaker_recoveries=2)
    found, now = FleetLedger(), at(0)
    for what, seconds in walk:
        now += timedelta(seconds=seconds)
        after = changed(found, limits, what, nodes=nodes, now=now)
        if isinstance(after, Refused):
            continue
        assert changed(after, limits, what, nodes=nodes, now=now) == after
        assert len(after.quarantined) <= cap(limits, nodes)
        assert len({each.node for each in after.quarantined}) == len(after.quarantined)
        assert len({(each.node, each.incident) for each in after.suspicions}) == len(after.suspicions)
        assert len({each.incident for each in after.futile}) == len(after.futile)
        assert list(after.suspicions) == sorted(after.suspicions, key=lambda each: each.at)
        found = after


@WALK
@given(changes(), changes(), st.integers(0, 2))
def test_a_change_is_in_as_a_whole_or_not_at_all(first: FleetChange, second: FleetChange, max_nodes: int) -> None:
    limits = FleetLimits(may_cordon=True, max_nodes=max_nodes, max_percent=100)
    before = changed(FleetLedger(), limits, first, nodes=9, now=at(100))
    if isinstance(before, Refused):
        before = FleetLedger()
    after = changed(before, limits, second, nodes=9, now=at(100))
    if not isinstance(after, Refused):
        assert {each.node for each in second.quarantine} <= {each.node for each in after.quarantined}


@WALK
@given(st.lists(st.tuples(NAMES, st.booleans(), st.booleans(), st.integers(0, 50)), unique_by=lambda each: each[0]))
def test_a_review_of_what_was_reviewed_finds_nothing_more(drawn: list[tuple[str, bool, bool, int]]) -> None:
    entries = [entry(name, applied=applied, release_at=at(seconds)) for name, applied, _, seconds in drawn]
    nodes = [
        node(one.node, bears=one if tainted else None) for one, (_, _, tainted, _) in zip(entries, drawn, strict=True)
    ]
    once = reconcile(ledger(*entries), *nodes, seconds=25)
    settled = reconcile(once, *nodes, seconds=25)
    assert reconcile(settled, *nodes, seconds=25) is settled
