"""`RecoveryConfig.status`: the ledger of everything that spans groups. It is written by compare-and-swap, so that two
leaders cannot both fill a cap. Without a RecoveryConfig it does not exist, and the controller does none of this.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.ledger import IncidentTotals
from recovery.core.model.reason import Reason


class Quarantined(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node that the controller keeps free of new pods by a taint, and perhaps by a cordon as well. The entry is
    written before the node is changed, and removed only after the node has been released."""

    node: str
    node_uid: str = msgspec.field(name="nodeUID")
    reason: str
    """Why the node is quarantined, as a sentence."""
    since: datetime
    incident: str = ""
    """Id of the incident that caused the quarantine. Empty: a user requested it."""
    by: str = ""
    """The user who requested the quarantine. Empty: the controller decided it."""
    release_at: datetime | None = None
    """When the quarantine ends. None: only when the node is healthy, or when a user releases it."""
    release_when: str = ""
    """The conditions and taints of the node that must all end before it is released, such as `GpuUnhealthy,
    vendor.example/bad`. Empty: none."""
    applied: bool = False
    """The controller has seen the node with its taint. If the taint is missing later, another client has released the
    node."""
    cordoned: bool = True
    """The controller also cordons the node, which was schedulable before."""
    namespace: str = ""
    """Namespace of the job whose incident caused the quarantine. Empty: a user requested it."""
    node_sign: str = ""
    """What proved a fault of the node: a row of the signature table that blames the node, or conditions and taints of
    an administrator's rule. Empty: only jobs, or signs that jobs can cause, blamed the node."""
    releasing: str = ""
    """Why the node is being released. Empty: it is not being released."""


class Suspicion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An incident whose suspect ran on the node, without proof against the node."""

    node: str
    incident: str
    at: datetime
    reason: str
    namespace: str
    """Namespace of the job."""
    by_message: bool = False
    """Only a message of the job blames the node, and any process of the job can write one."""


class Futile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A recovery that brought no progress: its group lost a member again before it had run for `backoff.resetAfter`.
    Both this recovery and the next restart were charged to the budget, so neither a preemption nor a restart that a
    user requested counts."""

    incident: str
    """Id of the incident that followed the recovery."""
    at: datetime
    namespace: str
    workload: str
    """Name of the workload, which stays the same when the job is submitted again."""


class Breaker(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The circuit breaker is open: every policy of the cluster counts as mode Observe until a person closes it."""

    opened_at: datetime
    reason: Reason
    """Why the circuit breaker opened."""
    recoveries: int = 0
    """How many recoveries had brought no progress when the circuit breaker opened."""
    within_seconds: float = 0.0
    """`spec.circuitBreaker.within` of the RecoveryConfig when the circuit breaker opened, in seconds."""
    limit: int = 0
    """`spec.circuitBreaker.recoveries` of the RecoveryConfig when the circuit breaker opened."""


class FleetTotals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Counts of all closed incidents since the RecoveryConfig was created, each counted once. They only rise."""

    incidents: dict[str, dict[str, dict[str, int]]] = {}
    """Number of incidents by class, then by outcome, then by handling (automatic, manual, held)."""
    idle_gpu_seconds_by_class: dict[str, dict[str, float]] = {}
    """Idle GPU-seconds by class of the incident, then by phase, and as `Broken` those after the incident."""
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which suspensions by the controller had freed the GPUs. They do not count as idle."""
    restarts: int = 0
    """Restarts of groups: by the controller, or adopted from the platform."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    counted: dict[str, str] = {}
    """Marks of the incidents that must not be counted again, by the minute in which they were counted. A mark has
    twelve characters. It is dropped after ten minutes, but not while a RecoveryGroup still has its incident. Beyond
    4000 the oldest are dropped."""


class FleetLedger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`RecoveryConfig.status`."""

    quarantined: tuple[Quarantined, ...] = ()
    """Nodes that are quarantined, oldest first."""
    suspicions: tuple[Suspicion, ...] = ()
    """Suspicions against nodes, oldest first. Those that no longer count are dropped with the next write."""
    futile: tuple[Futile, ...] = ()
    """Recoveries that brought no progress, oldest first."""
    breaker: Breaker | None = None
    """The open circuit breaker: every policy counts as mode Observe. None: the circuit breaker is closed."""
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
    """Nodes may be quarantined."""
    cordons: bool = False
    """Quarantined nodes are cordoned as well."""
    max_nodes: int | None = None
    """None: only `max_percent` counts."""
    max_percent: int = 5
    """Percent of all nodes of the cluster: rounded down, but at least one node unless this is 0. The smaller of the two
    caps applies."""
    release_after_seconds: float | None = None
    """None: no quarantine ends by time alone."""
    suspicions: int = 2
    """A node is replaced if this many incidents suspect it within `suspected_within_seconds`."""
    suspected_within_seconds: float = 86400.0
    trusted_namespaces: frozenset[str] = frozenset()
    """Namespaces whose messages about a node need no confirmation, and to which the cap of a namespace does not
    apply."""
    breaker_recoveries: int | None = None
    """None: there is no circuit breaker."""
    breaker_within_seconds: float = 3600.0


QUARANTINE_TAINT = "recovery.trainjob.dev/quarantined"
"""Key of our taint, effect NoSchedule; its value is the id of the incident, or `by-hand`."""


TAINT_EFFECT = "NoSchedule"


BY_HAND = "by-hand"
"""Value of the taint if a user requested the quarantine."""


REMEMBERED_MAX = 1000
"""At most this many suspicions, and as many futile recoveries, are kept: the newest. The size of an object is
limited."""


CLOCK_AHEAD_MAX = timedelta(minutes=15)
"""By how much a user's clock may be ahead. A later time in a request would release every future quarantine, or close
every future circuit breaker."""
