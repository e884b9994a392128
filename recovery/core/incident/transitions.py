"""The state machine of an incident as tables: its phases, its attempts, its endings.

`invariants` refuses a ledger that departs from the tables, trials count which rows they take, and `make manifests`
draws the tables (`docs/images`). Nothing here decides: each row says when `core.decision` takes it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec

from recovery.core.model.ledger import AttemptAction, Incident, Outcome, Phase, PhaseSpan
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode


class Transition(msgspec.Struct, frozen=True):
    """A change from one phase to another. Healthy means that no incident is open."""

    source: Phase
    target: Phase
    when: str
    by_restart: bool = False
    """True: allowed only in the write that adds a restart attempt, ours or the platform's."""

    def __str__(self) -> str:
        return f"{self.source}>{self.target}"


class AttemptLife(msgspec.Struct, frozen=True):
    """How attempts with one action begin, and what that action may become. Any attempt may follow any other."""

    action: AttemptAction
    when: str
    modes: frozenset[Mode]
    """Allowed modes of the incident."""
    begins_in: frozenset[Phase]
    """Allowed phases of the group in the write that adds the attempt. Healthy: that write also ends the incident."""
    becomes: frozenset[AttemptAction] = frozenset()
    """Actions that it may change to while it is the latest restart."""


class AllowedEnding(msgspec.Struct, frozen=True):
    """How an incident may end."""

    outcome: Outcome
    reason: Reason
    when: str
    modes: frozenset[Mode]
    """Allowed modes of the incident."""
    phases: frozenset[Phase]
    """Allowed last phases of the incident."""

    def __str__(self) -> str:
        return f"{self.outcome}/{self.reason}"


# --- phases ----------------------------------------------------------------------------------------------------------

UNDER_WAY = (
    Phase.DECIDED,
    Phase.FENCING,
    Phase.TEARING_DOWN,
    Phase.BACKOFF,
    Phase.SCHEDULING,
    Phase.STARTING,
    Phase.RENDEZVOUS,
    Phase.RESUMING,
)
"""The phases of an attempt, in order. Any of them may be skipped, because it may pass between two reads."""

_ATTEMPT = frozenset({*UNDER_WAY, Phase.STOPPING})
"""The same, with the phase that only a restart in place has."""


def _from(sources: tuple[Phase, ...], target: Phase, when: str, *, by_restart: bool = False) -> tuple[Transition, ...]:
    return tuple(Transition(source, target, when, by_restart) for source in sources)


TRANSITIONS: tuple[Transition, ...] = (
    *_from((Phase.HEALTHY,), Phase.DETECTED, "a failure opens an incident, which begins at the failure itself"),
    *_from((Phase.DETECTED,), Phase.DECIDED, "the write that opens the incident decides on it too"),
    # The facts show how far the group has come (`phases.position`). It only goes forward ...
    *_from(UNDER_WAY[:1], Phase.FENCING, "an old pod may still run on a node that does not answer"),
    *_from(UNDER_WAY[:2], Phase.TEARING_DOWN, "the old Jobs and pods are going"),
    *_from(
        (*UNDER_WAY[:3], Phase.STOPPING),
        Phase.BACKOFF,
        "the old group is gone and the workload is suspended until its delay is over, or the restart is withheld",
    ),
    *_from(UNDER_WAY[:4], Phase.SCHEDULING, "the old group is gone, and a member has no node"),
    *_from(UNDER_WAY[:5], Phase.STARTING, "every member has a node, and one does not run"),
    *_from(UNDER_WAY[:6], Phase.RENDEZVOUS, "every member runs, and one is not Ready"),
    *_from(
        UNDER_WAY[:7],
        Phase.RESUMING,
        "every member is Ready, and the training, which had reported progress before, has not done so since",
    ),
    *_from((Phase.DECIDED,), Phase.STOPPING, "the agents stop the processes of the epoch that has ended"),
    *_from((Phase.STOPPING,), Phase.SCHEDULING, "no process is left, and a member has no node"),
    *_from((Phase.STOPPING,), Phase.STARTING, "no process is left, and those of the next epoch start"),
    *_from((Phase.STOPPING,), Phase.RENDEZVOUS, "the processes of the next epoch run, and not all have joined"),
    *_from((Phase.STOPPING,), Phase.RESUMING, "all have joined, and make no new step yet"),
    # ... except for capacity: waiting for a node does not count as starting.
    *_from((Phase.STARTING,), Phase.SCHEDULING, "no node has room for the pod that replaces a lost one"),
    *_from(
        (Phase.FENCING, Phase.TEARING_DOWN),
        Phase.DECIDED,
        "one Job of several is back and fails while another still goes, or the new JobSet fails at once: "
        "another restart",
        by_restart=True,
    ),
    # Not only by a restart: a loss that is left to the platform is no longer withheld.
    *_from(
        (Phase.BACKOFF,),
        Phase.DECIDED,
        "the withheld restart is made, the platform restarts the group, or the loss is left to the platform",
    ),
    *_from(
        (Phase.STOPPING, Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING),
        Phase.DECIDED,
        "a member is lost again, a timeout passes, or something else restarts the group: another restart",
        by_restart=True,
    ),
    *_from(
        (Phase.HELD,),
        Phase.DECIDED,
        "the budget's window lets a restart through, a person asks for one, or the platform restarts the group",
        by_restart=True,
    ),
    *_from(
        (Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING),
        Phase.BACKOFF,
        "a member is lost again, and the restart is withheld, or the group is released while a member has no node",
    ),
    *_from(
        (*UNDER_WAY, Phase.STOPPING), Phase.HELD, "no restart may be made now: the budget, or the verdict, forbids it"
    ),
    *_from((*UNDER_WAY, Phase.STOPPING, Phase.HELD), Phase.HEALTHY, "the incident ends"),
)
"""Every transition that facts can lead to. A missing one blocks the recovery that needs it."""

