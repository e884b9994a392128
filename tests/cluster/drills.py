"""Runs `recovery chaos` about one job, as a person types it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from recovery.core.model.drill import NODE_MARK_ANNOTATION
from tests.cluster import chaos_table
from tests.cluster.controller_record import Ended, recovery
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import REPOSITORY, Object

EXAMPLES = REPOSITORY / "examples" / "chaos"
CONTEXT = "trainjob-recovery-tests"
"""The context of the kubeconfigs of tests, and so the name of the cluster."""


class Drills:
    """Commands about one job, as a person types them."""

    def __init__(self, control_plane: ControlPlane, namespace: str, job: str, folder: Path) -> None:
        self._control_plane = control_plane
        self.namespace = namespace
        self.job = job
        self.folder = folder

    def file(self, name: str, **changes: Any) -> str:
        """The example, about this job."""
        body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()) | changes
        body.pop("jobs", None)  # the simulator's model of the job
        body["target"] = {"job": f"{self.namespace}/{self.job}"}
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(body))
        return str(path)

    async def command(self, *arguments: str) -> Ended:
        return await recovery("chaos", *arguments, *self._where)

    @property
    def _where(self) -> tuple[str, ...]:
        return ("-n", self.namespace, "--kubeconfig", str(self._control_plane.kubeconfig))

    async def run(self, name: str, **changes: Any) -> tuple[Ended, Object]:
        """Run that example. The end of the command, and what it printed as JSON."""
        ended = await self.command("run", self.file(name, **changes), "--yes", CONTEXT, "-o", "json")
        assert ended.out, ended.err
        found: Object = json.loads(ended.out)
        return ended, found

    async def judged(self, where: str, name: str, **changes: Any) -> tuple[Ended, Object]:
        """As `run`. The figures are kept for the table of `make chaos`, under that name of the cluster."""
        ended, said = await self.run(name, **changes)
        case = said["cases"][-1] if said.get("cases") else {}
        chaos_table.keep(where, name, said["verdict"], case)
        return ended, said

    async def objects(self, kind: str) -> list[Object]:
        said = await self._control_plane.kubectl("get", kind, "-n", self.namespace, "-o", "json")
        found: list[Object] = json.loads(said)["items"]
        return found

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A run in a process of its own."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "recovery.cli.entry",
            *("chaos", "run", self.file(name), "--yes", CONTEXT),
            *self._where,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_parent(),
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def of_drills(node: Object) -> Object:
    """What a drill may change on a node."""
    conditions = [each for each in node["status"].get("conditions", []) if each["type"] == "RecoveryDrill"]
    return {
        "taints": node["spec"].get("taints", []),
        "unschedulable": node["spec"].get("unschedulable", False),
        "mark": node["metadata"].get("annotations", {}).get(NODE_MARK_ANNOTATION),
        "conditions": conditions,
    }


async def nodes(control_plane: ControlPlane) -> dict[str, Object]:
    listed = json.loads(await control_plane.kubectl("get", "nodes", "-o", "json"))["items"]
    return {each["metadata"]["name"]: of_drills(each) for each in listed}
