"""A group that hangs is Broken, whatever its incident has come to, until its ranks have met again."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective
from recovery.core.model.facts import ContainerFacts, ExitFacts, PodFacts
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.model.standing import BROKEN_SECONDS, Standing
from recovery.core.plan.actions import CountIncidents
from recovery.core.policy.spec import Mode, Restart
from tests.unit.core.decision.test_replacing_nodes import REPLACE_FAULTY, faulty
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

GPUS = 16 * 8
LEAVE_ALL = (Rule("leave", RuleAction.IGNORE, When()),)
LOST = training(16).pod_deleted(3, 0)
REPLACED = LOST.came_back(3, 30, 40)


def closed(controller: Controller, world: World = REPLACED, seconds: float = 41) -> Controller:
    """Rank 3 of 16 was deleted at 0 s, and its Job has replaced it. The incident is closed."""
    controller.reconcile(LOST, 1)
    controller.settle(LOST, 7)
    controller.settle(world, seconds)
    controller.settle(world, seconds)
    assert controller.ledger.incident is None
    return controller


def ignoring() -> Controller:
    return Controller(policy(rules=LEAVE_ALL))


def broken_seconds(controller: Controller) -> float:
    return controller.ledger.totals.idle_gpu_seconds.get(BROKEN_SECONDS, 0.0)


BOTH = pytest.mark.parametrize("make", [observing, ignoring], ids=["Observe", "Ignore"])


# --- it becomes Broken ---------------------------------------------------------------------------------------------


@BOTH
def test_an_incident_that_closes_while_ranks_hang_leaves_the_group_broken(make: type[Controller]) -> None:
    ledger = closed(make()).ledger
    assert ledger.history[0].outcome is Outcome.OBSERVED
    assert ledger.history[0].still_broken
    assert (ledger.phase, ledger.standing) == (Phase.HEALTHY, Standing.BROKEN)
    assert ledger.broken is not None
    assert (ledger.broken.since, ledger.broken.booked_from) == (at(30), ledger.history[0].ended_at)
    assert (ledger.broken.incident, ledger.idle_gpus) == (ledger.history[0].id, GPUS)


@pytest.mark.parametrize("lost", [False, True], ids=["the fault alone", "a loss beside it"])
def test_a_faulty_node_breaks_nothing_until_a_rank_is_lost(lost: bool) -> None:
    """The node may not be quarantined, so the group trains on there. A leader that has just started sees no trace."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,)))
    ill = faulty(training(16), "gpu-3", 0)
    controller.reconcile(ill, 1)
    assert controller.incident.lost_at is None
    if lost:
        ill = ill.pod_gone(3, 2)
        controller.reconcile(ill, 3)
        ill = ill.replaced(3, 2).came_back(3, 3, 4)
    controller.reconcile(ill.controller_restarted(), 4)
    assert controller.ledger.standing is (Standing.BROKEN if lost else Standing.MET)


def test_a_loss_without_a_date_is_none_of_the_ranks_that_began_before_it_was_noticed() -> None:
    """A user suspends a job, and Kueue resumes it at once. A listing between the deletions of its pods is answered, and
    the next request only after three seconds. The ranks that began meanwhile have met no one yet."""
    before = training(4)
    pods = tuple(pod for pod in before.pods if pod.index != 1)
    between = msgspec.structs.replace(before, pods=pods)
    controller = observing()
    controller.reconcile(between, 3.9)
    assert controller.incident.evidence == ("rank 1 of Job train-node-0 has no pod",)
    gone = between.pod_gone(0, 1).pod_gone(2, 1).pod_gone(3, 1)
    after = gone
    for index, started in enumerate((3, 3, 3, 4)):
        after = after.replaced(index, 1).started(index, started).pod_ready(index, started)
    controller.settle(after, 5)
    assert controller.ledger.standing is Standing.MET
    controller.reconcile(after.controller_restarted(), 6)
    assert controller.ledger.standing is Standing.MET


@BOTH
def test_the_conditions_and_the_message_say_so(make: type[Controller]) -> None:
    controller = closed(make())
    (healthy,) = (each for each in controller.ledger.conditions if each.type == "Healthy")
    assert (healthy.status, healthy.reason) == ("False", "Broken")
    plan = controller.reconcile(REPLACED, 60)
    assert plan.reason is Reason.STILL_BROKEN
    assert controller.ledger.history[0].id in plan.message


