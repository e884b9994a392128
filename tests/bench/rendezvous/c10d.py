"""torchrun's own c10d rendezvous, for comparison: as many agents as there are threads, in a few processes."""

import os
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.agent.launches import free_master_port
from tests.bench.child import Child, ChildError, Event

AGENTS = 128
PROCESSES = 4
REFORMS = 2
PATIENCE_SECONDS = 300.0
_SCRIPT = Path(__file__).with_name("c10d_agents.py")


@dataclass(frozen=True)
class Figures:
    """Seconds depend on the machine. None: not within the patience."""

    form_seconds: float
    reform_seconds: float | None
    """From the restart of one agent until all have joined again: the median of some."""
    reform_cpu_seconds: float | None
    """What all agents used of it."""


def python_with_torch() -> Path | None:
    """None: torch is not installed here."""
    python = Path(os.environ.get("EXAMPLES_VENV", ".venv-examples")) / "bin" / "python"
    return python.absolute() if (python.parent.parent / ".installed").exists() else None


async def measure(python: Path, agents: int = AGENTS, processes: int = PROCESSES, reforms: int = REFORMS) -> Figures:
    """Raises ChildError."""
    endpoint = f"127.0.0.1:{free_master_port()}"
    each = agents // processes
    assert each * processes == agents, "all processes have as many agents"
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    async with AsyncExitStack() as stack:
        children = []
        for number in range(processes):
            about = (str(number * each), str(each), str(agents), endpoint)
            running = Child.running(str(python), str(_SCRIPT), *about, environ=environ)
            children.append(await stack.enter_async_context(running))
        for child in children:
            await child.said(lambda event: event.get("event") == "imported", PATIENCE_SECONDS)
        return await _Run(agents, children).figures(reforms)


class _Run:
    def __init__(self, agents: int, children: Sequence[Child]) -> None:
        self._agents = agents
        self._children = children

    async def figures(self, reforms: int) -> Figures:
        for child in self._children:
            child.tell()
        begun = await self._children[0].said(lambda event: event.get("event") == "begins", PATIENCE_SECONDS)
        form_seconds = await self._all_joined(1) - begun["at"]
        taken = []
        for number in range(1, reforms + 1):
            try:
                taken.append(await self._reform(number))
            except ChildError:
                return Figures(form_seconds, None, None)
        return Figures(
            form_seconds,
            reform_seconds=statistics.median(seconds for seconds, _ in taken),
            reform_cpu_seconds=statistics.median(cpu_seconds for _, cpu_seconds in taken),
        )

    async def _reform(self, number: int) -> tuple[float, float]:
        """The last agent restarts. Seconds, and what all used of the processors meanwhile."""
        used = sum(child.cpu_seconds() for child in self._children)
        last = self._children[-1]
        last.tell(agent=self._agents - 1)

        def failed(events: Sequence[Event]) -> Event | None:
            found = [event for event in events if event.get("event") == "failed"]
            return found[number - 1] if len(found) >= number else None

        event = await last.all_said(failed, PATIENCE_SECONDS)
        assert isinstance(event, dict)
        seconds = await self._all_joined(number + 1) - float(event["at"])
        return seconds, sum(child.cpu_seconds() for child in self._children) - used

    async def _all_joined(self, times: int) -> float:
        """When the last agent had joined for the so-manieth time."""
        share = self._agents // len(self._children)

        def joined(events: Sequence[Event]) -> list[float]:
            found: list[float] = [event["at"] for event in events if event.get("joined") == times]
            return found if len(found) == share else []

        moments: list[float] = []
        for child in self._children:
            found = await child.all_said(joined, PATIENCE_SECONDS)
            assert isinstance(found, list)
            moments += found
        return max(moments)
