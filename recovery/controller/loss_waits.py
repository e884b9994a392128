"""How long a possible loss waits for its ledger: from the event until the write that opens the incident.

Only this process knows it. The dates of the objects are whole seconds of other clocks.
"""

from recovery.controller.observer import ControllerObserver
from recovery.core.model.facts import GroupKey
from recovery.ports import Clock, LossWait


class _Wait:
    """A possible loss that no reconcile has judged yet."""

    def __init__(self, since: float) -> None:
        self.since = since
        """When the first of its events came."""
        self.begun: float | None = None
        """When the reconcile that is to judge it began. None: it has not."""
        self.failed = False
        """A reconcile has failed meanwhile."""
        self.later: float | None = None
        """When an event came that the running reconcile may not have seen. None: no such event came."""


class LossWaits:
    """The possible losses that wait. All times are the clock's monotonic seconds."""

    def __init__(self, clock: Clock, observer: ControllerObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._waits: dict[GroupKey, _Wait] = {}

    def noticed(self, key: GroupKey) -> None:
        """A watch has shown a sign of a loss."""
        now = self._clock.monotonic_seconds()
        wait = self._waits.setdefault(key, _Wait(now))
        if wait.begun is not None and wait.later is None:
            wait.later = now

    def begun(self, key: GroupKey) -> None:
        """A reconcile of the group begins."""
        if (wait := self._waits.get(key)) is not None:
            wait.begun, wait.later = self._clock.monotonic_seconds(), None

    def failed(self, key: GroupKey) -> None:
        """That reconcile has failed. The next one judges the loss."""
        if (wait := self._waits.get(key)) is not None:
            wait.failed = True

    def succeeded(self, key: GroupKey) -> None:
        """That reconcile is over. What it has not written is no loss. What came meanwhile waits for the next one."""
        wait = self._waits.get(key)
        if wait is not None and wait.begun is not None:
            self._over(key, wait)

    def opened(self, key: GroupKey) -> None:
        """Report the wait: a ledger write has opened an incident."""
        wait = self._waits.get(key)
        if wait is None or wait.begun is None:
            return
        self._over(key, wait)
        now = self._clock.monotonic_seconds()
        requests, seconds = now - wait.begun, now - wait.since
        cause = LossWait.REQUESTS if 2 * requests > seconds else LossWait.QUEUE
        self._observer.loss_waited(LossWait.BACKOFF if wait.failed else cause, seconds)

    def _over(self, key: GroupKey, wait: _Wait) -> None:
        """The reconcile has judged what had come by then. What has come since waits for the next one."""
        del self._waits[key]
        if wait.later is not None:
            self._waits[key] = _Wait(wait.later)
