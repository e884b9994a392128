"""A client deletes the group's Jobs, or their JobSet. That is an incident, and the platform handles it."""

import msgspec
import pytest

from recovery.core.diagnosis.group_conditions import ORPHANED_PODS
from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.facts import Condition
from recovery.core.model.ledger import AttemptAction, Incident, Ledger, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_several_jobs import Pair, launcher_of, reconcile
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at, whole


def vanished(world: World, seconds: float) -> World:
    """The Job was deleted in the background: the object is gone at once, and its pods are being deleted."""
    job = world.job
    gone = msgspec.structs.replace(job, gone_at=at(seconds))
    pods = tuple(
        msgspec.structs.replace(pod, deleting_since=whole(seconds), deletion_grace_seconds=30)
        for pod in world.pods
        if pod.job_uid == job.uid and pod.gone_at is None
    )
    trained_at = dict(world.trained_at)  # remembered with the Job
    return msgspec.structs.replace(world.job_gone(), pods=pods, gone_jobs=(gone,), trained_at=trained_at)


def without_old_pods(world: World) -> World:
    return msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.deleting_since is None))


def back(world: World, seconds: float) -> World:
    """JobSet has created the Job again, and all ranks are Ready ten seconds later."""
    return without_old_pods(world).job_created(seconds).pods_created(seconds).all_ready(seconds + 10)


def without_jobset(world: World) -> World:
    return msgspec.structs.replace(world, jobset=None)


def with_next_jobset(world: World, seconds: float) -> World:
    """Trainer has created the JobSet again. `world`: one that still has the former JobSet."""
    assert world.jobset is not None
    jobset = msgspec.structs.replace(world.jobset, uid="jobset-2", created_at=whole(seconds), restarts=0)
    template = msgspec.structs.replace(world.job_template, jobset_uid="jobset-2")
    return msgspec.structs.replace(world, jobset=jobset, job_template=template)


def closed(controller: Controller) -> Incident:
    (incident,) = controller.recorded
    return incident


def assert_handled_by_the_platform(controller: Controller, *, idle_seconds: float) -> None:
    incident = closed(controller)
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.RECOVERED, Reason.ALL_RANKS_READY)
    assert [attempt.action for attempt in incident.attempts] == [AttemptAction.ADOPTED]
    assert (incident.disruption_class, incident.cause) == ("PodDeleted", "JobDeleted")
    assert not incident.charged
    assert controller.ledger.budget.charges == ()
    assert controller.workload_actions == []
    assert sum(span.idle_gpu_seconds for span in incident.phases) == pytest.approx(32 * idle_seconds, abs=32)


