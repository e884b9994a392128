"""The component `manifests/components/agent` on a real control plane: its parameters, and what it makes of a Job."""

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Object, apply, train_job

IMAGE = "registry.example/trainjob-recovery-agent@sha256:" + "0" * 64
URL = "https://recovery-agent.recovery-system.svc:443"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nnot read here\n-----END CERTIFICATE-----\n"
ENABLED = "recovery.trainjob.dev/agent"
COMMAND = ["torchrun", "/work/train.py"]
FOLDER = "/opt/recovery-agent"
TOKENS = "/var/run/secrets/recovery.trainjob.dev/agent"
PREFIX = ["/bin/sh", "-c", f'PYTHONPATH={FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}; export PYTHONPATH; exec "$0" "$@"']
RANK = {"name": "PET_NODE_RANK", "value": "0"}


async def labelled_namespace(control_plane: ControlPlane, prefix: str, *, enabled: bool = True) -> str:
    """A new namespace, whose jobs get the agent if `enabled`."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    labels = {ENABLED: "enabled"} if enabled else {}
    await apply(
        control_plane,
        None,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
    )
    return name


async def set_parameters(control_plane: ControlPlane, **data: str) -> None:
    """Apply the ConfigMap with these keys over those of a complete one."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "recovery-agent", "namespace": "recovery-system"},
        "data": {"image": IMAGE, "url": URL, "ca.crt": AUTHORITY, **data},
    }
    await apply(control_plane, None, body)


async def switch_off(control_plane: ControlPlane) -> None:
    """Delete the parameters. The policy stays: the API server would not read them again for another one."""
    await control_plane.kubectl("delete", "configmap", "recovery-agent", "-n", "recovery-system", "--ignore-not-found")


def job(job_set: str = "llm", /, **container: Any) -> Object:
    """The Job of a JobSet of Trainer, as JobSet creates it. `container`: fields of the container `node`."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job_set,
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
    }
    fields = {"name": "node", "image": "pytorch", "command": COMMAND, "env": [RANK], **container}
    fields = {key: value for key, value in fields.items() if value is not None}
    pods = {"restartPolicy": "Never", "containers": [fields]}
    spec = {"suspend": True, "completionMode": "Indexed", "completions": 2, "parallelism": 2}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{job_set}-node-0", "labels": labels},
        "spec": {**spec, "template": {"metadata": {}, "spec": pods}},
    }


def torchrun_job(name: str, **metadata: Any) -> Object:
    """A TrainJob of two nodes whose command is torchrun."""
    made = train_job(name, ranks=2)
    made["spec"]["trainer"] = {"numNodes": 2, "command": COMMAND}
    made["metadata"].update(metadata)
    return made


def runtime_patch(**pods: Any) -> Object:
    """The patch of an owner that sets these fields in the pods of the training."""
    job_patch = {"name": "node", "template": {"spec": {"template": {"spec": pods}}}}
    return {
        "manager": "team.example/own",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job_patch]}}},
    }


def service_account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


async def admitted(control_plane: ControlPlane, namespace: str, body: Object) -> Object:
    """What the API server would store. Nothing is stored."""
    asked = ("create", "--dry-run=server", "-n", namespace, "-o", "json", "-f", "-")
    found: Object = json.loads(await control_plane.kubectl(*asked, stdin=json.dumps(body)))
    return found


def has_agent(made: Object) -> bool:
    return any(volume["name"] == "recovery-agent" for volume in made["spec"]["template"]["spec"].get("volumes", []))


async def settles(control_plane: ControlPlane, namespace: str, holds: Callable[[Object], bool]) -> Object:
    """Dry-run the usual Job until this holds: the API server notices policies and parameters late."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not holds(made := await admitted(control_plane, namespace, job("probe"))):
            await asyncio.sleep(0.2)
    return made


def node(made: Object) -> Object:
    """The container `node` of a Job."""
    [found] = [each for each in made["spec"]["template"]["spec"]["containers"] if each["name"] == "node"]
    return dict(found)
