"""A member is lost: the controller's action, and the message about it."""

import msgspec
import pytest

from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.facts import ContainerFacts
from recovery.core.model.ledger import AttemptAction, Outcome, Phase, Suspect
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, DeletePods, PodRef, RaiseBackoffLimit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World, at, whole


def test_a_deleted_pod_recreates_the_whole_group() -> None:
    world = training(4).pod_deleted(3, 0)
    controller = Controller()
    plan = controller.reconcile(world, 0.2)
    job = world.job
    assert plan.actions[:3] == (
        DeleteJob(epoch=1, name="train-node-0", uid="job-1", resource_version=job.resource_version),
        RaiseBackoffLimit(epoch=1, name="train-node-0", uid="job-1"),
        DeletePods(
            epoch=1,
            pods=tuple(PodRef(pod.name, pod.uid) for pod in world.pods if pod.index != 3),
            grace_seconds=None,
        ),
    )
    assert controller.ledger.epoch == 1
    assert controller.incident.target.job_uids == ("job-1",)
    assert controller.incident.target.job_set_uid == "jobset-1"
    assert controller.incident.ranks == 4
    assert controller.incident.gpus == 4 * GPUS_PER_POD
    assert controller.incident.suspects == (Suspect(pod="train-node-0-3-10", node="gpu-3", index=3),)
    assert controller.live_reads == 1
    assert plan.message == (
        "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; no rule matched, so the default of policy default "
        "(RecreateGroupOnPodRestart) applies: deleting Job train-node-0 so that all 4 ranks restart together "
        "(9 of 10 recoveries left)"
    )


def with_device(world: World, rank: int, *devices: str) -> World:
    """The kubelet reports these devices of the training container as Unhealthy."""
    (container,) = world.pod(rank).containers
    return world.with_pod(rank, containers=(msgspec.structs.replace(container, unhealthy_devices=devices),))


LOSSES = {
    "a pod failed": (
        training().pod_failed(3, 137, 0),
        "Killed",
        "Exit137",
        "pod train-node-0-3-10 (rank 3, node gpu-3) failed with exit code 137; ",
    ),
    "a device of the training is Unhealthy": (
        with_device(training().pod_failed(3, 1, 0), 3, "nvidia.com/gpu: GPU-1f2e", "nvidia.com/gpu: GPU-77aa"),
        "HardwareFault",
        "DeviceUnhealthy",
        "pod train-node-0-3-10 (rank 3, node gpu-3) failed with exit code 1, and the kubelet reports "
        "nvidia.com/gpu: GPU-1f2e and 1 more as Unhealthy; ",
    ),
    "a container whose device is Unhealthy was restarted in place": (
        with_device(training(restart_policy="OnFailure").container_restarted(2, 1, 0), 2, "nvidia.com/gpu: GPU-1f2e"),
        "HardwareFault",
        "DeviceUnhealthy",
        "container node of pod train-node-0-2-10 (rank 2, node gpu-2) exited with exit code 1 and was restarted in "
        "place (restart 1), and the kubelet reports nvidia.com/gpu: GPU-1f2e as Unhealthy; ",
    ),
    "a taint on a device": (
        training().evicted(3, 0, reason="DeletionByDeviceTaintManager"),
        "HardwareFault",
        "DeletionByDeviceTaintManager",
        "pod train-node-0-3-10 (rank 3, node gpu-3) was disrupted: DeletionByDeviceTaintManager; ",
    ),
    "a device of a sidecar is Unhealthy, which is no sign of the training": (
        training()
        .with_other(3, ContainerFacts("log", running_since=at(-60), unhealthy_devices=("example.com/nic: n-1",)))
        .pod_failed(3, 1, 0),
        "Unknown",
        "Exit1",
        "pod train-node-0-3-10 (rank 3, node gpu-3) failed with exit code 1; ",
    ),
    "out of memory": (
        training().pod_failed(3, 137, 0, reason="OOMKilled"),
        "OutOfMemory",
        "OOMKilled",
        "pod train-node-0-3-10 (rank 3, node gpu-3) failed with exit code 137 (OOMKilled); ",
    ),
    "a container was restarted in place": (
        training(restart_policy="OnFailure").container_restarted(2, 1, 0),
        "Unknown",
        "Exit1",
        "container node of pod train-node-0-2-10 (rank 2, node gpu-2) exited with exit code 1 "
        "and was restarted in place (restart 1); ",
    ),
    "a container has exited and waits for its restart": (
        training(restart_policy="OnFailure").container_exited(2, 1, 0),
        "Unknown",
        "Exit1",
        "container node of pod train-node-0-2-10 (rank 2, node gpu-2) exited with exit code 1; ",
    ),
    "a pod was evicted": (
        training().evicted(1, 0),
        "PodDisrupted",
        "EvictionByEvictionAPI",
        "pod train-node-0-1-10 (rank 1, node gpu-1) was disrupted: EvictionByEvictionAPI; ",
    ),
    "a pod was preempted": (
        training().evicted(1, 0, reason="PreemptionByScheduler"),
        "PodDisrupted",
        "PreemptionByScheduler",
        "pod train-node-0-1-10 (rank 1, node gpu-1) was disrupted: PreemptionByScheduler; ",
    ),
    "a pod has vanished": (
        training().pod_gone(0, 0),
        "PodDeleted",
        "PodDeleted",
        "pod train-node-0-0-10 (rank 0, node gpu-0) was deleted; ",
    ),
    "the Job is failing": (
        training().job_failing("BackoffLimitExceeded", 0),
        "JobFailed",
        "JobFailing",
        "Job train-node-0 is failing: BackoffLimitExceeded; ",
    ),
    "a pod was replaced, and the loss was not seen": (
        training().pod_gone(3, 0).replaced(3, 1).controller_restarted(),
        "PodDeleted",
        "PodDeleted",
        "pod train-node-0-3-11 (rank 3, not scheduled) was created after the group had run whole: it replaced a "
        "member whose loss was not seen; ",
    ),
}