@BOTH
def test_nothing_is_written_while_it_stays_broken(make: type[Controller]) -> None:
    controller = closed(make())
    written = controller.ledger
    controller.reconcile(REPLACED, 300)
    assert controller.ledger == written


def test_a_leader_that_has_just_started_knows_that_the_group_is_broken() -> None:
    controller = closed(observing())
    plan = controller.reconcile(REPLACED.controller_restarted(), 300)
    assert plan.reason is Reason.STILL_BROKEN
    assert controller.ledger.broken is not None


def test_a_leader_that_has_just_started_knows_from_the_ledger_when_the_ranks_met() -> None:
    """The incident has closed. Then all ranks were restarted, and met. Rank 0 is lost and replaced while no controller
    watches. The Job does not count the failure, so its objects show four ranks that first ran at 230."""
    controller = Controller(policy(rules=LEAVE_ALL))
    again = training().pod_deleted(3, 0).came_back(3, 30, 40)
    controller.settle(again, 46)
    for rank in range(4):
        again = again.pod_gone(rank, 100).came_back(rank, 110, 120)
    for seconds in (121, 127, 134):
        controller.settle(again, seconds)
    assert (controller.ledger.standing, controller.ledger.met_at) == (Standing.MET, at(120))
    lost = again.pod_gone(0, 200).came_back(0, 220, 230).with_job(failed=0)
    lost = msgspec.structs.replace(lost, pods=tuple(pod for pod in lost.pods if pod.gone_at is None))
    controller.reconcile(lost.controller_restarted(), 300)
    assert controller.ledger.standing is Standing.UNKNOWN


def test_progress_that_is_dated_in_the_future_is_no_meeting_that_the_ledger_keeps() -> None:
    """It would hide each break until then, also once the job reports another date."""
    controller = closed(observing())
    met_at = controller.ledger.met_at
    controller.settle(REPLACED.with_workload(progress=Progress(at(9000), 0.5)), 100)
    assert (controller.ledger.standing, controller.ledger.met_at) == (Standing.MET, met_at)


def test_a_policy_that_enforces_now_restarts_nothing_for_a_loss_that_was_observed() -> None:
    controller = closed(observing())
    controller.policy = policy(since=100)
    assert controller.reconcile(REPLACED, 101).reason is Reason.STILL_BROKEN
    assert controller.workload_actions == []


def test_a_crd_without_these_fields_causes_no_write_at_each_reconcile() -> None:
    controller = closed(ignoring())
    controller.ledger = msgspec.structs.replace(controller.ledger, standing=Ledger().standing, met_at=None, broken=None)
    stored = controller.ledger
    assert controller.plan(REPLACED, 300).ledger == stored


@BOTH
def test_an_incident_stays_open_while_the_lost_rank_only_leaves(make: type[Controller]) -> None:
    """Its Job replaces the pod at once, and the old one trains on until it has saved. The others hang only then."""
    controller = make()
    lost = training(16).pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    old = lost.pod(3)
    new = lost.came_back(3, 30, 40)
    both = msgspec.structs.replace(new, pods=tuple(old if pod.uid == old.uid else pod for pod in new.pods))
    controller.settle(both, 60)
    assert controller.ledger.incident is not None
    controller.settle(new, 100)
    controller.settle(new, 106)
    assert controller.ledger.history[0].still_broken


def answered_late() -> tuple[World, World]:
    """Rank 2 crashed, and the others hung until they gave up. The node of rank 0 was silent then. Rank 0 began again
    there, unseen, and met the others. Its pod is replaced, and only at 500 s the node answers and ends the old one.

    The group with the new pod, and the group when the old one has ended.
    """
    world = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
    silent = world.node_silent("gpu-0", 100)
    for index in (1, 2, 3):
        silent = silent.container_restarted(index, 134, 200)
    old, before = silent.evicted(0, 300), silent.pod(0)
    new = old.pod_gone(0, 300).replaced(0, 301).started(0, 301).pod_ready(0, 310).with_pod(0, node="gpu-9")
    again = ExitFacts(143, "Error", "", at(203), at(500))
    first = msgspec.structs.replace(again, code=134, started_at=before.containers[0].running_since, finished_at=at(202))
    ended = msgspec.structs.replace(
        old.pod(0),
        phase="Failed",
        containers=(ContainerFacts("node", restarts=1, exit=again, last_exit=first),),
        gone_at=at(500),
    )

    def beside(pod: PodFacts, world: World) -> World:
        return msgspec.structs.replace(world, pods=tuple(pod if each.uid == pod.uid else each for each in world.pods))

    return beside(old.pod(0), new), beside(ended, new).node_back("gpu-0")


