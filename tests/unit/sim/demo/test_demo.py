"""The demo with four ranks, in virtual time: what is played, told, shown, and concluded."""

import io
import random
from collections.abc import Callable

import pytest
from rich.console import Console

from recovery.core.ledger import Outcome, Phase
from recovery.ports import RECOVERY_POLICIES, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.demo import objects
from recovery.sim.demo.objects import NAMESPACE
from recovery.sim.demo.scene import Scene
from recovery.sim.demo.show import perform
from recovery.sim.demo.verdict import Verdict
from recovery.sim.demo.view import view_on
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time

TERMINAL = {"TERM": "xterm"}


class Evening:
    """A whole demo, with what it wrote."""

    def __init__(self, *, terminal: bool = False, environment: dict[str, str] | None = None, width: int = 100) -> None:
        self._stdout = io.StringIO()
        self.console = Console(
            file=self._stdout,
            width=width,
            height=24,
            force_terminal=terminal,
            highlight=False,
            _environ=environment or {},
        )
        self.verdict, self.scene, self.seconds = run_in_virtual_time(self._play())

    async def _play(self) -> tuple[Verdict, Scene, float]:
        clock = VirtualClock()
        scene = Scene(clock, random.Random(1), ranks=4)
        verdict = await perform(scene, view_on(self.console, clock), clock)
        return verdict, scene, clock.monotonic_seconds()

    @property
    def text(self) -> str:
        return self._stdout.getvalue()

    def lines_with(self, text: str) -> list[str]:
        return [line for line in self.text.splitlines() if text in line]


@pytest.fixture(scope="module")
def evening() -> Evening:
    return Evening()


def test_it_goes_as_it_should(evening: Evening) -> None:
    assert evening.verdict.problems == ()
    assert len(evening.verdict.proofs) == 4


def test_each_incident_is_announced_before_it_happens(evening: Evening) -> None:
    announced = [evening.text.index(f"incident {number}:") for number in (1, 2, 3)]
    done = [evening.text.index(words) for words in ("was deleted", "rank 0, node node-0) failed", "3a: rank 3 exits")]

    assert announced == sorted(announced)
    assert all(before < after for before, after in zip(announced, done, strict=True))


def test_the_controller_closes_four_incidents_and_holds_the_fifth(evening: Evening) -> None:
    outcomes = [(told.label, told.closing.outcome if told.closing else None) for told in evening.scene.told]

    assert outcomes == [
        ("1", Outcome.RECOVERED),
        ("2", Outcome.RECOVERED),
        ("3a", Outcome.RECOVERED),
        ("3b", Outcome.RECOVERED),
        ("3c", None),
    ]
    assert [len(told.incident.suspects) for told in evening.scene.told] == [1, 2, 1, 1, 1]


def test_a_recovery_is_claimed_when_all_ranks_have_joined(evening: Evening) -> None:
    closings = [told.closing for told in evening.scene.told if told.closing]

    assert all(closing.verified and closing.source == "joined-probe" for closing in closings)


def test_only_the_crash_loop_waits_before_its_second_restart(evening: Evening) -> None:
    waited = [
        told.label for told in evening.scene.told if any(span.phase is Phase.BACKOFF for span in told.incident.phases)
    ]

    assert waited == ["3b"]


def test_it_says_the_controllers_own_sentences(evening: Evening) -> None:
    sentences = [told.incident.reason for told in evening.scene.told]

    assert all(sentence in evening.text for sentence in sentences)
    assert sentences[-1].endswith("held, because the budget of policy demo is exhausted (4 recoveries within 1h)")


def test_it_says_first_that_the_controller_managers_limit_is_raised(evening: Evening) -> None:
    assert evening.text.index("may send 1,000 requests a second; a stock one (20)") < evening.text.index("incident 1")


def test_it_takes_less_than_a_minute(evening: Evening) -> None:
    assert evening.seconds < 45


def test_the_account_has_a_line_for_each_incident(evening: Evening) -> None:
    account = evening.text[evening.text.index("\nIncidents") : evening.text.index("\nIdle GPU-seconds by phase")]
    rows = {line.split()[0]: line.split() for line in account.splitlines() if line[:1].isdigit()}
    rows |= {line.split()[0]: line.split() for line in account.splitlines() if line[1:2].isdigit()}

    assert {label: (row[1], row[2], row[3:6], row[-1]) for label, row in rows.items()} == {
        "1": ("PodDeleted", "PodDeleted", ["1", "1", "4"], "Recovered"),
        "2": ("PodFailed", "Exit1", ["1", "2", "4"], "Recovered"),
        "3a": ("PodFailed", "Exit1", ["1", "1", "4"], "Recovered"),
        "3b": ("PodFailed", "Exit1", ["1", "1", "4"], "Recovered"),
        "3c": ("PodFailed", "Exit1", ["0", "1", "0"], "Held"),
    }


def test_idle_gpu_seconds_by_phase_sum_up(evening: Evening) -> None:
    booked = evening.scene.sight()
    closed = sum(
        span.idle_gpu_seconds for told in evening.scene.told for span in told.incident.phases if span.ended_at is not None
    )
    held = evening.scene.told[-1].incident.phases[-1]

    assert held.phase is Phase.HELD
    assert booked.idle_gpus == 32
    assert booked.idle_gpu_seconds > closed
    assert f"{closed:,.0f}"


def test_what_would_have_been_is_marked_as_computed(evening: Evening) -> None:
    assert evening.lines_with("computed, not played") == [
        line for line in evening.lines_with("32 GPUs x 10 min = 5.3 idle GPU-hours") if "pytorch/pytorch#110947" in line
    ]
    assert len(evening.lines_with("computed, not played")) == 1


def test_without_a_terminal_there_are_lines_with_times_and_nothing_else(evening: Evening) -> None:
    assert "\x1b" not in evening.text
    assert evening.lines_with("phase TearingDown")[0][:12].replace(":", "").replace(".", "").isdigit()
    assert len(evening.lines_with("phase TearingDown")) == 4
    assert max(len(line) for line in evening.text.splitlines() if line.startswith(" ")) <= 100
