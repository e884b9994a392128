"""The model of `make bench ARGS=gpu-hours`: it keeps its accounts, and agrees with what can be computed by hand."""

import math
from dataclasses import replace

import pytest

from tests.bench.gpu_hours.arms import (
    COMPARED,
    ELASTIC,
    MAIN,
    SPARE,
    STRATEGIES,
    WAITING,
    Setting,
    difference,
    estimate,
    outcomes_of,
    row,
)
from tests.bench.gpu_hours.failures import (
    CAUSES,
    DAY_SECONDS,
    GPUS_PER_NODE,
    LLAMA_3,
    Cause,
    Failure,
    FailureModel,
    failures_of,
)
from tests.bench.gpu_hours.job import NODES, Account, Costs, Elastic, Outcome, Strategy, World, play

HOUR = 3600.0
MACHINES = NODES + 4
BREAKS = Cause("breaks", "test", 100, detected_seconds=0.0)
EXITS = Cause("exits", "test", 100, loses_node=False, detected_seconds=0.0)
COSTS = Costs()
DAY = World(8 * HOUR, days=1)
OFTEN = FailureModel(times_llama=10.0)
"""Failures so frequent that several nodes are away at once, restarts fail, and sizes run out."""

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)


def worlds(model: FailureModel, *, days: float, seeds: int = 3) -> list[tuple[Failure, ...]]:
    return [failures_of(seed, model, nodes=NODES, machines=MACHINES, days=days) for seed in range(seeds)]


def lost(outcome: Outcome, *accounts: Account) -> dict[Account, float]:
    """The GPU-hours of these accounts. All other accounts of lost hours must be empty."""
    found: dict[Account, float] = {
        each: hours for each, hours in outcome.gpu_hours.items() if each is not Account.USEFUL and hours
    }
    assert set(found) == set(accounts)
    return found


def hours(seconds: float, nodes: int = NODES) -> float:
    return seconds * nodes * GPUS_PER_NODE / 3600


class TestTheSource:
    def test_the_causes_are_the_419_of_the_paper(self) -> None:
        assert sum(each.count for each in CAUSES) == 419
        assert sum(each.count for each in CAUSES if each.category == "GPU") == 268

    def test_1024_gpus_fail_as_often_as_16_times_fewer_than_the_paper_has(self) -> None:
        rate = sum(LLAMA_3.per_gpu_second(loses_node=each) for each in (True, False))
        assert 1 / (rate * 1024 * HOUR) == pytest.approx(54 * 24 / 419 * 16)

    def test_as_many_failures_are_drawn(self) -> None:
        days = 3000
        found = failures_of(1, LLAMA_3, nodes=NODES, machines=NODES, days=days)
        expected = 419 / 54 / 16 * days
        assert len(found) == pytest.approx(expected, abs=4 * math.sqrt(expected))
        assert [each.at_seconds for each in found] == sorted(each.at_seconds for each in found)

    def test_a_seed_is_one_world(self) -> None:
        first, again, other = (failures_of(seed, LLAMA_3, nodes=8, machines=9, days=900) for seed in (1, 1, 2))
        assert first == again != other


