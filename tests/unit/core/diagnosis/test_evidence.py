"""The signs of a loss: which of them count, what their keys are, and how they date the loss."""

import msgspec

from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.freshness import STALE_AFTER
from recovery.core.diagnosis.membership import group_runs_whole, member_jobs
from recovery.core.model.facts import Condition, ContainerFacts, Taint
from tests.unit.core.driver import Controller, observing
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at, whole


def only(world: World) -> Evidence:
    (item,) = gather(world.snapshot())
    return item


def test_an_exit_and_the_restart_that_follows_are_one_event() -> None:
    controller = observing()
    world = training(restart_policy="OnFailure").container_exited(2, 1, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world.container_back(2, 2), 2.5)
    assert list(controller.ledger.handled.keys) == ["pod-job-1-2-0/node/1"]
    controller.reconcile(world.container_back(2, 2).container_exited(2, 1, 3), 3.5)
    assert list(controller.ledger.handled.keys) == ["pod-job-1-2-0/node/1", "pod-job-1-2-0/node/2"]


def test_a_pod_is_lost_once_in_every_state_in_which_it_is_seen() -> None:
    world = training().pod_deleted(3, 0)
    assert only(world).key == only(world.pod_gone(3, 30)).key == only(world.pod_failed(3, 137, 5)).key


def crashed_twice(first_code: int, first_second: int, again_second: int, second_code: int = 1) -> World:
    """Rank 2 exits, is restarted in place a second later, and exits again."""
    world = training(restart_policy="OnFailure").container_exited(2, first_code, first_second)
    return world.container_back(2, first_second + 1).container_exited(2, second_code, again_second)


def test_an_exit_has_the_key_of_the_restart_that_follows_in_every_state_in_which_it_is_seen() -> None:
    """The kubelet counts the restart when the new process starts. A waiting container already has `last_exit`."""
    exited = crashed_twice(1, 0, 3)
    ended = exited.pod(2).containers[0]
    waiting = msgspec.structs.replace(ended, exit=None, last_exit=ended.exit, waiting_reason="CrashLoopBackOff")
    waits = exited.with_pod(2, containers=(waiting,))
    assert gather(exited.snapshot())[-1].key == only(waits).key == only(exited.container_back(2, 10)).key
    assert only(waits).text.endswith("exited with exit code 1; the kubelet will restart it (CrashLoopBackOff)")


def test_two_exits_seen_at_once_are_dated_by_the_first_which_names_the_cause() -> None:
    controller = Controller()
    controller.reconcile(crashed_twice(139, 0, 3), 3.5)
    incident = controller.ledger.current_incident
    assert incident.started_at == at(0)
    assert [suspect.exit_code for suspect in incident.suspects] == [139]
    assert list(controller.ledger.handled.keys) == ["pod-job-1-2-0/node/1", "pod-job-1-2-0/node/2"]


def test_an_exit_of_long_ago_does_not_date_the_next_one() -> None:
    """The exit came before the policy or long ago, and the rank has run again since."""
    late = int(STALE_AFTER.total_seconds()) + 60
    controller = Controller()
    controller.reconcile(crashed_twice(139, 0, late), late + 0.5)
    assert controller.ledger.current_incident.started_at == at(late)


def test_an_exit_on_the_way_to_the_first_full_group_does_not_date_the_next_one() -> None:
    world = group(restart_policy="OnFailure", born=-600).started(2, -590).container_exited(2, 139, -580)
    world = world.container_back(2, -570)
    for others in (0, 1, 3):
        world = world.started(others, -560).pod_ready(others, -560)
    controller = Controller()
    controller.reconcile(world.container_exited(2, 1, 3), 3.5)
    assert controller.ledger.current_incident.started_at == at(3)


def test_a_restart_whose_exit_is_forgotten_is_dated_by_the_new_process() -> None:
    restarted = ContainerFacts(name="node", restarts=1, running_since=whole(5))
    world = training(restart_policy="OnFailure")
    item = only(world.with_pod(2, containers=(restarted,), ready_since=whole(5)))
    assert item.at == at(5)
    assert (
        item.text
        == "container node of pod train-node-0-2-10 (rank 2, node gpu-2) exited and was restarted in place (restart 1)"
    )


