"""The on-call verbs and the kubectl plugin on a real API server, without a controller that answers.

Everything runs as a person runs it: in its own process, or by a real kubectl that finds the plugin on the PATH.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.acts import PAUSED
from tests.cluster.controller_record import Ended, recovery
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.kubectl import run_kubectl
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Object, apply, policy, train_job

pytestmark = pytest.mark.central

SUSPENDED_BY = "recovery.trainjob.dev/suspended-by"
RESUME_AT = "recovery.trainjob.dev/resume-at"
OURS = {SUSPENDED_BY: "incident-1", RESUME_AT: "2020-01-01T09:03:10Z"}


def bare_job_set(name: str) -> Object:
    container = {"name": "worker", "image": "nobody-pulls-it"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "worker", "template": {"spec": {"template": pod}}}]},
    }


class Scene:
    """A namespace with a TrainJob and a bare JobSet, and a command line."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self.namespace = namespace

    async def prepare(self, *more: Object) -> "Scene":
        await apply(self._control_plane, self.namespace, train_job("llm", ranks=2), bare_job_set("raw"), *more)
        return self

    async def run(self, *arguments: str) -> Ended:
        return await recovery(*arguments, *self.where)

    @property
    def where(self) -> tuple[str, ...]:
        return ("-n", self.namespace, "--kubeconfig", str(self._control_plane.kubeconfig))

    async def get(self, name: str) -> Object:
        kind = "trainjob" if name == "llm" else "jobset"
        said = await self._control_plane.kubectl("get", kind, name, "-n", self.namespace, "-o", "json")
        found: Object = json.loads(said)
        return found

    async def annotations(self, name: str) -> Object:
        found: Object = (await self.get(name))["metadata"].get("annotations", {})
        return found

    async def suspend(self, name: str, **annotations: str) -> None:
        kind = "trainjob" if name == "llm" else "jobset"
        body = json.dumps({"metadata": {"annotations": annotations}, "spec": {"suspend": True}})
        await self._control_plane.kubectl("patch", kind, name, "-n", self.namespace, "--type=merge", "-p", body)


async def test_pause_and_resume_annotate_either_kind(installed: ControlPlane, namespace: str) -> None:
    scene = await Scene(installed, namespace).prepare()
    paused = await scene.run("pause", "llm", "raw", "--reason", "net work")
    assert (paused.exit_code, paused.err) == (0, "")
    titles = [line.partition(":")[0] for line in paused.out.splitlines()]
    assert titles == [f"TrainJob {namespace}/llm is paused", f"JobSet {namespace}/raw is paused"]
    for name in ("llm", "raw"):
        assert (await scene.annotations(name))[PAUSED] == "net work"
    resumed = await scene.run("resume", "llm", "raw", "rat")
    assert resumed.exit_code == 1
    assert resumed.err == (
        f"recovery: there is no TrainJob or JobSet 'rat' in namespace '{namespace}'; did you mean raw?\n"
    )
    for name in ("llm", "raw"):
        assert PAUSED not in await scene.annotations(name)


async def test_resume_all_releases_what_the_controller_has_suspended_and_nothing_else(
    installed: ControlPlane, namespace: str
) -> None:
    scene = await Scene(installed, namespace).prepare()
    await scene.suspend("llm", **{**OURS, PAUSED: "mine"})
    await scene.suspend("raw")
    listed = await scene.run("status")
    assert "overdue: resumes 2020-01-01T09:03:10Z or recovery resume llm" in listed.out

    released = await scene.run("resume", "--all")
    assert (released.exit_code, released.err) == (0, "")
    assert released.out == f"TrainJob {namespace}/llm: the suspension by incident incident-1 is released\n"
    job = await scene.get("llm")
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["annotations"][PAUSED] == "mine"
    assert not {SUSPENDED_BY, RESUME_AT} & set(job["metadata"]["annotations"])
    assert (await scene.get("raw"))["spec"]["suspend"] is True

    again = await scene.run("resume", "--all")
    assert (again.exit_code, again.out) == (0, f"nothing in namespace {namespace} is suspended by the controller\n")


async def test_a_restart_that_no_one_answers_says_so_and_one_that_would_be_refused_is_not_written(
    installed: ControlPlane, namespace: str
) -> None:
    scene = await Scene(installed, namespace).prepare(policy(mode="Observe"))
    observed = await scene.run("restart", "llm", "--reason", "stuck")
    assert (observed.exit_code, observed.out) == (1, "")
    assert "restart is refused: policy default is in mode Observe" in observed.err
    assert "recovery.trainjob.dev/restart" not in await scene.annotations("llm")

    forced = await scene.run("restart", "llm", "--reason", "stuck", "--force", "--wait", "1")
    assert (forced.exit_code, forced.out) == (1, "")
    assert "no answer to restart within 1 s: is a controller running?" in forced.err
    request = json.loads((await scene.annotations("llm"))["recovery.trainjob.dev/restart"])
    assert (request["reason"], request["force"], bool(request["by"])) == ("stuck", True, True)

    explained = await scene.run("explain", "llm", "-o", "json")
    [pending] = json.loads(explained.out)["pendingRequests"]
    assert (pending["verb"], pending["reason"]) == ("restart", "stuck")


async def test_status_watches_until_ctrl_c(installed: ControlPlane, namespace: str) -> None:
    scene = await Scene(installed, namespace).prepare()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recovery.cli.entry", "status", "--watch", "-o", "wide", *scene.where),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent(),
    )
    assert process.stdout is not None
    async with asyncio.timeout(GUARD_SECONDS):
        before = [(await process.stdout.readline()).decode().split()[0] for _ in range(3)]
        assert before == ["JOB", "llm", "raw"]
        await scene.run("pause", "raw")
        changed = (await process.stdout.readline()).decode()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (changed.split()[0], "(paused)" in changed) == ("raw", True)
    assert (process.returncode, out) == (130, b"")
    warning, interrupted = err.splitlines()
    assert warning.startswith(b"recovery: no controller leads"), "none runs in this test"
    assert interrupted == b"recovery: interrupted"


async def test_kubectl_finds_the_plugin_and_completes_for_it(
    installed: ControlPlane, toolbox: Toolbox, namespace: str, tmp_path: Path
) -> None:
    await Scene(installed, namespace).prepare()
    environment = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.defpath)),
        "KUBECONFIG": str(installed.kubeconfig),
        "HOME": str(tmp_path),
    }

    async def kubectl(*arguments: str) -> list[str]:
        said = await run_kubectl(toolbox.binary("kubectl"), environment, arguments, None, 60.0)
        return said.splitlines()

    header, *rows = await kubectl("recovery", "status", "-n", namespace)
    assert (header.split()[0], [row.split()[0] for row in rows]) == ("JOB", ["llm", "raw"])
    assert "Usage: kubectl recovery explain [OPTIONS] {JOB}" in await kubectl("recovery", "explain", "--help")
    # The last line is cobra's directive: no files.
    assert await kubectl("__complete", "recovery", "st") == ["status\tList jobs and their state.", ":4"]
    assert await kubectl("__complete", "recovery", "explain", "-n", namespace, "") == ["llm", "raw", ":4"]
    assert await kubectl("__complete", "recovery", "status", "-n", namespace[:-3]) == [namespace, ":4"]
