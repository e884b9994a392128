"""Restraint across groups: which nodes may be quarantined, when they are released, when the circuit breaker opens.

Pure: from the fleet's ledger and what was seen to the next ledger, or to the reason why not. Caps hold whoever asks.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from recovery.core.facts import FleetFacts, NodeFacts
from recovery.core.fleet import FleetChange, FleetLedger, FleetLimits, Quarantined

QUARANTINE_TAINT = "recovery.trainjob.dev/quarantined"
"""Key of our taint, effect NoSchedule; its value is the id of the incident, or `by-hand`."""
QUARANTINE_ANNOTATION = "recovery.trainjob.dev/quarantine"
"""On the node, beside the taint: JSON with reason, incident, since, release condition, and whether the cordon is ours."""
RELEASE_ANNOTATION = "recovery.trainjob.dev/release"
"""On the node, set by a person (`recovery release`): an RFC 3339 time; the quarantine of before is ended."""
RESET_BREAKER_ANNOTATION = "recovery.trainjob.dev/reset-breaker"
"""On the RecoveryConfig, set by a person: an RFC 3339 time; a breaker that opened before is closed."""


class Refused(msgspec.Struct, frozen=True):
    """Why a node is not quarantined, in words that name the cap and where it is set."""

    why: str


def admitted(
    ledger: FleetLedger, limits: FleetLimits, wanted: Quarantined, *, nodes: int, now: datetime
) -> FleetLedger | Refused:
    """The ledger with that node quarantined; the same ledger if it is already. Refused by permission or by a cap.

    `nodes`: how many the cluster has. One node more than the caps allow is never admitted, whatever was before.
    """
    return Refused("not built")


def spared(wanted: str, fleet: FleetFacts, members: int) -> Refused | None:
    """The node is among the last on which the waiting group could run: it is not taken away. None: enough are left.

    `members`: pods of the group.
    """
    return None


def changed(
    ledger: FleetLedger, limits: FleetLimits, change: FleetChange, *, nodes: int, now: datetime
) -> FleetLedger | Refused:
    """The ledger with all of the change: quarantines admitted, suspicions and futile recoveries counted once for each
    incident, those that no longer count dropped, the breaker opened where the count is reached. The same change twice
    gives the same ledger. Refused: a quarantine was; then nothing of the change is in.
    """
    return ledger


def suspected(ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime) -> tuple[str, ...]:
    """Ids of the incidents that the node is suspected for and that still count, oldest first."""
    return ()


def reviewed(ledger: FleetLedger, limits: FleetLimits, nodes: Mapping[str, NodeFacts], now: datetime) -> FleetLedger:
    """What the keeper of the fleet finds due: entries marked `applied` once their node shows our taint; `releasing`
    by time, by health (`release_when` no longer holds on a node that is Ready), by a person's annotation; dropped where
    somebody else took our taint away, or the node is gone, or the release has been carried out.
    """
    return ledger


def next_review_at(ledger: FleetLedger, limits: FleetLimits, now: datetime) -> datetime | None:
    """When time alone will call for the next review. None: never."""
    return None
