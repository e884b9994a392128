"""How a program that `run_program` runs ends. Each of these programs is a process of its own."""

import subprocess
import sys

import pytest

CTRL_C = "os.kill(os.getpid(), signal.SIGINT)"


def ended(*work: str, begun_by: str = 'exec "$@"') -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program with these lines. `begun_by`: the shell command that runs it."""
    lines = "".join(f"    {line}\n" for line in work)
    program = (
        "import atexit, asyncio, os, signal, sys, time\n"
        "from recovery.program import run_program\n"
        f"def work():\n{lines}"
        "run_program(work, name='it')\n"
    )
    command = ["sh", "-c", begun_by, "sh", sys.executable, "-c", program]
    process = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return process.returncode, process.stdout, process.stderr


INTERRUPTED = (130, "", "it: interrupted\n")


@pytest.mark.parametrize(
    "work",
    [
        (CTRL_C, "time.sleep(100)"),
        ("class Left:", f"    def __del__(self): {CTRL_C}", "Left()", "time.sleep(100)"),
        ("while True:", f"    try: {CTRL_C}", "    except BaseException: time.sleep(100)"),
        (f"try: {CTRL_C}; time.sleep(100)", "finally: raise ValueError('while it unwinds')"),
        (f"try: {CTRL_C}; time.sleep(100)", "finally: sys.exit(3)"),
        (f"async def main(): asyncio.create_task(asyncio.sleep(1)); {CTRL_C}", "asyncio.run(main())"),
    ],
    ids=["at work", "lost in a destructor", "caught by somebody", "another error", "another exit", "in a loop"],
)
def test_ctrl_c_is_one_line_and_130_wherever_it_comes(work: tuple[str, ...]) -> None:
    assert ended(*work) == INTERRUPTED


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    assert ended(f"try: {CTRL_C}; time.sleep(100)", f"finally: {CTRL_C}; print('not reached')") == INTERRUPTED


def test_an_interrupted_program_closes_what_it_has_opened_and_runs_its_exit_hooks() -> None:
    hook = "atexit.register(os.write, 1, b'exit hook\\n')"
    opened = f"try: {CTRL_C}; time.sleep(100)"
    code, output, _ = ended(hook, opened, "finally: print('closed')")
    assert (code, output) == (130, "closed\nexit hook\n")


def test_what_was_under_way_is_left_whole() -> None:
    """A simulated cluster takes seconds to tear down, and its tasks print much about that."""
    left = ("class Left:", "    def __del__(self): print('fell apart')")
    assert ended(*left, "left = Left()", CTRL_C, "time.sleep(100)", "left") == INTERRUPTED


def test_ctrl_c_after_the_work_changes_nothing() -> None:
    assert ended(f"atexit.register(lambda: {CTRL_C})", "sys.exit(3)") == (3, "", "")


def test_a_job_in_the_background_of_a_script_does_not_hear_of_ctrl_c() -> None:
    assert ended(CTRL_C, "print('done')", begun_by='trap "" INT; exec "$@"') == (0, "done\n", "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("lines", [1, 100_000], ids=["at the end", "amid the work"])
def test_a_reader_that_has_gone_away_is_141_without_a_word(lines: int, stream: str) -> None:
    pipe = f"reader, writer = os.pipe(); os.close(reader); os.dup2(writer, sys.{stream}.fileno())"
    assert ended(pipe, f"for _ in range({lines}): print('line', file=sys.{stream})") == (141, "", "")


@pytest.mark.parametrize("lines", [1, 100_000], ids=["at the end", "amid the work"])
def test_a_full_disk_is_one_line(lines: int) -> None:
    told = "it: the output cannot be written: No space left on device\n"
    assert ended(f"for _ in range({lines}): print('line')", begun_by='exec "$@" > /dev/full') == (1, "", told)


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3)])
def test_the_exit_code_is_that_of_the_work(end: str, code: int) -> None:
    assert ended("print('done')", end) == (code, "done\n", "")


@pytest.mark.parametrize("bug", ["1 / 0", "open('/nowhere')"])
def test_a_bug_keeps_its_traceback(bug: str) -> None:
    code, _, errors = ended(bug)
    assert (code, errors.splitlines()[0]) == (1, "Traceback (most recent call last):")


def test_streams_that_the_program_was_started_without_are_missed_by_no_one() -> None:
    closed = 'exec "$@" >&- 2>&-'
    assert ended("sys.exit(3)", begun_by=closed) == (3, "", "")
    assert ended(CTRL_C, "time.sleep(100)", begun_by=closed) == (130, "", "")
