"""What a review of recovery across groups found: each was wrong once. Facts in, plan or sentence out."""

import msgspec
import pytest

from recovery.core.fleet import breaker, quarantine
from recovery.core.model.annotations import RELEASE_ANNOTATION
from recovery.core.model.facts import FleetFacts
from recovery.core.model.fleet_ledger import Breaker, FleetChange, FleetLedger, FleetLimits, Futile, Suspicion
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode, OnTerminalFailure
from tests.unit.core.decision.test_black_holes import (
    SUSPECTED,
    accepted,
    carried,
    controller,
    new,
    others_run,
    quarantined,
    refused,
    starting,
    stuck,
    suspected,
)
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.fleet.test_breaker import broken
from tests.unit.core.groups import training
from tests.unit.core.world import at

# --- Observe -------------------------------------------------------------------------------------------------------


def test_restarts_by_the_platform_one_after_the_other_do_not_make_the_sentence_grow() -> None:
    """A group that its JobSet restarts all night must not outgrow the API server's limit of an object."""
    one = observing()
    world = training().pod_failed(2, 1, 0)
    one.reconcile(world, 1)
    assert one.incident.would
    for number in range(30):
        world = world.restarted_by_jobset()
        one.reconcile(world, 10 + 10 * number)
        world = world.recreated(11 + 10 * number)
        one.reconcile(world, 12 + 10 * number)
    assert len(one.incident.message) < 1000
    assert one.incident.message.count("adopted as this incident's restart") == 1
    one.settle(world.all_ready(400), 401)
    (incident,) = one.recorded
    assert "Enforce would now" in incident.message


def test_an_older_crd_that_drops_the_verdict_does_not_make_it_decided_without_end() -> None:
    """Helm upgrades no CRDs: the API server then prunes `would`, and each reconcile passes the verdict again."""
    one = observing()
    world = training().pod_failed(2, 1, 0)
    written = []
    for seconds in (1, 2, 3):
        plan = one.reconcile(world, seconds)
        assert plan.requeue_at is None, "not at once: the watch tells of the write, where one was made"
        assert one.incident.would == "RecreateGroup"
        one.ledger = msgspec.structs.replace(one.ledger, incident=msgspec.structs.replace(one.incident, would=""))
        written.append(one.ledger)
    assert written[1] == written[2], "a write that changes nothing is no news to any watch"


@pytest.mark.parametrize(
    ("now", "kind", "limit", "ends"),
    [
        (Mode.OBSERVE, "TrainJob", 10, "so that Trainer creates it again"),
        (Mode.ENFORCE, "TrainJob", 10, "it is left as it is"),
        (Mode.OBSERVE, "JobSet", 10, "because a JobSet without a TrainJob would not be created again"),
        (Mode.OBSERVE, "TrainJob", 0, "because the budget of policy default is exhausted (0 recoveries within 24h)"),
    ],
    ids=["Observe", "Enforce by then", "nobody would make it anew", "the budget is exhausted"],
)
def test_of_a_failed_job_set_it_is_said_what_enforce_would_do_only_where_it_would(
    now: Mode, kind: str, limit: int, ends: str
) -> None:
    settings = {"on_terminal_failure": OnTerminalFailure.RECREATE_JOB_SET, "limit": limit}
    one = observing(**settings)
    world = training().with_workload(kind=kind).pod_failed(2, 1, 0)
    one.reconcile(world, 1)
    one.policy = policy(now, since=2 if now is Mode.ENFORCE else -86_400, **settings)  # type: ignore[arg-type]
    one.settle(world.jobset_failed(5), 6)
    (incident,) = one.recorded
    assert incident.message.endswith(ends)
    assert one.workload_actions == []


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


def test_a_restart_that_a_person_forces_under_observe_suspects_no_node() -> None:
    """Observe writes nothing to the fleet's ledger; who insists on a restart has not insisted on that."""
    one = Controller(policy(limits=MAY))
    one.reconcile(training().pod_failed(2, 134, 0), 1)
    world = training().pod_failed(2, 134, 0).recreated(10)
    one.reconcile(world, 11)
    asked = len(one.fleet_changes)
    one.policy = policy(Mode.OBSERVE, limits=MAY)
    value = msgspec.json.encode({"at": at(20).isoformat(), "force": True}).decode()
    one.reconcile(world.all_started(15).pod_failed(2, 134, 18).asked("recovery.trainjob.dev/restart", value), 21)
    assert one.ledger.requests[0].accepted
    assert len(one.triggers) == 2
    assert len(one.fleet_changes) == asked


# --- the breaker ---------------------------------------------------------------------------------------------------

BREAKS = FleetLimits(breaker_recoveries=1)


def test_what_was_in_vain_before_a_person_closed_the_breaker_does_not_open_it_again() -> None:
    """A group whose trigger was refused then asks once more for what its restart counted for."""
    open_ = FleetLedger(futile=(Futile("a-2", at(0)),), breaker=Breaker(at(0), Reason.RECOVERIES_IN_VAIN))
    closed = breaker.breaker_reset(open_, at(60), at(61))
    late = FleetChange(futile=(Futile("a-2", at(0)),))
    after = quarantine.changed(closed, BREAKS, late, nodes=100, now=at(62), reset_at=at(60))
    assert after == closed
    new_ = FleetChange(futile=(Futile("a-3", at(70)),))
    again = quarantine.changed(closed, BREAKS, new_, nodes=100, now=at(71), reset_at=at(60))
    assert isinstance(again, FleetLedger)
    assert again.breaker is not None


