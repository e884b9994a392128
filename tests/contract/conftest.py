"""Selects the worlds that the expectations run in: `--world real`, `--world simulated`, or by default both.

Tests of a world that is not selected are not collected, rather than skipped: a skipped test means that something should
have been checked and was not.
"""

from collections.abc import Iterable, Iterator

import pytest

from tests.contract.expectations import Expectation, World, expectation_of
from tests.contract.real import RealWorld
from tests.contract.simulated import SimulatedWorld

WORLDS = ("real", "simulated")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--world", choices=WORLDS, default=None, help="the one world to hold the contract against")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--world", default=None)
        metafunc.parametrize("world", WORLDS if chosen is None else (chosen,), indirect=True, scope="package")


@pytest.fixture(scope="package")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    with RealWorld.running([*_wanted_of_the_real_world(request.session.items)]) as running:
        yield running


def _wanted_of_the_real_world(items: Iterable[pytest.Item]) -> Iterator[Expectation]:
    """All expectations of the real world in this session, so that they can start together."""
    for item in items:
        found = expectation_of(getattr(item, "function", None))
        if found is not None and item.name.endswith("[real]"):
            yield found
