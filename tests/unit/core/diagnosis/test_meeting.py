"""Who met whom: the timeline of the processes of a group."""

import msgspec
import pytest

from recovery.core.diagnosis.meeting import Meeting, meet
from recovery.core.diagnosis.trained import all_ran_at
from recovery.core.incident.standing import met_since
from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective, LaunchFacts
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.ledger import Ledger
from recovery.core.model.progress import Progress
from recovery.core.model.standing import Standing
from tests.unit.core.decision.test_several_jobs import Pair, launcher_of
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

RUNS = group(4, born=-60, restart_policy="OnFailure").all_ready(0)
"""Four ranks that met at 0 s."""


def standing(world: World, lost_at: float | None = None, hung_of: int = 0) -> Standing:
    return meet(world.snapshot(), None if lost_at is None else at(lost_at), hung_of).standing


def all_restarted(world: World, *seconds: float) -> World:
    for index, at_seconds in enumerate(seconds):
        world = world.container_restarted(index, 134, at_seconds)
    return world


# --- one set meets, breaks, and meets again -----------------------------------------------------------------------


def test_a_group_forms_until_every_rank_has_a_process() -> None:
    world = group(4, born=-60).started(0, -50).started(1, -40).started(2, -30)
    assert meet(world.snapshot()) == Meeting(Standing.FORMING)
    assert meet(world.started(3, 0).snapshot()) == Meeting(Standing.MET, met_at=at(0))


def test_when_one_ends_the_others_hang() -> None:
    world = RUNS.container_exited(2, 1, 10)
    hanging = tuple(pod for pod in world.snapshot().pods if pod.index != 2)
    found = meet(world.snapshot())
    assert found == Meeting(Standing.BROKEN, at(0), broken_since=at(10), lost_at=at(10), hanging=hanging)
    assert found.hung == 3


def test_a_rank_that_comes_back_joins_no_set_that_has_met() -> None:
    assert meet(RUNS.container_restarted(2, 1, 10).snapshot()).hung == 3
    assert standing(RUNS.pod_deleted(2, 10).came_back(2, 20, 30)) is Standing.BROKEN


def test_waiting_ranks_meet_once_no_rank_hangs() -> None:
    """Rank 2 came back first and waits. It began before the last of the others ended, and yet it hangs for no one."""
    world = all_restarted(RUNS.container_restarted(2, 1, 10), 40, 45)
    assert meet(world.snapshot()).hung == 1
    world = world.container_restarted(3, 134, 50)
    assert meet(world.snapshot()) == Meeting(Standing.MET, met_at=at(51))


def test_a_newcomer_that_ends_before_it_has_met_anyone_breaks_nothing() -> None:
    world = RUNS.container_restarted(2, 1, 10).container_exited(2, 1, 20)
    found = meet(world.snapshot())
    assert (found.broken_since, found.lost_at, found.hung) == (at(10), at(10), 3)


def test_two_losses_of_one_set_are_one_break() -> None:
    found = meet(RUNS.container_exited(2, 1, 10).container_exited(1, 134, 40).snapshot())
    assert (found.broken_since, found.lost_at, found.hung) == (at(10), at(40), 2)


def test_a_second_set_breaks_as_the_first_did() -> None:
    world = RUNS.all_came_back(20, 30)
    assert meet(world.snapshot()) == Meeting(Standing.MET, met_at=at(30))
    world = world.container_restarted(1, 1, 50)
    assert (standing(world), meet(world.snapshot()).broken_since) == (Standing.BROKEN, at(50))


def test_an_end_and_the_start_that_would_complete_the_set_in_one_second_are_no_meeting() -> None:
    """To meet takes longer than a second."""
    world = group(4, born=-60, restart_policy="OnFailure")
    for index in range(3):
        world = world.started(index, 0)
    world = world.container_exited(0, 1, 5).started(3, 5).container_back(0, 8)
    assert meet(world.snapshot()) == Meeting(Standing.MET, met_at=at(8))


# --- what ends a process -------------------------------------------------------------------------------------------


def test_a_rank_that_is_asked_to_terminate_trains_on_until_it_ends() -> None:
    leaving = RUNS.pod_deleted(2, 10)
    assert (standing(leaving), meet(leaving.snapshot()).leaves_at) == (Standing.MET, at(10))
    assert meet(leaving.pod_gone(2, 38).snapshot()).broken_since == at(38)


def test_a_process_that_is_asked_to_terminate_before_it_has_met_anyone_does_not_meet() -> None:
    world = group(4, born=-60).started(0, -50).pod_deleted(0, -45)
    for index in (1, 2, 3):
        world = world.started(index, -40)
    assert standing(world) is Standing.FORMING


def test_a_terminating_process_that_ends_before_the_ranks_met_has_not_met_them() -> None:
    world = group(4, born=-60).started(0, -50).started(1, -40).started(2, -30).pod_deleted(0, -20).started(3, -10)
    assert meet(world.snapshot()) == Meeting(Standing.FORMING)
    ended = world.pod_failed(0, 143, 0)
    assert meet(ended.snapshot()) == Meeting(Standing.FORMING)
    assert all_ran_at(ended.job, ended.pods) is None


