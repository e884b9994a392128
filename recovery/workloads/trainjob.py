"""TrainJob on JobSet: Trainer creates a JobSet of the TrainJob's name. Labels mark the step of its ReplicatedJobs."""

from recovery.core.model.facts import JobFacts, JobSetFacts
from recovery.ports import TRAIN_JOBS
from recovery.workloads.jobset import prepares

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On the Job template of a ReplicatedJob in a training runtime. Written by the author of the runtime; read here and by
Trainer, which puts the TrainJob's image and resources where the value is `trainer`."""

TRAINER_STEP = "trainer"
INITIALIZER_STEPS = frozenset({"dataset-initializer", "model-initializer"})


class TrainJobAdapter:
    """`WorkloadAdapter` for TrainJobs."""

    resource = TRAIN_JOBS

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Initializers never are members, and the ReplicatedJobs that train always are.

        The others have no step. If another ReplicatedJob waits for its completion, it is a user's own preparation, in
        effect an initializer. All others, such as MPI's nodes (only their launcher is marked as trainer), are members
        until their Job is complete. It has then done its part, and a restart of the group must not repeat it.
        """
        step = self._step(replicated_job, jobset)
        if step in INITIALIZER_STEPS:
            return False
        if step == TRAINER_STEP:
            return True
        if jobset is not None and prepares(replicated_job, jobset):
            return False
        return job is None or job.condition("Complete") is None

    def _step(self, replicated_job: str, jobset: JobSetFacts | None) -> str:
        """Trainer's step, or where none is given the ReplicatedJob's name: runtimes name initializers by their step."""
        if jobset is not None:
            for candidate in jobset.replicated_jobs:
                if candidate.name == replicated_job and candidate.ancestor:
                    return candidate.ancestor
        return replicated_job