class TestJob:
    def test_its_deletion_is_an_incident_that_jobset_handles(self) -> None:
        controller = Controller()
        world = vanished(training(), 0.2)
        plan = controller.reconcile(world, 0.3)
        assert plan.reason is Reason.PLATFORM_RESTART
        assert controller.incident.evidence == ("Job train-node-0 was deleted",)
        assert (controller.incident.ranks, controller.incident.gpus) == (4, 32)
        assert controller.events == ["RestartAdopted"]
        controller.settle(back(world, 1), 11.5)
        assert_handled_by_the_platform(controller, idle_seconds=11.8)

    def test_a_foreground_deletion_that_waits_for_its_pods_is_an_incident_that_jobset_handles(self) -> None:
        """`--cascade=foreground`: the object stays until its pods are gone."""
        controller = Controller()
        world = training().job_deleted(0)
        controller.reconcile(world, 0.3)
        assert controller.phase() is Phase.TEARING_DOWN
        world = world.all_deleted(0)
        controller.reconcile(world, 1)
        controller.settle(back(vanished(world, 20), 21), 31.5)
        assert_handled_by_the_platform(controller, idle_seconds=32)

    def test_it_is_one_incident_if_its_successor_exists_by_then(self) -> None:
        controller = Controller()
        world = vanished(training(), 0.2).job_created(0.5).pods_created(0.5)
        controller.reconcile(world, 0.8)
        assert controller.incident.target.job_uids == ("job-1",)
        controller.settle(without_old_pods(world).all_ready(10), 10.5)
        assert_handled_by_the_platform(controller, idle_seconds=10.8)

    def test_a_leader_that_sees_it_late_books_it_as_well(self) -> None:
        controller = Controller()
        controller.settle(back(vanished(training(), 0.2), 1), 300)
        controller.settle(back(vanished(training(), 0.2), 1), 301)
        assert_handled_by_the_platform(controller, idle_seconds=11.8)

    def test_a_leader_that_has_not_seen_it_opens_nothing(self) -> None:
        controller = Controller()
        world = vanished(training(), 0.2).job_created(1).pods_created(1).controller_restarted()
        controller.settle(world, 2)
        controller.settle(without_old_pods(world).all_ready(10), 20)
        assert controller.ledger == Ledger()

    def test_a_group_that_has_not_trained_loses_nothing(self) -> None:
        """Its store remembers no such Job."""
        controller = Controller()
        controller.reconcile(group().job_deleted(0), 1)
        assert controller.ledger == Ledger()

    def test_a_late_reconcile_of_a_cache_opens_it_on_live_facts_only(self) -> None:
        controller = Controller()
        plan = controller.plan_on(vanished(training(), 0.2).snapshot(), training().snapshot(live=True), 0.3)
        assert plan.ledger == Ledger()
        assert controller.live_reads == 1

    def test_under_observe_it_is_recorded_too(self) -> None:
        controller = observing()
        world = vanished(training(), 0.2)
        controller.reconcile(world, 0.3)
        controller.settle(back(world, 1), 11.5)
        incident = closed(controller)
        assert incident.closing is not None
        assert incident.closing.outcome is Outcome.OBSERVED
        assert incident.mode == Mode.OBSERVE

    def test_pods_that_are_left_without_it_are_named_until_they_are_gone(self) -> None:
        """`--cascade=orphan`: they run on without an owner, and hold their GPUs."""
        controller = Controller()
        world = training()
        controller.reconcile(world.job_deleted(0), 0.1)
        orphans = tuple(msgspec.structs.replace(pod, job_uid="", job_name="") for pod in world.pods)
        again = vanished(world, 0.2).job_created(1).pods_created(1)
        left = msgspec.structs.replace(without_old_pods(again).all_ready(11), gone_jobs=again.gone_jobs)
        controller.settle(msgspec.structs.replace(left, pods=(*orphans, *left.pods)), 12)
        assert condition(controller, ORPHANED_PODS) == (
            "True",
            "pod train-node-0-0-10 (rank 0, node gpu-0) and 3 more still hold 32 GPUs, and their Job does not exist: "
            "delete them",
        )
        controller.reconcile(left, 60)
        assert condition(controller, ORPHANED_PODS) == ("False", "")


def condition(controller: Controller, type_: str) -> tuple[str, str]:
    (found,) = (each for each in controller.ledger.conditions if each.type == type_)
    return found.status, found.message


