"""A group of several member Jobs fails and restarts as a whole."""

import msgspec
import pytest

from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.freshness import STALE_AFTER
from recovery.core.model.facts import JobFacts, PodFacts, ReplicatedJobFacts, Snapshot
from recovery.core.model.ledger import Outcome, Phase
from tests.unit.core.consistency import checked
from tests.unit.core.diagnosis.test_native_policies import on_exit
from tests.unit.core.driver import Controller
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, whole


class Pair(msgspec.Struct, frozen=True):
    """A launcher and its nodes: two Jobs of one JobSet, each modelled as a world of its own."""

    nodes: World
    launcher: World
    watched: bool = False
    """The controller has seen all of their pods."""

    def snapshot(self, *, live: bool = False) -> Snapshot:
        nodes, launcher = self.nodes.snapshot(live=live), self.launcher.snapshot()
        assert nodes.jobset is not None
        parts = (ReplicatedJobFacts("launcher", 1, "trainer"), ReplicatedJobFacts("node", 1, "trainer"))
        return checked(
            msgspec.structs.replace(
                nodes,
                jobset=msgspec.structs.replace(nodes.jobset, replicated_jobs=parts),
                jobs=(*launcher.jobs, *nodes.jobs),
                pods=(*launcher.pods, *nodes.pods),
                gone_jobs=(*launcher.gone_jobs, *nodes.gone_jobs),
                trained_at={**nodes.trained_at, **launcher.trained_at},
                fully_watched=frozenset({each.uid for each in (*launcher.jobs, *nodes.jobs)} if self.watched else ()),
                trained_members={**nodes.trained_members, **launcher.trained_members},
                expected_jobs=2,
            )
        )

    def node(self, change: object) -> "Pair":
        return Pair(change(self.nodes), self.launcher)  # type: ignore[operator]

    def launch(self, change: object) -> "Pair":
        return Pair(self.nodes, change(self.launcher))  # type: ignore[operator]


def launcher_of(world: World) -> World:
    """The same world, in which the Job and its pods have other UIDs and names."""

    def renamed(pod: PodFacts) -> PodFacts:
        name = pod.name.replace("node", "launcher")
        job = pod.job_name.replace("node", "launcher")
        return msgspec.structs.replace(pod, name=name, uid=f"L-{pod.uid}", job_uid=f"L-{pod.job_uid}", job_name=job)

    def of_launcher(job: JobFacts) -> JobFacts:
        return msgspec.structs.replace(job, name="train-launcher-0", uid=f"L-{job.uid}", replicated_job="launcher")

    jobs, gone = tuple(map(of_launcher, world.jobs)), tuple(map(of_launcher, world.gone_jobs))
    trained = {f"L-{uid}": moment for uid, moment in world.trained_at.items()}
    members = {f"L-{uid}": count for uid, count in world.trained_members.items()}
    pods = tuple(map(renamed, world.pods))
    known = msgspec.structs.replace(world, trained_at=trained, trained_members=members, done={})
    return msgspec.structs.replace(known, jobs=jobs, pods=pods, gone_jobs=gone, job_template=(*jobs, *gone)[0])


def pair() -> Pair:
    return Pair(training(4), launcher_of(training(1)))


def reconcile(controller: Controller, pair_: Pair, seconds: float) -> None:
    plan = controller.plan_on(pair_.snapshot(), pair_.snapshot(live=True), seconds)
    controller.done += plan.first
    controller.write(plan)
    controller.done += plan.actions


def test_the_job_that_lost_the_member_goes_first_and_the_other_with_it() -> None:
    controller = Controller()
    reconcile(controller, pair().node(lambda w: w.pod_deleted(3, 0)), 0.5)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "L-job-1"]
    assert controller.incident.ranks == 5
    assert set(controller.incident.target.job_uids) == {"job-1", "L-job-1"}


