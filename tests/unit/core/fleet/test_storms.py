"""Storms: nodes lost together are one incident and one charge for each group, for as long as the storm lasts."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.core.fleet.storm import Storm, charged_before, storm_of
from recovery.core.model.facts import FleetFacts
from recovery.core.model.ledger import ClosedIncident, Ledger, Outcome, Phase
from recovery.core.model.lost_node import LostNode
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.plan.actions import SuspendWorkload
from recovery.core.policy.resolved import Backoff
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

Lost = tuple[str, float] | tuple[str, float, str]
S0 = "storm-20261121T120000Z"
R17 = "storm-r17-20261121T120000Z"


def fleet(*lost: Lost) -> FleetFacts:
    """The lost nodes sorted by time, as the store gives them."""
    nodes = (LostNode(name, at(seconds), *rack) for name, seconds, *rack in lost)
    return FleetFacts(nodes=100, lost=tuple(sorted(nodes, key=lambda node: (node.since, node.name))))


def closed(id_: str, storm: str = "", latest: float | None = None, *, charged: bool = True) -> ClosedIncident:
    return ClosedIncident(
        id=id_,
        outcome=Outcome.RECOVERED,
        outcome_reason=Reason.ALL_RANKS_READY,
        disruption_class="NodeLost",
        cause="NodeLost",
        started_at=at(0),
        ended_at=at(30),
        attempts=1,
        idle_gpu_seconds=0,
        reason=Reason.DEFAULT_RESTART,
        charged=charged,
        storm=storm,
        storm_latest_at=at(latest) if latest is not None else None,
    )


def knows(storm: str, latest: float, *before: ClosedIncident) -> Ledger:
    return Ledger(history=(*before, closed("inc-1", storm, latest)))


# --- what a storm is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "now", "id_", "what"),
    [
        pytest.param([("a", 0), ("b", 30), ("c", 60)], 60, S0, "3 nodes were lost within a minute", id="a minute"),
        pytest.param([("a", 0), ("b", 30), ("c", 61)], 61, None, "", id="longer than a minute"),
        pytest.param([("a", 0), ("b", 1)], 1, None, "", id="two of no rack"),
        pytest.param([("a", 0, "r17"), ("b", 1, "r18")], 1, None, "", id="two of two racks"),
        pytest.param(
            [("a", 0, "r17"), ("b", 60, "r17")], 60, R17, "2 nodes of rack r17 were lost within a minute", id="one rack"
        ),
        pytest.param([("a", 0, "r17"), ("b", 61, "r17")], 61, None, "", id="one rack, longer than a minute"),
        pytest.param([("a", 0), ("b", 0, "r17"), ("c", 1, "r17")], 300, S0, "", id="what it was does not age"),
        pytest.param([("a", 0, "r1"), ("b", 1, "r17"), ("c", 2, "r17"), ("d", 3, "r17")], 3, S0, "", id="two racks"),
        pytest.param(
            [("a", 0, "r17"), ("b", 1, "r17"), ("c", 2, "r17")], 2, R17, "3 nodes of rack r17 were lost", id="one of 3"
        ),
        pytest.param([("a", 1), ("b", 0), ("c", 900)], 2, S0, "3 nodes were lost", id="a clock that is ahead"),
        pytest.param([("b", 0), ("c", 60), ("d", 119), ("a", 120)], 120, S0, "3 nodes were", id="the first of all"),
        pytest.param([("b", -300), ("c", -300), ("a", 0), ("d", 1)], 1, None, "", id="another storm before"),
    ],
)
def test_what_a_storm_is(lost: list[Lost], now: float, id_: str | None, what: str) -> None:
    """The group lost its member on node `a`."""
    storm = storm_of("a", fleet(*lost), Ledger(), at(now))
    assert (storm.id if storm else None) == id_
    assert what in (storm.what if storm else "")


def test_a_rack_is_no_storm_for_a_group_whose_node_is_in_another() -> None:
    lost = fleet(("a", 0, "r1"), ("b", 40, "r17"), ("c", 61, "r17"))
    assert storm_of("a", lost, Ledger(), at(61)) is None
    own = storm_of("b", lost, Ledger(), at(61))
    assert own is not None
    assert own.id == "storm-r17-20261121T120040Z", "named by the first loss of the rack, not by what came before"


def test_a_node_that_is_not_told_to_be_lost_yet_is_in_the_storm_of_this_moment_but_not_in_that_of_a_rack() -> None:
    assert storm_of("x", fleet(("a", 0), ("b", 1), ("c", 2)), Ledger(), at(3)) is not None
    assert storm_of("x", fleet(("a", 0), ("b", 1), ("c", 2)), Ledger(), at(61)) is None, "the storm of a minute ago"
    assert storm_of("x", fleet(("a", 0, "r17"), ("b", 1, "r17")), Ledger(), at(3)) is None


@pytest.mark.parametrize(
    ("racks", "words"),
    [
        (["", "", ""], "3 nodes were lost"),
        (["r2", "r1", "r2"], "3 nodes of racks r2 and r1 were lost"),
        (["r1", "", "r1"], "3 nodes, some of them of rack r1, were lost"),
        (["r1", "r2", "r3", "r3", "r4"], "5 nodes of racks r3, r1, r2 and 1 other were lost"),
        (["r1", "r2", "r3", "r4", "r5", ""], "6 nodes, some of them of racks r1, r2, r3 and 2 others, were lost"),
    ],
)
def test_the_racks_of_a_storm_are_told_those_hit_most_first(racks: list[str], words: str) -> None:
    lost: list[Lost] = [(f"n{number}", number, rack) for number, rack in enumerate(racks)]
    storm = storm_of("n0", fleet(*lost), Ledger(), at(10))
    assert storm is not None
    assert storm.what == f"{words} within a minute"


# --- a storm that goes on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "now", "id_", "what"),
    [
        pytest.param([("a", 160)], 160, "storm-1", "node a was lost soon after others", id="one more"),
        pytest.param([("a", 161)], 161, None, "", id="too late"),
        pytest.param(
            [("b", 160), ("c", 220), ("a", 280)],
            280,
            "storm-1",
            "3 nodes were lost, one soon after another",
            id="no gap",
        ),
        pytest.param([("b", 140), ("a", 201)], 201, None, "", id="with a gap"),
        pytest.param([("b", 161), ("c", 162), ("a", 163)], 163, "storm-20261121T120241Z", "3 nodes", id="a new one"),
        pytest.param([("b", 150), ("c", 151), ("a", 152)], 152, "storm-1", "3 nodes were lost", id="the same, anew"),
        pytest.param([("a", 50)], 400, "storm-1", "node a was lost", id="an early loss that shows late"),
        pytest.param([("a", 110, "r17"), ("b", 111, "r17")], 111, "storm-1", "2 nodes of rack r17", id="another rack"),
    ],
)
def test_a_storm_goes_on_until_no_node_was_lost_for_more_than_a_minute(
    lost: list[Lost], now: float, id_: str | None, what: str
) -> None:
    """The group's ledger knows storm-1 and its losses until second 100."""
    storm = storm_of("a", fleet(*lost), knows("storm-1", 100), at(now))
    assert (storm.id if storm else None) == id_
    assert what in (storm.what if storm else "")


