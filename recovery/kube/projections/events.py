"""Events, as far as they tell why an object does not come to be."""

from datetime import datetime

import msgspec

from recovery.core.model.ledger_bounds import EARLIEST
from recovery.kube.projections.metadata import Date, clamped


class _Involved(msgspec.Struct, frozen=True):
    uid: str = ""


class EventRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An Event, dated by whichever of the two ways its author used."""

    message: str = ""
    event_time: Date | None = None
    last_timestamp: Date | None = None
    involved_object: _Involved = _Involved()

    @property
    def at(self) -> datetime:
        return clamped(self.last_timestamp or self.event_time or EARLIEST)


decode_event = msgspec.json.Decoder(EventRecord).decode
