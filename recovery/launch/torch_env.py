"""Torchrun's environment as Trainer 2.3 sets it (pkg/runtime/framework/plugins/torch), and where that cannot work.

Trainer finds the training container by the label `trainer.kubeflow.org/trainjob-ancestor-step: trainer` on the Job
template and by the container's name `node`. But the address that it writes for rank 0 is always `<job>-node-0-0.<job>`,
even if the ReplicatedJob or the subdomain has another name. Without `spec.trainer` it sets nothing in that container.
"""

from collections.abc import Iterator, Mapping

import msgspec

from recovery.launch.commands import Torchrun, run_by, variable_of
from recovery.launch.environment import MASTER_ADDRESS, MASTER_PORT, NODE_RANK, NUM_NODES, PROCESSES, TORCHTUNE
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, Setting
from recovery.launch.places import Place
from recovery.launch.processes import processes_of, trained_by
from recovery.launch.views import Runtime, TorchPolicy

PORT = 29500
"""ContainerTrainerPort of Trainer."""

TRAINER_MISSING = Code(
    "trainer-missing", Severity.WARNING, "without spec.trainer Trainer sets no variables for torchrun"
)
MASTER_NOWHERE = Code("master-nowhere", Severity.ERROR, "rank 0 is not found at its address")
INJECTION_TARGET = Code("injection-target", Severity.ERROR, "envInjection names a container that it cannot use")
HIDDEN_UNTIL_READY = Code(
    "hidden-until-ready", Severity.WARNING, "the names of the pods resolve only once the pods are Ready"
)
CODES = (TRAINER_MISSING, MASTER_NOWHERE, INJECTION_TARGET, HIDDEN_UNTIL_READY)

_OWN_ENDPOINT = frozenset({"rdzv-endpoint", "rdzv-backend", "master-addr", "standalone"})


def check(launch: Launch) -> Iterator[LintFinding]:
    yield from _hidden_until_ready(launch)
    policy = _torch(launch)
    if policy is None or launch.runtime is None:
        return
    yield from _targets(launch.runtime, policy)
    member = trained_by(launch)
    if member is None:
        return
    if launch.train_job is not None and launch.train_job.trainer is None:
        yield from _trainer_missing(launch, member)
    else:
        yield from _master_nowhere(launch, member)


def settings(launch: Launch) -> Iterator[Setting]:
    """The environment of torchrun, and the names by which it finds its peers."""
    policy, member = _torch(launch), trained_by(launch)
    if policy is None or member is None or member.main is None or launch.runtime is None:
        return
    nodes, job = member.pods, member.job
    where, why = nodes_rule(launch)
    yield Setting(f"ReplicatedJob {job.name}", "parallelism and completions", str(nodes), why, where)
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if launch.train_job is None or trainer is not None:
        target = f"container {member.main.name} of ReplicatedJob {job.name}"
        torchtune = trainer is not None and trainer.command == TORCHTUNE
        run = run_by(member.main)
        flags = run.flags if isinstance(run, Torchrun) else {}
        for variable in _variables(launch, member, target, with_master=not torchtune):
            yield _overruled(variable, flags)
        if torchtune and nodes > 1:
            address = f"{launch.name}-node-0-0.{launch.name}:{PORT}"
            rule = "Trainer adds it to torchtune's command, in place of PET_MASTER_ADDR and PET_MASTER_PORT"
            yield Setting(target, "--rdzv_endpoint", address, rule)
        yield Setting(target, "containerPort", str(PORT), "Trainer opens it for the rendezvous")
    for job_name, container in policy.env_targets:
        yield from _variables(launch, member, f"container {container} of ReplicatedJob {job_name}", with_master=True)
    yield from _names(launch, member)