def test_the_first_failing_exit_of_several_containers_is_the_pods() -> None:
    early = training().container_exited(3, 41, 2).pod(3).containers[0]
    late = training().container_exited(3, 42, 9).pod(3).containers[0]
    clean = training().container_exited(3, 0, 1).pod(3).containers[0]
    world = training().with_pod(3, phase="Failed", ready=False, containers=(late, clean, early))
    item = only(world)
    assert (item.exit is not None and item.exit.code) == 41
    assert item.at == at(2)


def test_an_exit_within_the_second_of_the_deletion_is_its_consequence() -> None:
    assert only(training().pod_deleted(3, 5).pod_failed(3, 137, 5)).kind is LossKind.POD_DELETED
    assert only(training().pod_deleted(3, 5).pod_failed(3, 137, 4)).kind is LossKind.POD_FAILED


def failed_then_deleted(code: int) -> World:
    """Rank 3 fails with this code, and a client deletes its pod in the same second."""
    world = training().pod_failed(3, code, 5)
    exits = tuple(each.exit for each in world.pod(3).containers if each.exit is not None)
    return world.pod_deleted(3, 5, grace_seconds=0).with_pod(3, ended_before_deletion=(*exits, None))


def test_a_failure_that_was_seen_before_the_deletion_is_none_of_its_consequences() -> None:
    """Even SIGKILL: the order of the states shows more than the dates."""
    for code in (42, 137):
        world = failed_then_deleted(code)
        item = only(world)
        assert (item.kind, item.exit is not None and item.exit.code) == (LossKind.POD_FAILED, code)
        assert classify((item,), world.snapshot()).cause == f"Exit{code}"


def test_a_pod_without_an_exit_may_have_failed_before_it_was_deleted() -> None:
    """The kubelet rejected or evicted it."""
    world = training().with_pod(3, phase="Failed", reason="Evicted", ready=False, containers=())
    world = world.pod_deleted(3, 5, grace_seconds=0).with_pod(3, ended_before_deletion=(None,))
    assert only(world).kind is LossKind.POD_FAILED


def test_a_disruption_is_dated_by_its_first_sign() -> None:
    assert only(training().pod_deleted(3, 5).evicted(3, 3)).at == at(3)
    drained = training().evicted(3, 7).with_pod(3, deleting_since=whole(2))
    assert only(drained).at == at(2)
    unknown = training().with_pod(3, conditions=(Condition("DisruptionTarget", "True"),), deleting_since=None)
    assert only(unknown).at is None


def by_taint(world: World) -> str:
    """What is said of rank 3, whose pod the taint manager deletes."""
    evicted = world.evicted(3, 300, reason="DeletionByTaintManager")
    return only(evicted).text.partition("DeletionByTaintManager")[2]


def test_an_eviction_by_taint_names_the_taint() -> None:
    bad = Taint("vendor.example/bad", "xid79", "NoExecute", whole(290))
    other = Taint("nvidia.com/gpu", "present", "NoSchedule", whole(0))
    said = by_taint(training().with_node("gpu-3", taints=(other, bad)))
    assert said == ", because of the NoExecute taint vendor.example/bad=xid79 of node gpu-3"


def test_an_eviction_from_a_silent_node_names_the_silence() -> None:
    unreachable = Taint("node.kubernetes.io/unreachable", "", "NoExecute", whole(0))
    silent = training().node_silent("gpu-3", 0).with_node("gpu-3", taints=(unreachable,))
    assert by_taint(silent) == ", because node gpu-3 has not answered since 12:00:00"
    not_ready = training().with_pod(3, ready=False).with_node("gpu-3", ready=False, ready_since=whole(5))
    assert by_taint(not_ready) == ", because node gpu-3 has not been Ready since 12:00:05"


def test_a_taint_of_an_administrator_is_named_before_the_silence_of_its_node() -> None:
    mine = Taint("ops.example/reboot", "", "NoExecute", whole(299))
    said = by_taint(training().node_silent("gpu-3", 298).with_node("gpu-3", taints=(mine,)))
    assert said == ", because of the NoExecute taint ops.example/reboot of node gpu-3"


