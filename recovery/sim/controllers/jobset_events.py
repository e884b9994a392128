"""The one Event of JobSet's controller that something here reads: Jobs could not be created.

Source: `tools/events` of client-go 0.36 (event_broadcaster.go). Events about the same version of an object with the
same reason are merged: the first is written, the second turns it into a series, and later ones are only counted. Left
out: the writes of the count every half hour and at the end of the series. The requests are not charged to the limiter:
they are few, and the client may send hundreds a second.
"""

from dataclasses import dataclass

from recovery.ports import EVENTS, JOB_SETS, Clock, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import micro_timestamp
from recovery.sim.api.server import ApiServer

JOB_CREATION_FAILED = "JobCreationFailed"
FORGOTTEN_AFTER_SECONDS = 360.0
"""If an Event does not occur again for this time, its next occurrence is written as a new Event."""
NOTE_MAX = 1024
"""Longest note in bytes. If it is longer, the API server refuses the whole Event, which is lost."""

Key = tuple[str, str]
"""UID and resourceVersion of the JobSet."""


@dataclass
class _Said:
    name: str
    count: int
    at_seconds: float
    """Time of the last occurrence."""


class JobSetEvents:
    """Writes the Events. The caller sets the actor with `server.acting`."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._said: dict[Key, _Said] = {}
        self._serial = 0

    def jobs_refused(self, jobset: Body, note: str) -> None:
        """Record that a sync could not create Jobs."""
        if len(note.encode()) > NOTE_MAX:
            return
        now = self._clock.monotonic_seconds()
        due = [key for key, said in self._said.items() if said.at_seconds < now - FORGOTTEN_AFTER_SECONDS]
        for key in due:
            del self._said[key]
        metadata = jobset["metadata"]
        key = metadata["uid"], metadata["resourceVersion"]
        said = self._said.get(key)
        if said is None:
            self._said[key] = _Said(self._write(jobset, note), 1, now)
            return
        said.count, said.at_seconds = said.count + 1, now
        if said.count == 2:
            series = {"count": 2, "lastObservedTime": micro_timestamp(self._clock.now())}
            patch = {"series": series}
            namespace = metadata["namespace"]
            self._server.patch(EVENTS, said.name, patch, kind=PatchKind.MERGE, namespace=namespace)

    def _write(self, jobset: Body, note: str) -> str:
        """Write a new Event. Returns its name."""
        metadata = jobset["metadata"]
        self._serial += 1
        name = f"{metadata['name']}.{self._serial:016x}"
        event: Body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": JOB_SETS.api_version,
                "kind": JOB_SETS.kind,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": "Warning",
            "reason": JOB_CREATION_FAILED,
            "action": "Reconciling",
            "message": note,
            "eventTime": micro_timestamp(self._clock.now()),
            "reportingComponent": "jobset",
            "reportingInstance": "jobset-controller-0",
            "source": {},
        }
        self._server.create(EVENTS, event, namespace=metadata["namespace"])
        return name
