"""Times and tables as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from recovery.cli.formatting import Cell, TerminalTable, age, aligned, duration, moment, time_of_day

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


def test_the_date_is_told_where_the_day_is_another_one() -> None:
    assert time_of_day(NOW + timedelta(minutes=3), NOW) == "09:03:00Z"
    assert time_of_day(NOW + timedelta(days=1), NOW) == "2026-11-03T09:00:00Z"


ROW = [Cell("llm"), Cell("Held", "red")]


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a narrow terminal that knows colours. (Not a fixture: those see another standard output.)"""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_pipe_gets_plain_lines_whatever_is_forced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    TerminalTable(("JOB", "PHASE")).print([ROW])
    assert capsys.readouterr().out == "JOB  PHASE\nllm  Held\n"


def test_a_terminal_gets_colour_and_whole_names_however_narrow_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    name = "a-job-with-a-name-of-forty-characters-or-so"
    TerminalTable(("JOB", "PHASE", "AGE")).print([(Cell(name), Cell("Held", "red"), Cell("1m"))])
    out = capsys.readouterr().out
    assert name in out
    assert "\x1b[31mHeld\x1b[0m" in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_gets_none(
    variable: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    monkeypatch.setenv(variable, value)
    TerminalTable(("JOB", "PHASE")).print([ROW])
    assert "\x1b" not in capsys.readouterr().out


def test_rows_that_come_later_keep_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table = TerminalTable(("JOB", "PHASE"))
    table.print([(Cell("a-long-name"), Cell("Held"))])
    table.print([(Cell("llm"), Cell(""))])
    assert capsys.readouterr().out.splitlines() == ["JOB          PHASE", "a-long-name  Held", "llm          -"]


def test_what_others_have_written_does_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalTable(("JOB",)).print([(Cell("\x1b[2Jllm"),)])
    assert "\x1b" not in capsys.readouterr().out
