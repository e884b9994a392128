"""`recovery lint` for people: two lines for each finding. Only a terminal gets wrapping and colours. Equal findings are
folded into one."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recovery.cli.main import app
from tests.unit.cli.manifests import SEVEN, WORD, recovery, written_to

ANSI = re.compile(r"\x1b\[[\d;]*m")


def lines(*arguments: str, stdin: str = "", exit_code: int = 0) -> list[str]:
    return recovery("lint", *arguments, stdin=stdin, exit_code=exit_code).stdout.splitlines()


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the program's end, which the caller must close, and the bytes written to it, complete after the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    sent: list[bytes] = []
    reader = threading.Thread(target=lambda: sent.extend(iter(lambda: _read(ours), b"")), daemon=True)
    reader.start()
    yield theirs, sent
    reader.join()
    os.close(ours)


def text_of(sent: list[bytes]) -> str:
    return b"".join(sent).decode().replace("\r\n", "\n")


def on_terminal(*arguments: str, columns: int, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """The text that a terminal of that width receives."""
    with pytest.MonkeyPatch.context() as patched, terminal(columns) as (theirs, sent):
        for name in ("COLUMNS", "NO_COLOR"):
            patched.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", **(environment or {})}.items():
            patched.setenv(name, value)
        patched.chdir(cwd)
        with open(theirs, "w", encoding="utf-8") as stdout:
            patched.setattr(sys, "stdout", stdout)
            patched.setattr(sys, "__stdout__", stdout)  # `shutil` reads the width from this one
            with pytest.raises(SystemExit) as ended:
                app(arguments, prog_name="recovery")
    assert ended.value.code in {0, 1}
    return text_of(sent)


def on_terminal_of_a_process(*arguments: str, columns: int, cwd: Path) -> str:
    program = [sys.executable, "-m", "recovery.cli.entry", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment = {**inherited, "TERM": "xterm-256color", "PYTHONPATH": str(Path(__file__).parents[3])}
    with terminal(columns) as (theirs, sent):
        started = subprocess.Popen(
            program,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        assert started.wait(60) in {0, 1}
    return text_of(sent)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux: the other end has closed
        return b""


def jobs(folder: Path, count: int, text: str = SEVEN) -> None:
    for number in range(count):
        written_to(folder / f"job-{number}.yaml", text.replace("llama", f"llama-{number}"))


# --- the parts of a finding ----------------------------------------------------------------------------------------


def test_a_finding_is_what_and_where_and_the_fix_below(tmp_path: Path) -> None:
    file = written_to(tmp_path / "llama.yaml", WORD)
    what, fix = lines(file, exit_code=1)
    assert re.fullmatch(rf"{re.escape(file)}:15: error: processes-word: .*\bgpu\b.*[^)]", what)
    assert re.fullmatch(r"    fix: .+", fix)


def test_a_note_without_a_fix_is_one_line() -> None:
    assert lines("-", stdin="apiVersion: v1\nkind: Secret\n") == [
        "<stdin>:2: note: unknown-kind: a Secret of v1 is not judged here"
    ]


def test_lines_are_whole_where_nothing_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    what, _ = lines("-", stdin=WORD, exit_code=1)
    assert len(what) > 100


# --- equal findings ------------------------------------------------------------------------------------------------


def test_equal_findings_of_many_files_are_told_once_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs(Path(), 40)
    what, fix, elsewhere = lines(".")
    assert what.startswith("job-0.yaml:15: warning: processes-not-gpus: ")
    assert fix.startswith("    fix: ")
    assert elsewhere == (
        "    and in 39 more places: job-1.yaml:15, job-10.yaml:15, job-11.yaml:15, job-12.yaml:15 and 35 others"
    )


@pytest.mark.parametrize(
    ("count", "elsewhere"),
    [
        (2, "and in 1 more place: job-1.yaml:15"),
        (6, "and in 5 more places: " + ", ".join(f"job-{number}.yaml:15" for number in range(1, 6))),
        (7, "and in 6 more places: " + ", ".join(f"job-{number}.yaml:15" for number in range(1, 5)) + " and 2 others"),
    ],
)
def test_a_few_places_are_all_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, elsewhere: str
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs(Path(), count)
    assert lines(".")[-1].strip() == elsewhere


def test_findings_that_differ_in_a_word_are_told_apart_in_the_order_of_the_first_of_each(tmp_path: Path) -> None:
    for name, text in (("a", SEVEN), ("b", WORD), ("c", SEVEN), ("d", SEVEN.replace("Node: 7", "Node: 6"))):
        written_to(tmp_path / f"{name}.yaml", text.replace("llama", name))
    told = [line for line in lines(str(tmp_path), exit_code=1) if not line.startswith(" ")]
    assert [Path(line.partition(":")[0]).name for line in told] == ["a.yaml", "b.yaml", "d.yaml"]


def test_the_summary_counts_each_of_the_folded(tmp_path: Path) -> None:
    jobs(tmp_path, 3)
    assert recovery("lint", str(tmp_path)).stderr == "3 warnings in 3 files\n"


# --- on a terminal -------------------------------------------------------------------------------------------------


def test_a_process_sends_its_terminal_the_same(tmp_path: Path) -> None:
    jobs(tmp_path, 12)
    for arguments in (("lint", "."), ("lint", "--explain", "no-resume")):
        sent = on_terminal_of_a_process(*arguments, columns=70, cwd=tmp_path)
        assert sent == on_terminal(*arguments, columns=70, cwd=tmp_path)
        assert "\x1b" in sent


@pytest.mark.parametrize("columns", [50, 80, 100])
def test_lines_are_wrapped_to_the_width_of_the_terminal(tmp_path: Path, columns: int) -> None:
    jobs(tmp_path, 12)
    plain = lines(str(tmp_path))
    shown = ANSI.sub("", on_terminal("lint", ".", columns=columns, cwd=tmp_path)).splitlines()
    assert max(map(len, shown)) <= columns
    assert len(shown) > 3
    assert not [line for line in shown if line != line.rstrip()]
    said = " ".join(" ".join(shown).split())
    assert said == " ".join(" ".join(plain).replace(f"{tmp_path}/", "").split())


def test_what_goes_on_is_indented_below_what_it_belongs_to(tmp_path: Path) -> None:
    jobs(tmp_path, 1, WORD)
    shown = ANSI.sub("", on_terminal("lint", ".", columns=60, cwd=tmp_path)).splitlines()
    fix = next(number for number, line in enumerate(shown) if line.startswith("    fix: "))
    assert fix > 1
    assert all(re.match(r"    \S", line) for line in shown[1:fix])
    assert all(re.match(r"         \S", line) for line in shown[fix + 1 :])


def test_a_word_that_is_longer_than_the_terminal_stays_whole(tmp_path: Path) -> None:
    name = f"{'long-' * 12}name.yaml"
    written_to(tmp_path / name, WORD)
    first, *_ = ANSI.sub("", on_terminal("lint", ".", columns=40, cwd=tmp_path)).splitlines()
    assert first == f"{name}:15:"


def test_the_severity_is_coloured_and_nothing_is_taken_for_markup(tmp_path: Path) -> None:
    written_to(tmp_path / "llama.yaml", WORD.replace("numProcPerNode: gpu", 'numProcPerNode: "[red]gpu"'))
    coloured = on_terminal("lint", "llama.yaml", columns=1000, cwd=tmp_path)
    assert "llama.yaml:15: \x1b[1;31merror\x1b[0m: processes-word: " in coloured
    assert "[red]gpu" in coloured


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [["lint", "."], ["lint", "--explain", "no-resume"]])
def test_without_colour_nothing_is_sent_but_text(
    tmp_path: Path, environment: dict[str, str], arguments: list[str]
) -> None:
    jobs(tmp_path, 1)
    sent = on_terminal(*arguments, columns=80, cwd=tmp_path, environment=environment)
    assert sent
    assert "\x1b" not in sent


@pytest.mark.parametrize("output", ["text", "json", "github", "gitlab", "sarif"])
def test_what_a_manifest_says_does_not_reach_the_terminal_raw(output: str) -> None:
    text = WORD.replace("numProcPerNode: gpu", 'numProcPerNode: "\\e[2Jgpu"')
    assert "\x1b" not in "".join(lines("-", "--format", output, stdin=text, exit_code=1))