def test_the_latest_incident_that_was_part_of_any_storm_tells_which_one_goes_on() -> None:
    ledger = knows("storm-old", 90, closed("inc-3"), closed("inc-2", "storm-new", 100))
    storm = storm_of("a", fleet(("a", 120)), ledger, at(120))
    assert storm is not None
    assert storm.id == "storm-new"


@given(st.data(), st.integers(0, 30), st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_the_id_never_changes_while_the_storm_goes_on(data: st.DataObject, late_most: int, pauses: list[int]) -> None:
    """The group is reconciled at least every half minute. The fleet may report a loss after later ones, as long as the
    reported losses are no more than a minute apart. It reports a loss for 15 minutes."""
    racks = st.sampled_from(["", "r1", "r2", "r3"])
    losses = data.draw(
        st.lists(st.tuples(st.integers(0, 60 - late_most), st.integers(0, late_most), racks), min_size=1, max_size=50)
    )
    lost: list[tuple[float, Lost]] = [(0, ("n0", 0, "r1")), (0, ("n1", 0, "r1"))]
    second = 0
    for number, (gap, late, rack) in enumerate(losses):
        second += gap
        lost.append((second + late, (f"n{number + 2}", second, rack)))
    ledger, now, reconciles, ids = Ledger(), 0, 0, set()
    while now <= second:
        told = [each for told_at, each in lost if told_at <= now < each[1] + 900]
        # First a node of the rack, then in turn the node that was reported last and one that is not reported yet.
        node = "n0" if not reconciles else told[-1][0] if reconciles % 2 else "not told yet"
        storm = storm_of(node, fleet(*told), ledger, at(now))
        assert storm is not None, "it goes on"
        ids.add(storm.id)
        ledger = knows(storm.id, (min(storm.latest_at, at(now)) - at(0)).total_seconds())
        now += pauses[reconciles % len(pauses)]
        reconciles += 1
    assert len(ids) == 1


# --- one charge for each group in each storm -----------------------------------------------------------------------


def test_what_was_charged_for_a_storm_is_found_as_long_as_the_history_has_it() -> None:
    storm = Storm("storm-1", "", at(0))
    paid, free = closed("inc-1", "storm-1", 0), closed("inc-2", "storm-1", 5, charged=False)
    assert charged_before(Ledger(history=(free, paid)), storm) == paid
    assert charged_before(Ledger(history=(free,)), storm) is None
    assert charged_before(Ledger(history=(closed("inc-1", "storm-2", 0),)), storm) is None


def struck(world: World, node: str, *lost: Lost) -> World:
    return msgspec.structs.replace(world, gone_nodes=frozenset({node})).nodes_lost(*lost)


def back(world: World, seconds: float) -> World:
    """All ranks of the group run again, on healthy nodes."""
    well = msgspec.structs.replace(world, gone_nodes=frozenset())
    return well.recreated(seconds).all_scheduled().all_ready(seconds + 5)


FIRST: tuple[Lost, ...] = (("gpu-2", 0, "r17"), ("gpu-50", 1, "r17"))
AGAIN: tuple[Lost, ...] = (*FIRST, ("gpu-60", 30), ("gpu-3", 60, "r18"))


def after_the_first(controller: Controller) -> World:
    """A storm hit the group, which was restarted and charged. It runs whole again after 20 seconds."""
    world = struck(training(), "gpu-2", *FIRST)
    waiting = controller.reconcile(world, 1)
    assert controller.triggers == []
    assert (
        f"2 nodes of rack r17 were lost within a minute ({R17}): waiting until no more nodes are lost"
        in waiting.message
    )
    assert waiting.requeue_at == at(4)
    controller.reconcile(world, 4)
    assert len(controller.triggers) == 1
    assert "(9 of 10 recoveries left)" in controller.incident.message
    assert controller.incident.storm == R17
    assert controller.incident.storm_what == "2 nodes of rack r17 were lost within a minute"
    whole = back(world, 10)
    controller.settle(whole, 20)
    assert controller.ledger.incident is None
    [summary] = controller.ledger.history
    assert (summary.storm, summary.charged, summary.storm_latest_at) == (R17, True, at(1))
    return whole


def test_a_group_that_the_same_storm_strikes_again_is_recovered_free_of_charge() -> None:
    controller = Controller(policy(limits=MAY))
    whole = after_the_first(controller)
    paid = controller.ledger.history[0].id
    again = struck(whole, "gpu-3", *AGAIN)
    controller.reconcile(again, 64)
    assert len(controller.triggers) == 2
    assert (
        f"restart together (not charged to the budget: the same storm as incident {paid})"
        in controller.incident.message
    )
    assert (controller.incident.storm, controller.incident.charged) == (R17, False)
    third = back(again, 70)
    controller.settle(third, 80)
    controller.reconcile(struck(third, "gpu-1", *AGAIN, ("gpu-1", 100)), 104)
    assert len(controller.triggers) == 3
    assert f"(not charged to the budget: the same storm as incident {paid})" in controller.incident.message, (
        "which was charged"
    )
    assert controller.ledger.totals.charged == 1
    assert len(controller.ledger.budget.charges) == 1
    assert controller.ledger.totals.incidents == 3


@pytest.mark.parametrize(
    ("lost", "storm"),
    [(FIRST, R17), ((FIRST[0],), ""), ((*FIRST[1:], ("gpu-51", 2, "r17")), "")],
    ids=["a storm", "one node alone", "not told of the own node any more"],
)
def test_a_storm_that_shows_only_after_the_verdict_is_known_at_the_end(lost: tuple[Lost, ...], storm: str) -> None:
    """The nodes of one rack are found lost five seconds apart. The restart for the first one does not wait."""
    controller = Controller(policy(limits=MAY))
    world = struck(training(), "gpu-2", FIRST[0])
    controller.reconcile(world, 0.5)
    assert (len(controller.triggers), controller.incident.storm) == (1, "")
    controller.settle(back(world, 10).nodes_lost(*lost), 20)
    assert controller.ledger.history[0].storm == storm
    assert [closed.storm for closed in controller.recorded] == [storm]


def test_a_crash_ends_as_part_of_no_storm_whatever_is_lost_meanwhile() -> None:
    controller = Controller(policy(limits=MAY))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 0.5)
    controller.settle(back(world, 10).nodes_lost(*FIRST, ("gpu-51", 2)), 20)
    assert controller.ledger.history[0].storm == ""


