"""Nodes on which pods of a group that has never run whole cannot start. Facts in, plan out."""

import msgspec
import pytest

from recovery.core.decision.fleet_changes import UNKNOWN_AGAIN_AFTER
from recovery.core.model.annotations import RELEASE_ANNOTATION
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Suspicion
from recovery.core.plan.actions import ChangeFleet, Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import EMPTY_FLEET, Controller, policy
from tests.unit.core.groups import group
from tests.unit.core.world import START, World, at, whole

START_NAME = "start-jobset-1"
OTHER = Suspicion("gpu-2", "other-7", at(-3600), "an exit", "ml")
SUSPECTED = FleetLedger(suspicions=(OTHER,))


def accepted(world: World, index: int, seconds: float) -> World:
    return world.with_pod(index, accepted_at=whole(seconds))


def stuck(world: World, index: int, seconds: float, reason: str = "CreateContainerError") -> World:
    """The kubelet accepted the pod at `seconds` and cannot create its container."""
    container = ContainerFacts(name="node", waiting_reason=reason, waiting_message="no space left")
    return accepted(world.scheduled(index), index, seconds).with_pod(index, containers=(container,))


def crashed(world: World, index: int, seconds: float, *, restarts: int, ran: float = 2, message: str = "") -> World:
    """The kubelet has restarted the container in place `restarts` times and waits to restart it again."""
    ended = ExitFacts(1, "Error", message, whole(seconds - ran), whole(seconds))
    container = ContainerFacts(name="node", restarts=restarts, last_exit=ended, waiting_reason="CrashLoopBackOff")
    placed = accepted(world.scheduled(index), index, 0)
    return placed.with_pod(index, phase="Running", containers=(container,))


def refused(world: World, index: int, seconds: float) -> World:
    """The pod failed at admission."""
    placed = accepted(world.scheduled(index), index, seconds)
    return placed.with_pod(index, phase="Failed", reason="UnexpectedAdmissionError")


def others_run(world: World, *but: int) -> World:
    for index in range(world.job.parallelism):
        created = (world.pod(index).created_at - START).total_seconds()
        world = world if index in but else world.started(index, max(5, created))
    return world


def new(ranks: int = 4) -> World:
    """A group created at START."""
    return group(ranks, born=0, restart_policy="OnFailure")


def controller(fleet: FleetLedger = EMPTY_FLEET, **settings: object) -> Controller:
    return Controller(policy(fleet=fleet, **{"limits": MAY, **settings}))  # type: ignore[arg-type]


def carried(one: Controller, plan: Plan) -> None:
    """Writes what the plan asks for into the fleet's ledger."""
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
    """The other nodes have the image already, and their pods run. The registry answers this node that it is gone."""
    one = controller(SUSPECTED)
    world = others_run(stuck(new(), 2, 0, "ImagePullBackOff"), 2)
    container = msgspec.structs.replace(world.pod(2).containers[0], waiting_message=said)
    one.reconcile(world.with_pod(2, containers=(container,)), 300)
    assert one.fleet_changes == []


def test_another_replicated_job_has_other_containers_and_proves_nothing() -> None:
    """A launcher whose image name has a typo hangs alone. Its node is fine."""
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


def test_suspicion_alone_restarts_nothing_and_is_asked_for_once() -> None:
    known = FleetLedger(suspicions=(Suspicion("gpu-2", "start-jobset-1", at(120), "an exit", "ml"),))
    one = controller(known)
    world = others_run(stuck(new(), 2, 0), 2)
    for seconds in (121, 122, 900):
        assert one.reconcile(world, seconds).requeue_at is None
    assert one.fleet_changes == []
    assert quarantined(one) == []


def test_the_node_is_quarantined_where_it_was_suspected_before_and_nothing_is_restarted() -> None:
    world, one = BLAMED["two pods of its rank were refused"], controller(SUSPECTED)
    plan = one.reconcile(world, 130)
    [change] = one.fleet_changes
    [entry] = change.quarantine
    assert (entry.node, entry.incident, entry.since) == ("gpu-2", START_NAME, at(130))
    assert [(each.node, each.incident) for each in change.suspicions] == [("gpu-2", START_NAME)]
    assert plan.message == (
        "has not started: pod train-node-0-2-10 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), 2 "
        "times there, while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one "
        "before is from incident other-7): quarantining it; the group is not restarted, and the Job replaces "
        "the pod"
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
    assert plan.message.endswith("the group is not restarted: delete the pod on that node by hand")


def test_a_cap_leaves_it_at_the_suspicion_and_says_so() -> None:
    one = controller(SUSPECTED, limits=FleetLimits(may_cordon=True, max_nodes=0))
    plan = one.reconcile(BLAMED["its container cannot be made"], 130)
    assert quarantined(one) == []
    assert suspected(one) == [("gpu-2", START_NAME)]
    assert plan.message.endswith(
        "the node is not quarantined: quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)"
    )


def test_the_last_feasible_nodes_are_spared() -> None:
    one = controller(SUSPECTED)
    small = msgspec.structs.replace(BLAMED["its container cannot be made"], cluster_nodes=4)
    assert "but the node is not quarantined: the group needs this node" in one.reconcile(small, 130).message
    assert quarantined(one) == []


def test_a_suspicion_waits_with_its_quarantine_until_it_is_known_which_nodes_are_left() -> None:
    """What the ledger holds is never asked for again, so a suspicion now would prevent the quarantine later."""
    one, world = controller(SUSPECTED), BLAMED["its container cannot be made"]
    plan = one.reconcile(msgspec.structs.replace(world, feasible_known=False), 130)
    assert (quarantined(one), suspected(one)) == ([], [])
    assert plan.requeue_at == at(130) + UNKNOWN_AGAIN_AFTER
    one.reconcile(world, 131)
    assert quarantined(one) == ["gpu-2"]


def test_two_black_holes_are_quarantined_one_after_the_other_because_the_caps_count_what_stands() -> None:
    world = others_run(stuck(stuck(new(8), 2, 0), 3, 0), 2, 3)
    both = FleetLedger(suspicions=(OTHER, Suspicion("gpu-3", "other-7", at(-3600), "an exit", "ml")))
    one = controller(both, limits=FleetLimits(may_cordon=True, max_nodes=1, max_percent=100))
    first = one.reconcile(world, 130)
    assert quarantined(one) == ["gpu-2"]
    assert first.requeue_at == at(130)
    carried(one, first)
    second = one.reconcile(world, 130.5)
    assert quarantined(one) == ["gpu-2"]
    assert "quarantine cap reached: 1 of 1 nodes" in second.message


def test_a_node_that_a_client_untaints_or_releases_is_not_quarantined_again() -> None:
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


@pytest.mark.parametrize(("clock", "asked"), [("12:01:00", 0), ("11:59:59", 1)])
def test_what_failed_on_a_node_before_a_person_released_it_does_not_count_two_minutes_later(
    clock: str, asked: int
) -> None:
    one = controller(SUSPECTED)
    world = others_run(refused(refused(new(), 2, 0).replaced(2, 5), 2, 5).replaced(2, 10), 2)
    one.reconcile(world.with_node("gpu-2", annotations={RELEASE_ANNOTATION: f"2026-11-21T{clock}Z"}), 130)
    assert len(one.fleet_changes) == asked
