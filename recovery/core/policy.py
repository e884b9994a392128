"""The RecoveryPolicy as data: what a team's SRE allows to be done, its defaults, which policy applies to a workload.

Only what this version acts on stands here. The CRD (`manifests/crd`) declares the whole spec and refuses by name,
through CEL, what is not built yet, so that a policy never promises in silence what the controller does not do.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.facts import WorkloadFacts

OWN_ANNOTATION_PREFIX = "recovery.trainjob.dev/"
"""Annotations that the controller or its users write; no others are read."""
POLICY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}policy"
"""On the TrainJob, set by a person: the policy to use, by name."""
PAUSED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}paused"
"""On the TrainJob, set by a person: nothing is done to the job."""
TOUCHED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}touched"
"""On a Job that got no pods, set by the watchdog so that the Job controller looks at it again: the attempt for which
that was done, because one attempt touches once."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")


class Mode(StrEnum):
    """Observe: full decisions, no write to any workload. Enforce: act."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class Restart(StrEnum):
    """What a lost member calls for where no rule says otherwise."""

    RECREATE_GROUP_ON_POD_RESTART = "RecreateGroupOnPodRestart"
    NONE = "None"


class PolicyError(ValueError):
    """A policy that cannot be read; the message starts with the path of the field."""


def parse_duration(text: str, path: str) -> timedelta:
    """`1h30m`, `15m`, `10s`, `500ms`. Raises PolicyError naming `path`."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise PolicyError(f"{path}: {text!r} is not a duration; write it like 24h, 15m, 10s or 500ms")
    hours, minutes, seconds, milliseconds = (int(part or 0) for part in match.groups())
    try:
        return timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    except OverflowError:
        raise PolicyError(f"{path}: {text!r} is longer than any duration that makes sense here") from None


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """Which workloads of the namespace; no labels match all."""

    match_labels: dict[str, str] = {}


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many incidents may be charged within a rolling window."""

    limit: int = 10
    window: str = "24h"
    on_exhausted: str = "Hold"


class TeardownSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`grace_seconds` for the deletes of old pods; None: the pod's own grace period."""

    grace_seconds: int | None = None


class TimeoutsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`start`: from when all pods have a node until all run; then a new attempt is made."""

    start: str = "15m"


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a RecoveryPolicy, as far as this version acts on it."""

    selector: Selector = Selector()
    priority: int = 0
    mode: Mode = Mode.OBSERVE
    restart: Restart = Restart.RECREATE_GROUP_ON_POD_RESTART
    budget: BudgetSpec = BudgetSpec()
    teardown: TeardownSpec = TeardownSpec()
    timeouts: TimeoutsSpec = TimeoutsSpec()


class PolicyFacts(msgspec.Struct, frozen=True):
    """A RecoveryPolicy with what the rules about time need to know of it."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: PolicySpec
    created_at: datetime
    mode_since: datetime
    """When `spec.mode` was last written: evidence from before it is a baseline, never a failure."""
    deleting: bool = False


class Policy(msgspec.Struct, frozen=True):
    """A policy resolved for deciding: durations parsed, every default in place."""

    name: str
    uid: str
    generation: int
    mode: Mode
    restart: Restart
    budget_limit: int
    budget_window: timedelta
    grace_seconds: int | None
    start_timeout: timedelta
    since: datetime
    """Evidence from before this moment is a baseline."""


def resolve(facts: PolicyFacts) -> Policy:
    """Validate what a schema cannot, and parse. Raises PolicyError naming the field."""
    spec = facts.spec
    if spec.budget.limit < 0:
        raise PolicyError(f"spec.budget.limit: {spec.budget.limit} is negative; 0 allows no recovery at all")
    window = parse_duration(spec.budget.window, "spec.budget.window")
    if not window:
        raise PolicyError("spec.budget.window: must be longer than 0s, or no recovery would ever count")
    start = parse_duration(spec.timeouts.start, "spec.timeouts.start")
    if not start:
        raise PolicyError("spec.timeouts.start: must be longer than 0s, or every start would be given up at once")
    grace = spec.teardown.grace_seconds
    if grace is not None and grace < 1:
        raise PolicyError(
            f"spec.teardown.graceSeconds: {grace} would force-delete pods that may still write; use 1 or more"
        )
    return Policy(
        name=facts.name,
        uid=facts.uid,
        generation=facts.generation,
        mode=spec.mode,
        restart=spec.restart,
        budget_limit=spec.budget.limit,
        budget_window=window,
        grace_seconds=grace,
        start_timeout=start,
        since=max(facts.created_at, facts.mode_since),
    )


def select(policies: Iterable[PolicyFacts], workload: WorkloadFacts) -> PolicyFacts | None:
    """The policy that applies: the workload's annotation, else the highest priority, then the oldest, then by name.

    An annotation that names no existing policy selects none: a user who asked for one policy is not given another.
    """
    present = [policy for policy in policies if not policy.deleting]
    wanted = workload.annotations.get(POLICY_ANNOTATION)
    if wanted is not None:
        return next((policy for policy in present if policy.name == wanted), None)
    matching = [
        policy
        for policy in present
        if all(workload.labels.get(key) == value for key, value in policy.spec.selector.match_labels.items())
    ]
    return min(matching, key=lambda policy: (-policy.spec.priority, policy.created_at, policy.name), default=None)


def applicable(policies: Iterable[PolicyFacts], workload: WorkloadFacts) -> Policy | PolicyError | None:
    """The policy that applies, resolved. None: none does; PolicyError: it cannot be used, and which one it is."""
    chosen = select(policies, workload)
    if chosen is None:
        return None
    try:
        return resolve(chosen)
    except PolicyError as error:
        return PolicyError(f"RecoveryPolicy {chosen.namespace}/{chosen.name}: {error}")


def paused(workload: WorkloadFacts) -> bool:
    """The `paused` annotation is set to anything but "false"."""
    return workload.annotations.get(PAUSED_ANNOTATION, "false") != "false"
