"""Only the training container decides whether a rank runs, is Ready or is lost. Helpers and sidecars do not count."""

import msgspec
import pytest

from recovery.core.diagnosis.evidence import LossKind, gather
from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.membership import group_runs_whole
from recovery.core.diagnosis.training_container import SelectedBy, Selection, assigned, restarts_in_place, select
from recovery.core.model.annotations import TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.container_template import ContainerTemplate, RestartRule
from recovery.core.model.facts import ContainerFacts, ExitFacts, JobFacts, PodFacts
from recovery.core.model.reason import Reason
from tests.unit.core.decision.test_baselines import untouched
from tests.unit.core.driver import Controller
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

NODE, LAUNCHER = ContainerTemplate("node", accelerators=8), ContainerTemplate("launcher")
MAIN, SHIPPER = ContainerTemplate("main"), ContainerTemplate("log-shipper")
FIRST_GPU, SECOND_GPU = ContainerTemplate("actor", accelerators=4), ContainerTemplate("critic", accelerators=4)


# --- which container trains ----------------------------------------------------------------------------------------


def selection(
    *containers: ContainerTemplate, kind: str = "JobSet", on_template: str = "", on_workload: str = ""
) -> Selection:
    world = group().with_job(containers=containers, training_container=on_template)
    annotations = {TRAINING_CONTAINER_ANNOTATION: on_workload} if on_workload else {}
    return select(world.job, world.with_workload(kind=kind, annotations=annotations).workload)


@pytest.mark.parametrize(
    ("found", "by", "names"),
    [
        (selection(NODE, SHIPPER, kind="TrainJob"), SelectedBy.TRAINER, ("node",)),
        (selection(SHIPPER, LAUNCHER, kind="TrainJob"), SelectedBy.TRAINER, ("launcher",)),
        (selection(NODE, SHIPPER, kind="TrainJob", on_template="log-shipper"), SelectedBy.TRAINER, ("node",)),
        (selection(LAUNCHER, SHIPPER), SelectedBy.UNKNOWN, ()),
        (selection(MAIN, SHIPPER, on_template="main"), SelectedBy.ANNOTATION, ("main",)),
        (selection(MAIN, FIRST_GPU, on_workload="main"), SelectedBy.ANNOTATION, ("main",)),
        (selection(MAIN, SHIPPER, on_template="main", on_workload="log-shipper"), SelectedBy.ANNOTATION, ("main",)),
        (selection(MAIN, FIRST_GPU, on_template="mian"), SelectedBy.UNKNOWN, ()),
        (selection(SHIPPER, FIRST_GPU, on_workload="of-another-job"), SelectedBy.ACCELERATORS, ("actor",)),
        (selection(FIRST_GPU, SHIPPER, SECOND_GPU), SelectedBy.ACCELERATORS, ("actor", "critic")),
        (selection(MAIN), SelectedBy.ONLY_ONE, ("main",)),
        (selection(MAIN, kind="TrainJob"), SelectedBy.ONLY_ONE, ("main",)),
        (selection(MAIN, SHIPPER), SelectedBy.UNKNOWN, ()),
        (selection(), SelectedBy.NO_TEMPLATE, ()),
    ],
)
def test_the_training_container_is_selected(found: Selection, by: SelectedBy, names: tuple[str, ...]) -> None:
    assert found == Selection(by, names)


RULE_42 = ContainerTemplate("node", restart_policy="Never", restart_rules=(RestartRule("In", (42,)),))
RULE_NOT_42 = ContainerTemplate("node", restart_policy="Never", restart_rules=(RestartRule("NotIn", (42,)),))