class TestTheAccounts:
    @each_strategy
    @pytest.mark.parametrize("idle_machines_fail", [True, False])
    def test_they_add_up_to_what_was_bought(self, strategy: Strategy, idle_machines_fail: bool) -> None:
        world = World(8 * HOUR, idle_machines_fail=idle_machines_fail)
        for failures in worlds(OFTEN, days=world.days):
            outcome = play(strategy, world, failures)
            assert outcome.bought == pytest.approx(hours(30 * DAY_SECONDS, NODES + strategy.spares), rel=1e-12)
            assert min(outcome.gpu_hours.values()) >= 0

    @each_strategy
    def test_without_failures_all_of_the_job_is_useful(self, strategy: Strategy) -> None:
        outcome = play(strategy, World(HOUR), ())
        assert outcome.gpu_hours[Account.USEFUL] == hours(30 * DAY_SECONDS)
        assert outcome.useful_share == NODES / (NODES + strategy.spares)

    def test_a_group_that_waits(self) -> None:
        outcome = play(WAITING, DAY, [Failure(2.25 * HOUR, BREAKS, 5, 1.0)])
        assert lost(outcome, Account.REWORK, Account.RESTART, Account.WAITING) == pytest.approx(
            {
                Account.REWORK: hours(0.25 * HOUR),
                Account.RESTART: hours(COSTS.down_seconds + COSTS.up_seconds),
                Account.WAITING: hours(8 * HOUR - COSTS.down_seconds),
            }
        )

    def test_a_group_that_shrinks_and_grows_back(self) -> None:
        outcome = play(ELASTIC[8], DAY, [Failure(2.25 * HOUR, BREAKS, 5, 1.0)])
        shrunk_at = 2.25 * HOUR + 120
        grows_at = 10.25 * HOUR + 300
        found = lost(outcome, Account.REWORK, Account.RESTART, Account.WAITING, Account.RESIZE, Account.REDUCED)
        trained = grows_at - shrunk_at - COSTS.down_seconds - COSTS.up_seconds
        assert found == pytest.approx(
            {
                Account.REWORK: hours(0.25 * HOUR),
                Account.RESTART: hours(COSTS.down_seconds) + hours(COSTS.up_seconds, 120),
                Account.WAITING: hours(120 - COSTS.down_seconds),
                Account.RESIZE: hours(COSTS.down_seconds, 120)
                + hours(trained % COSTS.checkpoint_seconds, 120)
                + hours(COSTS.down_seconds + COSTS.up_seconds),
                Account.REDUCED: hours(grows_at - shrunk_at, 8),
            }
        )
        assert (outcome.failures, outcome.resizes, set(outcome.sizes)) == (1, 2, {120, 128})

    def test_a_growth_that_saves_throws_no_step_away(self) -> None:
        failures = [Failure(2.25 * HOUR, BREAKS, 5, 1.0)]
        saves = play(ELASTIC[1], replace(DAY, costs=Costs(growth_saves=True)), failures)
        grows_for = COSTS.down_seconds + COSTS.up_seconds
        assert saves.gpu_hours[Account.RESIZE] == pytest.approx(hours(grows_for) + hours(COSTS.down_seconds, 127))

    def test_a_spare_leaves_nothing_to_wait_for(self) -> None:
        outcome = play(SPARE[1], DAY, [Failure(2.25 * HOUR, BREAKS, 5, 1.0)])
        assert lost(outcome, Account.REWORK, Account.RESTART, Account.SPARES) == pytest.approx(
            {
                Account.REWORK: hours(0.25 * HOUR),
                Account.RESTART: hours(COSTS.down_seconds + COSTS.up_seconds),
                Account.SPARES: hours(DAY_SECONDS, 1),
            }
        )

    def test_a_node_that_comes_back_in_time_leaves_the_size_alone(self) -> None:
        failures = [Failure(2.25 * HOUR, BREAKS, 5, 100 / (8 * HOUR))]
        assert play(ELASTIC[1], DAY, failures) == play(WAITING, DAY, failures)

    def test_a_process_that_ends_costs_no_node(self) -> None:
        outcome = play(ELASTIC[1], DAY, [Failure(2.25 * HOUR, EXITS, 5, 1.0)])
        lost(outcome, Account.REWORK, Account.RESTART)
        assert outcome.resizes == 0

    def test_a_group_that_is_down_cannot_be_interrupted(self) -> None:
        lost_node = Failure(2.25 * HOUR, BREAKS, 5, 1.0)
        outcome = play(WAITING, DAY, [lost_node, Failure(3 * HOUR, EXITS, 7, 1.0), Failure(4 * HOUR, BREAKS, 6, 0.5)])
        assert outcome == play(WAITING, DAY, [lost_node])

    def test_a_restart_that_is_interrupted_begins_again(self) -> None:
        second_at = 2.25 * HOUR + COSTS.down_seconds + 60
        outcome = play(WAITING, DAY, [Failure(2.25 * HOUR, EXITS, 5, 1.0), Failure(second_at, EXITS, 5, 1.0)])
        assert lost(outcome, Account.REWORK, Account.RESTART) == pytest.approx(
            {
                Account.REWORK: hours(0.25 * HOUR),
                Account.RESTART: hours(60 + 2 * COSTS.down_seconds + COSTS.up_seconds),
            }
        )

    def test_a_machine_that_has_been_replaced_is_the_spare(self) -> None:
        failures = [
            Failure(HOUR, BREAKS, 5, 0.25),
            Failure(4 * HOUR, EXITS, 0, 1.0),
            Failure(5 * HOUR, BREAKS, 5, 0.25),
            Failure(8 * HOUR, BREAKS, 128, 0.25),
        ]
        assert [play(SPARE[1], DAY, failures[:count]).failures for count in (1, 2, 3, 4)] == [1, 2, 2, 3]

    @pytest.mark.parametrize(("detected_seconds", "waited_seconds"), [(0.0, 120 - COSTS.down_seconds), (600.0, 5.0)])
    def test_the_scheduler_has_its_time_before_a_shrink(self, detected_seconds: float, waited_seconds: float) -> None:
        cause = replace(BREAKS, detected_seconds=detected_seconds)
        outcome = play(ELASTIC[1], DAY, [Failure(2.25 * HOUR, cause, 5, 1.0)])
        assert outcome.gpu_hours[Account.WAITING] == pytest.approx(hours(waited_seconds))


