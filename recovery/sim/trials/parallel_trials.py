"""Runs trials in parallel, in worker processes that never outlive the command."""

import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerError(Exception):
    """The work for a seed failed, or the process that did it died. The message says which seed, and how."""


def in_processes(work: Callable[[int], T], seeds: Sequence[int], workers: int) -> Generator[tuple[int, T], None, None]:
    """Yields each seed with its result, in the order in which they finish. Raises WorkerError.

    `work` must be a module-level function, and its results must be picklable. The processes end with the iteration, for
    whatever reason it ends. Close it (`contextlib.closing`) if you may leave it early.
    """
    context = multiprocessing.get_context("spawn")  # Forking a process that may have threads is not safe.
    resource_tracker.ensure_running()  # If the first process started it, it would unblock the signals that we block.
    waiting = iter(seeds)
    busy: dict[Connection, int] = {}
    processes = []
    try:
        for _ in range(min(workers, len(seeds))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work), daemon=True)
            processes.append(process)
            with _interrupts_blocked():
                process.start()
            theirs.close()
            _give(ours, next(waiting), busy)
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                seed = busy.pop(connection)
                result: T = _received(connection, seed)
                yield seed, result
                following = next(waiting, None)
                if following is not None:
                    _give(connection, following, busy)
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def _give(connection: Connection, seed: int, busy: dict[Connection, int]) -> None:
    connection.send(seed)
    busy[connection] = seed


def _received(connection: Connection, seed: int) -> Any:
    try:
        result, failure = connection.recv()
    except EOFError:
        raise WorkerError(f"seed {seed}: the process that ran it died (killed, or out of memory)") from None
    if failure:
        raise WorkerError(f"seed {seed}: the simulation itself failed:\n{failure}")
    return result


def _serve(connection: Connection, work: Callable[[int], object]) -> None:
    """Works until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal. The parent ends ours.
    _end_with_parent()
    gc.freeze()  # Each trial collects garbage before it begins, and imported modules are never garbage.
    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        result: object = None
        failure = ""
        try:
            result = work(seed)
        except Exception:  # noqa: BLE001 - reported on the other side
            failure = traceback.format_exc()
        try:
            connection.send((result, failure))
        except BrokenPipeError:
            return


def _end_with_parent() -> None:
    """Ends this process when its parent dies. A killed parent cannot do it, and the trial would run to its end."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of ours"

    def outlive_no_one() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=outlive_no_one, daemon=True).start()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT. A new process inherits this mask, so Ctrl-C while it still loads does not end in a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