def test_exit_code_0_breaks_nothing() -> None:
    assert standing(RUNS.container_exited(2, 0, 10, reason="Completed")) is Standing.MET


def test_exit_code_0_of_a_rank_that_was_asked_to_terminate_does() -> None:
    """It has saved, and is not done."""
    assert standing(RUNS.pod_deleted(2, 10).container_exited(2, 0, 14, reason="Completed")) is Standing.BROKEN


def test_a_rank_that_is_scaled_away_breaks_nothing() -> None:
    assert standing(RUNS.with_job(parallelism=3, completions=3).pod_deleted(3, 10).pod_gone(3, 12)) is Standing.MET


def test_a_rank_that_is_added_waits_and_breaks_nothing() -> None:
    world = RUNS.with_job(parallelism=5, completions=5).replaced(4, 100).started(4, 110)
    assert standing(world) is Standing.MET


def test_a_suspended_job_forms_again() -> None:
    world = RUNS.suspended()
    for index in range(4):
        world = world.pod_deleted(index, 10).pod_gone(index, 30)
    assert standing(world) is Standing.FORMING
    assert standing(world.resumed(600)) is Standing.FORMING


def test_a_node_that_does_not_answer_makes_it_unknown() -> None:
    assert standing(RUNS.node_silent("gpu-2", 10)) is Standing.UNKNOWN
    assert standing(RUNS.node_silent("gpu-2", 10).node_back("gpu-2")) is Standing.MET


def test_so_it_is_where_only_ranks_on_such_a_node_may_hang() -> None:
    world = RUNS.node_silent("gpu-2", 10)
    for index in (0, 1):
        world = world.container_restarted(index, 134, 30)
    assert standing(world) is Standing.BROKEN
    assert standing(world.container_restarted(3, 134, 40)) is Standing.UNKNOWN


# --- what shows that they have met ---------------------------------------------------------------------------------


BROKEN = RUNS.container_restarted(2, 1, 10, back_after=5)


@pytest.mark.parametrize(
    ("rank", "ready_at", "met"), [(2, 16, True), (2, 15, False), (1, 16, False)], ids=["new", "same-second", "kept"]
)
def test_a_barrier_ends_only_with_all_ranks(rank: int, ready_at: float, met: bool) -> None:
    world = BROKEN.with_pod(rank, joined_probe=True).pod_ready(rank, ready_at)
    assert standing(world) is (Standing.MET if met else Standing.BROKEN)


@pytest.mark.parametrize(
    ("seconds", "ratio", "met"), [(13, 0.5, True), (13, None, True), (12, 0.5, False), (13, 0.0, False)]
)
def test_progress_that_is_dated_after_the_loss_shows_it(seconds: float, ratio: float | None, met: bool) -> None:
    """The clocks of two nodes differ, and 0 % may be the report of a process that has just begun."""
    world = BROKEN.with_workload(progress=Progress(at(seconds), ratio))
    assert standing(world) is (Standing.MET if met else Standing.BROKEN)


def test_met_since_asks_for_ready_pods_and_dated_losses() -> None:
    world = RUNS.all_came_back(20, 30)
    assert met_since(world.snapshot(), Ledger(), [at(10)])
    assert met_since(world.snapshot(), Ledger(), [])
    assert not met_since(world.snapshot(), Ledger(), [at(10), at(31)])
    assert not met_since(world.snapshot(), Ledger(), [None])
    assert not met_since(world.with_pod(1, ready=False).snapshot(), Ledger(), [at(10)])


# --- what only the ledger knows ------------------------------------------------------------------------------------


def test_a_loss_that_the_ledger_knows_breaks_a_group_that_shows_no_trace_of_it() -> None:
    world = RUNS.pod_deleted(2, 10).came_back(2, 20, 30).with_job(failed=0).controller_restarted()
    assert standing(world) is Standing.MET, "a controller that has just started sees four ranks that run"
    assert standing(world, lost_at=10) is Standing.BROKEN


def test_a_rank_of_the_first_set_without_any_trace_has_ended() -> None:
    """Its pod is gone, no other has come, and the others have given up one after the other: no one hangs any more."""
    world = RUNS.pod_gone(2, 10)
    world = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.index != 2))
    assert meet(world.snapshot()).hung == 3
    for rank in (0, 1, 3):
        world = world.container_exited(rank, 134, 60)
    assert meet(world.snapshot()) == Meeting(Standing.FORMING, at(0), over_at=at(60))


def test_a_loss_that_turned_out_to_be_none_breaks_nothing() -> None:
    """A node was silent for so long that its pod counted as lost. Then it answered, and the same process runs."""
    assert standing(RUNS.controller_restarted(), lost_at=10) is Standing.MET
    assert standing(RUNS.controller_restarted(), lost_at=10, hung_of=4) is Standing.MET, "the ledger said Broken"


