"""Runs trials in parallel, in worker processes that never outlive the command."""

import gc
import itertools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkerError(Exception):
    """The work for a seed failed, or the process that did it died. The message says which seed, and how."""


@dataclass(frozen=True)
class NoResult:
    """The work for a seed gave no result."""

    why: str
    """As the end of a sentence about the seed."""
    hung: bool = False
    """It had not ended after its time."""


def in_processes(work: Callable[[int], T], seeds: Sequence[int], workers: int) -> Generator[tuple[int, T], None, None]:
    """Yields each seed with its result, in the order in which they finish. Raises WorkerError.

    `work` must be a module-level function, and its results must be picklable. The processes end with the iteration, for
    whatever reason it ends. Close it (`contextlib.closing`) if you may leave it early.
    """
    with closing(tried_in_processes(work, seeds, workers, limit_seconds=None)) as tried:
        for seed, result in tried:
            if isinstance(result, NoResult):
                raise WorkerError(f"seed {seed}: {result.why}")
            yield seed, result


def tried_in_processes(
    work: Callable[[int], T], seeds: Sequence[int], workers: int, *, limit_seconds: float | None
) -> Generator[tuple[int, T | NoResult], None, None]:
    """Like `in_processes`, but goes on after a seed without a result, with another process where it needs one.

    `limit_seconds`: the time that each seed has, from the moment that a process begins with it. None: any time.
    """
    waiting = iter(seeds)
    pool = _Pool(work, limit_seconds)
    try:
        for seed in itertools.islice(waiting, workers):
            pool.start(seed)
        while pool.busy:
            for worker, result in pool.results():
                yield worker.seed, result
                following = next(waiting, None)
                if following is None:
                    continue
                if worker.process.is_alive():
                    worker.give(following)
                else:
                    pool.replace(worker, following)
    finally:
        pool.end()


class _Worker:
    """A process, and the seed that it works on."""

    def __init__(self, process: SpawnProcess, connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.seed = 0
        self.busy = False
        self.due_seconds: float | None = None
        """When the time of its seed is over. None: it has not begun, or may take any time."""

    def give(self, seed: int) -> None:
        self.seed, self.busy, self.due_seconds = seed, True, None
        with suppress(BrokenPipeError):  # It has just died, and its connection shows that next.
            self.connection.send(seed)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Pool(Generic[T]):
    def __init__(self, work: Callable[[int], T], limit_seconds: float | None) -> None:
        self._work = work
        self._limit_seconds = limit_seconds
        self._context = multiprocessing.get_context("spawn")  # Forking a process that may have threads is not safe.
        self._workers: list[_Worker] = []
        # If the first process started it, it would unblock the signals that we block.
        resource_tracker.ensure_running()

    @property
    def busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.busy]

    def start(self, seed: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work), daemon=True)
        worker = _Worker(process, ours)
        with _interrupts_blocked():
            process.start()
            self._workers.append(worker)
        theirs.close()
        worker.give(seed)

    def replace(self, worker: _Worker, seed: int) -> None:
        self._workers.remove(worker)
        worker.end()
        self.start(seed)

    def results(self) -> Iterator[tuple[_Worker, T | NoResult]]:
        """Waits for the next ones. The process of a seed that has hung, or whose process died, has ended."""
        dues = [worker.due_seconds for worker in self.busy if worker.due_seconds is not None]
        left_seconds = max(0.0, min(dues) - time.monotonic()) if dues else None
        ready = wait([worker.connection for worker in self.busy], left_seconds)
        for worker in self.busy:
            if worker.connection in ready:
                yield from self._received(worker)
            elif worker.due_seconds is not None and worker.due_seconds <= time.monotonic():
                worker.busy = False
                worker.process.kill()
                worker.process.join()
                yield worker, NoResult(f"it has not ended after {self._limit_seconds:g} s", hung=True)

    def _received(self, worker: _Worker) -> Iterator[tuple[_Worker, T | NoResult]]:
        """The result that the process has sent, or none if it has only begun."""
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.busy = False
            worker.process.join()
            yield worker, NoResult("the process that ran it died (killed, or out of memory)")
            return
        if message is None:
            worker.due_seconds = None if self._limit_seconds is None else time.monotonic() + self._limit_seconds
            return
        result, failure = message
        worker.busy = False
        yield worker, NoResult(f"the simulation itself failed:\n{failure}") if failure else result

    def end(self) -> None:
        for worker in self._workers:
            worker.end()


def _serve(connection: Connection, work: Callable[[int], object]) -> None:
    """Works until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal. The parent ends ours.
    _end_with_parent()
    gc.freeze()  # Each trial collects garbage before it begins, and imported modules are never garbage.
    while True:
        try:
            seed = connection.recv()
            connection.send(None)  # It has begun.
        except (EOFError, BrokenPipeError):
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
