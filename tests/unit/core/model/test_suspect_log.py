"""What is kept of a log: its end, within bounds, and without terminal control characters."""

from hypothesis import given
from hypothesis import strategies as st

from recovery.core.model.suspect_log import LOG_BYTES_MAX, LOG_LINES_MAX, last_bytes, tail_of


def numbered(lines: int, *, length: int = 10) -> list[str]:
    return [f"{number:0{length}}" for number in range(lines)]


def test_a_short_log_is_kept_as_it_is_with_its_indentation() -> None:
    assert tail_of(b"Traceback:\n  File x\n\tindented\n") == "Traceback:\n  File x\n\tindented"


def test_the_last_64_lines_are_kept() -> None:
    lines = numbered(LOG_LINES_MAX + 10)
    assert tail_of("\n".join(lines).encode()).split("\n") == lines[10:]


def test_the_end_is_kept_and_not_the_beginning_and_it_begins_with_a_whole_line() -> None:
    lines = numbered(LOG_LINES_MAX, length=200)
    kept = tail_of("\n".join(lines).encode())
    assert kept.split("\n") == lines[-len(kept.split("\n")) :]
    assert LOG_BYTES_MAX - 201 <= len(kept.encode()) <= LOG_BYTES_MAX


def test_lines_that_fit_to_the_byte_are_all_kept() -> None:
    exact = "\n".join(["x" * 1023] * 4)  # 4 * 1023 and three line feeds: one byte less than the bound
    assert last_bytes(f"dropped\n{exact}y") == f"{exact}y"


def test_of_one_line_that_is_too_long_the_end_is_kept_from_a_whole_character() -> None:
    line = "x" + "ü€😀" * 2000
    kept = tail_of(line.encode())
    assert line.endswith(kept)
    assert LOG_BYTES_MAX - 4 < len(kept.encode()) <= LOG_BYTES_MAX


def test_a_progress_bar_is_one_line_for_each_of_its_states() -> None:
    assert tail_of(b"\r 10%\r 20%\r\nlost rank 3\r\n") == " 10%\n 20%\nlost rank 3"


def test_escapes_and_control_characters_are_replaced() -> None:
    assert tail_of(b"\x1b[31mred\x1b[0m\x00\x07 \xe2\x80\xaeback") == " [31mred [0m    back"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert tail_of(b"\xff\xfe ok") == "\ufffd\ufffd ok"


@given(st.one_of(st.binary(max_size=20_000), st.text(max_size=6000).map(lambda text: text.encode(errors="replace"))))
def test_the_tail_of_any_log_is_bounded_printable_text(raw: bytes) -> None:
    kept = tail_of(raw)
    assert len(kept.encode()) <= LOG_BYTES_MAX
    assert len(kept.split("\n")) <= LOG_LINES_MAX
    assert all(each in "\n\t" or each.isprintable() for each in kept)
