"""The pictures of the state machine show every row of its tables, and nothing in them overlaps."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from xml.etree import ElementTree

import msgspec
import pytest

from recovery.core.decision.guards import ASKED, GUARDS, Move
from recovery.core.decision.table import AFTER, BEFORE
from recovery.core.incident.transitions import ATTEMPTS, ENDINGS, TRANSITIONS, UNDER_WAY
from recovery.core.model.step import StepType
from recovery.crds.diagrams import HEAD_TOP, WORDS_HEIGHT, diagrams

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = diagrams()
COLUMNS: Mapping[str, Iterable[str]] = {"docs/images/steps.svg": StepType, "docs/images/guards.svg": Move}
"""What the columns of a picture stand for. Others have a column for each phase."""
WIDEST = 0.62
"""The maximum width of a letter, in font sizes. Arial and Helvetica stay below it on average."""


class Box(msgspec.Struct, frozen=True):
    what: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def holds(self, other: "Box") -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


def root_of(path: str) -> ElementTree.Element:
    return ElementTree.fromstring(PICTURES[path])


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def texts(root: ElementTree.Element) -> list[Box]:
    """The box of each text, with all letters at their maximum width."""
    found = []
    for element in root.iter(f"{SVG}text"):
        said, kind = "".join(element.itertext()), element.attrib.get("class", "")
        size = {"title": 17, "name": 11}.get(kind, 12)
        width = len(said) * size * WIDEST
        left = number(element, "x") - (width / 2 if kind == "name" else 0)
        baseline = number(element, "y")
        found.append(Box(said, left, baseline - size, left + width, baseline + 3))
    return found


def boxes(root: ElementTree.Element, kind: str) -> list[Box]:
    return [
        Box(kind, x, y, x + number(each, "width"), y + number(each, "height"))
        for each in root.iter(f"{SVG}rect")
        if each.attrib["class"] == kind
        for x, y in [(number(each, "x"), number(each, "y"))]
    ]


@pytest.mark.parametrize("path", PICTURES)
def test_a_picture_says_in_words_what_it_shows(path: str) -> None:
    root = root_of(path)
    title, description = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title
    assert description
    assert root.attrib["role"] == "img"
    assert all(column in description for column in COLUMNS.get(path, UNDER_WAY))


@pytest.mark.parametrize("path", PICTURES)
def test_no_words_overlap_or_leave_the_picture(path: str) -> None:
    root = root_of(path)
    (paper,) = boxes(root, "paper")
    written = texts(root)
    assert [one.what for one in written if not paper.holds(one)] == []
    assert [(one.what, other.what) for one, other in combinations(written, 2) if one.overlaps(other)] == []


@pytest.mark.parametrize("path", PICTURES)
def test_every_name_stands_in_its_box(path: str) -> None:
    root = root_of(path)
    heads = boxes(root, "box")
    names = [
        text
        for text, element in zip(texts(root), root.iter(f"{SVG}text"), strict=True)
        if element.attrib.get("class") == "name"
    ]
    assert len(names) == len(heads)
    assert all(box.holds(name) for box, name in zip(heads, names, strict=True))
    assert not any(one.overlaps(other) for one, other in combinations(heads, 2))


@pytest.mark.parametrize("path", PICTURES)
def test_no_dot_touches_words(path: str) -> None:
    root = root_of(path)
    written = texts(root)
    for each in root.iter(f"{SVG}circle"):
        x, y, r = (number(each, name) for name in ("cx", "cy", "r"))
        dot = Box("dot", x - r, y - r, x + r, y + r)
        assert not any(dot.overlaps(text) for text in written)


def shown(path: str) -> list[tuple[str, list[str]]]:
    """The words of each row, and the columns that have dots in it."""
    root = root_of(path)
    middles = {}
    for text, element in zip(texts(root), root.iter(f"{SVG}text"), strict=True):
        if element.attrib.get("class") == "name":
            middles[number(element, "x")] = text.what
    rows: list[tuple[str, list[str]]] = []
    for element in root:
        y = float(element.attrib.get("y", 0))
        if element.tag == f"{SVG}text" and "class" not in element.attrib and y > HEAD_TOP + WORDS_HEIGHT:
            rows.append(("".join(element.itertext()), []))
        if element.tag == f"{SVG}circle":
            rows[-1][1].append(middles[number(element, "cx")])
    return rows


def test_the_phases_show_every_transition() -> None:
    drawn = [(dot, words) for words, dots in shown("docs/images/phases.svg") for dot in dots]
    assert sorted(drawn) == sorted((each.source, f"to {each.target}: {each.when}") for each in TRANSITIONS)


def test_the_attempts_show_every_life() -> None:
    assert [(words, set(dots)) for words, dots in shown("docs/images/attempts.svg")] == [
        (f"{life.action}: {life.when}", {*life.modes, *life.begins_in, *life.becomes}) for life in ATTEMPTS.values()
    ]


def test_the_outcomes_show_every_ending() -> None:
    assert [(words, set(dots)) for words, dots in shown("docs/images/outcomes.svg")] == [
        (f"{each}: {each.when}", {*each.modes, *each.phases}) for each in ENDINGS
    ]


def test_the_guards_show_who_asks_them() -> None:
    drawn = {words.partition(":")[0]: set(dots) for words, dots in shown("docs/images/guards.svg")}
    assert drawn == {guard: {move for move in Move if guard in ASKED[move]} for guard in GUARDS}


def test_the_steps_show_their_questions_in_the_order_in_which_they_are_asked() -> None:
    rows = [words.partition(":")[0] for words, _ in shown("docs/images/steps.svg")]
    for table in (BEFORE, AFTER):
        for asked in table.values():
            places = [rows.index(ask.__name__.replace("_", " ")) for ask in asked]
            assert places == sorted(places)
    columns = [dot for _, dots in shown("docs/images/steps.svg") for dot in dots]
    assert len(columns) == sum(len(asked) for table in (BEFORE, AFTER) for asked in table.values())


def test_the_arrows_lead_to_the_phase_that_follows() -> None:
    """Each row has an arrow tip at the middle of the column of its target. Other tips come before these."""
    root = root_of("docs/images/phases.svg")
    middles = {
        "".join(each.itertext()): number(each, "x")
        for each in root.iter(f"{SVG}text")
        if each.attrib.get("class") == "name"
    }
    rows = shown("docs/images/phases.svg")
    tips = [
        float(each.attrib["d"].split()[0].removeprefix("M"))
        for each in root.iter(f"{SVG}path")
        if each.attrib["class"].startswith("tip")
    ]
    usual = len(tips) - len(rows)
    assert tips[usual:] == [middles[words.split(":")[0].removeprefix("to ")] for words, _ in rows]
