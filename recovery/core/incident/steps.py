"""Which phases an incident may be in during a step, and what else a step rules out.

`invariants` refuses a ledger that departs from this table. `make manifests` writes the same rules into the CRDs.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from recovery.core.incident import phases
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.step import AFTER_A_RESTART, BEFORE_ANY_RESTART, BELONGS_TO, REQUIRED, StepType
from recovery.core.policy.spec import Mode

PHASES: Mapping[StepType, frozenset[Phase]] = MappingProxyType(
    {
        StepType.WAITING: frozenset({Phase.DECIDED}),
        StepType.ASIDE: frozenset({Phase.DECIDED}),
        StepType.OBSERVING: frozenset({Phase.DECIDED}),
        StepType.WITHHELD: frozenset({Phase.BACKOFF}),
        StepType.HELD: frozenset({Phase.HELD}),
        StepType.RESTARTING: phases.GOING_DOWN | {Phase.BACKOFF},
        StepType.RETURNING: phases.COMING_BACK,
    }
)
"""In which phases an open incident may be in a step."""
ACTS = frozenset({StepType.WITHHELD, StepType.HELD})
"""Steps of incidents that may act. An incident that only observes may also follow a restart that the platform makes."""


def contradictions(ledger: Ledger) -> Iterator[str]:
    """What contradicts the step of the open incident, as sentences. Nothing if no incident is open."""
    incident = ledger.incident
    if incident is None or incident.closing is not None:
        return
    step, name = incident.step.type, f"Step: incident {incident.id}"
    if ledger.phase not in PHASES[step]:
        yield f"{name} is {step} in phase {ledger.phase}"
    if step in AFTER_A_RESTART and not incident.restarted:
        yield f"{name} is {step} without a restart"
    if step in BEFORE_ANY_RESTART and incident.restarted:
        yield f"{name} is {step} after a restart"
    given = {field for field in BELONGS_TO if getattr(incident.step, field)}
    if not REQUIRED.get(step, frozenset()) <= given or not all(step in BELONGS_TO[field] for field in given):
        yield f"{name} is {step} with {sorted(given)}"
    if step in ACTS and incident.mode != Mode.ENFORCE:
        yield f"{name} only observes and is {step}"
    if step is StepType.OBSERVING and incident.mode != Mode.OBSERVE:
        yield f"{name} acts and is {step}"
    if incident.would and incident.mode != Mode.OBSERVE:
        yield f"{name} acts, and records what Enforce would do"