ALLOWED_NEXT: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {phase: frozenset(each.target for each in TRANSITIONS if each.source is phase) for phase in Phase}
)
"""Which phases may follow a phase."""

BY_RESTART = frozenset((each.source, each.target) for each in TRANSITIONS if each.by_restart)


def path(before: Incident | None, after: Incident) -> tuple[Phase, ...]:
    """The phases that one write goes through, beginning with the phase before the write.

    `before`: the same incident before the write. None: the write opens it. Spans older than the one that ran then do
    not count: the two oldest may have been merged (`phases.MAX_SPANS`).
    """
    spans = after.phases
    running = _running(before.phases, spans) if before is not None and before.phases else -1
    known = Phase.HEALTHY if running < 0 else spans[running].phase
    # A phase in which the GPUs become released, or stop being released, has a span for each part.
    entered = (
        span.phase
        for number, span in enumerate(spans)
        if number > running and not (number and _goes_on(spans[number - 1], span))
    )
    return (known, *entered) if after.closing is None else (known, *entered, Phase.HEALTHY)


def _goes_on(one: PhaseSpan, other: PhaseSpan) -> bool:
    return one.phase is other.phase and one.released != other.released


def _running(was: tuple[PhaseSpan, ...], spans: tuple[PhaseSpan, ...]) -> int:
    """The index in `spans` of the phase that ran last in `was`. -1: it is not there.

    Its date alone does not identify it: a phase without length may have begun and ended at the same moment.
    """
    ran = was[-1]
    for merged in range(len(was)):
        index = len(was) - 1 - merged
        same = index < len(spans) and (spans[index].phase, spans[index].started_at) == (ran.phase, ran.started_at)
        if same and spans[1:index] == was[1 + merged : -1]:
            return index
    return -1


def taken(before: Incident | None, after: Incident) -> Iterator[tuple[Phase, Phase]]:
    """The transitions of one write. `before`: as for `path`. An incident that was already closed has no transitions."""
    if before is None or before.closing is None:
        yield from pairwise(path(before, after))


# --- attempts --------------------------------------------------------------------------------------------------------

_ENFORCE, _ANY_MODE = frozenset({Mode.ENFORCE}), frozenset(Mode)
_AT_ONCE = frozenset({Phase.DECIDED})

ATTEMPTS: Mapping[AttemptAction, AttemptLife] = MappingProxyType(
    {
        life.action: life
        for life in (
            AttemptLife(
                AttemptAction.RECREATE_GROUP,
                "the controller restarts the group; Adopted: the platform was faster",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.REPLACE_NODE,
                "the same, with a node quarantined first",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.AVOID_NODE,
                "the same, and the group alone comes back on other nodes than the suspect's",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.SHRINK,
                "not all members find a node: the group comes back with fewer",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.GROW,
                "there is room again: the group comes back with more nodes",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.RECREATE_JOB_SET,
                "the controller deletes a failed JobSet; Adopted: the next one restarts while old Jobs are left",
                _ENFORCE,
                _AT_ONCE,
                becomes=frozenset({AttemptAction.ADOPTED}),
            ),
            AttemptLife(
                AttemptAction.RESTART_IN_PLACE,
                "the agents start the processes again in their pods",
                _ANY_MODE,
                _ATTEMPT | {Phase.HEALTHY},
            ),
            AttemptLife(
                AttemptAction.ADOPTED,
                "JobSet, or something else, restarts the group",
                _ANY_MODE,
                _ATTEMPT | {Phase.HEALTHY},
            ),
            AttemptLife(
                AttemptAction.NONE,
                "the loss is left to the platform",
                _ANY_MODE,
                _ATTEMPT | {Phase.HELD, Phase.HEALTHY},
            ),
        )
    }
)
"""The life of an attempt, by its action."""

# --- endings ---------------------------------------------------------------------------------------------------------