@pytest.mark.parametrize(("world", "class_", "cause", "says"), LOSSES.values(), ids=LOSSES)
def test_every_kind_of_loss_is_named_and_triggers(world: World, class_: str, cause: str, says: str) -> None:
    controller = Controller()
    plan = controller.reconcile(world, 2)
    assert plan.message.startswith(says)
    assert "deleting Job train-node-0" in plan.message
    assert controller.incident.disruption_class == class_
    assert controller.incident.cause == cause
    assert controller.ledger.totals.failures == {class_: 1}
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]


def test_a_failed_pod_names_its_exit_code_as_suspect() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, 0), 1)
    assert controller.incident.suspects == (Suspect(pod="train-node-0-3-10", node="gpu-3", index=3, exit_code=137),)


def test_an_init_containers_exit_counts_as_the_pods() -> None:
    world = training()
    ended = World.container_exited(training(), 3, 41, 0).pod(3).containers
    never = ContainerFacts("node", waiting_reason="PodInitializing")
    world = world.with_pod(3, phase="Failed", ready=False, init_containers=ended, containers=(never,))
    assert "failed with exit code 41" in Controller().reconcile(world, 1).message


def test_a_pod_that_failed_without_an_exit_is_still_lost() -> None:
    world = training().with_pod(3, phase="Failed", containers=(), ready=False)
    assert "pod train-node-0-3-10 (rank 3, node gpu-3) failed; " in Controller().reconcile(world, 1).message


def test_an_exit_that_a_deletion_caused_is_told_as_the_deletion() -> None:
    world = training(restart_policy="OnFailure").pod_deleted(3, 0).container_exited(3, 143, 0)
    assert "was deleted" in Controller().reconcile(world, 1).message
    failed = training().pod_deleted(3, 0).pod_failed(3, 143, 5)
    assert "was deleted" in Controller().reconcile(failed, 6).message


@pytest.mark.parametrize(("code", "after", "class_"), [(143, 1, "PodDeleted"), (143, 3, "Killed"), (1, 1, "Unknown")])
def test_the_last_delete_of_a_kubelet_does_not_make_the_end_of_a_deleted_pod_its_cause(
    code: int, after: float, class_: str
) -> None:
    """The last delete gives the deletion a new date, and the container may have ended in an earlier second."""
    controller = Controller()
    controller.reconcile(training().pod_failed(3, code, 0).pod_deleted(3, after, grace_seconds=0), 4)
    assert controller.incident.disruption_class == class_


def test_an_exit_before_the_deletion_is_the_cause() -> None:
    world = training().pod_failed(3, 139, 0).pod_deleted(3, 5)
    assert "failed with exit code 139" in Controller().reconcile(world, 6).message


def test_a_clean_exit_of_a_running_pods_container_is_no_loss() -> None:
    sidecar = ContainerFacts("log-shipper", running_since=whole(-3590))
    world = training().with_other(3, sidecar).container_exited(3, 0, 0, reason="Completed")
    assert Controller().reconcile(world, 1).reason is Reason.NO_FAILURE


def test_forty_losses_at_once_are_one_incident_with_the_first_as_its_root() -> None:
    world = training(40, restart_policy="OnFailure")
    for index in range(40):
        world = world.container_exited(index, 134, 2 if index != 17 else 1)
    controller = Controller()
    controller.reconcile(world, 3)
    assert len(controller.triggers) == 1
    assert controller.ledger.totals.incidents == 1
    assert controller.incident.suspects[0].index == 17
    assert len(controller.incident.evidence) == 16
    assert len(controller.ledger.handled.keys) == 40


def test_within_a_second_a_cause_goes_before_its_consequence() -> None:
    world = training(restart_policy="OnFailure").container_exited(0, 134, 5).evicted(2, 5)
    controller = Controller()
    controller.reconcile(world, 6)
    assert controller.incident.cause == "EvictionByEvictionAPI"


