"""Events, as far as they tell why an object does not come to be."""

from datetime import UTC, datetime

import msgspec

_NEVER = datetime.min.replace(tzinfo=UTC)


class _Involved(msgspec.Struct, frozen=True):
    uid: str = ""


class EventRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An Event, dated by whichever of the two ways its author used."""

    message: str = ""
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    involved_object: _Involved = _Involved()

    @property
    def at(self) -> datetime:
        return self.last_timestamp or self.event_time or _NEVER


decode_event = msgspec.json.Decoder(EventRecord).decode
