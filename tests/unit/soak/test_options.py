"""Which numbers a soak runs, and what a trial of the modelled cluster reports to it."""

from typing import Any

import pytest

from recovery.sim.trials.summary import Report
from tests.soak import __main__ as command
from tests.soak.attempt import Broken, Campaign
from tests.soak.seeds import SEEDS, attempt_of
from tests.soak.walks import WALKS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Campaign, range, float]]:
    """What would run."""
    asked: list[tuple[Campaign, range, float]] = []

    def soak(campaign: Campaign, numbers: range, *, limit_seconds: float, **_: Any) -> int:
        asked.append((campaign, numbers, limit_seconds))
        return 0

    monkeypatch.setattr(command, "soak", soak)
    return asked


def test_without_options_it_runs_20_000_seeds(asked: list[tuple[Campaign, range, float]]) -> None:
    assert command.main([], {"SEEDS": ""}) == 0  # make exports an empty one
    assert asked == [(SEEDS, range(20_000), 600)]


def test_the_environment_says_which_numbers(asked: list[tuple[Campaign, range, float]]) -> None:
    command.main(["walks"], {"FIRST": "30000", "SEEDS": "5", "LIMIT_SECONDS": "9"})
    command.main(["seeds"], {"FIRST": "30000"})
    assert asked == [(WALKS, range(30_000, 30_005), 9), (SEEDS, range(30_000, 50_000), 600)]


@pytest.mark.parametrize(
    ("name", "value"), [("SEEDS", "0"), ("SEEDS", "many"), ("FIRST", "-1"), ("LIMIT_SECONDS", "0"), ("SEEDS", "1e3")]
)
def test_a_wrong_number_is_refused(
    name: str, value: str, asked: list[tuple[Campaign, range, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([], {name: value})
    assert f"{name}={value}: a whole number of at least" in capsys.readouterr().err
    assert asked == []


def test_a_trial_is_broken_by_each_invariant_with_its_first_violation() -> None:
    report = Report(
        seed=7,
        trace_hash="",
        requests=12,
        incidents=2,
        restarts=1,
        simulated_seconds=7200,
        cpu_seconds=0.7,
        coverage={},
        lost_seconds={},
        violations=("Restraint at 1:00: one", "Restraint at 2:00: two", "Budget at 3:00: three"),
        invariant="Restraint",
        invariants=("Restraint", "Budget"),
    )
    found = attempt_of(report)
    assert found.broken == (Broken("Restraint", "at 1:00: one"), Broken("Budget", "at 3:00: three"))
    assert found.figures == {"simulated hours": 2, "requests": 12, "incidents": 2, "restarts": 1}
    assert found.cpu_seconds == 0.7
