"""What a member does with its ranks, with and without a barrier."""

import pytest

from recovery.agent._trainjob_recovery import member as m
from recovery.agent._trainjob_recovery.member import AgentMember, BeginZygote, End, RankEnd, StartRanks, StopRanks, Tell
from recovery.agent._trainjob_recovery.messages import (
    Arrived,
    Done,
    ExitAgent,
    Failed,
    Finished,
    Joined,
    Leaving,
    Permit,
    Start,
    Started,
    Steps,
    StopEpoch,
    Stopped,
    Welcome,
)
from recovery.agent._trainjob_recovery.slot_progress import RankProgress

from .groups import IDENTITY, failure


def running(*, slots: int = 4, ranks: int = 1, permitted: bool = True) -> AgentMember:
    member = AgentMember(slots, ranks)
    member.begin()
    member.on_started(0.0, 1)
    member.on_welcome(0.0, Welcome(IDENTITY, 1, permitted, 600.0 if permitted else 0.0, 60.0))
    return member


def fail(member: AgentMember, now: float = 1.0) -> list[m.Effect]:
    return member.on_rank_end(now, RankEnd(member.epoch, 0, failure()))


def succeed(member: AgentMember, local_rank: int = 0, now: float = 1.0) -> list[m.Effect]:
    return member.on_rank_end(now, RankEnd(member.epoch, local_rank, None))


def done(effects: list[m.Effect]) -> list[m.Effect]:
    """The effects without what is only said."""
    return [each for each in effects if not isinstance(each, m.MemberSays)]


def test_epoch_1_starts_at_once_and_is_executed() -> None:
    assert AgentMember(4, 1).begin() == [StartRanks(1, fork=False)]


def test_a_welcome_hears_that_the_ranks_run() -> None:
    member = AgentMember(4, 1)
    member.begin()
    member.on_started(0.0, 1)
    assert Tell(Started(1)) in member.on_welcome(1.0, Welcome(IDENTITY, 1, False, 0.0, 60.0))
    assert member.proof("").bound == IDENTITY


def test_without_permission_a_failed_rank_ends_the_agent_at_once() -> None:
    member = running(permitted=False)
    assert fail(member) == [Tell(Failed(1, failure())), Tell(Leaving()), StopRanks()]
    assert member.on_stopped(2.0, nothing_left=True) == [End(1)]


def test_without_a_barrier_a_failed_rank_ends_the_agent_at_once() -> None:
    member = AgentMember(4, 1)
    member.begin()
    assert StopRanks() in fail(member)
    assert member.on_stopped(2.0, nothing_left=False) == [End(1)]


def test_a_permission_that_is_over_permits_nothing() -> None:
    assert Tell(Leaving()) not in fail(running(), now=599.0)
    assert Tell(Leaving()) in fail(running(), now=600.0)


def test_a_failed_slot_takes_part_in_the_restart() -> None:
    member = running()
    assert fail(member) == [Tell(Failed(1, failure())), StopRanks()]
    assert member.on_message(1.1, StopEpoch(1)) == []
    assert member.on_stopped(1.2, nothing_left=True) == [Tell(Stopped(1, stuck=False))]
    assert member.on_message(1.3, Start(2)) == [StartRanks(2, fork=True)]
    assert member.on_started(1.4, 2) == [Tell(Started(2)), BeginZygote()][:1]


def test_a_failed_slot_whose_ranks_are_gone_says_so_at_once() -> None:
    member = running()
    fail(member)
    assert member.on_stopped(1.1, nothing_left=True) == []
    assert member.on_message(1.2, StopEpoch(1)) == [Tell(Stopped(1, stuck=False))]


def test_a_healthy_slot_stops_only_when_told() -> None:
    member = running()
    assert member.on_message(1.0, StopEpoch(1)) == [StopRanks()]
    assert member.on_rank_end(1.1, RankEnd(1, 0, failure())) == []
    assert member.on_stopped(1.2, nothing_left=True) == [Tell(Stopped(1, stuck=False))]


def test_the_next_epoch_never_starts_before_the_ranks_are_gone() -> None:
    member = running()
    assert member.on_message(1.0, Start(2)) == []
    member.on_message(1.0, StopEpoch(1))
    assert member.on_message(1.1, Start(2)) == []
    member.on_stopped(1.2, nothing_left=False)
    assert member.state == "stuck"
    assert member.on_message(1.3, Start(2)) == []


def test_a_stuck_process_is_said_and_the_agent_exits_when_told() -> None:
    member = running()
    member.on_message(1.0, StopEpoch(1))
    assert member.on_stopped(41.0, nothing_left=False) == [Tell(Stopped(1, stuck=True))]
    assert done(member.on_message(41.1, ExitAgent())) == [Tell(Leaving()), End(1)]