def test_the_launcher_comes_first_where_it_was_the_one() -> None:
    controller = Controller()
    reconcile(controller, pair().launch(lambda w: w.pod_failed(0, 1, 0)), 0.5)
    assert [trigger.uid for trigger in controller.triggers] == ["L-job-1", "job-1"]


def test_a_launcher_that_crashes_before_its_nodes_have_run_is_left_to_its_job() -> None:
    nodes_pending = training(4).job_gone().job_created(-60).pods_created(-60)
    start = Pair(nodes_pending, launcher_of(training(1)))
    controller = Controller()
    reconcile(controller, start.launch(lambda w: w.pod_failed(0, 1, 0)), 0.5)
    assert controller.triggers == []
    assert controller.ledger.incident is None


def test_a_group_whose_second_job_is_still_to_be_made_has_not_trained() -> None:
    alone = msgspec.structs.replace(training(1).pod_failed(0, 1, 0).snapshot(), expected_jobs=2)
    controller = Controller()
    plan = controller.plan_on(alone, alone, 1)
    assert plan.ledger.incident is None


def test_half_way_through_the_rest_is_taken_down_after_a_crash() -> None:
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    reconcile(controller, lost, 0.5)
    controller.done.clear()
    reconcile(controller, lost.node(lambda w: w.job_deleted(0.6)), 1)
    assert [trigger.uid for trigger in controller.triggers] == ["L-job-1"]
    assert controller.ledger.epoch == 1


def test_a_job_that_completes_while_the_others_trigger_is_in_flight_is_not_deleted() -> None:
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    reconcile(controller, lost, 0.5)
    controller.done.clear()
    done = lost.node(lambda w: w.job_deleted(0.6)).launch(lambda w: w.success_criteria_met(0.7))
    reconcile(controller, done, 1)
    assert controller.triggers == []
    closing = controller.ledger.incident and controller.ledger.incident.closing
    assert closing
    assert (closing.outcome, closing.outcome_reason) == (Outcome.SUPERSEDED, "JobFinishing")


def test_the_deletion_of_one_job_by_another_client_restarts_the_other_jobs() -> None:
    controller = Controller()
    reconcile(controller, pair().launch(lambda w: w.job_deleted(0).all_deleted(0)), 0.5)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]
    assert controller.incident.evidence[0] == "Job train-launcher-0 was deleted, while Job train-node-0 still exists"


def test_the_deletion_of_all_jobs_by_another_client_without_a_policy_opens_no_incident() -> None:
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    controller.policy = None
    gone = lost.node(lambda w: w.job_deleted(0)).launch(lambda w: w.job_deleted(0))
    reconcile(controller, gone, 0.5)
    assert controller.ledger.incident is None


def test_it_is_over_only_when_every_job_runs_whole() -> None:
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    reconcile(controller, lost, 0.5)
    new_nodes = lost.nodes.recreated(3).all_ready(5)
    reconcile(controller, Pair(new_nodes, lost.launcher.job_deleted(0.6)), 5.1)
    assert controller.phase() is Phase.TEARING_DOWN
    launcher = lost.launcher.job_gone()
    reconcile(controller, Pair(new_nodes, launcher), 6)
    assert controller.phase() is Phase.SCHEDULING
    launcher = launcher.job_created(6, name="train-launcher-0").with_job(uid="L-job-2", parallelism=1, completions=1)
    launcher = msgspec.structs.replace(launcher.pods_created(6), trained_at={})
    reconcile(controller, Pair(new_nodes, launcher), 6.1)
    assert controller.ledger.incident is not None
    reconcile(controller, Pair(new_nodes, launcher.all_ready(8)), 8.1)
    assert controller.ledger.incident.closing is not None
    assert controller.ledger.incident.closing.outcome is Outcome.RECOVERED
    assert controller.ledger.incident.closing.ended_at >= whole(8)


