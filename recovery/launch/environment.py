"""Finds variables that Trainer 2.3 sets itself (pkg/constants) and that a TrainJob or a runtime sets too.

Trainer's webhook refuses a TrainJob that sets one of them. Trainer silently overrides one in the runtime's container.
"""

from collections.abc import Iterator, Mapping

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.views import Container

RESERVED_ENV = Code("reserved-env", Severity.ERROR, "the TrainJob sets a variable that Trainer sets itself")
ENV_OVERRIDDEN = Code("env-overridden", Severity.WARNING, "Trainer overrides a variable of the runtime")
CODES = (RESERVED_ENV, ENV_OVERRIDDEN)

NUM_NODES = "PET_NNODES"
PROCESSES = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
MASTER_ADDRESS = "PET_MASTER_ADDR"
MASTER_PORT = "PET_MASTER_PORT"
TORCHTUNE = ("tune", "run")
"""The command by which Trainer recognizes torchtune: exactly these two words."""

_NODES_INSTEAD = (
    "remove it and set spec.trainer.numNodes; for an elastic range write torchrun --nnodes=min:max --rdzv-backend=c10d "
    "--rdzv-endpoint=host:port in spec.trainer.command"
)
_ENDPOINT_INSTEAD = (
    "remove it; for an endpoint of your own write torchrun --rdzv-endpoint=host:port in spec.trainer.command"
)
_SLOTS_INSTEAD = "remove it and set spec.trainer.numProcPerNode"
_ARGUMENT_INSTEAD = "remove it, or pass the setting as --mca argument of mpirun in spec.trainer.command"
_SET_BY_TRAINER = "remove it: Trainer sets it for each pod"

TORCH: Mapping[str, str] = {
    NUM_NODES: _NODES_INSTEAD,
    PROCESSES: _SLOTS_INSTEAD,
    NODE_RANK: _SET_BY_TRAINER,
    MASTER_ADDRESS: _ENDPOINT_INSTEAD,
    MASTER_PORT: _ENDPOINT_INSTEAD,
}
"""For each variable: what to do instead."""
MPI: Mapping[str, str] = {
    "OMPI_MCA_orte_default_hostfile": _ARGUMENT_INSTEAD,
    "OMPI_MCA_plm_rsh_args": _ARGUMENT_INSTEAD,
    "OMPI_MCA_orte_keep_fqdn_hostnames": _ARGUMENT_INSTEAD,
    "OMPI_MCA_orte_set_default_slots": _SLOTS_INSTEAD,
}
XGBOOST: Mapping[str, str] = {
    "DMLC_TRACKER_URI": _SET_BY_TRAINER,
    "DMLC_TRACKER_PORT": _SET_BY_TRAINER,
    "DMLC_TASK_ID": _SET_BY_TRAINER,
    "DMLC_NUM_WORKER": "remove it: Trainer sets it from spec.trainer.numNodes and the GPUs of a node",
}


def check(launch: Launch) -> Iterator[LintFinding]:
    framework, reserved = reserved_by(launch)
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    for variable in trainer.env if trainer is not None else ():
        if variable.name in reserved:
            message = f"{variable.name} is Trainer's own under a {framework} runtime: its webhook refuses the job"
            yield LintFinding(RESERVED_ENV, variable.place, message, reserved[variable.name])
    if launch.train_job is not None and trainer is None and framework != "mpi":
        return  # Trainer sets nothing, so it overrides nothing
    own_endpoint = trainer is not None and trainer.command == TORCHTUNE
    for container in _containers(launch, framework):
        for variable in container.env:
            if variable.name not in reserved or (own_endpoint and variable.name in (MASTER_ADDRESS, MASTER_PORT)):
                continue
            message = f"{variable.name} of the runtime's container {container.name} has no effect: Trainer overrides it"
            yield LintFinding(ENV_OVERRIDDEN, variable.place, message, reserved[variable.name])


def reserved_by(launch: Launch) -> tuple[str, Mapping[str, str]]:
    """The framework of the runtime, and the variables that it reserves. Empty: none, or the runtime is not known."""
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    if policy is None:
        return "", {}
    if policy.torch is not None:
        return "torch", TORCH
    if policy.mpi is not None:
        return "mpi", MPI
    return ("xgboost", XGBOOST) if "xgboost" in policy.others else ("", {})


def _containers(launch: Launch, framework: str) -> Iterator[Container]:
    """The containers whose variables Trainer sets, as the runtime has them before the TrainJob changes them."""
    for job in launch.runtime.job_set.jobs if launch.runtime is not None else ():
        if job.name == "launcher" if framework == "mpi" else job.ancestor == "trainer":
            yield from (each for each in job.pods.containers if each.name == "node")
