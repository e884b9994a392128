"""Sums over incidents: GPU-seconds by phase and cause, time to recovery by handling, the platform's ways.

The GPU-seconds include the time in which the groups were Broken after their incidents. Drills are no failures: they
have two sums of their own, and no other sum contains them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

import msgspec

from recovery.core.model.drill import DRILL_CLASS
from recovery.core.model.ledger import IncidentHandling, Outcome
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.report.broken_time import BrokenTime
from recovery.report.enforce_words import EnforceAccount
from recovery.report.incident_account import IncidentAccount
from recovery.report.phase_accounts import OTHER, summed
from recovery.report.platform_ways import Basis, Way


class RecoveryTimes(msgspec.Struct, frozen=True, rename="camel"):
    """How long recovered incidents of one handling took, from the failure on. The handlings are never mixed, because
    incidents that waited for a person would hide how fast the others were."""

    handling: IncidentHandling
    recovered: int
    mean_seconds: float | None
    """This and the two below are None if no incident has recovered."""
    median_seconds: float | None
    p95_seconds: float | None
    """By nearest rank: the time that 95% of them did not exceed."""


class WaySum(msgspec.Struct, frozen=True, rename="camel"):
    """One way of the platform over all incidents that can be compared."""

    way: Way
    basis: Basis
    incidents: int
    idle_gpu_seconds: float
    """The least that this way would have cost."""
    measured_idle_gpu_seconds: float
    """What the same incidents did cost."""
    saved_gpu_seconds: float
    jobs_ended: int
    """Incidents in which the platform would have failed the job permanently."""


class GroupTotals(msgspec.Struct, frozen=True, rename="camel"):
    """Sums over incidents."""

    incidents: int
    """Incidents that share a record count one by one."""
    open_incidents: int
    still_broken_incidents: int
    """Incidents that closed although ranks hung. What the groups have lost since has the phase Broken."""
    by_class: dict[str, int]
    by_outcome: dict[str, int]
    by_handling: dict[str, int]
    restarts: int
    """Attempts that restarted the group: the controller's, and the platform's own that it adopted."""
    charged: int
    """Incidents that were charged to a budget."""
    idle_gpu_seconds: float
    released_gpu_seconds: float
    lost_steps: int
    """Training steps that were made twice, in the incidents in which agents measured them."""
    rework_gpu_seconds: float
    """What these steps cost. It is part of the idle GPU-seconds of phase Resuming, as long as that phase lasted."""
    rework_known_for: int
    """How many incidents these two are of. The others do not say how many steps they cost."""
    idle_gpu_seconds_by_phase: dict[str, float]
    idle_gpu_seconds_by_class: dict[str, float]
    idle_gpu_seconds_by_badput: dict[str, float]
    recovery_times: tuple[RecoveryTimes, ...]
    """One for each handling."""
    platform: tuple[WaySum, ...]
    """Empty: no incident can be compared."""
    with_enforce: EnforceAccount
    """For incidents in mode Observe."""
    drill_incidents: int
    """Incidents that drills have caused."""
    drill_idle_gpu_seconds: float
    """What they have cost, and the time in which the groups were Broken after them."""


def totals_of(incidents: Sequence[IncidentAccount], broken: Sequence[BrokenTime] = ()) -> GroupTotals:
    """The sums over the incidents. Every split of the GPU-seconds adds up to the same sum."""
    accounts = [each for each in incidents if each.drill is None]
    drills = [each for each in incidents if each.drill is not None]
    after_all = [pair for each in broken for pair in each.idle_gpu_seconds.items()]
    hung = [(name, seconds) for name, seconds in after_all if name != DRILL_CLASS]
    lost = sum(seconds for _, seconds in hung)
    after_drills = sum(seconds for name, seconds in after_all if name == DRILL_CLASS)
    return GroupTotals(
        incidents=sum(each.incidents for each in accounts),
        open_incidents=sum(each.ended_at is None for each in accounts),
        still_broken_incidents=sum(each.incidents for each in accounts if each.still_broken),
        by_class=_counted(accounts, lambda each: each.failure_class),
        by_outcome=_counted(accounts, lambda each: each.outcome),
        by_handling=_counted(accounts, lambda each: each.handling),
        restarts=sum(each.restarts for each in accounts),
        charged=sum(each.charged for each in accounts),
        idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each in accounts) + lost, 3),
        released_gpu_seconds=round(sum(each.released_gpu_seconds for each in accounts), 3),
        lost_steps=sum(each.lost_steps or 0 for each in accounts),
        rework_gpu_seconds=round(sum((each.rework_seconds or 0.0) * each.gpus for each in accounts), 3),
        rework_known_for=sum(each.lost_steps is not None for each in accounts),
        idle_gpu_seconds_by_phase=summed(
            [(BROKEN_SECONDS, lost), *(pair for each in accounts for pair in each.idle_gpu_seconds_by_phase.items())]
        ),
        idle_gpu_seconds_by_class=summed(
            [*hung, *((each.failure_class, each.idle_gpu_seconds) for each in accounts)],
        ),
        idle_gpu_seconds_by_badput=summed(
            [(OTHER, lost), *(pair for each in accounts for pair in each.idle_gpu_seconds_by_badput.items())]
        ),
        recovery_times=tuple(_times(handling, accounts) for handling in IncidentHandling),
        platform=tuple(found for way in Way if (found := _way_sum(way, accounts)).incidents),
        with_enforce=_with_enforce(accounts),
        drill_incidents=sum(each.incidents for each in drills),
        drill_idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each in drills) + after_drills, 3),
    )


def _counted(accounts: Iterable[IncidentAccount], key: Callable[[IncidentAccount], str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for each in accounts:
        counts[key(each)] += each.incidents
    return {str(name): count for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))}


def _times(handling: IncidentHandling, accounts: Iterable[IncidentAccount]) -> RecoveryTimes:
    seconds = sorted(
        each.duration_seconds for each in accounts if each.handling is handling and each.outcome == Outcome.RECOVERED
    )
    if not seconds:
        return RecoveryTimes(handling, 0, None, None, None)
    return RecoveryTimes(
        handling=handling,
        recovered=len(seconds),
        mean_seconds=round(fmean(seconds), 3),
        median_seconds=round(median(seconds), 3),
        p95_seconds=seconds[math.ceil(0.95 * len(seconds)) - 1],
    )


def _way_sum(way: Way, accounts: Iterable[IncidentAccount]) -> WaySum:
    pairs = [(each, found) for each in accounts for found in each.platform.ways if found.way is way]
    return WaySum(
        way=way,
        basis=Basis.COMPUTED,
        incidents=len(pairs),
        idle_gpu_seconds=round(sum(found.idle_gpu_seconds for _, found in pairs), 3),
        measured_idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each, _ in pairs), 3),
        saved_gpu_seconds=round(sum(found.saved_gpu_seconds for _, found in pairs), 3),
        jobs_ended=sum(found.ends_job for _, found in pairs),
    )


def _with_enforce(accounts: Sequence[IncidentAccount]) -> EnforceAccount:
    found = [each.with_enforce for each in accounts]
    return EnforceAccount(
        restarts=sum(each.restarts for each in found),
        idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each in found), 3),
        platform_idle_gpu_seconds=round(sum(each.platform_idle_gpu_seconds for each in found), 3),
        saved_gpu_seconds=round(sum(each.saved_gpu_seconds for each in found), 3),
    )
