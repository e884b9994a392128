"""Selects the walks: seeds 0 to `--walks` - 1, each twice on one real control plane and in modelled clusters.

A walk in which the model differs runs a third time on the real control plane: an outcome that two runs share may still
be a race.
"""

from collections.abc import AsyncIterator

import pytest

from tests.walks.draw import WALKS_IN_CI, draw
from tests.walks.worlds import Outcome, RealWalks

OUTCOMES = pytest.StashKey[list[Outcome]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--walks", type=int, default=WALKS_IN_CI, help="how many walks; seeds are counted from 0")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--walks")), ids="seed-{}".format)


@pytest.fixture(scope="session")
async def walks(request: pytest.FixtureRequest) -> AsyncIterator[RealWalks]:
    """All walks of the session. They have started."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    seeds = [spec.params["seed"] for spec in specs if spec is not None and "seed" in spec.params]
    async with RealWalks.running([draw(seed) for seed in seeds]) as running:
        yield running


@pytest.fixture
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """Outcomes of the finished walks."""
    return request.config.stash[OUTCOMES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash[OUTCOMES]
    if not found:
        return
    differing = [each.plan.seed for each in found if each.comparison.differences]
    thrice = [each.plan.seed for each in found if len(each.real) > 2]
    agreed, racy = (sum(getattr(each.comparison, name) for each in found) for name in ("agreed", "racy"))
    terminalreporter.write_line(
        f"{len(found)} walks, each twice on the real control plane: {agreed} lines compared, {racy} left out because "
        f"the real ones disagree; {len(differing)} walks differ{f': seeds {differing}' if differing else ''}"
        f"{f'; walked a third time: seeds {thrice}' if thrice else ''}"
    )
