"""What a canary is."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from recovery.sim.trials.plan import TrialPlan


@dataclass(frozen=True)
class Canary:
    """One planted bug."""

    name: str
    invariant: str
    """Which one has to find it, by the name that a violation carries."""
    plant: Callable[[pytest.MonkeyPatch], None]
    """Puts the bug in its place; undone with the monkeypatch. Its docstring says what the bug is."""
    likely: Callable[[TrialPlan], bool]
    """Plans that can meet the bug are tried first. It sees the plan as it was drawn, nothing of what comes of it."""