@pytest.mark.parametrize(
    ("pod_policy", "container", "code", "restarted"),
    [
        ("Never", ContainerTemplate("node"), 1, False),
        ("OnFailure", ContainerTemplate("node"), 1, True),
        ("OnFailure", ContainerTemplate("node"), 0, False),
        ("OnFailure", ContainerTemplate("node", restart_policy="Never"), 1, False),
        ("Never", ContainerTemplate("node", restart_policy="OnFailure"), 1, True),
        ("Never", RULE_42, 42, True),
        ("Never", RULE_42, 1, False),
        ("Never", RULE_NOT_42, 1, True),
        ("Never", RULE_NOT_42, 42, False),
    ],
)
def test_what_the_kubelet_restarts_in_place(
    pod_policy: str, container: ContainerTemplate, code: int, restarted: bool
) -> None:
    job: JobFacts = group(restart_policy=pod_policy).with_job(containers=(container,)).job
    assert restarts_in_place(job, "node", code) is restarted


# --- what that makes of a pod --------------------------------------------------------------------------------------

BY_NAME = Selection(SelectedBy.TRAINER, ("node",))
RUNS = ContainerFacts("node", ready=True, running_since=at(5))
BROKEN = ContainerFacts("log-shipper", waiting_reason="ImagePullBackOff")
DONE = ContainerFacts("helper", exit=ExitFacts(0))


def pod(*containers: ContainerFacts, **changes: object) -> PodFacts:
    bare = group(born=0).scheduled(0).pod(0)
    return msgspec.structs.replace(bare, **{"containers": containers, "phase": "Running", **changes})


def test_a_helper_whose_image_cannot_be_pulled_keeps_the_phase_pending_and_nothing_else() -> None:
    found = assigned(pod(RUNS, BROKEN, phase="Pending"), BY_NAME)
    assert found.running
    assert (found.ready, found.ready_since) == (True, at(5))
    assert (found.containers, found.other_containers) == ((RUNS,), (BROKEN,))


def test_a_helper_that_ended_keeps_the_pod_from_being_ready_and_nothing_else() -> None:
    found = assigned(pod(RUNS, DONE), BY_NAME)
    assert (found.running, found.ready) == (True, True)


BACK = ContainerFacts("log-shipper", ready=True, running_since=at(60), restarts=1)


@pytest.mark.parametrize(
    ("helper", "ready_at", "joined_probe", "since"),
    [
        (BACK, 60, False, 5),
        (BACK, 61, False, 5),
        (BACK, 62, False, 62),
        (BACK, 7, False, 7),
        (BACK, 60, True, 60),
        (msgspec.structs.replace(BACK, restarts=0), 60, False, 60),
    ],
    ids=["restarted", "a second later", "long after", "before it", "Ready says joined", "started late"],
)
def test_ready_dates_from_the_training_where_another_container_was_restarted(
    helper: ContainerFacts, ready_at: float, joined_probe: bool, since: float
) -> None:
    """Seed 956 of the simulation: the pod is not Ready until the sidecar is back, which gives Ready a new date."""
    before = pod(RUNS, helper, ready=True, ready_since=at(ready_at), joined_probe=joined_probe)
    assert assigned(before, BY_NAME).ready_since == at(since)


def test_a_training_container_that_is_not_ready_makes_a_rank_that_is_not() -> None:
    starts = msgspec.structs.replace(RUNS, ready=False)
    found = assigned(pod(starts, DONE), BY_NAME)
    assert (found.running, found.ready) == (True, False)


@pytest.mark.parametrize(
    ("changes", "node_answers"), [({"ready_denied": True}, True), ({}, False)], ids=["Ready taken", "silent node"]
)
def test_a_node_that_went_silent_takes_ready_from_its_pods(changes: dict[str, object], node_answers: bool) -> None:
    """The node controller sets Ready of the pods to False and leaves the states of their containers as they were."""
    assert not assigned(pod(RUNS, DONE, **changes), BY_NAME, node_answers=node_answers).ready


def test_all_of_several_training_containers_have_to_run() -> None:
    both = Selection(SelectedBy.ACCELERATORS, ("actor", "critic"))
    actor, critic = ContainerFacts("actor", ready=True, running_since=at(5)), ContainerFacts("critic")
    assert not assigned(pod(actor, critic), both).running


def test_a_pod_of_one_container_stays_as_it_is() -> None:
    alone = pod(RUNS, ready=True, ready_since=at(9))
    assert assigned(alone, BY_NAME) is alone