def test_it_is_broken_from_when_a_rank_ends_that_an_incident_has_counted_as_lost_long_before() -> None:
    """The node did not answer, so the incident closed with the standing Unknown. No evidence is new at the end."""
    replaced, ended = answered_late()
    controller = Controller(policy(restart=Restart.NONE))
    controller.settle(replaced, 311)
    controller.settle(replaced, 320)
    assert (controller.ledger.incident, controller.ledger.standing) == (None, Standing.UNKNOWN)
    controller.settle(ended, 501)
    assert (controller.ledger.incident, controller.ledger.standing) == (None, Standing.BROKEN)
    broken, last = controller.ledger.broken, controller.ledger.history[0]
    assert broken is not None
    assert (broken.since, broken.booked_from, broken.incident, broken.gpus) == (at(500), at(500), last.id, 4 * 8)
    assert controller.reconcile(ended, 600).reason is Reason.STILL_BROKEN
    controller.settle(ended.all_came_back(700, 710), 711)
    assert broken_seconds(controller) == pytest.approx(4 * 8 * 200)


def scaled_away(world: World) -> World:
    """Its user has made the Job smaller by the rank that was lost."""
    smaller = world.with_job(parallelism=3, completions=3)
    return msgspec.structs.replace(smaller, pods=tuple(pod for pod in world.pods if pod.index != 3))


@BOTH
def test_it_stays_broken_when_its_user_takes_the_lost_rank_away(make: type[Controller]) -> None:
    controller = make()
    lost = training().pod_deleted(3, 0)
    controller.reconcile(lost, 1)
    replaced = lost.came_back(3, 30, 40)
    for seconds in (7, 41, 42):
        controller.settle(lost if seconds < 30 else replaced, seconds)
    assert controller.ledger.broken is not None
    assert controller.ledger.broken.ranks == 4
    controller.settle(scaled_away(replaced), 60)
    assert controller.ledger.standing is Standing.BROKEN


def test_a_group_in_an_open_incident_stays_broken_when_its_user_takes_the_lost_rank_away() -> None:
    controller = Controller(policy(limit=0))
    lost = training().pod_failed(3, 1, 0)
    controller.settle(lost, 1)
    assert (controller.ledger.phase, controller.ledger.standing) == (Phase.HELD, Standing.BROKEN)
    controller.settle(scaled_away(lost), 60)
    assert (controller.ledger.phase, controller.ledger.standing) == (Phase.HELD, Standing.BROKEN)


# --- it is no longer Broken ----------------------------------------------------------------------------------------


def joined(world: World) -> World:
    """The new rank has passed the barrier of a joined probe, which ends only with all ranks."""
    for index in range(16):
        world = world.with_pod(index, joined_probe=True)
    return world.pod_ready(3, 90)


@pytest.mark.parametrize(
    ("world", "until"),
    [
        (REPLACED.all_came_back(80, 90), 80),
        (joined(REPLACED), 91),
        (REPLACED.with_workload(progress=Progress(at(95), 0.1)), 96),
    ],
    ids=[
        "all ranks began again, which an incident of its own accounts for",
        "the new rank has joined",
        "the training reports progress",
    ],
)
@BOTH
def test_it_ends_when_the_ranks_have_met_again(make: type[Controller], world: World, until: float) -> None:
    controller = closed(make())
    booked_from = controller.ledger.history[0].ended_at
    controller.policy = policy(Mode.OBSERVE, since=60)
    controller.settle(world, 100)
    if controller.ledger.incident is None:
        assert (controller.ledger.standing, controller.ledger.broken) == (Standing.MET, None)
    assert broken_seconds(controller) == pytest.approx(GPUS * (at(until) - booked_from).total_seconds())


def test_a_report_of_zero_percent_only_says_that_a_process_has_begun() -> None:
    controller = closed(ignoring())
    controller.settle(REPLACED.with_workload(progress=Progress(at(95), 0.0)), 100)
    assert controller.ledger.standing is Standing.BROKEN


def test_it_ends_when_its_user_suspends_the_job() -> None:
    controller = closed(observing())
    controller.settle(REPLACED.suspended(), 100)
    assert (controller.ledger.standing, controller.ledger.broken) == (Standing.FORMING, None)
    assert broken_seconds(controller) == pytest.approx(GPUS * (100 - 41), abs=GPUS)


