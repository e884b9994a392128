"""An expectation: written once, met by every world.

    @expectation
    async def test_a_deleted_pod_is_replaced(scene: Scene) -> None: ...

becomes a test for each of the worlds that are asked for (`--world`, see conftest.py).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from tests.contract.scene import Scene

Body = Callable[[Scene], Awaitable[None]]


class World(Protocol):
    """A cluster that can be read."""

    def meets(self, expectation: "Expectation") -> None:
        """Raises AssertionError, or what else kept the expectation from being met."""
        ...


class Expectation:
    """A coroutine function that asserts what it expects of the scene that it is given."""

    def __init__(self, body: Body, *, slow: bool = False, stock_limits: bool = False) -> None:
        self.name: str = getattr(body, "__name__", "")
        self.key = f"{body.__module__}.{self.name}"
        """Unique."""
        self.body = body
        self.slow = slow
        """Most of it is waiting, in real time tens of seconds."""
        self.stock_limits = stock_limits
        """The controller-manager sends 20 requests a second with bursts of 30, its default; else 500 and 1000."""


Test = Callable[[World], None]


def expectation(body: Body) -> Test:
    """Make a test of it."""
    return _test_of(Expectation(body))


def slow_expectation(body: Body) -> Test:
    """The same, of one that waits for what is slow by design: it is begun first, and all of them at once."""
    return _test_of(Expectation(body, slow=True))


def stock_expectation(body: Body) -> Test:
    """The same, of one that is about the controller-manager's own request limits: nothing else asks it meanwhile."""
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
    """What the test function was made of. None: it is an ordinary one."""
    found = getattr(test, "expectation", None)
    return found if isinstance(found, Expectation) else None
