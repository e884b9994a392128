"""Each public class of the package has a name of its own, so that a name alone says which one is meant."""

import ast
from collections import defaultdict
from pathlib import Path

import recovery

PACKAGE = Path(recovery.__file__).parent


def test_no_two_public_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
