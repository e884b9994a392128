"""Turns a scenario file into a trial's plan, or reports everything that is wrong with it."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from recovery.core.model.config import ConfigSpec
from recovery.core.policy.spec import BudgetSpec, PolicySpec
from recovery.core.policy.validation import config_problems, problems
from recovery.scenario.experiment import Experiment, experiment_of
from recovery.scenario.experiment_model import experiment_model, named_in_model
from recovery.scenario.input_problems import Problems
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, TrainingKind
from recovery.scenario.readable_file import ReadableFile, read_parts
from recovery.scenario.scenario_text import load
from recovery.scenario.schema import AnyChaos, PodAction, PodChaos, ScenarioFile, ScenarioJob
from recovery.scenario.strict_input import read_what_is_right
from recovery.sim.kubelets.processes import SIGTERM_CODE
from recovery.sim.trials.chaos_faults import ChaosReader, ReadJobs
from recovery.sim.trials.plan import FaultRates, JobPlan, Saves, TrialPlan, nodes_needed
from recovery.sim.trials.scenario_size import ScenarioSize, SizedJob, in_gib, too_large, warnings

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
"""An RFC 1123 label of at most 40 characters. The other 23 are for what JobSet adds to name Jobs and pods."""


_HEALING_OF_EXPERIMENT = "15m"
"""If the file does not say. It is as long as the longest timeout of a policy by default, because nothing else has to
heal."""
_REPORTS_EVERY_SECONDS = 10.0


class Scenario(msgspec.Struct, frozen=True):
    name: str
    plan: TrialPlan
    experiment: Experiment | None = None
    """What happens to a job of the plan, with the job's namespace. None: the file has no `target`."""
    warnings: tuple[str, ...] = ()
    """What a person should know before the trial runs."""


def read_scenario(text: str, *, free_mib: float = math.inf) -> Scenario:
    """The scenario of a file. Raises BadScenarioError if anything in the file is wrong.

    `free_mib`: the memory that its trial may take.
    """
    written = load(text)
    wrong = Problems(written.repeated)
    readable = read_parts(written.body, wrong)
    if readable is None:
        raise written.refusal(wrong.found)
    experiment: Experiment | None = None
    if readable.is_experiment:
        experiment = experiment_of(readable, wrong)
        readable = _without_chaos(readable, wrong)
    else:
        _check_trial(readable, wrong)
    file = readable.file
    active_seconds = _seconds(file.duration, "duration", wrong)
    healing_seconds = _seconds(file.healing, "healing", wrong)
    size = _size(readable, (active_seconds + healing_seconds) / 3600)
    _check_size(size, free_mib, wrong)
    if experiment is not None:
        experiment = named_in_model(experiment, file)
    jobs = _jobs(readable, experiment, wrong)
    _check_world(readable, wrong)
    config = _config(file, wrong)
    spare_nodes = _spare_nodes(readable, jobs.plans.values(), wrong)
    reader = ChaosReader(file, jobs, active_seconds, wrong)
    faults = tuple(fault for path, each in readable.chaos.items() for fault in reader.faults_of(each, path))
    for path, body in readable.other_chaos.items():
        reader.check_unread(body, path)
    if wrong.found:
        raise written.refusal(wrong.found)
    plan = TrialPlan(
        seed=file.seed,
        jobs=tuple(jobs.plans.values()),
        faults=faults,
        rates=FaultRates(process=file.rates.process, request=file.rates.request, line=file.rates.line),
        active_seconds=active_seconds,
        healing_seconds=healing_seconds,
        replicas=file.controllers.replicas,
        lease_seconds=file.controllers.lease_seconds,
        installations=file.controllers.installations,
        config=config,
        spare_nodes=spare_nodes,
        node_gpus=file.cluster.gpus_per_node,
        birth_settings=_birth_settings(file),
        drills=experiment is not None,
    )
    return Scenario(file.name, plan, experiment, tuple(warnings(size, free_mib)))


