"""Reports on finished trials: each one in short, all together, and the counterexample of a broken one."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from recovery.core.model.group_totals import Totals
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, Marking, PodFailures, TrainingKind
from recovery.sim.trials.coverage import total
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.ledger_history import ledger_writes
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.shrink import Shrunk
from recovery.sim.trials.timeline import offset, timeline
from recovery.sim.trials.trial import TrialOutcome, run_trial


class Report(msgspec.Struct, frozen=True):
    """The result of one trial, small enough to send between processes."""

    seed: int
    trace_hash: str
    requests: int
    incidents: int
    restarts: int
    simulated_seconds: float
    cpu_seconds: float
    coverage: Mapping[str, int]
    lost_seconds: Mapping[str, float]
    """Time in which trainings were stopped, and other time that incidents book, by account (`lost_time.Account`)."""
    violations: tuple[str, ...]
    """Invariant, moment and sentence of each violation."""
    invariant: str
    """The first invariant that broke. Empty: all held."""
    invariants: tuple[str, ...] = ()
    """All that broke, in order."""


def try_seed(seed: int) -> Report:
    return report(run_trial(draw_plan(seed)))


def report(outcome: TrialOutcome) -> Report:
    totals: dict[str, Totals] = {}
    for write in ledger_writes(outcome.evidence):
        totals[write.workload_uid] = write.after.totals
    began_at = outcome.evidence.began_at
    return Report(
        seed=outcome.plan.seed,
        trace_hash=outcome.trace_hash,
        requests=outcome.requests,
        incidents=sum(of_one.incidents for of_one in totals.values()),
        restarts=sum(of_one.restarts for of_one in totals.values()),
        simulated_seconds=outcome.simulated_seconds,
        cpu_seconds=outcome.cpu_seconds,
        coverage=outcome.coverage,
        lost_seconds=outcome.evidence.lost_seconds,
        violations=tuple(
            f"{violation.invariant} at {offset(violation.at - began_at)}: {violation.sentence}"
            for violation in outcome.violations
        ),
        invariant=outcome.violations[0].invariant if outcome.violations else "",
        invariants=tuple(dict.fromkeys(violation.invariant for violation in outcome.violations)),
    )


class Summary(msgspec.Struct, frozen=True):
    """The results of all trials together."""

    trials: int
    simulated_hours: float
    requests: int
    incidents: int
    restarts: int
    broken: int
    """Trials in which an invariant broke."""
    cpu_seconds: float
    coverage: Mapping[str, int]
    lost_seconds: Mapping[str, float]
    """Sums over the reports by account, largest first."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and value of each figure."""
        yield "trials", str(self.trials)
        yield "simulated hours", f"{self.simulated_hours:.1f}"
        yield "requests", str(self.requests)
        yield "incidents", str(self.incidents)
        yield "restarts", str(self.restarts)
        yield "trials with a violation", str(self.broken)
        yield "CPU-seconds", f"{self.cpu_seconds:.1f}"
        if self.cpu_seconds:
            yield "hours per CPU-second", f"{self.simulated_hours / self.cpu_seconds:.1f}"
        yield from ((f"seconds {account}", f"{seconds:.0f}") for account, seconds in self.lost_seconds.items())


def summarize(reports: Sequence[Report]) -> Summary:
    return Summary(
        trials=len(reports),
        simulated_hours=sum(each.simulated_seconds for each in reports) / 3600,
        requests=sum(each.requests for each in reports),
        incidents=sum(each.incidents for each in reports),
        restarts=sum(each.restarts for each in reports),
        broken=sum(bool(each.violations) for each in reports),
        cpu_seconds=sum(each.cpu_seconds for each in reports),
        coverage=total(each.coverage for each in reports),
        lost_seconds=_lost_seconds(reports),
    )


def _lost_seconds(reports: Sequence[Report]) -> Mapping[str, float]:
    accounts = {account for each in reports for account in each.lost_seconds}
    sums = {account: sum(each.lost_seconds.get(account, 0.0) for each in reports) for account in accounts}
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def verdict(reports: Sequence[Report], checked: int) -> str:
    """The last line: whether all invariants held, or which ones broke. `checked`: how many there are."""
    broken = dict.fromkeys(name for each in reports for name in each.invariants)
    if broken:
        return f"not all {checked} invariants held; broken: {', '.join(broken)}"
    return f"all {checked} invariants held"


