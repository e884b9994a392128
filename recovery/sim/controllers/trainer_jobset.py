"""The JobSet for a TrainJob and its runtime.

Sources: trainer v2.3 `pkg/runtime/core/trainingruntime.go` and the plugins torch, plainml, mpi and jobset in
`pkg/runtime/framework/plugins`.
Not modelled: torchtune commands, envInjection, pod groups, MPI's Secret and host file and their mounts.
"""

import copy
import math
from typing import Any

from recovery.ports import JOB_SETS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.jobset_jobs import owner_reference

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label on a Job template of a runtime: it names the part of the TrainJob that provides the template's values."""
TRAINER = "trainer"
NODE = "node"
"""Name of the training container, and of MPI's ReplicatedJob beside the launcher."""
LAUNCHER = "launcher"
PORT = 29500
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
"""Fields of `spec.initializer` by ancestor."""
_COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Json = dict[str, Any]


def build_jobset(trainjob: Body, runtime: Body) -> Body:
    """The JobSet that Trainer applies. It shares nothing with the runtime."""
    policy = runtime["spec"].get("mlPolicy")
    template = copy.deepcopy(runtime["spec"]["template"])
    for patch in trainjob["spec"].get("runtimePatches", ()):
        template = merge(template, patch.get("trainingRuntimeSpec", {}).get("template", {}))
    spec = template["spec"]
    trainer = trainjob["spec"].get("trainer")
    # Sizes come first, because the environment of every pod has the number of nodes.
    nodes = _set_sizes(spec["replicatedJobs"], policy, trainer)
    for replicated in spec["replicatedJobs"]:
        ancestor = _ancestor(replicated)
        if ancestor == TRAINER or ancestor in _INITIALIZERS:
            replicated["replicas"] = 1
        if ancestor in _INITIALIZERS:
            _initialize(replicated, ancestor, trainjob["spec"].get("initializer", {}).get(_INITIALIZERS[ancestor]))
        elif trainer is not None:
            _train(trainjob, replicated, policy, nodes)
    marks = {key: value for key, value in template.get("metadata", {}).items() if key in {"labels", "annotations"}}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {
            "name": trainjob["metadata"]["name"],
            "namespace": trainjob["metadata"]["namespace"],
            **marks,
            "ownerReferences": [owner_reference(trainjob)],
        },
        "spec": {**spec, "suspend": trainjob["spec"]["suspend"]},
    }


def merge(target: Any, patch: Any) -> Any:
    """Strategic merge, as far as runtime patches need it: maps by key, lists of named items by name.

    Everything else is replaced. Tolerations have no merge key, so they are replaced too.
    """
    if isinstance(target, dict) and isinstance(patch, dict):
        return {**target, **{key: merge(target.get(key), value) for key, value in patch.items()}}
    if isinstance(target, list) and isinstance(patch, list) and all(map(_is_named, (*target, *patch))):
        merged = {each["name"]: each for each in target}
        for each in patch:
            merged[each["name"]] = merge(merged.get(each["name"]), each)
        return list(merged.values())
    return copy.deepcopy(patch)


def _is_named(item: Any) -> bool:
    return isinstance(item, dict) and "name" in item


def _ancestor(replicated: Json) -> str:
    return str(replicated["template"].get("metadata", {}).get("labels", {}).get(ANCESTOR, ""))


def _set_sizes(replicated_jobs: list[Json], policy: Json | None, trainer: Json | None) -> int:
    """Set parallelism and completions of each ReplicatedJob to its pods. Returns the number of nodes for torchrun."""
    nodes = 1
    wanted = (trainer or {}).get("numNodes")
    for replicated in replicated_jobs:
        job = replicated["template"].setdefault("spec", {})
        count = job.get("parallelism", 1)
        if _ancestor(replicated) == TRAINER and policy is not None:
            count = policy.get("numNodes", 1)
        if policy is not None and "mpi" in policy:
            if replicated["name"] == NODE and wanted is not None:
                count = max(wanted - 1, 1) if policy["mpi"].get("runLauncherAsNode") else wanted
        elif _ancestor(replicated) == TRAINER:
            nodes = count = wanted if wanted is not None else count
        job["parallelism"] = job["completions"] = count
    return nodes