def test_a_job_that_came_early_is_given_its_time_from_when_the_last_old_one_is_gone() -> None:
    """Seed 154 of the simulation: a pod on a dead node delayed one Job for minutes. The other Job had no pods yet."""
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    reconcile(controller, lost, 0.5)
    dying = lost.node(lambda w: w.job_deleted(0.6)).launch(lambda w: w.job_deleted(0.6))
    early = dying.launch(lambda w: launcher_of(training(1).job_gone().job_created(2)))
    reconcile(controller, early, 3)
    assert controller.phase() is Phase.TEARING_DOWN
    both = early.node(lambda w: w.recreated(300))
    reconcile(controller, both, 300.4)
    assert controller.phase() is Phase.SCHEDULING
    reconcile(controller, both, 300.5)
    assert controller.touches == []
    assert len(controller.triggers) == 2, "no second attempt for the time that it waited for the other"
    reconcile(controller, both, 361)
    assert [touch.name for touch in controller.touches] == ["train-launcher-0"]


def test_a_member_lost_while_an_old_job_still_goes_is_left_to_its_job() -> None:
    """Seed 584: the new group was never complete, so no rank hangs. The Job replaces the pod, and the ranks meet."""
    controller = Controller()
    lost = pair().node(lambda w: w.pod_deleted(3, 0))
    reconcile(controller, lost, 0.5)
    going = lost.node(lambda w: w.job_deleted(0.6)).launch(lambda w: w.job_deleted(0.6))
    back = training(1).job_gone().job_created(3).pods_created(3).all_ready(4)
    reconcile(controller, Pair(going.nodes, launcher_of(back)), 5)
    controller.done.clear()
    reconcile(controller, Pair(going.nodes, launcher_of(back.pod_failed(0, 1, 10))), 10.5)
    assert controller.triggers == []
    assert controller.phase() is Phase.TEARING_DOWN
    repaired = launcher_of(back.pod_failed(0, 1, 10).came_back(0, 20, 21))
    reconcile(controller, Pair(going.nodes.recreated(22).all_ready(24), repaired), 24.5)
    assert controller.triggers == []
    closing = controller.ledger.current_incident.closing
    assert closing is not None
    assert closing.outcome is Outcome.RECOVERED


# --- a bare JobSet, in which nothing says which of its Jobs train ---------------------------------------------------


def bare(pair_: Pair, *targets: str) -> Pair:
    """The nodes have accelerators. The other Job has one pod and no accelerators."""
    assert pair_.nodes.workload is not None
    workload = msgspec.structs.replace(pair_.nodes.workload, kind="JobSet")
    return pair_.node(
        lambda world: msgspec.structs.replace(world, workload=workload).with_jobset(success_targets=targets)
    )


def of_bare(pair_: Pair) -> Snapshot:
    snapshot = pair_.snapshot()
    assert snapshot.jobset is not None
    launcher, node = snapshot.jobset.replicated_jobs
    parts = (launcher, msgspec.structs.replace(node, accelerators=8))
    return msgspec.structs.replace(snapshot, jobset=msgspec.structs.replace(snapshot.jobset, replicated_jobs=parts))


def test_a_side_job_that_succeeds_does_not_make_the_training_finish() -> None:
    assert finishing(of_bare(bare(pair().launch(lambda w: w.succeeded(0))))) is None


def test_the_success_of_a_job_with_accelerators_does() -> None:
    assert finishing(of_bare(bare(pair().node(lambda w: w.succeeded(2))))) is not None


def test_the_targets_of_the_success_policy_decide_where_it_names_some() -> None:
    done = pair().launch(lambda w: w.succeeded(0))
    assert finishing(of_bare(bare(done, "launcher"))) is not None
    assert finishing(of_bare(bare(pair().node(lambda w: w.succeeded(2)), "launcher"))) is None


def test_the_launcher_of_a_train_job_is_what_its_success_policy_targets() -> None:
    nodes_done = pair().node(lambda w: w.succeeded(2).with_jobset(success_targets=("launcher",)))
    assert finishing(nodes_done.snapshot()) is None


