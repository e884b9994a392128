"""Limits admission's reads from the API server: any client of the webhooks can cause reads with our permissions."""

import structlog

from recovery.ports import Clock

_log = structlog.get_logger("recovery.admission")


class ReadLimit:
    """A token bucket: this many reads per second, and as many at once."""

    def __init__(self, clock: Clock, per_second: float, complaint: str) -> None:
        """`complaint`: the warning for the first refused read. It is logged again only after an allowed one."""
        self._clock = clock
        self._per_second = per_second
        self._complaint = complaint
        self._left = per_second
        self._counted_at_seconds = clock.monotonic_seconds()
        self._complained = False

    def allows(self) -> bool:
        """Whether one more read is allowed. If so, it is counted."""
        now = self._clock.monotonic_seconds()
        earned = (now - self._counted_at_seconds) * self._per_second
        self._left, self._counted_at_seconds = min(self._per_second, self._left + earned), now
        if self._left >= 1:
            self._left -= 1
            self._complained = False
            return True
        if not self._complained:
            _log.warning(self._complaint, reads_per_second_max=self._per_second)
            self._complained = True
        return False
