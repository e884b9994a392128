"""Random numbers by key: the same key gives the same throws, no matter what was thrown before.

One stream of random numbers would not work: removing one fault would change all faults after it, so a shrunk plan would
be a different trial.
"""

from hashlib import blake2b

_THROWS = 8
_LARGEST = float(1 << 64)


class Dice:
    """Up to eight throws for one key."""

    def __init__(self, seed: int, actor: str, number: int) -> None:
        digest = blake2b(f"{seed}/{actor}/{number}".encode(), digest_size=8 * _THROWS).digest()
        self._throws = [int.from_bytes(digest[8 * throw : 8 * throw + 8]) / _LARGEST for throw in range(_THROWS)]

    def throw(self) -> float:
        """The next throw, from 0 to less than 1. Raises IndexError after the eighth."""
        return self._throws.pop()

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.throw()
