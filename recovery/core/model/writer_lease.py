"""The Lease by which a controller was elected, as its ledgers name it."""

from datetime import datetime

import msgspec


class WriterLease(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease `recovery-controller`. Replicas of one installation have the same, and one of them leads."""

    namespace: str
    uid: str
    created_at: datetime
    """When the API server created the Lease: an age that does not depend on the clocks of controllers."""
    duration_seconds: int
    """How long its leader may be silent before a standby leads."""

    def __str__(self) -> str:
        return f"of namespace {self.namespace}, created at {self.created_at:%Y-%m-%dT%H:%M:%SZ}"

    def older_than(self, other: "WriterLease") -> bool:
        """Whether this Lease goes first. Both controllers get the same answer."""
        return (self.created_at, self.uid) < (other.created_at, other.uid)
