"""`RecoveryConfig.status`: the ledger of all that spans groups. Written by compare-and-swap, so that two leaders cannot
both fill a cap. It exists only where there is a RecoveryConfig; without one nothing of this is done.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.ledger import IncidentTotals
from recovery.core.model.reason import Reason


class Quarantined(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node that is kept free of new pods by our own cordon and taint. In the ledger before the node is touched, and
    out of it only after the node has been released."""

    node: str
    node_uid: str = msgspec.field(name="nodeUID")
    reason: str
    """What was seen, as a sentence."""
    since: datetime
    incident: str = ""
    """The id of the incident. Empty: a user asked for the quarantine."""
    by: str = ""
    """The user. Empty: the controller."""
    release_at: datetime | None = None
    """None: by health or by hand only."""
    release_when: str = ""
    """The conditions and taints of the node whose end releases it, all of them: `GpuUnhealthy, vendor.example/bad`;
    empty: none."""
    applied: bool = False
    """The controller has seen the node with its taint. If the taint is missing later, another client has released the
    node."""
    cordoned: bool = True
    """The controller has cordoned the node too: it was schedulable before."""
    namespace: str = ""
    """The namespace of the job whose incident caused it. Empty: a user asked for it, or an older controller wrote
    it."""
    node_sign: str = ""
    """What proved a fault of the node then: a row of the signature table that blames the node, or conditions and taints
    of an administrator's rule. Empty: only jobs, or what jobs can cause, blamed it."""
    releasing: str = ""
    """Why it is being released; empty: it is not."""


class Suspicion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An incident whose suspect ran on the node, without proof against the node."""

    node: str
    incident: str
    at: datetime
    reason: str = ""
    namespace: str = ""
    """Of the job. Empty: an older controller wrote it."""
    by_message: bool = False
    """Only a message of the job shows it, and any process of the job can write one."""


class Futile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A recovery that brought no progress: its group was lost again before it had run for `backoff.resetAfter`. It
    and the restart that followed both cost budget: a preemption, or a person, takes nothing in vain."""

    incident: str
    """The id of the incident that followed."""
    at: datetime
    namespace: str = ""
    workload: str = ""
    """Name of the workload, which a job that is submitted again keeps. Both empty: an older controller wrote it."""


class Breaker(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The circuit breaker is open: every policy of the cluster counts as mode Observe until a person closes it."""

    opened_at: datetime
    reason: Reason
    """Why it opened."""
    recoveries: int = 0
    """How many recoveries had brought no progress when it opened."""
    within_seconds: float = 0.0
    """The time within which they counted."""
    limit: int = 0
    """`spec.circuitBreaker.recoveries` of the RecoveryConfig at that time."""
    message: str = ""
    """Why it opened, where an older controller wrote that as a sentence. Empty: the other fields say it."""


class CountedIncident(msgspec.Struct, frozen=True, rename="camel"):
    """An incident that the totals contain."""

    workload_uid: str = msgspec.field(name="workloadUID")
    number: int
    """The number of the incident within its workload."""
    started_at: datetime
    """When its failure happened."""
    counted_at: datetime


class FleetTotals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All closed incidents recorded since the RecoveryConfig exists, each counted once. The counts only rise."""

    incidents: dict[str, dict[str, dict[str, int]]] = {}
    """How many, by class, then by outcome, then by handling (automatic, manual, held)."""
    idle_gpu_seconds_by_class: dict[str, dict[str, float]] = {}
    """By class, then by phase."""
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which suspensions by the controller had freed the GPUs. They do not count as idle."""
    restarts: int = 0
    """Restarts of groups, by the controller or adopted from the platform."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    counted: tuple[CountedIncident, ...] = ()
    """What must not be counted again, oldest first. An incident is dropped ten minutes after it was counted, unless
    its RecoveryGroup has not forgotten it by then; beyond 4000 the oldest are dropped."""


class FleetLedger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`RecoveryConfig.status`."""

    quarantined: tuple[Quarantined, ...] = ()
    """Oldest first."""
    suspicions: tuple[Suspicion, ...] = ()
    """Oldest first. Those that no longer count are dropped with the next write."""
    futile: tuple[Futile, ...] = ()
    """Recoveries that brought no progress. Oldest first."""
    breaker: Breaker | None = None
    """None: closed."""
    totals: FleetTotals = FleetTotals()


class FleetChange(msgspec.Struct, frozen=True):
    """What one reconcile of one group adds to the fleet's ledger. Adding the same twice changes nothing."""

    quarantine: tuple[Quarantined, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    futile: tuple[Futile, ...] = ()
    closed: tuple[IncidentTotals, ...] = ()
    """Closed incidents, to be added to the totals."""


class FleetLimits(msgspec.Struct, frozen=True):
    """What RecoveryConfig says about quarantine, suspicion and the circuit breaker, parsed."""

    may_cordon: bool = False
    max_nodes: int | None = None
    """None: `max_percent` alone."""
    max_percent: int = 5
    """Of all nodes of the cluster, rounded down, but one node where that would be none. The smaller of both caps
    holds."""
    release_after_seconds: float | None = None
    """None: no quarantine ends by time alone."""
    suspicions: int = 2
    """So many incidents within the time below make a suspected node one to be replaced."""
    suspected_within_seconds: float = 86400.0
    trusted_namespaces: frozenset[str] = frozenset()
    """What messages of jobs in these say of a node needs no confirmation, and the cap of a namespace is not theirs."""
    breaker_recoveries: int | None = None
    """None: there is no circuit breaker."""
    breaker_within_seconds: float = 3600.0


QUARANTINE_TAINT = "recovery.trainjob.dev/quarantined"
"""Key of our taint, effect NoSchedule; its value is the id of the incident, or `by-hand`."""


TAINT_EFFECT = "NoSchedule"


BY_HAND = "by-hand"
"""Value of the taint where a person asked for the quarantine."""


REMEMBERED_MAX = 1000
"""So many are remembered, and as many futile recoveries: the newest. An object of the API server has its limits."""


CLOCK_AHEAD_MAX = timedelta(minutes=15)
"""By how much a person's clock may be ahead. A time further ahead would release, or close, for ever whatever comes."""