def test_it_ends_with_the_last_rank_that_hung_although_a_controller_sees_that_late() -> None:
    """No policy applies meanwhile, so no incident accounts for the time. The next one may begin with these ends."""
    controller = closed(observing())
    booked_from, world = controller.ledger.history[0].ended_at, REPLACED
    controller.policy = None
    for index in (index for index in range(16) if index != 3):
        world = world.pod_failed(index, 134, 80)
    controller.settle(world, 300)
    assert controller.ledger.broken is None
    assert broken_seconds(controller) == pytest.approx(GPUS * (at(80) - booked_from).total_seconds())


def test_it_goes_on_while_the_nodes_of_the_ranks_that_hang_do_not_answer() -> None:
    controller = closed(observing())
    silent = REPLACED
    for index in range(16):
        silent = silent.node_silent(f"gpu-{index}", 100)
    controller.settle(silent, 101)
    assert controller.ledger.broken is not None
    assert controller.ledger.idle_gpus == GPUS


def test_a_loss_that_opens_an_incident_takes_over_the_time() -> None:
    controller = closed(ignoring())
    booked_from = controller.ledger.history[0].ended_at
    crashed = REPLACED.pod_failed(5, 134, 600)
    controller.reconcile(crashed, 601)
    assert controller.incident.started_at == at(600)
    assert controller.ledger.broken is None
    assert broken_seconds(controller) == pytest.approx(GPUS * (at(600) - booked_from).total_seconds())


def test_what_it_has_cost_is_owed_to_the_totals_of_the_fleet() -> None:
    controller = closed(ignoring())
    controller.reconcile(REPLACED.pod_failed(5, 134, 600), 601)
    (owed,) = controller.ledger.uncounted
    assert (owed.broken, owed.number) == (True, 0)
    assert owed.idle_gpu_seconds == {BROKEN_SECONDS: broken_seconds(controller)}


def test_without_an_incident_it_is_counted_at_once() -> None:
    controller = closed(observing())
    plan = controller.reconcile(REPLACED.suspended(), 100)
    (count,) = (action for action in plan.first if isinstance(action, CountIncidents))
    assert [each.idle_gpu_seconds for each in count.closed] == [{BROKEN_SECONDS: broken_seconds(controller)}]
    assert controller.ledger.uncounted == ()


# --- a person ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Collective.SELF_HEALING, Collective.INDEPENDENT])
def test_a_person_who_says_that_the_program_heals_itself_ends_it(kind: Collective) -> None:
    """Until then it was said to hang, and its GPU-seconds were counted."""
    controller = closed(observing())
    booked_from = controller.ledger.history[0].ended_at
    controller.settle(REPLACED.with_workload(annotations={COLLECTIVE_ANNOTATION: kind}), 600)
    assert controller.ledger.broken is None
    assert controller.ledger.standing is not Standing.BROKEN
    assert broken_seconds(controller) == pytest.approx(GPUS * (at(600) - booked_from).total_seconds())


def ended_in_its_old_pod() -> tuple[Controller, World]:
    """The incident closed when all pods were Ready. Rank 3 ended after that."""
    lost, controller = training(16).pod_deleted(3, 0), observing()
    old, new = msgspec.structs.replace(lost.pod(3), gone_at=at(25)), lost.came_back(3, 5, 10)
    world = msgspec.structs.replace(new, pods=tuple(old if pod.uid == old.uid else pod for pod in new.pods))
    controller.reconcile(lost, 1)
    for seconds in (11, 26, 31):
        controller.settle(world, seconds)
    return controller, world


def ended_on_a_silent_node() -> tuple[Controller, World]:
    (replaced, world), controller = answered_late(), Controller(policy(restart=Restart.NONE))
    for seconds, seen in ((311, replaced), (320, replaced), (501, world)):
        controller.settle(seen, seconds)
    return controller, world


BROKEN = {
    "at the end of the incident": lambda: (closed(observing()), REPLACED),
    "when the old pod ended": ended_in_its_old_pod,
    "when the node answered": ended_on_a_silent_node,
}


