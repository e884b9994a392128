"""What people see: columns, conditions and Events."""

import msgspec

from recovery.core.model.ledger import Ledger
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.rules import Rule, RuleAction
from recovery.core.model.standing import Broken, Standing
from recovery.core.plan.kubernetes_events import events
from recovery.core.plan.status_conditions import summarise
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World, at


def conditions(controller: Controller) -> dict[str, tuple[str, str]]:
    return {found.type: (found.status, found.reason) for found in controller.ledger.conditions}


def condition(controller: Controller, type_: str) -> LedgerCondition:
    return next(found for found in controller.ledger.conditions if found.type == type_)


def test_while_an_incident_is_open() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    ledger = controller.ledger
    assert (ledger.cause, ledger.action, ledger.idle_gpus) == ("Exit137", "RecreateGroup", 4 * GPUS_PER_POD)
    assert ledger.message == controller.incident.message
    assert conditions(controller) == {
        "Healthy": ("False", "IncidentOpen"),
        "Recovering": ("True", "Decided"),
        "BudgetExhausted": ("False", "BudgetLeft"),
        "Paused": ("False", "NotPaused"),
        "RecoveryProven": ("Unknown", "NeverProven"),
    }


def test_after_it() -> None:
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.settle(world.recreated(10).all_ready(20), 21)
    ledger = controller.ledger
    assert (ledger.cause, ledger.action, ledger.idle_gpus) == ("Exit137", "RecreateGroup", 0)
    assert ledger.message == ledger.history[0].message
    assert conditions(controller)["Healthy"] == ("True", "NoIncident")
    assert conditions(controller)["Recovering"] == ("False", "NoIncident")


def test_while_held() -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")
    assert conditions(controller)["Recovering"] == ("False", "Held")


def recovered(terms: Policy) -> tuple[Controller, World]:
    """Rank 3 failed, and all ranks run again. One recovery is charged, and no incident is open."""
    controller, world = Controller(terms), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_ready(20)
    controller.settle(back, 21)
    assert controller.ledger.incident is None
    return controller, back


def test_a_limit_that_is_lowered_to_what_is_spent_exhausts_the_budget_on_the_next_reconcile() -> None:
    controller, world = recovered(policy(limit=2))
    assert conditions(controller)["BudgetExhausted"] == ("False", "BudgetLeft")
    controller.policy = policy(limit=1)
    controller.reconcile(world, 30)
    assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")
    assert condition(controller, "BudgetExhausted").last_transition_time == at(30)
    assert (controller.ledger.budget.limit, controller.ledger.budget.remaining) == (1, 0)


def test_a_limit_that_is_raised_frees_the_budget_on_the_next_reconcile() -> None:
    controller, world = recovered(policy(limit=1))
    assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")
    controller.policy = policy(limit=3)
    controller.reconcile(world, 30)
    assert conditions(controller)["BudgetExhausted"] == ("False", "BudgetLeft")
    assert (controller.ledger.budget.limit, controller.ledger.budget.remaining) == (3, 2)


def test_the_end_of_the_window_frees_the_budget_between_incidents() -> None:
    controller, world = recovered(policy(limit=1, window_seconds=100))
    plan = controller.reconcile(world, 30)
    assert plan.requeue_at == at(101)
    controller.reconcile(world, 101)
    assert conditions(controller)["BudgetExhausted"] == ("False", "BudgetLeft")
    assert controller.reconcile(world, 102).requeue_at is None


def test_the_last_charge_counts_from_the_end_of_its_recovery() -> None:
    """Until then the incident may make further attempts."""
    controller, world = Controller(policy(limit=1)), training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    assert conditions(controller)["BudgetExhausted"] == ("False", "BudgetLeft")
    controller.reconcile(world.recreated(10).all_ready(20), 21)
    assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")
    controller.settle(world.recreated(10).all_ready(20), 22)
    assert condition(controller, "BudgetExhausted").last_transition_time == at(21)


def test_an_incident_that_costs_nothing_leaves_the_budget_exhausted() -> None:
    free = Rule("oom", RuleAction.RECREATE_GROUP, charge=False)
    controller, world = recovered(policy(limit=1))
    controller.policy = policy(limit=1, rules=(free,))
    controller.reconcile(world.pod_failed(1, 137, 40), 41)
    assert controller.ledger.incident is not None
    assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")


