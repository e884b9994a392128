"""The modelled cluster in which an experiment is tried before it strikes a job of a real one."""

from msgspec.structs import replace

from recovery.core.model.drill import Hypothesis, Objectives
from recovery.scenario.experiment import Experiment
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.scenario.schema import ScenarioFile, ScenarioJob, ScenarioLimits

MODELLED_NAMESPACE = "default"
"""The namespace of a modelled job if the file names none."""


def experiment_model(file: ScenarioFile) -> ScenarioFile:
    """The file of a trial in which the job of the experiment `file` runs, and nothing happens to it."""
    assert file.target is not None, "an experiment has a target"
    namespace, _, name = file.target.job.rpartition("/")
    stand_in = ScenarioJob(
        name=name,
        namespace=namespace or MODELLED_NAMESPACE,
        runtime=PlannedRuntime.JOINED,
        pods=8,
        policy={"mode": "Enforce"},
    )
    return replace(
        file,
        jobs=file.jobs or (stand_in,),
        target=None,
        chaos=(),
        repeat=1,
        hypothesis=Hypothesis(),
        slo=Objectives(),
        limits=ScenarioLimits(),
    )


def named_in_model(experiment: Experiment, model: ScenarioFile) -> Experiment:
    """The experiment with the namespace of its job. `model`: the file of the trial (`experiment_model`)."""
    if experiment.namespace is not None:
        return experiment
    return replace(experiment, namespace=next(job.namespace for job in model.jobs if job.name == experiment.job))
