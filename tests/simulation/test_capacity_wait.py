"""A node is away for three quarters of an hour, and no other one is free: the job waits, and trains when it is back."""

from typing import Any

import pytest

from recovery.ports import JOB_SETS, RECOVERY_GROUPS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import TrialOutcome, run_trial

AWAY = """
name: node-away
duration: 70m
healing: 15m
cluster: {spares: 0}
jobs:
- {name: one, pods: 4, runtime: %s, policy: {mode: Enforce, whileWaiting: %s, capacityWait: 15m}}
chaos:
- {kind: PhysicalMachineChaos, at: 10m, action: remove, duration: 45m, selector: {job: one, indexes: [3]}, mode: one}
"""
LOST_SECONDS = 10 * 60.0
BACK_SECONDS = 55 * 60.0


def trial(runtime: str, way: str) -> TrialOutcome:
    return run_trial(read_scenario(AWAY % (runtime, way), free_mib=8000).plan)


def of_kind(outcome: TrialOutcome, resource: object) -> list[ObjectChange]:
    return [change for change in outcome.evidence.changes if change.resource == resource]


def ledger(outcome: TrialOutcome) -> dict[str, Any]:
    """The last one."""
    written = [each.body["status"] for each in of_kind(outcome, RECOVERY_GROUPS) if "status" in each.body]
    found: dict[str, Any] = written[-1]
    return found


def met_again(outcome: TrialOutcome) -> float:
    """When all ranks met for the first time after the loss, in seconds."""
    began = outcome.evidence.began_at
    met = [(each.formed_at - began).total_seconds() for each in outcome.evidence.rounds("default/one")]
    return min(seconds for seconds in met if seconds > LOST_SECONDS)


@pytest.mark.parametrize("way", ["Hold", "Release", "HoldThenRelease"])
@pytest.mark.parametrize("runtime", ["shipped", "prepared"])
def test_the_job_waits_and_trains_when_the_node_is_back(runtime: str, way: str) -> None:
    """The ranks give up after 10 minutes. A kubelet restarts a container after 5 minutes at most; with restartPolicy
    Never, the Job creates its pod again after 10 minutes at most."""
    outcome = trial(runtime, way)
    assert outcome.violations == ()
    assert not any(each.body.get("status", {}).get("terminalState") for each in of_kind(outcome, JOB_SETS))
    found = ledger(outcome)
    assert [each["outcome"] for each in found["history"]] == ["Recovered"]
    assert (found["totals"]["restarts"], found["totals"]["charged"]) == (1, 1)
    late = {("shipped", "Hold"): 360, ("prepared", "Hold"): 660}.get((runtime, way), 60)
    assert 0 < met_again(outcome) - BACK_SECONDS < late
    gpus, away = 4 * 8, BACK_SECONDS - LOST_SECONDS
    least, most = {"Hold": (0, 0), "Release": (away - 120, away), "HoldThenRelease": (away - 1100, away - 900)}[way]
    assert least * gpus <= found["totals"].get("releasedGpuSeconds", 0) <= most * gpus
