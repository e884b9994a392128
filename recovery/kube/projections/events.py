"""Decodes Events, for the reasons why an object could not be created."""

from datetime import datetime

import msgspec

from recovery.core.model.ledger_bounds import EARLIEST
from recovery.kube.projections.metadata import Date, clamped


class _Involved(msgspec.Struct, frozen=True):
    uid: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: Date | None = None


class EventRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An Event, dated by the fields that its author used. An Event of `events.k8s.io` has a series once it repeats."""

    message: str = ""
    event_time: Date | None = None
    last_timestamp: Date | None = None
    series: _Series | None = None
    involved_object: _Involved = _Involved()

    @property
    def at(self) -> datetime:
        repeated_at = self.series.last_observed_time if self.series is not None else None
        return clamped(self.last_timestamp or repeated_at or self.event_time or EARLIEST)


decode_event = msgspec.json.Decoder(EventRecord).decode