def test_it_may_be_asked_twice() -> None:
    once = assigned(pod(RUNS, BROKEN), BY_NAME)
    assert assigned(once, BY_NAME) == once


def test_where_none_is_known_the_phase_of_the_pod_must_do() -> None:
    found = assigned(
        pod(ContainerFacts("a", running_since=at(5)), DONE, accepted_at=at(4)), Selection(SelectedBy.UNKNOWN)
    )
    assert (found.running, found.ready, found.training_known, found.containers) == (True, True, False, ())


# --- what that means for the group ---------------------------------------------------------------------------------


def with_helpers(*others: ContainerFacts, restart_policy: str = "Never") -> World:
    """A group in which each rank has the same helpers."""
    world = training(restart_policy=restart_policy)
    started = all(each.running_since or each.exit or each.last_exit for each in others)
    for index in range(4):
        world = world.with_other(index, *others).with_pod(index, phase="Running" if started else "Pending")
    return world


CRASHING = ContainerFacts("log-shipper", restarts=7, exit=ExitFacts(137, "OOMKilled", finished_at=at(0)))


@pytest.mark.parametrize("helper", [DONE, BROKEN, CRASHING], ids=["done", "broken", "crashing"])
def test_helpers_open_nothing_and_hold_nothing_up(helper: ContainerFacts) -> None:
    world = with_helpers(helper)
    assert group_runs_whole(world.snapshot())
    assert untouched(world, 60) is Reason.NO_FAILURE


@pytest.mark.parametrize("helper", [DONE, BROKEN, CRASHING], ids=["done", "broken", "crashing"])
def test_a_trainer_that_dies_beside_them_is_one_incident(helper: ContainerFacts) -> None:
    controller = Controller()
    controller.reconcile(with_helpers(helper, restart_policy="OnFailure").container_exited(2, 1, 0), 0.5)
    assert len(controller.triggers) == 1


def test_an_exit_for_good_beside_a_sidecar_is_a_failed_pod_before_its_phase_says_so() -> None:
    world = with_helpers(ContainerFacts("log-shipper", running_since=at(-9))).container_exited(2, 1, 0)
    (item,) = gather(world.snapshot())
    assert (item.kind, item.key) == (LossKind.POD_FAILED, f"{world.pod(2).uid}/lost")
    (failed,) = gather(world.with_pod(2, phase="Failed").snapshot())
    assert failed.key == item.key, "one event, whichever phase it is seen in"


def test_a_restart_rule_makes_the_same_exit_a_restart_in_place() -> None:
    rule = ContainerTemplate("node", restart_policy="Never", restart_rules=(RestartRule("In", (1,)),))
    (item,) = gather(training().with_job(containers=(rule,)).container_exited(2, 1, 0).snapshot())
    assert item.kind is LossKind.CONTAINER_RESTARTED


def test_restart_all_containers_is_a_restart_of_the_training_too() -> None:
    """The kubelet kills and removes the container, because another container of the pod asked for it (KEP-5532)."""
    killed = ExitFacts(137, "RestartingAllContainers")
    waits = ContainerFacts("node", restarts=1, last_exit=killed, waiting_reason="RestartingAllContainers")
    controller = Controller()
    rule = RestartRule("In", (3,))
    world = training().with_job(
        containers=(ContainerTemplate("node", 8), ContainerTemplate("w", restart_rules=(rule,)))
    )
    controller.reconcile(world.with_pod(2, containers=(waits,), ready=False), 0.5)
    assert len(controller.triggers) == 1


def test_a_training_that_exited_0_is_finishing_whatever_keeps_its_pod_running() -> None:
    world = with_helpers(ContainerFacts("log-shipper", running_since=at(-9))).container_exited(2, 0, 0)
    assert finishing(world.snapshot()) is not None


OOM_KILLED = ContainerFacts("log-shipper", exit=ExitFacts(137, "OOMKilled", finished_at=at(-2400)))


