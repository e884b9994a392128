"""Nodes that swallow pods: what a group that starts holds against them, and what becomes of it. Facts in, plan out."""

import msgspec
import pytest

from recovery.core.decision.fleet_changes import UNKNOWN_AGAIN_AFTER
from recovery.core.model.annotations import RELEASE_ANNOTATION
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined, Suspicion
from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import ChangeFleet, Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import EMPTY_FLEET, Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import START, World, at, whole

START_NAME = "start-jobset-1"
OTHER = Suspicion("gpu-2", "other-7", at(-3600))
SUSPECTED = FleetLedger(suspicions=(OTHER,))


def accepted(world: World, index: int, seconds: float) -> World:
    return world.with_pod(index, accepted_at=whole(seconds))


def stuck(world: World, index: int, seconds: float, reason: str = "CreateContainerError") -> World:
    """Its kubelet has had the pod since then and cannot make its container."""
    container = ContainerFacts(name="node", waiting_reason=reason, waiting_message="no space left")
    return accepted(world.scheduled(index), index, seconds).with_pod(index, containers=(container,))


def crashed(world: World, index: int, seconds: float, *, restarts: int, ran: float = 2, message: str = "") -> World:
    """The kubelet has restarted it in place so often, and waits to do so again."""
    ended = ExitFacts(1, "Error", message, whole(seconds - ran), whole(seconds))
    container = ContainerFacts(name="node", restarts=restarts, last_exit=ended, waiting_reason="CrashLoopBackOff")
    placed = accepted(world.scheduled(index), index, 0)
    return placed.with_pod(index, phase="Running", containers=(container,))


def refused(world: World, index: int, seconds: float) -> World:
    """Failed at admission."""
    placed = accepted(world.scheduled(index), index, seconds)
    return placed.with_pod(index, phase="Failed", reason="UnexpectedAdmissionError")


def others_run(world: World, *but: int) -> World:
    for index in range(world.job.parallelism):
        created = (world.pod(index).created_at - START).total_seconds()
        world = world if index in but else world.started(index, max(5, created))
    return world


def new(ranks: int = 4) -> World:
    """Made at START."""
    return group(ranks, born=0, restart_policy="OnFailure")


def controller(fleet: FleetLedger = EMPTY_FLEET, **settings: object) -> Controller:
    return Controller(policy(fleet=fleet, **{"limits": MAY, **settings}))  # type: ignore[arg-type]


def carried(one: Controller, plan: Plan) -> None:
    """The fleet's ledger has what the plan asks of it."""
    for action in plan.actions:
        if isinstance(action, ChangeFleet):
            assert isinstance(one.policy, Policy)
            fleet = one.policy.fleet
            after = FleetLedger(
                quarantined=(*fleet.quarantined, *action.change.quarantine),
                suspicions=(*fleet.suspicions, *action.change.suspicions),
            )
            one.policy = msgspec.structs.replace(one.policy, fleet=after)


def suspected(one: Controller) -> list[tuple[str, str]]:
    return [(each.node, each.incident) for change in one.fleet_changes for each in change.suspicions]


def quarantined(one: Controller) -> list[str]:
    return [each.node for change in one.fleet_changes for each in change.quarantine]


# --- a group that has never run whole ------------------------------------------------------------------------------

BLAMED = {
    "its container cannot be made": others_run(stuck(new(), 2, 0), 2),
    "its image cannot be pulled there": others_run(stuck(new(), 2, 0, "ImagePullBackOff"), 2),
    "it has failed twice in place": others_run(crashed(new(8), 2, 20, restarts=2), 2, 5),
    "two pods of its rank were refused": others_run(
        refused(refused(new(), 2, 0).replaced(2, 5), 2, 5).replaced(2, 10), 2
    ),
    "one of eight, and six run": others_run(stuck(new(8), 2, 0), 2, 5).scheduled(5),
}


