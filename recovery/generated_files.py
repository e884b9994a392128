"""Writes the files of this repository that are generated from the code, and names those that have drifted."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).resolve().parents[1]


class GeneratedFiles(msgspec.Struct, frozen=True):
    """What one generator writes."""

    program: str
    """How it is run: `python -m recovery.crds`."""
    source: str
    """What the files are generated from, for the message about a file that has drifted."""
    texts: Mapping[str, str]
    """The whole text of each file, by its path in the repository."""
    owned: Sequence[str]
    """Globs that match only generated files. A match that is not generated counts as drifted."""

    def write(self, root: Path) -> None:
        """Write all of them below `root`."""
        for path, text in self.texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)

    def drifted(self, root: Path) -> list[str]:
        """Files whose text is not the generated one, and files that match `owned` but are not generated."""
        wrong = [
            path for path, text in self.texts.items() if not (root / path).exists() or (root / path).read_text() != text
        ]
        found = {path.relative_to(root).as_posix() for glob in self.owned for path in root.glob(glob)}
        return sorted({*wrong, *(found - self.texts.keys())})

    def main(self, arguments: Sequence[str], root: Path) -> int:
        """Write the files, or with `--check` only compare them. Returns the exit code, 1 if a file has drifted."""
        parser = argparse.ArgumentParser(prog=self.program)
        parser.add_argument("--check", action="store_true", help="write nothing; name the files that have drifted")
        if not parser.parse_args(arguments).check:
            self.write(root)
        wrong = self.drifted(root)
        for path in wrong:
            print(f"{path} is not what {self.source} says; run `make manifests`, or remove it", file=sys.stderr)
        return 1 if wrong else 0
