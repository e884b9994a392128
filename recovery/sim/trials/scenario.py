"""A scenario file as a trial's plan, or everything that is wrong with it."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from recovery.core.model.config import ConfigSpec
from recovery.core.policy.spec import PolicySpec
from recovery.core.policy.validation import problems
from recovery.sim.trials.chaos_faults import ChaosReader
from recovery.sim.trials.input_problems import Problems
from recovery.sim.trials.plan import FaultRates, JobAdmission, JobPlan, Marking, PlannedRuntime, TrialPlan, nodes_needed
from recovery.sim.trials.scenario_schema import ScenarioFile, ScenarioJob
from recovery.sim.trials.strict_input import BadInputError, read

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
"""An RFC 1123 label; of its 63 characters some are left for what JobSet adds to name Jobs and pods."""


class Scenario(msgspec.Struct, frozen=True):
    name: str
    plan: TrialPlan


def read_scenario(text: str) -> Scenario:
    """Raises BadInputError: nothing of a file is used if anything in it is wrong."""
    try:
        body = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise BadInputError(f"the file is not YAML: {' '.join(str(error).split())}") from None
    file = read(body, ScenarioFile)
    wrong = Problems()
    active_seconds = wrong.seconds(file.duration, "duration")
    healing_seconds = wrong.seconds(file.healing, "healing")
    jobs = _jobs(file.jobs, wrong)
    _check_world(file, wrong)
    config = _config(file, wrong)
    spare_nodes = _spare_nodes(file, jobs.values(), wrong)
    faults = ChaosReader(file, jobs, active_seconds, wrong).faults()
    if wrong.found:
        raise BadInputError(*wrong.found)
    plan = TrialPlan(
        seed=file.seed,
        jobs=tuple(jobs.values()),
        faults=faults,
        rates=FaultRates(process=file.rates.process, request=file.rates.request, line=file.rates.line),
        active_seconds=active_seconds,
        healing_seconds=healing_seconds,
        replicas=file.controllers.replicas,
        lease_seconds=file.controllers.lease_seconds,
        config=config,
        spare_nodes=spare_nodes,
        node_gpus=file.cluster.gpus_per_node,
    )
    return Scenario(file.name, plan)


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; here that would drop half of what was written."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[object] = []
        for key, _ in node.value:
            name = self.construct_object(key)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands there twice", key.start_mark)
            seen.append(name)
        return super().construct_mapping(node, deep)


def _jobs(file: Iterable[ScenarioJob], wrong: Problems) -> dict[str, JobPlan]:
    """By namespace and name."""
    jobs: dict[str, JobPlan] = {}
    for number, each in enumerate(file):
        path = f"jobs[{number}]"
        for field, name in (("name", each.name), ("namespace", each.namespace)):
            if not _NAME.fullmatch(name):
                wrong.add(f"{path}.{field}", f"{name!r} is no name; use up to 40 of a-z, 0-9 and -, no - at an end")
        wrong.at_least(1, each.pods, f"{path}.pods")
        wrong.at_least(1, each.gpus_per_pod, f"{path}.gpusPerPod")
        wrong.at_least(0, each.grace_period_seconds, f"{path}.gracePeriodSeconds")
        if each.total_steps is not None:
            wrong.at_least(1, each.total_steps, f"{path}.totalSteps")
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
            policy=each.policy,
            sidecars=each.sidecars,
            marking=each.training_container,
            admission=each.admission,
            admitted_after_seconds=_admitted_after_seconds(each, path, wrong),
            deadline_seconds=each.active_deadline_seconds,
        )
        if str(job) in jobs:
            wrong.add(f"{path}.name", f"there is a job {job} already; give it another name or namespace")
        jobs[str(job)] = job
    return jobs


def _check_start_and_end(job: ScenarioJob, path: str, wrong: Problems) -> None:
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


def _admitted_after_seconds(job: ScenarioJob, path: str, wrong: Problems) -> float:
    """0: it starts when it is created."""
    if job.admission is JobAdmission.AT_ONCE:
        wrong.unfit(path, "a job that starts at once", admitted_after=job.admitted_after)
        return 0.0
    return wrong.seconds(job.admitted_after or "30s", f"{path}.admittedAfter")


def _check_policy(policy: dict[str, Any] | None, path: str, wrong: Problems) -> None:
    """By the rules that admission and the controller go by."""
    if policy is None:
        return
    if "selector" in policy:
        wrong.add(f"{path}.selector", "leave it out: the policy selects this job")
        return
    try:
        spec = read(policy, PolicySpec, path)
    except BadInputError as error:
        wrong.found += error.problems
        return
    wrong.found += [problem.replace("spec.", f"{path}.") for problem in problems(spec)]


def _config(file: ScenarioFile, wrong: Problems) -> dict[str, Any]:
    """Spec of the RecoveryConfig."""
    config = file.cluster.config
    if config is None:
        return {"allow": {"failJob": file.cluster.allow_fail_job}}
    try:
        read(config, ConfigSpec, "cluster.config")
    except BadInputError as error:
        wrong.found += error.problems
    return config


def _check_world(file: ScenarioFile, wrong: Problems) -> None:
    if not file.jobs:
        wrong.add("jobs", "is empty; there is nothing to recover")
    wrong.at_least(1, file.controllers.replicas, "controllers.replicas")
    wrong.at_least(1, file.controllers.lease_seconds, "controllers.leaseSeconds")
    node_gpus = file.cluster.gpus_per_node
    wrong.at_least(1, node_gpus, "cluster.gpusPerNode")
    for number, job in enumerate(file.jobs):
        if job.gpus_per_pod > node_gpus >= 1:
            wrong.add(f"jobs[{number}].gpusPerPod", f"{job.gpus_per_pod} do not fit on a node of {node_gpus} GPUs")
    rates = {"process": file.rates.process, "request": file.rates.request, "line": file.rates.line}
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            wrong.add(f"rates.{name}", f"{rate:g} is no probability; say 0 or more, and less than 1")


def _spare_nodes(file: ScenarioFile, jobs: Iterable[JobPlan], wrong: Problems) -> int:
    """Nodes beyond what the jobs need."""
    cluster = file.cluster
    if cluster.nodes is None:
        spares = 2 if cluster.spares is None else cluster.spares
        wrong.at_least(0, spares, "cluster.spares")
        return spares
    if cluster.spares is not None:
        wrong.add("cluster.spares", "cannot be said together with cluster.nodes; leave one out")
    if wrong.found:
        return 0  # What wrong jobs need cannot be told.
    needed = nodes_needed(jobs, cluster.gpus_per_node)
    if cluster.nodes < needed:
        wrong.add("cluster.nodes", f"{cluster.nodes} cannot hold the pods of all jobs; say {needed} or more")
    return cluster.nodes - needed
