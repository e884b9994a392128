"""A status condition of our own objects."""

from datetime import datetime

import msgspec


class LedgerCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A status condition as Kubernetes tools expect it."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: datetime
    observed_generation: int = 0
