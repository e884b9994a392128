"""A name says which class or file is meant: no two public classes share one, and no file is too long for its name."""

import ast
from collections import defaultdict
from pathlib import Path

import recovery

PACKAGE = Path(recovery.__file__).parent
TESTS = PACKAGE.parent / "tests"
LINES_MAX = 500


def test_no_two_public_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_is_longer_than_500_lines() -> None:
    """A reader finds a behaviour by the name of its file, and reads that file as a whole."""
    paths = [path for folder in (PACKAGE, TESTS) for path in sorted(folder.rglob("*.py"))]
    assert len(paths) > 1000
    lines = {str(path.relative_to(PACKAGE.parent)): path.read_text().count("\n") for path in paths}
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}
