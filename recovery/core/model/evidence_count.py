"""How many signs of a disruption an incident has seen."""

from datetime import datetime

import msgspec


class EvidenceCount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many signs of one kind an incident has."""

    kind: str
    """What happened, such as PodDeleted."""
    count: int
    detail: str = ""
    """Who disrupted the pods, such as EvictionByEvictionAPI. Empty: no one says so."""
    first_at: datetime | None = None
    """Date of the first sign. None: none has a date."""
    last_at: datetime | None = None
    """Date of the last sign. None: none has a date."""
