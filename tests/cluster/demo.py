"""`make demo`: a 128-GPU training on a real control plane loses a pod, and the controller brings the group back.

Kubernetes, JobSet and Trainer are the real programs; the 16 nodes and the training are modelled. The exit code is 0
only if the model itself, not our status, says that all ranks trained past the step they had reached before the failure.
"""

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recovery.sim.training.rounds import TrainingSettings
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.controlplane.build import provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import ControllerProcess, Fleet, Job, apply, install, policy, train_job

RANKS = 16
GPUS_PER_RANK = 8
NAMESPACE = "default"
_console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def _say(text: str) -> None:
    _console.print(f"[dim]{datetime.now():%H:%M:%S.%f}"[:-3] + f"[/dim]  {text}")


async def _show_changes(job: Job) -> None:
    """The job as its SRE sees it: one line for each change."""
    before = ""
    while True:
        ledger = await job.ledger()
        states = job.fleet.world.ranks(job.training)
        ranks = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        phase, idle = ledger.get("phase", "Healthy"), ledger.get("idleGPUs", 0)
        line = f"phase [bold]{phase:<11}[/bold] idle GPUs {idle:>3}  ranks: {ranks}"
        if line != before:
            _say(f"{line}  step {job.fleet.world.step_of(job.training)}")
            before = line
        await asyncio.sleep(0.1)


async def _demonstrate(control_plane: ControlPlane, folder: Path) -> bool:
    _say("applying the manifests, a TrainJob of 16 nodes x 8 GPUs, and a policy: mode Enforce, 5 s grace for old pods")
    await install(control_plane)
    rules = policy(teardown={"graceSeconds": 5})
    await apply(control_plane, NAMESPACE, rules, train_job("train", ranks=RANKS, gpus=GPUS_PER_RANK))
    training = TrainingSettings(step_seconds=0.1, checkpoint_every_steps=20)
    async with (
        Fleet.running(control_plane, nodes=RANKS, training=training) as fleet,
        ApiProxy.running(control_plane) as proxy,
        ControllerProcess.running(proxy.write_kubeconfig(folder / "kubeconfig"), folder / "controller.log"),
    ):
        job = Job(control_plane, fleet, NAMESPACE, "train", RANKS)
        await job.trains(past=30)
        victim = await job.pod_of_rank(5)
        step, killed_at = fleet.world.step_of(job.training), fleet.clock.now()
        _say(f"all {RANKS} ranks train and have reached step {step}; now [red]kubectl delete pod {victim}[/red]")
        watching = asyncio.create_task(_show_changes(job))
        await control_plane.kubectl("delete", "pod", "-n", NAMESPACE, victim, "--wait=false")
        try:
            history = await job.closed_incidents(1, timeout_seconds=120)
            await job.trains(past=step, timeout_seconds=120)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        passed = fleet.world.passed(job.training, step, killed_at)
        incidents = (await job.get("recoveryincidents"))["items"]
        # The controller checks its own permissions by POST requests that write nothing.
        _show_incident(incidents[0]["spec"], proxy.writes(lambda seen: seen.resource != "selfsubjectaccessreviews"))
        _say(history[0]["message"])
        verdict = "[green]recovered[/green]" if passed else "[red]not recovered[/red]"
        now = fleet.world.step_of(job.training)
        _say(f"the training model's own trace: step {step} before the failure, now {now}: {verdict}")
        return passed


def _show_incident(incident: dict[str, Any], writes: list[SeenRequest]) -> None:
    table = Table(
        title=f"Incident {incident['id']}: {incident['cause']} -> {incident['outcome']}", title_justify="left"
    )
    for column in ("phase", "seconds", "idle GPU-seconds"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    total = 0.0
    for span in incident["phases"]:
        seconds = (_time(span["endedAt"]) - _time(span["startedAt"])).total_seconds()
        total += seconds
        table.add_row(span["phase"], f"{seconds:.2f}", f"{span.get('idleGpuSeconds', 0.0):.0f}")
    table.add_section()
    table.add_row("in all", f"{total:.2f}", f"{incident['idleGpuSeconds']:.0f}")
    _console.print(table)
    counts = Counter(f"{write.method} {write.resource}" for write in writes)
    _say("API writes of the controller: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def _main() -> int:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, me.cancel)
    toolbox = provide()
    _say("starting etcd, kube-apiserver, controller-manager, scheduler, JobSet and Trainer")
    with tempfile.TemporaryDirectory(prefix="recovery-demo-") as folder:
        async with ControlPlane.start(ControlPlaneSettings(request_limits="raised"), toolbox) as control_plane:
            return 0 if await _demonstrate(control_plane, Path(folder)) else 1


def main() -> None:
    """Exit codes: 0 recovered, 1 not recovered, 130 interrupted."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(asyncio.run(_main()))
    sys.exit(130)


if __name__ == "__main__":
    main()
