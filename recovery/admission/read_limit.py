"""How often admission reads from the API server: any client of the webhooks can cause reads with our rights."""

import structlog

from recovery.ports import Clock

_log = structlog.get_logger("recovery.admission")


class ReadLimit:
    """So many reads in a second, and as many at once."""

    def __init__(self, clock: Clock, per_second: float, complaint: str) -> None:
        """`complaint`: what the log says when there are too many, once until there are not."""
        self._clock = clock
        self._per_second = per_second
        self._complaint = complaint
        self._left = per_second
        self._counted_at_seconds = clock.monotonic_seconds()
        self._complained = False

    def allows(self) -> bool:
        """One more read, which counts."""
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
