"""Families of the scrape that are made piece by piece.

A scrape of 500 jobs costs a quarter of a second of CPU. Made in one go, it would keep the event loop from the trigger
of a recovery for as long. So the collectors whose work grows with the jobs say when others may have a turn. They take
all facts at the first step, in one go: what changes during the later steps is not in these families.
"""

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from prometheus_client.core import Metric

Pieces: TypeAlias = Iterator[Metric | None]
"""Families, each when it is complete. None: others may have a turn now."""


class MadeInPieces(Protocol):
    """A collector of many series."""

    def pieces(self) -> Pieces:
        """Takes the facts of this moment, and returns what makes the families of them."""


def complete(pieces: Pieces) -> Iterator[Metric]:
    """The families, made in one go."""
    return (family for family in pieces if family is not None)
