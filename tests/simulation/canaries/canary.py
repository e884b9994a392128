"""What a canary is."""

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
    """Which one has to find it, by the name that a violation carries."""
    plant: Callable[[pytest.MonkeyPatch], None]
    """Puts the bug in its place until the monkeypatch is undone. Its docstring says what the bug is."""
    likely: Property
    """What the bug needs of a plan: it orders the search for another seed. It sees what was drawn, not what comes of
    it."""
    seed: int
    """The first seed of that search whose trial finds the bug."""
