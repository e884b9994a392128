"""Hypothesis draws the same cases in every run: one profile, and nothing of what a process happens to have loaded."""

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "tests" / "conftest.py"
"""The only module that may choose between draws."""
OWN = {"max_examples", "suppress_health_check"}
"""What a test may set for itself."""

_DRAWS_TWICE = """
import importlib, sys
from hypothesis.internal.conjecture import providers
from tests import conftest
from tests.unit.test_draws import drawn

unchanged = providers._get_local_constants
conftest.draw_the_same_in_every_run()
importlib.import_module(sys.argv[1])
print(drawn())
providers._get_local_constants = unchanged
print(drawn())
"""


def drawn() -> str:
    """A digest of what a test draws."""
    found = []

    @settings(max_examples=300)
    @given(st.tuples(st.integers(), st.text(), st.floats()))
    def draw(values: tuple[object, ...]) -> None:
        found.append(values)

    draw()
    return hashlib.sha256(repr(found).encode()).hexdigest()


def drawn_with(module: str) -> list[str]:
    """What a process draws that has loaded the module: as the tests draw, and as hypothesis does by itself."""
    program = [sys.executable, "-c", _DRAWS_TWICE, module]
    return subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True, timeout=50).stdout.split()


def test_processes_that_have_loaded_other_modules_draw_the_same() -> None:
    (one, one_unchanged), (other, other_unchanged) = map(
        drawn_with, ["recovery.core.model.ledger", "recovery.launch.lint"]
    )
    assert one == other == drawn()
    assert one_unchanged != other_unchanged, "without tests/drawn_constants.py the draws are the same too: remove it"


def test_hypothesis_draws_from_the_function_that_the_tests_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an upgrade calls another one, tests/drawn_constants.py replaces a function that nothing uses."""
    odd, found = 918_273_645_546_372, []
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))
    monkeypatch.setattr(providers, "_get_local_constants", lambda: Constants(integers={odd}))

    @given(st.integers())
    def draw(value: int) -> None:
        found.append(value)

    draw()
    assert odd in found


def test_no_test_chooses_between_draws_by_itself() -> None:
    modules = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != PROFILE)
    assert len(modules) > 500
    broken = [f"{path.relative_to(ROOT)}:{line}" for path in modules for line in own_choices(path.read_text())]
    assert broken == []


@pytest.mark.parametrize(
    "choice",
    [
        "from hypothesis import settings\nsettings(max_examples=3, deadline=None)",
        "from hypothesis import settings as terms\n@terms(derandomize=False)\ndef test(): ...",
        "from hypothesis import settings\nsettings(**{'database': None})",
        "import hypothesis\nhypothesis.settings(database=None)",
        "import hypothesis as h\nh.settings.load_profile('ci')",
        "from hypothesis import settings\nsettings.register_profile('mine')",
    ],
)
def test_a_choice_of_its_own_is_found(choice: str) -> None:
    assert list(own_choices(choice)) == [2]


def test_the_number_of_examples_is_free() -> None:
    assert not list(own_choices("from hypothesis import settings\n@settings(max_examples=3)\ndef test(): ..."))
    assert not list(own_choices("from recovery.launch.mpi import settings\nsettings(deadline=None)"))


def own_choices(source: str) -> Iterator[int]:
    """The lines on which a module sets more than a test may set for itself."""
    if "hypothesis" not in source:
        return
    tree = ast.parse(source)
    names = set(_names_of_settings(tree))
    yield from (each.lineno for each in ast.walk(tree) if isinstance(each, ast.expr) and _chooses(each, names))


def _chooses(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Attribute(value=value, attr="load_profile" | "register_profile"):
            return ast.unparse(value) in names
        case ast.Call(func=called, keywords=keywords):
            return ast.unparse(called) in names and any(each.arg not in OWN for each in keywords)
        case _:
            return False


def _names_of_settings(tree: ast.Module) -> Iterator[str]:
    """By which names the module calls hypothesis' `settings`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "hypothesis":
            yield from (each.asname or each.name for each in node.names if each.name == "settings")
        elif isinstance(node, ast.Import):
            yield from (f"{each.asname or each.name}.settings" for each in node.names if each.name == "hypothesis")
