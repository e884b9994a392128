"""Conditions about the pods of a group: a container keeps a failed pod Running, or no training container is known."""

import pytest

from recovery.core.diagnosis.group_conditions import POD_KEPT_RUNNING, TRAINING_CONTAINER_UNKNOWN
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.native_policy_facts import ExitCodesRequirement, PodFailureRule
from recovery.core.policy.resolved import PolicyFacts, resolve
from recovery.core.policy.spec import PolicyError, PolicySpec, TimeoutsSpec
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

FAIL_JOB_ON_42 = PodFailureRule("FailJob", ExitCodesRequirement("In", (42,)))
SHIPPER = ContainerFacts("log-shipper", ready=True, running_since=at(-3590))


def kept_running() -> World:
    """FailJob on exit code 42, and a sidecar that still runs beside the container that exited 42."""
    return training(rules=(FAIL_JOB_ON_42,)).with_other(2, SHIPPER).container_exited(2, 42, 0)


def condition(controller: Controller, type_: str) -> LedgerCondition | None:
    return next((each for each in controller.ledger.conditions if each.type == type_), None)


def test_it_stands_aside_and_comes_back_when_the_pod_should_have_failed() -> None:
    controller = Controller()
    plan = controller.reconcile(kept_running(), 1)
    assert (controller.triggers, plan.requeue_at) == ([], at(600))
    assert condition(controller, POD_KEPT_RUNNING) is None


def test_then_a_condition_names_the_container_that_keeps_it_running() -> None:
    controller = Controller()
    controller.reconcile(kept_running(), 1)
    controller.reconcile(kept_running(), 600)
    found = condition(controller, POD_KEPT_RUNNING)
    assert found is not None
    assert (found.status, found.reason) == ("True", "ContainerStillRuns")
    assert "log-shipper" in found.message
    assert controller.triggers == [], "the rule is the user's"


def test_so_does_one_that_never_starts_and_keeps_the_pod_pending() -> None:
    broken = ContainerFacts("proxy", waiting_reason="ImagePullBackOff")
    world = kept_running().with_other(2, broken).with_pod(2, phase="Pending")
    controller = Controller()
    controller.reconcile(world, 1)
    controller.reconcile(world, 600)
    found = condition(controller, POD_KEPT_RUNNING)
    assert found is not None
    assert found.message.startswith("container proxy keeps pod train-node-0-2")
    assert "Pending after node exited 42" in found.message


def test_one_that_waits_to_be_restarted_keeps_nothing() -> None:
    crashed = ContainerFacts("proxy", restarts=1, waiting_reason="CrashLoopBackOff", last_exit=ExitFacts(1))
    restarts = ContainerTemplate("proxy", restart_policy="Always")
    world = kept_running().with_other(2, crashed).with_job(containers=(ContainerTemplate("node", 8), restarts))
    controller = Controller()
    controller.reconcile(world, 1)
    controller.reconcile(world, 600)
    assert condition(controller, POD_KEPT_RUNNING) is None


def test_it_is_over_when_the_pod_has_failed() -> None:
    controller = Controller()
    controller.reconcile(kept_running(), 1)
    controller.reconcile(kept_running(), 600)
    controller.reconcile(kept_running().with_pod(2, phase="Failed").with_other(2), 610)
    found = condition(controller, POD_KEPT_RUNNING)
    assert found is not None
    assert (found.status, found.reason) == ("False", "NotObserved")


def test_a_group_without_a_known_training_container_says_so_while_an_incident_is_open() -> None:
    controller = Controller()
    containers = (ContainerTemplate("main"), ContainerTemplate("log-shipper"))
    controller.reconcile(training().with_job(containers=containers).pod_deleted(1, 0), 1)
    found = condition(controller, TRAINING_CONTAINER_UNKNOWN)
    assert found is not None
    assert found.status == "True"
    assert "recovery.trainjob.dev/container" in found.message


def test_no_time_at_all_is_refused() -> None:
    spec = PolicySpec(timeouts=TimeoutsSpec(finish="0s"))
    with pytest.raises(PolicyError, match=r"spec\.timeouts\.finish"):
        resolve(
            PolicyFacts(name="p", namespace="ml", uid="u", generation=1, created_at=at(0), mode_since=at(0), spec=spec)
        )
