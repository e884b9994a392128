"""A command in a container, over the WebSocket of `pods/exec`, and the scripts that kill the processes of a rank.

The scripts read a made-up /proc here, and what they would kill is only noted.
"""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from recovery.kube.exec import KILL_WITH_PYTHON, KILL_WITH_SHELL, Executed, ProcessKillerByExec, execute_in_pod
from recovery.kube.session import Session, open_session
from recovery.ports import ForbiddenError, NotFoundError, RefusedError, UnauthorizedError
from tests.unit.kube.server import Answerer, Server

SUCCESS = {"status": "Success", "metadata": {}}


def failed(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": "no", "details": {"causes": causes}}


NO_SUCH_PROGRAM = {"status": "Failure", "reason": "InternalError", "message": 'exec: "python3": not found'}


def runs(status: dict[str, Any], *output: tuple[int, str]) -> Answerer:
    """A kubelet's answer: output by channel, then the Status of the command."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        for channel, text in output:
            await socket.send_bytes(bytes([channel]) + text.encode())
        await socket.send_bytes(b"\x03" + json.dumps(status).encode())
        await socket.close()
        return socket

    return answer


def refuses(code: int) -> Answerer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text="no")

    return answer


@pytest.fixture
async def session(server: Server, tmp_path: Path) -> AsyncIterator[Session]:
    async with open_session(kubeconfig=server.kubeconfig(tmp_path)) as opened:
        yield opened


async def test_a_command_runs_in_the_container_and_its_output_comes_back(server: Server, session: Session) -> None:
    server.script.append(runs(SUCCESS, (1, "killed 2"), (2, " processes\n")))
    done = await execute_in_pod(session, "research", "llm-0", "node", ("echo", "a b"))
    assert done == Executed("killed 2 processes", 0)
    [request] = server.received
    assert request.path == "/api/v1/namespaces/research/pods/llm-0/exec"
    assert request.query.getall("command") == ["echo", "a b"]  # type: ignore[attr-defined]
    assert (request.query["container"], request.query["stdout"]) == ("node", "true")
    assert request.headers["Authorization"] == "Bearer secret"


async def test_an_exit_code_is_no_error_of_the_request(server: Server, session: Session) -> None:
    server.script.append(runs(failed(3)))
    assert (await execute_in_pod(session, "research", "llm-0", "", ("false",))).exit_code == 3


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (403, ForbiddenError, "create pods/exec in namespace research"),
        (404, NotFoundError, "pod llm-0"),
        (400, RefusedError, "does not run"),
    ],
)
async def test_a_refused_handshake_says_what_is_missing(
    server: Server, session: Session, code: int, error: type[Exception], words: str
) -> None:
    server.script.append(refuses(code))
    with pytest.raises(error, match=words):
        await execute_in_pod(session, "research", "llm-0", "", ("true",))


async def test_credentials_that_have_expired_are_read_again_once(server: Server, session: Session) -> None:
    server.script += [refuses(401), runs(SUCCESS)]
    assert (await execute_in_pod(session, "research", "llm-0", "", ("true",))).exit_code == 0
    server.script += [refuses(401), refuses(401)]
    with pytest.raises(UnauthorizedError):
        await execute_in_pod(session, "research", "llm-0", "", ("true",))


async def test_a_container_without_python_is_asked_by_its_shell(server: Server, session: Session) -> None:
    server.script += [runs(NO_SUCH_PROGRAM), runs(SUCCESS, (1, "killed 1 processes"))]
    assert await ProcessKillerByExec(session).kill("research", "llm-0", "node") == "killed 1 processes"
    assert [each.query["command"] for each in server.received] == ["python3", "sh"]


async def test_a_container_in_which_only_pid_1_runs_is_refused_with_the_other_way(
    server: Server, session: Session
) -> None:
    server.script.append(runs(failed(3), (1, "killed 0 processes")))
    with pytest.raises(RefusedError, match=r"only PID 1 runs in container node.*take pod-kill"):
        await ProcessKillerByExec(session).kill("research", "llm-0", "node")


async def test_a_container_with_neither_program_is_refused_with_the_reason(server: Server, session: Session) -> None:
    server.script += [runs(NO_SUCH_PROGRAM), runs(NO_SUCH_PROGRAM)]
    with pytest.raises(RefusedError, match="not found"):
        await ProcessKillerByExec(session).kill("research", "llm-0", "node")


async def test_the_error_of_a_kubelet_that_does_not_answer_is_given_without_the_script(
    server: Server, session: Session
) -> None:
    url = "https://gpu-3:10250/exec/research/llm-0/node?command=sh&command=-c&command=%0Aall%3D&error=1"
    silent = {"status": "Failure", "reason": "InternalError", "message": f'Post "{url}": no such host'}
    server.script += [runs(silent), runs(silent)]
    with pytest.raises(RefusedError, match='Post "https://gpu-3:10250/exec/research/llm-0/node": no such host'):
        await ProcessKillerByExec(session).kill("research", "llm-0", "node")


# The scripts.

RANKS = {1: "", 20: "LOCAL_RANK=0", 21: "LOCAL_RANK=1", 22: "LOCAL_RANK=01"}
NO_RANKS = {1: "", 20: "RANK=0", 21: ""}
Kill = Callable[[dict[int, str]], tuple[list[int], int]]


def proc(folder: Path, processes: dict[int, str]) -> Path:
    for pid, variable in processes.items():
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "environ").write_bytes(f"PATH=/bin\0{variable}\0".encode())
        (folder / str(pid) / "stat").write_text(f"{pid} (python3) S 1 1")
    (folder / "self").mkdir()
    return folder


@pytest.fixture(params=["python", "shell"])
def kill(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kill:
    """Run a script in a container with these processes: what it would kill, and its exit code."""

    def by_python(processes: dict[int, str]) -> tuple[list[int], int]:
        folder, killed = str(proc(tmp_path, processes)), []
        listed = os.listdir(folder)

        def note(pid: int, number: int) -> None:
            assert number == signal.SIGKILL
            killed.append(pid)

        monkeypatch.setattr(os, "kill", note)
        monkeypatch.setattr(os, "listdir", lambda _: listed)
        with pytest.raises(SystemExit) as ended:
            exec(KILL_WITH_PYTHON.replace("/proc", folder), {})
        assert isinstance(ended.value.code, int)
        return sorted(killed), ended.value.code

    def by_shell(processes: dict[int, str]) -> tuple[list[int], int]:
        folder = proc(tmp_path, processes)
        noting = 'kill() { [ "$1" = -9 ] && echo "kill $2"; }\n'
        script = noting + KILL_WITH_SHELL.replace("/proc", str(folder))
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=50)
        pids = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("kill ")]
        return sorted(pids), done.returncode

    return by_python if request.param == "python" else by_shell


def test_the_processes_of_local_rank_0_are_killed(kill: Kill) -> None:
    assert kill(RANKS) == ([20], 0)


def test_where_no_process_has_a_local_rank_all_but_pid_1_are_killed(kill: Kill) -> None:
    assert kill(NO_RANKS) == ([20, 21], 0)


def test_pid_1_alone_is_not_killed(kill: Kill) -> None:
    assert kill({1: "LOCAL_RANK=0"}) == ([], 3)
