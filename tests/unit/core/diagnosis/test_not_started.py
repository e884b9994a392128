"""A group that does not start: nothing restarts it, and the message says which pod waits for what."""

import msgspec
import pytest

from recovery.core.diagnosis.not_started import Hindrance, NotStarted, not_started
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.reason import Reason
from tests.unit.core.driver import Controller
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at


def pulling(world: World, index: int, reason: str, message: str = "") -> World:
    container = ContainerFacts(name="node", waiting_reason=reason, waiting_message=message)
    return world.scheduled(index).with_pod(index, containers=(container,))


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (
            pulling(group(), 2, "ImagePullBackOff", 'Back-off pulling image "train:typo"'),
            "has not started: pod train-node-0-2-10 (rank 2, node gpu-2) waits: ImagePullBackOff: Back-off pulling",
        ),
        (pulling(group(), 1, "CreateContainerConfigError"), "(rank 1, node gpu-1) waits: CreateContainerConfigError"),
        (
            group().unschedulable(0, "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."),
            "(rank 0, not scheduled) waits: Unschedulable: 0/4 nodes are available",
        ),
        (pulling(group(), 2, "ContainerCreating"), "no failure"),
        (training(), "no failure"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_start_is_left_alone_and_says_why(world: World, says: str) -> None:
    controller = Controller()
    for seconds in (1, 100, 4000):
        plan = controller.reconcile(world, seconds)
        assert says in plan.message
    assert controller.done == []
    assert controller.ledger.incident is None


def test_after_a_restart_the_sentence_says_who_keeps_the_group_from_starting() -> None:
    controller = Controller()
    lost = training().pod_failed(2, 1, 0)
    controller.reconcile(lost, 1)
    restarted = pulling(lost.recreated(10).all_scheduled(), 3, "ErrImagePull", "connection refused")
    first = controller.reconcile(restarted, 12)
    assert first.requeue_at is not None
    plan = controller.reconcile(restarted, 60)
    assert "pod train-node-0-3-20 (rank 3, node gpu-3) waits: ErrImagePull: connection refused" in plan.message
    assert len(controller.triggers) == 1


def test_a_group_that_has_not_started_is_reported_in_figures_as_well() -> None:
    """A listing and a metric show which pods wait for what, how many run, and how many GPUs wait with them."""
    world = group().started(0, -3590).started(1, -3590).scheduled(2).unschedulable(3, "0/4 nodes are available")
    assert not_started(world.snapshot()) == NotStarted(
        gpus=24,
        running=2,
        members=4,
        hindrance=Hindrance.UNSCHEDULABLE,
        cause="rank 3: Unschedulable",
        words="pod train-node-0-3-10 (rank 3, not scheduled) waits: Unschedulable: 0/4 nodes are available",
    )


FAILED = ExitFacts(1, "Error", started_at=at(-90), finished_at=at(-60))
AGAIN = ExitFacts(1, "Error", started_at=at(-50), finished_at=at(-45))
KILLED = ExitFacts(137, "OOMKilled", started_at=at(-90), finished_at=at(-60))
DONE = ExitFacts(0, "Completed", started_at=at(-50), finished_at=at(-40))


@pytest.mark.parametrize(
    ("init", "cause", "says"),
    [
        (ContainerFacts("fetch", exit=FAILED), "rank 2: Error", "container fetch exited with exit code 1"),
        (ContainerFacts("fetch", exit=KILLED), "rank 2: OOMKilled", "exited with exit code 137 (OOMKilled)"),
        (
            ContainerFacts("fetch", restarts=1, exit=AGAIN, last_exit=KILLED),
            "rank 2: CrashLoopBackOff",
            "container fetch exited with exit code 1 and has restarted 1 time",
        ),
        (
            ContainerFacts("fetch", restarts=3, running_since=at(-50), last_exit=FAILED),
            "rank 2: CrashLoopBackOff",
            "container fetch exited with exit code 1 and has restarted 3 times",
        ),
        (
            ContainerFacts("fetch", restarts=3, waiting_reason="CrashLoopBackOff", last_exit=FAILED),
            "rank 2: CrashLoopBackOff",
            "container fetch exited with exit code 1 and has restarted 3 times",
        ),
        (ContainerFacts("fetch", restarts=1, ready=True, exit=DONE, last_exit=FAILED), "rank 3: ErrImagePull", ""),
        (ContainerFacts("fetch", running_since=at(-50)), "rank 3: ErrImagePull", ""),
    ],
)
def test_an_init_container_that_fails_again_and_again_is_named_in_every_state(
    init: ContainerFacts, cause: str, says: str
) -> None:
    """A kubelet shows CrashLoopBackOff only for a moment. The rest of the time the container is Terminated or runs."""
    trains = ContainerFacts("node", waiting_reason="PodInitializing")
    world = group().all_scheduled().with_pod(2, init_containers=(init,), containers=(trains,))
    found = not_started(pulling(world, 3, "ErrImagePull").snapshot())
    assert found is not None
    assert found.cause == cause
    assert says in found.words


WITHOUT_IMAGE = ContainerFacts("logs", waiting_reason="ImagePullBackOff", waiting_message="Back-off pulling image")
RUNS = ContainerFacts("logs", running_since=at(-90))
KEEPS = "for good, and its Job does not replace the pod, because container logs keeps it"


@pytest.mark.parametrize(
    ("other", "phase", "says"),
    [
        (WITHOUT_IMAGE, "Pending", "Pending: ImagePullBackOff: Back-off pulling image"),
        (RUNS, "Running", "Running"),
    ],
    ids=["it has not started", "it runs"],
)
def test_a_container_that_keeps_a_pod_from_being_replaced_is_named(
    other: ContainerFacts, phase: str, says: str
) -> None:
    """Seed 1454: a rank is admitted late, and the others give up. A sidecar whose image is missing keeps their pods."""
    trained = ContainerFacts("node", exit=FAILED)
    world = group().all_scheduled().with_pod(2, phase=phase, containers=(trained,), other_containers=(other,))
    found = not_started(world.snapshot())
    assert found is not None
    assert found.cause == "rank 2: Error"
    assert found.words.endswith(f"waits: Error: container node exited with exit code 1 {KEEPS} {says}")


def test_no_container_keeps_a_pod_whose_training_starts_again_in_place() -> None:
    trains = ContainerFacts("node", exit=FAILED)
    world = group(restart_policy="OnFailure").all_scheduled()
    world = world.with_pod(2, phase="Running", containers=(trains,), other_containers=(RUNS,))
    found = not_started(world.snapshot())
    assert found is not None
    assert found.words.endswith("waits: Error: container node exited with exit code 1")


def test_a_pod_that_has_failed_keeps_no_one_from_starting() -> None:
    """The Job replaces it."""
    found = not_started(group().started(2, -3590).pod_failed(2, 1, -3580).snapshot())
    assert found is not None
    assert found.cause == ""


def test_a_job_that_cannot_create_pods_says_what_refuses_them() -> None:
    world = msgspec.structs.replace(group(), pods=()).with_job(failed_create="exceeded quota: gpus")
    found = not_started(world.snapshot())
    assert found is not None
    assert (found.cause, found.words) == (
        "Job train-node-0: FailedCreate",
        "Job train-node-0 cannot create pods: exceeded quota: gpus",
    )


@pytest.mark.parametrize(
    "world",
    [
        training(),
        training().pod_failed(2, 1, 0).replaced(2, 1).unschedulable(2, "0/4 nodes are available"),
        group().started(0, -3590).succeeded(0),
    ],
    ids=["it runs", "a member of one that has run waits", "it is about to be complete"],
)
def test_what_has_run_whole_or_is_finishing_has_started(world: World) -> None:
    assert not_started(world.snapshot()) is None


def test_a_resumed_group_starts_again() -> None:
    """The run before the suspension says nothing about the pods that wait now."""
    resumed = training().suspended().resumed(-60).unschedulable(1, "0/4 nodes are available")
    assert Controller().reconcile(resumed, 1).reason is Reason.NOT_STARTED


def test_all_jobs_must_have_run_and_all_must_be_there() -> None:
    """A launcher that runs alone, while JobSet has not created the Job of its workers, trains nothing."""
    alone = training(1).snapshot()
    assert not_started(alone) is None
    assert not_started(msgspec.structs.replace(alone, expected_jobs=2)) is not None