def test_a_pod_that_fails_by_a_sidecar_alone_is_lost_when_its_training_has_ended() -> None:
    """Seeds 935 and 583: the pod trained for 40 minutes after its sidecar was killed."""
    trained_on = with_helpers(OOM_KILLED).container_exited(2, 0, 0)
    (item,) = gather(trained_on.with_pod(2, phase="Failed").snapshot())
    assert (item.kind, item.exit, item.at) == (LossKind.POD_FAILED, OOM_KILLED.exit, at(0))


def test_a_pod_that_is_deleted_while_it_trains_is_not_lost_to_a_sidecar_that_died_before() -> None:
    deleted = with_helpers(OOM_KILLED).pod_deleted(2, 0).container_exited(2, 0, 5)
    (item,) = gather(deleted.with_pod(2, phase="Failed").snapshot())
    assert (item.kind, item.at) == (LossKind.POD_DELETED, at(0))


def test_a_pod_of_which_it_is_not_known_what_trains_fails_when_its_last_container_has_ended() -> None:
    trainer = ContainerFacts("a", exit=ExitFacts(0, finished_at=at(0)))
    (item,) = gather(
        training()
        .with_pod(
            2, phase="Failed", ready=False, training_known=False, containers=(), other_containers=(OOM_KILLED, trainer)
        )
        .snapshot()
    )
    assert (item.kind, item.exit, item.at) == (LossKind.POD_FAILED, OOM_KILLED.exit, at(0))


def test_without_a_known_training_container_exits_count_for_nothing_and_lost_pods_do() -> None:
    world = training()
    for index in range(4):
        pods = assigned(world.pod(index), Selection(SelectedBy.UNKNOWN))
        changes = {name: getattr(pods, name) for name in ("containers", "other_containers", "training_known", "ready")}
        world = world.with_pod(index, **changes)
    crashed = ContainerFacts("a", restarts=3, running_since=at(-1), last_exit=ExitFacts(1, finished_at=at(-2)))
    assert untouched(world.with_other(1, crashed), 0) is Reason.NO_FAILURE
    controller = Controller()
    controller.reconcile(world.pod_deleted(1, 0), 0.5)
    assert len(controller.triggers) == 1


def test_it_stays_so_when_its_job_takes_the_pod_down() -> None:
    """A Job that fails deletes its pods. The end of the training must not be forgotten with them (seed 174)."""
    world = (
        with_helpers(BROKEN).container_exited(2, 0, 0).pod_deleted(2, 60).with_pod(2, phase="Failed").pod_gone(2, 61)
    )
    assert finishing(world.job_failing("BackoffLimitExceeded", 61).snapshot()) is not None


BESIDE = ContainerFacts("log-shipper", running_since=at(-9))


def trained(ranks: int) -> World:
    """The first `ranks` of four ranks have exited 0 beside a running sidecar."""
    world = training()
    for index in range(ranks):
        world = world.with_other(index, BESIDE).container_exited(index, 0, 0, reason="Completed")
    return world


def with_pods_lost(world: World) -> World:
    """Two ranks fail by their sidecars, and the others are evicted. The Job replaces all of them, one of them twice."""
    for index in (0, 1):
        world = world.with_other(index, OOM_KILLED).with_pod(index, phase="Failed").replaced(index, 20)
    for index in (2, 3):
        world = world.evicted(index, 60).pod_gone(index, 62).replaced(index, 63)
    world = world.started(0, 64).pod_ready(0, 64)
    return world.pod_deleted(0, 70)


def test_a_group_that_has_trained_to_its_end_is_not_restarted_for_what_becomes_of_its_pods_later() -> None:
    """Seeds 2376, 2779 and 5616: the last pod that showed the end of the training was gone."""
    world = with_pods_lost(trained(4))
    assert finishing(world.snapshot()) is not None
    controller = Controller()
    controller.reconcile(world, 71)
    controller.settle(world, 90)
    assert controller.triggers == []


def test_where_one_rank_has_not_the_group_is_restarted_as_ever() -> None:
    controller = Controller()
    controller.reconcile(with_pods_lost(trained(3)), 71)
    assert len(controller.triggers) == 1
