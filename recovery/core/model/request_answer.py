"""The answer to a request that a user wrote on the job."""

from datetime import datetime

import msgspec

from recovery.core.model.reason import Reason


class RequestAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to a user's request (`core.incident.requests`). `at` shows whether a request is new."""

    verb: str
    """What was requested: restart, retry or reset-budget."""
    at: datetime
    """When the user made the request."""
    accepted: bool
    reason: Reason = Reason.UNKNOWN
    """What was done, or why the request was refused."""
    message: str = msgspec.field(name="answer", default_factory=str)
    """What was done, or why the request was refused, as a sentence."""
