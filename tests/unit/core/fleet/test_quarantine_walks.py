"""The caps hold and nothing counts twice, for any changes in any order."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.fleet.quarantine import (
    Refused,
    cap,
    changed,
)
from recovery.core.model.fleet_ledger import (
    FleetChange,
    FleetLedger,
    FleetLimits,
    Futile,
    Suspicion,
)
from tests.unit.core.fleet.quarantined import entry, ledger, node, reconcile
from tests.unit.core.world import at

NAMES = st.sampled_from([f"gpu-{number}" for number in range(8)])


INCIDENTS = st.sampled_from([f"inc-{number}" for number in range(6)])


SECONDS = st.integers(0, 200_000)


@st.composite
def changes(draw: st.DrawFn) -> FleetChange:
    wanted = draw(st.lists(st.builds(lambda name, inc: entry(name, incident=inc), NAMES, INCIDENTS), max_size=3))
    more = draw(
        st.lists(
            st.builds(lambda name, inc, sec: Suspicion(name, inc, at(sec), "an exit", "ml"), NAMES, INCIDENTS, SECONDS),
            max_size=3,
        )
    )
    count = draw(st.lists(st.builds(lambda inc, sec: Futile(inc, at(sec), inc, "llm"), INCIDENTS, SECONDS), max_size=3))
    return FleetChange(tuple(wanted), tuple(more), tuple(count))


WALK = settings(max_examples=80)


@WALK
@given(
    st.lists(st.tuples(changes(), st.integers(0, 40_000)), max_size=8),
    st.integers(0, 4),
    st.integers(0, 100),
    st.integers(1, 40),
)
def test_the_caps_hold_and_nothing_counts_twice_in_any_order_of_changes(
    walk: list[tuple[FleetChange, int]], max_nodes: int, max_percent: int, nodes: int
) -> None:
    limits = FleetLimits(may_cordon=True, max_nodes=max_nodes, max_percent=max_percent, breaker_recoveries=2)
    found, now = FleetLedger(), at(0)
    for what, seconds in walk:
        now += timedelta(seconds=seconds)
        after = changed(found, limits, what, nodes=nodes, shown={}, now=now)
        if isinstance(after, Refused):
            continue
        assert changed(after, limits, what, nodes=nodes, shown={}, now=now) == after
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
    before = changed(FleetLedger(), limits, first, nodes=9, shown={}, now=at(100))
    if isinstance(before, Refused):
        before = FleetLedger()
    after = changed(before, limits, second, nodes=9, shown={}, now=at(100))
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