def test_without_a_policy_that_can_be_used_what_is_known_of_the_budget_stays() -> None:
    controller, world = recovered(policy(limit=1))
    for terms in (None, PolicyError("spec.budget.limit: -1")):
        controller.policy = terms
        controller.reconcile(world, 30)
        assert conditions(controller)["BudgetExhausted"] == ("True", "LimitReached")


def test_a_group_that_has_had_no_incident_is_not_written_for_the_limit() -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(training(), 30)
    assert controller.ledger == Ledger()


def test_while_paused_in_the_middle() -> None:
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.paused(), 2)
    assert conditions(controller)["Paused"] == ("True", "Annotation")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.job_deleted(2), 3)
    assert condition(controller, "Recovering").reason == "TearingDown"
    assert condition(controller, "Recovering").last_transition_time == at(1)
    controller.settle(world.recreated(10).all_ready(20), 21)
    assert condition(controller, "Recovering").last_transition_time == at(21)


def test_the_budget_column_follows_the_window() -> None:
    controller = Controller(policy(limit=2, window_seconds=50, start_seconds=600))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    assert controller.ledger.budget.remaining == 1
    controller.reconcile(world.recreated(10), 60)
    assert controller.ledger.budget.remaining == 2


def test_the_same_facts_give_the_same_summary() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    workload = training().workload
    assert workload is not None
    assert summarise(controller.ledger, workload, at(5)) == controller.ledger


# --- Events --------------------------------------------------------------------------------------------------------


def test_an_events_name_tells_a_repeat() -> None:
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    before = controller.ledger
    plan = controller.reconcile(world, 1)
    (event,) = events(before, controller.ledger)
    assert event.key == "0d2f5c9e-1.attempt-1"
    assert event in plan.actions
    assert event.note == plan.message
    assert event.warning
    assert events(controller.ledger, controller.ledger) == ()


def test_an_unchanged_ledger_makes_no_event() -> None:
    assert events(Ledger(), Ledger()) == ()


def test_a_long_note_is_cut() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    attempt = msgspec.structs.replace(controller.incident.attempts[0], message="x" * 5000)
    incident = msgspec.structs.replace(controller.incident, attempts=(attempt,))
    (event,) = events(Ledger(), msgspec.structs.replace(controller.ledger, incident=incident))
    assert len(event.note) == 1024


def test_a_good_end_is_no_warning_and_a_bad_one_is() -> None:
    good, bad = Controller(), Controller()
    world = training().pod_failed(3, 137, 0)
    for controller in (good, bad):
        controller.reconcile(world, 1)
    before = good.ledger
    good.reconcile(world.recreated(10).all_ready(20), 21)
    bad.reconcile(world.jobset_failed(5), 6)
    assert [(event.reason, event.warning) for event in events(before, good.ledger)] == [("IncidentRecovered", False)]
    assert [(event.reason, event.warning) for event in events(before, bad.ledger)] == [("IncidentFailed", True)]


def test_a_group_that_hangs_between_incidents_is_not_healthy() -> None:
    controller, world = recovered(policy())
    hangs = Broken(at(21), at(25), "uid-train-1", "PodDeleted", 4 * GPUS_PER_POD, "pod train-node-0-2 ended")
    broken = msgspec.structs.replace(controller.ledger, standing=Standing.BROKEN, broken=hangs)
    assert world.workload is not None
    shown = summarise(broken, world.workload, at(30))
    assert (shown.cause, shown.idle_gpus) == ("Exit137", 4 * GPUS_PER_POD)
    healthy = next(found for found in shown.conditions if found.type == "Healthy")
    assert (healthy.status, healthy.reason) == ("False", "Broken")
    assert "pod train-node-0-2 ended" in healthy.message
    again = summarise(msgspec.structs.replace(shown, standing=Standing.MET, broken=None), world.workload, at(40))
    assert again.idle_gpus == 0
    assert next(found for found in again.conditions if found.type == "Healthy").status == "True"
