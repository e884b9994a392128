"""Objects as users write them, for the expectations. Every pod asks for a GPU unless it names its node."""

from typing import Any

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import Resource
from tests.contract.scene import Object
from tests.contract.workload import OBEDIENT

TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
SHIPPED_RUNTIME = "torch-distributed"


def pod_spec(
    image: str = OBEDIENT, *, restart: str = "Never", grace_seconds: int = 1, node: str = "", tolerated_seconds: int = 2
) -> Object:
    """`node`: one of the scene's own nodes. `tolerated_seconds`: how long the pod stays on a lost node."""
    container: Object = {"name": "node", "image": image}
    spec: Object = {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [container],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{lost}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": tolerated_seconds,
            }
            for lost in ("not-ready", "unreachable")
        ],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    else:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    return spec


def pod(name: str, *, finalizers: tuple[str, ...] = (), labels: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "finalizers": list(finalizers), "labels": labels or {}}
    return {"metadata": metadata, "spec": pod_spec(**spec)}


def job_spec(pods: int, *, pod: Object | None = None, **fields: Any) -> Object:
    """Indexed, `pods` is parallelism and completions. `pod`: arguments of `pod_spec`. `fields`: more of the spec."""
    template = {"spec": pod_spec(**(pod or {}))}
    whole = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
    return {**whole, **fields}


def job(name: str, pods: int, *, pod: Object | None = None, **fields: Any) -> Object:
    return {"metadata": {"name": name}, "spec": job_spec(pods, pod=pod, **fields)}


def job_set(name: str, jobs: dict[str, Object], *, parts: dict[str, Object] | None = None, **fields: Any) -> Object:
    """`jobs`: the Job spec of each ReplicatedJob, by name. `parts`: further fields of some ReplicatedJobs, by name."""
    replicated = [
        {"name": each, "template": {"spec": spec}, **(parts or {}).get(each, {})} for each, spec in jobs.items()
    ]
    return {"metadata": {"name": name}, "spec": {"replicatedJobs": replicated, **fields}}


def train_job(name: str, pods: int, *, runtime: str = SHIPPED_RUNTIME, image: str = "") -> Object:
    """`image`: empty for the runtime's image."""
    gpu = {"nvidia.com/gpu": "1"}
    trainer: Object = {"numNodes": pods, "resourcesPerNode": {"limits": gpu, "requests": gpu}}
    trainer |= {"image": image} if image else {}
    return {"metadata": {"name": name}, "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer}}


def runtime(name: str, spec: Object, **fields: Any) -> Object:
    """A ClusterTrainingRuntime for torch. Its only ReplicatedJob has this Job spec. `fields`: more of the JobSet's."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    replicated = {"name": "node", "template": {"metadata": {"labels": step}, "spec": spec}}
    return {
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [replicated], **fields}},
        },
    }


def recovery_policy(name: str = "default", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def recovery_group(name: str = "llm") -> Object:
    """A RecoveryGroup as the controller creates it. The server accepts the status only in a second write."""
    workload = {"kind": "TrainJob", "name": "llm", "uid": "0b5e1a52-7f0a-4a5c-9d6e-000000000001"}
    return {
        "metadata": {"name": name},
        "spec": {"workloadRef": workload, "group": "llm"},
        "status": {"schemaVersion": SCHEMA_VERSION},
    }
