"""What the schema of the RecoveryConfig says beyond `core.config.ConfigSpec`: what the platform may allow later."""

from recovery.crds.keywords import integer, later_duration, later_switch
from recovery.crds.schema import Later, Overlay, Schema

_QUARANTINE: Schema = {
    "type": "object",
    "description": "How many nodes may be quarantined at once, and when they are released. Not built yet.",
    "properties": {
        "maxNodes": integer(0, 100000) | {"description": "0 allows no quarantine at all."},
        "maxPercent": integer(0, 100) | {"description": "Of all nodes; the smaller of both caps holds."},
        "releaseAfter": later_duration("How long a quarantine lasts where nothing releases it before."),
    },
}

_SUSPICION: Schema = {
    "type": "object",
    "description": "When a node is quarantined without proof. Not built yet.",
    "properties": {
        "suspicions": integer(1, 1000) | {"default": 2, "description": "Incidents whose suspect ran on the node."},
        "within": later_duration("How long a suspicion counts.", default="24h"),
    },
}

_CIRCUIT_BREAKER: Schema = {
    "type": "object",
    "description": "Back to Observe when so many recoveries in a row brought no progress. Not built yet.",
    "properties": {
        "recoveries": integer(1, 10000) | {"description": "Of all groups together."},
        "within": later_duration("How long a recovery counts."),
    },
}

CONFIG = Overlay(
    says={"spec.pauseReason": {"maxLength": 1024}},
    later={
        "spec.allow.cordon": Later(later_switch("Cordon and taint nodes."), refused=False),
        "spec.allow.assumeDead": Later(
            later_switch("Take a pod on a lost node for dead without proof (`teardown.fencing`)."), refused=False
        ),
        "spec.quarantine": Later(_QUARANTINE),
        "spec.suspicion": Later(_SUSPICION),
        "spec.circuitBreaker": Later(_CIRCUIT_BREAKER),
    },
)
