"""Resolves a TrainJob and its runtime into the group that Trainer 2.3 and JobSet 0.12 will start.

Sources: Trainer pkg/runtime/core/trainingruntime.go (patches, numNodes of the runtime, resources),
pkg/runtime/framework/plugins/{plainml,torch,mpi}/ (numNodes of the TrainJob), and plugins/jobset/ (image, command,
args, env; parallelism and completions).

Two rules are easy to get wrong. `resourcesPerNode` is merged into the container's resources, name by name, and the
container loses its DRA claims. numNodes goes to the ReplicatedJob *named* `node` of an MPI runtime, and to the first
one *marked* as trainer of any other runtime.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from recovery.launch.launch import Launch, Member
from recovery.launch.processes import gpus_of
from recovery.launch.recoverability.training_container import select
from recovery.launch.views import (
    Container,
    EnvVar,
    JobSet,
    JobSetSpec,
    MlPolicy,
    Mount,
    PodPatch,
    PodTemplate,
    ReplicatedJob,
    Resources,
    Runtime,
    Trainer,
    TrainJob,
    Volume,
)

TRAINER_STEP = "trainer"
INITIALIZER_STEPS = ("dataset-initializer", "model-initializer")
NODE = "node"
"""The container whose image, command and env Trainer sets. Under MPI also the ReplicatedJob that gets numNodes."""


def launch_of(train_job: TrainJob, runtime: Runtime | None) -> Launch:
    """The group of that TrainJob. `runtime` None: it is not known here, so nothing that comes from it is known."""
    if runtime is None:
        empty = JobSetSpec(place=train_job.place)
        return Launch(
            train_job.place,
            train_job.name,
            empty,
            train_job=train_job,
            labels=train_job.labels,
            annotations=train_job.annotations,
        )
    return _launch(runtime, train_job)


def launch_of_runtime(runtime: Runtime) -> Launch:
    """The group of a TrainJob that sets nothing itself."""
    return _launch(runtime, None)


def launch_of_job_set(job_set: JobSet) -> Launch:
    """The group of a JobSet that a user wrote without Trainer."""
    jobs = job_set.spec.jobs
    members = (_member(job, job_set.annotations, of_trainer=False) for job in jobs if job.name not in _prepare(jobs))
    return Launch(
        job_set.place,
        job_set.name,
        job_set.spec,
        members=tuple(members),
        labels=job_set.labels,
        annotations=job_set.annotations,
    )


def _launch(runtime: Runtime, train_job: TrainJob | None) -> Launch:
    jobs = runtime.job_set.jobs
    for patch in train_job.patches if train_job is not None else ():
        jobs = tuple(_patched(job, patch) for job in jobs)
    trainer = train_job.trainer if train_job is not None else None
    counts = _counts(jobs, runtime.ml_policy, trainer)
    done = tuple(_resolved(job, pods, runtime.ml_policy, trainer) for job, pods in zip(jobs, counts, strict=True))
    suspended = train_job.suspended if train_job is not None else runtime.job_set.suspended
    spec = replace(runtime.job_set, jobs=done, suspended=suspended)
    of_job = train_job.annotations if train_job is not None else {}
    members = tuple(_member(job, of_job, of_trainer=True) for job in _trains(done))
    judged = runtime if train_job is None else train_job
    return Launch(judged.place, judged.name, spec, train_job, runtime, members, judged.labels, judged.annotations)


def _counts(jobs: Sequence[ReplicatedJob], policy: MlPolicy | None, trainer: Trainer | None) -> list[int]:
    """Pods of one replica of each ReplicatedJob."""
    counts = [max(1, _policy_nodes(job, policy)) for job in jobs]
    if trainer is None or trainer.num_nodes is None:
        return counts
    mpi = policy.mpi if policy is not None else None
    for number, job in enumerate(jobs):
        if mpi is not None and job.name == NODE:
            # A launcher that trains is one of the nodes, and Trainer still starts at least one other.
            counts[number] = max(trainer.num_nodes - 1, 1) if mpi.run_launcher_as_node else trainer.num_nodes
            break
        if mpi is None and job.ancestor == TRAINER_STEP:
            counts[number] = trainer.num_nodes
            break
    return counts


def _policy_nodes(job: ReplicatedJob, policy: MlPolicy | None) -> int:
    """The runtime's number: numNodes of its mlPolicy if it has one and the job is the trainer, else parallelism."""
    if job.ancestor == TRAINER_STEP and policy is not None:
        return 1 if policy.num_nodes is None else policy.num_nodes
    return 1 if job.parallelism is None else job.parallelism


