"""The settings of a node's programs. Anything not stated here is the program's own default."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.real_nodes import cgroups, network

PAUSE_IMAGE = "tests.local/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""In the node's own /run."""
CNI_PROGRAMS = Path("/usr/lib/cni")


@dataclass(frozen=True)
class NodePlan:
    """One node, before it is started. `number` counts from 1 and gives it its addresses."""

    number: int
    folder: Path
    kubeconfig: Path
    """It names the API server by an address that the node reaches."""
    authority: Path
    toolbox: Toolbox

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return network.node_address(self.number)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def write(self) -> Path:
        """Writes every file that the node's programs read. Returns the one for its process 1."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.folder / "resolv.conf").write_text(f"nameserver {network.CONTROL_PLANE_ADDRESS}\n")
        (self.folder / "cni").mkdir(exist_ok=True)
        (self.folder / "cni" / "10.conflist").write_text(json.dumps(_pod_network(self.number)))
        containerd = write_containerd(self.folder, self.toolbox)
        commands = {
            **containerd,
            "kubelet": [
                str(self.toolbox.binary("kubelet")),
                f"--config={self._json('kubelet.json', self._kubelet())}",
                f"--kubeconfig={self.kubeconfig}",
                f"--root-dir={self.folder / 'kubelet'}",
                f"--cert-dir={self.folder / 'kubelet-certificates'}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
            ],
            "kube-proxy": [
                str(self.toolbox.binary("kube-proxy")),
                f"--config={self._json('kube-proxy.json', self._kube_proxy())}",
                f"--hostname-override={self.name}",
            ],
        }
        return self._json(
            "init.json",
            {
                **init_settings(self.toolbox, self.logs, commands),
                "address": self.address,
                "gateway": network.CONTROL_PLANE_ADDRESS,
            },
        )

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "enforceNodeAllocatable": ["pods"],
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "address": self.address,
            "healthzBindAddress": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "oomScoreAdj": 0,
            # Disk and memory belong to the whole machine and say nothing about this node.
            "evictionHard": dict.fromkeys(
                ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
            ),
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            # With the controller-manager's grace of 8 s, a silent node is noticed after 8 s instead of 50.
            "nodeStatusUpdateFrequency": "1s",
            "nodeLeaseDurationSeconds": 4,
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "resolvConf": str(self.folder / "resolv.conf"),
            "clusterDomain": "cluster.local",
            "clusterDNS": [network.CONTROL_PLANE_ADDRESS],
        }

    def _kube_proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "bindAddress": self.address,
            "healthzBindAddress": f"{self.address}:10256",
            "metricsBindAddress": f"{self.address}:10249",
            "detectLocalMode": "ClusterCIDR",
            "clusterCIDR": network.POD_RANGE,
            # The limits of connection tracking belong to the machine.
            "conntrack": {"maxPerCore": 0, "min": 0},
            "oomScoreAdj": 0,
        }

    def _json(self, name: str, content: dict[str, Any]) -> Path:
        """JSON is YAML, so every program reads it."""
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path


def init_settings(
    toolbox: Toolbox, logs: Path, commands: dict[str, list[str]], archives: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """What init.py reads. With `archives` it imports these images into containerd, and ends."""
    return {
        "controllers": cgroups.CONTROLLERS,
        "named_hierarchy": cgroups.NAMED,
        "commands": commands,
        "logs": str(logs),
        "ctr": str(toolbox.binary("ctr")),
        "import": [str(path) for path in archives],
    }


def write_containerd(folder: Path, toolbox: Toolbox) -> dict[str, list[str]]:
    """Writes containerd's configuration. Returns its command, keyed by its name."""
    configuration = folder / "containerd.toml"
    configuration.write_text(
        _CONTAINERD.format(folder=folder, socket=CONTAINERD_SOCKET, cni=CNI_PROGRAMS, pause=PAUSE_IMAGE)
    )
    return {"containerd": [str(toolbox.binary("containerd")), f"--config={configuration}"]}


_CONTAINERD = """\
version = 3
root = '{folder}/containerd'
state = '/run/containerd'
oom_score = 0
[grpc]
  address = '{socket}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  # Without it the sandbox cannot start where CAP_SYS_RESOURCE is missing.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni}']
  conf_dir = '{folder}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def _pod_network(number: int) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": network.pod_range(number)}]]},
    }
    return {"cniVersion": "1.0.0", "name": "tests", "plugins": [bridge]}
