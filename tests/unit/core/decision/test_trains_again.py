"""Trainer 2.3 creates the JobSet of a failed job again once the old one is gone. The controller says so."""

import msgspec

from recovery.core.diagnosis.group_conditions import TRAINS_AGAIN
from recovery.core.model.annotations import KUEUE_QUEUE_LABEL
from recovery.core.model.ledger import Outcome
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.policy.spec import OnTerminalFailure
from tests.unit.core.decision.test_recreated_jobset import given_up, with_new_jobset, without_jobset
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World

SENTENCE = (
    "The job had failed, and its JobSet was deleted by its ttlSecondsAfterFinished (60) or by a client. Trainer has "
    "created another one, so the job trains again. To stop it, suspend or delete the TrainJob. A job stays failed if "
    "its runtime has no ttlSecondsAfterFinished when it is created"
)


def revived(labels: dict[str, str] | None = None, seconds: float = 65) -> World:
    world = with_new_jobset(without_jobset(given_up()), seconds).with_jobset(ttl_seconds=60)
    return world.job_created(seconds).pods_created(seconds).all_ready(seconds + 5).with_workload(labels=labels or {})


def condition(controller: Controller) -> LedgerCondition | None:
    return next((each for each in controller.ledger.conditions if each.type == TRAINS_AGAIN), None)


def failed() -> Controller:
    """The platform gave up, and the incident is recorded."""
    controller = Controller()
    controller.settle(given_up(), 4)
    assert controller.recorded[-1].closing.outcome is Outcome.FAILED  # type: ignore[union-attr]
    return controller


def test_a_failed_job_whose_jobset_is_created_again_trains_again_and_that_is_said_once() -> None:
    controller = failed()
    controller.settle(without_jobset(given_up()), 64)
    assert condition(controller) is None
    controller.settle(revived(), 71)
    found = condition(controller)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "JobSetCreatedAgain", SENTENCE)
    controller.settle(revived(), 600)
    assert controller.events.count("TrainsAgain") == 1
    assert controller.workload_actions == []
    assert len(controller.recorded) == 1, "a revival is no loss"


def test_the_totals_go_on() -> None:
    controller = failed()
    before = controller.ledger.totals
    controller.settle(revived(), 71)
    assert controller.ledger.totals == before
    assert before.incidents == 1
    controller.reconcile(revived().pod_deleted(3, 100), 101)
    assert controller.incident.number == 2


def test_without_a_ttl_a_client_has_deleted_it() -> None:
    controller = failed()
    controller.settle(revived().with_jobset(ttl_seconds=None), 71)
    assert condition(controller).message.startswith(  # type: ignore[union-attr]
        "The job had failed, and its JobSet was deleted by a client. Trainer has created another one"
    )


def test_under_kueue_it_runs_outside_its_quota() -> None:
    controller = failed()
    controller.settle(revived({KUEUE_QUEUE_LABEL: "research"}), 71)
    assert (
        "so the job trains again, outside the quota of Kueue, which was released when it failed. To stop it"
        in condition(controller).message  # type: ignore[union-attr]
    )


def test_the_condition_is_false_once_the_new_jobset_has_ended_too() -> None:
    controller = failed()
    controller.settle(revived(), 71)
    controller.settle(revived().jobset_completed(), 600)
    assert condition(controller).status == "False"  # type: ignore[union-attr]


def test_a_jobset_that_is_gone_before_its_incident_is_recorded_is_known_as_well() -> None:
    """A TTL of 0: the reconcile that records the incident finds none, or the next one."""
    controller = Controller()
    controller.reconcile(given_up(), 4)
    controller.settle(without_jobset(given_up()), 4.1)
    controller.settle(revived(), 71)
    assert condition(controller).status == "True"  # type: ignore[union-attr]


def test_one_that_we_have_created_again_has_not_failed_before() -> None:
    controller = Controller(policy(on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET))
    controller.settle(given_up(), 4)
    controller.settle(without_jobset(given_up()), 5)
    controller.settle(revived(), 80)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert condition(controller) is None


def test_a_job_that_has_never_failed_does_not_train_again() -> None:
    controller = Controller()
    controller.settle(training(4).pod_failed(3, 1, 0), 1)
    world = msgspec.structs.replace(training(4), jobset=training(4).with_jobset(uid="jobset-2").jobset)
    controller.settle(world, 60)
    assert condition(controller) is None
