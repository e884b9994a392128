"""Indexes of indexes: what belongs to one group, namespace or node, by name."""

from typing import TypeVar

K = TypeVar("K")
N = TypeVar("N")
V = TypeVar("V")


def remove(index: dict[K, dict[N, V]], key: K, name: N) -> V | None:
    """Take one out of an index of indexes, leaving no empty ones behind."""
    inner = index.get(key)
    if inner is None:
        return None
    found = inner.pop(name, None)
    if not inner:
        del index[key]
    return found
