"""Experiments in trials: the engine of `recovery chaos run` against the production controllers, and all invariants."""

from collections.abc import Mapping

import pytest

from recovery.core.model.drill import DrillVerdict
from recovery.core.model.reason import Reason
from recovery.ports import RECOVERY_INCIDENTS
from tests.simulation.chaos.simulated import EXAMPLES, JOB, POD_KILL, SMALL, simulated

VERDICTS: Mapping[str, tuple[DrillVerdict, str]] = {
    "cordon-and-evict-rank-0": (DrillVerdict.PASSED, "recovered"),
    "health-agent-mark": (DrillVerdict.PASSED, "no incident"),
    "kill-while-pods-go-down": (DrillVerdict.PASSED, "recovered"),
    "kill-while-they-meet": (DrillVerdict.PASSED, "recovered"),
    "one-percent": (DrillVerdict.PASSED, "recovered"),
    "one-pod": (DrillVerdict.PASSED, "recovered"),
    "pod-that-will-not-terminate": (DrillVerdict.PASSED, "recovered"),
    "two-faults-5s-apart": (DrillVerdict.PASSED, "recovered"),
}
CORDON = "{kind: PhysicalMachineChaos, action: cordon, mode: one}"


def test_each_example_has_a_verdict() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_an_example_ends_in_the_simulator_as_its_comment_says(name: str) -> None:
    done = simulated((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    verdict, words = VERDICTS[name]
    assert (done.outcome.verdict, done.broken) == (verdict, []), done.outcome
    assert words in done.outcome.verdict_message
    assert (done.nodes, done.charges()) == (done.nodes_before, 0)


@pytest.mark.parametrize(
    ("entries", "more", "verdict", "reason"),
    [
        (POD_KILL, "", DrillVerdict.PASSED, Reason.DRILL_DONE),
        (POD_KILL.replace("pod-kill", "process-kill"), "", DrillVerdict.PASSED, Reason.DRILL_DONE),
        (POD_KILL, "repeat: 3\n", DrillVerdict.PASSED, Reason.DRILL_DONE),
        (POD_KILL, "hypothesis: {incidents: 0}\n", DrillVerdict.FAILED, Reason.DRILL_DONE),
        (POD_KILL, "slo: {recovery: 1s}\n", DrillVerdict.FAILED, Reason.DRILL_TOO_SLOW),
        (POD_KILL, "slo: {idleGpuSeconds: 1}\n", DrillVerdict.FAILED, Reason.DRILL_TOO_COSTLY),
        (f"chaos: [{CORDON}]\n", "slo: {recovery: 10s}\n", DrillVerdict.FAILED, Reason.DRILL_DONE),
    ],
    ids=["pod-kill", "process-kill", "three times", "no incident expected", "too slow", "too costly", "no incident"],
)
def test_the_verdict_is_that_of_the_expectations(
    entries: str, more: str, verdict: DrillVerdict, reason: Reason
) -> None:
    done = simulated(SMALL + entries + more)
    assert (done.outcome.verdict, done.outcome.reason, done.broken) == (verdict, reason, []), done.outcome


@pytest.mark.parametrize("slo", ["recovery: 1s", "idleGpuSeconds: 1"])
def test_an_objective_that_is_too_strict_fails_the_drill_and_frees_its_node(slo: str) -> None:
    evicts = "{kind: PodChaos, action: pod-evict, mode: one, selector: {indexes: [0]}, at: 2s}"
    cordons = CORDON.replace("mode: one", "mode: one, selector: {indexes: [0]}")
    done = simulated(f"{SMALL}chaos: [{cordons}, {evicts}]\nslo: {{{slo}}}\n")
    assert (done.outcome.verdict, done.broken) == (DrillVerdict.FAILED, [])
    assert done.nodes == done.nodes_before


def test_a_drill_that_is_refused_does_nothing_and_says_why() -> None:
    done = simulated(SMALL + POD_KILL + "limits: {gpus: 1}\n")
    assert (done.drill.outcome, done.broken) == (None, [])
    assert "raise limits.gpus (1)" in done.drill.problems[0]
    assert done.server.objects(RECOVERY_INCIDENTS) == []


def test_a_drill_that_is_not_over_in_time_is_interrupted_and_leaves_nothing() -> None:
    text = f"{SMALL}duration: 3m\nchaos: [{CORDON}]\nhypothesis: {{incidents: 0}}\nslo: {{recovery: 5m}}\n"
    done = simulated(text)
    assert (done.outcome.verdict, done.outcome.interrupted, done.broken) == (DrillVerdict.ABORTED, True, [])
    assert done.nodes == done.nodes_before


def test_the_experiment_begins_only_when_the_job_trains() -> None:
    """The job waits for its user, and its pods for their image."""
    jobs = "{name: llm, namespace: research, pods: 2, policy: {mode: Enforce}, admission: by-user, admittedAfter: 2m}"
    done = simulated(f"{JOB}healing: 5m\njobs: [{jobs}]\n{POD_KILL}")
    assert (done.outcome.verdict, done.broken) == (DrillVerdict.PASSED, [])
    [record] = done.server.objects(RECOVERY_INCIDENTS)
    assert record["spec"]["drill"]["name"] == done.outcome.drill


def test_the_same_file_gives_the_same_trial() -> None:
    once, twice = (simulated(SMALL + POD_KILL) for _ in range(2))
    assert once.trial.trace_hash == twice.trial.trace_hash


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_whatever_befalls_the_controllers_a_drill_costs_nothing_and_leaves_nothing(seed: int) -> None:
    """Processes die and freeze, requests fail, and watches lag. The drill may end in any way."""
    evicts = "{kind: PodChaos, action: pod-evict, mode: one, selector: {indexes: [0]}, at: 2s}"
    cordons = CORDON.replace("mode: one", "mode: one, selector: {indexes: [0]}")
    rates = "rates: {process: 0.006, request: 0.006, line: 0.003}\n"
    done = simulated(
        f"{SMALL}chaos: [{cordons}, {evicts}]\nduration: 40m\nrepeat: 2\n{rates}".replace("seed: 7", f"seed: {seed}")
    )
    assert (done.broken, done.nodes) == ([], done.nodes_before), done.drill.outcome