@pytest.mark.parametrize("world", BLAMED.values(), ids=BLAMED)
def test_a_node_that_swallows_a_member_comes_under_suspicion_after_two_minutes(world: World) -> None:
    one = controller()
    early = one.reconcile(world, 119)
    assert one.done == []
    assert early.requeue_at == at(120)
    late = one.reconcile(world, 120)
    assert suspected(one) == [("gpu-2", START_NAME)]
    assert quarantined(one) == []
    assert "node gpu-2 is suspected (1 of 2 suspicions)" in late.message
    assert ", while members run on " in late.message
    assert one.ledger.incident is None
    assert one.ledger.epoch == 0
    assert one.workload_actions == []


NOT_BLAMED = {
    "nobody runs elsewhere": stuck(new(), 2, 0),
    "all have it": stuck(stuck(stuck(stuck(new(), 0, 0), 1, 0), 2, 0), 3, 0),
    "as many have it as run": others_run(stuck(stuck(new(), 2, 0), 1, 0), 1, 2),
    "it is on its way": others_run(stuck(new(), 2, 0, "ContainerCreating"), 2),
    "a ConfigMap is missing": others_run(stuck(new(), 2, 0, "CreateContainerConfigError"), 2),
    "a single failure": others_run(crashed(new(8), 2, 20, restarts=1), 2, 5),
    "the script's own error": others_run(crashed(new(8), 2, 20, restarts=3, message="KeyError: 'lr'"), 2, 5),
    "it waited for others": others_run(crashed(new(8), 2, 20, restarts=3, message="Rendezvous timed out"), 2, 5),
    "it ran for ten minutes first": others_run(
        crashed(group(8, born=-700, restart_policy="OnFailure"), 2, 20, restarts=3, ran=600), 2, 5
    ),
    "the rank fails wherever it is": others_run(
        refused(refused(refused(new(8), 2, 0).replaced(2, 5), 2, 5).replaced(2, 10), 2, 10).with_pod(2, node="gpu-9"), 2
    ),
    "its node is lost": others_run(stuck(new(), 2, 0), 2).with_node("gpu-2", ready=False),
    "its node is cordoned": others_run(stuck(new(), 2, 0), 2).with_node("gpu-2", unschedulable=True),
    "another member runs there": others_run(stuck(new(), 2, 0), 2).with_pod(3, node="gpu-2"),
    "its user suspended it": others_run(stuck(new(), 2, 0), 2).suspended(),
}


@pytest.mark.parametrize("world", NOT_BLAMED.values(), ids=NOT_BLAMED)
def test_what_may_be_anybodys_fault_brings_suspicion_on_no_node(world: World) -> None:
    one = controller()
    for seconds in (125, 600):
        one.reconcile(world, seconds)
    assert one.fleet_changes == []


def test_another_replicated_job_has_other_containers_and_proves_nothing() -> None:
    """A launcher whose image has a typo hangs alone, and its node is fine."""
    world = others_run(new(), 2).started(2, 5)
    launcher = msgspec.structs.replace(world.job, name="train-launcher-0", uid="job-9", replicated_job="launcher")
    alone = msgspec.structs.replace(launcher, parallelism=1, completions=1)
    pod = msgspec.structs.replace(
        stuck(new(), 2, 0, "ImagePullBackOff").pod(2),
        name="train-launcher-0-0-x",
        uid="pod-9",
        job_uid="job-9",
        job_name="train-launcher-0",
        node="gpu-9",
        index=0,
    )
    one = controller()
    one.reconcile(msgspec.structs.replace(world, jobs=(alone, *world.jobs), pods=(*world.pods, pod)), 300)
    assert one.fleet_changes == []


@pytest.mark.parametrize(
    "settings",
    [{"mode": Mode.OBSERVE}, {"limits": FleetLimits()}, {"global_pause": "all is paused"}],
    ids=["Observe", "no permission", "pause"],
)
def test_only_who_may_quarantine_suspects(settings: dict[str, object]) -> None:
    one = controller(**settings)  # type: ignore[arg-type]
    one.reconcile(BLAMED["its container cannot be made"], 300)
    assert one.fleet_changes == []


