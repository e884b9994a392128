"""Compares waiting, elasticity and spares side by side over 200 seeds. Each seed is the same world for all strategies.

The table has the means and their 95 % intervals. A difference is computed within each seed and then averaged, so its
interval is narrower than those of the two means.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tests.bench.gpu_hours.failures import CAUSES, LLAMA_3, FailureModel, failures_of
from tests.bench.gpu_hours.job import DAYS, NODES, Account, Costs, Elastic, Outcome, Strategy, World, play

SEEDS = 200
SPARES = (1, 2, 4)
HOUR_SECONDS = 3600.0
KIND = "simulated"
"""The kind of every figure: neither measured, nor computed from a reader's inputs."""

WAITING = Strategy("waiting")
ELASTIC = {size: Strategy(f"elastic, multiple of {size}", elastic=Elastic(multiple_of=size)) for size in (1, 4, 8)}
SPARE = {spares: Strategy(f"{spares} spare{'s' * (spares > 1)}", spares) for spares in SPARES}
BOTH = {
    spares: Strategy(f"{alone.name}, elastic, multiple of 8", spares, ELASTIC[8].elastic)
    for spares, alone in SPARE.items()
}
STRATEGIES = (WAITING, *ELASTIC.values(), *SPARE.values(), *BOTH.values())


@dataclass(frozen=True)
class Setting:
    """The conditions in which the strategies are compared."""

    name: str
    world: World
    model: FailureModel = LLAMA_3


MAIN = (
    Setting("repair 1 h", World(HOUR_SECONDS)),
    Setting("repair 8 h", World(8 * HOUR_SECONDS)),
)
_ONE_HOUR = MAIN[0].world
_GPUS_STAY = FailureModel(
    tuple(replace(each, loses_node=each.loses_node and each.category != "GPU") for each in CAUSES)
)
"""A failed GPU works again after a restart."""
VARIED = (
    Setting("repair 15 min", World(HOUR_SECONDS / 4)),
    Setting("repair 30 min", World(HOUR_SECONDS / 2)),
    *MAIN,
    Setting("repair 24 h", World(24 * HOUR_SECONDS)),
    Setting("repair exactly 1 h", _ONE_HOUR, FailureModel(exponential_repair=False)),
    Setting("repair exactly 8 h", MAIN[1].world, FailureModel(exponential_repair=False)),
    Setting("1 h, checkpoint each 5 min", replace(_ONE_HOUR, costs=Costs(checkpoint_seconds=300.0))),
    Setting("1 h, checkpoint each 2 h", replace(_ONE_HOUR, costs=Costs(checkpoint_seconds=7200.0))),
    Setting("1 h, resume 30 min", replace(_ONE_HOUR, costs=Costs(resume_seconds=1800.0))),
    Setting(
        "1 h, checkpoint each 2 h, resume 30 min",
        replace(_ONE_HOUR, costs=Costs(checkpoint_seconds=7200.0, resume_seconds=1800.0)),
    ),
    Setting("1 h, a growth saves first", replace(_ONE_HOUR, costs=Costs(growth_saves=True))),
    Setting("1 h, idle machines do not fail", replace(_ONE_HOUR, idle_machines_fail=False)),
    Setting("8 h, idle machines do not fail", replace(MAIN[1].world, idle_machines_fail=False)),
    Setting("1 h, GPU faults leave the node", _ONE_HOUR, _GPUS_STAY),
    Setting("8 h, GPU faults leave the node", MAIN[1].world, _GPUS_STAY),
    Setting("1 h, 6.3 times the failures", _ONE_HOUR, FailureModel(times_llama=6.3)),
    Setting("8 h, 6.3 times the failures", MAIN[1].world, FailureModel(times_llama=6.3)),
)
"""Section 6.3: Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
arXiv:2410.21680, reports a mean time to failure of 7.9 h for jobs of 1,024 GPUs. Llama 3's rate makes it 49.5 h."""
VARIED_STRATEGIES = (ELASTIC[1], ELASTIC[8], SPARE[1], SPARE[2])
COMPARED = (
    (ELASTIC[8], ELASTIC[1]),
    (ELASTIC[1], SPARE[1]),
    (ELASTIC[8], SPARE[1]),
    (BOTH[1], SPARE[1]),
    (BOTH[1], ELASTIC[8]),
    (BOTH[2], SPARE[2]),
)
"""Pairs to compare, besides each strategy with waiting."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    half_width: float
    """Half the width of its 95 % interval, by the normal approximation."""


def estimate(values: Sequence[float]) -> Estimate:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    z = statistics.NormalDist().inv_cdf(0.975)
    return Estimate(statistics.fmean(values), z * deviation / len(values) ** 0.5)


@dataclass(frozen=True)
class Difference:
    """One strategy compared with another in one setting, paired by seed."""

    kind: str
    setting: str
    strategy: str
    other: str
    gpu_hours: Estimate
    """Useful GPU-hours minus the other strategy's."""
    points: Estimate
    """Useful share of all GPUs bought, minus the other strategy's, in percentage points."""
    better: float
    """Share of the seeds in which the difference in points is above 0."""


@dataclass(frozen=True)
class Row:
    """One strategy in one setting."""

    kind: str
    setting: str
    strategy: str
    bought_gpu_hours: float
    useful_gpu_hours: Estimate
    useful_percent: Estimate
    """Share of all GPUs bought, spares included."""
    than_waiting: Difference
    percent: dict[str, float]
    """Share of all GPUs bought, by account."""
    failures: float
    resizes: float
    smallest: int
    """The smallest size in any seed."""


