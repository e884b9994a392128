"""The demo with four ranks, in virtual time: what is played, reported, shown, and concluded."""

import io
import itertools
import logging
import random
import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import structlog
from rich.console import Console

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.ledger import Outcome, Phase
from recovery.ports import NODES
from recovery.sim.demo import objects, run_demo
from recovery.sim.demo.alternatives import Downtimes, downtimes
from recovery.sim.demo.objects import Restarter
from recovery.sim.demo.pace import Pace, run_at_pace
from recovery.sim.demo.run_demo import conclude, perform, report_bill
from recovery.sim.demo.scene import CALM_SECONDS, WAIT_SECONDS, Scene
from recovery.sim.demo.stage import NODE_GRACE_SECONDS, StageFailure
from recovery.sim.demo.view import View, view_on
from recovery.sim.virtual_time import VirtualClock

RANKS, GPUS = 4, 32
TERMINAL = {"TERM": "xterm"}


def at_once(virtual_seconds: float) -> None:
    """The pace without a person who watches."""


class Evening:
    """A whole demo, with its output."""

    def __init__(
        self,
        *,
        terminal: bool = False,
        environment: dict[str, str] | None = None,
        width: int = 100,
        found: Downtimes | None = None,
        pace: Callable[[float], None] = at_once,
    ) -> None:
        self._stdout = io.StringIO()
        self.console = Console(
            file=self._stdout,
            width=width,
            height=24,
            force_terminal=terminal,
            highlight=False,
            _environ=environment or {},
        )
        run_at_pace(self._play(), pace)
        report_bill(self.scene, self.view)
        self.verdict = conclude(self.scene, self.view, found)

    async def _play(self) -> None:
        clock = VirtualClock()
        self.scene = Scene(clock, random.Random(1), ranks=RANKS)
        self.view = view_on(self.console, clock)
        await perform(self.scene, self.view, clock)
        self.moment, self.ended_at, self.seconds = self.scene.moment(), clock.now(), clock.monotonic_seconds()

    @property
    def text(self) -> str:
        return self._stdout.getvalue()

    @property
    def words(self) -> str:
        """The text without its line breaks."""
        return " ".join(self.text.split())

    def lines_with(self, text: str) -> list[str]:
        return [line for line in self.text.splitlines() if text in line]

    def rows(self) -> dict[str, list[str]]:
        """The rows of the bill, by the incident's label."""
        bill = self.text[self.text.index("What each incident cost") :]
        cells = [line.split() for line in bill.splitlines()[:9]]
        return {row[0]: row[1:] for row in cells if row and row[0][0].isdigit()}


