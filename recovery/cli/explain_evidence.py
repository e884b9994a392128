"""The lines of `explain` about what was seen of a disruption: all of it."""

from collections.abc import Iterator, Sequence

from recovery.core.incident.evidence_counts import losses
from recovery.core.model.ledger import Incident
from recovery.core.sentences import render


def evidence_lines(incident: Incident, shown: Sequence[str] = ()) -> Iterator[str]:
    """How many signs there are, then each one.

    The ledger has the words of the first signs only. `shown`: those that the objects still show. Empty: none.
    """
    seen = sum(each.count for each in incident.evidence_counts)
    if seen > 1:
        yield from (render(losses(each)) for each in incident.evidence_counts)
    known = incident.evidence
    if seen > len(known):
        # The words of a sign change with its objects, so the two lists may differ in them.
        known = tuple(shown) if len(shown) >= seen else tuple(dict.fromkeys((*known, *shown)))
    yield from (f"- {text}" for text in known)
    if seen > len(known):
        yield f"and {seen - len(known)} more, which no object shows any more"
