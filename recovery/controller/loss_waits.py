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


class LossWaits:
    """The possible losses that wait. All times are the clock's monotonic seconds."""

    def __init__(self, clock: Clock, observer: ControllerObserver) -> None:
        self._clock = clock
        self._observer = observer
        self._waits: dict[GroupKey, _Wait] = {}

    def noticed(self, key: GroupKey) -> None:
        """A watch has shown a sign of a loss."""
        if key not in self._waits:
            self._waits[key] = _Wait(self._clock.monotonic_seconds())

    def begun(self, key: GroupKey) -> None:
        """A reconcile of the group begins."""
        if (wait := self._waits.get(key)) is not None:
            wait.begun = self._clock.monotonic_seconds()

    def failed(self, key: GroupKey) -> None:
        """That reconcile has failed. The next one judges the loss."""
        if (wait := self._waits.get(key)) is not None:
            wait.failed = True

    def succeeded(self, key: GroupKey) -> None:
        """That reconcile is over. What it has not written is no loss. What came meanwhile waits for the next one."""
        wait = self._waits.get(key)
        if wait is not None and wait.begun is not None:
            del self._waits[key]

    def opened(self, key: GroupKey) -> None:
        """Report the wait: a ledger write has opened an incident."""
        wait = self._waits.pop(key, None)
        if wait is None or wait.begun is None:
            return
        now = self._clock.monotonic_seconds()
        requests, seconds = now - wait.begun, now - wait.since
        cause = LossWait.REQUESTS if 2 * requests > seconds else LossWait.QUEUE
        self._observer.loss_waited(LossWait.BACKOFF if wait.failed else cause, seconds)
