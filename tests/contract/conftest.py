"""Which worlds the expectations are held against: `--world real`, `--world simulated`, or (nothing said) both.

Tests of a world that was not asked for are not collected, rather than skipped: a skipped test means that something was
to be seen and was not.
"""

from collections.abc import Iterator

import pytest

from tests.contract.expectations import World, expectation_of
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
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = [
        found
        for item in items
        if item.callspec.params.get("world") == "real" and (found := expectation_of(item.function)) is not None
    ]
    with RealWorld.running(wanted) as running:
        yield running
