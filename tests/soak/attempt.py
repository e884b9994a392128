"""What a soak runs: attempts, each drawn by a number that shows it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Broken:
    """An invariant that did not hold."""

    invariant: str
    """Equal for equal faults: the summary counts by it, and a shorter walk must break the same one."""
    sentence: str = ""
    """What was found instead, if there is more to say."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of one number."""

    cpu_seconds: float
    broken: tuple[Broken, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    """The summary adds them up."""


@dataclass(frozen=True)
class Campaign:
    """What the numbers of a soak stand for. The functions are of a module, so that another process can run them."""

    noun: str
    attempt: Callable[[int], Attempt]
    describe: Callable[[int], str]
    """What the number draws, without running it."""
    explain: Callable[[int], str]
    """What breaks, as short as possible. It runs many attempts."""
    command: str
    """Shows it again, with `{number}`."""
    attempts: int
    """How many, if no one says otherwise."""
    limit_seconds: float
    """How long an attempt may take. It is generous: other work may slow the machine down."""