def test_a_job_that_is_failing_is_taken_down_before_it_has_failed() -> None:
    """With the shipped runtime eight exits exhaust the backoffLimit within a second. The trigger rescues the JobSet."""
    world = training(16, restart_policy="OnFailure")
    for index in range(8):
        world = world.container_exited(index, 1, 0)
    controller = Controller()
    controller.reconcile(world.job_failing("BackoffLimitExceeded", 1), 1.2)
    assert len(controller.triggers) == 1
    assert controller.incident.cause == "Exit1"


def test_the_trigger_comes_before_the_pod_deletes_and_the_limit_before_them() -> None:
    plan = Controller().plan(training().pod_deleted(3, 0), 0.2)
    assert [type(action) for action in plan.actions[:3]] == [DeleteJob, RaiseBackoffLimit, DeletePods]


def test_a_limit_that_is_raised_already_is_left_alone() -> None:
    world = training(backoff_limit=2**31 - 1).pod_deleted(3, 0)
    assert not any(isinstance(action, RaiseBackoffLimit) for action in Controller().plan(world, 1).actions)


def test_several_jobs_go_down_together_first_the_one_that_lost_the_member() -> None:
    world = two_jobs().pod_deleted(1, 0)
    controller = Controller()
    controller.reconcile(world, 0.5)
    assert [trigger.uid for trigger in controller.triggers] == ["job-2", "job-1"]
    assert controller.incident.target.job_uids == ("job-1", "job-2")
    assert controller.incident.ranks == 4


def test_a_trigger_that_was_refused_for_one_job_is_not_sent_to_another_ones_successor() -> None:
    controller = Controller()
    world = two_jobs().pod_deleted(1, 0)
    controller.reconcile(world, 0.5)
    second, first = world.jobs[1], msgspec.structs.replace(world.jobs[0], uid="job-3", created_at=at(5))
    controller.reconcile(msgspec.structs.replace(world.job_gone("job-1"), jobs=(first, second)), 6)
    assert [trigger.uid for trigger in controller.triggers] == ["job-2", "job-1", "job-2"]


def test_one_job_of_several_back_is_not_the_group_back() -> None:
    controller = Controller()
    world = two_jobs()
    controller.reconcile(world.pod_deleted(1, 0), 0.5)
    first_only = world.job_gone().job_gone().job_created(20).pods_created(20).all_ready(30)
    controller.settle(first_only, 31)
    assert controller.incident.closing is None
    assert controller.phase() is Phase.SCHEDULING
    both = first_only.job_created(40, name="train-node-1").pods_created(40).all_ready(50)
    controller.settle(both, 51)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.ended_at == at(51)


def two_jobs() -> World:
    world = training(2)
    return world.job_created(-3600, name="train-node-1").pods_created(-3600).all_ready(-3590)


def test_the_graceful_deletes_take_the_policys_grace_and_shorten_longer_ones() -> None:
    world = training().pod_deleted(0, -1, grace_seconds=30).pod_deleted(1, -1, grace_seconds=5).pod_deleted(3, 0)
    controller = Controller(policy(grace_seconds=5))
    controller.reconcile(world, 0.5)
    assert [name[:14] for name in controller.pod_deletes] == ["train-node-0-0", "train-node-0-2", "train-node-0-3"]


def test_recovered_from_end_to_end() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.3)
    going = world.job_deleted(1).all_deleted(1)
    controller.reconcile(going, 1.2)
    assert controller.phase() is Phase.TEARING_DOWN
    coming = going.recreated(10)
    controller.reconcile(coming, 10.4)
    assert controller.phase() is Phase.SCHEDULING
    controller.reconcile(coming.all_scheduled(), 11)
    assert controller.phase() is Phase.STARTING
    controller.reconcile(coming.all_started(15), 15.5)
    assert controller.phase() is Phase.RENDEZVOUS
    plan = controller.reconcile(coming.all_started(15).all_ready(21), 21.6)
    assert plan.message.endswith("; all 4 ranks are Ready (source: ready, verified: false)")
    controller.settle(coming.all_started(15).all_ready(21), 21.7)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    assert incident.closing.source == "ready"
    assert not incident.closing.verified
    assert [attempt.action for attempt in incident.attempts] == [AttemptAction.RECREATE_GROUP]
    assert len(controller.triggers) == 1
    assert controller.ledger.totals.restarts == controller.ledger.totals.charged == controller.ledger.epoch == 1
    assert controller.ledger.budget.remaining == 9
    assert controller.events == ["RecreatingGroup", "IncidentRecovered"]
    assert controller.reconcile(coming.all_started(15).all_ready(21), 60).reason is Reason.NO_FAILURE


def test_a_group_whose_pods_are_gone_has_the_gpus_that_its_jobs_ask_for() -> None:
    trainer = ContainerTemplate("node", accelerators=GPUS_PER_POD)
    failed = training(4).with_job(containers=(trainer,)).jobset_failed(2)
    controller = Controller()
    controller.reconcile(msgspec.structs.replace(failed, pods=()), 3)
    assert (controller.incident.ranks, controller.incident.gpus) == (4, 4 * GPUS_PER_POD)
