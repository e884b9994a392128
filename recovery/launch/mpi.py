"""How Trainer 2.3 starts MPI (pkg/runtime/framework/plugins/mpi): the nodes, the slots, and what it refuses.

The ReplicatedJob called `launcher` runs mpirun, and the one called `node` runs sshd. With runLauncherAsNode the
launcher trains too and is one of numNodes. `node` gets the others, but at least one, so numNodes 1 makes two pods.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Setting
from recovery.launch.processes import devices_of, processes_of
from recovery.launch.torch_env import nodes_rule
from recovery.launch.views import MpiPolicy, Runtime, Trainer

MPI_JOBS = Code("mpi-jobs", Severity.ERROR, "runLauncherAsNode lacks the ReplicatedJob launcher or node")
MPI_IMPLEMENTATION = Code("mpi-implementation", Severity.ERROR, "Trainer supports no MPI but OpenMPI")
MPI_ONE_IS_TWO = Code("mpi-one-is-two", Severity.WARNING, "numNodes 1 makes two pods under runLauncherAsNode")
MPI_LAUNCHERS = Code("mpi-launchers", Severity.WARNING, "numNodes of the runtime makes several launchers")
MPI_RESOURCES = Code("mpi-resources", Severity.WARNING, "resourcesPerNode goes to the launcher, which does not train")
CODES = (MPI_JOBS, MPI_IMPLEMENTATION, MPI_ONE_IS_TWO, MPI_LAUNCHERS, MPI_RESOURCES)

LAUNCHER = "launcher"
NODE = "node"
_HOSTFILE = "/etc/mpi/hostfile"


def check(launch: Launch) -> Iterator[LintFinding]:
    runtime, policy = launch.runtime, _policy(launch)
    if runtime is None or policy is None:
        return
    if policy.implementation not in ("", "OpenMPI"):
        message = f"mpiImplementation is {policy.implementation}, and Trainer 2.3 starts OpenMPI only"
        yield LintFinding(
            MPI_IMPLEMENTATION, policy.place / "mpiImplementation", message, "write OpenMPI, or remove it"
        )
    yield from _launchers(runtime)
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None:
        yield from _nodes(runtime, policy, trainer)
        yield from _resources(runtime, policy, trainer)


def settings(launch: Launch) -> Iterator[Setting]:
    """The number of pods, the hostfile, and the environment of mpirun."""
    policy = _policy(launch)
    if policy is None or launch.runtime is None:
        return
    pods = {member.job.name: member.pods for member in launch.members}
    yield from _sizes(launch, policy, pods)
    found = processes_of(launch)
    slots = found.trainer_count if found is not None else 1
    domain = launch.job_set.subdomain or launch.name
    hosts = []
    for name in (job.name for job in launch.job_set.jobs):
        if name in pods and (name == NODE or (name == LAUNCHER and policy.run_launcher_as_node)):
            first = f"{launch.name}-{name}-0-0.{domain}"
            more = f" to {launch.name}-{name}-0-{pods[name] - 1}.{domain}" if pods[name] > 1 else ""
            hosts.append(f"{first}{more} slots={slots}")
    rule = "a line for each pod of node" + (" and of the launcher" if policy.run_launcher_as_node else "")
    yield Setting(f"ConfigMap {launch.name}-mpi-hostfile", "hostfile", "; ".join(hosts), rule)
    target = f"container node of ReplicatedJob {LAUNCHER}"
    yield Setting(target, "OMPI_MCA_orte_default_hostfile", _HOSTFILE, "Trainer mounts the hostfile there")
    yield Setting(target, "OMPI_MCA_orte_keep_fqdn_hostnames", "true", "a constant of Trainer")
    yield Setting(target, "OMPI_MCA_orte_set_default_slots", str(slots), "numProcPerNode")
    yield Setting(target, "OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10", "a constant of Trainer")


def _policy(launch: Launch) -> MpiPolicy | None:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy.mpi if policy is not None else None


def _sizes(launch: Launch, policy: MpiPolicy, pods: dict[str, int]) -> Iterator[Setting]:
    where, why = nodes_rule(launch)
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    asked = trainer.num_nodes if trainer is not None else None
    for name, count in pods.items():
        rule, place = "parallelism of the runtime: numNodes is not set by the TrainJob", None
        if name == NODE and asked is not None:
            rule, place = why, where
            if policy.run_launcher_as_node:
                rule = f"numNodes {asked} less 1, as the launcher is a node too (runLauncherAsNode), and at least 1"
        elif name == LAUNCHER:
            rule = "mlPolicy.numNodes of the runtime, whatever the TrainJob says; 1 by default"
        yield Setting(f"ReplicatedJob {name}", "parallelism and completions", str(count), rule, place)
    train = sum(count for name, count in pods.items() if name == NODE or policy.run_launcher_as_node)
    both = "launcher and node" if policy.run_launcher_as_node else "node: the launcher does not train"
    yield Setting("JobSet", "pods that train", str(train), both)


def _launchers(runtime: Runtime) -> Iterator[LintFinding]:
    nodes = runtime.ml_policy.num_nodes if runtime.ml_policy is not None else None
    launcher = next((job for job in runtime.job_set.jobs if job.name == LAUNCHER and job.ancestor == "trainer"), None)
    if runtime.ml_policy is None or nodes is None or nodes < 2 or launcher is None:
        return
    message = (
        f"mlPolicy.numNodes {nodes} makes {nodes} launchers, because the ReplicatedJob launcher is the one marked as "
        f"trainer: mpirun starts {nodes} times over, while node keeps its own number of pods"
    )
    fix = "write mlPolicy.numNodes: 1, and the number of nodes as spec.trainer.numNodes of the TrainJob"
    yield LintFinding(MPI_LAUNCHERS, runtime.ml_policy.place / "numNodes", message, fix)


def _nodes(runtime: Runtime, policy: MpiPolicy, trainer: Trainer) -> Iterator[LintFinding]:
    """Checks what Validate of Trainer's MPI plugin checks, and the sum that its `max(numNodes - 1, 1)` makes."""
    nodes, place = trainer.num_nodes, trainer.place / "numNodes"
    if nodes is None or not policy.run_launcher_as_node or not runtime.job_set.jobs:
        return
    there = {job.name for job in runtime.job_set.jobs}
    lacking = [name for name in (LAUNCHER, NODE) if name not in there]
    if nodes >= 2 and lacking:
        message = (
            f"numNodes {nodes} under runLauncherAsNode is 1 pod of the ReplicatedJob {LAUNCHER} and {nodes - 1} of "
            f"{NODE}, and runtime {runtime.name} has no {' and no '.join(lacking)}: Trainer's webhook refuses the job"
        )
        added = {
            LAUNCHER: "a ReplicatedJob launcher marked as trainer that runs mpirun, with dependsOn node Ready",
            NODE: "a ReplicatedJob node before the launcher, whose container node runs sshd",
        }
        fix = f"add {' and '.join(added[name] for name in lacking)}; or write numNodes: 1"
        yield LintFinding(MPI_JOBS, place, message, fix)
    elif nodes == 1 and not lacking:
        message = "numNodes 1 under runLauncherAsNode makes 2 pods that train: the launcher and, always, 1 of node"
        fix = "write numNodes: 2 if both are meant, else use a runtime without the ReplicatedJob node"
        yield LintFinding(MPI_ONE_IS_TWO, place, message, fix)


def _resources(runtime: Runtime, policy: MpiPolicy, trainer: Trainer) -> Iterator[LintFinding]:
    devices = devices_of(trainer.resources)
    jobs = {job.name: job for job in runtime.job_set.jobs}
    if policy.run_launcher_as_node or not devices or trainer.resources is None or not {LAUNCHER, NODE} <= set(jobs):
        return
    if jobs[LAUNCHER].ancestor != "trainer" or jobs[NODE].ancestor == "trainer":
        return
    named = " and ".join(f"{amount} {name}" for name, amount in devices.items())
    message = (
        f"resourcesPerNode ({named}) goes to the launcher, which only runs mpirun without runLauncherAsNode, and the "
        "pods of node keep what the runtime gives them"
    )
    fix = "write the accelerators into the ReplicatedJob node of the runtime, and remove them from resourcesPerNode"
    yield LintFinding(MPI_RESOURCES, trainer.resources.place, message, fix)