@pytest.mark.parametrize(("seconds", "ends"), [(59.0, False), (60.0, True)])
def test_a_failed_slot_waits_60_seconds_for_a_restart(seconds: float, ends: bool) -> None:
    member = running()
    fail(member, now=1.0)
    member.on_stopped(2.0, nothing_left=True)
    assert (End(1) in member.tick(1.0 + seconds)) == ends


@pytest.mark.parametrize("after", ["stopping", "stopped"])
def test_a_restart_that_never_starts_ends_the_agent(after: str) -> None:
    member = running()
    member.on_message(1.0, StopEpoch(1))
    if after == "stopped":
        member.on_stopped(2.0, nothing_left=True)
    assert member.tick(70.9) == []
    effects = member.tick(71.0) + member.on_stopped(72.0, nothing_left=True)
    assert End(1) in effects


def test_permission_that_ends_while_a_slot_waits_ends_the_agent() -> None:
    member = running()
    fail(member)
    member.on_stopped(1.5, nothing_left=True)
    assert done(member.on_message(2.0, Permit(False, 0.0, 60.0))) == [Tell(Leaving()), End(1)]


def test_permission_that_ends_while_ranks_are_stopped_changes_nothing() -> None:
    member = running()
    fail(member)
    member.on_message(1.1, StopEpoch(1))
    assert done(member.on_message(1.2, Permit(False, 0.0, 60.0))) == []


def test_a_zygote_begins_once_the_ranks_run_and_a_restart_is_permitted() -> None:
    member = AgentMember(4, 1)
    member.begin()
    permitted = Permit(True, 600.0, 60.0)
    assert member.on_message(0.0, permitted) == []
    assert BeginZygote() in member.on_started(1.0, 1)
    assert member.on_message(2.0, permitted) == []
    assert BeginZygote() not in AgentMember(4, 1).on_started(1.0, 1)


def test_a_done_slot_waits_for_the_others() -> None:
    member = running(ranks=2)
    assert succeed(member, 0) == []
    assert succeed(member, 1) == [Tell(Done(1))]
    assert member.tick(300.9) == []
    assert member.on_message(300.9, Finished()) == [End(0)]


def test_a_done_slot_waits_300_seconds_at_most() -> None:
    member = running()
    succeed(member)
    assert done(member.tick(301.0)) == [Tell(Leaving()), End(0)]


def test_a_done_slot_that_no_barrier_has_welcomed_waits_30_seconds() -> None:
    member = AgentMember(4, 1)
    member.begin()
    succeed(member, now=1.0)
    assert member.tick(30.9) == []
    assert End(0) in member.tick(31.0)


def test_the_only_slot_waits_for_nobody() -> None:
    member = AgentMember(1, 1)
    member.begin()
    succeed(member, now=1.0)
    assert member.tick(1.0) == [End(0)]


def test_a_done_slot_runs_again_in_the_next_epoch() -> None:
    member = running()
    succeed(member)
    assert member.on_message(2.0, StopEpoch(1)) == [StopRanks()]
    member.on_stopped(2.1, nothing_left=True)
    assert member.on_message(2.2, Start(2)) == [StartRanks(2, fork=True)]
    assert succeed(member) == [Tell(Done(2))]


def test_ends_and_messages_of_another_epoch_are_ignored() -> None:
    member = running()
    assert member.on_message(1.0, StopEpoch(2)) == []
    assert member.on_rank_end(1.0, RankEnd(2, 0, failure())) == []
    assert member.on_started(1.0, 2) == []
    assert member.state == "running"


@pytest.mark.parametrize("state", ["running", "failed", "stopped", "done"])
def test_a_signal_makes_the_slot_leave(state: str) -> None:
    member = running()
    if state == "failed":
        fail(member)
        member.on_stopped(1.1, nothing_left=True)
    if state == "stopped":
        member.on_message(1.0, StopEpoch(1))
        member.on_stopped(1.1, nothing_left=True)
    if state == "done":
        succeed(member)
    effects = member.on_signal("SIGINT")
    assert Tell(Leaving()) in effects
    if End(1) not in effects:
        assert StopRanks("SIGINT") in effects
        assert member.on_stopped(2.0, nothing_left=True) == [End(1)]
    assert member.on_signal("SIGTERM") == []


def test_a_signal_while_ranks_are_stopped_stops_them_once() -> None:
    member = running()
    fail(member)
    assert StopRanks() not in member.on_signal("SIGTERM")
    assert member.on_stopped(2.0, nothing_left=True) == [End(1)]


def test_ranks_that_cannot_be_started_end_the_agent() -> None:
    member = AgentMember(4, 1)
    member.begin()
    assert StopRanks() in member.on_start_failed("no such file")
    assert member.on_stopped(1.0, nothing_left=True) == [End(1)]