def test_the_half_that_lives_on_is_not_the_whole_group() -> None:
    """One of two deletions has succeeded, and that Job waits for a finalizer. The controller is back much later."""
    controller = Controller()
    reconcile(controller, pair().node(lambda w: w.pod_deleted(3, 0)), 0.5)
    late = STALE_AFTER.total_seconds() + 60
    half = pair().node(lambda w: w.with_job(deleting_since=whole(1)))
    reconcile(controller, half, late)
    assert controller.ledger.current_incident.closing is None
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "L-job-1", "L-job-1"]


@pytest.mark.parametrize("ignores", [False, True], ids=["counted", "ignored"])
def test_jobs_that_have_run_one_after_the_other_are_not_restarted_for_a_lost_rank(ignores: bool) -> None:
    """Three ranks have two nodes. A rank that fails frees its node for another, so they never all run at once. A Job
    that ignores failures does not count them, so only a controller that has watched it knows all of its pods."""
    rules = (on_exit("Ignore", 1),) if ignores else ()
    launcher = launcher_of(group(1, born=-2000, rules=rules))
    nodes = group(2, born=-2000, rules=rules).started(0, -1995)
    launcher = launcher.started(0, -1995).pod_failed(0, 1, -1395).replaced(0, -1385)
    nodes = nodes.started(1, -1390).pod_failed(0, 1, -795)
    controller = Controller()
    reconcile(controller, Pair(nodes, launcher, watched=ignores), -794)
    assert (controller.triggers, controller.ledger.incident) == ([], None)
    together = Pair(nodes.replaced(0, -785).all_ready(-780), launcher.all_ready(-700))
    reconcile(controller, together.launch(lambda w: w.pod_failed(0, 1, 0)), 1)
    assert [trigger.uid for trigger in controller.triggers] == ["L-job-1", "job-1"]


def test_a_rank_lost_in_the_second_in_which_the_recovery_ended_was_lost_after_it() -> None:
    """Seed 20291: kubelets date in whole seconds. By those dates the lost process never ran beside the others."""
    controller = Controller()
    lost = pair().launch(lambda w: w.pod_failed(0, 1, 0))
    reconcile(controller, lost, 0.5)
    new = training(4).job_gone().job_created(1).pods_created(1).all_scheduled(1).all_ready(2)
    back = Pair(new, launcher_of(training(1).job_gone().job_created(1).pods_created(1).all_scheduled(1).all_ready(2)))
    for seconds in (2.3, 2.31, 2.32):
        reconcile(controller, back, seconds)
    assert (controller.ledger.incident, controller.ledger.history[0].outcome) == (None, Outcome.RECOVERED)
    controller.done.clear()
    reconcile(controller, back.launch(lambda w: w.pod_failed(0, 1, 2)), 2.9)
    assert {trigger.uid for trigger in controller.triggers} == {job.uid for job in back.snapshot().jobs}


def test_jobs_that_have_trained_and_that_a_user_has_enlarged_since_are_restarted() -> None:
    """Seed 3308: no node had room for the added rank."""
    enlarged = training(2).with_job(parallelism=3, completions=3).replaced(2, -100).with_job(failed=0)
    controller = Controller()
    reconcile(controller, Pair(enlarged, launcher_of(training(2))).launch(lambda w: w.pod_failed(0, 1, 0)), 1)
    assert {trigger.uid for trigger in controller.triggers} == {"job-1", "L-job-1"}


def test_jobs_of_which_not_every_process_is_known_have_trained_when_each_of_them_has() -> None:
    """The controller has started since. One restart too many is better than a group that hangs."""
    launcher = launcher_of(training(1, born=-2000).with_job(failed=1))
    launcher = launcher.with_pod(0, created_at=whole(-5)).started(0, 0).pod_ready(0, 0)
    nodes = training(2, born=-2000).pod_failed(0, 1, -10)
    controller = Controller()
    reconcile(controller, Pair(nodes, launcher), 1)
    assert {trigger.uid for trigger in controller.triggers} == {"job-1", "L-job-1"}
