"""The loop in docs/install.md for a controller that is gone. It releases only the controller's own suspensions."""

import asyncio
import json
import os
import re
from pathlib import Path

from recovery.core.model.annotations import RESUME_AT_ANNOTATION, SUSPENDED_BY_ANNOTATION
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Object, apply, train_job

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = {SUSPENDED_BY_ANNOTATION: "llm-1", RESUME_AT_ANNOTATION: "never"}


def documented_loop() -> str:
    page = (REPOSITORY / "docs" / "install.md").read_text()
    [loop] = re.findall(r"^SUSPENDED=.*?^done$", page, flags=re.DOTALL | re.MULTILINE)
    return str(loop)


def a_train_job(name: str, *, suspended: bool, annotations: dict[str, str]) -> Object:
    job = train_job(name, ranks=1)
    job["metadata"]["annotations"] = annotations
    job["spec"]["suspend"] = suspended
    return job


def a_job_set(name: str) -> Object:
    container = {"name": "main", "image": "example.invalid/none"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": OURS},
        "spec": {"suspend": True, "replicatedJobs": [{"name": "node", "template": {"spec": {"template": pod}}}]},
    }


async def state(control_plane: ControlPlane, namespace: str, kind: str, name: str) -> tuple[bool, bool]:
    """Whether it is suspended, and whether it has any annotation of ours."""
    found = json.loads(await control_plane.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
    annotations = found["metadata"].get("annotations", {})
    return found["spec"]["suspend"], bool(OURS.keys() & annotations.keys())


async def run(control_plane: ControlPlane, program: Path, script: str) -> str:
    """Runs the script in a shell with that `kubectl`, on that control plane."""
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(control_plane.kubeconfig),
        "HOME": str(control_plane.folder),
    }
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-eu", "-c", script),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=die_with_parent(),
    )
    said, _ = await asyncio.wait_for(shell.communicate(), GUARD_SECONDS)
    assert shell.returncode == 0, said.decode()
    return said.decode()


async def test_the_documented_loop_releases_ours_and_nothing_else(
    control_plane: ControlPlane, toolbox: Toolbox, namespace: str
) -> None:
    await apply(
        control_plane,
        namespace,
        a_train_job("ours", suspended=True, annotations=OURS),
        a_train_job("half-marked", suspended=True, annotations={SUSPENDED_BY_ANNOTATION: "llm-2"}),
        a_train_job("resumed-by-hand", suspended=False, annotations=OURS),
        a_train_job("taken-over", suspended=True, annotations={"example.com/why": "mine"}),
        a_train_job("a-users-own", suspended=True, annotations={}),
        a_job_set("bare"),
    )
    said = await run(control_plane, toolbox.binary("kubectl"), documented_loop())
    here = [line for line in said.splitlines() if "patched" in line]
    assert len(here) == 4, said
    for kind, name in (
        ("trainjob", "ours"),
        ("trainjob", "half-marked"),
        ("trainjob", "resumed-by-hand"),
        ("jobset", "bare"),
    ):
        assert await state(control_plane, namespace, kind, name) == (False, False), name
    for name in ("taken-over", "a-users-own"):
        assert await state(control_plane, namespace, "trainjob", name) == (True, False), name
    # A second run finds nothing more.
    assert await run(control_plane, toolbox.binary("kubectl"), documented_loop()) == ""