# --- black holes ---------------------------------------------------------------------------------------------------


def test_a_kubelet_whose_clock_lags_makes_no_second_time_of_the_first() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    lags = accepted(world, 2, -300)
    one.reconcile(lags, 43)
    assert suspected(one) == [], "two minutes since its pod was made are not over"
    carried(one, one.reconcile(lags, 131))
    one.reconcile(lags, 135)
    assert suspected(one) == [("gpu-2", one.incident.id)]
    one.reconcile(lags, 140)
    assert len(one.triggers) == 1


def test_a_rank_that_has_found_another_node_needs_no_restart_though_its_first_one_fails_for_the_second_time() -> None:
    one = controller()
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14).scheduled(2), 2)
    one.reconcile(world, 20)
    carried(one, one.reconcile(world, 60))
    assert suspected(one) == [("gpu-2", one.incident.id)]
    one.reconcile(world, 1040)
    assert len(one.triggers) == 2
    again = world.recreated(1050)
    one.reconcile(again, 1051)
    again = others_run(refused(again, 2, 1052).replaced(2, 1054), 2, 3).with_pod(2, node="gpu-9").started(2, 1060)
    one.reconcile(again, 1100)
    assert len(one.triggers) == 2


@pytest.mark.parametrize(
    "said",
    [
        'Back-off pulling image "r/i:1": ErrImagePull: failed to resolve reference "r/i:1": r/i:1: not found',
        "failed to authorize: failed to fetch anonymous token: 401 Unauthorized",
        "pull access denied, repository does not exist or may require authorization",
        "429 Too Many Requests - toomanyrequests: You have reached your pull rate limit",
    ],
)
def test_what_the_registry_itself_answers_is_not_the_nodes_fault(said: str) -> None:
    """The others have the image already: they run, and the node that asks for it hears that it is gone."""
    one = controller(SUSPECTED)
    world = others_run(stuck(new(), 2, 0, "ImagePullBackOff"), 2)
    container = msgspec.structs.replace(world.pod(2).containers[0], waiting_message=said)
    one.reconcile(world.with_pod(2, containers=(container,)), 300)
    assert one.fleet_changes == []


def test_a_group_that_is_held_says_why_though_a_node_comes_under_suspicion_in_the_same_reconcile() -> None:
    one = controller(limit=1)
    world = others_run(stuck(starting(one), 2, 800), 2)
    one.reconcile(world, 20)
    plan = one.reconcile(world, 1200)
    assert one.ledger.phase == "Held"
    assert plan.reason is Reason.ATTEMPTS_EXHAUSTED
    assert one.incident.reason is Reason.ATTEMPTS_EXHAUSTED


def test_suspicion_alone_restarts_nothing_and_is_asked_for_once() -> None:
    known = FleetLedger(suspicions=(Suspicion("gpu-2", "start-jobset-1", at(120)),))
    one = controller(known)
    world = others_run(stuck(new(), 2, 0), 2)
    for seconds in (121, 122, 900):
        assert one.reconcile(world, seconds).requeue_at is None
    assert one.fleet_changes == []
    assert quarantined(one) == []


@pytest.mark.parametrize(("clock", "asked"), [("12:01:00", 0), ("11:59:59", 1)])
def test_what_failed_on_a_node_before_a_person_released_it_does_not_count_two_minutes_later(
    clock: str, asked: int
) -> None:
    one = controller(SUSPECTED)
    world = others_run(refused(refused(new(), 2, 0).replaced(2, 5), 2, 5).replaced(2, 10), 2)
    one.reconcile(world.with_node("gpu-2", annotations={RELEASE_ANNOTATION: f"2026-11-21T{clock}Z"}), 130)
    assert len(one.fleet_changes) == asked


def test_the_last_nodes_with_accelerators_are_spared_however_many_there_are_without() -> None:
    everywhere = tuple(f"cpu-{number}" for number in range(50))
    fleet = FleetFacts(nodes=54, feasible=(*everywhere, "gpu-0", "gpu-1"), with_accelerators=("gpu-0", "gpu-1"))
    assert quarantine.spared(FleetLedger(), "gpu-1", fleet, 2) is not None
    assert quarantine.spared(FleetLedger(), "gpu-1", fleet, 1) is None


# --- found by drawing histories ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_a_job_that_somebody_deletes_while_its_group_starts_is_waited_for(mode: Mode) -> None:
    """No Job is left whose run could be dated: a decision is total all the same."""
    one = Controller(policy(mode))
    world = training().pod_deleted(1, 0)
    one.reconcile(world, 1)
    one.reconcile(world.job_deleted(2), 3)
    world = world.recreated(10).all_scheduled()
    one.reconcile(world, 11)
    assert one.phase() is Phase.STARTING
    one.reconcile(world.job_deleted(12), 13)
    one.settle(world.recreated(20).all_ready(30), 31)
    assert [incident.closing is not None for incident in one.recorded] == [True]
