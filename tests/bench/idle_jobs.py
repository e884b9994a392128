"""How much memory the controller uses for a job that needs nothing from it.

Suspended TrainJobs without a policy, each with its JobSet and its Job, on a real control plane. Each row has its own
controller, measured before and after the jobs exist. The ratio compares the growth with the JSON of the three objects
as the API server lists them, so it does not depend on how large a TrainJob is.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from recovery.ports import ApiClient
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.idle_jobs import KINDS, idle_jobs, objects, until_quiet
from tests.cluster.scene import ControllerProcess, Fleet, install

COUNTS = (100, 500)


@dataclass
class Row:
    """The measurements of one controller."""

    jobs: int
    grown_bytes: int
    """Growth of its resident memory."""
    json_bytes: int
    """Size of all the objects."""

    @property
    def bytes_per_job(self) -> float:
        return self.grown_bytes / self.jobs

    @property
    def of_json(self) -> float:
        return self.grown_bytes / self.json_bytes


def _tell(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S}  {text}", file=sys.stderr, flush=True)


def _resident_bytes(process: ControllerProcess) -> int:
    """Its resident memory now, as the kernel reports it."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) * 1024


async def _json_bytes(api: ApiClient, namespace: str) -> int:
    found = [each for resource in KINDS for each in await objects(api, resource, namespace)]
    return sum(len(json.dumps(each, separators=(",", ":"))) for each in found)


async def _row(control_plane: ControlPlane, api: ApiClient, count: int, folder: Path) -> Row:
    namespace = f"bench-idle-{count}"
    await control_plane.kubectl("create", "namespace", namespace)
    account = await control_plane.kubeconfig_for_service_account("recovery-system", "recovery-controller")
    async with ControllerProcess.running(account, folder / f"{namespace}.log") as process:
        await until_quiet(process)
        before_bytes = _resident_bytes(process)
        async with idle_jobs(api, namespace, count):
            await until_quiet(process)
            return Row(count, _resident_bytes(process) - before_bytes, await _json_bytes(api, namespace))


def table(rows: list[Row]) -> str:
    """A Markdown table for the README."""
    lines = ["| jobs | MB more | bytes per job | of their JSON |", "|---|---|---|---|"]
    lines += [
        f"| {row.jobs} | {row.grown_bytes / 2**20:.1f} | {row.bytes_per_job:.0f} | {row.of_json:.2f} |" for row in rows
    ]
    return "\n".join(lines)


async def measure() -> list[Row]:
    """All rows. Builds the control plane, which needs Go."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        async with ControlPlane.start() as control_plane:
            await install(control_plane)
            async with Fleet.running(control_plane, nodes=1) as fleet:
                for count in COUNTS:
                    _tell(f"{count} idle jobs")
                    rows.append(await _row(control_plane, fleet.api, count, Path(folder)))
                    _tell(table(rows[-1:]).splitlines()[-1])
    return rows
