"""A trial with one fault, and its observable effects."""

from recovery.ports import PODS, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial import TrialOutcome
from tests.simulation.trials.small import (
    LLM,
    at,
    happening,
    in_world,
    outcome_of,
    states,
)

FAULT = 100.0


def found(outcome: TrialOutcome, resource: Resource, name: str = "") -> list[Body]:
    """The objects at the end."""
    objects = outcome.evidence.server.objects(resource)
    return [body for body in objects if name in ("", body["metadata"]["name"])]


def runs_at_the_end(outcome: TrialOutcome) -> bool:
    pods = [pod for pod in found(outcome, PODS) if "deletionTimestamp" not in pod["metadata"]]
    return [pod["status"].get("phase") for pod in pods] == ["Running"] * LLM.pods


def made(outcome: TrialOutcome, resource: Resource) -> list[float]:
    """The times at which its objects were created."""
    return [moment for moment, what, _ in states(outcome, resource) if what == "ADDED"]


def well_over(outcome: TrialOutcome, kind: FaultKind, seconds: float) -> None:
    """The fault lasted that long, as recorded, and everything is in order at the end."""
    it = happening(outcome, kind)
    assert (it.at, it.until) == (at(FAULT), at(FAULT + seconds))
    assert at(FAULT + seconds) <= outcome.evidence.healing_from
    assert runs_at_the_end(outcome)
    assert outcome.violations == ()


def both(kind: FaultKind, seconds: float) -> TrialOutcome:
    """The fault lasts, and a member is lost 10 s after it began."""
    lost = in_world(FaultKind.POD_KILL, FAULT + 10, number=1)
    return outcome_of(in_world(kind, FAULT, seconds), lost)


def recreated(outcome: TrialOutcome, resource: Resource) -> float:
    """When the first object of the new incarnation was created."""
    return min(moment for moment in made(outcome, resource) if moment >= FAULT)
