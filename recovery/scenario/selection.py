"""Chooses the pods that chaos affects. The same chance chooses the same pods."""

import random
from collections.abc import Sequence

from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.schema import SelectionMode
from recovery.scenario.strict_input import BadInputError


def chance_of(seed: int, repeat: int, entry: int) -> random.Random:
    """The chance of one entry in one repeat: neither depends on how often another one draws."""
    return random.Random(f"{seed}:{repeat}:{entry}")


def select(chaos: ExperimentChaos, candidates: Sequence[int], chance: random.Random) -> tuple[int, ...]:
    """The completion indexes that are affected, sorted. `candidates`: those of the pods that there are, sorted.

    Raises BadInputError if the entry does not fit the pods.
    """
    if absent := sorted(set(chaos.indexes).difference(candidates)):
        named = ", ".join(map(str, absent))
        raise BadInputError(f"{chaos.path}.selector.indexes: {named}: the job has no such pods now")
    if not candidates:
        raise BadInputError(f"{chaos.path}: the job has no pods now")
    chosen = sorted(chaos.indexes) or list(candidates)
    wanted = how_many(chaos.mode, chaos.value, len(chosen))
    if not wanted:
        raise BadInputError(f"{chaos.path}.value: {misfit(chaos.mode, chaos.value, len(chosen))}")
    return tuple(sorted(chance.sample(chosen, wanted)))


def how_many(mode: SelectionMode, value: int | str | None, candidates: int) -> int:
    """How many candidates are affected. 0: there are none, or `value` does not fit their number."""
    if mode in (SelectionMode.ONE, SelectionMode.ALL):
        return min(1, candidates) if mode is SelectionMode.ONE else candidates
    number = number_of(value)
    if number is None:
        return 0
    wanted = number if mode is SelectionMode.FIXED else candidates * number // 100
    return wanted if 1 <= wanted <= candidates else 0


def number_of(value: int | str | None) -> int | None:
    """A `value`, which Chaos Mesh writes as text. None: it is no number."""
    return int(value) if isinstance(value, int) or (value is not None and value.isdecimal()) else None


def misfit(mode: SelectionMode, value: int | str | None, candidates: int | None) -> str:
    """The end of a sentence about a `value` that does not fit. `candidates` None: their number is not known."""
    unit = "pods" if mode is SelectionMode.FIXED else "per cent of the pods"
    pods = "some or all of the pods" if candidates is None else f"1 to {candidates} pods"
    said = "is missing" if value is None else f"{value!r} does not make {pods}"
    return f"{said}; mode {mode} needs a number of {unit}"