@dataclass(frozen=True)
class Results:
    """All three tables."""

    main: list[Row]
    compared: list[Difference]
    varied: list[Row]


Outcomes = dict[str, list[Outcome]]
"""By strategy, one outcome for each seed."""


def outcomes_of(setting: Setting, strategies: Iterable[Strategy], seeds: int) -> Outcomes:
    """Plays each strategy in the same worlds."""
    strategies = tuple(strategies)
    found: Outcomes = {each.name: [] for each in strategies}
    machines = NODES + max(SPARES)
    for seed in range(seeds):
        failures = failures_of(seed, setting.model, nodes=NODES, machines=machines, days=setting.world.days)
        for strategy in strategies:
            found[strategy.name].append(play(strategy, setting.world, failures))
    return found


def difference(setting: Setting, outcomes: Outcomes, strategy: Strategy, other: Strategy) -> Difference:
    pairs = tuple(zip(outcomes[strategy.name], outcomes[other.name], strict=True))
    points = [100 * (mine.useful_share - theirs.useful_share) for mine, theirs in pairs]
    hours = [mine.gpu_hours[Account.USEFUL] - theirs.gpu_hours[Account.USEFUL] for mine, theirs in pairs]
    better = sum(each > 0 for each in points) / len(points)
    return Difference(KIND, setting.name, strategy.name, other.name, estimate(hours), estimate(points), better)


def row(setting: Setting, outcomes: Outcomes, strategy: Strategy) -> Row:
    mine = outcomes[strategy.name]
    return Row(
        kind=KIND,
        setting=setting.name,
        strategy=strategy.name,
        bought_gpu_hours=round(mine[0].bought, 3),
        useful_gpu_hours=estimate([each.gpu_hours[Account.USEFUL] for each in mine]),
        useful_percent=estimate([100 * each.useful_share for each in mine]),
        than_waiting=difference(setting, outcomes, strategy, WAITING),
        percent={
            str(account): statistics.fmean(100 * each.gpu_hours[account] / each.bought for each in mine)
            for account in Account
        },
        failures=statistics.fmean(each.failures for each in mine),
        resizes=statistics.fmean(each.resizes for each in mine),
        smallest=min(min(each.sizes) for each in mine),
    )


def measure(seeds: int = SEEDS) -> Results:
    """All strategies in the main settings, and a few in all settings: some 15 s of CPU."""
    results = Results([], [], [])
    for setting in MAIN:
        outcomes = outcomes_of(setting, STRATEGIES, seeds)
        results.main.extend(row(setting, outcomes, each) for each in STRATEGIES)
        results.compared.extend(difference(setting, outcomes, *pair) for pair in COMPARED)
    for setting in VARIED:
        outcomes = outcomes_of(setting, (WAITING, *VARIED_STRATEGIES), seeds)
        results.varied.extend(row(setting, outcomes, each) for each in (WAITING, *VARIED_STRATEGIES))
    return results


def table(results: Results) -> str:
    """Markdown."""
    parts = [f"Simulated, {DAYS:g} days of {NODES} nodes, {SEEDS} seeds; ± is the 95 % interval."]
    for setting in MAIN:
        mine = [each for each in results.main if each.setting == setting.name]
        parts += [_useful(setting, mine), _accounts(setting, mine)]
    return "\n\n".join([*parts, _compared(results.compared), _varied(results.varied)])


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = (head, ["---"] * len(head), *lines)
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- |", "|---|").replace(" --- |", "---|") for line in cells)


def _useful(setting: Setting, rows: list[Row]) -> str:
    head = (setting.name, "useful GPU-hours", "more than waiting", "% of all bought", "points more", "better in")
    return _markdown(head, map(_useful_line, rows))


def _useful_line(row: Row) -> Sequence[str]:
    than = row.than_waiting
    more = (_signed(than.gpu_hours, 0), _signed(than.points, 2), f"{100 * than.better:.1f} %")
    hours, points, better = ("", "", "") if row.strategy == WAITING.name else more
    return row.strategy, _plain(row.useful_gpu_hours, 0), hours, _plain(row.useful_percent, 2), points, better


def _accounts(setting: Setting, rows: list[Row]) -> str:
    head = (f"{setting.name}: % of all bought", *Account)
    return _markdown(head, ((each.strategy, *(f"{part:.2f}" for part in each.percent.values())) for each in rows))


def _compared(differences: list[Difference]) -> str:
    head = ("paired", "against", "setting", "GPU-hours more", "points more", "better in")
    return _markdown(
        head,
        (
            (
                each.strategy,
                each.other,
                each.setting,
                _signed(each.gpu_hours, 0),
                _signed(each.points, 3),
                f"{100 * each.better:.1f} %",
            )
            for each in differences
        ),
    )


def _varied(rows: list[Row]) -> str:
    head = ("% of all bought, then points more", "waiting", *(each.name for each in VARIED_STRATEGIES))
    lines = []
    for setting in VARIED:
        first, *others = (each for each in rows if each.setting == setting.name)
        points = (_signed(each.than_waiting.points, 2) for each in others)
        lines.append((setting.name, _plain(first.useful_percent, 2), *points))
    return _markdown(head, lines)


def _plain(value: Estimate, digits: int) -> str:
    return f"{value.mean:,.{digits}f} ± {value.half_width:,.{digits}f}"


def _signed(value: Estimate, digits: int) -> str:
    return f"{value.mean:+,.{digits}f} ± {value.half_width:,.{digits}f}"