class TestNoIncident:
    def test_our_own_restart(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 1, 0)
        controller.reconcile(world, 0.5)
        world = back(vanished(world.job_deleted(1), 20), 21)
        controller.settle(world, 32)
        assert controller.reconcile(world, 33).reason is Reason.NO_FAILURE
        assert controller.reconcile(world, 3600).message == "no failure"
        assert controller.ledger.totals.incidents == 1

    def test_our_own_restart_by_a_clock_that_is_behind(self) -> None:
        """The incident ends before the API server's date of the deletion."""
        controller = Controller()
        controller.reconcile(training().pod_failed(3, 1, -60), -59.5)
        world = back(vanished(training().pod_failed(3, 1, -60).job_deleted(1), 5), 6)
        controller.settle(world, -40)
        controller.settle(world, 30)
        assert controller.ledger.totals.incidents == 1

    def test_a_second_restart_of_ours_in_one_incident(self) -> None:
        """The first Job is no longer a target of the second restart."""
        controller = Controller()
        world = training().pod_failed(3, 1, 0)
        controller.reconcile(world, 0.5)
        gone = without_old_pods(vanished(world.job_deleted(1), 20))
        world = gone.job_created(21).pods_created(21).all_started(30).pod_failed(1, 1, 40)
        controller.reconcile(world, 40.5)
        controller.reconcile(world.job_deleted(41), 42)
        assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]
        assert len(controller.incident.attempts) == 2

    def test_a_restart_by_jobset(self) -> None:
        controller = Controller()
        controller.reconcile(vanished(training().restarted_by_jobset(), 0.2), 0.3)
        assert controller.ledger == Ledger()

    @pytest.mark.parametrize(
        "world",
        [
            training().with_workload(deleting_since=whole(0)),
            training().with_workload(conditions=(Condition("Complete", "True"),)),
            training().suspended(),
            training().jobset_completed(),
            training().with_job(conditions=(Condition("Complete", "True"),)),
            training().success_criteria_met(0),
            training().with_job(suspended=True),
            training().with_job(conditions=(Condition("Suspended", "True"),)),
        ],
        ids=[
            "deleting",
            "complete",
            "suspended",
            "JobSet complete",
            "TTL",
            "criteria met",
            "Job suspended",
            "still so",
        ],
    )
    def test_of_a_job_that_ends_or_stands_still(self, world: World) -> None:
        controller = Controller()
        controller.settle(vanished(world, 0.2), 0.3)
        assert controller.ledger == Ledger()

    def test_of_an_earlier_workload_of_that_name(self) -> None:
        controller = Controller()
        world = vanished(training(), 0.2)
        controller.settle(world.with_workload(created_at=whole(10)).job_created(11), 12)
        assert controller.ledger == Ledger()

    def test_before_the_policy_enforced(self) -> None:
        controller = Controller(policy(since=60))
        controller.settle(vanished(training(), 0.2), 61)
        assert controller.ledger == Ledger()

    def test_while_it_is_paused_and_it_counts_afterwards(self) -> None:
        controller = Controller()
        world = vanished(training(), 0.2)
        assert controller.reconcile(world.asked(PAUSED_ANNOTATION, "true"), 0.3).reason is Reason.JOB_PAUSED
        controller.reconcile(world, 30)
        assert controller.incident.evidence == ("Job train-node-0 was deleted",)


