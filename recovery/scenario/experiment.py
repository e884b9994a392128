"""An experiment: chaos that strikes one job of a cluster, and what is expected of its recovery."""

import math
import re

import msgspec

from recovery.core.model.drill import DRILL_MAX_SECONDS, Hypothesis, Objectives
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.experiment_chaos_reader import ExperimentChaosReader
from recovery.scenario.input_problems import Problems
from recovery.scenario.readable_file import ReadableFile, read_parts
from recovery.scenario.scenario_text import load
from recovery.scenario.schema import ScenarioFile
from recovery.scenario.strict_input import none_of

REPEAT_MAX = 16
"""Each repeat costs the job a recovery, so a wrong number must not cost it a day."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
"""An RFC 1123 label of at most 40 characters. The rest is for what makes the name of a RecoveryDrill unique."""
_JOB = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ExperimentLimits(msgspec.Struct, frozen=True):
    """What the experiment may affect. It is not started where it could exceed a limit. None: there is no limit."""

    nodes: int | None = None
    gpus: int | None = None
    checkpoint_age_seconds: float | None = None


class Experiment(msgspec.Struct, frozen=True):
    """What a file with `target` says."""

    name: str
    namespace: str | None
    """Namespace of the job. None: the file does not say."""
    job: str
    seed: int
    repeat: int
    chaos: tuple[ExperimentChaos, ...]
    hypothesis: Hypothesis = Hypothesis()
    slo: Objectives = Objectives()
    recovery_seconds: float | None = None
    """`slo.recovery` in seconds. None: not judged."""
    limits: ExperimentLimits = ExperimentLimits()


def read_experiment(text: str) -> Experiment:
    """The experiment of a file. Raises BadScenarioError if anything in the file is wrong.

    What a file says of the modelled cluster (`jobs`, `cluster`, `controllers`, `rates`, `duration`, `healing`) is for
    the simulator, and is not judged here.
    """
    written = load(text)
    wrong = Problems(written.repeated)
    readable = read_parts(written.body, wrong)
    experiment = None if readable is None else experiment_of(readable, wrong)
    if experiment is None:
        raise written.refusal(wrong.found)
    return experiment


def experiment_of(readable: ReadableFile, wrong: Problems) -> Experiment | None:
    """The experiment. None: `wrong` has at least one problem."""
    file = readable.file
    if not wrong.is_wrong("name") and not _NAME.fullmatch(file.name):
        wrong.add("name", f"{file.name!r} is no name; use up to 40 of a-z, 0-9 and -, no - at an end")
    target = _target(readable, wrong)
    if not 1 <= file.repeat <= REPEAT_MAX:
        wrong.add("repeat", f"{file.repeat} is not 1 to {REPEAT_MAX}")
    _check_expectations(file, wrong)
    recovery_seconds = _recovery_seconds(file, wrong)
    limits = _limits(file, wrong)
    if not readable.chaos and not readable.other_chaos and not wrong.is_wrong("chaos"):
        wrong.add("chaos", "has no entry; say what happens to the job")
    reader = ExperimentChaosReader(target, max(1, min(file.repeat, REPEAT_MAX)), wrong)
    chaos = [reader.read(each, path) for path, each in readable.chaos.items()]
    for path, body in readable.other_chaos.items():
        reader.check_unread(body, path)
    if wrong.found or target is None:
        return None
    namespace, _, job = target.rpartition("/")
    return Experiment(
        name=file.name,
        namespace=namespace or None,
        job=job,
        seed=file.seed,
        repeat=file.repeat,
        chaos=tuple(each for each in chaos if each is not None),
        hypothesis=file.hypothesis,
        slo=file.slo,
        recovery_seconds=recovery_seconds,
        limits=limits,
    )


def _target(readable: ReadableFile, wrong: Problems) -> str | None:
    """The job, as it is written. None: it is wrong or missing."""
    target = readable.file.target
    if target is None:
        if not wrong.is_wrong("target"):
            fix = "add target: {job: namespace/name}, the job that the experiment strikes"
            wrong.add("target", f"is missing; {fix}. A file without it is for `recovery simulate`")
        return None
    if not _JOB.fullmatch(target.job):
        wrong.add("target.job", f"{target.job!r} is no job; write namespace/name, or a name")
        return None
    modelled = [f"{job.namespace}/{job.name}" for job in readable.jobs.values()]
    known = modelled if "/" in target.job else [job.name for job in readable.jobs.values()]
    if known and target.job not in known and readable.all_jobs:
        wrong.add("target.job", f"jobs has no {target.job!r}; {none_of(target.job, known)}")
    elif known.count(target.job) > 1 and "/" not in target.job:
        wrong.add("target.job", f"several of jobs are called {target.job!r}; write namespace/name")
    return target.job


def _check_expectations(file: ScenarioFile, wrong: Problems) -> None:
    said = file.hypothesis
    wrong.at_least(0, said.incidents, "hypothesis.incidents")
    wrong.at_least(0, said.charged, "hypothesis.charged")
    if said.charged > max(0, said.incidents) and not wrong.is_wrong("hypothesis"):
        wrong.add("hypothesis.charged", f"{said.charged} is more than hypothesis.incidents, {said.incidents}")
    idle = file.slo.idle_gpu_seconds
    if idle is not None and not 0 < idle < math.inf:
        wrong.add("slo.idleGpuSeconds", f"{idle:g} is no such time; say more than 0")


def _recovery_seconds(file: ScenarioFile, wrong: Problems) -> float | None:
    said = file.slo.recovery
    if said is None:
        return None
    seconds = wrong.seconds(said, "slo.recovery")
    if seconds > DRILL_MAX_SECONDS:
        wrong.add("slo.recovery", f"{said} is longer than the longest drill, {DRILL_MAX_SECONDS // 3600}h")
    return seconds


def _limits(file: ScenarioFile, wrong: Problems) -> ExperimentLimits:
    said = file.limits
    for field, limit in (("nodes", said.nodes), ("gpus", said.gpus)):
        if limit is not None:
            wrong.at_least(1, limit, f"limits.{field}")
    age = None if said.checkpoint_age is None else wrong.seconds(said.checkpoint_age, "limits.checkpointAge")
    return ExperimentLimits(said.nodes, said.gpus, age)
