"""All pods of a group are deleted before its ranks meet. Its Job would create none for ten minutes."""

from recovery.core.model.reason import Reason
from recovery.sim.trials.ledger_history import ledger_writes
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import TrialOutcome, run_trial

_SCENARIO = """
name: deleted-before-meeting
duration: 30m
healing: 20m
cluster: {{spares: 0}}
jobs:
- name: llm
  pods: 16
  runtime: prepared
  admission: by-user
  admittedAfter: 20s
  policy: {{mode: {mode}}}
chaos:
- {{kind: ClusterChaos, at: 10s, action: no-capacity, duration: 60s}}
- {{kind: PodChaos, at: 40s, action: pod-kill, selector: {{job: llm}}, mode: all, gracePeriod: 0}}
"""


def trial(mode: str) -> TrialOutcome:
    outcome = run_trial(read_scenario(_SCENARIO.format(mode=mode)).plan)
    assert not outcome.violations, str(outcome.violations[0])
    return outcome


def met_after_seconds(outcome: TrialOutcome) -> float:
    first = outcome.evidence.rounds("default/llm")[0]
    return (first.formed_at - outcome.evidence.began_at).total_seconds()


def test_in_enforce_its_job_is_created_again_after_a_minute() -> None:
    outcome = trial("Enforce")
    assert 100 <= met_after_seconds(outcome) < 110
    ledgers = [write.after for write in ledger_writes(outcome.evidence)]
    incidents = (ledger.incident for ledger in ledgers if ledger.incident is not None)
    assert {attempt.reason for incident in incidents for attempt in incident.attempts} == {Reason.JOB_BACKS_OFF}
    assert ledgers[-1].totals.restarts == 1


def test_in_observe_it_waits_for_the_back_off_of_the_job() -> None:
    outcome = trial("Observe")
    assert met_after_seconds(outcome) >= 640
    assert not list(ledger_writes(outcome.evidence))
