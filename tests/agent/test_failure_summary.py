"""What a failed launch leaves: torchrun's table, and one line as the container's termination message."""

import json
import re
from dataclasses import replace
from pathlib import Path

from recovery.agent._trainjob_recovery.failure_summary import (
    RankFailure,
    failure_table,
    first_failure,
    last_line,
    pass_error_on,
    termination_message,
    write_termination_message,
)

KILLED = RankFailure(rank=5, local_rank=1, pid=77, exit_code=-9, error_file="", ended_at=1000.5)
EXITED = replace(KILLED, rank=4, local_rank=0, pid=76, exit_code=3, ended_at=1001.5)


def raised(folder: Path, message: str = "TypeError: bad\nthing", timestamp: int = 990) -> RankFailure:
    path = folder / "error.json"
    extra = {"py_callstack": f"Traceback:\n  File x\n{message}\n", "timestamp": str(timestamp)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return replace(EXITED, exit_code=1, error_file=str(path))


def test_the_table_is_torchruns() -> None:
    table = re.sub(r"(time|host) +: \S+", r"\1: ...", failure_table("train.py", [KILLED, EXITED]))
    assert table.splitlines() == [
        "",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        "[1]:",
        "  time: ...",
        "  host: ...",
        "  rank      : 4 (local_rank: 0)",
        "  exitcode  : 3 (pid: 76) ",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        "  time: ...",
        "  host: ...",
        "  rank      : 5 (local_rank: 1)",
        "  exitcode  : -9 (pid: 77)  (SIGKILL)",
        "  error_file: <N/A>",
        "  traceback : Signal 9 (SIGKILL) received by PID 77",
        "=" * 60,
    ]


def test_the_root_cause_is_the_earliest_by_its_own_record(tmp_path: Path) -> None:
    recorded = raised(tmp_path)
    assert first_failure([KILLED, recorded]) is recorded
    assert first_failure([KILLED, replace(EXITED, ended_at=1000.9)]) is KILLED, "of one second the first observed"
    assert "  TypeError: bad\n  thing" in failure_table("train.py", [KILLED, recorded])
    assert "  <NO_OTHER_FAILURES>" in failure_table("train.py", [KILLED])


def test_the_termination_message_names_rank_code_and_exception(tmp_path: Path) -> None:
    assert termination_message(KILLED) == "rank 5 was ended by signal 9 (SIGKILL)"
    assert termination_message(replace(KILLED, exit_code=-40)) == "rank 5 was ended by signal 40"
    assert termination_message(EXITED) == "rank 4 exited with code 3"
    assert termination_message(raised(tmp_path)) == "rank 4 exited with code 1: TypeError: bad thing"


def test_the_termination_message_has_at_most_1_kib(tmp_path: Path) -> None:
    message = termination_message(raised(tmp_path, "ValueError: " + "ü" * 2000))
    assert 1000 < len(message.encode()) <= 1024


def test_a_message_of_the_script_itself_stays(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    write_termination_message(KILLED, log)
    assert not log.exists(), "the kubelet creates it, or nothing reads it"
    log.write_text("")
    write_termination_message(KILLED, log)
    write_termination_message(EXITED, log)
    assert log.read_text() == "rank 5 was ended by signal 9 (SIGKILL)"


def test_an_error_file_that_is_no_error_file_says_nothing(tmp_path: Path) -> None:
    for text in ("", "[]", '{"message": {}}', '{"message": {"message": "x", "extraInfo": 3}}'):
        (tmp_path / "error.json").write_text(text)
        assert last_line(replace(EXITED, error_file=str(tmp_path / "error.json"))) == ""
    (tmp_path / "error.json").write_text('{"message": "short", "timestamp": 3}')
    assert last_line(replace(EXITED, error_file=str(tmp_path / "error.json"))) == "short"


def test_a_launch_with_an_error_file_of_its_own_passes_the_root_cause_on(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    pass_error_on(KILLED, str(own))
    assert not own.exists()
    pass_error_on(raised(tmp_path), str(own))
    assert json.loads(own.read_text())["message"]["errorCode"] == 1