def _without_chaos(experiment: ReadableFile, wrong: Problems) -> ReadableFile:
    """The modelled cluster of an experiment. If its job is not among `jobs`, its path is that of `target`."""
    if wrong.is_wrong("target"):
        return replace(experiment, file=structs.replace(experiment.file, chaos=()), chaos={}, other_chaos={})
    file = experiment_model(experiment.file)
    if "healing" not in experiment.said:
        file = structs.replace(file, healing=_HEALING_OF_EXPERIMENT)
    jobs = experiment.jobs or {"target": file.jobs[0]}
    return replace(experiment, file=file, jobs=jobs, chaos={}, other_chaos={})


def _check_trial(readable: ReadableFile, wrong: Problems) -> None:
    """Checks what is written in a file without `target`."""
    if not readable.file.jobs and "jobs" not in readable.said:
        wrong.add("jobs", "is missing; say which jobs there are, or target for an experiment")
    for field in ("repeat", "hypothesis", "slo", "limits"):
        if field in readable.said:
            wrong.add(field, "means nothing without target; leave it out")


def _seconds(text: str, field: str, wrong: Problems) -> float:
    """0: the duration is wrong."""
    return 0.0 if wrong.is_wrong(field) else wrong.seconds(text, field)


def _size(readable: ReadableFile, hours: float) -> ScenarioSize:
    jobs = tuple(
        SizedJob(path, job.pods, sum(_restarts(chaos, job) for chaos in readable.chaos.values()))
        for path, job in readable.jobs.items()
    )
    cluster = readable.file.cluster
    more_nodes = (cluster.nodes or 0) - sum(job.pods for job in jobs) if cluster.nodes else cluster.spares or 0
    return ScenarioSize(jobs, max(0, more_nodes), hours, readable.file.controllers.replicas)


def _restarts(chaos: AnyChaos, job: ScenarioJob) -> int:
    """How many restarts of the job one entry of chaos can cause, at most."""
    if chaos.selector.job not in {job.name, f"{job.namespace}/{job.name}"}:
        return 0
    if not isinstance(chaos, PodChaos) or chaos.action is not PodAction.POD_FAILURE:
        return 1
    budget = (job.policy or {}).get("budget")
    limit = budget.get("limit") if isinstance(budget, Mapping) else None
    return max(0, limit) if isinstance(limit, int) else BudgetSpec().limit


def _check_size(size: ScenarioSize, free_mib: float, wrong: Problems) -> None:
    for path, share in too_large(size, free_mib).items():
        less = f"say {100 * share:.0f} % of it, or less" if share >= 0.01 else "say much less"
        wrong.add(
            path,
            f"the trial needs about {in_gib(size.mib)} of memory, much of it for this, and {in_gib(free_mib)} are free;"
            f' {less} (docs/simulation.md, "Size")',
        )


def _jobs(readable: ReadableFile, experiment: Experiment | None, wrong: Problems) -> ReadJobs:
    jobs: dict[str, JobPlan] = {}
    unsized: set[str] = set()
    for path, each in readable.jobs.items():
        for field, name in (("name", each.name), ("namespace", each.namespace)):
            if not _NAME.fullmatch(name):
                wrong.add(f"{path}.{field}", f"{name!r} is no name; use up to 40 of a-z, 0-9 and -, no - at an end")
        wrong.at_least(1, each.pods, f"{path}.pods")
        wrong.at_least(1, each.gpus_per_pod, f"{path}.gpusPerPod")
        wrong.at_least(0, each.grace_period_seconds, f"{path}.gracePeriodSeconds")
        if each.total_steps is not None:
            wrong.at_least(1, each.total_steps, f"{path}.totalSteps")
        if not wrong.is_wrong(f"{path}.runtime"):
            _check_start_and_end(each, path, wrong)
        _check_policy(each.policy, f"{path}.policy", wrong)
        job = JobPlan(
            namespace=each.namespace,
            name=each.name,
            runtime=each.runtime,
            pods=each.pods,
            gpus_per_pod=each.gpus_per_pod,
            grace_seconds=each.grace_period_seconds,
            total_steps=each.total_steps,
            training=each.training,
            pod_failures=each.pod_failures,
            saves=_saves(each, path, wrong),
            reports_every_seconds=_reports_every_seconds(each, experiment),
            policy=each.policy,
            sidecars=each.sidecars,
            marking=each.training_container,
            admission=each.admission,
            admitted_after_seconds=_admitted_after_seconds(each, path, wrong),
            deadline_seconds=each.active_deadline_seconds,
            ttl_seconds=each.ttl_seconds_after_finished,
        )
        if str(job) in jobs:
            wrong.add(f"{path}.name", f"there is a job {job} already; give it another name or namespace")
        jobs[str(job)] = job
        if wrong.is_wrong(f"{path}.pods"):
            unsized.add(str(job))
    return ReadJobs(jobs, frozenset(unsized), readable.all_jobs)


