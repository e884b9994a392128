"""The demo with four ranks, in virtual time: what is played, told, shown, and concluded."""

import io
import logging
import random
import re
from collections.abc import Iterator

import pytest
import structlog
from rich.console import Console

from recovery.core.model.ledger import Outcome, Phase
from recovery.sim.demo import objects
from recovery.sim.demo.run_demo import perform
from recovery.sim.demo.scene import CALM_SECONDS, Scene
from recovery.sim.demo.view import view_on
from recovery.sim.virtual_time import VirtualClock, run_in_virtual_time

RANKS, GPUS = 4, 32
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
        run_in_virtual_time(self._play())

    async def _play(self) -> None:
        clock = VirtualClock()
        self.scene = Scene(clock, random.Random(1), ranks=RANKS)
        self.verdict = await perform(self.scene, view_on(self.console, clock), clock)
        self.moment, self.ended_at, self.seconds = self.scene.moment(), clock.now(), clock.monotonic_seconds()

    @property
    def text(self) -> str:
        return self._stdout.getvalue()

    def lines_with(self, text: str) -> list[str]:
        return [line for line in self.text.splitlines() if text in line]


@pytest.fixture(scope="module", autouse=True)
def _errors_alone_are_logged() -> Iterator[None]:
    """As the command has it: a line of log between two frames would have the picture drawn once more."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def evening(_errors_alone_are_logged: None) -> Evening:
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
    sentences = [told.incident.message for told in evening.scene.told]

    assert all(sentence in evening.text for sentence in sentences)
    assert sentences[-1].endswith("held, because the budget of policy demo is exhausted (4 recoveries within 1h)")


def test_it_says_first_that_the_controller_managers_limit_is_raised(evening: Evening) -> None:
    assert evening.text.index("may send 1,000 requests a second; a stock one (20)") < evening.text.index("incident 1")


def test_it_takes_less_than_a_minute(evening: Evening) -> None:
    assert evening.seconds < 45


def test_the_account_has_a_line_for_each_incident(evening: Evening) -> None:
    account = evening.text[evening.text.index("\nIncidents") : evening.text.index("\nIdle GPU-seconds by phase")]
    rows = [line.split() for line in account.splitlines()]

    assert {row[0]: (row[1], row[2], row[3:6], row[-1]) for row in rows if row and row[0][0].isdigit()} == {
        "1": ("PodDeleted", "PodDeleted", ["1", "1", "4"], "Recovered"),
        "2": ("Unknown", "Exit1", ["1", "2", "4"], "Recovered"),
        "3a": ("Unknown", "Exit1", ["1", "1", "4"], "Recovered"),
        "3b": ("Unknown", "Exit1", ["1", "1", "4"], "Recovered"),
        "3c": ("Unknown", "Exit1", ["0", "1", "0"], "Held"),
    }


def test_the_bill_is_the_sum_of_all_phases_and_runs_on_while_the_group_is_held(evening: Evening) -> None:
    spans = [span for told in evening.scene.told for span in told.incident.phases]
    lasting = spans[-1]

    assert lasting.phase is Phase.HELD
    assert lasting.ended_at is None
    held_seconds = (evening.ended_at - lasting.started_at).total_seconds()
    assert held_seconds >= CALM_SECONDS
    assert evening.moment.idle_gpus == GPUS
    assert evening.moment.idle_gpu_seconds == pytest.approx(
        sum(span.idle_gpu_seconds for span in spans) + held_seconds * GPUS, abs=0.1
    )


def test_what_would_have_been_is_marked_as_computed(evening: Evening) -> None:
    (line,) = evening.lines_with("computed, not played")

    assert "10 min by PyTorch's default (pytorch/pytorch#110947)" in line
    assert "32 GPUs x 10 min = 5.3 idle GPU-hours for each incident" in line


def test_without_a_terminal_there_are_lines_with_times_and_nothing_else(evening: Evening) -> None:
    assert "\x1b" not in evening.text
    assert evening.lines_with("phase TearingDown")[0][:12].replace(":", "").replace(".", "").isdigit()
    assert len(evening.lines_with("phase TearingDown")) == 4
    assert max(len(line) for line in evening.text.splitlines() if line.startswith(" ")) <= 100


# What must not pass.


def test_a_controller_that_only_observes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    observing = objects.policy()
    observing["spec"]["mode"] = "Observe"
    monkeypatch.setattr(objects, "policy", lambda: observing)

    evening = Evening()

    assert evening.verdict.problems[0] == "after incident 1 the 4 ranks did not all train together within 20 s"
    assert "not all three incidents took place" in evening.verdict.problems
    assert len(evening.lines_with("not as it should be: ")) == len(evening.verdict.problems)


def test_restarts_beyond_the_budget_that_was_announced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    generous = objects.policy()
    generous["spec"]["budget"]["limit"] = 40
    monkeypatch.setattr(objects, "policy", lambda: generous)

    assert Evening().verdict.problems == (
        "incident 3: 4 incarnations were started, and the budget allowed 2",
        "incident 3: the ledger does not say Held",
    )


# The picture on a terminal.


def test_a_terminal_shows_every_rank_by_letter_and_colour() -> None:
    evening = Evening(terminal=True, environment=TERMINAL, width=80)

    assert evening.verdict.problems == ()
    rows = [line for line in evening.text.splitlines() if line[1:3] in {"1 ", "2 ", "3a", "3b", "3c"}]
    assert [row.split()[-1] for row in rows] == ["Recovered"] * 4 + ["Held"]
    for style, letter in (("32", "T"), ("33", "W"), ("1;31", "H"), ("36", "S"), ("2", "-")):
        assert f"\x1b[{style}m{letter} \x1b[0m" in evening.text, letter


def test_the_picture_is_drawn_at_most_eight_times_a_second() -> None:
    evening = Evening(terminal=True, environment=TERMINAL)

    # Besides, rich draws it again below each line and table that is told, and at its end.
    told = len(re.findall(r"\d\d:\d\d:\d\d\.\d{3}", evening.text)) + len(evening.scene.told) + 1
    assert evening.seconds * 7 < evening.text.count("rank   0  ") <= evening.seconds * 8 + told


def test_no_color_leaves_the_letters() -> None:
    evening = Evening(terminal=True, environment={**TERMINAL, "NO_COLOR": "1"})

    assert "T T T T" in evening.text.replace("\x1b[0m", "")
    assert not any(f"\x1b[{colour}m" in evening.text for colour in (31, 32, 33, 36, "1;31"))


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    evening = Evening(terminal=True, environment={"TERM": "dumb"})

    assert "rank   0  " not in evening.text
    assert len(evening.lines_with("TearingDown  idle GPUs")) == 4
