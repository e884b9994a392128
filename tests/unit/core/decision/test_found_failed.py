"""A JobSet that became Failed while no controller ran. Its pods are gone, and with them most of the evidence."""

import msgspec

from recovery.core.model.ledger import Outcome
from recovery.core.model.reason import Reason
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World


def failed_unseen(reason: str) -> World:
    """The Job failed for that reason, its pods were deleted, and its JobSet failed. Then the controller starts."""
    world = training().job_failing(reason, -60, finally_=True).jobset_failed(-58)
    return msgspec.structs.replace(world, pods=()).controller_restarted()


def test_the_sentence_tells_how_the_job_failed() -> None:
    controller = Controller()
    controller.settle(failed_unseen("BackoffLimitExceeded"), 0)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.FAILED, "PlatformGaveUp")
    assert incident.reason is Reason.PLATFORM_GAVE_UP
    assert controller.workload_actions == []


def test_it_begins_when_the_job_began_to_fail_and_ends_with_the_job_set() -> None:
    """The ranks were idle from then on, and no pod is left that shows when the loss occurred."""
    controller, world = Controller(), failed_unseen("BackoffLimitExceeded")
    controller.settle(world, 0)
    (incident,) = controller.recorded
    (job,) = world.jobs
    failing = job.condition("FailureTarget") or job.condition("Failed")
    assert failing is not None
    assert incident.started_at == failing.since
    assert incident.closing is not None
    assert (incident.closing.ended_at - incident.started_at).total_seconds() >= 2


def test_a_job_that_failed_as_its_user_wrote_is_no_platform_that_gave_up() -> None:
    controller = Controller()
    controller.settle(failed_unseen("PodFailurePolicy"), 0)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.FAILED, "NativePolicy")
    assert incident.reason is Reason.NATIVE_POLICY


def test_it_is_reported_once() -> None:
    controller, world = Controller(), failed_unseen("BackoffLimitExceeded")
    controller.settle(world, 0)
    assert controller.settle(world, 60).reason is Reason.JOB_SET_FAILED
    assert len(controller.recorded) == 1
