"""Training runtimes for simulated jobs: those of Trainer that matter here, and this repository's own.

Sources: trainer v2.3 `manifests/base/runtimes/`; `policies/runtime-*.yaml`.
"""

import copy
from functools import cache
from pathlib import Path

import yaml

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.trainjobs import CLUSTER_TRAINING_RUNTIMES

_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


def shipped_runtime() -> Body:
    """`torch-distributed`: only one ReplicatedJob, so the defaults OnFailure, backoffLimit 6 and no failurePolicy."""
    return _runtime("torch-distributed", {"torch": {}}, [_replicated("node", "trainer")])


def launcher_runtime() -> Body:
    """`deepspeed-distributed`: MPI nodes, and a launcher that starts when they are Ready and counts as a node."""
    launcher = {**_replicated("launcher", "trainer"), "dependsOn": [{"name": "node", "status": "Ready"}]}
    mpi = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runLauncherAsNode": True,
    }
    body = _runtime("deepspeed-distributed", {"mpi": mpi}, [_replicated("node", ""), launcher])
    body["spec"]["template"]["spec"]["network"] = {"publishNotReadyAddresses": True}
    body["spec"]["template"]["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    return body


def initialized_runtime() -> Body:
    """`torch-distributed` with the two initializers that Trainer's torchtune runtimes run before their nodes."""
    initializers = ("dataset-initializer", "model-initializer")
    node = _replicated("node", "trainer")
    node["dependsOn"] = [{"name": name, "status": "Complete"} for name in initializers]
    replicated_jobs = [*(_replicated(name, name, container=name) for name in initializers), node]
    for replicated in replicated_jobs:
        # Trainer refuses a TrainJob with initializers whose containers do not mount a volume of this name.
        pod_spec = replicated["template"]["spec"]["template"]["spec"]
        pod_spec["volumes"] = [{"name": "initializer", "emptyDir": {}}]
        pod_spec["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]
    return _runtime("torch-initialized", {"torch": {}}, replicated_jobs)


def prepared_runtime() -> Body:
    """`policies/runtime-prepared.yaml`."""
    return _load("runtime-prepared.yaml")


def joined_runtime() -> Body:
    """`policies/runtime-joined-probe.yaml`: Ready means that the rank has joined."""
    return _load("runtime-joined-probe.yaml")


def native_runtime() -> Body:
    """The prepared runtime with a user's policies: exit code 42 fails the Job, and the JobSet may restart once."""
    body = _load("runtime-prepared.yaml")
    body["metadata"]["name"] = "torch-native"
    jobset = body["spec"]["template"]["spec"]
    jobset["failurePolicy"] = {"maxRestarts": 1}
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "node", "operator": "In", "values": [42]}}
    jobset["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] = {"rules": [rule]}
    return body


def _load(name: str) -> Body:
    return copy.deepcopy(_read(name))


@cache
def _read(name: str) -> Body:
    body: Body = yaml.safe_load((_policies() / name).read_text())
    return body


def _policies() -> Path:
    """The folder of the policies: beside this file in an installed wheel, else at the repository's root."""
    packaged = Path(__file__).parent / "policies"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "policies"


def _runtime(name: str, source: Body, replicated_jobs: list[Body]) -> Body:
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": CLUSTER_TRAINING_RUNTIMES.kind,
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": 1, **source},
            "template": {"spec": {"replicatedJobs": replicated_jobs}},
        },
    }


def _replicated(name: str, ancestor: str, *, container: str = "node") -> Body:
    template: Body = {"spec": {"template": {"spec": {"containers": [{"name": container, "image": _IMAGE}]}}}}
    if ancestor:
        template["metadata"] = {"labels": {_ANCESTOR: ancestor}}
    return {"name": name, "template": template}