_ANY_PHASE = _ATTEMPT | {Phase.HELD}
_HELD = frozenset({Phase.HELD})
_RESUMING = frozenset({Phase.RESUMING})
_OBSERVE = frozenset({Mode.OBSERVE})

ENDINGS: tuple[AllowedEnding, ...] = (
    AllowedEnding(
        Outcome.RECOVERED,
        Reason.ALL_RANKS_READY,
        "after a restart, all ranks are Ready, or have joined; or the job is complete before it reports progress",
        _ENFORCE,
        _ATTEMPT,
    ),
    AllowedEnding(
        Outcome.RECOVERED,
        Reason.TRAINING_PROGRESSES,
        "the training reports progress after all ranks are Ready",
        _ENFORCE,
        _RESUMING,
    ),
    AllowedEnding(
        Outcome.RECOVERED,
        Reason.PROGRESS_NOT_SEEN,
        "all ranks are Ready, and the training reports no progress within timeouts.resume",
        _ENFORCE,
        _RESUMING,
    ),
    AllowedEnding(
        Outcome.FAILED,
        Reason.FAIL_JOB_RULE,
        "a rule says FailJob, and the JobSet has been made to fail",
        _ENFORCE,
        _HELD,
    ),
    AllowedEnding(
        Outcome.FAILED,
        Reason.BUDGET_EXHAUSTED,
        "onExhausted says FailJob, and the JobSet has been made to fail",
        _ENFORCE,
        _HELD,
    ),
    AllowedEnding(
        Outcome.FAILED,
        Reason.ATTEMPTS_EXHAUSTED,
        "onExhausted says FailJob, and the incident has had all its attempts",
        _ENFORCE,
        _HELD,
    ),
    AllowedEnding(
        Outcome.FAILED, Reason.NATIVE_POLICY, "the user's own policies let the JobSet fail", _ANY_MODE, _ANY_PHASE
    ),
    AllowedEnding(
        Outcome.FAILED, Reason.PLATFORM_GAVE_UP, "the JobSet has failed, and is not made again", _ANY_MODE, _ANY_PHASE
    ),
    AllowedEnding(
        Outcome.HELD, Reason.RUNS_WHOLE_AGAIN, "all ranks are Ready while the group is held", _ENFORCE, _HELD
    ),
    AllowedEnding(Outcome.SUPERSEDED, Reason.JOB_DELETED, "the workload is being deleted", _ANY_MODE, _ANY_PHASE),
    AllowedEnding(
        Outcome.SUPERSEDED, Reason.JOB_COMPLETE, "the workload, or its JobSet, is complete", _ANY_MODE, _ANY_PHASE
    ),
    AllowedEnding(Outcome.SUPERSEDED, Reason.JOB_SUSPENDED, "others suspend the workload", _ANY_MODE, _ANY_PHASE),
    AllowedEnding(Outcome.SUPERSEDED, Reason.NO_JOB_SET, "the workload has no JobSet any more", _ANY_MODE, _ANY_PHASE),
    AllowedEnding(Outcome.SUPERSEDED, Reason.JOB_SET_DELETED, "others delete the JobSet", _ANY_MODE, _ANY_PHASE),
    AllowedEnding(Outcome.SUPERSEDED, Reason.JOB_SET_REPLACED, "another JobSet took its place", _ANY_MODE, _ANY_PHASE),
    AllowedEnding(
        Outcome.SUPERSEDED,
        Reason.JOB_FINISHING,
        "a member has succeeded, so the job is finishing",
        _ANY_MODE,
        _ANY_PHASE,
    ),
    AllowedEnding(
        Outcome.SUPERSEDED,
        Reason.RUNS_WHOLE_AGAIN,
        "all ranks are Ready before the restart was made",
        _ENFORCE,
        frozenset(UNDER_WAY[:4]),
    ),
    AllowedEnding(
        Outcome.OBSERVED,
        Reason.OBSERVE_MODE,
        "all ranks are Ready, and the controller only observed",
        _OBSERVE,
        _ATTEMPT,
    ),
    AllowedEnding(
        Outcome.OBSERVED,
        Reason.LEFT_TO_KUBERNETES,
        "all ranks are Ready, and nothing was restarted",
        _ENFORCE,
        _AT_ONCE,
    ),
    AllowedEnding(
        Outcome.OBSERVED,
        Reason.MODE_SWITCHED,
        "the policy enforces by now, and another member was lost",
        _OBSERVE,
        _AT_ONCE,
    ),
    AllowedEnding(
        Outcome.OBSERVED,
        Reason.RESTARTED_BY_HAND,
        "a person asks for a restart, which opens an incident of its own",
        _ANY_MODE,
        _ATTEMPT,
    ),
)
"""How incidents end."""

_ENDINGS = MappingProxyType({(each.outcome, each.reason): each for each in ENDINGS})


def ending_of(outcome: Outcome, reason: Reason) -> AllowedEnding | None:
    """The row of the table. None: no incident may end that way."""
    return _ENDINGS.get((outcome, reason))