def test_what_stands_is_not_asked_for_again_and_is_said_on() -> None:
    world, one = BLAMED["its container cannot be made"], controller()
    carried(one, one.reconcile(world, 120))
    again = one.reconcile(world, 200)
    assert len(one.fleet_changes) == 1
    assert "node gpu-2 is suspected (1 of 2 suspicions)" in again.message


def test_the_node_is_quarantined_where_it_was_suspected_before_and_nothing_is_restarted() -> None:
    world, one = BLAMED["two pods of its rank were refused"], controller(SUSPECTED)
    plan = one.reconcile(world, 130)
    [change] = one.fleet_changes
    [entry] = change.quarantine
    assert (entry.node, entry.incident, entry.since) == ("gpu-2", START_NAME, at(130))
    assert [(each.node, each.incident) for each in change.suspicions] == [("gpu-2", START_NAME)]
    assert plan.message == (
        "has not started: pod train-node-0-2-10 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), 2 times there, "
        "while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions, incident other-7 before): "
        "quarantining it; nothing is restarted, its Job replaces the pod"
    )
    assert one.workload_actions == []
    assert one.ledger.incident is None


@pytest.mark.parametrize(
    ("namespace", "enough"),
    [pytest.param("ml", False, id="its own"), pytest.param("nlp", True, id="another, which confirms it")],
)
def test_what_a_message_of_the_same_namespace_says_does_not_count_here_either(namespace: str, enough: bool) -> None:
    by_message = msgspec.structs.replace(OTHER, namespace=namespace, by_message=True)
    one = controller(FleetLedger(suspicions=(by_message,)))
    one.reconcile(others_run(stuck(new(), 2, 0), 2), 120)
    assert suspected(one) == [("gpu-2", START_NAME)]
    assert quarantined(one) == (["gpu-2"] if enough else [])


def test_of_a_pod_that_stays_there_it_is_said_that_a_person_has_to_delete_it() -> None:
    one = controller(SUSPECTED)
    plan = one.reconcile(BLAMED["its container cannot be made"], 130)
    assert quarantined(one) == ["gpu-2"]
    assert plan.message.endswith("nothing is restarted, its pod there has to be deleted by hand")


def test_a_cap_leaves_it_at_the_suspicion_and_says_so() -> None:
    one = controller(SUSPECTED, limits=FleetLimits(may_cordon=True, max_nodes=0))
    plan = one.reconcile(BLAMED["its container cannot be made"], 130)
    assert quarantined(one) == []
    assert suspected(one) == [("gpu-2", START_NAME)]
    assert plan.message.endswith(
        "but it is not quarantined: quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)"
    )


def test_the_last_feasible_nodes_are_spared() -> None:
    one = controller(SUSPECTED)
    small = msgspec.structs.replace(BLAMED["its container cannot be made"], cluster_nodes=4)
    assert "but it is not quarantined: it is among the last" in one.reconcile(small, 130).message
    assert quarantined(one) == []


def test_a_suspicion_waits_with_its_quarantine_until_it_is_known_which_nodes_are_left() -> None:
    """What stands in the ledger is never asked for again: a suspicion now would cost the quarantine."""
    one, world = controller(SUSPECTED), BLAMED["its container cannot be made"]
    plan = one.reconcile(msgspec.structs.replace(world, feasible_known=False), 130)
    assert (quarantined(one), suspected(one)) == ([], [])
    assert plan.requeue_at == at(130) + UNKNOWN_AGAIN_AFTER
    one.reconcile(world, 131)
    assert quarantined(one) == ["gpu-2"]