def test_it_is_free_though_the_budget_is_exhausted_or_a_rule_would_charge() -> None:
    """The storm was paid for. The budget does not hold back what was paid for."""
    rule = Rule("all", RuleAction.RECREATE_GROUP, When(on_class=("NodeLost",)))
    controller = Controller(policy(limits=MAY, limit=1, rules=(rule,)))
    world = struck(training(), "gpu-2", *FIRST)
    controller.reconcile(world, 4)
    whole = back(world, 10)
    controller.settle(whole, 20)
    controller.reconcile(struck(whole, "gpu-3", *AGAIN), 64)
    assert controller.phase() is not Phase.HELD
    assert len(controller.triggers) == 2
    assert controller.ledger.totals.charged == 1


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param((*FIRST, ("gpu-3", 62)), id="one node, more than a minute later"),
        pytest.param((*FIRST, ("gpu-60", 62), ("gpu-61", 62), ("gpu-3", 62)), id="another storm"),
    ],
)
def test_what_is_no_part_of_that_storm_is_charged(lost: tuple[Lost, ...]) -> None:
    controller = Controller(policy(limits=MAY))
    whole = after_the_first(controller)
    controller.reconcile(struck(whole, "gpu-3", *lost), 66)
    assert len(controller.triggers) == 2
    assert "(8 of 10 recoveries left)" in controller.incident.message
    assert controller.incident.storm != R17
    assert controller.ledger.totals.charged == 2


