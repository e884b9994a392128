"""Reads manifests as kustomize collects them, without its patches. The cluster tests let kustomize render them."""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit import fast_yaml

Object = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[3]
MANIFESTS = REPOSITORY / "manifests"


@cache
def _documents(file: Path) -> tuple[Object, ...]:
    """Each file is parsed once: the CRDs alone take half a second, and each overlay names them."""
    return tuple(fast_yaml.load_all(file.read_text()))


def kustomization(folder: Path) -> Object:
    [found] = _documents(folder / "kustomization.yaml")
    return deepcopy(found)


def files(folder: Path) -> Iterator[Path]:
    """Every file that the folder's kustomization names, including those of the folders that it names."""
    named = kustomization(folder)
    for name in (*named["resources"], *named.get("components", ())):
        path = (folder / name).resolve()
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def objects(folder: str, kind: str | None = None) -> list[Object]:
    """What `kubectl apply -k manifests/FOLDER` applies."""
    found = [document for file in files(MANIFESTS / folder) for document in _documents(file)]
    return [deepcopy(document) for document in found if kind in {None, document["kind"]}]


def only(folder: str, kind: str, name: str | None = None) -> Object:
    """The only object of that kind, or of that kind and name."""
    [found] = [each for each in objects(folder, kind) if name in {None, each["metadata"]["name"]}]
    return found


def rights(role: Object) -> set[tuple[str, str, str]]:
    """The role's rights as (API group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
