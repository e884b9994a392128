"""The text of a scrape, made once for all who ask within a second, and in slices between which the event loop works.

Several Prometheus replicas, agents and people scrape one controller. Without this, what each of them asks for is work
of the leader's event loop: eight scrapes of 500 jobs at a time kept it from everything else for seconds.
"""

import asyncio
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Protocol

import msgspec
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from recovery.ports import Clock
from recovery.telemetry.pieces import Pieces

FRESH_SECONDS = 1.0
"""For so long after it was made, an exposition answers every request."""
SLICE_SECONDS = 0.005
"""After so much work the event loop gets a turn, for as long as the work took: a scrape has half of it at most."""
_PART_CHARACTERS = 64 * 1024
"""Of a part of the response, which is sent at once."""
_LINES_AT_ONCE = 100
"""Between two checks of the time: half a millisecond."""


class TextFormat(StrEnum):
    """The formats that are served, by their content types. Names and labels are ASCII, so no escaping is negotiated."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def chosen_format(accept: str) -> TextFormat:
    """What a client with this Accept header gets: OpenMetrics if it names it, as in prometheus_client."""
    accepted = (each.partition(";")[0].strip() for each in accept.split(","))
    return TextFormat.OPEN_METRICS if "application/openmetrics-text" in accepted else TextFormat.PROMETHEUS


class Exposed(Protocol):
    """What is exposed."""

    terms: int
    """An exposition of another term is out of date."""

    def pieces(self) -> Pieces:
        """All families, of one moment."""


class Body(msgspec.Struct, frozen=True):
    """An exposition, in parts that are sent one after the other."""

    parts: tuple[bytes, ...]
    made_at_seconds: float
    """By our monotonic clock."""
    term: int

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))


class Exposition:
    """Makes expositions, one at a time. All who ask for the same one get the same one."""

    def __init__(self, exposed: Exposed, clock: Clock) -> None:
        self._exposed = exposed
        self._clock = clock
        self._kept: dict[TextFormat, Body] = {}
        self._making: dict[tuple[TextFormat, int], asyncio.Task[Body]] = {}
        """By format and term."""
        self._one_at_a_time = asyncio.Lock()

    async def body(self, text_format: TextFormat) -> Body:
        """One that was made within the last second, or that is in the making; else a new one."""
        term, kept = self._exposed.terms, self._kept.get(text_format)
        if kept is not None and kept.term == term and self._age_seconds(kept) < FRESH_SECONDS:
            return kept
        making = self._making.get((text_format, term))
        if making is None:
            making = asyncio.create_task(self._make(text_format, term))
            self._making[text_format, term] = making
            making.add_done_callback(lambda _: self._making.pop((text_format, term), None))
        return await asyncio.shield(making)  # a client that goes away must not take it from the others

    def _age_seconds(self, body: Body) -> float:
        return self._clock.monotonic_seconds() - body.made_at_seconds

    async def end(self) -> None:
        """Give up what is in the making."""
        making = tuple(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    async def _make(self, text_format: TextFormat, term: int) -> Body:
        async with self._one_at_a_time:
            parts: list[bytes] = []
            part: list[str] = []
            began = self._clock.monotonic_seconds()
            for text in _texts(self._exposed.pieces(), text_format):
                if text:
                    part.append(text)
                if sum(map(len, part)) >= _PART_CHARACTERS:
                    parts.append("".join(part).encode())
                    part.clear()
                spent = self._clock.monotonic_seconds() - began
                if spent >= SLICE_SECONDS:
                    await self._clock.sleep(spent)
                    began = self._clock.monotonic_seconds()
            parts.append("".join(part).encode())
            made = Body(tuple(parts), self._clock.monotonic_seconds(), term)
        self._kept[text_format] = made
        return made


def _texts(pieces: Pieces, text_format: TextFormat) -> Iterator[str]:
    """Some lines each; empty where a piece has none yet."""
    labels = _SampleLines()
    for family in pieces:
        if family is None:
            yield ""
            continue
        yield _head(family, text_format)
        for at in range(0, len(family.samples), _LINES_AT_ONCE):
            yield "".join(map(labels.line, family.samples[at : at + _LINES_AT_ONCE]))
    if text_format is TextFormat.OPEN_METRICS:
        yield "# EOF\n"


def _head(family: Metric, text_format: TextFormat) -> str:
    """Prometheus's older format names a counter like its sample, and leaves quotes in the help as they are."""
    name, says = family.name, family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if text_format is TextFormat.OPEN_METRICS:
        says = says.replace('"', r"\"")
    elif family.type == "counter":
        name += "_total"
    return f"# HELP {name} {says}\n# TYPE {name} {family.type}\n"


class _SampleLines:
    """Renders samples. It remembers the values of labels that it has escaped: those of a job come 65 times."""

    def __init__(self) -> None:
        self._quoted: dict[str, str] = {}

    def line(self, sample: Sample) -> str:
        value: str = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
        if not sample.labels:
            return f"{sample.name} {value}\n"
        return f"{sample.name}{{{','.join(self._pairs(sorted(sample.labels.items())))}}} {value}\n"

    def _pairs(self, labels: Iterable[tuple[str, str]]) -> Iterator[str]:
        for name, value in labels:
            quoted = self._quoted.get(value)
            if quoted is None:
                quoted = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
                self._quoted[value] = quoted
            yield f'{name}="{quoted}"'
