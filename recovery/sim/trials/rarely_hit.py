"""The parts of the state machine that trials may miss because chance rarely reaches them, each with its unit test.

A thousand trials need not reach these. `recovery simulate` and `make seeds` list those that no trial reached.
"""

from collections.abc import Mapping

from recovery.core.incident.transitions import UNDER_WAY
from recovery.core.model.ledger import Phase

_TRANSITIONS = "tests/unit/core/incident/test_reached_transitions.py::"
_ATTEMPTS = "tests/unit/core/incident/test_following_attempts.py::"
_FORWARD = f"{_TRANSITIONS}test_a_group_goes_forward_from_any_phase_to_any_later_one"
_CAPACITY = f"{_TRANSITIONS}test_a_group_that_starts_goes_back_to_wait_for_capacity"
_AGAIN = f"{_TRANSITIONS}test_another_restart_goes_back_to_decided_from"
_HELD = f"{_TRANSITIONS}test_where_the_budget_allows_no_other_the_group_is_held_from"
_HELD_BY_VERDICT = f"{_TRANSITIONS}test_a_verdict_holds_a_group_whose_restart_is_withheld"
_WITHHELD = f"{_TRANSITIONS}test_the_restart_for_a_second_loss_is_withheld_from"
_ENDS = f"{_TRANSITIONS}test_an_incident_ends_from_any_phase"
_OVERTAKEN = f"{_ATTEMPTS}test_a_restart_that_the_jobset_was_faster_with_becomes_the_platforms"
_OVERTAKEN_WITH_SETTINGS = f"{_ATTEMPTS}test_one_with_settings_that_the_jobset_was_faster_with_becomes_the_platforms"


def _transitions(sources: tuple[Phase, ...], target: Phase, test: str) -> dict[str, str]:
    return {f"transition:{source}>{target}": test for source in sources}


RARELY_HIT: Mapping[str, str] = {
    **_transitions((Phase.FENCING, Phase.SCHEDULING, Phase.TEARING_DOWN), Phase.HEALTHY, _FORWARD),
    **_transitions((Phase.FENCING,), Phase.BACKOFF, _FORWARD),
    **_transitions((Phase.FENCING,), Phase.SCHEDULING, _FORWARD),
    **_transitions((Phase.DECIDED, Phase.FENCING, Phase.TEARING_DOWN, Phase.BACKOFF), Phase.STARTING, _FORWARD),
    **_transitions(UNDER_WAY[:5], Phase.RENDEZVOUS, _FORWARD),
    **_transitions(UNDER_WAY[:5], Phase.RESUMING, _FORWARD),
    **_transitions((Phase.STARTING,), Phase.SCHEDULING, _CAPACITY),
    **_transitions((Phase.FENCING, Phase.TEARING_DOWN, Phase.RENDEZVOUS, Phase.RESUMING), Phase.DECIDED, _AGAIN),
    **_transitions(
        (
            Phase.FENCING,
            Phase.TEARING_DOWN,
            Phase.SCHEDULING,
            Phase.STARTING,
            Phase.RENDEZVOUS,
            Phase.RESUMING,
        ),
        Phase.HELD,
        _HELD,
    ),
    **_transitions((Phase.BACKOFF,), Phase.HELD, _HELD_BY_VERDICT),
    **_transitions((Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING), Phase.BACKOFF, _WITHHELD),
    "ending:Failed/AttemptsExhausted": f"{_TRANSITIONS}test_a_job_that_has_had_its_attempts_is_failed",
    "ending:Failed/NativePolicy": f"{_TRANSITIONS}test_a_users_own_policy_ends_it",
    "ending:Recovered/ProgressNotSeen": f"{_TRANSITIONS}test_progress_that_does_not_come_ends_it_from_resuming",
    "ending:Superseded/JobDeleted": _ENDS,
    "ending:Superseded/JobComplete": _ENDS,
    "ending:Superseded/NoJobSet": _ENDS,
    "ending:Superseded/JobSetDeleted": _ENDS,
    "ending:Superseded/JobSetReplaced": _ENDS,
    "ending:Superseded/JobFinishing": f"{_TRANSITIONS}test_a_member_that_succeeds_ends_it",
    "ending:Superseded/RunsWholeAgain": f"{_TRANSITIONS}test_a_restart_that_was_never_carried_out_ends_superseded",
    "ending:Observed/ModeSwitched": f"{_TRANSITIONS}test_a_loss_after_the_policy_enforces_ends_an_observed_incident",
    "ending:Observed/RestartedByHand": f"{_TRANSITIONS}test_a_restart_by_hand_ends_an_incident_that_only_watches",
    "becomes:RecreateGroup>Adopted": _OVERTAKEN,
    "becomes:ReplaceNode>Adopted": _OVERTAKEN,
    "becomes:AvoidNode>Adopted": _OVERTAKEN_WITH_SETTINGS,
    "becomes:Shrink>Adopted": _OVERTAKEN_WITH_SETTINGS,
    "becomes:Grow>Adopted": _OVERTAKEN_WITH_SETTINGS,
    "becomes:RecreateJobSet>Adopted": f"{_ATTEMPTS}test_so_does_that_of_a_jobset_whose_jobs_outlive_it",
}
"""Unit test by key of `coverage.ALL`. These keys were seen fewer than five times in 200 trials."""
