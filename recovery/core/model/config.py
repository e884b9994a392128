"""The RecoveryConfig as data: the most that policies may do, and the pause and circuit breaker for all of them.

There is one in a cluster, and its name is fixed. Without it the defaults apply. It has only the fields that this
version acts on. The CRD declares the others and refuses them by name.
"""

from datetime import datetime

import msgspec

from recovery.core.model.fleet_ledger import Breaker, FleetLedger
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

CONFIG_NAME = "default"
"""The one RecoveryConfig that counts; the CRD refuses others."""


class AllowSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What policies may do at most."""

    fail_job: bool = False
    """Policies may fail a job permanently (`budget.onExhausted: FailJob`, a rule with action FailJob)."""
    cordon: bool = False
    """The controller may quarantine nodes: taint them, and cordon them if `quarantine.cordon` says so (a rule with
    action ReplaceNode, a node that is suspected twice)."""
    assume_dead: bool = False
    """Policies may assume without proof that a pod on a lost node is dead (`teardown.fencing.mode: AssumeDead`)."""


class QuarantineSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many nodes may be quarantined at once, how, and when they are released."""

    max_nodes: int | None = None
    """The most nodes that may be quarantined at once. 0 allows none. None: only `maxPercent` counts."""
    max_percent: int = 5
    """The most nodes that may be quarantined at once, in percent of all nodes: rounded down, but at least one unless
    this is 0. If `maxNodes` is smaller, it applies instead."""
    release_after: str | None = None
    """How long a quarantine lasts if nothing releases it earlier. None: 24h if no condition, taint or device of the
    node confirmed it. Otherwise it lasts until the node is healthy, or until someone releases it."""
    cordon: bool = False
    """Quarantined nodes are cordoned as well, also those that a person quarantines. The taint alone keeps pods off. A
    cordon does not show who has set it, so agents that cordon nodes themselves may take its end for the end of their
    own."""
    trusted_namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs may blame a node only by a message, and that may use up the cap of the cluster. For any
    other namespace a condition, taint or device of the node, or a job of a second namespace, must confirm the message.
    Without such a sign of the node, each other namespace may cause at most a tenth of the cap, but at least one
    quarantine."""


class SuspicionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """When a node is quarantined without proof."""

    suspicions: int = 2
    """How many incidents must suspect a node before it is quarantined."""
    within: str = "24h"
    """How long a suspicion counts."""


class CircuitBreakerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """If too many recoveries bring no progress, every policy of the cluster counts as mode Observe until someone runs
    `recovery reset-breaker`."""

    recoveries: int
    """How many recoveries without progress, of all jobs together, open the circuit breaker. At most a third of this
    number counts from one job, and half from one namespace unless policies enforce in no other. More than 1000 counts
    as 1000."""
    within: str = "1h"
    """How long a recovery without progress counts."""


class IncidentsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many RecoveryIncidents are kept, and for how long. The oldest are deleted first."""

    ttl: str = "720h"
    """How long a RecoveryIncident is kept after its incident ended."""
    max_per_namespace: int = 1000
    """The most RecoveryIncidents of one namespace. If there are more, the oldest are deleted before `ttl`."""


class DrillsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many drills a job may have, and how long RecoveryDrills are kept."""

    per_job_and_day: int = 12
    """How many repeats of drills a workload may have within 24 hours. 0 allows none."""
    ttl: str = "720h"
    """How long a RecoveryDrill is kept after its end."""
    max_per_namespace: int = 200
    """The most RecoveryDrills of one namespace. If there are more, the oldest that have ended are deleted before
    `ttl`."""


class ConfigSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of the RecoveryConfig."""

    paused: bool = False
    """The controller writes to no workload of the cluster, except to end its own suspensions."""
    pause_reason: str = ""
    """Why recoveries are paused. `recovery explain` shows it."""
    allow: AllowSpec = AllowSpec()
    quarantine: QuarantineSpec = QuarantineSpec()
    suspicion: SuspicionSpec = SuspicionSpec()
    circuit_breaker: CircuitBreakerSpec | None = None
    """None: there is none."""
    incidents: IncidentsSpec = IncidentsSpec()
    drills: DrillsSpec = DrillsSpec()


class ConfigFacts(msgspec.Struct, frozen=True):
    """The RecoveryConfig. If it cannot be read, all recoveries are paused, because what it forbids is not known."""

    name: str
    uid: str
    generation: int
    spec: ConfigSpec = ConfigSpec()
    unreadable: str = ""
    """Why it cannot be read; empty: it can."""
    fleet: FleetLedger = FleetLedger()
    """`status` of the RecoveryConfig."""
    resource_version: str = ""
    reset_breaker_at: datetime | None = None
    """When a person last asked to close the circuit breaker (`annotations.RESET_BREAKER_ANNOTATION`). None: never."""

    @property
    def pause(self) -> Explanation | None:
        """Why all recoveries are paused. None: they are not."""
        if self.unreadable:
            return explained(Sentence.CONFIG_UNREADABLE, Reason.GLOBAL_PAUSE, config=self.name, error=self.unreadable)
        if not self.spec.paused:
            return None
        return because(Reason.GLOBAL_PAUSE, config=self.name, why=self.spec.pause_reason)

    @property
    def breaker(self) -> Explanation | None:
        """Why every policy counts as mode Observe. None: the circuit breaker is closed."""
        breaker = self.fleet.breaker
        return None if breaker is None else because(Reason.BREAKER_OPEN, why=why_opened(breaker))

    @property
    def stop(self) -> Explanation | None:
        """Why nothing is enforced, whatever the policies say: the pause, else the breaker. None: they decide."""
        return self.pause or self.breaker


def why_opened(breaker: Breaker) -> Explanation:
    """Why the circuit breaker opened."""
    return because(
        Reason.RECOVERIES_IN_VAIN,
        recoveries=breaker.recoveries,
        minutes=f"{breaker.within_seconds / 60:g}",
        limit=breaker.limit,
    )
