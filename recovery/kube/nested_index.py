"""Indexes of indexes: what belongs to one group, namespace or node, by name."""

from typing import TypeVar

K = TypeVar("K")
N = TypeVar("N")
V = TypeVar("V")


def remove(index: dict[K, dict[N, V]], key: K, name: N) -> V | None:
    """Remove and return an entry of an inner index. An inner index that becomes empty is removed too."""
    inner = index.get(key)
    if inner is None:
        return None
    found = inner.pop(name, None)
    if not inner:
        del index[key]
    return found
