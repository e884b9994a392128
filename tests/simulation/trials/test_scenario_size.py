"""The resources that a scenario needs: how they grow, what is refused, and what is reported first."""

import pytest

from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.scenario_size import (
    REFUSED_SHARE,
    ScenarioSize,
    SizedJob,
    free_memory_mib,
    too_large,
    warnings,
)
from tests.simulation.trials.scenario_files import wrong

ALMOST_NOTHING = 200.0


def size(pods: int = 8, *, restarts: int = 0, jobs: int = 1, hours: float = 1.0, replicas: int = 2) -> ScenarioSize:
    return ScenarioSize(
        tuple(SizedJob(f"jobs[{number}]", pods, restarts) for number in range(jobs)), 0, hours, replicas
    )


@pytest.mark.parametrize(
    ("measured", "mib", "seconds"),
    [
        (size(128, hours=1.5), 37 + 90, 2),
        (size(128, restarts=4, hours=1.5), 101 + 90, 6),
        (size(512, restarts=1, hours=1.5), 155 + 90, 20),
        (size(1024, hours=1.5), 169 + 90, 98),
        (size(2048, hours=0.7), 300 + 90, 297),
        (size(128, hours=24.5), 358 + 90, 21),
        (size(8, restarts=1, jobs=64, hours=1.5), 213 + 90, 19),
        (size(8, hours=1.5, replicas=5), 43 + 90, 3),
    ],
)
def test_the_figures_are_near_what_was_measured(measured: ScenarioSize, mib: float, seconds: float) -> None:
    """docs/simulation.md has these measurements."""
    assert measured.mib == pytest.approx(mib, rel=0.3)
    assert seconds / 2 <= measured.seconds <= seconds * 2


def test_what_does_not_fit_is_refused_at_the_field_that_needs_most() -> None:
    many_pods, long = size(pods=5000), size(hours=1000)
    assert too_large(many_pods, free_mib=many_pods.mib / REFUSED_SHARE + 1) == {}
    assert list(too_large(many_pods, free_mib=many_pods.mib)) == ["jobs[0].pods"]
    assert list(too_large(long, free_mib=long.mib)) == ["duration"]


def test_so_much_less_fits() -> None:
    most, free_mib = 1000, size(pods=1000).mib / REFUSED_SHARE
    (share,) = too_large(size(pods=4 * most), free_mib).values()
    assert share == pytest.approx(1 / 4, rel=0.02)
    assert too_large(size(pods=4 * most, hours=10_000), free_mib)["jobs[0].pods"] == 0


def test_each_field_that_alone_does_not_fit_is_named() -> None:
    both = ScenarioSize((SizedJob("jobs[0]", 8, 0), SizedJob("jobs[1]", 10**9, 0)), 10**9, 10.0, 2)
    assert set(too_large(both, free_mib=1000)) == {"jobs[1].pods", "cluster"}


def test_chaos_makes_pods_again() -> None:
    kill = "{kind: PodChaos, at: 1m, action: container-kill, selector: {job: llm}, mode: one}"
    crash = "{kind: PodChaos, at: 1m, action: pod-failure, selector: {job: llm}, duration: 30m}"
    head = "name: x\njobs: [{name: llm, pods: 1000, policy: {mode: Enforce, budget: {limit: 40}}}]\nchaos: "
    free_mib = 1000.0
    assert read_scenario(f"{head}[{kill}]", free_mib=free_mib).plan.faults
    for chaos in (f"[{', '.join([kill] * 40)}]", f"[{crash}]"):
        assert [problem.partition(":")[0] for problem in wrong(head + chaos, free_mib=free_mib)] == ["jobs[0].pods"]


def test_a_size_that_is_refused_hides_no_other_mistake() -> None:
    """Nothing is created for each of the pods, not even for a moment."""
    text = """
        name: x
        cluster: {nodes: 4}
        jobs: [{name: llm, pods: 1000000000000}]
        chaos:
        - {kind: PodChaos, at: 1m, action: pod-kill, selector: {job: llm, indexes: [5000]}, mode: all}
        - {kind: PodChaos, at: 1m, action: pod-kill, selector: {job: lm}, mode: fixed-percent, value: 50}
    """
    paths = [problem.partition(":")[0] for problem in wrong(text, free_mib=ALMOST_NOTHING)]
    assert paths == ["jobs[0].pods", "chaos[1].selector.job"]


@pytest.mark.parametrize(
    ("large", "free_mib", "how_many"),
    [(size(), 10**6, 0), (size(pods=10_000), 3000, 2), (size(pods=10_000), 10**6, 1), (size(hours=100), 2000, 1)],
)
def test_what_takes_long_or_half_of_the_memory_is_said_first(
    large: ScenarioSize, free_mib: float, how_many: int
) -> None:
    assert too_large(large, free_mib) == {}
    assert len(list(warnings(large, free_mib))) == how_many


def test_this_machine_has_some_memory() -> None:
    assert ALMOST_NOTHING < free_memory_mib() < float("inf")
