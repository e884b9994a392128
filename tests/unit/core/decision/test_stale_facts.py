"""While the watch of a resource is silent, no restart begins. A restart that the ledger holds already continues."""

import pytest

from recovery.core.incident.requests import Verb
from recovery.core.model.ledger import Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeletePods
from recovery.core.policy.spec import OnTerminalFailure
from tests.unit.core.decision.test_manual import asks
from tests.unit.core.decision.test_replacing_nodes import REPLACE_42, quarantined
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World

STANDS_ON = ("trainjobs", "jobsets", "jobs", "pods", "recoverypolicies", "clusterrecoverypolicies", "recoveryconfigs")


def lost() -> World:
    return training().pod_failed(2, 42, 0)


def condition(controller: Controller) -> LedgerCondition | None:
    return next((each for each in controller.ledger.conditions if each.type == "StaleFacts"), None)


@pytest.mark.parametrize("plural", STANDS_ON)
def test_no_restart_is_begun_and_its_incident_says_why(plural: str) -> None:
    controller = Controller()
    controller.reconcile(lost().unheard(plural), 1)
    assert controller.triggers == []
    assert controller.incident.reason is Reason.STALE_FACTS
    assert controller.incident.attempts == ()
    found = condition(controller)
    assert found is not None
    assert (found.status, found.reason) == ("True", "WatchSilent")


def test_it_is_begun_as_soon_as_all_is_current_again() -> None:
    controller = Controller()
    controller.reconcile(lost().unheard("pods"), 1)
    controller.reconcile(lost(), 2)
    assert len(controller.triggers) == 1
    found = condition(controller)
    assert found is not None
    assert found.status == "False"


def test_under_observe_nothing_is_said_that_enforce_would_not_do() -> None:
    controller = observing()
    controller.reconcile(lost().unheard("pods"), 1)
    assert controller.incident.would == ""
    controller.reconcile(lost(), 2)
    assert controller.incident.would == "RecreateGroup"


@pytest.mark.parametrize("plural", ["recoverygroups", "nodes"])
def test_what_a_restart_does_not_stand_on_does_not_bar_it(plural: str) -> None:
    controller = Controller()
    controller.reconcile(lost().unheard(plural), 1)
    assert len(controller.triggers) == 1


def test_a_restart_that_was_begun_is_completed() -> None:
    controller = Controller()
    controller.reconcile(lost(), 1)
    assert len(controller.triggers) == 1
    stale = lost().all_deleted(2).unheard("pods", "jobs")
    controller.done.clear()
    controller.reconcile(lost().unheard("pods", "jobs"), 3)
    assert len(controller.triggers) == 1, "the trigger of before is repeated, its target is in the ledger"
    assert any(isinstance(action, DeletePods) for action in controller.done)
    controller.settle(stale.recreated(10).all_ready(20).unheard("pods"), 21)
    assert controller.ledger.incident is None
    assert [each.outcome for each in controller.ledger.history] == ["Recovered"]


def test_another_loss_on_the_way_begins_no_further_restart() -> None:
    controller = Controller()
    controller.reconcile(lost(), 1)
    back = lost().recreated(10).all_started(15)
    controller.reconcile(back, 16)
    controller.done.clear()
    controller.reconcile(back.pod_failed(1, 1, 20).unheard("pods"), 21)
    assert controller.triggers == []
    assert len(controller.incident.attempts) == 1
    assert controller.incident.reason is Reason.STALE_FACTS
    controller.reconcile(back.pod_failed(1, 1, 20), 60)
    assert len(controller.incident.attempts) == 2


def test_a_terminal_jobset_waits_for_current_facts_and_is_not_given_up() -> None:
    controller = Controller(policy(on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET))
    failed = training().pod_failed(2, 42, 0).jobset_failed(1)
    controller.reconcile(failed.unheard("jobsets"), 2)
    assert controller.incident.closing is None
    assert controller.incident.reason is Reason.STALE_FACTS
    controller.reconcile(failed, 3)
    assert controller.incident.attempts[-1].action == "RecreateJobSet"


def test_with_stale_nodes_the_group_is_restarted_and_no_node_is_replaced() -> None:
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY))
    controller.reconcile(lost().unheard("nodes"), 1)
    assert (quarantined(controller), len(controller.triggers)) == ([], 1)
    assert [each.reason for each in controller.incident.considered] == [Reason.STALE_FACTS]
    assert controller.ledger.phase is not Phase.HELD


def test_what_is_current_replaces_the_node() -> None:
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY))
    controller.reconcile(lost(), 1)
    assert quarantined(controller) == ["gpu-2"]


def test_a_person_is_told_why_a_restart_is_not_begun() -> None:
    controller = Controller()
    asked = asks(training(), Verb.RESTART, 0)
    plan = controller.reconcile(asked.unheard("jobs"), 1)
    assert controller.triggers == []
    assert plan.reason is Reason.STALE_FACTS
