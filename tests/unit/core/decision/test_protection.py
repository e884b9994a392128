"""Whether a job is protected, and if not, why. Facts in, code out."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.decision.protection import protection
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.fleet_ledger import Breaker, FleetLedger
from recovery.core.model.group_totals import BudgetState
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger, Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.protection import UNPROTECTED, Protection, ProtectionReason
from recovery.core.model.reason import Reason, as_said
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, OnTerminalFailure, PolicyError, Restart
from recovery.core.sentences.protection import remedy, sentence
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

NOW = at(600)
NEEDS_NONE = [reason for reason in ProtectionReason if not reason.needs_attention]


def recovery_group(ledger: Ledger, *, schema_version: int = SCHEMA_VERSION) -> LedgerObject:
    return LedgerObject(
        name="train-0d2f5c9e",
        namespace="ml",
        uid="rg-1",
        resource_version="1",
        workload_uid="0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11",
        group="train",
        ledger=ledger,
        schema_version=schema_version,
    )


def found(
    world: World,
    terms: Policy | PolicyError | None,
    ledger: Ledger | LedgerObject | None = None,
    *,
    seconds: float = 600,
) -> Protection:
    """The answer about the job in this world."""
    assert world.workload is not None
    of_job = recovery_group(ledger) if isinstance(ledger, Ledger) else ledger
    return protection(world.workload, world.snapshot(), of_job, terms, at(seconds))


def breaker_open() -> Policy:
    """A policy that says Enforce while the circuit breaker is open."""
    fleet = FleetLedger(breaker=Breaker(at(0), Reason.RECOVERIES_IN_VAIN, recoveries=5, within_seconds=3600.0, limit=5))
    observed = policy(Mode.OBSERVE, fleet=fleet)
    return msgspec.structs.replace(
        observed, breaker=as_said(Reason.BREAKER_OPEN, "the circuit breaker is open: 5 recoveries")
    )


def annotated(annotation: str, value: str) -> World:
    return training().with_workload(annotations={f"recovery.trainjob.dev/{annotation}": value})


UNDECODABLE = LedgerCondition("Undecodable", "True", "PodUndecodable", "Pod ml/a cannot be read: no", at(0))
IGNORE_ALL = Rule("hands-off", RuleAction.IGNORE)
RECREATE_ALL = Rule("always", RuleAction.RECREATE_GROUP)
IGNORE_143 = Rule("drained", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (143,))))
RECREATE_137 = Rule("oom", RuleAction.RECREATE_GROUP, When(on_exit_codes=ExitCodes(Operator.IN, (137,))))


def test_a_group_that_runs_under_an_enforcing_policy_is_protected() -> None:
    assert found(training(), policy()).reason is ProtectionReason.PROTECTED
    assert found(training(), policy()).protected is True


@pytest.mark.parametrize(
    ("world", "terms", "reason"),
    [
        (training(), None, ProtectionReason.NO_POLICY),
        (annotated("policy", "gold"), None, ProtectionReason.NO_POLICY),
        (training(), PolicyError("spec.budget.window: 'soon'"), ProtectionReason.POLICY_UNUSABLE),
        (training(), policy(Mode.OBSERVE), ProtectionReason.OBSERVE),
        (training(), breaker_open(), ProtectionReason.BREAKER_OPEN),
        (annotated("paused", "true"), policy(), ProtectionReason.PAUSED_BY_ANNOTATION),
        (annotated("paused", "false"), policy(), ProtectionReason.PROTECTED),
        (training(), policy(global_pause="RecoveryConfig default pauses it"), ProtectionReason.PAUSED_GLOBALLY),
        (training(), policy(restart=Restart.NONE), ProtectionReason.RESTART_NONE),
        (training(), policy(restart=Restart.RECREATE_GROUP_AFTER_START), ProtectionReason.PROTECTED),
    ],
)
def test_what_people_have_set_keeps_the_controller_from_acting(
    world: World, terms: Policy | PolicyError | None, reason: ProtectionReason
) -> None:
    assert found(world, terms).reason is reason


def test_an_object_that_cannot_be_read_keeps_the_controller_from_acting() -> None:
    answer = found(training().unreadable("a"), policy())
    assert (answer.reason, answer.protected) == (ProtectionReason.OBJECT_UNDECODABLE, False)
    assert sentence(answer) == "Pod ml/a cannot be read: no, so the controller does nothing about the job."
    assert remedy(answer) == "Correct that object, or delete it."


@pytest.mark.parametrize(
    ("status", "reason"), [("True", ProtectionReason.OBJECT_UNDECODABLE), ("False", ProtectionReason.PROTECTED)]
)
def test_where_pods_are_not_read_the_condition_says_so(status: str, reason: ProtectionReason) -> None:
    ledger = Ledger(conditions=(msgspec.structs.replace(UNDECODABLE, status=status),))
    assert found(training(), policy(), ledger).reason is reason


@pytest.mark.parametrize(
    ("restart", "rules", "reason"),
    [
        (Restart.NONE, (RECREATE_ALL,), ProtectionReason.PROTECTED),
        (Restart.NONE, (RECREATE_137,), ProtectionReason.RESTART_NONE),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (IGNORE_ALL,), ProtectionReason.RULE_IGNORES_ALL),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (RECREATE_137, IGNORE_ALL), ProtectionReason.RULE_IGNORES_ALL),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (RECREATE_ALL, IGNORE_ALL), ProtectionReason.PROTECTED),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (IGNORE_143,), ProtectionReason.PROTECTED),
    ],
)
def test_a_rule_that_matches_every_loss_takes_the_place_of_restart(
    restart: Restart, rules: tuple[Rule, ...], reason: ProtectionReason
) -> None:
    assert found(training(), policy(restart=restart, rules=rules)).reason is reason


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (training().with_workload(deleting_since=NOW), ProtectionReason.DELETING),
        (training().jobset_completed(), ProtectionReason.FINISHED),
        (training().jobset_failed(10), ProtectionReason.JOB_SET_FAILED),
        (training().suspended(), ProtectionReason.SUSPENDED),
        (training().with_jobset(suspended=True), ProtectionReason.SUSPENDED),
        (training().succeeded(1), ProtectionReason.FINISHING),
        (training().success_criteria_met(10), ProtectionReason.FINISHING),
    ],
)
@pytest.mark.parametrize("terms", [None, policy(), policy(Mode.OBSERVE)], ids=["none", "enforce", "observe"])
def test_a_job_that_has_nothing_to_lose_needs_no_policy(
    world: World, terms: Policy | None, reason: ProtectionReason
) -> None:
    assert found(world, terms).reason is reason
    assert found(world, terms).protected is None


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (group(), ProtectionReason.NOT_STARTED),
        (group().started(0, 10).started(1, 10), ProtectionReason.NOT_STARTED),
        (training().with_jobset(deleting_since=NOW), ProtectionReason.NO_JOB_SET),
        (msgspec.structs.replace(group(), jobset=None, jobs=(), pods=()), ProtectionReason.NO_JOB_SET),
    ],
)
def test_before_a_group_has_run_whole_only_its_policy_counts(world: World, reason: ProtectionReason) -> None:
    """With a policy, a job is protected from its start without any further step. Without a policy it is not."""
    assert found(world, policy()).reason is reason
    assert found(world, None).reason is ProtectionReason.NO_POLICY
    assert found(world, policy(Mode.OBSERVE)).reason is ProtectionReason.OBSERVE


def test_without_pods_the_group_counts_as_one_that_runs() -> None:
    workload = group().workload
    assert workload is not None
    assert protection(workload, None, None, policy(), NOW).reason is ProtectionReason.PROTECTED


def test_exits_are_no_losses_where_no_rule_selects_the_training_container() -> None:
    two = (ContainerTemplate("model"), ContainerTemplate("data"))
    world = training().with_job(containers=two)
    answer = found(world, policy())
    assert (answer.reason, answer.child_job) == (ProtectionReason.TRAINING_CONTAINER_UNKNOWN, "train-node-0")
    named = world.with_workload(annotations={"recovery.trainjob.dev/container": "model"})
    assert found(named, policy()).reason is ProtectionReason.PROTECTED
    assert found(world, None).reason is ProtectionReason.NO_POLICY
    assert found(group().with_job(containers=two), policy()).reason is ProtectionReason.TRAINING_CONTAINER_UNKNOWN


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (recovery_group(Ledger(), schema_version=SCHEMA_VERSION + 1), "Run the controller version that wrote it."),
        (recovery_group(Ledger(message="status.epoch: a string"), schema_version=-1), "Correct its status, or delete"),
    ],
    ids=["newer", "damaged"],
)
def test_nothing_is_decided_without_a_readable_ledger(recorded: LedgerObject, words: str) -> None:
    answer = found(training(), policy(), recorded)
    assert answer.reason is ProtectionReason.LEDGER_UNREADABLE
    assert remedy(answer).startswith(words)


# --- incidents and budgets -----------------------------------------------------------------------------------------


def after_a_loss(terms: Policy, *, then: Policy | None = None) -> Protection:
    """Rank 2 fails under `terms`, and the controller sees it. `then`: the policy from then on. None: `terms`."""
    controller, world = Controller(terms), training().pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    return found(world, then or terms, controller.ledger, seconds=2)


def test_a_recovery_under_way_is_protection() -> None:
    assert after_a_loss(policy()).reason is ProtectionReason.PROTECTED


def test_a_group_that_comes_back_is_not_one_that_has_not_started() -> None:
    controller, lost = Controller(policy()), training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    back = lost.recreated(20)
    controller.reconcile(back, 21)
    assert found(back, policy(), controller.ledger, seconds=22).reason is ProtectionReason.PROTECTED


def test_a_group_that_is_held_by_its_budget_waits_for_a_person_or_the_window() -> None:
    controller = Controller(policy(limit=1, window_seconds=3600))
    lost = training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    lost_again = lost.recreated(20).all_ready(60).pod_failed(1, 1, 80)
    controller.reconcile(lost_again, 81)
    answer = found(lost_again, policy(limit=1, window_seconds=3600), controller.ledger, seconds=90)
    assert answer.reason is ProtectionReason.HELD
    assert answer.until == at(1) + timedelta(hours=1)
    assert "because the budget is exhausted" in sentence(answer)


def test_an_exhausted_budget_holds_the_next_loss_until_its_window_lets_go() -> None:
    spent = Ledger(budget=BudgetState(charges=(at(0), at(60)), limit=2))
    terms = policy(limit=2, window_seconds=3600)
    answer = found(training(), terms, spent)
    assert (answer.reason, answer.until) == (ProtectionReason.BUDGET_EXHAUSTED, at(3600))
    assert found(training(), terms, spent, seconds=3601).reason is ProtectionReason.PROTECTED
    assert found(training(), policy(limit=3, window_seconds=3600), spent).reason is ProtectionReason.PROTECTED


def test_a_budget_of_0_is_exhausted_for_ever() -> None:
    answer = found(training(), policy(limit=0))
    assert (answer.reason, answer.until) == (ProtectionReason.BUDGET_EXHAUSTED, None)


SPOT = When(on_class=("PodDisrupted",))
FREE_SPOT = Rule("spot", RuleAction.RECREATE_GROUP, SPOT, charge=False)
FREE_DRAIN = Rule("drain", RuleAction.AVOID_NODE, When(on_class=("NodeLost",)), charge=False)
FREE_IGNORE = Rule("hands-off", RuleAction.IGNORE, SPOT, charge=False)
FREE_ALL = Rule("whatever", RuleAction.RECREATE_GROUP, charge=False)


@pytest.mark.parametrize(
    ("restart", "rules", "free", "preemptions"),
    [
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (), (), True),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (FREE_SPOT, FREE_DRAIN), ("spot", "drain"), True),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (FREE_IGNORE, RECREATE_137), (), True),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (FREE_SPOT, RECREATE_ALL), ("spot",), False),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (RECREATE_ALL, FREE_SPOT), (), False),
        (Restart.RECREATE_GROUP_ON_POD_RESTART, (RECREATE_137, FREE_ALL), ("whatever",), False),
    ],
    ids=["default", "rules", "ignored", "the rest is charged", "never reached", "but exits with 137"],
)
def test_an_exhausted_budget_names_the_losses_that_are_not_charged(
    restart: Restart, rules: tuple[Rule, ...], free: tuple[str, ...], preemptions: bool
) -> None:
    answer = found(training(), policy(limit=0, restart=restart, rules=rules))
    assert answer.reason is ProtectionReason.BUDGET_EXHAUSTED
    assert (answer.free_rules, answer.free_preemptions) == (free, preemptions)


@pytest.mark.parametrize("rules", [(FREE_ALL,), (FREE_SPOT, FREE_ALL), (IGNORE_143, FREE_ALL)])
def test_a_policy_that_charges_for_no_restart_needs_no_budget(rules: tuple[Rule, ...]) -> None:
    assert found(training(), policy(limit=0, rules=rules)).reason is ProtectionReason.PROTECTED
    assert after_a_loss(policy(limit=0, rules=rules)).reason is ProtectionReason.PROTECTED


def test_in_an_incident_the_rules_count_that_it_has_pinned() -> None:
    answer = after_a_loss(policy(limit=1, rules=(FREE_SPOT,)), then=policy(limit=1))
    assert (answer.reason, answer.free_rules) == (ProtectionReason.BUDGET_EXHAUSTED, ("spot",))


@pytest.mark.parametrize("held_back", ["spot", "another"])
def test_what_is_called_free_is_what_decide_restarts_for(held_back: str) -> None:
    """The answer and the decision agree about the same loss."""
    when = When(on_exit_codes=ExitCodes(Operator.IN, (137 if held_back == "another" else 1,)))
    terms = policy(limit=0, rules=(Rule("spot", RuleAction.RECREATE_GROUP, when, charge=False),))
    assert found(training(), terms).free_rules == ("spot",)
    controller = Controller(terms)
    controller.reconcile(training().pod_failed(2, 1, 0), 1)
    assert (controller.ledger.phase is Phase.HELD) is (held_back == "another")


def test_an_open_incident_has_no_further_attempt_where_its_own_budget_is_used_up() -> None:
    assert after_a_loss(policy(limit=1)).reason is ProtectionReason.BUDGET_EXHAUSTED
    assert after_a_loss(policy(limit=2)).reason is ProtectionReason.PROTECTED


def test_an_open_incident_that_has_used_the_last_of_the_budget_goes_on() -> None:
    """One charge pays for several attempts of an incident."""
    terms = policy(limit=2)
    controller = Controller(terms, Ledger(budget=BudgetState(charges=(at(-60),), limit=2)))
    lost = training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    assert len(controller.ledger.budget.charges) == 2
    assert found(lost, terms, controller.ledger, seconds=2).reason is ProtectionReason.PROTECTED


def test_an_incident_that_only_observes_stays_so_after_the_switch_to_enforce() -> None:
    assert after_a_loss(policy(Mode.OBSERVE)).reason is ProtectionReason.OBSERVE
    answer = after_a_loss(policy(Mode.OBSERVE), then=policy())
    assert answer.reason is ProtectionReason.INCIDENT_OBSERVED
    assert remedy(answer) == "Run recovery restart train --reason TEXT if its ranks hang."
    assert after_a_loss(policy(restart=Restart.NONE), then=policy()).reason is ProtectionReason.INCIDENT_OBSERVED


def test_a_failed_pod_that_a_sidecar_keeps_running_waits_for_a_person() -> None:
    controller = Controller(policy())
    controller.reconcile(training().pod_failed(2, 1, 0), 1)
    says = "container shipper keeps pod train-node-0-2 Running after node exited 42"
    holds = LedgerCondition("PodKeptRunning", "True", "ContainerStillRuns", says, at(601))
    ledger = msgspec.structs.replace(controller.ledger, conditions=(holds,))
    answer = found(training(), policy(), ledger)
    assert (answer.reason, answer.detail) == (ProtectionReason.POD_KEPT_RUNNING, says)
    over = msgspec.structs.replace(ledger, conditions=(msgspec.structs.replace(holds, status="False"),))
    assert found(training(), policy(), over).reason is ProtectionReason.PROTECTED


def test_our_own_suspension_is_part_of_a_recovery() -> None:
    controller = Controller(policy())
    lost = training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    suspended = lost.suspended_by(controller.incident.id)
    assert found(suspended, policy(), controller.ledger).reason is ProtectionReason.PROTECTED
    assert found(suspended, None, controller.ledger).reason is ProtectionReason.NO_POLICY


def test_a_failed_job_set_that_is_recreated_is_not_given_up() -> None:
    terms = policy(on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET)
    controller, failed = Controller(terms), training().pod_failed(2, 1, 0).jobset_failed(1)
    controller.reconcile(failed, 2)
    assert found(failed, terms, controller.ledger, seconds=3).reason is ProtectionReason.PROTECTED


def test_a_group_that_lost_a_member_has_started_whatever_its_pods_tell() -> None:
    """After a restart of the controller, only the ledger shows that the group had run."""
    controller = Controller(policy(Mode.OBSERVE))
    lost = training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    back = lost.all_came_back(20, 40)
    controller.settle(back, 50)
    forgotten = msgspec.structs.replace(back.pod_failed(3, 1, 60), trained_at={})
    assert found(forgotten, policy(), controller.ledger).reason is ProtectionReason.PROTECTED


# --- in words ------------------------------------------------------------------------------------------------------


def of(reason: ProtectionReason, **details: str) -> Protection:
    return Protection(reason, "TrainJob", "llm", policy="RecoveryPolicy ml/default", **details)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", [*UNPROTECTED, ProtectionReason.NO_CONTROLLER])
def test_every_no_says_why_and_what_to_do(reason: ProtectionReason) -> None:
    answer = of(reason, detail="RecoveryConfig default is paused", incident="i-1", rule="r", recovery_group="llm-1")
    assert answer.protected is False
    for words in (sentence(answer), remedy(answer)):
        assert words[0].isupper()
        assert words.endswith(".")
        assert "{" not in words


@pytest.mark.parametrize("reason", NEEDS_NONE)
def test_any_other_reason_is_shown_without_advice(reason: ProtectionReason) -> None:
    assert of(reason).protected is not False
    assert sentence(of(reason)).endswith(".")
    assert remedy(of(reason)) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            found(training(), policy(Mode.OBSERVE)),
            "RecoveryPolicy ml/default only observes. Set spec.mode: Enforce to act.",
        ),
        (
            found(annotated("policy", "gold"), None),
            "The annotation recovery.trainjob.dev/policy names gold, and no policy has that name. "
            "Create that policy, or remove the annotation.",
        ),
        (
            found(annotated("paused", "new {image} on trial."), policy()),
            "The annotation recovery.trainjob.dev/paused pauses the job: new {image} on trial. "
            "Run recovery resume train to end the pause.",
        ),
        (
            found(annotated("paused", "true"), policy()),
            "The annotation recovery.trainjob.dev/paused pauses the job. Run recovery resume train to end the pause.",
        ),
        (
            found(training(), breaker_open()),
            "The circuit breaker is open: 5 recoveries within 60 minutes brought no progress (RecoveryConfig "
            "spec.circuitBreaker.recoveries 5). "
            "Run recovery reset-breaker to close it.",
        ),
        (
            found(training(), policy(limit=0)),
            "The budget of RecoveryPolicy ml/default is exhausted, so the controller holds the next loss. It still "
            "restarts the group after a preemption, which is not charged. "
            "Run recovery reset-budget train, or raise spec.budget.limit.",
        ),
        (
            of(ProtectionReason.HELD, incident="i-1", detail="the same error comes back"),
            "Incident i-1 is Held: the same error comes back. Run recovery retry llm to restart the group.",
        ),
    ],
)
def test_the_sentence_names_what_stands_in_the_way(answer: Protection, words: str) -> None:
    assert f"{sentence(answer)} {remedy(answer)}" == words