def test_a_process_that_crashes_in_a_storm_is_charged() -> None:
    controller = Controller(policy(limits=MAY))
    whole = after_the_first(controller)
    controller.reconcile(whole.pod_failed(1, 42, 40).nodes_lost(*AGAIN), 41)
    assert controller.incident.storm == ""
    assert controller.ledger.totals.charged == 2


def test_backoff_holds_for_what_is_free_of_charge() -> None:
    controller = Controller(policy(limits=MAY, backoff=Backoff(initial=timedelta(seconds=10))))
    whole = after_the_first(controller)
    controller.reconcile(struck(whole, "gpu-3", *AGAIN), 64)
    assert "not charged to the budget" in controller.incident.message
    assert "the job stays suspended for 10s first (attempt 2 in a row)" in controller.incident.message
    assert any(isinstance(action, SuspendWorkload) for action in controller.done)


def test_a_loss_that_shows_minutes_after_the_storm_is_part_of_it_and_waits_for_nothing() -> None:
    """The pods of a silent node are evicted five minutes after it falls silent."""
    controller = Controller(policy(limits=MAY))
    silent = training().node_silent("gpu-2", 0).nodes_lost(*FIRST)
    controller.reconcile(silent, 2)
    assert controller.ledger.incident is None
    controller.reconcile(silent.evicted(2, 300, reason="DeletionByTaintManager"), 301)
    assert controller.incident.storm == R17
    assert len(controller.triggers) == 1


def test_an_incident_keeps_the_id_of_its_storm_when_other_racks_join_in() -> None:
    """The new group loses a member before all ranks are Ready. That is another attempt, not another storm."""
    controller = Controller(policy(limits=MAY))
    world = struck(training(), "gpu-2", *FIRST)
    controller.reconcile(world, 4)
    started = msgspec.structs.replace(world, gone_nodes=frozenset()).recreated(10).all_started(20)
    controller.reconcile(started, 21)
    lost: tuple[Lost, ...] = (*FIRST, ("gpu-60", 50, "r3"), ("gpu-61", 50, "r4"), ("gpu-3", 50, "r5"))
    controller.reconcile(struck(started, "gpu-3", *lost), 53)
    assert len(controller.triggers) == 2
    assert controller.incident.storm == R17
    assert controller.incident.storm_what == "5 nodes of racks r17, r3, r4 and 1 other were lost within a minute"
    assert controller.ledger.totals.charged == 1


def test_a_clock_that_is_ahead_does_not_make_a_storm_last() -> None:
    controller = Controller(policy(limits=MAY))
    world = struck(training(), "gpu-2", ("gpu-2", 0, "r17"), ("gpu-50", 300, "r17"))
    controller.reconcile(world, 1)
    controller.reconcile(world, 31)
    assert len(controller.triggers) == 1
    assert controller.incident.storm_latest_at == at(31)
