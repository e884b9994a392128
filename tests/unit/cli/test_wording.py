"""Times and tables as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from recovery.cli.wording import age, aligned, duration, moment, print_table

NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h0m"),
        (93784, "26h3m"),
        (200000, "2d7h"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.254, "0.25s"), (9.99, "9.99s"), (42.123, "42.1s"), (119.96, "120.0s"), (185, "3m05s"), (7500, "2h05m")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_a_moment_has_a_fraction_where_it_is_known() -> None:
    assert moment(NOW) == "2026-11-02 09:00:00Z"
    assert moment(NOW + timedelta(milliseconds=250)) == "2026-11-02 09:00:00.2Z"


def test_columns_are_aligned_and_no_cell_is_empty() -> None:
    assert aligned(("JOB", "CAUSE"), [("llm", ""), ("tiny", "Exit137")]) == ["JOB   CAUSE", "llm   -", "tiny  Exit137"]


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("JOB", "PHASE"), [("llm", "Held")], {"Held": "red"})
    assert capsys.readouterr().out == "JOB  PHASE\nllm  Held\n"


def test_a_terminal_gets_colour_and_whole_names_however_narrow_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    name = "a-job-with-a-name-of-forty-characters-or-so"
    print_table(("JOB", "PHASE", "AGE"), [(name, "Held", "1m")], {"Held": "red"})
    out = capsys.readouterr().out
    assert name in out
    assert "\x1b[31m" in out
    assert len(out.splitlines()) == 2