class TestJobSet:
    def test_its_deletion_is_an_incident_that_trainer_handles(self) -> None:
        controller = Controller()
        world = training()
        gone = vanished(world, 0.2)
        plan = controller.reconcile(without_jobset(gone), 0.3)
        assert "Job train-node-0 was deleted with its JobSet; Trainer creates the JobSet again" in plan.message
        controller.reconcile(with_next_jobset(gone, 1), 1.5)
        controller.settle(back(with_next_jobset(gone, 1), 2), 12.5)
        assert_handled_by_the_platform(controller, idle_seconds=12.8)

    def test_trainer_handles_its_deletion_if_the_next_jobset_exists_before_the_old_jobs_are_gone(self) -> None:
        controller = Controller()
        world = training()
        controller.settle(with_next_jobset(world, 1), 1.1)
        assert controller.ledger == Ledger(), "its Jobs still train"
        gone = with_next_jobset(vanished(world, 1.2), 1)
        controller.reconcile(gone, 1.3)
        controller.settle(back(gone, 2), 12.5)
        assert_handled_by_the_platform(controller, idle_seconds=11.8)

    def test_a_foreground_deletion_that_waits_for_its_jobs_is_an_incident_that_trainer_handles(self) -> None:
        controller = Controller()
        world = training().with_jobset(deleting_since=whole(0)).job_deleted(0)
        controller.reconcile(world, 0.5)
        assert controller.phase() is Phase.TEARING_DOWN
        controller.reconcile(world, 5)
        gone = vanished(world, 20)
        controller.reconcile(without_jobset(gone), 20.5)
        assert controller.phase() is Phase.SCHEDULING
        next_ = with_next_jobset(gone.with_jobset(deleting_since=None), 21)
        controller.settle(back(next_, 22), 32.5)
        assert_handled_by_the_platform(controller, idle_seconds=33)

    @pytest.mark.parametrize(
        "changes",
        [
            {"deleting_since": whole(0)},
            {"conditions": (Condition("Failed", "True", "DeadlineExceeded"),)},
            {"active_deadline_seconds": 3600},
        ],
        ids=["with its TrainJob", "the TrainJob has failed", "at the deadline"],
    )
    def test_it_is_none_if_trainer_does_not_create_it_again(self, changes: dict[str, object]) -> None:
        controller = Controller()
        controller.settle(without_jobset(vanished(training(), 0.2)).with_workload(**changes), 0.3)
        assert controller.ledger == Ledger()

    def test_a_cache_that_still_shows_the_jobset_does_not_make_the_controller_delete_it(self) -> None:
        controller = Controller()
        gone = vanished(training(), 0.2)
        controller.reconcile(without_jobset(gone), 0.3)
        controller.plan_on(gone.snapshot(), without_jobset(gone).snapshot(live=True), 0.4)
        controller.reconcile(gone, 0.5)
        assert controller.workload_actions == []


class TestJobSetInAnIncident:
    """The incident lasts until all ranks run again, so that none of its seconds is lost."""

    def assert_goes_on(self, controller: Controller, gone: World, actions: list[AttemptAction]) -> None:
        controller.reconcile(without_jobset(gone), 40.5)
        assert controller.incident.attempts[-1].message == (
            "JobSet train was deleted; Trainer creates the JobSet again: adopted as this incident's restart (not "
            "charged to the budget)"
        )
        next_ = with_next_jobset(gone, 41)
        controller.reconcile(next_, 41.5)
        controller.settle(back(next_, 42), 52.5)
        incident = closed(controller)
        assert incident.closing is not None
        assert incident.closing.outcome is Outcome.RECOVERED
        assert [attempt.action for attempt in incident.attempts] == actions

    def test_its_deletion_during_a_restart_is_adopted_as_another_attempt(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 1, 0)
        controller.reconcile(world, 0.5)
        world = world.job_deleted(1).all_deleted(1)
        controller.reconcile(world, 2)
        self.assert_goes_on(controller, vanished(world, 40), [AttemptAction.RECREATE_GROUP, AttemptAction.ADOPTED])

    def test_its_deletion_during_a_hold_is_adopted_as_the_restart(self) -> None:
        controller = Controller(policy(limit=0))
        world = training().pod_failed(3, 1, 0)
        controller.reconcile(world, 0.5)
        assert controller.phase() is Phase.HELD
        self.assert_goes_on(controller, vanished(world, 40), [AttemptAction.ADOPTED])

    def test_it_ends_if_the_trainjob_is_deleted_too(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 1, 0)
        controller.reconcile(world, 0.5)
        gone = without_jobset(vanished(world.job_deleted(1), 20))
        controller.settle(gone.with_workload(deleting_since=whole(20)), 21)
        incident = closed(controller)
        assert incident.closing is not None
        assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, Reason.JOB_DELETED)