def test_two_black_holes_are_quarantined_one_after_the_other_because_the_caps_count_what_stands() -> None:
    world = others_run(stuck(stuck(new(8), 2, 0), 3, 0), 2, 3)
    both = FleetLedger(suspicions=(OTHER, Suspicion("gpu-3", "other-7", at(-3600))))
    one = controller(both, limits=FleetLimits(may_cordon=True, max_nodes=1, max_percent=100))
    first = one.reconcile(world, 130)
    assert quarantined(one) == ["gpu-2"]
    assert first.requeue_at == at(130)
    carried(one, first)
    second = one.reconcile(world, 130.5)
    assert quarantined(one) == ["gpu-2"]
    assert "quarantine cap reached: 1 of 1 nodes" in second.message


def test_whoever_lets_the_node_in_is_not_overruled() -> None:
    world, one = BLAMED["its container cannot be made"], controller(SUSPECTED)
    carried(one, one.reconcile(world, 130))
    assert isinstance(one.policy, Policy)
    untainted = msgspec.structs.replace(one.policy.fleet, quarantined=())
    one.policy = msgspec.structs.replace(one.policy, fleet=untainted)
    one.reconcile(world, 200)
    assert quarantined(one) == ["gpu-2"]
    released = world.with_node("gpu-2", annotations={RELEASE_ANNOTATION: "2026-11-21T12:05:00Z"})
    one.policy = msgspec.structs.replace(one.policy, fleet=FleetLedger())
    one.reconcile(released, 400)
    assert quarantined(one) == ["gpu-2"]
    assert len(suspected(one)) == 1, "what was before the release does not count"


# --- a group that starts again in its incident ---------------------------------------------------------------------


def starting(one: Controller, *, restart_policy: str = "OnFailure") -> World:
    """Rank 1 was lost, and the group is recreated at 10."""
    lost = training(restart_policy=restart_policy).pod_deleted(1, 0)
    one.reconcile(lost, 1)
    world = lost.recreated(10)
    one.reconcile(world, 11)
    return world


def test_a_member_that_cannot_start_brings_suspicion_on_its_node_and_no_restart() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    one.reconcile(world, 43)  # says what it waits for
    assert one.reconcile(world, 131).requeue_at == at(132)
    plan = one.reconcile(world, 132)
    assert suspected(one) == [("gpu-2", one.incident.id)]
    assert "waits: CreateContainerError: no space left, while members run on 3 other nodes: node gpu-2" in plan.message
    carried(one, plan)
    one.reconcile(world, 800)
    assert len(one.triggers) == 1
    assert len(suspected(one)) == 1
    assert one.reconcile(world, 1000).ledger.epoch == 2, "the timeout of the start stays what it is"


def test_a_member_that_fails_there_once_is_enough_when_the_others_have_not_in_half_a_minute() -> None:
    one = controller()
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14), 2)
    one.reconcile(world, 30)
    assert suspected(one) == []
    one.reconcile(world, 42)
    assert suspected(one) == [("gpu-2", one.incident.id)]


@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerError"])
def test_what_all_members_share_suspects_nobody(reason: str) -> None:
    one = controller()
    world = starting(one)
    for index in range(4):
        world = stuck(world, index, 12, reason)
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def test_a_suspected_node_from_which_nobody_takes_the_pod_is_replaced_by_a_restart() -> None:
    one = controller(SUSPECTED)
    world = others_run(stuck(starting(one), 2, 12), 2)
    first = one.reconcile(world, 132)
    assert first.requeue_at == at(132)
    carried(one, first)
    one.reconcile(world, 132.5)
    assert len(one.triggers) == 2
    assert one.incident.attempts[-1].action is AttemptAction.REPLACE_NODE
    assert quarantined(one) == ["gpu-2"]
    assert "node gpu-2 is suspected (2 of 2 suspicions, incident other-7 before)" in one.incident.message
    assert "quarantining node gpu-2 and deleting Job train-node-0 once more" in one.incident.message


def test_a_suspected_node_whose_pod_was_replaced_is_quarantined_without_a_restart() -> None:
    one = controller(SUSPECTED)
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14), 2)
    plan = one.reconcile(world, 60)
    assert quarantined(one) == ["gpu-2"]
    carried(one, plan)
    one.reconcile(world, 61)
    assert len(one.triggers) == 1
    assert plan.message.endswith("quarantining it; nothing is restarted, its Job replaces the pod")