def test_a_taint_that_came_after_the_eviction_or_has_gone_is_not_its_cause() -> None:
    late = Taint("ops.example/reboot", "", "NoExecute", whole(301))
    assert by_taint(training().with_node("gpu-3", taints=(late,))) == by_taint(training()) == ""


def test_an_eviction_by_taint_from_a_node_that_has_been_deleted_says_so() -> None:
    assert by_taint(training().node_deleted("gpu-3")) == ", because node gpu-3 does not exist any more"


def test_many_taints_are_counted() -> None:
    taints = tuple(Taint(f"ops.example/{name}", "", "NoExecute", whole(1)) for name in "abcde")
    said = by_taint(training().with_node("gpu-3", taints=taints))
    assert said.endswith("taint ops.example/a, ops.example/b, ops.example/c and 2 more of node gpu-3")


def test_a_disruption_without_a_reason_is_named_by_its_class() -> None:
    item = only(training().with_pod(3, conditions=(Condition("DisruptionTarget", "True"),)))
    assert classify((item,), training().snapshot()).cause == "PodDisrupted"
    assert item.text.endswith("was disrupted: DisruptionTarget")


def test_other_conditions_are_no_disruption() -> None:
    resizing = Condition("PodResizePending", "True", "Deferred")
    revoked = Condition("DisruptionTarget", "False")
    world = training().with_pod(3, conditions=(resizing, revoked))
    assert gather(world.snapshot()) == ()
    assert only(world.pod_deleted(3, 0)).kind is LossKind.POD_DELETED


def test_a_failing_job_is_dated_by_when_it_began_to_fail() -> None:
    world = training().job_failing("BackoffLimitExceeded", 3).job_failing("BackoffLimitExceeded", 9, finally_=True)
    conditions = world.job.conditions
    world = world.with_job(conditions=(conditions[0], conditions[-1]))
    assert only(world).at == at(3)


def test_a_job_that_a_client_deletes_is_the_only_loss() -> None:
    assert only(training().pod_failed(3, 1, 0).job_deleted(1)).kind is LossKind.JOB_DELETED


def test_a_job_that_the_jobset_takes_down_still_tells_what_its_pods_died_of() -> None:
    world = training().pod_failed(3, 1, 0).restarted_by_jobset().job_deleted(1).pod_deleted(0, 1)
    assert only(world).kind is LossKind.POD_FAILED


def test_a_suspended_job_tells_nothing() -> None:
    assert gather(training().with_job(suspended=True).pod_deleted(3, 0).snapshot()) == ()


def test_a_job_of_another_jobset_is_no_member() -> None:
    """A TrainJob of the same name with another runtime was just deleted, and its Job still exists."""
    mine = training()
    stranger = msgspec.structs.replace(mine.job, name="train-worker-0", uid="job-0", jobset_uid="jobset-0")
    lost = msgspec.structs.replace(
        mine.pod(0),
        name="train-worker-0-0-old",
        uid="pod-old",
        job_uid="job-0",
        job_name="train-worker-0",
        deleting_since=at(0),
        deletion_grace_seconds=30,
    )
    world = msgspec.structs.replace(mine, jobs=(stranger, mine.job), pods=(lost, *mine.pods))
    assert gather(world.snapshot()) == ()
    assert [job.uid for job in member_jobs(world.snapshot())] == ["job-1"]
    assert group_runs_whole(world.snapshot())
    controller = Controller()
    controller.reconcile(world.pod_deleted(3, 0), 1)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]
    assert controller.incident.ranks == 4


def test_a_group_without_pods_runs_nothing() -> None:
    assert not group_runs_whole(training().job_gone().job_created(0).snapshot())
    assert not group_runs_whole(msgspec.structs.replace(training(), jobset=None).snapshot())


def test_a_pod_of_a_rank_that_its_user_has_taken_away_fills_no_other_rank() -> None:
    """Rank 1 is not Ready. The Job has 3 ranks now, and has yet to delete the pod of rank 3."""
    lost = training().with_pod(1, ready=False, ready_since=None).with_job(parallelism=3, completions=3)
    assert not group_runs_whole(lost.snapshot())
