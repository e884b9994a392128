"""The agent's side of the zygote: starts its host, and asks it for ranks."""

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .flags import LaunchOptions
from .rank_environment import FOLDER, launch_environment, with_hook
from .zygote_host import LENGTH

_HOST = (
    "import sys, socket; sys.path[:] = [sys.argv[1], *(path for path in sys.path if path)]; "
    "from _trainjob_recovery import zygote_host as host; del sys.path[0]; "
    "link = socket.socket(fileno=int(sys.argv[2])); host.main(link, host.receive(link)[0])"
)
_FORK_TIMEOUT_SECONDS = 10


class NotForkedError(Exception):
    """This rank is to be executed. The text says why."""


def modules_to_import(environ: Mapping[str, str]) -> list[str]:
    """torch, and what the user names in RECOVERY_PREIMPORT."""
    named = (name.strip() for name in environ.get("RECOVERY_PREIMPORT", "").split(","))
    return ["torch", *(name for name in named if name)]


def reason_against_zygote(options: LaunchOptions) -> str | None:
    """Why no rank of this launch can be forked. None: they can."""
    if options.python != sys.executable:
        return "PYTHON_EXEC names another interpreter"
    if not options.module and not (options.script.endswith(".py") and os.path.isfile(options.script)):
        return f"{options.script} is not a Python file"
    return None


class Zygote:
    """One host. `why_not` says why it forks no rank now. None: it does."""

    def __init__(self, options: LaunchOptions, environ: Mapping[str, str], directory: str) -> None:
        self._options = options
        self._directory = directory
        self._link, theirs = socket.socketpair()
        environment = with_hook(launch_environment(options, environ))
        with theirs:
            # Like a rank, so that flags, limits, signals and what the imports read are the same.
            self._process = subprocess.Popen(
                [options.python, "-u", "-c", _HOST, FOLDER, str(theirs.fileno())],
                env=environment,
                cwd=directory,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._process.returncode = 0  # ProcessTree reaps it
        self._imports = True
        self.why_not: str | None = "it is still importing"
        self._link.settimeout(_FORK_TIMEOUT_SECONDS)
        request = self._request(0, {}) | {"modules": modules_to_import(environ)}
        self._send(request, [])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def forks(self) -> bool:
        """Whether the host has imported everything and can be forked. Never waits."""
        if self._imports and select.select([self._link], [], [], 0)[0]:
            self._read_answer()
        return self.why_not is None

    async def fork(self, local_rank: int, environ: Mapping[str, str], files: Sequence[int], page: int | None) -> int:
        """Fork a rank with these files as its standard streams, and its page. The answer is its process id.

        Raises NotForkedError where the rank is to be executed.
        """
        if not self.forks:
            raise NotForkedError(self.why_not)
        return await asyncio.to_thread(self._fork, self._request(local_rank, environ), files, page)

    def close(self) -> None:
        """The host ends when its link is closed."""
        self._link.close()
        self.why_not = "it was closed"

    def ended(self) -> None:
        """The host has been reaped."""
        if self.why_not is None or self._imports:
            self._imports, self.why_not = False, "it has ended"

    def _request(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, Any]:
        options = self._options
        command = options.command(local_rank)
        [script, *arguments] = command[3:] if options.module else command[2:]
        file = os.path.join(self._directory, script.removeprefix("./"))
        return {
            "agent": os.getpid(),
            "environ": dict(environ),
            "command": command,
            "arguments": ["-m" if options.module else script, *arguments],
            "module": options.module,
            "script": script,
            "file": file,
            "path": self._directory if options.module else os.path.dirname(os.path.realpath(file)),
        }

    def _send(self, request: dict[str, Any], files: Sequence[int]) -> None:
        body = json.dumps(request).encode()
        socket.send_fds(self._link, [LENGTH.pack(len(body))], list(files))
        self._link.sendall(body)

    def _read_answer(self) -> None:
        self._imports = False
        line = b""
        try:
            while not line.endswith(b"\n"):
                part = self._link.recv(4096)
                if not part:
                    self.why_not = "it has ended"
                    return
                line += part
            self.why_not = json.loads(line)["reason"]
        except OSError as error:
            self.why_not = f"it does not answer: {error}"

    def _fork(self, request: dict[str, Any], files: Sequence[int], page: int | None) -> int:
        ours, theirs = os.pipe()
        try:
            try:
                self._send(request, [*files, theirs, *(() if page is None else (page,))])
            except OSError as error:
                self.why_not = f"it does not answer: {error}"
                raise NotForkedError(self.why_not) from error
            finally:
                os.close(theirs)
            self._read_answer()
            if self.why_not is not None:
                raise NotForkedError(self.why_not)
            if not select.select([ours], [], [], _FORK_TIMEOUT_SECONDS)[0]:
                self.why_not = "it forked no rank"
            elif pid := os.read(ours, 32):
                return int(pid)
            else:
                self.why_not = "its rank ended at once"
            raise NotForkedError(self.why_not)
        finally:
            os.close(ours)
