"""Each canonical incident, with the controller stopped before and after every single one of its writes."""

from collections.abc import Callable

import pytest

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.ledger import Outcome as Ending
from recovery.sim.trials.coverage import coverage_of
from recovery.sim.trials.exhaustive import CANONICAL, every_stop
from recovery.sim.trials.trial import TrialOutcome
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.elastic.checkers import violations

REACHED = {
    "pod": (f"outcome:{Ending.RECOVERED}", "action:DeleteJob"),
    "eight pods that go before their Job": (f"outcome:{Ending.RECOVERED}", "action:ClaimJob", "action:DeleteJob"),
    "two Jobs": (f"outcome:{Ending.RECOVERED}", "action:DeleteJob"),
    "JobSet's own restart": (f"outcome:{Ending.RECOVERED}", "attempt:Adopted"),
    "budget exhausted": ("phase:Held", "exhausted:Suspend", "action:SuspendWorkload", "action:ResumeWorkload"),
    "second attempt": (f"outcome:{Ending.RECOVERED}", "action:SuspendWorkload", "action:ResumeWorkload"),
    "second attempt of a job with a deadline": (f"outcome:{Ending.RECOVERED}", "job:withheld", "phase:Backoff"),
    "retry": (f"outcome:{Ending.RECOVERED}", "phase:Held", "action:ResumeWorkload"),
    "restart": (f"outcome:{Ending.RECOVERED}", f"class:{DisruptionClass.MANUAL}", "action:DeleteJob"),
    "failed JobSet": (f"outcome:{Ending.RECOVERED}", "terminal:RecreateJobSet", "action:DeleteJobSet"),
    "leader hand-over": (f"outcome:{Ending.RECOVERED}", "action:DeleteJob"),
    # Its ledger is deleted with it; only the RecoveryIncident says how the incident ended.
    "TrainJob deleted": ("phase:TearingDown", "action:RecordIncident"),
    "node": (f"outcome:{Ending.RECOVERED}", f"class:{DisruptionClass.NODE_LOST}", "action:ForceDeletePods"),
    "drain": (f"outcome:{Ending.RECOVERED}", f"class:{DisruptionClass.POD_DISRUPTED}"),
    "quarantine": (f"outcome:{Ending.RECOVERED}", f"attempt:{AttemptAction.REPLACE_NODE}", "action:ChangeFleet"),
    "storm": (
        f"outcome:{Ending.RECOVERED}",
        f"class:{DisruptionClass.NODE_LOST}",
        "action:ForceDeletePods",
        "fleet:storm",
    ),
    "FailJob": (f"outcome:{Ending.FAILED}", "action:FailJobSet"),
    "FailJob with a TTL": (f"outcome:{Ending.FAILED}", "action:FailJobSet", "job:stays-failed"),
    "smaller group that grows": (
        f"outcome:{Ending.RECOVERED}",
        f"class:{DisruptionClass.GROWTH}",
        f"attempt:{AttemptAction.SHRINK}",
        f"attempt:{AttemptAction.GROW}",
    ),
}
"""What has to happen in the incident when no one stops the controller. Otherwise it would not be that incident."""

SHORT = frozenset({"pod", "failed JobSet"})
"""The incidents that `make test` stops too: the commonest one, and the one with the only deletion of a JobSet."""


def _violations(incident: str, outcome: TrialOutcome) -> list[Violation]:
    """Violations of the trial. Those of an elastic group's own invariants are included."""
    return list(violations(outcome)) if CANONICAL[incident].birth_settings else list(outcome.violations)


@pytest.mark.parametrize(
    "incident", [each if each in SHORT else pytest.param(each, marks=pytest.mark.long) for each in CANONICAL]
)
def test_a_stop_at_any_write_neither_repeats_nor_loses_a_recovery(
    incident: str, record_property: Callable[[str, object], None]
) -> None:
    broken = []
    stops = 0
    for stop in every_stop(incident):
        if stop.key is None:
            met = coverage_of(stop.outcome.evidence)
            assert set(REACHED[incident]) <= set(met), f"the incident is not what it is called: {met}"
        else:
            stops += 1
            killed = [life for life in stop.outcome.evidence.processes if life.how == "killed"]
            assert killed, f"{stop}: no one was stopped"
        broken += [f"{stop}: {each.invariant}: {each.sentence}" for each in _violations(incident, stop.outcome)[:1]]
    assert stops >= 6, "an incident without writes shows nothing"
    record_property("stops", stops)
    print(f"{incident}: {stops} stops")
    assert not broken, "\n".join(broken)
