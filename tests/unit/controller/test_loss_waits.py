"""How long a loss waited for its ledger, and what took most of that time."""

from recovery.controller.loss_waits import LossWaits
from recovery.core.model.facts import GroupKey
from recovery.ports import LossWait
from tests.unit.controller.fakes import Ears, SetClock

ONE, OTHER = GroupKey("ml", "one"), GroupKey("ml", "other")


class Scene:
    def __init__(self) -> None:
        self.clock = SetClock()
        self.ears = Ears()
        self.waits = LossWaits(self.clock, self.ears)

    def noticed_and_begun(self, *, waited: float) -> None:
        self.waits.noticed(ONE)
        self.clock.seconds += waited
        self.waits.begun(ONE)


def test_the_wait_is_from_the_first_event_until_the_ledger_and_is_reported_once() -> None:
    scene = Scene()
    scene.waits.noticed(ONE)
    scene.clock.seconds += 0.25
    scene.noticed_and_begun(waited=0.5)
    scene.clock.seconds += 0.25
    scene.waits.opened(ONE)
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == [(LossWait.QUEUE, 1.0)]


def test_requests_are_the_cause_if_they_took_most_of_it() -> None:
    scene = Scene()
    scene.noticed_and_begun(waited=0.25)
    scene.clock.seconds += 0.75
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == [(LossWait.REQUESTS, 1.0)]


def test_a_failed_reconcile_is_the_cause_if_there_was_one() -> None:
    scene = Scene()
    scene.noticed_and_begun(waited=0.25)
    scene.waits.failed(ONE)
    scene.clock.seconds += 10
    scene.waits.begun(ONE)
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == [(LossWait.BACKOFF, 10.25)]


def test_what_a_reconcile_did_not_take_for_a_loss_waits_no_longer() -> None:
    scene = Scene()
    scene.noticed_and_begun(waited=1)
    scene.waits.succeeded(ONE)
    scene.noticed_and_begun(waited=2)
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == [(LossWait.QUEUE, 2.0)]


def test_what_came_during_a_reconcile_waits_for_the_next_one() -> None:
    scene = Scene()
    scene.waits.begun(ONE)
    scene.waits.noticed(ONE)
    scene.waits.succeeded(ONE)
    scene.clock.seconds += 3
    scene.waits.begun(ONE)
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == [(LossWait.QUEUE, 3.0)]


def test_an_incident_that_no_event_announced_has_waited_for_nothing() -> None:
    scene = Scene()
    scene.waits.noticed(OTHER)
    scene.waits.opened(ONE)
    assert scene.ears.loss_waits == []
