"""The values that labels take, and how the phase of an incident becomes one of them."""

from recovery.core.diagnosis.not_started import Hindrance
from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.drill import DRILL_CLASS
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.protection import UNPROTECTED
from recovery.core.model.standing import Standing
from recovery.ports import LossWait, WatchEnd

SCOPE = "group"
"""What is restarted: the only scope so far."""

CONTROLLER = "group"
"""The only kind of reconciler and queue there is."""

UNKNOWN_CLASS = "unknown"
"""For classes that this version does not know, so that the label stays bounded."""

FAILURE_CLASSES = (*DisruptionClass, UNKNOWN_CLASS)
"""The classes of failures, which every job has at 0. A job that never had a drill has no series for `DRILL_CLASS`: with
them, a scrape of many jobs would be much larger."""
CLASSES = (*FAILURE_CLASSES, DRILL_CLASS)
CLASS_MEANING = "The cause; see [classes.md](classes.md). `Drill`: a drill caused the incident, so it is no failure."

HUNG = "hung"

IDLE_REASONS = {
    "Detected": "detect",
    "Decided": "decide",
    "Stopping": "teardown",
    "Fencing": "fencing",
    "TearingDown": "teardown",
    "Backoff": "backoff",
    "Scheduling": "schedule",
    "Starting": "start",
    "Rendezvous": "rendezvous",
    "Resuming": "resume",
    "Held": HUNG,
}
"""By phase: why GPUs are idle in it."""

BOOKED_REASONS = {**IDLE_REASONS, "Decided": HUNG}
"""By phase: the reason under which its GPU-seconds are counted.

The ledger books by phase alone, so a phase must always count as the same reason; otherwise what was reported as one
reason while it ran would be reported again as another once it is booked. A phase that is not here counts as `hung`, and
so does the time in which a group hangs between incidents. Decided lasts milliseconds where a failure is
acted on, and long only where nothing is done: its seconds are those of a group that hangs.
"""

DRILL_REASON = "drill"
"""The reason of all GPU-seconds that drills have cost, whatever the phase. So a sum without it is of failures alone."""

REASONS = tuple(dict.fromkeys(IDLE_REASONS.values()))
FAILURE_REASONS = tuple(dict.fromkeys(BOOKED_REASONS.values()))
COUNTED_REASONS = (*FAILURE_REASONS, DRILL_REASON)
COUNTED_MEANING = (
    "What the group waited for. Time in phase Decided counts as `hung`. All time of a drill counts as `drill`."
)

RECOVERY_BADPUT = "infrastructure_recovery_from_disruption"
OTHER_BADPUT = "other"
BADPUT = (RECOVERY_BADPUT, OTHER_BADPUT)
"""Of the types of badput that Google's ml-goodput-measurement names, those that this version counts."""
RESERVED_BADPUT = (
    "elastic_slice_down",
    "elastic_scale_up",
    "elastic_reinitialization",
    "wasted_progress_from_disruption",
)
"""Later versions may count these."""

OUTCOMES = tuple(Outcome)
JOINED_ALL, INTERRUPTED = "Joined", "Interrupted"
RENDEZVOUS_OUTCOMES = (JOINED_ALL, INTERRUPTED)
"""How a rendezvous ended, however the incident that it belongs to does. Interrupted: not all had joined."""
JOINED_PROBE, AGENT = "joined-probe", "agent"
RENDEZVOUS_SOURCES = (JOINED_PROBE, AGENT)
"""What measures a rendezvous. Pods that are Ready without a probe only show that their containers run."""
START = "Start"
"""Cause of the rendezvous of a group that no restart precedes."""
RESTART_CAUSES = tuple(AttemptAction)
RENDEZVOUS_CAUSES = (START, *RESTART_CAUSES)

HANDLINGS = ("automatic", "manual", "held")
DRILL, NO_DRILL = "true", "false"
MODES = ("observe", "enforce")
NO_MODE = "none"
ENFORCE_OR_PLATFORM = ("enforce", "platform")
PHASES = tuple(Phase)
STANDINGS = tuple(Standing)
WORKLOAD_KINDS = ("TrainJob", "JobSet")
HINDRANCES = tuple(Hindrance)
UNPROTECTED_REASONS = tuple(UNPROTECTED)
WATCH_ENDS = tuple(WatchEnd)
LOSS_WAITS = tuple(LossWait)
ACTIONS = (*AttemptAction, "Hold", "FailJob")
SUPPRESSED = ("budget", "permission", "observe")
REFUSALS = ("cap", "namespace_cap", "unconfirmed", "permission", "feasible")
QUARANTINED_BY = ("controller", "person")
WEBHOOK_OUTCOMES = ("allowed", "warned", "refused", "error")
AGENT_RESULTS = (
    *("accepted", "malformed", "too_large", "limited", "unauthenticated", "forbidden", "standby", "unavailable"),
    "unanswered",
)
ARRIVED, JOINED, EXPECTED = "arrived", "joined", "expected"


def badput_of(reason: str) -> str:
    """The type of badput that idle GPU-seconds of that reason are.

    In a backoff, and while a group hangs, no recovery is under way. In all other phases one is. A drill is no
    disruption in the sense of the taxonomy.
    """
    return OTHER_BADPUT if reason in {"backoff", HUNG, DRILL_REASON} else RECOVERY_BADPUT


def known_class(name: str) -> str:
    """The class as a label."""
    return name if name in _KNOWN_CLASSES else UNKNOWN_CLASS


def counted_reason(failure_class: str, phase: str) -> str:
    """The reason under which GPU-seconds of that class and phase are counted."""
    return DRILL_REASON if failure_class == DRILL_CLASS else BOOKED_REASONS.get(phase, HUNG)


_KNOWN_CLASSES = frozenset((*DisruptionClass, DRILL_CLASS))