@pytest.mark.parametrize("group", BROKEN.values(), ids=BROKEN)
def test_if_it_is_taken_back_the_group_is_broken_again_and_no_second_is_booked_twice(
    group: Callable[[], tuple[Controller, World]],
) -> None:
    controller, world = group()
    heals = world.with_workload(annotations={COLLECTIVE_ANNOTATION: Collective.SELF_HEALING})
    since = controller.ledger.broken.since if controller.ledger.broken is not None else None
    controller.settle(heals, 600)
    booked = broken_seconds(controller)
    controller.settle(world, 700)
    assert (controller.ledger.standing, controller.ledger.history[0].still_broken) == (Standing.BROKEN, True)
    assert controller.ledger.broken is not None
    assert (controller.ledger.broken.since, controller.ledger.broken.booked_from) == (since, at(700))
    controller.settle(heals, 800)
    assert broken_seconds(controller) - booked == 100 * 8 * world.job.parallelism


def test_a_program_that_was_said_to_heal_itself_when_its_incident_closed_is_broken_once_it_is_not() -> None:
    heals = {COLLECTIVE_ANNOTATION: Collective.SELF_HEALING}
    controller = closed(observing(), REPLACED.with_workload(annotations=heals))
    assert controller.ledger.standing is Standing.UNKNOWN
    controller.settle(REPLACED, 700)
    assert controller.ledger.broken is not None
    assert (controller.ledger.broken.since, controller.ledger.broken.booked_from) == (at(30), at(700))
    assert controller.reconcile(REPLACED, 800).reason is Reason.STILL_BROKEN


def test_a_program_that_stops_healing_itself_is_broken_for_a_new_leader_that_missed_the_first_loss() -> None:
    heals, controller = {COLLECTIVE_ANNOTATION: Collective.SELF_HEALING}, closed(observing())
    world = REPLACED.controller_restarted()
    world = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.gone_at is None))
    lost = world.pod_deleted(5, 100)
    controller.settle(lost, 101)
    again = lost.came_back(5, 110, 120).with_workload(annotations=heals)
    for seconds in (121, 130, 140):
        controller.settle(again, seconds)
    assert (controller.ledger.incident, controller.ledger.broken) == (None, None)
    controller.settle(again.with_workload(annotations={}), 700)
    assert controller.ledger.broken is not None
    assert (controller.ledger.broken.since, controller.ledger.broken.booked_from) == (at(110), at(700))


def test_the_ledger_says_that_a_group_trains_again_whose_standing_was_unknown() -> None:
    """Its node answers. Nothing else about the group has changed, so there is no other write."""
    controller, again = closed(observing()), REPLACED.all_came_back(100, 110)
    for seconds in (111, 120, 130):
        controller.settle(again, seconds)
    assert controller.ledger.incident is None
    controller.settle(again.node_silent("gpu-5", 150), 160)
    silent = controller.ledger
    controller.settle(again, 200)
    assert (silent.standing, controller.ledger.standing) == (Standing.UNKNOWN, Standing.MET)


@pytest.mark.parametrize("verb", ["restart", "retry"])
def test_a_person_recreates_a_broken_group(verb: str) -> None:
    controller = closed(ignoring())
    controller.settle(REPLACED.asked(f"recovery.trainjob.dev/{verb}", at(100).isoformat()), 100)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1"]
    assert controller.incident.disruption_class == "Manual"
    assert not controller.incident.charged
    (answer,) = controller.ledger.requests
    assert (answer.verb, answer.accepted) == (verb, True)


@pytest.mark.parametrize(("force", "triggers"), [("false", 0), ("true", 1)])
@pytest.mark.parametrize("verb", ["restart", "retry"])
def test_under_observe_only_with_force(verb: str, force: str, triggers: int) -> None:
    controller = closed(observing())
    asked = f'{{"at": "{at(100).isoformat()}", "force": {force}}}'
    controller.settle(REPLACED.asked(f"recovery.trainjob.dev/{verb}", asked), 100)
    assert len(controller.triggers) == triggers


# --- what is no break ----------------------------------------------------------------------------------------------


def test_a_group_whose_ranks_have_all_come_back_is_healthy() -> None:
    controller = closed(ignoring(), LOST.all_came_back(30, 40))
    assert not controller.ledger.history[0].still_broken
    assert (controller.ledger.standing, controller.ledger.broken) == (Standing.MET, None)


def test_an_old_loss_that_no_incident_is_about_breaks_nothing() -> None:
    controller = Controller(policy(since=-10))
    controller.settle(training(16, restart_policy="OnFailure").container_restarted(3, 1, -600), 0)
    assert controller.ledger == Ledger()
