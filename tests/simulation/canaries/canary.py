"""The definition of a canary."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from recovery.sim.trials.plan import TrialPlan

Property = Callable[[TrialPlan], bool]


@dataclass(frozen=True)
class Canary:
    """One planted bug."""

    name: str
    invariant: str
    """The invariant that has to find the bug, by the name that a violation carries."""
    plant: Callable[[pytest.MonkeyPatch], None]
    """Plants the bug until the monkeypatch is undone. Its docstring describes the bug."""
    likely: Property
    """What the bug needs in a plan. It orders the search for another seed. It sees only what was drawn, not what comes
    of it."""
    seed: int
    """The first seed of that search whose trial finds the bug."""
