"""What docs/architecture.md and CONTRIBUTING.md say about the tree is true, and tests that pages name exist."""

import ast
import re
import tomllib
from functools import cache
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
PICTURE = "docs/images/architecture.svg"
SVG = "{http://www.w3.org/2000/svg}"

_FOLDERS = "recovery|tests|docs|manifests|policies|examples"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_FOLDERS})/[\w/.-]*[\w/]")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_TARGET = re.compile(r"(?:^|`)make ([a-z][a-z0-9.-]*[a-z0-9])", re.MULTILINE)
_TEST = re.compile(r"`(test_\w+)`")
_PLACED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)*)`")
_ROW = re.compile(r"^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|(.*)$", re.MULTILINE)
"""A row of docs/coexistence.md: which disruptions, and its other cells."""
_LETTER_WIDTH = 0.62
"""The maximum width of a letter, in font sizes. Arial and Helvetica stay below it on average."""

each_page = pytest.mark.parametrize("page", PAGES)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def written_tests() -> set[str]:
    """The names of all tests."""
    return {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}


def missing_tests(text: str) -> list[str]:
    """The tests that the text names by path and name, and that no such file has."""
    return sorted({f"{path}::{name}" for path, name in _PLACED_TEST.findall(text) if name not in written_in(path)})


@cache
def written_in(path: str) -> frozenset[str]:
    """The tests of that file, those of a class with its name: `TestJob::test_its_end`. Empty: there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    found = set()
    for node in ast.parse(read(path)).body:
        inside, of = (node.body, f"{node.name}::") if isinstance(node, ast.ClassDef) else ([node], "")
        functions = (each for each in inside if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        found |= {f"{of}{each.name}" for each in functions if each.name.startswith("test_")}
    return frozenset(found)


def contract(name: str) -> list[str]:
    """The modules in the layers of that import-linter contract, from top to bottom."""
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (found,) = (each for each in contracts if each["name"] == name)
    return [module for layer in found["layers"] for module in layer.split(" | ")]


def rows(heading: str) -> list[str]:
    """The path in the first column of each row of the first table under that heading."""
    section = read("docs/architecture.md").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def rooms() -> list[str]:
    return [module.rpartition(".")[2] for module in contract("each room of core knows only those below it")]


@each_page
def test_every_path_exists(page: str) -> None:
    text = read(page)
    named = set(_PATH.findall(text))
    linked = {(ROOT / page).parent / link for link in _LINK.findall(text)}
    assert len(named) > 20
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
    assert sorted(str(path) for path in linked if not path.exists()) == []


def test_each_bound_of_the_threat_model_names_a_test_that_exists() -> None:
    bounds = read("docs/threat-model.md").split("\n## Bounds\n")[1].split("\n## ")[0].split("\n### ")[1:]
    named = [_TEST.findall(bound.partition("- **Tests:**")[2]) for bound in bounds]
    assert len(named) > 15
    assert all(named)
    assert sorted({name for names in named for name in names} - written_tests()) == []


class TestCoexistence:
    disruptions, _, tests = read("docs/coexistence.md").partition("\n## Tests\n")

    def test_every_test_that_it_names_exists(self) -> None:
        assert len(set(_PLACED_TEST.findall(self.tests))) > 60
        assert missing_tests(self.tests) == []
        assert self.tests.count("::test_") == len(_PLACED_TEST.findall(self.tests)), "each has a path that can be read"

    def test_each_disruption_has_a_test_or_says_that_it_has_none(self) -> None:
        told = [row for row, _ in _ROW.findall(self.disruptions)]
        shown = [(row, cells) for named, cells in _ROW.findall(self.tests) for row in named.split(", ")]
        assert len(told) == len(set(told)) > 40
        assert {row for row, _ in shown} == set(told)
        assert [row for row, cells in shown if "::test_" not in cells and "not tested" not in cells] == []

    @pytest.mark.parametrize(
        "wrong",
        [
            "tests/unit/test_docs.py::test_nothing_like_it",
            "tests/unit/test_docs.py::TestCoexistence::test_nothing_like_it",
            "tests/unit/test_docs.py::test_every_test_that_it_names_exists",
            "tests/unit/test_nowhere.py::test_every_path_exists",
        ],
    )
    def test_a_wrong_name_is_found(self, wrong: str) -> None:
        right = "`tests/unit/test_docs.py::test_every_path_exists`"
        assert missing_tests(f"{right}, `{wrong}`") == [wrong]


@each_page
def test_every_make_target_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z0-9.-]+):", read("Makefile"), re.MULTILINE))
    named = set(_TARGET.findall(read(page)))
    assert "manifests" in named
    assert sorted(named - targets) == []


@each_page
def test_every_test_that_is_named_exists(page: str) -> None:
    assert sorted(set(_TEST.findall(read(page))) - written_tests()) == []


@each_page
def test_no_line_is_longer_than_those_of_code(page: str) -> None:
    assert [line for line in read(page).splitlines() if len(line) > 120] == []


def test_the_rooms_are_the_folders_and_the_contract() -> None:
    folders = {path.parent.name for path in (ROOT / "recovery/core").glob("*/__init__.py")}
    assert sorted(rooms()) == sorted(folders)
    assert rows("Rooms of core") == [f"recovery/core/{room}" for room in rooms()]


def test_the_packages_are_those_of_the_contract() -> None:
    paths = [path.removesuffix(".py").replace("/", ".") for path in rows("Packages")]
    assert sorted(paths) == sorted(contract("each layer knows only those below it"))


def test_the_readme_leads_to_both_pages() -> None:
    assert set(PAGES) <= set(_LINK.findall(read("README.md")))


class TestThePicture:
    root = ElementTree.fromstring(read(PICTURE))
    texts = tuple((each, "".join(each.itertext())) for each in root.iter(f"{SVG}text"))

    def test_it_says_in_words_what_it_shows(self) -> None:
        description = self.root.findtext(f"{SVG}desc") or ""
        assert self.root.attrib["role"] == "img"
        assert self.root.findtext(f"{SVG}title")
        assert f"{', '.join(rooms())}." in description

    def test_it_has_the_rooms_in_their_order(self) -> None:
        names = [said for each, said in self.texts if each.attrib.get("class") == "bold"]
        assert [name for name in names if name in rooms()] == rooms()

    def test_every_path_in_it_exists(self) -> None:
        words = [word.rstrip(":,") for _, said in self.texts for word in said.split() if "/" in word]
        paths = [word if word.startswith("recovery/") else f"recovery/{word}" for word in words if word != "I/O"]
        assert len(paths) > 10
        assert [path for path in paths if not (ROOT / path).exists()] == []

    def test_no_words_overlap_or_leave_the_picture(self) -> None:
        width = float(self.root.attrib["width"])
        boxes = []
        for each, said in self.texts:
            size = {"title": 17, "path": 11}.get(each.attrib.get("class", ""), 12)
            wide = len(said) * size * _LETTER_WIDTH
            left = float(each.attrib["x"]) - (wide / 2 if each.attrib.get("text-anchor") == "middle" else 0)
            bottom = float(each.attrib["y"])
            boxes.append((said, left, bottom - size, left + wide, bottom + 3))
        assert [said for said, left, _, right, _ in boxes if left < 0 or right > width] == []
        assert [
            (one[0], other[0])
            for one, other in combinations(boxes, 2)
            if one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]
        ] == []


def test_the_documentation_index_of_the_readme_has_every_page_of_the_site() -> None:
    """`make docs` fails if a page is missing from the site's navigation."""
    navigation = re.sub(r"\A.*?^nav:", "", read("mkdocs.yml"), flags=re.DOTALL | re.MULTILINE)
    of_the_root = {"index.md", "contributing.md", "changelog.md"}
    pages = set(re.findall(r"- (?:\w+: )?([\w-]+\.md|\w+/)", navigation)) - of_the_root
    index = read("README.md").split("\n## Documentation\n")[1]
    linked = {link.removeprefix("docs/").removesuffix("README.md") for link in _LINK.findall(index)} - {
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    }
    assert len(pages) > 20
    assert sorted(pages ^ linked) == []
