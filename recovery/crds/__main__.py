"""`python -m recovery.crds [--check]`: exit code 0, or 1 with the names of the files that have drifted."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from recovery.crds.definitions import definitions
from recovery.crds.diagrams import diagrams
from recovery.crds.field_reference import reference
from recovery.crds.manifests import kustomization, manifest

REPOSITORY = Path(__file__).resolve().parents[2]
CRDS = "manifests/crd"


def generated() -> dict[str, str]:
    """What every generated file says, by its path in the repository."""
    all_of_them = definitions()
    files = {f"{CRDS}/{each.resource.plural}.yaml": manifest(each) for each in all_of_them}
    return files | {
        f"{CRDS}/kustomization.yaml": kustomization(all_of_them),
        "docs/reference.md": reference(all_of_them),
        **diagrams(),
    }


def drifted(root: Path, files: Mapping[str, str]) -> list[str]:
    """Paths that do not say what they should, and YAML files of the CRDs' folder that nobody generates."""
    wrong = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    strange = {path.relative_to(root).as_posix() for path in (root / CRDS).glob("*.yaml")} - files.keys()
    return sorted({*wrong, *strange})


def main(arguments: list[str] | None = None, root: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(prog="python -m recovery.crds", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name what has drifted")
    files = generated()
    if not parser.parse_args(arguments).check:
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    wrong = drifted(root, files)
    for path in wrong:
        print(f"{path} is not what recovery/core says; run `make manifests`, or remove it", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
