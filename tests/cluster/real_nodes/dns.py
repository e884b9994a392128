"""The cluster's DNS: CoreDNS beside the control plane, at the address that every pod queries."""

from pathlib import Path

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.processes import ManagedProcess
from tests.cluster.real_nodes import network

_COREFILE = """\
cluster.local:53 {{
  bind {address}
  errors
  kubernetes cluster.local {{
    kubeconfig {kubeconfig}
  }}
}}
"""


def cluster_dns(toolbox: Toolbox, folder: Path, kubeconfig: Path) -> ManagedProcess:
    """The DNS process, not started yet. Its log and configuration are in `folder`."""
    corefile = folder / "Corefile"
    corefile.write_text(_COREFILE.format(address=network.CONTROL_PLANE_ADDRESS, kubeconfig=kubeconfig))
    command = [str(toolbox.binary("coredns")), "-conf", str(corefile)]
    return ManagedProcess("coredns", command, folder / "coredns.log", {})
