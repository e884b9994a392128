"""Holds the history of a walk in the modelled cluster against the two on the real control plane.

What the two real ones disagree about is a race: there the modelled one may be like either of them, or something else.
What they agree about is how the real programs behave, and there the modelled one must be the same.
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
    """A line of a history."""

    section: int
    part: str
    """`acts`, `appeared` or `stands`."""
    role: str = ""


Entry = tuple[str, ...]
"""What a history says in that line. Empty: it has no such line."""


@dataclass(frozen=True)
class Comparison:
    agreed: int
    """Lines about which the real histories agree."""
    racy: int
    """Lines that are left out: the real histories disagree about them."""
    differences: tuple[Key, ...]
    """Lines of the model that are not as the real ones agree. In order."""


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
    """The first of the models that does not differ, else that which differs latest.

    Each has drawn its own delays: where things happen at once, several outcomes are right. If none of them differs
    later than in a step of two acts, and what the real ones say there is said by one or another of the models, line by
    line, then they have met an outcome that no model has drawn as a whole. What follows from it is left out.
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
    """Of so many sections. None: of all."""
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
