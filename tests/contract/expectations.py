"""An expectation: written once, checked in every world.

    @expectation
    async def test_a_deleted_pod_is_replaced(scene: Scene) -> None: ...

becomes one test for each selected world (`--world`, see conftest.py).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from tests.contract.scene import Scene

Body = Callable[[Scene], Awaitable[None]]


class World(Protocol):
    """A cluster in which expectations are checked."""

    def meets(self, expectation: "Expectation") -> None:
        """Raises AssertionError, or any other error that kept the expectation from being met."""
        ...


class Expectation:
    """A coroutine function that asserts what it expects of the scene passed to it."""

    def __init__(self, body: Body, *, slow: bool = False, stock_limits: bool = False) -> None:
        self.name: str = getattr(body, "__name__", "")
        self.key = f"{body.__module__}.{self.name}"
        """Unique."""
        self.body = body
        self.slow = slow
        """It mostly waits, for tens of seconds in real time."""
        self.stock_limits = stock_limits
        """The controller-manager has its default limits, 20 requests a second with bursts of 30. Else 500 and 1000."""


Test = Callable[[World], None]


def expectation(body: Body) -> Test:
    """Make a test of the coroutine function."""
    return _test_of(Expectation(body))


def slow_expectation(body: Body) -> Test:
    """The same, for one that waits for something slow by design. Slow ones start first, all at once."""
    return _test_of(Expectation(body, slow=True))


def stock_expectation(body: Body) -> Test:
    """The same, for one about the controller-manager's own request limits. No other one runs meanwhile."""
    return _test_of(Expectation(body, stock_limits=True))


def _test_of(wanted: Expectation) -> Test:
    def test(world: World) -> None:
        world.meets(wanted)

    test.__name__ = wanted.name
    test.__qualname__ = wanted.name
    test.__doc__ = wanted.body.__doc__
    test.__module__ = wanted.body.__module__
    test.__dict__["expectation"] = wanted
    return test


def expectation_of(test: object) -> Expectation | None:
    """The expectation that the test function was made from. None: it is an ordinary test."""
    found = getattr(test, "expectation", None)
    return found if isinstance(found, Expectation) else None
