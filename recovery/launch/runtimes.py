"""Checks what Trainer's webhooks require of a runtime, and of the patches that a TrainJob makes to it.

Sources: pkg/webhooks/trainingruntime_webhook.go and pkg/runtime/framework/plugins/jobset/jobset.go of Trainer 2.3.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.places import Place, written
from recovery.launch.views import PodPatch, ReplicatedJob, Runtime, Trainer

MISSING_CONTAINER = Code(
    "missing-container", Severity.ERROR, "a ReplicatedJob lacks the container that Trainer looks for"
)
NOT_ONE_REPLICA = Code("not-one-replica", Severity.ERROR, "a ReplicatedJob that Trainer fills has several replicas")
NO_TRAINER_JOB = Code("no-trainer-job", Severity.ERROR, "no ReplicatedJob is marked as the one that trains")
PATCH_NOWHERE = Code("patch-nowhere", Severity.ERROR, "runtimePatches is for something that the runtime does not have")
PATCH_REFUSED = Code("patch-refused", Severity.ERROR, "runtimePatches sets variables that it may not set")
INITIALIZER_NOWHERE = Code("initializer-nowhere", Severity.ERROR, "the runtime has no job for spec.initializer")
CODES = (MISSING_CONTAINER, INITIALIZER_NOWHERE, NOT_ONE_REPLICA, NO_TRAINER_JOB, PATCH_NOWHERE, PATCH_REFUSED)

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINERS = {
    "trainer": "node",
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
}
"""For each step, the container that Trainer's webhook requires."""
_INITIALIZER_VOLUME = "initializer"
"""Name of the volumeMount that Trainer's webhook requires in the container of an initializer."""


def check(launch: Launch) -> Iterator[LintFinding]:
    if launch.runtime is None:
        return
    for job in launch.runtime.job_set.jobs:
        yield from _of_step(job)
    if launch.train_job is None:
        return
    if launch.train_job.trainer is not None:
        yield from _marked(launch.runtime, launch.train_job.trainer)
    for step, place in launch.train_job.initializers.items():
        yield from _initializer(launch, step, place)
    for patch in launch.train_job.patches:
        yield from _patch(launch.runtime, patch)


def _of_step(job: ReplicatedJob) -> Iterator[LintFinding]:
    wanted = CONTAINERS.get(job.ancestor)
    if wanted is None:
        return
    if job.replicas not in (None, 1):
        message = (
            f"ReplicatedJob {job.name} has {job.replicas} replicas, and Trainer's webhook refuses any number but 1"
        )
        fix = "write replicas: 1, and the number of pods as numNodes"
        yield LintFinding(NOT_ONE_REPLICA, job.place / "replicas", message, fix)
    if job.pods.containers and all(container.name != wanted for container in job.pods.containers):
        message = (
            f"ReplicatedJob {job.name} is marked as {job.ancestor} and has no container called {wanted}, so that "
            "Trainer's webhook refuses the runtime"
        )
        yield LintFinding(
            MISSING_CONTAINER, job.pods.place / "containers", message, f"call its main container {wanted}"
        )


def _marked(runtime: Runtime, trainer: Trainer) -> Iterator[LintFinding]:
    """Without a mark, Trainer has nowhere to put what the TrainJob sets."""
    if not runtime.job_set.jobs or any(job.ancestor == "trainer" for job in runtime.job_set.jobs):
        return
    mpi = runtime.ml_policy is not None and runtime.ml_policy.mpi is not None
    there = {
        "image": trainer.image,
        "command": trainer.command,
        "args": trainer.args,
        # Under MPI these go to the ReplicatedJob called `node`, marked or not.
        "numNodes": trainer.num_nodes if not mpi else None,
        "env": trainer.env if not mpi else (),
        "resourcesPerNode": trainer.resources if not mpi else None,
    }
    lost = [name for name, value in there.items() if value]
    if lost:
        message = (
            f"spec.trainer sets {', '.join(lost)}, and no ReplicatedJob of runtime {runtime.name} is marked as "
            "trainer, so that Trainer drops all of it"
        )
        fix = f"add the label {STEP_LABEL}: trainer to template.metadata.labels of the ReplicatedJob that trains"
        yield LintFinding(NO_TRAINER_JOB, trainer.place, message, fix)


def _initializer(launch: Launch, step: str, place: Place) -> Iterator[LintFinding]:
    """Only the names of the ReplicatedJob, its container and the volumeMount count, not what the job is marked as."""
    assert launch.runtime is not None, "asked of a known runtime only"
    refuses = f"so that Trainer's webhook refuses a TrainJob with {written(place.path)}"
    job = next((each for each in launch.job_set.jobs if each.name == step), None)
    if job is None:
        message = f"runtime {launch.runtime.name} has no ReplicatedJob {step}, {refuses}"
        fix = f"remove {written(place.path)}, or name a runtime that has one; or add ReplicatedJob {step} to this one"
        yield LintFinding(INITIALIZER_NOWHERE, place, message, fix)
        return
    container = next((each for each in job.pods.containers if each.name == step), None)
    if container is None or all(mount.volume != _INITIALIZER_VOLUME for mount in container.mounts):
        message = (
            f"ReplicatedJob {step} of runtime {launch.runtime.name} has no container {step} with a volumeMount "
            f"{_INITIALIZER_VOLUME}, {refuses}"
        )
        fix = f"mount the volume {_INITIALIZER_VOLUME}, which the training reads from, in container {step}"
        yield LintFinding(INITIALIZER_NOWHERE, place, message, fix)


def _patch(runtime: Runtime, patch: PodPatch) -> Iterator[LintFinding]:
    """Trainer applies patches to the template before its webhook looks for what they name, so it finds everything. What
    did not exist is added with its name but without an image, and no pod can be created from that."""
    if not patch.job:
        return
    job = next((job for job in runtime.job_set.jobs if job.name == patch.job), None)
    place = patch.pods.place
    if job is None:
        known = ", ".join(job.name for job in runtime.job_set.jobs) or "none"
        message = (
            f"runtimePatches is for ReplicatedJob {patch.job}, which runtime {runtime.name} does not have: Trainer "
            "adds it without containers, and the JobSet is refused"
        )
        yield LintFinding(PATCH_NOWHERE, place, message, f"write one that it has: {known}")
        return
    there = {container.name for container in (*job.pods.containers, *job.pods.init_containers)}
    for container in (*patch.pods.containers, *patch.pods.init_containers):
        if container.name not in there:
            message = (
                f"runtimePatches is for container {container.name}, which ReplicatedJob {patch.job} does not have: "
                "Trainer adds it without an image, and no pod can be made"
            )
            known = ", ".join(sorted(there))
            yield LintFinding(PATCH_NOWHERE, container.place, message, f"write one that it has: {known}")
    for container in patch.pods.containers:
        if container.env and container.name in CONTAINERS.values() and container.name in there:
            instead = "spec.trainer.env" if container.name == "node" else "spec.initializer"
            message = f"runtimePatches sets env of container {container.name}, and Trainer's webhook refuses that"
            yield LintFinding(PATCH_REFUSED, container.place / "env", message, f"set the variables in {instead}")