def test_the_second_time_within_the_incident_replaces_the_node() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 1040)
    assert one.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    again = world.recreated(1050)
    one.reconcile(again, 1051)
    again = others_run(stuck(again, 2, 1052), 2)
    one.reconcile(again, 1150)
    assert len(one.triggers) == 2
    one.reconcile(again, 1172)
    assert len(one.triggers) == 3
    assert one.incident.attempts[-1].nodes == ("gpu-2",)
    assert one.incident.reason is Reason.NODE_SUSPECTED_TWICE


def test_where_the_node_may_not_be_quarantined_there_is_no_restart_loop() -> None:
    """The new group could come back on the very same node; the timeout of the start goes on as ever."""
    one = controller(SUSPECTED, limits=FleetLimits(may_cordon=True, max_nodes=0))
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 133)
    assert Reason.QUARANTINE_CAP in {each.reason for each in one.incident.considered}
    assert "QuarantineRefused" in one.events
    assert [attempt.action for attempt in one.incident.attempts] == [AttemptAction.RECREATE_GROUP]
    reads = one.live_reads
    for seconds in (134, 200, 600):
        one.reconcile(world, seconds)
    assert one.live_reads == reads, "what was refused is not asked again by each look"
    assert len(one.triggers) == 1


def test_an_exhausted_budget_waits_for_the_timeout_as_ever() -> None:
    one = controller(SUSPECTED, limit=1)
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 133)
    assert len(one.triggers) == 1
    assert one.phase() is Phase.STARTING, "held only when the start has taken too long"
    assert quarantined(one) == []


@pytest.mark.parametrize("forced", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("how", ["paused", "observe"])
def test_who_is_barred_suspects_nobody(how: str, forced: bool) -> None:
    """Who insists on a restart all the same has not insisted on a quarantine."""
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    one.ledger = msgspec.structs.replace(one.ledger, incident=msgspec.structs.replace(one.incident, forced=forced))
    if how == "paused":
        world = world.paused()
    else:
        assert isinstance(one.policy, Policy)
        one.policy = msgspec.structs.replace(one.policy, mode=Mode.OBSERVE)
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def test_a_group_that_a_storm_took_down_suspects_nobody() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    one.ledger = msgspec.structs.replace(one.ledger, incident=msgspec.structs.replace(one.incident, storm="storm-1"))
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def released(world: World, clock: str) -> World:
    return world.with_node("gpu-2", annotations={RELEASE_ANNOTATION: f"2026-11-21T{clock}Z"})


@pytest.mark.parametrize(("clock", "action"), [("12:00:10", "RecreateGroup"), ("11:59:59", "ReplaceNode")])
def test_the_second_time_counts_only_what_came_after_a_release_by_hand(clock: str, action: str) -> None:
    one = controller()
    one.reconcile(training().pod_failed(2, 134, 0), 1)
    world = training().pod_failed(2, 134, 0).recreated(10).all_started(15)
    one.reconcile(world, 16)
    one.reconcile(released(world.pod_failed(2, 134, 20), clock), 21)
    assert one.incident.attempts[-1].action == action


@pytest.mark.parametrize(("clock", "asked"), [("12:00:05", 1), ("11:59:59", 2)])
def test_a_crash_before_the_fleet_was_asked_does_not_bring_back_what_a_person_has_released(
    clock: str, asked: int
) -> None:
    world, one = training().pod_failed(2, 134, 0), controller()
    one.reconcile(world, 1)
    one.reconcile(released(world, clock), 10)
    assert len(suspected(one)) == asked


def test_a_node_that_is_quarantined_is_suspected_no_more() -> None:
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-60), incident="x-1", applied=True)
    one = controller(FleetLedger(quarantined=(entry,)))
    world = others_run(stuck(starting(one), 2, 12), 2).with_node("gpu-2", unschedulable=True)
    one.reconcile(world, 300)
    assert one.fleet_changes == []