class TestTheSize:
    @pytest.mark.parametrize("spares", [0, 2])
    @pytest.mark.parametrize("multiple_of", [1, 4, 8])
    def test_it_stays_within_its_bounds(self, multiple_of: int, spares: int) -> None:
        strategy = Strategy("elastic", spares, Elastic(min_nodes=116, multiple_of=multiple_of))
        sizes: set[int] = set()
        for failures in worlds(OFTEN, days=30):
            sizes |= play(strategy, World(24 * HOUR), failures).sizes
        allowed = {each for each in range(116, NODES + 1) if each % multiple_of == 0}
        assert NODES in sizes <= allowed
        assert len(sizes) > 1

    @pytest.mark.parametrize("spares", [0, 1])
    def test_elastic_that_may_not_shrink_is_waiting(self, spares: int) -> None:
        fixed = Strategy("elastic", spares, Elastic(min_nodes=NODES))
        for failures in worlds(OFTEN, days=30):
            assert play(fixed, World(HOUR), failures) == play(Strategy("waiting", spares), World(HOUR), failures)

    def test_too_few_nodes_for_any_size_are_waited_for(self) -> None:
        few = [Failure(HOUR + number, BREAKS, number, 0.25 + number / 1000) for number in range(40)]
        outcome = play(ELASTIC[1], DAY, few)
        assert outcome.gpu_hours[Account.WAITING] == pytest.approx(hours(2 * HOUR), rel=0.05)
        assert min(outcome.sizes) == 96

    def test_it_grows_to_what_has_room_by_then(self) -> None:
        one_by_one = [Failure(HOUR, BREAKS, 0, 0.5), Failure(HOUR + 1, BREAKS, 1, 0.5), Failure(HOUR + 2, BREAKS, 2, 1)]
        assert play(ELASTIC[1], DAY, one_by_one).sizes == {125, 127, 128}

    def test_room_that_goes_away_is_waited_for_again(self) -> None:
        back_at = HOUR + 8 * HOUR
        lost_node = Failure(HOUR, BREAKS, 5, 1.0)
        away = Failure(back_at + 100, BREAKS, 125, 0.125)
        outcomes = [play(ELASTIC[8], DAY, failures) for failures in ([lost_node], [lost_node, away])]
        reduced = [each.gpu_hours[Account.REDUCED] for each in outcomes]
        assert reduced[1] - reduced[0] == pytest.approx(hours(HOUR + 100, 8))
        assert [each.resizes for each in outcomes] == [2, 2]

    def test_a_node_lost_in_a_growth_is_an_incident_of_its_own(self) -> None:
        grows_at = 9 * HOUR + 300 + COSTS.down_seconds
        two = [Failure(HOUR, BREAKS, 5, 1.0), Failure(grows_at + 60, BREAKS, 6, 1.0)]
        outcome = play(ELASTIC[1], DAY, two)
        assert outcome.gpu_hours[Account.WAITING] == pytest.approx(hours(2 * (120 - COSTS.down_seconds)))

    def test_nodes_that_fill_no_size_replace_the_next_lost_one(self) -> None:
        two = [Failure(HOUR, BREAKS, 0, 1.0), Failure(3 * HOUR, BREAKS, 1, 1.0)]
        outcome = play(ELASTIC[8], DAY, two)
        assert (outcome.failures, set(outcome.sizes)) == (2, {120, 128})
        assert outcome.gpu_hours[Account.WAITING] == pytest.approx(hours(120 - COSTS.down_seconds))


