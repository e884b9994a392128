"""`python -m tests.cluster.controlplane` (`make cluster`): one control plane in the foreground, to use with kubectl."""

import argparse
import asyncio
import signal
import sys
import time

from tests.cluster.controlplane.build import BuildError, Toolbox, provide
from tests.cluster.controlplane.processes import ControlPlaneError
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings

_WATCH_SECONDS = 1.0


async def _serve(toolbox: Toolbox, settings: ControlPlaneSettings) -> int:
    """Ends with 0 once it ran and was told to end, with 128 + signal when it was told so while starting."""
    running = False
    told: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def end(by: signal.Signals) -> None:
        if not told:
            told.append(by)
            task.cancel()

    for by in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(by, end, by)
    began = time.monotonic()
    try:
        async with ControlPlane.start(settings, toolbox) as control_plane:
            running = True
            print(_how_to_use(control_plane, toolbox, time.monotonic() - began), flush=True)
            while True:
                await asyncio.sleep(_WATCH_SECONDS)
                control_plane.check_processes()
    except asyncio.CancelledError:
        return 0 if running else 128 + told[0]


def _how_to_use(control_plane: ControlPlane, toolbox: Toolbox, seconds: float) -> str:
    return (
        f"The control plane is ready after {seconds:.1f} s. In another terminal:\n\n"
        f"  export KUBECONFIG={control_plane.kubeconfig}\n"
        f"  {toolbox.binary('kubectl')} get clustertrainingruntimes\n\n"
        f"It has no nodes: pods stay Pending until somebody plays the kubelets.\n"
        f"Logs: {control_plane.log_folder}\n"
        f"Ctrl-C ends it; nothing of it is kept."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.controlplane", description=__doc__)
    parser.add_argument(
        "--stock",
        action="store_true",
        help="leave controller-manager and scheduler their default request limits, 20 and 50 a second",
    )
    arguments = parser.parse_args()
    settings = ControlPlaneSettings(request_limits="stock" if arguments.stock else "raised")
    try:
        toolbox = provide(lambda line: print(line, flush=True))
        return asyncio.run(_serve(toolbox, settings))
    except (BuildError, ControlPlaneError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while building
        return 130


if __name__ == "__main__":
    sys.exit(main())
