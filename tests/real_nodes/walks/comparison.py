"""Compares what a pod showed on a modelled node with what it showed on a real one.

Times are left out. A kubelet looks at its containers once a second and writes what it sees then. So it may skip short
states, and it may report changes within one second in any order or together. These must still be equal:

- the state of the pod each time that it had come to rest, and its last state before the object went; but a container in
  its back-off may show the back-off or how its last run ended;
- whether the object went, and the result of each act;
- the phases, in order, except those that the model leaves within `APART_SECONDS`;
- how each run of each container ended: `lastState` shows a run that no one saw;
- the order of phases, of the first starts of containers and of the deletion, where they are at least `APART_SECONDS`
  apart in the model: how independent containers end and restart is a race;
- the reasons for which containers have waited, except `SHORT`, which either world may or may not show.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.real_nodes.walks.history import PodHistory
from tests.real_nodes.walks.plan import PodPlan

APART_SECONDS = 1.5
"""A kubelet reports events this far apart in the order in which they happened."""
SHORT = frozenset({"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"})
"""Reasons before a container is created, and in the last moment of its back-off."""


def differences(real: PodHistory, model: PodHistory) -> list[str]:
    """The differences, in words. Empty: there is none."""
    return list(_differences(real, model))


def _differences(real: PodHistory, model: PodHistory) -> Iterator[str]:
    for what in ("stood", "acts", "there", "last", "phases", "ends"):
        one, other = getattr(real, what), getattr(model, what)
        if one != other and not (what == "phases" and one == _lasting(model)):
            yield from (f"{what}:", f"  real:     {_told(one)}", f"  modelled: {_told(other)}")
    for reason in sorted((real.waits ^ model.waits) - SHORT):
        yield f"only the {'real' if reason in real.waits else 'modelled'} node shows a container that waits: {reason}"
    both = [fact for fact in model.order if fact in real.order]
    for number, first in enumerate(both):
        for then in both[number + 1 :]:
            if model.order[then] - model.order[first] >= APART_SECONDS and real.order[then] < real.order[first]:
                yield f"order: {first}, then {then}; on the real node it is the other way round"


def _lasting(model: PodHistory) -> tuple[str, ...]:
    """The phases that no kubelet can overlook: the first, the last, and those that are long enough."""
    began = [model.order[f"phase {phase}"] for phase in model.phases]
    lasts = [math.inf, *(then - since for since, then in pairwise(began[1:])), math.inf]
    return tuple(phase for phase, seconds in zip(model.phases, lasts, strict=False) if seconds >= APART_SECONDS)


def _told(what: object) -> str:
    return "".join(f"\n    {each}" for each in what) if isinstance(what, tuple) else str(what)


def report(seed: str, plans: Sequence[PodPlan], reals: Sequence[PodHistory], models: Sequence[PodHistory]) -> str:
    """Every pod that differs, with its plan. Empty: none differs."""
    told = []
    for plan, real, model in zip(plans, reals, models, strict=True):
        found = differences(real, model)
        if found:
            told += [f"{seed}: the modelled node differs from the real one", *plan.lines(), *found, ""]
    return "\n".join(told)