class TestByHand:
    """Renewal theory: the mean work kept between two failures, over the mean time from one failure to the next."""

    interval = COSTS.checkpoint_seconds
    days = 150.0

    def kept(self, rate: float) -> float:
        """Mean seconds of steps that a checkpoint holds at a failure, after an exponential time until the failure."""
        return self.interval / math.expm1(rate * self.interval)

    def simulated(self, cause: Cause, world: World) -> tuple[float, float, float]:
        """The mean useful share, the half-width of its interval, and the failure rate of 128 nodes."""
        model = FailureModel((cause,), exponential_repair=False)
        rate = model.per_gpu_second(loses_node=cause.loses_node) * NODES * GPUS_PER_NODE
        outcomes = outcomes_of(Setting("one cause", world, model), (WAITING,), seeds=20)
        shares = estimate([each.useful_share for each in outcomes[WAITING.name]])
        return shares.mean, shares.half_width, rate

    def test_processes_that_end(self) -> None:
        cause = replace(EXITS, count=2000)
        mean, half_width, rate = self.simulated(cause, World(HOUR, days=self.days))
        down, up = COSTS.down_seconds, COSTS.up_seconds
        # Nothing fails while the job goes down. A failure while it comes up makes it start over.
        between = 1 / rate + math.exp(rate * up) * down + math.expm1(rate * up) / rate
        assert half_width < 0.002
        assert mean == pytest.approx(self.kept(rate) / between, abs=half_width)

    def test_nodes_that_are_lost(self) -> None:
        cause = replace(BREAKS, count=500)
        mean, half_width, rate = self.simulated(cause, World(4 * HOUR, days=self.days, idle_machines_fail=False))
        up = COSTS.up_seconds
        between = 1 / rate + math.exp(rate * up) * 4 * HOUR + math.expm1(rate * up) / rate
        assert half_width < 0.01
        assert mean == pytest.approx(self.kept(rate) / between, abs=half_width)


class TestTheComparison:
    def test_all_strategies_of_a_seed_have_the_same_machines(self) -> None:
        """Four spares are never worse than one: the world is the same, with more nodes."""
        outcomes = outcomes_of(MAIN[1], (SPARE[1], SPARE[4]), seeds=5)
        for one, four in zip(outcomes["1 spare"], outcomes["4 spares"], strict=True):
            assert four.gpu_hours[Account.WAITING] <= one.gpu_hours[Account.WAITING]

    def test_a_difference_is_taken_within_each_seed(self) -> None:
        outcomes = outcomes_of(MAIN[1], STRATEGIES, seeds=5)
        for pair in COMPARED:
            found = difference(MAIN[1], outcomes, *pair)
            mine, theirs = (row(MAIN[1], outcomes, each) for each in pair)
            assert found.points.mean == pytest.approx(mine.useful_percent.mean - theirs.useful_percent.mean)
        nothing = difference(MAIN[1], outcomes, WAITING, WAITING)
        assert (nothing.points.mean, nothing.points.half_width, nothing.better) == (0, 0, 0)

    def test_every_figure_says_that_it_is_simulated(self) -> None:
        outcomes = outcomes_of(MAIN[0], STRATEGIES, seeds=2)
        found = [row(MAIN[0], outcomes, each) for each in STRATEGIES]
        assert {each.kind for each in found} | {each.than_waiting.kind for each in found} == {"simulated"}
        assert all(sum(each.percent.values()) == pytest.approx(100) for each in found)

    def test_the_interval_is_that_of_a_mean(self) -> None:
        found = estimate([1.0, 2.0, 3.0, 4.0])
        assert (found.mean, found.half_width) == pytest.approx((2.5, 1.96 * math.sqrt(5 / 3) / 2), rel=1e-4)
