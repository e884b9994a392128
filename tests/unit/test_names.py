"""Each public class of the package has a name of its own, so that a name alone says which one is meant."""

import ast
from collections import defaultdict
from pathlib import Path

import recovery

PACKAGE = Path(recovery.__file__).parent
LINES_MAX = 500


def test_no_two_public_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_test_file_is_longer_than_500_lines() -> None:
    """A reader finds a behaviour by the name of its file, and reads that file as a whole."""
    lines = {path: path.read_text().count("\n") for path in (PACKAGE.parent / "tests").rglob("*.py")}
    assert len(lines) > 500
    lines.pop(PACKAGE.parent / "tests/unit/core/decision/test_properties.py", None)
    assert {str(path.relative_to(PACKAGE.parent)): count for path, count in lines.items() if count > LINES_MAX} == {}
