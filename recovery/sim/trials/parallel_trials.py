"""Trials side by side: one process for each core, none of which outlives the command."""

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
    """Work that failed, or a process that died in it; the message says which, and how."""


def in_processes(work: Callable[[int], T], seeds: Sequence[int], workers: int) -> Generator[tuple[int, T], None, None]:
    """Seeds with what came of them, in the order in which they are done. Raises WorkerError.

    `work` is a function of a module, and its results can be pickled. When the iteration ends, for whatever reason, so
    have the processes: close it (`contextlib.closing`) if it may be left early.
    """
    context = multiprocessing.get_context("spawn")  # Forking a process that may have threads is not safe.
    resource_tracker.ensure_running()  # Started with the first process, it would unblock the signals that we block.
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
    """Until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; ours are ended by ours.
    _end_with_parent()
    gc.freeze()  # Each trial collects garbage before it begins; what is imported is none.
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
    """A parent that is killed cannot end its processes, and none of them would notice before its trial is over."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of ours"

    def outlive_no_one() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=outlive_no_one, daemon=True).start()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process begins with its parent's signal mask: Ctrl-C while it is still loading would end in a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
