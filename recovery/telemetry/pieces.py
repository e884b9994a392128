"""Families of the scrape that are made in steps.

A scrape of 500 jobs costs a quarter of a second of CPU. In one step it would delay the trigger of a recovery by as
much. So the collectors whose work grows with the number of jobs pause between steps, to let other tasks run. They read
all facts in the first step: what changes during the later steps is not in these families.
"""

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from prometheus_client.core import Metric

Pieces: TypeAlias = Iterator[Metric | None]
"""Families, each when it is complete. None: other tasks may run now."""


class MadeInPieces(Protocol):
    """A collector of many series."""

    def pieces(self) -> Pieces:
        """Read the facts of this moment, and return the steps that make the families from them."""


def complete(pieces: Pieces) -> Iterator[Metric]:
    """The families, made in one step."""
    return (family for family in pieces if family is not None)
