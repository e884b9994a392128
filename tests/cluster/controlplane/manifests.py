"""The manifests of JobSet, Trainer and Kueue, changed only for managers outside a cluster: addresses and the like."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane.certificates import Certificates

SHIPPED_RUNTIME = "torch-distributed"


def webhook_configurations(
    shipped: str,
    *,
    port: int,
    certificates: Certificates,
    name_prefix: str,
    resources: Collection[str] | None = None,
) -> str:
    """The webhook configurations of a rendered kustomization, with a local port in place of the Service.

    Selectors, operations and failure policies stay as shipped. The Service itself is left out. `resources`: only the
    webhooks for these. None: all webhooks.
    """
    configurations = []
    for manifest in yaml.safe_load_all(shipped):
        if not manifest["kind"].endswith("WebhookConfiguration"):
            continue
        manifest["metadata"]["name"] = name_prefix + manifest["metadata"]["name"]
        manifest["webhooks"] = [each for each in manifest["webhooks"] if resources is None or _is_for(each, resources)]
        for webhook in manifest["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": certificates.authority_base64(),
            }
        configurations.append(manifest)
    return yaml.safe_dump_all(configurations)


def _is_for(webhook: dict[str, Any], resources: Collection[str]) -> bool:
    asked = {resource for rule in webhook["rules"] for resource in rule["resources"]}
    return not asked.isdisjoint(resources)


def jobset_configuration(
    shipped: Path, gates: Mapping[str, bool], *, webhook_port: int, health_port: int, certificates: Certificates
) -> str:
    """`gates`: feature gates that differ from their defaults."""
    configuration = _manager_configuration(shipped, webhook_port, health_port)
    configuration["featureGates"] = dict(gates)
    configuration["internalCertManagement"] = {"enable": False}
    configuration["webhook"]["certDir"] = str(certificates.serving.parent)
    return json.dumps(configuration)


def trainer_configuration(shipped: Path, *, webhook_port: int, health_port: int) -> str:
    configuration = _manager_configuration(shipped, webhook_port, health_port)
    configuration["certManagement"] = {"enable": False}
    return json.dumps(configuration)


def kueue_configuration(
    shipped: Path, *, webhook_port: int, health_port: int, certificates: Certificates, recovery_timeout: str
) -> str:
    """Kueue manages only TrainJobs and JobSets. `recovery_timeout`: how long pods of an admitted job may be not Ready
    before Kueue evicts it; it queues the job again 15 s later. Empty: Kueue's own default."""
    configuration = _manager_configuration(shipped, webhook_port, health_port)
    configuration["internalCertManagement"] = {"enable": False}
    configuration["webhook"]["certDir"] = str(certificates.serving.parent)
    configuration["integrations"] = {"frameworks": ["trainer.kubeflow.org/trainjob", "jobset.x-k8s.io/jobset"]}
    if recovery_timeout:
        again = {"backoffBaseSeconds": 15}
        configuration["waitForPodsReady"] = {"recoveryTimeout": recovery_timeout, "requeuingStrategy": again}
    return json.dumps(configuration)


def _manager_configuration(shipped: Path, webhook_port: int, health_port: int) -> dict[str, Any]:
    configuration: dict[str, Any] = yaml.safe_load(shipped.read_text())
    configuration["webhook"] = {"host": "127.0.0.1", "port": webhook_port}
    configuration["health"] = {"healthProbeBindAddress": f"127.0.0.1:{health_port}"}
    configuration["metrics"] = {"bindAddress": "0"}  # no metrics server
    configuration["leaderElection"] = {"leaderElect": False}
    return configuration


def kubeconfig(server: str, certificates: Certificates, user: dict[str, str]) -> str:
    """A kubeconfig with one user. JSON is YAML, so every client reads it."""
    name = "trainjob-recovery-tests"
    cluster = {"server": server, "certificate-authority": str(certificates.authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=1,
    )


def train_job(runtime: str, *, queue: str = "") -> str:
    """A TrainJob to try admission with. Its patch has no time, which only Trainer's mutating webhook fills in. `queue`:
    its Kueue queue. Empty: none.
    """
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return json.dumps(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "admission-check", "namespace": "default", "labels": labels},
            "spec": {
                "runtimeRef": {"name": runtime},
                "runtimePatches": [{"manager": "tests.trainjob.dev/admission-check"}],
            },
        }
    )


def job_set() -> str:
    """A JobSet to try admission with. It has no successPolicy, which only JobSet's mutating webhook fills in."""
    pod = {"spec": {"containers": [{"name": "node", "image": "none"}]}}
    return json.dumps(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "admission-check", "namespace": "default"},
            "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"template": pod}}}]},
        }
    )
