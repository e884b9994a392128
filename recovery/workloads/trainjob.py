"""TrainJob on JobSet: Trainer makes a JobSet of the TrainJob's name, JobSet makes Jobs, the Job controller makes pods.

Every name that those controllers and we agree on stands here once, with who writes it and who reads it. The
annotations that are ours alone stand in `core.policy`.
"""

from recovery.core.facts import GroupKey, JobFacts, JobSetFacts

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""On Jobs and pods. Written by JobSet; read here as the name of the group, because Trainer names the JobSet after the
TrainJob."""

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
"""On Jobs and pods. Written by JobSet; read here to tell members from initializers."""

RESTART_ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
"""On Jobs and pods: `status.restarts` of the JobSet when the Job was made. Written by JobSet, which deletes Jobs with a
lower one; read by `core` to recognise the platform's own restarts. Never written by us: a value that is no integer
wedges JobSet's reconciler."""

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""On pods of Indexed Jobs. Written by the Job controller; read here as the pod's index, from which torchrun's node rank
comes as well."""

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On the Job template of a ReplicatedJob in a training runtime. Written by the author of the runtime; read by Trainer,
which puts the TrainJob's image and resources where it says `trainer`, and here."""

TRAINER_STEP = "trainer"
INITIALIZER_STEPS = frozenset({"dataset-initializer", "model-initializer"})


class TrainJobAdapter:
    """`WorkloadAdapter` for TrainJobs."""

    selector = JOBSET_NAME_LABEL

    def group_selector(self, key: GroupKey) -> str:
        return f"{JOBSET_NAME_LABEL}={key.name}"

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Initializers never are, and the ReplicatedJobs that train always are.

        A ReplicatedJob of neither step (MPI's nodes, or a preparation step of a user) is a member until its Job is
        complete: then it has done its part, and a restart of the group must not do it again.
        """
        step = self._step(replicated_job, jobset)
        if step in INITIALIZER_STEPS:
            return False
        return step == TRAINER_STEP or job is None or job.condition("Complete") is None

    def _step(self, replicated_job: str, jobset: JobSetFacts | None) -> str:
        """Trainer's step, or the name where no step is given: runtimes name initializers after their step."""
        if jobset is not None:
            for candidate in jobset.replicated_jobs:
                if candidate.name == replicated_job and candidate.ancestor:
                    return candidate.ancestor
        return replicated_job