def counterexample(outcome: TrialOutcome, replay: str, shrunk: Shrunk[TrialOutcome] | None = None) -> Iterator[str]:
    """Lines about a trial with violations. `replay`: the command that runs it again. `shrunk` None: not tried."""
    smallest = shrunk.outcome if shrunk is not None else outcome
    first, *others = report(outcome).violations
    yield f"seed {outcome.plan.seed} breaks {first}"
    yield from (f"  and {other}" for other in others)
    yield ""
    yield from _plan_lines(smallest.plan)
    yield ""
    yield f"Faults{_shrunk_words(outcome, shrunk)}:"
    yield from (f"  {fault_words(fault)}" for fault in smallest.plan.faults)
    yield ""
    yield "Timeline:"
    invariant = outcome.violations[0].invariant
    broken = next(each for each in smallest.violations if each.invariant == invariant)
    yield from (f"  {line}" for line in timeline(smallest.evidence, broken))
    yield ""
    yield f"Again: {replay}"


def _shrunk_words(outcome: TrialOutcome, shrunk: Shrunk[TrialOutcome] | None) -> str:
    if shrunk is None:
        return ""
    if not shrunk.replays:
        return ", not shrunk: given as a list they do not break it again, which is a bug of the simulation"
    left, was = len(shrunk.outcome.plan.faults), len(outcome.plan.faults)
    end = "none can be left out" if shrunk.complete else "not to the end"
    return f", {left} of {was}, {end} ({shrunk.runs} runs)"


def _plan_lines(plan: TrialPlan) -> Iterator[str]:
    several = f" of {plan.installations} installations" if plan.installations > 1 else ""
    yield (
        f"{plan.active_seconds:g} s with faults, {plan.healing_seconds:g} s of healing; "
        f"controllers: {plan.replicas}{several}, "
        f"lease {plan.lease_seconds} s; nodes of {plan.node_gpus} GPUs, spare: {plan.spare_nodes}"
    )
    yield f"RecoveryConfig {msgspec.json.encode(plan.config).decode()}"
    for job in plan.jobs:
        policy = "no policy" if job.policy is None else f"policy {msgspec.json.encode(job.policy).decode()}"
        ends = f", {job.total_steps} steps" if job.total_steps is not None else ""
        yield (
            f"job {job}: {job.runtime}, {job.pods} pods of {job.gpus_per_pod} GPUs, grace {job.grace_seconds} s{ends}"
            f"{_features_words(job)}, {policy}"
        )


def _features_words(job: JobPlan) -> str:
    """Features that few jobs have, each after a comma."""
    words = [f"with {', '.join(job.sidecars)}"] if job.sidecars else []
    if job.training is not TrainingKind.REQUIRED:
        words.append(f"{job.training} ranks")
    if job.pod_failures is not PodFailures.NONE:
        words.append(f"podFailurePolicy {job.pod_failures}")
    if job.saves is not None:
        words.append(f"saves for {job.saves.seconds:g} s on SIGTERM and exits with {job.saves.code}")
    if job.marking is not Marking.ACCELERATORS:
        words.append(f"marked by {job.marking}")
    if job.admission is not JobAdmission.AT_ONCE:
        words.append(f"admitted {job.admission} after {job.admitted_after_seconds:g} s")
    if job.deadline_seconds is not None:
        words.append(f"deadline {job.deadline_seconds} s")
    return "".join(f", {each}" for each in words)


def fault_words(fault: TrialFault) -> str:
    """Key and moment of a fault, and its other fields that are set."""
    parts = [str(fault.key)]
    if fault.at_seconds is not None:
        parts.append(f"at {fault.at_seconds:g} s")
    if fault.job:
        parts.append(f"of {fault.job}")
    if fault.indexes:
        parts.append(f"indexes {', '.join(map(str, fault.indexes))}")
    if fault.container:
        parts.append(f"container {fault.container}")
    if fault.pods_more:
        parts.append(f"by {fault.pods_more:+d} pods")
    if fault.node:
        parts.append(f"node {fault.node}")
    if fault.seconds:
        parts.append(f"for {fault.seconds:g} s")
    if fault.code:
        parts.append(f"code {fault.code}")
    if fault.sign is not Sign.NONE:
        parts.append(f"sign {fault.sign}")
    return " ".join(parts)
