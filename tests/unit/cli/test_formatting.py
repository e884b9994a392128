"""Times and tables for people to read."""

from datetime import UTC, datetime, timedelta

import pytest

from recovery.cli.formatting import (
    Cell,
    Narrowing,
    TerminalTable,
    age,
    aligned,
    duration,
    fitted,
    moment,
    time_of_day,
    wrapped,
)

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
    """Make stdout a narrow terminal with colours. (Not a fixture: a fixture sees another stdout than the test.)"""
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


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("two  spaces", 11, ["two  spaces"]),
        ("recovery retry JOB", 14, ["recovery retry", "JOB"]),
        ("no: PausedByAnnotation", 12, ["no: PausedBy", "Annotation"]),
        ("llama-3-70b-pretrain", 12, ["llama-3-70b-", "pretrain"]),
        ("on gpu-7.example.com", 10, ["on gpu-7.", "example.", "com"]),
        ("pre-train the-rest", 10, ["pre-train", "the-rest"]),
        ("abcdefghijklmnop", 9, ["abc...nop"]),
    ],
)
def test_a_cell_breaks_between_words_then_within_names_and_cuts_what_has_no_place_to_break(
    text: str, width: int, lines: list[str]
) -> None:
    assert wrapped(text, width) == lines


@pytest.mark.parametrize(
    ("columns", "widths"),
    [(74, [30, 10, 30]), (64, [30, 10, 20]), (54, [27, 10, 13]), (20, [8, 10, 8])],
)
def test_columns_become_narrower_by_their_shares_and_no_narrower_than_their_least(
    columns: int, widths: list[int]
) -> None:
    assert fitted([30, 10, 30], [Narrowing(20, 8), None, Narrowing(10, 8)], columns) == widths


def test_rows_that_come_later_fit_the_terminal_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    table = TerminalTable(("JOB", "NEXT"), (Narrowing(1, 8), Narrowing(1, 8)))
    table.print([(Cell("llm"), Cell("recovery retry llm", short="recovery retry JOB"))])
    table.print([(Cell("-".join(["long"] * 20)), Cell("recovery retry llm", short="recovery retry JOB"))])
    first, *later = capsys.readouterr().out.splitlines()
    assert (first, later[0]) == ("JOB  NEXT", "llm  recovery retry llm")
    assert max(map(len, later)) <= 80
    assert "recovery retry JOB" in later[1]