class TestOneOfSeveralJobs:
    """The ranks of the others hang. They wait for the lost ones, which never join them."""

    def test_the_group_is_restarted(self) -> None:
        controller = Controller()
        reconcile(controller, Pair(training(), launcher_of(vanished(training(1), 0.2))), 0.3)
        assert controller.incident.evidence == (
            "Job train-launcher-0 was deleted, while Job train-node-0 still exists",
        )
        assert [trigger.uid for trigger in controller.triggers] == ["job-1"]

    def test_the_other_jobs_of_a_deleted_jobset_count_for_the_group_until_they_are_gone(self) -> None:
        controller = Controller()
        gone = launcher_of(with_next_jobset(vanished(training(1), 0.2), 1))
        reconcile(controller, Pair(with_next_jobset(training(), 1), gone), 1.1)
        assert (controller.incident.ranks, controller.incident.gpus) == (5, 40)

    def test_the_group_is_restarted_if_the_successor_of_the_deleted_job_runs_already(self) -> None:
        controller = Controller()
        again = known_again(training(1))
        reconcile(controller, Pair(training(), launcher_of(again.all_ready(11))), 11.5)
        assert controller.incident.disruption_class == "PodDeleted"
        assert [trigger.uid for trigger in controller.triggers] == ["L-job-2", "job-1"]

    def test_under_observe_the_group_is_broken_until_it_is_restarted(self) -> None:
        controller = observing()
        reconcile(controller, Pair(training(), launcher_of(vanished(training(1), 0.2))), 0.3)
        reconcile(controller, Pair(training(), launcher_of(without_old_pods(vanished(training(1), 0.2)))), 1)
        assert controller.ledger.standing is Standing.BROKEN
        again = known_again(training(1))
        reconcile(controller, Pair(training(), launcher_of(again)), 1.5)
        assert controller.ledger.standing is Standing.BROKEN
        ready = Pair(training(), launcher_of(again.all_ready(11)))
        for seconds in (11, 30, 31):
            reconcile(controller, ready, seconds)
        assert controller.ledger.incident is None
        assert controller.ledger.standing is Standing.BROKEN
        assert controller.ledger.broken is not None
        assert controller.ledger.broken.since == at(0), "when its pods were asked to terminate, a whole second"

    def test_a_new_leader_which_did_not_see_it_knows_it_from_the_ledger(self) -> None:
        controller = observing()
        reconcile(controller, Pair(training(), launcher_of(vanished(training(1), 0.2))), 0.3)
        again = known_again(training(1)).all_ready(11).controller_restarted()
        reconcile(controller, Pair(training().controller_restarted(), launcher_of(again)), 11.5)
        assert controller.ledger.standing is Standing.BROKEN

    def test_the_old_jobs_of_our_own_restart_had_not_met_the_new_ones(self) -> None:
        """The new launcher trains before the last old Job is gone."""
        controller = Controller()
        reconcile(controller, Pair(training().pod_deleted(2, 0), launcher_of(training(1))), 1)
        assert len(controller.triggers) == 2
        launcher = launcher_of(training(1).job_gone().job_created(2).pods_created(2).all_ready(3))
        reconcile(controller, Pair(without_old_pods(vanished(training(), 20)), launcher), 21)
        assert controller.ledger.standing is not Standing.BROKEN

    def test_its_ranks_train_until_they_end(self) -> None:
        """They may save on SIGTERM."""
        controller = observing()
        reconcile(controller, Pair(training(), launcher_of(training(1).job_deleted(0).all_deleted(0))), 5)
        assert controller.ledger.standing is Standing.MET

    def test_one_that_is_done_breaks_nothing(self) -> None:
        controller = observing()
        done = training(1).with_job(conditions=(Condition("Complete", "True"),))
        reconcile(controller, Pair(training(), launcher_of(without_old_pods(vanished(done, 0.2)))), 1)
        assert controller.ledger == Ledger()


def known_again(world: World) -> World:
    """The Job was deleted in the background, and its successor exists."""
    gone = vanished(world, 0.2)
    return msgspec.structs.replace(without_old_pods(gone).job_created(0.5).pods_created(0.5), gone_jobs=gone.gone_jobs)
