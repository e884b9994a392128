"""The control plane of the cluster suite is a real one, and leaves nothing behind however it ends."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import build
from tests.cluster.controlplane.build import BuildError, Toolbox, provide
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.processes import ControlPlaneError
from tests.cluster.controlplane.programs import CONTROLLER_MANAGER, SCHEDULER
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.patience import GUARD_SECONDS

pytestmark = pytest.mark.central

REPOSITORY = Path(__file__).resolve().parents[2]


def train_job(name: str, nodes: int) -> str:
    return json.dumps(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": nodes, "image": "none"}},
        }
    )


async def listed(control_plane: ControlPlane, namespace: str, kind: str) -> list[Any]:
    answer = await control_plane.kubectl("get", kind, "-n", namespace, "-o", "json")
    items: list[Any] = json.loads(answer)["items"]
    return items


async def until(condition: Callable[[], Awaitable[bool]], timeout_seconds: float = GUARD_SECONDS) -> None:
    async with asyncio.timeout(timeout_seconds):
        while not await condition():
            await asyncio.sleep(0.1)


def processes_naming(folder: Path) -> list[str]:
    """Command lines of running processes that mention the folder. Zombies do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


async def test_a_train_job_becomes_a_job_set_a_job_and_pods(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("create", "-n", namespace, "-f", "-", stdin=train_job("llm", nodes=3))

    async def three_pods() -> bool:
        return len(await listed(control_plane, namespace, "pods")) == 3

    await until(three_pods)
    assert [item["metadata"]["name"] for item in await listed(control_plane, namespace, "jobsets")] == ["llm"]
    [job] = await listed(control_plane, namespace, "jobs")
    assert job["metadata"]["name"] == "llm-node-0"
    for pod in await listed(control_plane, namespace, "pods"):
        # The shipped runtime and the webhooks set these.
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        assert {variable["name"] for variable in pod["spec"]["containers"][0]["env"]} >= {"PET_NNODES", "PET_NODE_RANK"}


async def test_the_control_plane_has_the_version_that_the_run_names(control_plane: ControlPlane) -> None:
    """Otherwise ready-made programs of another version would pass as this one."""
    versions = json.loads(await control_plane.kubectl("version", "-o", "json"))
    running = {versions[part]["gitVersion"] for part in ("clientVersion", "serverVersion")}
    chosen = os.environ.get(build.KUBERNETES_VERSION)
    wanted = f"v{chosen}." if chosen else build.KUBERNETES.version
    assert [version for version in running if not version.startswith(wanted)] == []


async def test_a_service_account_has_its_own_rights_only(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    kubeconfig = await control_plane.kubeconfig_for_service_account(namespace, "reader")
    get_pods = ("get", "pods", "-n", namespace, f"--kubeconfig={kubeconfig}")
    with pytest.raises(KubectlError, match=f"system:serviceaccount:{namespace}:reader.*cannot list"):
        await control_plane.kubectl(*get_pods)
    binding = ("create", "rolebinding", "reader", "--clusterrole=view", f"--serviceaccount={namespace}:reader")
    await control_plane.kubectl(*binding, "-n", namespace)

    async def may_read() -> bool:
        try:
            await control_plane.kubectl(*get_pods)
        except KubectlError:
            return False
        return True

    await until(may_read)


async def test_a_restarted_apiserver_keeps_its_port_and_data(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("create", "-n", namespace, "-f", "-", stdin=train_job("before", nodes=1))
    await control_plane.restart_apiserver()
    await control_plane.kubectl("create", "-n", namespace, "-f", "-", stdin=train_job("after", nodes=1))

    async def both_have_pods() -> bool:
        return len(await listed(control_plane, namespace, "pods")) == 2

    await until(both_have_pods)


async def test_nothing_is_left_after_the_end(toolbox: Toolbox) -> None:
    async with ControlPlane.start(ControlPlaneSettings(request_limits="stock"), toolbox) as running:
        folder, server = running.folder, running.server
        pids = [process.pid for process in running.processes.values() if process.pid]
        assert len(pids) == 6
        for name in (CONTROLLER_MANAGER, SCHEDULER):
            assert not any("qps" in argument for argument in running.processes[name].command)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(server.rpartition(":")[2]))


@pytest.mark.parametrize("broken", ["etcd", "jobset"])
async def test_a_failed_start_says_who_failed_and_leaves_nothing(
    broken: str, toolbox: Toolbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "manifests").symlink_to(toolbox.folders[broken] / "manifests")
    (folder / broken).write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    (folder / broken).chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(ControlPlaneError, match=rf"(?s)^{broken} \(process \d+\) ended with 3.*out of luck"):
        async with ControlPlane.start(toolbox=Toolbox(toolbox.folders | {broken: folder})):
            pytest.fail("it must not start")
    assert list(temporary.iterdir()) == []
    assert processes_naming(temporary) == []


async def in_the_foreground(temporary: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.cluster.controlplane"),
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("told_by", [signal.SIGINT, signal.SIGTERM])
async def test_the_foreground_one_ends_when_told(told_by: signal.Signals, toolbox: Toolbox, tmp_path: Path) -> None:
    process = await in_the_foreground(tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(GUARD_SECONDS):
        while b"export KUBECONFIG=" not in await process.stdout.readline():
            assert not process.stdout.at_eof()
    process.send_signal(told_by)
    assert await asyncio.wait_for(process.wait(), GUARD_SECONDS) == 0
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(tmp_path) == []


async def test_no_process_outlives_a_killed_parent(toolbox: Toolbox, tmp_path: Path) -> None:
    process = await in_the_foreground(tmp_path)

    async def all_run() -> bool:
        return len(processes_naming(tmp_path)) >= 6

    async def none_runs() -> bool:
        return not processes_naming(tmp_path)

    await until(all_run)
    process.kill()
    await process.wait()
    await until(none_runs)


def test_a_missing_ready_made_binary_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        (tmp_path / name).touch()
    monkeypatch.setenv(build.READY_MADE, str(tmp_path))
    with pytest.raises(BuildError, match="lacks: kube-scheduler, jobset, manifests/jobset/config"):
        provide()


def test_a_suite_without_prometheus_needs_no_binary_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [path for tool in build.CONTROL_PLANE for path in tool.missing_from(tmp_path)]
    for path in wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv(build.READY_MADE, str(tmp_path))
    assert provide().binary("etcd") == tmp_path / "etcd"
    with pytest.raises(BuildError, match="lacks: prometheus, promtool, kube-state-metrics"):
        provide(tools=build.TOOLS)


def test_a_kubernetes_that_has_no_module_here_is_not_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.READY_MADE, raising=False)
    monkeypatch.setenv(build.CACHE, str(tmp_path))
    monkeypatch.setenv(build.KUBERNETES_VERSION, "1.99")
    with pytest.raises(BuildError, match=r"RECOVERY_CLUSTER_KUBERNETES=1\.99 has no folder .*; there are: 1\.37"):
        provide(tools=(build.KUBERNETES,))


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules, cache = tmp_path / "modules", tmp_path / "cache"
    (modules / "etcd").mkdir(parents=True)
    (modules / "etcd" / "go.mod").write_text("require go.etcd.io/etcd/server/v3 v3.0.0\nthis is no go.mod\n")
    (modules / "etcd" / "go.sum").touch()
    monkeypatch.setattr(build, "MODULES", modules)
    monkeypatch.setenv(build.CACHE, str(cache))
    monkeypatch.delenv(build.READY_MADE, raising=False)
    with pytest.raises(BuildError, match=r"(?s)`go build` in .*etcd ended with 1.*go.mod:2"):
        provide()
    assert [path.name for path in cache.iterdir()] == ["etcd.lock"]


def test_a_version_that_an_edit_does_not_fit_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Kueue would look for its certificates in a folder of the machine."""
    module, source = tmp_path / "modules" / "kueue", tmp_path / "source" / "cmd" / "kueue"
    module.mkdir(parents=True)
    source.mkdir(parents=True)
    (module / "go.mod").write_text("require sigs.k8s.io/kueue v0.99.0\n")
    (module / "go.sum").touch()
    (source / "main.go").write_text("package main\n")
    monkeypatch.setattr(build, "MODULES", tmp_path / "modules")
    monkeypatch.setattr(build, "_go", lambda *_: str(tmp_path / "source"))
    monkeypatch.setenv(build.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(build.READY_MADE, raising=False)
    with pytest.raises(BuildError, match=r"cmd/kueue/main.go of sigs.k8s.io/kueue v0.99.0 .* adapt its Edit"):
        provide(tools=(build.KUEUE,))