def test_a_new_link_hears_again_what_counts() -> None:
    welcome = Welcome(IDENTITY, 1, True, 600.0, 60.0)
    failed = running()
    fail(failed)
    assert Tell(Failed(1, failure())) in failed.on_welcome(2.0, welcome)
    assert failed.proof("").state == "failed"
    stopped = running()
    stopped.on_message(1.0, StopEpoch(1))
    stopped.on_stopped(1.1, nothing_left=True)
    assert Tell(Stopped(1, stuck=False)) in stopped.on_welcome(2.0, welcome)
    assert stopped.proof("").state == "stopped"
    succeeded = running()
    succeed(succeeded)
    assert Tell(Done(1)) in succeeded.on_welcome(2.0, welcome)
    assert succeeded.proof("").state == "done"
    leaving = running()
    leaving.on_signal("SIGTERM")
    assert Tell(Leaving()) in leaving.on_welcome(2.0, welcome)


def test_a_member_stays_bound_to_its_first_barrier() -> None:
    member = running()
    member.on_welcome(5.0, Welcome("c" * 16, 1, False, 0.0, 60.0))
    assert member.proof("").bound == IDENTITY
    assert member.state == "running"


TRAINS = RankProgress(1.0, 2.0, 8, 7, True, 3.0)


def shown(now: float = 4.0, epoch: int = 1) -> list[m.Effect]:
    """What the member tells the barrier about a rank that has joined and trains."""
    steps = Steps(epoch, 8, 8, 7, True, now - 3.0, None)
    return [Tell(Arrived(epoch, now - 1.0)), Tell(Joined(epoch, now - 2.0)), Tell(steps)]


def test_ranks_that_have_joined_are_shown_once_and_told_to_the_barrier() -> None:
    member = running(ranks=2)
    assert member.on_progress(1.5, 1, [TRAINS, RankProgress(1.0)]) == [Tell(Arrived(1, 0.5))]
    assert member.meeting
    assert member.on_progress(4.0, 1, [TRAINS, TRAINS]) == [*shown()[1:], m.ShowJoined()]
    assert not member.meeting
    assert member.on_progress(5.0, 1, [TRAINS, TRAINS]) == []


@pytest.mark.parametrize("state", ["failed", "stopping", "stopped", "ending"])
def test_ranks_that_are_stopped_are_not_shown_as_joined(state: str) -> None:
    member = running()
    if state == "failed":
        fail(member)
    elif state == "ending":
        member.on_signal("SIGTERM")
    else:
        member.on_message(1.0, StopEpoch(1))
    if state == "stopped":
        member.on_stopped(1.1, nothing_left=True)
    assert member.state == state
    assert member.on_progress(4.0, 1, [TRAINS]) == []
    assert not member.meeting


def test_what_ranks_of_another_epoch_show_is_ignored() -> None:
    member = running()
    assert member.on_progress(4.0, 2, [TRAINS]) == []


def test_ranks_that_end_soon_after_they_joined_have_joined() -> None:
    member = running()
    succeed(member)
    assert member.on_progress(4.0, 1, [TRAINS]) == [*shown(), m.ShowJoined()]


def test_the_next_epoch_joins_anew_and_knows_how_far_the_one_before_was() -> None:
    member = running()
    member.on_progress(4.0, 1, [TRAINS])
    member.on_message(5.0, StopEpoch(1))
    member.on_stopped(5.1, nothing_left=True)
    member.on_message(5.2, Start(2))
    assert member.meeting
    assert member.on_progress(6.0, 2, [RankProgress(5.5, 5.6)]) == [
        Tell(Arrived(2, 0.5)),
        Tell(Joined(2, 0.4)),
        m.ShowJoined(),
    ]
    member.on_progress(7.0, 2, [RankProgress(5.5, 5.6, 8, 7, True, 6.5)])
    assert member.on_progress(8.0, 2, [RankProgress(5.5, 5.6, 9, 7, True, 7.5)]) != [], "it has passed step 8"


def test_the_barrier_hears_how_far_stopped_ranks_were_before_it_hears_that_they_are_stopped() -> None:
    member = running()
    member.on_message(5.0, StopEpoch(1))
    assert member.on_last_progress(6.0, 2, [TRAINS]) == []
    assert member.on_last_progress(6.0, 1, [TRAINS]) == [shown(6.0)[-1]]


def test_a_new_link_hears_again_what_the_ranks_have_shown() -> None:
    member = running()
    member.on_progress(4.0, 1, [TRAINS])
    effects = member.on_welcome(9.0, Welcome(IDENTITY, 1, True, 600.0, 60.0))
    assert effects[:4] == [Tell(Started(1)), *shown(9.0)]
