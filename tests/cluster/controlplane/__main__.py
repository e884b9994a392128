"""`python -m tests.cluster.controlplane` (`make cluster`): a cluster in the foreground, to use with kubectl."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.cluster.controlplane.build import BuildError, Toolbox, provide
from tests.cluster.controlplane.foreground import Foreground, serve
from tests.cluster.controlplane.processes import ControlPlaneError
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import Fleet

TRAINING_PODS_ONLY = Path(__file__).parent / "training_pods_only.yaml"


@asynccontextmanager
async def _cluster(toolbox: Toolbox, settings: ControlPlaneSettings, nodes: int) -> AsyncIterator[Foreground]:
    async with ControlPlane.start(settings, toolbox) as control_plane, _nodes(control_plane, nodes) as fleet:

        def check() -> None:
            control_plane.check_processes()
            if fleet is not None and fleet.model.done():
                fleet.model.result()

        yield Foreground(partial(_how_to_use, control_plane, toolbox, fleet), check)


@asynccontextmanager
async def _nodes(control_plane: ControlPlane, count: int) -> AsyncIterator[Fleet | None]:
    """Models that many nodes inside the block, for trainings only. Yields None if `count` is 0."""
    if not count:
        yield None
        return
    await control_plane.kubectl("apply", "--server-side", f"--filename={TRAINING_PODS_ONLY}")
    async with Fleet.running(control_plane, nodes=count) as fleet:
        yield fleet


def _how_to_use(control_plane: ControlPlane, toolbox: Toolbox, fleet: Fleet | None, seconds: float) -> str:
    return (
        f"The cluster is ready after {seconds:.1f} s: Kubernetes, JobSet and Trainer. In another terminal:\n\n"
        f"  export KUBECONFIG={control_plane.kubeconfig}\n"
        f'  export PATH="$PATH:{toolbox.binary("kubectl").parent}"  # a kubectl, for who has none\n'
        f"  kubectl get nodes,clustertrainingruntimes\n\n"
        f"{_what_runs(fleet)}\n"
        f"Logs: {control_plane.log_folder}\n"
        f"Ctrl-C ends it; nothing of it is kept."
    )


def _what_runs(fleet: Fleet | None) -> str:
    if fleet is None:
        return "It has no nodes: pods stay Pending until someone plays the kubelets."
    return (
        f"Nodes: {fleet.nodes[0]} to {fleet.nodes[-1]}, of 8 GPUs each. They are modelled: pods of TrainJobs and\n"
        "JobSets train, though no container is started, and any other pod is refused. So the controller runs outside,\n"
        'by `recovery run`: "Install" in README.md goes from here to the first recovered job. What breaks a job:\n\n'
        "  kubectl delete pod POD    # a rank is gone, the others hang\n"
        "  kubectl drain NODE        # maintenance; kubectl uncordon NODE ends it\n"
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes like 0 or 8")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.controlplane", description=__doc__)
    parser.add_argument(
        "--stock",
        action="store_true",
        help="leave controller-manager and scheduler their default request limits, 20 and 50 a second",
    )
    parser.add_argument(
        "--nodes",
        type=_count,
        default=0,
        metavar="COUNT",
        help="how many nodes of 8 GPUs to play (default: none)",
    )
    arguments = parser.parse_args()
    settings = ControlPlaneSettings(request_limits="stock" if arguments.stock else "raised")
    try:
        toolbox = provide(lambda line: print(line, flush=True))
        return asyncio.run(serve(_cluster(toolbox, settings, arguments.nodes)))
    except (BuildError, ControlPlaneError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while building
        return 130


if __name__ == "__main__":
    sys.exit(main())
