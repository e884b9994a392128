"""What the schema of the RecoveryConfig has in addition to `core.model.config.ConfigSpec`: bounds."""

from recovery.core.model.config import CircuitBreakerSpec
from recovery.crds import docstrings
from recovery.crds.schema import Overlay
from recovery.crds.schema_keywords import DNS_LABEL, bounded_duration, integer, limits, longer_than_nothing, sized

CONFIG = Overlay(
    says={
        "spec.pauseReason": {"maxLength": 1024},
        "spec.quarantine.maxNodes": integer(0, 100000),
        "spec.quarantine.maxPercent": integer(0, 100),
        "spec.quarantine.releaseAfter": bounded_duration(longer_than_nothing("every node would be released at once")),
        "spec.quarantine.trustedNamespaces": sized(100, unique=True),
        "spec.quarantine.trustedNamespaces[]": limits(63, pattern=DNS_LABEL),
        "spec.suspicion.suspicions": integer(1, 1000),
        "spec.suspicion.within": bounded_duration(longer_than_nothing("no suspicion would ever count")),
        "spec.circuitBreaker": {
            "description": f"{docstrings.of_type(CircuitBreakerSpec)} Absent: there is no circuit breaker."
        },
        "spec.circuitBreaker.recoveries": integer(1, 10000),
        "spec.incidents.ttl": bounded_duration(longer_than_nothing("every record would be deleted at once")),
        "spec.incidents.maxPerNamespace": integer(1, 100000),
        "spec.drills.perJobAndDay": integer(0, 1000),
        "spec.drills.ttl": bounded_duration(longer_than_nothing("every drill would be deleted at its end")),
        "spec.drills.maxPerNamespace": integer(1, 10000),
        "spec.circuitBreaker.within": bounded_duration(longer_than_nothing("no recovery would ever count")),
    },
)
