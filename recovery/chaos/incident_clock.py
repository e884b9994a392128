"""The time by which incidents are measured: that of the controller, not that of the client."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from recovery.core.model.ledger import Incident
from recovery.ports import Clock


class IncidentClock:
    """Begins with the latest date in the incidents, and goes on from there by the client's seconds.

    The clock of a laptop may be minutes off. Compared with the dates of the controller, it would abort a drill that is
    within its objectives. This time is never ahead of the controller's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest: datetime | None = None
        self._seen_seconds = 0.0

    def now(self, incidents: Iterable[Incident]) -> datetime | None:
        """None: no incident has been seen."""
        dates = [date for each in incidents for date in _dates(each)]
        present = self._present()
        if dates and (present is None or max(dates) > present):
            self._latest, self._seen_seconds = max(dates), self._clock.monotonic_seconds()
        return self._present()

    def _present(self) -> datetime | None:
        if self._latest is None:
            return None
        return self._latest + timedelta(seconds=self._clock.monotonic_seconds() - self._seen_seconds)


def _dates(incident: Incident) -> Iterable[datetime]:
    yield incident.detected_at
    for span in incident.phases:
        yield span.started_at
        if span.ended_at is not None:
            yield span.ended_at
