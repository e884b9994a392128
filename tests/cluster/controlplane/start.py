"""Starts a control plane, and always ends it.

    async with ControlPlane.start() as cluster:
        print(await cluster.kubectl("get", "clustertrainingruntimes"))

Inside the block a TrainJob becomes a JobSet, a Job and Pod objects, and the scheduler looks for nodes. There are no
kubelets. After the block no process, port or file is left.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tests.cluster.controlplane import manifests, programs
from tests.cluster.controlplane.build import Toolbox, provide
from tests.cluster.controlplane.certificates import Certificates, make_certificates
from tests.cluster.controlplane.folder import temporary_folder
from tests.cluster.controlplane.kubectl import KubectlError, answers_ok, run_kubectl
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.processes import ControlPlaneError, ManagedProcess
from tests.cluster.controlplane.programs import Ports, Programs
from tests.cluster.patience import GUARD_SECONDS

_POLL_SECONDS = 0.05
_OF_KUEUE = frozenset({"trainjobs", "jobsets", "workloads", "clusterqueues", "resourceflavors"})
"""The resources whose webhooks Kueue has here. Those for Jobs and pods would get every Job and pod of a test."""


@dataclass(frozen=True)
class ControlPlaneSettings:
    """`stock`: controller-manager and scheduler have their default request limits. For the controller-manager these are
    20 requests a second with bursts of 30. `raised`: 500 and 1000. JobSet and Trainer always run as shipped.
    """

    request_limits: Literal["stock", "raised"] = "raised"
    # Where real nodes reach the API server, besides loopback. Empty: there are none.
    node_address: str = ""
    # The Kubernetes version whose APIs and features the programs of Kubernetes have, such as "1.35". Empty: their own.
    emulated_version: str = ""
    # How long any one step of a start may take; a whole start takes about 10 s on an idle machine with two cores.
    step_timeout_seconds: float = GUARD_SECONDS


class ControlPlane:
    """A running control plane. Made by `ControlPlane.start`."""

    def __init__(self, folder: Path, parts: Programs, step_timeout_seconds: float) -> None:
        self.folder = folder
        self.log_folder = folder / "logs"
        self.kubeconfig = parts.kubeconfig
        self.certificates = parts.certificates
        self.server = f"https://127.0.0.1:{parts.ports.apiserver}"
        # The URL for a client on a real node.
        self.server_for_nodes = f"https://{parts.node_address}:{parts.ports.apiserver}"
        self.processes: dict[str, ManagedProcess] = {}
        self._parts = parts
        self._step_timeout_seconds = step_timeout_seconds
        self._tls = ssl.create_default_context(cafile=str(parts.certificates.authority))
        self._tls.load_cert_chain(str(parts.certificates.client), str(parts.certificates.client_key))

    @classmethod
    @asynccontextmanager
    async def start(
        cls, settings: ControlPlaneSettings | None = None, toolbox: Toolbox | None = None
    ) -> "AsyncIterator[ControlPlane]":
        """Builds what is not built yet, starts everything, and waits until a TrainJob can be created."""
        settings = settings or ControlPlaneSettings()
        toolbox = toolbox or provide()
        claims = PortClaims()
        try:
            with temporary_folder() as folder:
                certificates = make_certificates(folder / "certificates", settings.node_address)
                parts = Programs(
                    toolbox=toolbox,
                    folder=folder,
                    ports=Ports.claim(claims),
                    certificates=certificates,
                    kubeconfig=folder / "kubeconfig",
                    raised_limits=settings.request_limits == "raised",
                    node_address=settings.node_address,
                    emulated_version=settings.emulated_version,
                )
                parts.prepare_folder()
                control_plane = cls(folder, parts, settings.step_timeout_seconds)
                parts.kubeconfig.write_text(_admin_kubeconfig(control_plane.server, certificates))
                try:
                    await control_plane._start_all()
                    yield control_plane
                finally:
                    control_plane._end_all()
        finally:
            claims.close()

    async def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = GUARD_SECONDS) -> str:
        """Runs kubectl as administrator and returns what it prints. Raises KubectlError if it fails."""
        program = self._parts.toolbox.binary("kubectl")
        return await run_kubectl(program, self._parts.environment, arguments, stdin, timeout_seconds)

    async def kubeconfig_for_service_account(self, namespace: str, name: str, *, lifetime_seconds: int = 3600) -> Path:
        """A kubeconfig for that ServiceAccount, which must exist. A client has only its RBAC rights."""
        token = await self.token_of_service_account(namespace, name, lifetime_seconds=lifetime_seconds)
        path = self.folder / f"kubeconfig-{namespace}-{name}"
        path.write_text(manifests.kubeconfig(self.server, self.certificates, {"token": token}))
        return path

    async def token_of_service_account(self, namespace: str, name: str, *, lifetime_seconds: int = 3600) -> str:
        """A token of that ServiceAccount, which must exist."""
        asked = ("create", "token", name, f"--namespace={namespace}", f"--duration={lifetime_seconds}s")
        return (await self.kubectl(*asked)).strip()

    def stop_apiserver(self) -> None:
        """Ends the apiserver as a crash would. Everything else keeps running without it."""
        self.processes[programs.APISERVER].end()

    async def start_apiserver(self) -> None:
        """Restarts the apiserver on the same port with the same data, and waits until it is ready."""
        self.processes[programs.APISERVER].start()
        await self._ready(programs.APISERVER, self._parts.ports.apiserver, "/readyz", self._tls)

    async def restart_apiserver(self) -> None:
        self.stop_apiserver()
        await self.start_apiserver()

    @asynccontextmanager
    async def second_apiserver(self) -> AsyncIterator[str]:
        """Runs another apiserver with the same etcd; yields its URL. Nothing of the control plane uses it."""
        process = self._parts.second_apiserver()
        self._run(process)
        port = self._parts.ports.second_apiserver
        try:
            await self._ready(process.name, port, "/readyz", self._tls)
            yield f"https://127.0.0.1:{port}"
        finally:
            process.end()
            del self.processes[process.name]

    @asynccontextmanager
    async def jobset_with(self, **gates: bool) -> AsyncIterator[None]:
        """JobSet's manager runs with these feature gates inside the block."""
        await self._exchange_jobset(gates)
        try:
            yield
        finally:
            await self._exchange_jobset({})

    async def _exchange_jobset(self, gates: Mapping[str, bool]) -> None:
        self.processes[programs.JOBSET].end()
        self._run(self._parts.jobset(gates))
        await self._ready(programs.JOBSET, self._parts.ports.jobset_health, "/readyz", None)
        await self._until("admission of JobSets and TrainJobs works", self._admission_works)

    @asynccontextmanager
    async def kueue(self, toolbox: Toolbox, *, recovery_timeout: str = "") -> AsyncIterator[None]:
        """Runs that toolbox's Kueue beside the others inside the block. Its CRDs stay. `recovery_timeout`: as for
        `kueue_configuration`."""
        components = toolbox.manifests("kueue") / "config/components"
        webhooks = manifests.webhook_configurations(
            await self.kubectl("kustomize", str(components / "webhook")),
            port=self._parts.ports.kueue_webhook,
            certificates=self.certificates,
            name_prefix="kueue-",
            resources=_OF_KUEUE,
        )
        kinds = f"--filename={components / 'crd/bases'}"
        await self.kubectl("apply", "--server-side", kinds)
        await self.kubectl("wait", "--for=condition=Established", "--timeout=180s", kinds)
        process = replace(self._parts, toolbox=toolbox).kueue(recovery_timeout)
        self._run(process)
        try:
            await self._ready(process.name, self._parts.ports.kueue_health, "/readyz", None)
            await self.kubectl("apply", "--server-side", "--filename=-", stdin=webhooks)
            await self._until("admission of queued TrainJobs works", self._queued_admission_works)
            yield
        finally:
            await self.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=webhooks)
            process.end()
            del self.processes[process.name]

    async def _queued_admission_works(self) -> None:
        asked = await self._dry_run(manifests.train_job(manifests.SHIPPED_RUNTIME, queue="admission-check"))
        if not asked["spec"].get("suspend"):
            raise ControlPlaneError("Kueue's mutating webhook was not called")

    def check_processes(self) -> None:
        """Raises an error with the last log lines of a process that has ended."""
        for process in self.processes.values():
            if process.exit_code is not None:
                raise process.failure(f"ended with {process.exit_code}")

    async def _start_all(self) -> None:
        try:
            await self._start_in_order()
        except KubectlError:
            self.check_processes()  # if kubectl failed because a program died, that program's log is more useful
            raise

    async def _start_in_order(self) -> None:
        ports, parts = self._parts.ports, self._parts
        self._run(parts.etcd())
        self._run(parts.apiserver())
        webhooks = await self._webhook_configurations()
        await self._ready(programs.APISERVER, ports.apiserver, "/readyz", self._tls)
        self._run(parts.controller_manager())
        self._run(parts.scheduler())
        await self._install_definitions()
        self._run(parts.jobset({}))
        self._run(parts.trainer())
        await self.kubectl("apply", "--server-side", "--filename=-", stdin=webhooks)
        await self._ready(programs.JOBSET, ports.jobset_health, "/readyz", None)
        await self._ready(programs.TRAINER, ports.trainer_health, "/readyz", None)
        await self._until("Trainer's runtimes are accepted", self._install_runtimes)
        await self._until("admission of JobSets and TrainJobs works", self._admission_works)
        await self._ready(programs.CONTROLLER_MANAGER, ports.controller_manager, "/healthz", self._tls)
        await self._ready(programs.SCHEDULER, ports.scheduler, "/healthz", self._tls)

    def _end_all(self) -> None:
        """Blocks, so that it cannot be cancelled half-way. It kills all processes first, and then waits for each."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.end()

    def _run(self, process: ManagedProcess) -> None:
        self.processes[process.name] = process
        process.start()

    async def _webhook_configurations(self) -> str:
        """The webhook configurations of both managers in one manifest. Rendering them needs no server."""
        rendered = []
        for tool, path, port, prefix in (
            ("jobset", "config/components/webhook", self._parts.ports.jobset_webhook, "jobset-"),
            ("trainer", "manifests/base/webhook", self._parts.ports.trainer_webhook, ""),
        ):
            shipped = await self.kubectl("kustomize", str(self._parts.toolbox.manifests(tool) / path))
            rendered.append(
                manifests.webhook_configurations(shipped, port=port, certificates=self.certificates, name_prefix=prefix)
            )
        return "---\n".join(rendered)

    async def _install_definitions(self) -> None:
        """Both managers exit if their CRDs are not established when they start."""
        jobset = self._parts.toolbox.manifests("jobset") / "config/components/crd/bases"
        trainer = self._parts.toolbox.manifests("trainer") / "manifests/base/crds"
        files = sorted(str(path) for path in (*jobset.glob("*_*.yaml"), *trainer.glob("*_*.yaml")))
        filenames = [f"--filename={path}" for path in files]
        await self.kubectl("apply", "--server-side", *filenames)
        await self.kubectl("wait", "--for=condition=Established", "--timeout=180s", *filenames)

    async def _install_runtimes(self) -> None:
        runtimes = self._parts.toolbox.manifests("trainer") / "manifests/base/runtimes"
        files = sorted(str(path) for path in runtimes.glob("*_distributed.yaml"))
        await self.kubectl("apply", "--server-side", *(f"--filename={path}" for path in files))

    async def _admission_works(self) -> None:
        """Tries every kind of admission by dry runs. The apiserver may not have noticed the webhooks yet, or Trainer
        the runtimes. A TrainJob that misses a webhook is not the TrainJob that a real cluster would have.
        """
        if "successPolicy" not in (await self._dry_run(manifests.job_set()))["spec"]:
            raise ControlPlaneError("JobSet's mutating webhook was not called")
        accepted = await self._dry_run(manifests.train_job(manifests.SHIPPED_RUNTIME))
        if "time" not in accepted["spec"]["runtimePatches"][0]:
            raise ControlPlaneError("Trainer's mutating webhook was not called")
        try:
            await self._dry_run(manifests.train_job("no-such-runtime"))
        except KubectlError as refusal:
            if "admission webhook" in refusal.stderr:
                return
            raise
        raise ControlPlaneError("Trainer's validating webhook was not called")

    async def _dry_run(self, manifest: str) -> dict[str, Any]:
        created: dict[str, Any] = json.loads(
            await self.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=manifest)
        )
        return created

    async def _ready(self, name: str, port: int, path: str, tls: ssl.SSLContext | None) -> None:
        async def answers() -> None:
            if not await answers_ok(port, path, tls):
                raise self.processes[name].failure(f"does not answer {path}")

        await self._until(f"{name} is ready", answers)

    async def _until(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeats `attempt` until it raises no ControlPlaneError. The last error says why it took too long."""
        give_up_at = time.monotonic() + self._step_timeout_seconds
        while True:
            try:
                return await attempt()
            except ControlPlaneError as refusal:
                self.check_processes()
                if time.monotonic() > give_up_at:
                    raise ControlPlaneError(
                        f"gave up after {self._step_timeout_seconds} s of waiting until {what}: {refusal}"
                    ) from refusal
            await asyncio.sleep(_POLL_SECONDS)


def _admin_kubeconfig(server: str, certificates: Certificates) -> str:
    user = {"client-certificate": str(certificates.client), "client-key": str(certificates.client_key)}
    return manifests.kubeconfig(server, certificates, user)