def _resolved(job: ReplicatedJob, pods: int, policy: MlPolicy | None, trainer: Trainer | None) -> ReplicatedJob:
    """The ReplicatedJob as Trainer writes it into the JobSet."""
    replicas = 1 if job.ancestor in (TRAINER_STEP, *INITIALIZER_STEPS) else job.replicas
    launcher_trains = bool(policy is not None and policy.mpi is not None and policy.mpi.run_launcher_as_node)
    trains, shares = job.ancestor == TRAINER_STEP, launcher_trains and job.name == NODE
    containers = job.pods.containers
    if trainer is not None:
        if trains:
            containers = tuple(_commanded(each, trainer) for each in containers)
        if trains or shares:
            containers = tuple(_with_env(each, trainer) for each in containers)
        if shares or (trains and policy is not None):
            containers = _with_resources(containers, trainer)
    pods_of_it = replace(job.pods, containers=containers)
    return replace(job, pods=pods_of_it, replicas=replicas, parallelism=pods, completions=pods)


def _commanded(container: Container, trainer: Trainer) -> Container:
    if container.name != NODE:
        return container
    return replace(
        container,
        image=trainer.image or container.image,
        command=trainer.command or container.command,
        args=trainer.args or container.args,
    )


def _with_env(container: Container, trainer: Trainer) -> Container:
    return replace(container, env=_upserted(container.env, trainer.env)) if container.name == NODE else container


def _upserted(before: tuple[EnvVar, ...], more: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Merges by name. New variables come last, and existing ones keep their position."""
    return tuple({**{each.name: each for each in before}, **{each.name: each for each in more}}.values())


def _with_resources(containers: tuple[Container, ...], trainer: Trainer) -> tuple[Container, ...]:
    wanted = trainer.resources
    if wanted is None:
        return containers
    first = next((number for number, each in enumerate(containers) if each.name == NODE), None)
    return tuple(
        replace(each, resources=_merged(each.resources, wanted)) if number == first else each
        for number, each in enumerate(containers)
    )


def _merged(before: Resources | None, wanted: Resources) -> Resources:
    """Requests and limits are merged name by name. Claims are lost, because Trainer does not copy them."""
    if before is None:
        return replace(wanted, claims=())
    requests, limits = {**before.requests, **wanted.requests}, {**before.limits, **wanted.limits}
    return Resources(wanted.place, requests, limits)


def _patched(job: ReplicatedJob, patch: PodPatch) -> ReplicatedJob:
    """The ReplicatedJob with one of `runtimePatches` applied by the API's strategic merge: it merges lists of named
    items by name, and replaces tolerations as a whole."""
    if patch.job != job.name:
        return job
    before, new = job.pods, patch.pods
    pods = replace(
        before,
        grace_seconds=before.grace_seconds if new.grace_seconds is None else new.grace_seconds,
        containers=_patched_containers(before.containers, new.containers),
        init_containers=_patched_containers(before.init_containers, new.init_containers),
        tolerations=new.tolerations or before.tolerations,
        volumes=_patched_volumes(before, new),
        labels={**before.labels, **new.labels},
        annotations={**before.annotations, **new.annotations},
        node_selector={**before.node_selector, **new.node_selector},
    )
    return replace(job, pods=pods)


def _patched_containers(before: tuple[Container, ...], new: tuple[Container, ...]) -> tuple[Container, ...]:
    """A patch sets env and mounts of existing containers. A container that does not exist is ignored here, and is the
    finding `patch-nowhere`."""
    patches = {each.name: each for each in new}
    return tuple(_patched_container(each, patches[each.name]) if each.name in patches else each for each in before)


def _patched_container(container: Container, patch: Container) -> Container:
    mounts: dict[str, Mount] = {each.path: each for each in (*container.mounts, *patch.mounts)}
    return replace(container, env=_upserted(container.env, patch.env), mounts=tuple(mounts.values()))


def _patched_volumes(before: PodTemplate, new: PodTemplate) -> tuple[Volume, ...]:
    return tuple({each.name: each for each in (*before.volumes, *new.volumes)}.values())


def _trains(jobs: tuple[ReplicatedJob, ...]) -> Iterator[ReplicatedJob]:
    """The ReplicatedJobs of a runtime that are members of the group: those marked as trainer, and those without a step.
    One without a step is no member if it is named like an initializer, or if another waits for its end."""
    for job in jobs:
        step = job.ancestor or job.name
        if step == TRAINER_STEP or (step not in INITIALIZER_STEPS and job.name not in _prepare(jobs)):
            yield job


def _prepare(jobs: tuple[ReplicatedJob, ...]) -> frozenset[str]:
    """Names of the ReplicatedJobs that must complete before another one starts."""
    return frozenset(name for job in jobs for name in job.depends_on)


def _member(job: ReplicatedJob, annotations: Mapping[str, str], *, of_trainer: bool) -> Member:
    """`annotations`: those of the TrainJob or JobSet."""
    selected = select(job.pods, annotations, of_trainer=of_trainer).containers
    training = selected or job.pods.containers[:1]
    main = next((each for each in training if each.name == NODE), training[0] if training else None)
    return Member(job, _pods(job), main, sum(gpus_of(each.resources) for each in training))


def _pods(job: ReplicatedJob) -> int:
    """Pods that run at the same time. The defaults are one replica and one pod. A Job never runs more pods than its
    completions."""
    parallelism = 1 if job.parallelism is None else job.parallelism
    at_once = parallelism if job.completions is None else min(parallelism, job.completions)
    return at_once * (1 if job.replicas is None else job.replicas)
