"""What `status` shows of a group that is not fully Ready and has no open incident. The ledger does not record that.

Nothing here is written or decided: the functions are the controller's own, applied to what was read for the listing.
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis import not_started
from recovery.core.diagnosis.not_started import NotStarted
from recovery.core.incident import fencing
from recovery.core.incident.preconditions import unread, unwatched
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.core.sentences import render

NOT_STARTED = "NotStarted"
"""The phase of a job whose members have not all run at once, for a known reason."""
UNREADABLE = "Unreadable"
"""The phase of a job with a ledger or another object that cannot be read. The controller does not act on it."""
STARTING = "Starting"
"""The phase of a job whose members have not all run at once, for no known reason. Also a phase of incidents."""
PAUSED = "Paused"
"""The phase of a job that users have paused and that runs or starts. The controller would leave a loss to them."""
BROKEN = str(Standing.BROKEN)
"""The phase of a job without an open incident whose ranks hang. The phase in its ledger is Healthy."""


class Readiness(msgspec.Struct, frozen=True):
    """What Jobs, pods and nodes add to a row. Empty: nothing."""

    phase: str = ""
    cause: str = ""
    idle_gpus: int = 0
    reason: str = ""
    silent: bool = False
    """A node of the job does not answer, so it is not known whether the group trains."""


def readiness_of(
    snapshot: Snapshot,
    workload: WorkloadFacts,
    ledger: Ledger | None,
    policy: Policy | PolicyError | None,
    now: datetime,
) -> Readiness:
    """`ledger` None: there is none. Who may act on the group does not matter, so a pause changes nothing."""
    if (why := unread(snapshot)) is not None:
        first = snapshot.undecodable[0]
        return Readiness(UNREADABLE, f"{first.kind} {first.name} cannot be read", 0, render(why))
    alone = unwatched(snapshot, workload)
    if alone is not None:
        if alone.reason is not Reason.NO_JOB_SET:
            return Readiness()
        if _ran_before(ledger):
            return Readiness(STARTING, alone.reason, 0, f"does not run whole: {render(alone)}")
        return Readiness(NOT_STARTED, alone.reason, 0, f"has not started: {render(alone)}")
    fates = fencing.fates_of_nodes(snapshot, policy, now)
    silent = {name: fate.why for name, fate in fates.items() if fate.dead_since is None}
    started = ledger is not None and not_started.lost_a_member(snapshot, ledger)
    found = None if started else not_started.not_started(snapshot)
    phase = ""
    if found is not None:
        phase = NOT_STARTED if (silent or found.cause) and not _ran_before(ledger) else STARTING
    return Readiness(
        phase=phase,
        cause=_silent_words(tuple(silent)) or (found.cause if found is not None else ""),
        idle_gpus=found.gpus if found is not None else 0,
        reason=_reason(tuple(silent.values()), found, ran_before=_ran_before(ledger)),
        silent=bool(silent),
    )


def _silent_words(nodes: tuple[str, ...]) -> str:
    if not nodes:
        return ""
    if len(nodes) == 1:
        return f"node {nodes[0]} does not answer"
    return f"node {nodes[0]} and {len(nodes) - 1} more do not answer"


def _ran_before(ledger: Ledger | None) -> bool:
    """The group had an incident, so it has trained before, mostly with earlier Jobs."""
    return ledger is not None and ledger.totals.incidents > 0


def _reason(silent: tuple[str, ...], found: NotStarted | None, *, ran_before: bool) -> str:
    """The controller's own sentence, and how many pods run."""
    if silent and found is None:
        return f"{Standing.UNKNOWN}: {silent[0]}"
    if silent:
        return f"no failure yet: {silent[0]}"
    if found is None:
        return ""
    run = f"{found.running} of {found.members} pods run"
    if found.words:
        return f"{'does not run whole' if ran_before else 'has not started'}: {found.words}; {run}"
    return f"on its way: {run}, and nothing is known to keep the others"
