"""Fixtures of the suite: one real control plane, one fleet of modelled nodes, and a new namespace for every test.

Everything runs in one event loop for the session (pyproject.toml sets it), because the control plane would outlive the
loop of a single test.
"""

import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio

from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.training.rounds import TrainingSettings
from tests.cluster import elastic
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.controlplane.build import Toolbox, provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.scene import ControllerProcess, Fleet, Job, Object, apply, install, policy, train_job

NODES = 24
RANKS = 16
TRAINING = TrainingSettings(
    step_seconds=0.05,
    checkpoint_every_steps=20,
    # Long enough that every test ends before this timeout ends hung ranks.
    nccl_timeout_seconds=3600.0,
)
KUBELET = KubeletSettings(start_seconds=(0.05, 0.3), restart_seconds=0.3)


class StartsController(Protocol):
    """The type of the fixture `controller`. A test may call `async with controller() as process` several times.

    The controller leads when the block begins. `standby`: another one leads, and this one knows it.
    """

    def __call__(self, *, standby: bool = False) -> AbstractAsyncContextManager[ControllerProcess]: ...


class StartsTraining(Protocol):
    """The type of the fixture `training`: `await training(runtime="torch-recoverable")` returns a Job that trains.

    `spec`: fields of the RecoveryPolicy. `with_policy` False: the namespace gets none. `deadline_seconds` None: the
    TrainJob has no deadline. `queue`: its Kueue queue. Empty: Kueue does not manage it.
    """

    async def __call__(
        self,
        *,
        name: str = "llm",
        runtime: str = "torch-distributed",
        ranks: int = RANKS,
        gpus: int = 8,
        with_policy: bool = True,
        deadline_seconds: int | None = None,
        queue: str = "",
        **spec: Any,
    ) -> Job: ...


class MakesRuntime(Protocol):
    """The type of the fixture `runtime`. It creates a ClusterTrainingRuntime and returns its name."""

    async def __call__(self, spec: Object) -> str: ...


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Builds what is not cached, silently, in minutes. `python -m tests.cluster.controlplane.build` shows progress."""
    return provide()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(toolbox: Toolbox) -> AsyncIterator[ControlPlane]:
    """Has raised request limits, so that tests do not wait for the controller-manager's 20 requests a second."""
    async with ControlPlane.start(ControlPlaneSettings(request_limits="raised"), toolbox) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Named after the test. Teardown does not wait for its deletion, which a pod on an unmodelled node would block."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{readable}-{secrets.token_hex(3)}"
    await control_plane.kubectl("create", "namespace", name)
    yield name
    await control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(control_plane: ControlPlane) -> ControlPlane:
    """The control plane, with what a user applies before the first job."""
    await install(control_plane)
    return control_plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fleet(installed: ControlPlane) -> AsyncIterator[Fleet]:
    """Nodes for one 16-node training, and spares. Tests leave them as they found them; `training` removes the pods."""
    async with Fleet.running(installed, nodes=NODES, training=TRAINING, kubelet=KUBELET) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(installed: ControlPlane) -> AsyncIterator[ApiProxy]:
    """The controllers of the test use this proxy. It deletes the Lease of earlier ones, so that none waits for it."""
    await installed.kubectl("delete", "lease", "recovery-controller", "-n", "recovery-system", "--ignore-not-found")
    async with ApiProxy.running(installed) as running:
        yield running


@pytest.fixture
def controller(proxy: ApiProxy, tmp_path: Path) -> Iterator[StartsController]:
    """Starts controllers behind `proxy`, each with its own log (`controller-1.log`, ...) and a preloaded program.

    They run as the shipped ServiceAccount, with only the rights of manifests/default, and elect a leader by its Lease.
    pytest shows the end of their logs with a test that failed.
    """
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    logs = (tmp_path / f"controller-{number}.log" for number in count(1))

    def start(*, standby: bool = False) -> AbstractAsyncContextManager[ControllerProcess]:
        return ControllerProcess.running(kubeconfig, next(logs), standby=standby, warm=True)

    yield start
    for log in sorted(tmp_path.glob("controller-*.log")):
        print(log.name, *log.read_text().splitlines()[-40:], sep="\n")


@pytest.fixture
def no_complaints(tmp_path: Path) -> Iterator[None]:
    """After the test, no controller has logged an error or printed a traceback."""
    yield
    for log in sorted(tmp_path.glob("controller-*.log")):
        for line in log.read_text().splitlines():
            assert line.startswith("{"), f"{log.name}: {line}"
            assert json.loads(line).get("level") != "error", f"{log.name}: {line}"


@pytest_asyncio.fixture(loop_scope="session")
async def training(installed: ControlPlane, fleet: Fleet, namespace: str) -> AsyncIterator[StartsTraining]:
    """Starts TrainJobs under a policy in mode Enforce. After the test it deletes them and waits for free nodes."""
    jobs: list[Job] = []

    async def start(
        *,
        name: str = "llm",
        runtime: str = "torch-distributed",
        ranks: int = RANKS,
        gpus: int = 8,
        with_policy: bool = True,
        deadline_seconds: int | None = None,
        queue: str = "",
        **spec: Any,
    ) -> Job:
        rules: list[Object] = [policy(**{"teardown": {"graceSeconds": 1}, **spec})] if with_policy else []
        job = Job(installed, fleet, namespace, name, ranks)
        jobs.append(job)
        made = train_job(name, ranks=ranks, gpus=gpus, runtime=runtime, deadline_seconds=deadline_seconds, queue=queue)
        await apply(installed, namespace, *rules, made)
        await job.trains()
        return job

    yield start
    for job in jobs:
        await job.remove()


@pytest_asyncio.fixture(loop_scope="session")
async def runtime(installed: ControlPlane, namespace: str) -> AsyncIterator[MakesRuntime]:
    name = f"runtime-{namespace.rpartition('-')[2]}"

    async def make(spec: Object) -> str:
        framework = next(key for key in spec["mlPolicy"] if key != "numNodes")
        head = {"name": name, "labels": {"trainer.kubeflow.org/framework": framework}}
        kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime"}
        await apply(installed, None, {**kind, "metadata": head, "spec": spec})
        return name

    yield make
    await installed.kubectl("delete", "clustertrainingruntime", name, "--wait=false", "--ignore-not-found")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def component(installed: ControlPlane) -> AsyncIterator[None]:
    """Installs the component birth-settings, an admission policy, for the tests of a module."""
    await elastic.add_component(installed)
    yield
    await elastic.remove_component(installed)