def _check_start_and_end(job: ScenarioJob, path: str, wrong: Problems) -> None:
    if job.pod_failures is not PodFailures.NONE and not JobPlan("", "", job.runtime).never_restarts:
        wrong.add(f"{path}.podFailures", f"needs pods that are never restarted, without a policy; not {job.runtime}")
    if job.training is TrainingKind.LAUNCHER and job.runtime is not PlannedRuntime.SEVERAL_JOBS:
        wrong.add(f"{path}.training", "launcher needs the runtime several-jobs, which has a launcher")
    if len(set(job.sidecars)) < len(job.sidecars):
        wrong.add(f"{path}.sidecars", "names one twice; leave one out")
    if job.runtime is not PlannedRuntime.BARE_JOBSET:
        if job.training_container is not Marking.ACCELERATORS:
            wrong.add(f"{path}.trainingContainer", "means nothing to a TrainJob, whose container is node; leave it out")
    elif job.admission not in {JobAdmission.AT_ONCE, JobAdmission.BY_USER}:
        wrong.add(f"{path}.admission", f"{job.admission} is modelled of TrainJobs alone; take another runtime")
    elif job.active_deadline_seconds is not None:
        wrong.add(f"{path}.activeDeadlineSeconds", "is no field of a JobSet; take another runtime")
    if job.active_deadline_seconds is not None:
        wrong.at_least(1, job.active_deadline_seconds, f"{path}.activeDeadlineSeconds")
    if job.ttl_seconds_after_finished is not None:
        wrong.at_least(0, job.ttl_seconds_after_finished, f"{path}.ttlSecondsAfterFinished")


def _reports_every_seconds(job: ScenarioJob, experiment: Experiment | None) -> float | None:
    """The target reports its checkpoints if the experiment needs to know them. Its recoveries take longer then, because
    the controller waits for its progress. None: it does not report."""
    if experiment is None or (experiment.namespace, experiment.job) != (job.namespace, job.name):
        return None
    needed = experiment.limits.checkpoint_age_seconds is not None
    return _REPORTS_EVERY_SECONDS if needed and job.runtime is not PlannedRuntime.BARE_JOBSET else None


def _saves(job: ScenarioJob, path: str, wrong: Problems) -> Saves | None:
    if job.saves_for is None:
        wrong.unfit(path, "a job whose ranks exit at once", saves_with=job.saves_with)
        return None
    seconds = wrong.seconds(job.saves_for, f"{path}.savesFor")
    if seconds >= job.grace_period_seconds:
        wrong.add(f"{path}.savesFor", "is not shorter than gracePeriodSeconds; its pods would be killed before")
    return Saves(seconds, SIGTERM_CODE if job.saves_with is None else job.saves_with)


def _admitted_after_seconds(job: ScenarioJob, path: str, wrong: Problems) -> float:
    """0: the job starts when it is created."""
    if job.admission is JobAdmission.AT_ONCE:
        wrong.unfit(path, "a job that starts at once", admitted_after=job.admitted_after)
        return 0.0
    return wrong.seconds(job.admitted_after or "30s", f"{path}.admittedAfter")


