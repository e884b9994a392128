"""`python -m tests.cluster.real_nodes` (`make cluster REAL_NODES=3`): a cluster of real nodes in the foreground."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tests.cluster.controlplane.build import CONTROL_PLANE, REAL_NODES, BuildError, Toolbox, provide
from tests.cluster.controlplane.foreground import Foreground, serve
from tests.cluster.controlplane.processes import ControlPlaneError
from tests.cluster.real_nodes.images import BUSYBOX_IMAGE
from tests.cluster.real_nodes.network import NetworkError, enter_network
from tests.cluster.real_nodes.preconditions import missing_preconditions
from tests.cluster.real_nodes.start import GPUS, RealCluster

NODES_MAX = 9
"""The address of a node has one digit for its number."""


@asynccontextmanager
async def _cluster(toolbox: Toolbox, nodes: int) -> AsyncIterator[Foreground]:
    async with RealCluster.start(nodes=nodes, toolbox=toolbox) as cluster:
        yield Foreground(partial(_how_to_use, cluster, toolbox), cluster.check)


def _how_to_use(cluster: RealCluster, toolbox: Toolbox, seconds: float) -> str:
    return (
        f"The cluster is ready after {seconds:.1f} s: Kubernetes, JobSet, Trainer, {len(cluster.nodes)} real nodes.\n"
        f"It has a network of its own. In another terminal, as root:\n\n"
        f"  nsenter --net=/proc/{os.getpid()}/ns/net bash\n"
        f"  export KUBECONFIG={cluster.control_plane.kubeconfig}\n"
        f'  export PATH="$PATH:{toolbox.binary("kubectl").parent}"  # a kubectl, for who has none\n'
        f"  kubectl run try --image={BUSYBOX_IMAGE} -- sleep 3600\n\n"
        f"Nodes: {cluster.nodes[0].name} to {cluster.nodes[-1].name}, said to have {GPUS} GPUs each. They reach no\n"
        f"registry; the image they have is {BUSYBOX_IMAGE}.\n"
        f"Logs: {cluster.control_plane.log_folder}, and {cluster.nodes[0].plan.logs} of each node\n"
        f"Ctrl-C ends it; nothing of it is kept."
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= NODES_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes from 1 to {NODES_MAX}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.real_nodes", description=__doc__)
    parser.add_argument("--nodes", type=_count, default=3, metavar="COUNT", help="how many (default: 3)")
    arguments = parser.parse_args()
    missing = missing_preconditions()
    if missing:
        print("\n".join(("This machine cannot have real nodes:", *missing)), file=sys.stderr)
        return 1
    try:
        toolbox = provide(lambda line: print(line, flush=True), (*CONTROL_PLANE, *REAL_NODES))
        enter_network()
        return asyncio.run(serve(_cluster(toolbox, arguments.nodes)))
    except (BuildError, ControlPlaneError, NetworkError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while building
        return 130


if __name__ == "__main__":
    sys.exit(main())
