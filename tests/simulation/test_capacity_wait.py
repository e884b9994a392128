"""A node is away for three quarters of an hour, and no other one is free: the job waits, and trains when it is back."""

from typing import Any

import msgspec
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


EACH_HOLDS_SOME = """
name: each-holds-what-the-other-needs
duration: 45m
healing: 10m
cluster: {nodes: 8, gpusPerNode: 16}
jobs:
- {name: one, pods: 4, gpusPerPod: 12, runtime: shipped, policy: {mode: Enforce, whileWaiting: %s, capacityWait: %s}}
- {name: two, pods: 4, gpusPerPod: 12, runtime: shipped, policy: {mode: Enforce, whileWaiting: %s, capacityWait: %s}}
chaos:
- {kind: PhysicalMachineChaos, at: 10m, action: remove, duration: 30m, selector: {job: one, indexes: [2, 3]}, mode: all}
- {kind: PhysicalMachineChaos, at: 10m, action: remove, duration: 30m, selector: {job: two, indexes: [2, 3]}, mode: all}
"""
"""Four nodes are left for two jobs that need four each, and both restart at once."""
RETURN_SECONDS, GPUS = 30 * 60.0, 4 * 12
"""When the other four nodes are back, since the loss; and the GPUs of each job."""


def each_holds_some(way: str, one: str, two: str) -> TrialOutcome:
    """`one`, `two`: how long each job holds its nodes.

    The Job controller is at its request limit, so it creates the pods of both jobs by turns: each gets some nodes.
    """
    plan = read_scenario(EACH_HOLDS_SOME % (way, one, way, two), free_mib=8000).plan
    return run_trial(msgspec.structs.replace(plan, manager_burst=1))


def met(outcome: TrialOutcome, job: str) -> list[float]:
    """After how many seconds since the loss all ranks of the job met, each time."""
    rounds = outcome.evidence.rounds(f"default/{job}")
    after = [(each.formed_at - outcome.evidence.began_at).total_seconds() - LOST_SECONDS for each in rounds]
    return [seconds for seconds in after if seconds > 0]


def ledgers(outcome: TrialOutcome, job: str) -> list[dict[str, Any]]:
    """The states of the job's ledger, oldest first."""
    bodies = [each.body for each in of_kind(outcome, RECOVERY_GROUPS)]
    return [each["status"] for each in bodies if each["spec"]["workloadRef"]["name"] == job and "status" in each]


def reasons(outcome: TrialOutcome, job: str) -> list[str]:
    """What its incident said, in turn."""
    found = [each["incident"]["reason"] for each in ledgers(outcome, job) if "incident" in each]
    return [reason for reason, before in zip(found, [None, *found], strict=False) if reason != before]


def idle(outcome: TrialOutcome, job: str) -> float:
    """The seconds for which its GPUs were idle and kept from others."""
    by_phase: dict[str, float] = ledgers(outcome, job)[-1]["totals"]["idleGpuSeconds"]
    return sum(by_phase.values()) / GPUS


def free(outcome: TrialOutcome, job: str) -> float:
    """The seconds for which others could have its GPUs."""
    seconds: float = ledgers(outcome, job)[-1]["totals"].get("releasedGpuSeconds", 0.0)
    return seconds / GPUS


def test_two_jobs_that_hold_what_the_other_needs_wait_for_ever_and_say_so() -> None:
    outcome = each_holds_some("Hold", "10m", "10m")
    assert outcome.violations == ()
    for job in ("one", "two"):
        [at] = met(outcome, job)
        assert RETURN_SECONDS < at < RETURN_SECONDS + 360
        assert idle(outcome, job) > RETURN_SECONDS
        assert reasons(outcome, job)[2:5] == ["WaitingForTeardown", "WaitingForCapacity", "WaitsForEachOther"]
        [says] = {
            each["incident"]["message"].partition("; group ")[2]
            for each in ledgers(outcome, job)
            if each.get("incident", {}).get("reason") == "WaitsForEachOther"
        }
        assert says.startswith(f"default/{'two' if job == 'one' else 'one'} also waits, and holds")


@pytest.mark.parametrize(("one", "two"), [("10m", "20m"), ("20m", "10m")])
def test_the_job_that_lets_go_first_gives_the_other_its_nodes(one: str, two: str) -> None:
    outcome = each_holds_some("HoldThenRelease", one, two)
    first, last = ("one", "two") if one < two else ("two", "one")
    assert outcome.violations == ()
    [trains], [resumes] = met(outcome, last), met(outcome, first)
    assert 600 < trains < 660
    assert RETURN_SECONDS < resumes < RETURN_SECONDS + 60
    assert (free(outcome, last), "Released" in reasons(outcome, last)) == (0, False)
    assert idle(outcome, first) < 660 < RETURN_SECONDS - 660 < free(outcome, first)


@pytest.mark.parametrize(("way", "held_for"), [("HoldThenRelease", 600), ("Release", 30)])
def test_of_two_jobs_that_let_go_at_once_one_is_resumed_at_a_time(way: str, held_for: float) -> None:
    outcome = each_holds_some(way, "10m", "10m")
    assert outcome.violations == ()
    first, last = sorted(("one", "two"), key=lambda job: met(outcome, job))
    [trains], [resumes] = met(outcome, first), met(outcome, last)
    assert held_for < trains < held_for + 120
    assert RETURN_SECONDS < resumes < RETURN_SECONDS + 60
    for job in (first, last):
        assert reasons(outcome, job).count("Released") == 1
        assert idle(outcome, job) < held_for + 60
    assert free(outcome, first) < 60
    assert free(outcome, last) > RETURN_SECONDS - held_for - 60
