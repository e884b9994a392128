"""TrainJob on JobSet: Trainer makes a JobSet of the TrainJob's name, and marks its ReplicatedJobs by step."""

from recovery.core.model.facts import JobFacts, JobSetFacts
from recovery.ports import TRAIN_JOBS
from recovery.workloads.jobset import prepares

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On the Job template of a ReplicatedJob in a training runtime. Written by the author of the runtime; read by Trainer,
which puts the TrainJob's image and resources where it says `trainer`, and here."""

TRAINER_STEP = "trainer"
INITIALIZER_STEPS = frozenset({"dataset-initializer", "model-initializer"})


class TrainJobAdapter:
    """`WorkloadAdapter` for TrainJobs."""

    resource = TRAIN_JOBS

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Initializers never are, and the ReplicatedJobs that train always are.

        The others carry no step. One that something waits for is a user's own preparation, an initializer by another
        name. The rest, MPI's nodes for one (only their launcher is marked as trainer), is a member until its Job is
        complete: then it has done its part, and a restart of the group must not do it again.
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
        """Trainer's step, or the name where no step is given: runtimes name initializers after their step."""
        if jobset is not None:
            for candidate in jobset.replicated_jobs:
                if candidate.name == replicated_job and candidate.ancestor:
                    return candidate.ancestor
        return replicated_job
