"""The text of a scrape. It is made once for all requests within a second, and in slices that let other tasks run.

Several Prometheus replicas, agents and people scrape one controller. Without this, each of their requests is work for
the leader's event loop: eight scrapes of 500 jobs at a time blocked it for seconds.
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
"""How long an exposition answers every request after it was made."""
SLICE_SECONDS = 0.005
"""After this much work a scrape sleeps for as long as the work took, so it uses at most half of the event loop."""
_PART_CHARACTERS = 64 * 1024
"""Of one part of the response. A part is sent at once."""
_LINES_AT_ONCE = 100
"""Lines between two checks of the time: half a millisecond."""


class TextFormat(StrEnum):
    """The formats that are served, by their content types. Names and labels are ASCII, so no escaping is negotiated."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def chosen_format(accept: str) -> TextFormat:
    """The format for this Accept header: OpenMetrics if the header names it, as in prometheus_client."""
    accepted = (each.partition(";")[0].strip() for each in accept.split(","))
    return TextFormat.OPEN_METRICS if "application/openmetrics-text" in accepted else TextFormat.PROMETHEUS


class Exposed(Protocol):
    """What is exposed."""

    terms: int
    """An exposition of another term is out of date."""

    def pieces(self) -> Pieces:
        """All families, as of one moment."""


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
    """Makes expositions, one at a time. Concurrent requests for the same one share it."""

    def __init__(self, exposed: Exposed, clock: Clock) -> None:
        self._exposed = exposed
        self._clock = clock
        self._kept: dict[TextFormat, Body] = {}
        self._making: dict[tuple[TextFormat, int], asyncio.Task[Body]] = {}
        """By format and term."""
        self._one_at_a_time = asyncio.Lock()

    async def body(self, text_format: TextFormat) -> Body:
        """An exposition that was made within the last second or is being made, or else a new one."""
        term, kept = self._exposed.terms, self._kept.get(text_format)
        if kept is not None and kept.term == term and self._age_seconds(kept) < FRESH_SECONDS:
            return kept
        making = self._making.get((text_format, term))
        if making is None:
            making = asyncio.create_task(self._make(text_format, term))
            self._making[text_format, term] = making
            making.add_done_callback(lambda _: self._making.pop((text_format, term), None))
        return await asyncio.shield(making)  # a client that disconnects must not cancel it for the others

    def _age_seconds(self, body: Body) -> float:
        return self._clock.monotonic_seconds() - body.made_at_seconds

    async def end(self) -> None:
        """Cancel the expositions in progress."""
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
    """The text, some lines at a time. Empty: the family is not complete yet."""
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
    """Prometheus's older format names a counter like its sample, and does not escape quotes in the help."""
    name, says = family.name, family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if text_format is TextFormat.OPEN_METRICS:
        says = says.replace('"', r"\"")
    elif family.type == "counter":
        name += "_total"
    return f"# HELP {name} {says}\n# TYPE {name} {family.type}\n"


class _SampleLines:
    """Renders samples. It remembers escaped label values, because those of a job occur 65 times."""

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
