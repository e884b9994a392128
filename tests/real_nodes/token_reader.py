"""A pod that uses its token all the time. The token lives for ten minutes, the least that the API server allows.

The controller's own pods keep the hour that Kubernetes gives them. This pod has the controller's image and its session.
"""

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.scene import REPOSITORY, apply
from tests.real_nodes.tokens import token_of

LIFETIME_SECONDS = 600
NAMESPACE = "token-reader"
NAME = "reader"
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROGRAM = Path(__file__).with_name("lists_pods.py")


class TokenReader:
    """Created by `start`."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self.first_token = ""
        self.process = 0
        """Its process id, in the machine's own PID namespace."""

    async def start(self) -> None:
        """Returns once the pod has asked the API server with its first token."""
        kubectl = self._cluster.control_plane.kubectl
        await kubectl("create", "namespace", NAMESPACE)
        await kubectl("create", "serviceaccount", NAME, "-n", NAMESPACE)
        await kubectl("create", "role", NAME, "--verb=list", "--resource=pods", "-n", NAMESPACE)
        account = f"--serviceaccount={NAMESPACE}:{NAME}"
        await kubectl("create", "rolebinding", NAME, f"--role={NAME}", account, "-n", NAMESPACE)
        await apply(self._cluster.control_plane, NAMESPACE, _pod())
        await kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", "-n", NAMESPACE, "--timeout=120s")
        self.process = (await self.processes())[0]
        self.first_token = token_of(self.process)

    async def processes(self) -> list[int]:
        pod = json.loads(await self._cluster.control_plane.kubectl("get", "pod", NAME, "-n", NAMESPACE, "-o", "json"))
        node = next(each for each in self._cluster.nodes if each.name == pod["spec"]["nodeName"])
        container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        return node.processes_of(pod["metadata"]["uid"], container)

    async def requests(self) -> list[dict[str, Any]]:
        """The lines that it has printed. The session also writes log lines, which are shown if the test fails."""
        printed = await self._cluster.control_plane.kubectl("logs", NAME, "-n", NAMESPACE)
        print(*(line for line in printed.splitlines() if not line.startswith("{")), sep="\n")
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def expires_at(token: str) -> float:
    """Seconds since the epoch, according to the token itself."""
    claims = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return float(found["exp"])


def _pod() -> dict[str, Any]:
    shipped = yaml.safe_load((REPOSITORY / "manifests/manager/deployment.yaml").read_text())["spec"]["template"]["spec"]
    [container] = shipped["containers"]
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "serviceAccountName": NAME,
            "automountServiceAccountToken": False,
            "securityContext": shipped["securityContext"],
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": container["image"],
                    "command": ["python", "-c", _PROGRAM.read_text()],
                    "volumeMounts": [{"name": "token", "mountPath": _MOUNT, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "token", "projected": {"sources": sources}}],
        },
    }