def _initialize(replicated: Json, ancestor: str, initializer: Json | None) -> None:
    if initializer is None:
        return
    for container in _containers(replicated, ancestor):
        if "storageUri" in initializer:
            _set_variables(container, [{"name": "STORAGE_URI", "value": initializer["storageUri"]}])
        _set_variables(container, initializer.get("env", []))


def _train(trainjob: Body, replicated: Json, policy: Json | None, nodes: int) -> None:
    """Apply `spec.trainer` and the policy to the training container."""
    trainer = trainjob["spec"]["trainer"]
    is_trainer = _ancestor(replicated) == TRAINER
    mpi = (policy or {}).get("mpi")
    is_launched = mpi is not None and bool(mpi.get("runLauncherAsNode")) and replicated["name"] == NODE
    if not is_trainer and not is_launched:
        return
    for container in _containers(replicated, NODE):
        if "resourcesPerNode" in trainer and policy is not None:
            container["resources"] = _resources(container.get("resources", {}), trainer["resourcesPerNode"])
        _set_variables(container, trainer.get("env", []))
        if not is_trainer:
            continue
        if policy is not None and "torch" in policy:
            _tell_torchrun(trainjob, container, nodes)
        if mpi is not None and replicated["name"] == LAUNCHER:
            _tell_mpirun(trainer, container, mpi)
        for field in ("image", "command", "args"):
            if field in trainer:
                container[field] = trainer[field]


def _resources(present: Json, wanted: Json) -> Json:
    """The resources merged by name, so the runtime's other resources stay. Amounts are text, as in the API server."""
    merged = merge(present, wanted)
    for kind in ("limits", "requests"):
        if kind in merged:
            merged[kind] = {name: str(amount) for name, amount in merged[kind].items()}
    return dict(merged)


def _tell_torchrun(trainjob: Body, container: Json, nodes: int) -> None:
    name, trainer = trainjob["metadata"]["name"], trainjob["spec"]["trainer"]
    processes = str(trainer.get("numProcPerNode", "auto"))
    resources = trainer.get("resourcesPerNode") or container.get("resources", {})
    if processes == "auto" and not _gpus(resources):
        processes = str(max(1, _cpus(resources)))
    rank = {"fieldRef": {"fieldPath": _COMPLETION_INDEX}}
    variables: list[Json] = [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": processes},
        {"name": "PET_NODE_RANK", "valueFrom": rank},
        {"name": "PET_MASTER_ADDR", "value": f"{name}-{NODE}-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": str(PORT)},
    ]
    _set_variables(container, variables)
    ports = container.setdefault("ports", [])
    if all(each["containerPort"] != PORT for each in ports):
        ports.append({"containerPort": PORT, "protocol": "TCP"})


def _tell_mpirun(trainer: Json, container: Json, mpi: Json) -> None:
    slots = trainer.get("numProcPerNode", mpi.get("numProcPerNode", 1))
    if slots == 1 and "numProcPerNode" not in trainer:
        slots = max(1, _gpus(trainer.get("resourcesPerNode") or container.get("resources", {})))
    variables: list[Json] = [
        {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"},
        {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
        {"name": "OMPI_MCA_orte_set_default_slots", "value": str(slots)},
        {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
    ]
    _set_variables(container, variables)


def _containers(replicated: Json, name: str) -> list[Json]:
    containers: list[Json] = replicated["template"]["spec"]["template"]["spec"]["containers"]
    return [container for container in containers if container["name"] == name]


def _set_variables(container: Json, variables: list[Json]) -> None:
    """Set environment variables. An existing one is replaced in its place."""
    merged = {each["name"]: each for each in container.get("env", [])} | {each["name"]: each for each in variables}
    if merged:
        container["env"] = list(merged.values())


def _gpus(resources: Json) -> int:
    """The GPUs of one node: the requests, or the limits if the requests have none."""
    for amounts in (resources.get("requests", {}), resources.get("limits", {})):
        for name, amount in amounts.items():
            if "gpu" in name.lower() and int(amount):
                return int(amount)
    return 0


def _cpus(resources: Json) -> int:
    """The CPUs of one node, rounded up: the requests, or the limits if the requests have none."""
    for amounts in (resources.get("requests", {}), resources.get("limits", {})):
        text = str(amounts.get("cpu", 0))
        cpus = int(text[:-1]) / 1000 if text.endswith("m") else float(text)
        if cpus:
            return math.ceil(cpus)
    return 0
