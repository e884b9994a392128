"""Compares the history of a walk in the modelled cluster with the two on the real control plane.

Where the two real ones differ, the outcome is a race, and any outcome of the model is accepted. Where they agree, that
is how the real programs behave, and the model must do the same.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tests.walks.history import History, Section
from tests.walks.plan import Walk

COLUMN = 70


@dataclass(frozen=True)
class Key:
    """Identifies a line of a history."""

    section: int
    part: str
    """`acts`, `appeared` or `stands`."""
    role: str = ""


Entry = tuple[str, ...]
"""The content of that line. Empty: the history has no such line."""


@dataclass(frozen=True)
class Comparison:
    agreed: int
    """Number of lines about which the real histories agree."""
    racy: int
    """Number of lines left out because the real histories differ."""
    differences: tuple[Key, ...]
    """Lines in which the model differs although the real histories agree. In order."""


def compare(real: Sequence[History], model: History) -> Comparison:
    shortest = min((len(each.sections) for each in real if each.too_slow), default=None)
    reals = [entries(history, shortest) for history in real]
    modelled = entries(model, shortest)
    keys = sorted({*modelled, *(key for each in reals for key in each)}, key=_order)
    agreed, racy, differences = 0, 0, []
    for key in keys:
        said = {each.get(key, ()) for each in reals}
        if len(said) > 1:
            racy += 1
            continue
        agreed += 1
        if modelled.get(key, ()) not in said:
            differences.append(key)
    return Comparison(agreed, racy, tuple(differences))


def best(real: Sequence[History], models: Iterable[History]) -> tuple[History, Comparison]:
    """The first model that does not differ, else the one that differs latest.

    Each model draws its own delays: where things happen at once, several outcomes are right. Suppose the latest of the
    first differences is in a step of two acts, and each differing line of the real histories in that step occurs in
    some model. Then the real walks met an outcome that no single model has drawn as a whole. That step's differing
    lines and everything after it are left out.
    """
    found: list[tuple[History, Comparison]] = []
    for model in models:
        comparison = compare(real, model)
        if not comparison.differences:
            return model, comparison
        found.append((model, comparison))
    model, comparison = max(found, key=lambda each: (each[1].differences[0].section, -len(each[1].differences)))
    number = comparison.differences[0].section
    at_once = [key for key in comparison.differences if key.section == number]
    is_double = number < len(model.sections) and len(model.sections[number].acts) > 1
    if is_double and all(_is_said(key, real, found) for key in at_once):
        left = sum(key.section > number or key in at_once for key in entries(real[0]))
        return model, Comparison(comparison.agreed - left, comparison.racy + left, ())
    return model, comparison


def _is_said(key: Key, real: Sequence[History], found: Iterable[tuple[History, Comparison]]) -> bool:
    said = entries(real[0]).get(key, ())
    return any(entries(model).get(key, ()) == said for model, _ in found)


def entries(history: History, sections: int | None = None) -> dict[Key, Entry]:
    """The entries of the first `sections` sections. None: of all."""
    found: dict[Key, Entry] = {}
    for number, section in enumerate(history.sections[:sections]):
        found[Key(number, "acts")] = tuple(section.acts)
        found |= {Key(number, "appeared", role): tuple(told) for role, told in section.appeared.items()}
        found |= {Key(number, "stands", role): (state,) for role, state in section.states.items()}
    return {key: entry for key, entry in found.items() if entry}


def _order(key: Key) -> tuple[int, str, str]:
    return key.section, key.part, key.role


def report(walk: Walk, real: Sequence[History], model: History, differences: Sequence[Key]) -> str:
    """Seed, job, steps, the first difference, and the histories side by side up to the step in which it shows."""
    first = differences[0]
    told = [f"seed {walk.seed}: the modelled cluster differs from the real one", *walk.lines(), ""]
    told += [f"first difference: step {first.section}, {first.role or 'what was done'} {first.part}"]
    told += [f"  real:     {' | '.join(entries(real[0]).get(first, ())) or '(nothing)'}"]
    told += [f"  modelled: {' | '.join(entries(model).get(first, ())) or '(nothing)'}", ""]
    told += [f"{'real':<{COLUMN}}   modelled"]
    for number in range(first.section + 1):
        told += _side_by_side(number, real[0], model, {key for key in differences if key.section == number})
    return "\n".join(told)


def _side_by_side(number: int, real: History, model: History, differences: set[Key]) -> Iterator[str]:
    sides = [_section(history, number) for history in (real, model)]
    step = next((section.step for section in sides if section), "")
    yield f"-- {step}"
    both = [entries(History([section])) if section else {} for section in sides]
    for key in sorted({*both[0], *both[1]}, key=_order):
        mark = "!" if Key(number, key.part, key.role) in differences else " "
        left, right = (_written(key, each.get(key, ())) for each in both)
        for one, other in zip_longest(left, right, fillvalue=""):
            yield f"{mark} {one:<{COLUMN - 2}} {mark} {other}".rstrip()


def _section(history: History, number: int) -> Section | None:
    return history.sections[number] if number < len(history.sections) else None


def _written(key: Key, entry: Entry) -> list[str]:
    if not entry:
        return []
    sign = {"acts": ">", "appeared": "+", "stands": "="}[key.part]
    text = f"{sign} {key.role}: {', '.join(entry)}" if key.role else f"{sign} {', '.join(entry)}"
    return textwrap.wrap(text, COLUMN - 3, subsequent_indent="      ")