def nodes_rule(launch: Launch) -> tuple[Place | None, str]:
    """The field that sets the number of nodes, and the same in words. None: it is a default."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and trainer.num_nodes is not None:
        return trainer.place / "numNodes", "spec.trainer.numNodes of the TrainJob"
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    if policy is not None and policy.num_nodes is not None:
        return policy.place / "numNodes", "mlPolicy.numNodes of the runtime, as the TrainJob sets none"
    return None, "the default of Trainer: neither the TrainJob nor the runtime sets numNodes"


def _torch(launch: Launch) -> TorchPolicy | None:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy.torch if policy is not None else None


def _variables(launch: Launch, member: Member, target: str, *, with_master: bool) -> Iterator[Setting]:
    where, why = nodes_rule(launch)
    yield Setting(target, NUM_NODES, str(member.pods), why, where)
    processes = processes_of(launch)
    if processes is not None:
        left_to_torchrun = "leaves auto" in processes.trainer_rule
        value = "auto" if left_to_torchrun else str(processes.trainer_count)
        yield Setting(target, PROCESSES, value, processes.trainer_rule, processes.place)
    ranks = f"0 to {member.pods - 1}" if member.pods > 1 else "0"
    yield Setting(target, NODE_RANK, ranks, "the Job's completion index")
    if with_master:
        rule = "Trainer names pod 0 of the ReplicatedJob node, whatever the ReplicatedJob is called"
        yield Setting(target, MASTER_ADDRESS, f"{launch.name}-node-0-0.{launch.name}", rule)
        yield Setting(target, MASTER_PORT, str(PORT), "the default of Trainer")


def _overruled(setting: Setting, flags: Mapping[str, str]) -> Setting:
    """The setting, with a note if a flag of torchrun decides instead."""
    flag = next((flag for flag in flags if variable_of(flag) == setting.name), None)
    if flag is None:
        return setting
    rule = f"{setting.rule}; torchrun does not read it, as its command has --{flag}={flags[flag]}"
    return msgspec.structs.replace(setting, rule=rule)


def _names(launch: Launch, member: Member) -> Iterator[Setting]:
    spec = launch.job_set
    if spec.dns_hostnames is False:
        rule = "network.enableDNSHostnames is false: there is no headless Service, and no pod has a name"
        yield Setting("headless Service", "name", "none", rule, spec.place / "network" / "enableDNSHostnames")
        return
    service = spec.subdomain or launch.name
    rule = "network.subdomain of the runtime" if spec.subdomain else "JobSet names it like the job"
    yield Setting("headless Service", "name", service, rule, spec.place / "network" if spec.subdomain else None)
    first = f"{launch.name}-{member.job.name}-0-0.{service}"
    last = f"{launch.name}-{member.job.name}-0-{member.pods - 1}.{service}"
    names = f"{first} to {last}" if member.pods > 1 else first
    yield Setting("headless Service", "DNS names", names, "JobSet names pods <job>-<ReplicatedJob>-<index>-<pod>")
    hidden = spec.publishes_not_ready is False
    yield Setting(
        target="headless Service",
        name="publishNotReadyAddresses",
        value="false" if hidden else "true",
        rule="network.publishNotReadyAddresses" if spec.publishes_not_ready is not None else "the default of JobSet",
        place=spec.place / "network" / "publishNotReadyAddresses" if spec.publishes_not_ready is not None else None,
    )


def _trainer_missing(launch: Launch, member: Member) -> Iterator[LintFinding]:
    if launch.train_job is None or member.main is None:
        return
    run = run_by(member.main)
    if isinstance(run, Torchrun) and {"nnodes", "standalone"}.intersection(run.flags):
        return
    if any(variable.name == NUM_NODES for variable in member.main.env):
        return
    if member.pods > 1:
        follows = f"torchrun in each of the {member.pods} pods takes itself for the only one and trains by itself"
    elif member.gpus_per_pod > 1:
        follows = f"torchrun starts 1 process on {member.gpus_per_pod} accelerators"
    else:
        return
    message = f"spec.trainer is missing, so that Trainer sets no PET_ variable, and {follows}"
    yield LintFinding(
        TRAINER_MISSING, launch.train_job.place, message, f"write spec.trainer with numNodes: {member.pods} in it"
    )


def _master_nowhere(launch: Launch, member: Member) -> Iterator[LintFinding]:
    run = run_by(member.main) if member.main is not None else None
    if not isinstance(run, Torchrun) or _OWN_ENDPOINT.intersection(run.flags) or member.pods < 2:
        return
    spec = launch.job_set
    address = f"PET_MASTER_ADDR is {launch.name}-node-0-0.{launch.name}"
    if launch.train_job is None:
        address = "PET_MASTER_ADDR is <job>-node-0-0.<job>"
    waits = "so that the rendezvous never finds rank 0"
    if member.job.name != "node":
        message = f"{address} and the ReplicatedJob that trains is called {member.job.name}, {waits}"
        yield LintFinding(MASTER_NOWHERE, member.job.place / "name", message, "rename the ReplicatedJob to node")
    elif spec.dns_hostnames is False:
        message = f"{address} and network.enableDNSHostnames is false, {waits}"
        place = spec.place / "network" / "enableDNSHostnames"
        yield LintFinding(MASTER_NOWHERE, place, message, "remove network.enableDNSHostnames, or set it to true")
    elif spec.subdomain and spec.subdomain != launch.name and launch.train_job is not None:
        message = f"{address} and network.subdomain gives the pods the domain {spec.subdomain}, {waits}"
        place = spec.place / "network" / "subdomain"
        yield LintFinding(MASTER_NOWHERE, place, message, "remove network.subdomain from the runtime")


def _targets(runtime: Runtime, policy: TorchPolicy) -> Iterator[LintFinding]:
    """Checks what validateEnvInjectionTargets of Trainer's webhook checks, and the CRD's rule about `node`."""
    there = {
        (job.name, container.name)
        for job in runtime.job_set.jobs
        for container in (*job.pods.containers, *job.pods.init_containers)
    }
    place = policy.place / "envInjection" / "targets"
    for job_name, container in policy.env_targets:
        if container == "node":
            message = f"envInjection of ReplicatedJob {job_name} names container node: the API server refuses that"
            yield LintFinding(INJECTION_TARGET, place, message, "remove node: it has the PET_ variables in any case")
        elif (job_name, container) not in there:
            message = (
                f"envInjection names container {container} of ReplicatedJob {job_name}, which the runtime does not "
                "have, so that every TrainJob of this runtime is refused"
            )
            yield LintFinding(
                INJECTION_TARGET, place, message, f"add a container {container} there, or remove the target"
            )


def _hidden_until_ready(launch: Launch) -> Iterator[LintFinding]:
    if launch.job_set.publishes_not_ready is not False or launch.nodes < 2:
        return
    probed = next(
        (each.name for member in launch.members for each in member.template.containers if each.has_readiness_probe), ""
    )
    message = (
        "network.publishNotReadyAddresses is false, so that the name of a pod resolves only once it is Ready: after a "
        "restart the rendezvous waits for that"
    )
    if probed:
        message += f", and for ever if the readiness probe of container {probed} waits for the rendezvous"
    place = launch.job_set.place / "network" / "publishNotReadyAddresses"
    yield LintFinding(
        HIDDEN_UNTIL_READY, place, message, "remove network.publishNotReadyAddresses: the default is true"
    )
