"""The circuit breaker: while it is open every policy counts as mode Observe, and only charged recoveries open it."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.fleet.breaker import breaker_reset
from recovery.core.fleet.quarantine import changed
from recovery.core.model.config import CONFIG_NAME, ConfigFacts, ConfigSpec, why_opened
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.fleet_ledger import Breaker, FleetChange, FleetLedger, FleetLimits, Futile
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.reason import Reason, as_said, because
from recovery.core.model.rules import RuleAction
from recovery.core.plan import kubernetes_events
from recovery.core.plan.actions import ResumeWorkload
from recovery.core.policy.resolved import Backoff, Policy, PolicyFacts, resolve
from recovery.core.policy.spec import Mode, PolicySpec
from recovery.core.sentences import render
from tests.unit.core.decision.test_verdicts import MAY, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

BREAKER = Breaker(at(-30), Reason.RECOVERIES_IN_VAIN, recoveries=5, within_seconds=3600.0, limit=5)
OPEN = FleetLedger(breaker=BREAKER)
WORDS = (
    "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress "
    "(RecoveryConfig spec.circuitBreaker.recoveries 5); recovery reset-breaker closes it"
)
RESTART = "deleted Job train-node-0, so that all 4 ranks restart together"
COUNTS = FleetLimits(breaker_recoveries=3)


def under(config: ConfigFacts, mode: Mode = Mode.ENFORCE) -> Policy:
    spec = PolicySpec(mode=mode)
    facts = PolicyFacts("default", "ml", "policy-1", 1, spec, created_at=at(-86_400), mode_since=at(-86_400))
    return resolve(facts, config)


def broken(**settings: object) -> Policy:
    """The policy of the tests says Enforce. Returns it as it counts while the breaker is open."""
    return msgspec.structs.replace(policy(**settings), mode=Mode.OBSERVE, breaker=as_said(Reason.BREAKER_OPEN, WORDS))  # type: ignore[arg-type]


def lost(code: int = 1) -> World:
    return training().pod_failed(2, code, 0)


# --- the mode ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "fleet", "paused", "counts_as", "breaker", "pause"),
    [
        (Mode.ENFORCE, FleetLedger(), False, Mode.ENFORCE, "", ""),
        (Mode.ENFORCE, OPEN, False, Mode.OBSERVE, WORDS, ""),
        (Mode.OBSERVE, OPEN, False, Mode.OBSERVE, "", ""),
        (Mode.ENFORCE, OPEN, True, Mode.OBSERVE, WORDS, "RecoveryConfig default pauses all recoveries"),
    ],
)
def test_an_open_breaker_makes_every_policy_one_that_observes(
    mode: Mode, fleet: FleetLedger, paused: bool, counts_as: Mode, breaker: str, pause: str
) -> None:
    config = ConfigFacts(CONFIG_NAME, "uid", 1, ConfigSpec(paused=paused), fleet=fleet)
    found = under(config, mode)
    texts = tuple(render(why) if why is not None else "" for why in (found.breaker, found.global_pause))
    assert (found.mode, *texts) == (counts_as, breaker, pause)


def test_what_keeps_the_fleet_as_it_is_names_the_pause_before_the_breaker() -> None:
    config = ConfigFacts(CONFIG_NAME, "uid", 1, ConfigSpec(paused=True), fleet=OPEN)
    assert config.stop is not None
    assert config.stop == config.pause
    unpaused = msgspec.structs.replace(config, spec=ConfigSpec())
    assert unpaused.stop == unpaused.breaker == because(Reason.BREAKER_OPEN, why=why_opened(BREAKER))
    assert ConfigFacts(CONFIG_NAME, "uid", 1).stop is None


# --- while it is open ----------------------------------------------------------------------------------------------


def test_incidents_are_opened_and_closed_as_observed_with_the_full_verdict() -> None:
    rule = on_exit(42, RuleAction.REPLACE_NODE, name="bad-gpu")
    controller = Controller(broken(rules=(rule,), limits=MAY))
    plan = controller.reconcile(lost(42), 1)
    assert plan.message == (
        "pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 42; Enforce would have quarantined node "
        f"gpu-2 and {RESTART} (rule bad-gpu (exit code 42 of container node is in [42]) says ReplaceNode); {WORDS}"
    )
    controller.settle(lost(42).came_back(2, 10, 20), 30)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.mode, incident.rule) == (Outcome.OBSERVED, "Observe", "bad-gpu")
    assert WORDS in incident.message
    assert controller.workload_actions == []


def test_a_running_incident_stops_before_its_next_write() -> None:
    controller = Controller(policy())
    controller.write(controller.plan(lost(), 1))
    assert len(controller.incident.attempts) == 1, "the ledger knows of the trigger, and then the process ended"
    controller.policy = broken()
    controller.reconcile(lost(), 2)
    assert controller.triggers == []
    assert controller.incident.message.endswith(f"the restart is decided but not carried out, because {WORDS}")
    controller.policy = policy()
    controller.reconcile(lost(), 3)
    assert len(controller.triggers) == 1, "the incident is still one that acts"


def test_a_suspension_of_ours_is_released() -> None:
    waits = policy(backoff=Backoff(initial=timedelta(seconds=60)))
    before = Ledger(attempts_in_row=1, handled=Handled(until=at(-60)))
    controller = Controller(waits, before)
    controller.reconcile(lost(), 1)
    held = lost().job_deleted(2).suspended_by(controller.incident.id)
    controller.reconcile(held, 3)
    controller.policy = broken(backoff=waits.backoff)
    controller.reconcile(held, 4)
    assert [type(action) for action in controller.workload_actions][-1] is ResumeWorkload
    assert controller.incident.suspension is None
    assert controller.incident.reason is Reason.SUSPENSION_RELEASED


@pytest.mark.parametrize("force", [False, True])
def test_a_person_may_insist_on_a_restart_as_under_observe(force: bool) -> None:
    controller = Controller(broken())
    value = msgspec.json.encode({"at": at(1).isoformat(), "force": force}).decode()
    controller.reconcile(training().asked("recovery.trainjob.dev/restart", value), 2)
    [answer] = controller.ledger.requests
    assert answer.accepted == force
    assert len(controller.triggers) == int(force)
    if not force:
        assert answer.message == f"{WORDS}; recovery restart train --reason TEXT --force overrides this"


def test_a_global_pause_opens_no_incident_whatever_the_breaker() -> None:
    pause = "RecoveryConfig default pauses all recoveries"
    controller = Controller(msgspec.structs.replace(broken(), global_pause=pause))
    assert controller.reconcile(lost(), 1).reason is Reason.GLOBAL_PAUSE
    assert controller.ledger.incident is None


# --- once it is closed ---------------------------------------------------------------------------------------------


def test_what_was_lost_meanwhile_is_left_to_a_person_and_what_is_lost_then_is_recovered() -> None:
    controller = Controller(broken())
    controller.reconcile(lost(), 1)
    controller.policy = policy()
    controller.reconcile(lost(), 60)
    assert controller.incident.reason is Reason.ENFORCED_TOO_LATE
    assert controller.triggers == []
    again = lost().pod_failed(1, 1, 70)
    controller.settle(again, 71)
    controller.reconcile(again, 72)
    assert [incident.mode for incident in controller.recorded] == ["Observe"]
    assert controller.incident.mode == "Enforce"
    assert len(controller.triggers) == 1


def test_a_loss_after_the_breaker_was_closed_is_not_told_as_a_switch_of_the_policy() -> None:
    one = Controller(broken())
    world = training().pod_failed(2, 1, 0)
    one.reconcile(world, 1)
    one.policy = policy()
    one.settle(world.pod_failed(1, 1, 70), 71)
    (incident,) = one.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.OBSERVED
    assert "switched to Enforce" not in incident.message
    assert incident.reason is Reason.MODE_SWITCHED


def test_it_is_told_once_when_it_opens_and_once_when_it_closes() -> None:
    closed = FleetLedger(futile=(Futile("inc-1", at(5), "inc-1", "llm"),))
    (opened,) = kubernetes_events.fleet_events(closed, OPEN)
    assert (opened.reason, opened.warning) == ("CircuitBreakerOpened", True)
    assert opened.note == (
        "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress (RecoveryConfig "
        "spec.circuitBreaker.recoveries 5); every policy of the cluster counts as mode Observe until someone runs "
        "recovery reset-breaker"
    )
    (ended,) = kubernetes_events.fleet_events(OPEN, closed)
    assert (ended.reason, ended.warning) == ("CircuitBreakerClosed", False)
    assert opened.key != ended.key
    assert kubernetes_events.fleet_events(OPEN, OPEN) == kubernetes_events.fleet_events(closed, FleetLedger()) == ()


# --- what opens it -------------------------------------------------------------------------------------------------

FREE = on_exit(42, RuleAction.RECREATE_GROUP, charge=False)


def preempted(world: World, seconds: float) -> World:
    return world.evicted(1, seconds, reason="PreemptionByScheduler")


def failed_for_free(world: World, seconds: float) -> World:
    return world.pod_failed(2, 42, seconds)


def crashed(world: World, seconds: float) -> World:
    return world.pod_failed(2, 1, seconds)


def by_hand(world: World, seconds: float) -> World:
    return world.asked("recovery.trainjob.dev/restart", at(seconds).isoformat())


ROWS = {
    "one charged restart": ([crashed], 0),
    "a second one in a row": ([crashed, crashed], 1),
    "three in a row": ([crashed, crashed, crashed], 2),
    "a preemption after it": ([crashed, preempted], 0),
    "a rule that is free of charge after it": ([crashed, failed_for_free], 0),
    "a preemption before it": ([preempted, crashed], 0),
    "preemptions alone": ([preempted, preempted, preempted], 0),
    "a preemption in between": ([crashed, preempted, crashed], 0),
    "by hand after it": ([crashed, by_hand], 0),
    "by hand before it": ([by_hand, crashed], 0),
    "two in a row after one by hand": ([by_hand, crashed, crashed], 1),
}


@pytest.mark.parametrize(("row", "futile"), ROWS.values(), ids=ROWS)
def test_only_a_second_charged_restart_in_a_row_is_a_recovery_in_vain(row: list[object], futile: int) -> None:
    controller = Controller(policy(rules=(FREE,), limits=COUNTS))
    world = training()
    for number, loses in enumerate(row):
        begin = 100 * number
        world = loses(world, begin)  # type: ignore[operator]
        controller.reconcile(world, begin + 1)
        world = world.recreated(begin + 10).all_ready(begin + 20)
        controller.settle(world, begin + 21)
        assert controller.phase() is Phase.HEALTHY
    in_vain = [each.incident for change in controller.fleet_changes for each in change.futile]
    assert len(controller.triggers) == len(row)
    assert len(in_vain) == futile


def test_a_group_that_ran_whole_for_long_begins_a_new_row() -> None:
    before = Ledger(charged_in_row=5, handled=Handled(until=at(-3600)))
    controller = Controller(policy(limits=COUNTS), before)
    controller.reconcile(lost(), 1)
    assert controller.ledger.charged_in_row == 1
    assert controller.fleet_changes == []


def test_a_budget_that_a_person_resets_begins_a_new_row() -> None:
    before = Ledger(charged_in_row=5, attempts_in_row=5, handled=Handled(until=at(-60)))
    controller = Controller(policy(limits=COUNTS), before)
    controller.reconcile(training().asked("recovery.trainjob.dev/reset-budget", at(0).isoformat()), 1)
    assert (controller.ledger.charged_in_row, controller.ledger.attempts_in_row) == (0, 0)


def test_a_second_attempt_of_one_incident_is_in_vain_as_well() -> None:
    """The incident is charged once, but another attempt for a loss that costs budget shows as much."""
    controller = Controller(policy(limits=COUNTS))
    controller.reconcile(lost(), 1)
    world = lost().recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 1, 20), 21)
    assert len(controller.triggers) == 2
    assert [len(change.futile) for change in controller.fleet_changes] == [1]


def test_what_was_in_vain_before_a_person_closed_the_breaker_does_not_open_it_again() -> None:
    """A group whose trigger was refused asks once more to count its restart."""
    open_ = FleetLedger(futile=(Futile("a-2", at(0), "a-2", "llm"),), breaker=Breaker(at(0), Reason.RECOVERIES_IN_VAIN))
    closed = breaker_reset(open_, at(60), at(61))
    limits = FleetLimits(breaker_recoveries=1)
    late = FleetChange(futile=(Futile("a-2", at(0), "a-2", "llm"),))
    after = changed(closed, limits, late, nodes=100, shown={}, now=at(62), reset_at=at(60))
    assert after == closed
    new_ = FleetChange(futile=(Futile("a-3", at(70), "a-3", "llm"),))
    again = changed(closed, limits, new_, nodes=100, shown={}, now=at(71), reset_at=at(60))
    assert isinstance(again, FleetLedger)
    assert again.breaker is not None
