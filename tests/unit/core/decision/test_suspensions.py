"""The ledger keeps when the group was last suspended, for a leader that sees only the resume."""

import pytest

from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Ledger
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

SUSPENDED, RESUMED = 100, 102
LATE = 200
"""The last delete of a pod whose node did not answer for a while: long after the grace period."""


LOST = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
TRAINS = LOST.job_deleted(3).recreated(4).all_ready(10)
"""The group has been recreated for a loss."""


def after_an_incident() -> Controller:
    """The group has a ledger. No incident is open."""
    controller = Controller(policy())
    controller.reconcile(LOST, 2)
    controller.settle(TRAINS, 12)
    assert controller.ledger.incident is None
    return controller


def suspended() -> World:
    condition = Condition("Suspended", "True", "JobSuspended", "Job suspended", at(SUSPENDED))
    return TRAINS.suspended().with_job(conditions=(condition,))


def resumed() -> World:
    return TRAINS.suspended().resumed(RESUMED).all_ready(LATE - 50)


def ends_late() -> World:
    """Rank 1 of the earlier run ends late. This process saw neither the suspension nor the first delete."""
    old = TRAINS.pod_deleted(1, LATE, grace_seconds=0).with_pod(1, deletion_dated_again=True)
    return old.suspended().resumed(RESUMED).all_ready(LATE - 50)


def test_a_ledger_has_the_date_of_the_suspension() -> None:
    controller = after_an_incident()
    controller.reconcile(suspended(), SUSPENDED + 1)
    assert controller.ledger.suspended_at == at(SUSPENDED)


def test_it_keeps_the_date_when_the_jobs_show_only_the_resume() -> None:
    controller = after_an_incident()
    controller.reconcile(suspended(), SUSPENDED + 1)
    controller.reconcile(resumed(), LATE)
    assert controller.ledger.suspended_at == at(SUSPENDED)


def test_a_suspension_that_only_this_process_remembers_is_written_too() -> None:
    controller = after_an_incident()
    controller.reconcile(resumed().with_job(suspended_at=at(SUSPENDED)), LATE - 1)
    assert controller.ledger.suspended_at == at(SUSPENDED)


def test_no_ledger_is_created_for_it() -> None:
    controller = Controller(policy())
    controller.reconcile(suspended(), SUSPENDED + 1)
    assert controller.ledger == Ledger()


@pytest.mark.parametrize(("known", "incidents"), [(True, 1), (False, 2)], ids=["in the ledger", "not known"])
def test_the_next_leader_takes_the_end_of_an_older_pod_for_no_loss(known: bool, incidents: int) -> None:
    controller = after_an_incident()
    if known:
        controller.reconcile(suspended(), SUSPENDED + 1)
    controller.reconcile(ends_late(), LATE + 1)
    assert controller.ledger.totals.incidents == incidents
