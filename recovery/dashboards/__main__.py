"""`python -m recovery.dashboards [--check]`: exit code 0, or 1 with the names of the files that have drifted."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from recovery.dashboards.boards import dashboard_files
from recovery.dashboards.prometheus_files import rule_files

REPOSITORY = Path(__file__).resolve().parents[2]


def generated() -> dict[str, str]:
    """What every generated file says, by its path in the repository."""
    return {**rule_files(), **dashboard_files()}


def drifted(root: Path, files: Mapping[str, str]) -> list[str]:
    """Paths that do not say what they should, and files beside the generated rules that nothing generates."""
    wrong = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    strange = {path.relative_to(root).as_posix() for path in (root / "dashboards").rglob("*.*")} - files.keys()
    return sorted({*wrong, *strange})


def main(arguments: list[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(prog="python -m recovery.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name what has drifted")
    files = generated()
    if not parser.parse_args(arguments).check:
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    wrong = drifted(root, files)
    for path in wrong:
        print(f"{path} is not what recovery/dashboards says; run `make manifests`, or remove it", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
