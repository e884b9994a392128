"""Reads the logs of suspects in tasks of their own, so that no trigger waits for a log.

A read that misses its deadline is abandoned, and no read is retried. A log that has arrived is kept here until the
ledger has it. A new process reads a log only if it still has to make the trigger.
"""

import asyncio
import traceback

import msgspec
import structlog

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.core.plan.log_to_read import LogToRead
from recovery.executors.suspect_log import read_log
from recovery.ports import ApiClient

_log = structlog.get_logger("recovery.controller")

DEADLINE_SECONDS = 0.5
READS_AT_ONCE = 16
"""In a storm hundreds of groups read a log each, and reads from silent nodes hang. The live reads that decisions wait
for share the client's connections with them. The wait for a turn counts against the deadline."""


class _Reading(msgspec.Struct):
    incident_id: str
    task: asyncio.Task[SuspectLog] | None = None
    """None: no read is in progress."""
    found: SuspectLog | None = None
    """None: the log has not arrived, or the ledger has it."""


class SuspectLogs:
    """The logs of one term of leadership, at most one for each group."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._places = asyncio.Semaphore(READS_AT_ONCE)
        self._readings: dict[GroupKey, _Reading] = {}

    def begin(self, key: GroupKey, wanted: LogToRead) -> None:
        """Start to read the log, unless this incident already has a read. Returns at once."""
        before = self._readings.get(key)
        if before is not None and before.incident_id == wanted.incident_id:
            return
        self.forget(key)
        reading = _Reading(wanted.incident_id)
        self._readings[key] = reading
        if wanted.known.absent is not None:
            reading.found = wanted.known
            return
        task = asyncio.create_task(self._read(key.namespace, wanted.known))
        reading.task = task
        task.add_done_callback(lambda done: _ended(key, reading, done))

    def with_log(self, key: GroupKey, incident: Incident) -> Incident:
        """The incident with its log, if the log has arrived and is not in the incident yet."""
        reading = self._readings.get(key)
        if reading is None or reading.found is None or reading.incident_id != incident.id:
            return incident
        return (
            incident
            if incident.suspect_log is not None
            else msgspec.structs.replace(incident, suspect_log=reading.found)
        )

    def reading(self, key: GroupKey) -> bool:
        """Whether a read is in progress."""
        reading = self._readings.get(key)
        return reading is not None and reading.task is not None

    def pending(self, key: GroupKey) -> bool:
        """Whether a read is in progress, or its log is not in the ledger yet."""
        reading = self._readings.get(key)
        return self.reading(key) or (reading is not None and reading.found is not None)

    def kept(self, key: GroupKey) -> None:
        """Drop the log: the ledger has it, or will never have it. The incident still counts as read."""
        reading = self._readings.get(key)
        if reading is not None:
            reading.found = None

    def forget(self, key: GroupKey) -> None:
        """Forget the group: its incident is over, or the group is gone."""
        reading = self._readings.pop(key, None)
        if reading is not None and reading.task is not None:
            reading.task.cancel()

    async def close(self) -> None:
        """Cancel the reads in progress."""
        tasks = [each.task for each in self._readings.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, namespace: str, known: SuspectLog) -> SuspectLog:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._places:
                return await read_log(self._api, namespace, known)
        except TimeoutError:
            return msgspec.structs.replace(known, absent=LogAbsence.TIMED_OUT)


def _ended(key: GroupKey, reading: _Reading, task: asyncio.Task[SuspectLog]) -> None:
    """The read is over. If it failed unexpectedly, there is no log."""
    reading.task = None
    if task.cancelled():
        return
    error = task.exception()
    if error is None:
        reading.found = task.result()
    else:
        # Without the exception's message: it may quote the log, which may contain secrets.
        stack = "".join(traceback.format_tb(error.__traceback__))
        words = "the read of a suspect's log failed: this is a bug"
        _log.error(words, job=str(key), incident=reading.incident_id, error=type(error).__name__, stack=stack)
