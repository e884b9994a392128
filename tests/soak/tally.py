"""What a soak has found so far, and its summary."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from recovery.sim.trials.parallel_trials import NoResult
from tests.soak.attempt import Attempt, Campaign

NUMBERS_SHOWN = 20
"""Of one invariant."""


class Tally:
    def __init__(self, campaign: Campaign, numbers: Sequence[int]) -> None:
        self.campaign = campaign
        self.numbers = numbers
        self.ran = 0
        self.cpu_seconds = 0.0
        self.figures: Counter[str] = Counter()
        self.by_invariant: defaultdict[str, list[int]] = defaultdict(list)
        self.hung: list[int] = []
        self.failed: list[int] = []
        """Numbers whose process died, or in which the simulation itself failed."""

    def add(self, number: int, result: Attempt | NoResult) -> str:
        """Count it. What a reader should know at once: the first break of an invariant, and each number without a
        result. Empty: nothing."""
        self.ran += 1
        name = f"{self.campaign.noun} {number}"
        if isinstance(result, NoResult):
            (self.hung if result.hung else self.failed).append(number)
            return f"{name}: {result.why}"
        self.cpu_seconds += result.cpu_seconds
        self.figures.update(result.figures)
        news = [each for each in result.broken if each.invariant not in self.by_invariant]
        for each in result.broken:
            self.by_invariant[each.invariant].append(number)
        return "\n".join(f"{name} breaks {': '.join(filter(None, (each.invariant, each.sentence)))}" for each in news)

    @property
    def broken(self) -> int:
        """How many numbers broke an invariant."""
        return len({number for numbers in self.by_invariant.values() for number in numbers})

    @property
    def all_held(self) -> bool:
        return not (self.by_invariant or self.hung or self.failed)

    def progress(self) -> str:
        """One line."""
        first, last = self.numbers[0], self.numbers[-1]
        parts = [f"{self.ran} of the {self.campaign.noun}s {first} to {last} ran", f"{self.broken} broke"]
        parts += [f"{len(self.hung)} hung"] if self.hung else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return f"{', '.join(parts)}; CPU-seconds: {self.cpu_seconds:.1f}"

    def summary(self) -> Iterator[str]:
        """Lines, with everything of `progress` at the end."""
        for name, value in sorted(self.figures.items()):
            yield f"  {name}: {value:.0f}"
        with_result = self.ran - len(self.hung) - len(self.failed)
        if with_result:
            yield f"  CPU-seconds each: {self.cpu_seconds / with_result:.3f}"
        for invariant, numbers in sorted(self.by_invariant.items(), key=lambda item: (-len(item[1]), item[0])):
            yield f"  broken {'once' if len(numbers) == 1 else f'{len(numbers)} times'}: {invariant}"
            yield f"    by {self._named(numbers)}"
        if self.hung:
            yield f"  hung: {self._named(self.hung)}"
        if self.failed:
            yield f"  failed: {self._named(self.failed)}"
        yield self.progress()

    def _named(self, numbers: Sequence[int]) -> str:
        shown = sorted(numbers)[:NUMBERS_SHOWN]
        more = f" and {len(numbers) - len(shown)} more" if len(numbers) > len(shown) else ""
        return f"{self.campaign.noun} {', '.join(map(str, shown))}{more}"
