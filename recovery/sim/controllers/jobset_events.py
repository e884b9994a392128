"""Events of JobSet's controller, as far as something here reads them: that Jobs could not be created.

Source: `tools/events` of client-go 0.36 (event_broadcaster.go). Like Events, about the same version of an object and
with the same reason, are one: the first is written, the second makes a series of it, and the others are only counted.
Left out: that the count is written every half hour, and when the series ends. Nor does it cost requests: few are sent,
by a client that has hundreds a second.
"""

from dataclasses import dataclass

from recovery.ports import EVENTS, JOB_SETS, Clock, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import micro_timestamp
from recovery.sim.api.server import ApiServer

JOB_CREATION_FAILED = "JobCreationFailed"
FORGOTTEN_AFTER_SECONDS = 360.0
"""What has not been said again for so long begins a new Event."""
NOTE_MAX = 1024
"""If the note is longer, the API server refuses the whole Event, and it is lost."""

Key = tuple[str, str]
"""UID and resourceVersion of the JobSet."""


@dataclass
class _Said:
    name: str
    count: int
    at_seconds: float
    """When it was said last."""


class JobSetEvents:
    """Who writes them says by `server.acting` who it is."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._said: dict[Key, _Said] = {}
        self._serial = 0

    def jobs_refused(self, jobset: Body, note: str) -> None:
        """A sync could not create Jobs."""
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
        """Its name."""
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