def test_a_smaller_size_does_not_end_a_break_that_the_ledger_knows() -> None:
    """The lost rank is scaled away, and no object shows it any more. The others still hang."""
    lost = RUNS.pod_gone(3, 10)
    smaller = lost.with_job(parallelism=3, completions=3)
    assert standing(lost) is Standing.BROKEN
    assert standing(smaller, lost_at=10) is Standing.MET, "the ledger does not say whether they hang"
    found = meet(smaller.snapshot(), at(10), 4)
    assert (found.standing, found.met_at, found.broken_since, found.lost_at) == (Standing.BROKEN, at(0), at(10), at(10))
    assert found.hung == 3
    assert standing(all_restarted(smaller, 600, 610, 620), lost_at=10, hung_of=4) is Standing.MET


def test_a_meeting_that_the_ledger_knows_is_broken_by_a_rank_that_was_replaced_unseen() -> None:
    """The Job ignores the failure, so it does not count it. By its objects, the group first ran whole at 40."""
    world = training().pod_gone(2, 20).came_back(2, 30, 40).with_job(failed=0).controller_restarted()
    snapshot = msgspec.structs.replace(
        world.snapshot(), pods=tuple(pod for pod in world.snapshot().pods if pod.gone_at is None)
    )
    assert meet(snapshot) == Meeting(Standing.MET, at(40))
    known = meet(msgspec.structs.replace(snapshot, met_at={world.job.uid: at(10)}))
    assert (known.standing, known.met_at, known.broken_since, known.hung) == (Standing.BROKEN, at(10), at(30), 3)


def test_a_rank_whose_pod_had_not_started_yet_was_not_lost() -> None:
    """Three ranks ran when the ledger dates the loss. The fourth had a pod, and its process began later."""
    world = group(4, born=0)
    for rank, seconds in enumerate((5, 5, 20, 5)):
        world = world.started(rank, seconds).pod_ready(rank, seconds)
    assert standing(world.controller_restarted(), lost_at=10) is Standing.MET


def test_a_loss_before_the_group_was_recreated_breaks_nothing() -> None:
    assert standing(training(born=100), lost_at=10) is Standing.MET
    assert standing(group(4, born=100), lost_at=10) is Standing.FORMING


# --- what the program is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "found"),
    [("Required", Standing.BROKEN), ("SelfHealing", Standing.UNKNOWN), ("Independent", Standing.MET)],
)
def test_only_ranks_that_cannot_go_on_without_the_lost_one_hang(collective: str, found: Standing) -> None:
    program = {COLLECTIVE_ANNOTATION: collective}
    assert standing(RUNS.with_workload(annotations=program)) is Standing.MET
    assert standing(RUNS.container_restarted(2, 1, 10).with_workload(annotations=program)) is found


def test_ranks_that_heal_themselves_have_met_again_when_the_training_reports_progress() -> None:
    world = RUNS.container_restarted(2, 1, 10)
    world = world.with_workload(annotations={COLLECTIVE_ANNOTATION: "SelfHealing"}, progress=Progress(at(60), 0.5))
    assert standing(world) is Standing.MET


def test_under_mpirun_only_the_launcher_counts() -> None:
    """The pods of the workers run sshd. mpirun starts their ranks, and ends them all."""
    mpirun = ContainerTemplate("node", launch=LaunchFacts(Collective.REQUIRED, "mpirun", starts_all=True))
    launcher = group(1, born=-60, restart_policy="OnFailure").all_ready(0).with_job(containers=(mpirun,))
    pair = Pair(RUNS, launcher_of(launcher))

    def standing_of(changed: Pair) -> Standing:
        return meet(changed.snapshot()).standing

    assert standing_of(pair) is Standing.MET
    assert standing_of(pair.node(lambda nodes: nodes.container_restarted(2, 1, 10))) is Standing.MET
    assert standing_of(Pair(RUNS, launcher_of(launcher.container_exited(0, 1, 10)))) is Standing.FORMING
    assert standing_of(Pair(RUNS, launcher_of(launcher.container_restarted(0, 1, 10)))) is Standing.MET


LAUNCHER = group(1, born=-60).all_ready(-50)


def forgotten(launcher: World) -> Pair:
    """The controller has seen all pods, and of the launcher's only the last one is still known."""
    counted = launcher.with_job(failed=len(launcher.pods))
    return Pair(RUNS, launcher_of(msgspec.structs.replace(counted, pods=counted.pods[-1:])), watched=True)


def test_jobs_have_not_met_if_the_newest_pod_of_a_rank_ended_before_the_others_began() -> None:
    launcher = LAUNCHER.pod_failed(0, 1, -40).came_back(0, -35, -34).pod_failed(0, 1, -10).pod_gone(0, 5)
    assert meet(forgotten(launcher).snapshot()).standing is Standing.FORMING


def test_jobs_may_have_met_while_a_pod_ran_that_is_forgotten() -> None:
    launcher = LAUNCHER.pod_failed(0, 1, 10).came_back(0, 15, 16).pod_failed(0, 1, 18).pod_gone(0, 20)
    assert meet(forgotten(launcher).snapshot()).met_at == at(0)