def _check_policy(policy: dict[str, Any] | None, path: str, wrong: Problems) -> None:
    """Checks a policy by the same rules as admission and the controller."""
    if policy is None:
        return
    if "selector" in policy:
        wrong.add(f"{path}.selector", "leave it out: the policy selects this job")
    spec = _read_part(policy, PolicySpec, path, wrong)
    if spec is not None:
        _add(problems(spec), path, wrong)


def _config(file: ScenarioFile, wrong: Problems) -> dict[str, Any]:
    """Spec of the RecoveryConfig."""
    config = file.cluster.config
    if config is None:
        return {"allow": {"failJob": file.cluster.allow_fail_job}}
    spec = _read_part(config, ConfigSpec, "cluster.config", wrong)
    if spec is not None:
        _add(config_problems(spec), "cluster.config", wrong)
    return config


def _read_part(body: dict[str, Any], kind: type[T], path: str, wrong: Problems) -> T | None:
    """None: nothing of the part can be checked."""
    reading = read_what_is_right(body, kind, path)
    wrong.found += reading.problems
    return reading.value


def _add(found: Iterable[str], path: str, wrong: Problems) -> None:
    """Adds the problems of a `spec`, except of fields that have one already: the spec has their defaults instead."""
    for problem in found:
        here = problem.replace("spec.", f"{path}.")
        if not wrong.is_wrong(here.partition(": ")[0]):
            wrong.found.append(here)


def _birth_settings(file: ScenarioFile) -> bool:
    said = file.cluster.birth_settings
    return any((job.policy or {}).get("elastic") is not None for job in file.jobs) if said is None else said


def _check_world(readable: ReadableFile, wrong: Problems) -> None:
    file = readable.file
    if not file.jobs and readable.all_jobs and not wrong.is_wrong("jobs") and not wrong.is_wrong("target"):
        wrong.add("jobs", "is empty; there is nothing to recover")
    wrong.at_least(1, file.controllers.replicas, "controllers.replicas")
    wrong.at_least(1, file.controllers.lease_seconds, "controllers.leaseSeconds")
    wrong.at_least(1, file.controllers.installations, "controllers.installations")
    node_gpus = file.cluster.gpus_per_node
    wrong.at_least(1, node_gpus, "cluster.gpusPerNode")
    for path, job in readable.jobs.items():
        if job.gpus_per_pod > node_gpus >= 1 and not wrong.is_wrong("cluster.gpusPerNode"):
            wrong.add(f"{path}.gpusPerPod", f"{job.gpus_per_pod} do not fit on a node of {node_gpus} GPUs")
    rates = {"process": file.rates.process, "request": file.rates.request, "line": file.rates.line}
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            wrong.add(f"rates.{name}", f"{rate:g} is no probability; say 0 or more, and less than 1")


def _spare_nodes(readable: ReadableFile, jobs: Iterable[JobPlan], wrong: Problems) -> int:
    """Nodes beyond those that the jobs need."""
    cluster = readable.file.cluster
    if cluster.nodes is None:
        spares = 2 if cluster.spares is None else cluster.spares
        wrong.at_least(0, spares, "cluster.spares")
        return spares
    if cluster.spares is not None:
        wrong.add("cluster.spares", "cannot be said together with cluster.nodes; leave one out")
    sizes = [f"{path}.{field}" for path in readable.jobs for field in ("pods", "gpusPerPod")]
    if not readable.all_jobs or any(map(wrong.is_wrong, ("cluster", *sizes))):
        return 0  # What they need is unknown.
    needed = nodes_needed(jobs, cluster.gpus_per_node)
    if cluster.nodes < needed:
        wrong.add("cluster.nodes", f"{cluster.nodes} cannot hold the pods of all jobs; say {needed} or more")
    return cluster.nodes - needed