@pytest.fixture(scope="module", autouse=True)
def _errors_alone_are_logged() -> Iterator[None]:
    """As the command sets it up: a log line between two frames would have the picture drawn once more."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def found(_errors_alone_are_logged: None) -> Downtimes:
    return downtimes(ranks=RANKS)


@pytest.fixture(scope="module")
def evening(found: Downtimes) -> Evening:
    return Evening(found=found)


def test_it_goes_as_it_should(evening: Evening) -> None:
    assert evening.verdict.problems == ()
    assert len(evening.verdict.proofs) == 5


def test_each_incident_is_announced_before_it_happens(evening: Evening) -> None:
    announced = [evening.words.index(f"incident {number}:") for number in (1, 2, 3, 4)]
    done = [evening.words.index(words) for words in ("was deleted", " 2 ", "is lost: node", " 4a ")]

    assert announced == sorted(announced)
    assert all(before < after for before, after in zip(announced, done, strict=True))


def test_the_controller_closes_five_incidents_and_holds_the_sixth(evening: Evening) -> None:
    outcomes = [
        (reported.label, reported.closing.outcome if reported.closing else None) for reported in evening.scene.reported
    ]

    assert outcomes == [
        ("1", Outcome.RECOVERED),
        ("2", Outcome.RECOVERED),
        ("3", Outcome.RECOVERED),
        ("4a", Outcome.RECOVERED),
        ("4b", Outcome.RECOVERED),
        ("4c", None),
    ]
    assert [len(reported.incident.suspects) for reported in evening.scene.reported] == [1, 2, 1, 1, 1, 1]


def test_a_silent_node_keeps_its_pod_until_the_controller_takes_it_for_dead(evening: Evening) -> None:
    lost = evening.scene.reported[2].incident
    struck = evening.scene.course.failures[2]

    assert lost.disruption_class == DisruptionClass.NODE_LOST
    assert lost.started_at >= struck + timedelta(seconds=NODE_GRACE_SECONDS)
    assert evening.scene.cluster.server.objects(NODES)
    node = evening.scene.cluster.server.get(NODES, lost.suspects[0].node)
    assert {"Ready": "Unknown"}.items() <= {
        each["type"]: each["status"] for each in node["status"]["conditions"]
    }.items()


def test_a_recovery_is_claimed_when_all_ranks_have_joined(evening: Evening) -> None:
    closings = [reported.closing for reported in evening.scene.reported if reported.closing]

    assert all(closing.verified and closing.source == "joined-probe" for closing in closings)


def test_only_the_crash_loop_waits_before_its_second_restart(evening: Evening) -> None:
    waited = [
        reported.label
        for reported in evening.scene.reported
        if any(span.phase is Phase.BACKOFF for span in reported.incident.phases)
    ]

    assert waited == ["4b"]


def test_it_says_the_controllers_own_sentences_of_what_has_a_class_and_of_the_end(evening: Evening) -> None:
    sentences = {reported.label: reported.incident.message for reported in evening.scene.reported}

    assert {label for label, sentence in sentences.items() if sentence in evening.words} == {"1", "3", "4c"}
    assert sentences["4c"].endswith("held, because the budget of policy demo is exhausted (limit 5 within 1h)")


def test_it_says_first_what_is_faster_than_in_a_stock_cluster(evening: Evening) -> None:
    first = evening.words[: evening.words.index("incident 1")]

    assert "1,000 requests a second, not 20" in first
    assert "after 5 s, not 50" in first


def test_a_machine_that_stands_still_again_and_again_changes_no_second_and_no_word(
    evening: Evening, found: Downtimes
) -> None:
    """Each pause is longer than the demo waits for anything."""
    real_seconds = itertools.count(step=WAIT_SECONDS * 2)
    waits: list[float] = []
    standing = Evening(found=found, pace=Pace(lambda: next(real_seconds), wait=waits.append))

    assert next(real_seconds) > 100 * WAIT_SECONDS
    assert not waits
    assert standing.text == evening.text


def test_it_takes_about_a_minute(evening: Evening) -> None:
    assert evening.seconds < 60


def test_it_is_short_enough_to_be_read(evening: Evening) -> None:
    lines = evening.text.splitlines()

    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


def test_the_bill_has_a_line_for_each_incident(evening: Evening) -> None:
    rows = evening.rows()

    assert {label: (row[0], row[-1]) for label, row in rows.items()} == {
        "1": ("PodDeleted", "Recovered"),
        "2": ("Unknown", "Recovered"),
        "3": ("NodeLost", "Recovered"),
        "4a": ("Unknown", "Recovered"),
        "4b": ("Unknown", "Recovered"),
        "4c": ("Unknown", "Held"),
    }
    # Members lost, and pods created.
    assert {label: row[-8:-6] for label, row in rows.items()} == {
        "1": ["1", "4"],
        "2": ["2", "4"],
        "3": ["1", "4"],
        "4a": ["1", "4"],
        "4b": ["1", "4"],
        "4c": ["1", "0"],
    }


def test_a_class_and_a_cause_that_are_the_same_word_are_said_once(evening: Evening) -> None:
    rows = evening.rows()

    assert "(Exit1)" in rows["2"]
    assert not any("(" in cell for cell in rows["1"] + rows["3"])
    assert "PodDeleted (PodDeleted)" not in evening.words
    assert evening.words.count("In brackets: the cause") == 1


def test_the_bill_is_what_the_trace_saw_and_what_is_dated_early_and_seen_late(evening: Evening) -> None:
    for reported, row in zip(evening.scene.reported[:-1], evening.rows().values(), strict=False):
        trace, early, late, billed = (float(cell) for cell in row[-6:-2])
        assert reported.closing is not None
        assert billed == pytest.approx(
            (reported.closing.ended_at - reported.incident.started_at).total_seconds(), abs=0.01
        )
        assert trace + early + late == pytest.approx(billed, abs=0.02)
        assert 0 < late < 2.1
        assert (early < 0) == (reported.label == "3")


def test_the_bill_is_the_sum_of_all_phases_and_runs_on_while_the_group_is_held(evening: Evening) -> None:
    spans = [span for reported in evening.scene.reported for span in reported.incident.phases]
    lasting = spans[-1]

    assert lasting.phase is Phase.HELD
    assert lasting.ended_at is None
    held_seconds = (evening.ended_at - lasting.started_at).total_seconds()
    assert held_seconds >= CALM_SECONDS
    assert evening.moment.idle_gpus == GPUS
    assert evening.moment.idle_gpu_seconds == pytest.approx(
        sum(span.idle_gpu_seconds for span in spans) + held_seconds * GPUS, abs=0.1
    )


def test_the_phases_of_each_recovery_are_told(evening: Evening) -> None:
    phases = [line for line in evening.text.splitlines() if " s: Detected " in line]

    assert [line.split()[0] for line in phases] == ["1", "2", "3", "4a", "4b"]


def test_without_a_terminal_there_are_lines_and_nothing_else(evening: Evening) -> None:
    assert "\x1b" not in evening.text
    assert not evening.lines_with("idle GPUs")


def test_the_last_line_says_that_it_passed(evening: Evening) -> None:
    assert evening.text.splitlines()[-1].startswith("PASS: all 5 checks ")


def test_the_comparison_shows_what_was_modelled(evening: Evening, found: Downtimes) -> None:
    (deleted,) = evening.lines_with("a pod is deleted")
    (silent,) = evening.lines_with("a node falls silent")
    seconds = found[StageFailure.POD_DELETED, Restarter.CONTROLLER]

    assert seconds is not None
    assert deleted.split()[4:7] == [f"{seconds:.1f}", "s", f"{seconds * GPUS / 3600:,.1f}"]
    assert silent.count(">") == 2  # JobSet's, and its GPU-hours


# What must not pass.


def test_a_controller_that_only_observes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    observing = objects.policy()
    observing["spec"]["mode"] = "Observe"
    monkeypatch.setattr(objects, "policy", lambda: observing)

    evening = Evening()

    assert evening.verdict.problems[0] == "after incident 1 the 4 ranks did not all train together within 30 s"
    assert "not all 4 incidents took place" in evening.verdict.problems
    assert len(evening.lines_with("not as it should be: ")) == len(evening.verdict.problems)
    assert evening.text.splitlines()[-1].startswith(f"FAIL: {len(evening.verdict.problems)} of ")


def test_restarts_beyond_the_budget_that_was_announced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    generous = objects.policy()
    generous["spec"]["budget"]["limit"] = 40
    monkeypatch.setattr(objects, "policy", lambda: generous)

    assert Evening().verdict.problems == (
        "incident 4: 4 incarnations were started, and the budget allowed 2",
        "incident 4: the ledger does not say Held",
    )


@pytest.mark.parametrize(("mode", "exit_code"), [("Enforce", 0), ("Observe", 1)])
def test_the_exit_code_says_whether_it_passed(mode: str, exit_code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = objects.policy()
    policy["spec"]["mode"] = mode
    monkeypatch.setattr(objects, "policy", lambda: policy)
    evening = Evening()

    async def played() -> tuple[Scene, View, None]:
        return evening.scene, evening.view, None

    monkeypatch.setattr(run_demo, "_show", played)
    assert run_demo.run() == exit_code


# The picture on a terminal.


def test_a_terminal_shows_every_rank_by_letter_and_colour(found: Downtimes) -> None:
    evening = Evening(terminal=True, environment=TERMINAL, width=80, found=found)

    assert evening.verdict.problems == ()
    assert [row[-1] for row in evening.rows().values()] == ["Recovered"] * 5 + ["Held"]
    assert "\x1b[1;32mPASS\x1b[0m" in evening.text
    assert "…" not in evening.text  # nothing is cut off
    for style, letter in (("32", "T"), ("33", "W"), ("1;31", "H"), ("36", "S"), ("2", "-")):
        assert f"\x1b[{style}m{letter} \x1b[0m" in evening.text, letter


def test_the_picture_is_drawn_at_most_eight_times_a_second() -> None:
    evening = Evening(terminal=True, environment=TERMINAL)

    # rich also draws it again below each line that is reported meanwhile, and at the end.
    played = evening.text[: evening.text.index("What each incident cost")]
    reported = (
        len([line for line in played.splitlines() if re.match(r"\S*(\d\d:\d\d:\d\d|\d[abc ] \d| {10})", line)]) + 1
    )
    assert evening.seconds * 7 < evening.text.count("rank   0  ") <= evening.seconds * 8 + reported


def test_no_color_leaves_the_letters() -> None:
    evening = Evening(terminal=True, environment={**TERMINAL, "NO_COLOR": "1"})

    assert "T T T T" in evening.text.replace("\x1b[0m", "")
    assert not any(f"\x1b[{colour}m" in evening.text for colour in (31, 32, 33, 36, "1;31", "1;32"))
    assert "PASS" in evening.text.splitlines()[-1]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    evening = Evening(terminal=True, environment={"TERM": "dumb"})

    assert "rank   0  " not in evening.text
    assert "\x1b" not in evening.text
