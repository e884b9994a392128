"""Runs a command in a container, as `kubectl exec` does: over a WebSocket to `pods/exec`.

Each message begins with a byte that names its channel. Channel 3 has the Status of the command and comes last
(`v4.channel.k8s.io` and later).
"""

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus

import aiohttp
import msgspec
from yarl import URL

from recovery.kube.errors import ApiStatus, error_from_failure, error_from_status
from recovery.kube.session import Session, SessionError
from recovery.ports import PODS, ApiRequest, ForbiddenError, NotFoundError, RefusedError, UnauthorizedError

EXEC_SECONDS_MAX = 30.0
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3
_OUTPUT_MAX = 2000
"""How much of the output is kept."""
_EXIT_CODE = "ExitCode"
"""The cause that holds the exit code in the Status of a command that failed."""

_QUERY = re.compile(r"\?command=[^\s\"]*")
"""Of a URL in the error of a kubelet that does not answer: it holds the whole script."""

_decode_status = msgspec.json.Decoder(ApiStatus).decode


class Executed(msgspec.Struct, frozen=True):
    """How a command ended."""

    output: str
    """Its stdout and stderr, in the order in which they came."""
    exit_code: int | None
    """None: it could not be started. `problem` says why."""
    problem: str = ""


async def execute_in_pod(
    session: Session, namespace: str, pod: str, container: str, command: Sequence[str]
) -> Executed:
    """Run the command to its end. `container` empty: the only one. Raises ApiError."""
    request = ApiRequest("get", PODS, namespace, pod, "exec")
    version = session.credentials_version
    try:
        return await _execute(session, request, container, command)
    except UnauthorizedError as error:
        try:
            await session.refresh(version)
        except SessionError as failure:
            raise UnauthorizedError(f"{error}; no new credentials: {failure}", status=error.status) from failure
        return await _execute(session, request, container, command)


async def _execute(session: Session, request: ApiRequest, container: str, command: Sequence[str]) -> Executed:
    query = [("command", each) for each in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    # The API server routes `ws` requests by the same path. aiohttp upgrades http and https.
    url = URL(request.url(session.server), encoded=True).update_query(query)
    try:
        async with (
            asyncio.timeout(EXEC_SECONDS_MAX),
            session.pool.ws_connect(
                url,
                protocols=_PROTOCOLS,
                headers=dict(await session.authorization()),
                **session.connection_arguments(),
            ) as socket,
        ):
            return await _to_the_end(socket)
    except SessionError as error:
        raise UnauthorizedError(f"{request}: {error}") from error
    except aiohttp.WSServerHandshakeError as error:
        raise _refusal(request, error.status, error.message) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise error_from_failure(request, error, session.server, EXEC_SECONDS_MAX) from error


async def _to_the_end(socket: "aiohttp.ClientWebSocketResponse[bool]") -> Executed:
    output = bytearray()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if channel in (_OUTPUT, _ERRORS):
            output += content[: _OUTPUT_MAX - len(output)]
        elif channel == _STATUS:
            return _ended(output.decode(errors="replace").strip(), _decode_status(content))
    return Executed(output.decode(errors="replace").strip(), None, "the connection ended before the command did")


def _ended(output: str, status: ApiStatus) -> Executed:
    if not status.reason and not status.message:
        return Executed(output, 0)
    causes = status.details.causes if status.details is not None else ()
    code = next((cause.message for cause in causes if cause.reason == _EXIT_CODE), "")
    if code.isdecimal():
        return Executed(output, int(code))
    return Executed(output, None, status.message or status.reason)


def _refusal(request: ApiRequest, code: int, message: str) -> Exception:
    """The handshake shows only the status, not the body with the reason."""
    if code == HTTPStatus.FORBIDDEN:
        return ForbiddenError(f"{request}: you may not create pods/exec in namespace {request.namespace}", status=code)
    if code == HTTPStatus.NOT_FOUND:
        return NotFoundError(f"{request}: pod {request.name} does not exist, or has no such container", status=code)
    if code == HTTPStatus.BAD_REQUEST:
        return RefusedError(f"{request}: its container does not run, or is not named: {message}", status=code)
    return error_from_status(request, code, ApiStatus(message=message))


KILL_WITH_PYTHON = """
import os, signal, sys
mine = {1, os.getpid()}
def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
def runs(pid):
    state = read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")
pids = [int(each) for each in os.listdir("/proc") if each.isdigit() and int(each) not in mine]
pids = [pid for pid in pids if runs(pid)]
of_rank_0 = [pid for pid in pids if b"LOCAL_RANK=0" in read(pid, "environ").split(b"\\0")]
killed = 0
for pid in of_rank_0 or pids:
    try:
        os.kill(pid, signal.SIGKILL)
        killed += 1
    except ProcessLookupError:
        pass
print(f"killed {killed} {'process' if killed == 1 else 'processes'}{' with LOCAL_RANK=0' if of_rank_0 else ''}")
sys.exit(0 if killed else 3)
"""
"""Ends with 3 if only PID 1 runs: the kernel ignores a SIGKILL that PID 1 gets from its own container."""

KILL_WITH_SHELL = """
all= ; first=
for directory in /proc/[0-9]*; do
  pid=${directory#/proc/}
  case $pid in 1|$$) continue;; esac
  [ -r "$directory/environ" ] || continue
  all="$all $pid"
  if tr '\\0' '\\n' <"$directory/environ" 2>/dev/null | grep -qx LOCAL_RANK=0; then first="$first $pid"; fi
done
killed=0
for pid in ${first:-$all}; do kill -9 "$pid" 2>/dev/null && killed=$((killed + 1)); done
echo "killed $killed processes${first:+ with LOCAL_RANK=0}"
[ "$killed" -gt 0 ] || exit 3
"""
_ONLY_PID_1 = 3


class ProcessKillerByExec:
    """Kills the processes of a rank in its container: those with LOCAL_RANK=0, else all but PID 1."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        """What was killed, in words. Raises ApiError."""
        done = await self._run(namespace, pod, container, "python3", KILL_WITH_PYTHON)
        if done.exit_code is None or done.exit_code in (126, 127):
            done = await self._run(namespace, pod, container, "sh", KILL_WITH_SHELL)
        if done.exit_code == _ONLY_PID_1:
            raise RefusedError(
                f"pod {pod}: only PID 1 runs in container {container}, and it cannot be killed from within; take "
                "pod-kill"
            )
        if done.exit_code != 0:
            why = _QUERY.sub("", done.problem) or f"exit code {done.exit_code}: {done.output}"
            raise RefusedError(f"pod {pod}: no process was killed in container {container}: {why}")
        return done.output

    async def _run(self, namespace: str, pod: str, container: str, program: str, script: str) -> Executed:
        return await execute_in_pod(self._session, namespace, pod, container, (program, "-c", script))
