"""The process that imports torch once and forks ranks. It stays single-threaded and holds nothing of the agent's.

A forked rank must equal an executed one. This process is therefore executed like a rank: the same interpreter flags,
environment, limits and signals. What a fork still shares, such as numpy's generator, the child draws again.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
import types
from contextlib import suppress
from typing import Any, NoReturn

from . import rank_hooks, rank_progress

LENGTH = struct.Struct("!Q")
FILES_MAX = 8


def main(link: socket.socket, request: dict[str, Any]) -> None:
    """Import the modules of `request`, then fork a rank for each further request. Returns only in a rank."""
    # From here on `_trainjob_recovery` is what it is in a rank: the module that a script may import.
    for name in [name for name in sys.modules if name.split(".")[0] == "_trainjob_recovery"]:
        del sys.modules[name]
    progress = rank_progress.ShownProgress()
    progress.install()
    interrupted: list[bool] = []
    atexit.register(_die_if, interrupted)
    # What stays frozen to the end is never collected, and some libraries report that as a leak.
    atexit.register(gc.unfreeze)
    _place(request)
    failed = _import_all(request["modules"])
    gc.collect()
    gc.freeze()
    _let_forks_end_threads()
    _answer(link, failed or reason_against_fork())
    while True:
        received = receive(link)
        if received is None:
            os._exit(0)
        request, files = received
        reason = failed or reason_against_fork()
        if reason is None and _fork_rank(files, request, progress):
            link.close()
            _become(request)
            _run(request, interrupted)
            return
        for file in files:
            os.close(file)
        _answer(link, reason)


def _import_all(modules: list[str]) -> str | None:
    """The first module that cannot be imported, as a reason against any fork. None: all are there."""
    with _gently():
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001, PERF203 - it is the user's code
                return f"{name} cannot be imported: {error!r}"
    return None


class _gently:  # noqa: N801 - it reads as a verb
    """The import yields to the ranks. A niceness could not be taken back without a privilege; this can."""

    def __enter__(self) -> None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def receive(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request and the files that came with it. None: the agent has ended."""
    try:
        header, files, _, _ = socket.recv_fds(link, LENGTH.size, FILES_MAX)
    except ConnectionResetError:  # it has not read the last answer
        return None
    if len(header) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(header)
    body = b""
    while len(body) < length:
        part = link.recv(length - len(body))
        if not part:
            return None
        body += part
    return json.loads(body), list(files)


def _answer(link: socket.socket, reason: str | None) -> None:
    link.sendall(json.dumps({"reason": reason}).encode() + b"\n")


def _let_forks_end_threads() -> None:
    """Fork once: OpenBLAS ends its threads before any fork and starts them when they are needed again."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def reason_against_fork() -> str | None:
    """Why a fork of this process would not equal an executed rank. None: it would."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        return f"{threads} threads run after the imports"
    for file in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{file}")
            if path.startswith("/dev/nvidia"):
                return f"{path} is open"
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return "CUDA is initialised"
    return None


def _fork_rank(files: list[int], request: dict[str, Any], progress: rank_progress.ShownProgress) -> bool:
    """Fork a rank whose parent is the agent. True in the rank.

    The process in between ends at once, so that the rank becomes a child of the agent, which is a subreaper.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    if os.fork():
        os._exit(0)
    os.setsid()
    while os.getppid() != request["agent"]:
        os.sched_yield()
    stdin, stdout, stderr, reply, *page = files
    for file, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(file, number)
    with suppress(Exception):  # the rank matters more
        for file in page:
            progress.open(file)
    os.write(reply, f"{os.getpid()}\n".encode())
    for file in files:
        os.close(file)
    return True


def _place(request: dict[str, Any]) -> None:
    """What an interpreter that executes the script has before its first line: the arguments and the path."""
    sys.orig_argv[:] = request["command"]
    sys.argv[:] = request["arguments"]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, request["path"])


def _become(request: dict[str, Any]) -> None:
    """In the rank: take its environment, and draw again what a fork would share."""
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.orig_argv[:] = request["command"]
    sys.argv[:] = request["arguments"]
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        # torch.seed() would touch the generators of GPUs as well, which are seeded when CUDA begins.
        torch.default_generator.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def _run(request: dict[str, Any], interrupted: list[bool]) -> None:
    """Run the script as the interpreter would, in a module `__main__` of its own."""
    rank_hooks.install()
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__builtins__=sys.modules["builtins"])
    if sys.version_info < (3, 14):
        main_module.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main_module
    try:
        if request["module"]:
            import runpy

            runpy._run_module_as_main(request["script"])  # type: ignore[attr-defined]
        else:
            _run_file(request["file"], main_module)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the interpreter reports all of them
        interrupted += [True] * isinstance(error, KeyboardInterrupt)
        _report(error)


def _run_file(script: str, main_module: types.ModuleType) -> None:
    from importlib.machinery import SourceFileLoader

    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    main_module.__dict__.update(__file__=script, __cached__=None, __loader__=SourceFileLoader("__main__", script))
    exec(code, main_module.__dict__)  # noqa: S102 - it is the user's script


def _report(error: BaseException) -> NoReturn:
    """Print the traceback without the frames of this file, and end as the interpreter does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)
    raise SystemExit(1)


def _die_if(interrupted: list[bool]) -> None:
    """The interpreter ends by SIGINT after a KeyboardInterrupt, once all else has been cleaned up.

    This was registered before all other callbacks, so that it runs after them.
    """
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
