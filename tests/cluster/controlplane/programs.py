"""The command lines of the control plane's programs. Anything not stated here is the program's own default."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.cluster.controlplane.build import KUEUE_METRICS_CERTIFICATES, Toolbox
from tests.cluster.controlplane.certificates import Certificates
from tests.cluster.controlplane.manifests import jobset_configuration, kueue_configuration, trainer_configuration
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.processes import ManagedProcess

ETCD = "etcd"
APISERVER = "kube-apiserver"
SECOND_APISERVER = "kube-apiserver-2"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
JOBSET = "jobset"
TRAINER = "trainer-controller-manager"
KUEUE = "kueue"

_CONFIG_FILE = "manager/controller_manager_config.yaml"
_RAISED_LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    second_apiserver: int
    controller_manager: int
    scheduler: int
    jobset_webhook: int
    jobset_health: int
    trainer_webhook: int
    trainer_health: int
    kueue_webhook: int
    kueue_health: int

    @classmethod
    def claim(cls, claims: PortClaims) -> "Ports":
        return cls(*(claims.claim() for _ in range(12)))


GARBAGE_COLLECTION_PERCENT = "400"
"""GOGC: by how much the heap of a Go program grows before it collects garbage. Go's default is 100. Tests are short of
CPU time, not of memory: at 500 an API server needs a quarter less CPU time, and 1.3 GB instead of 600 MB."""


@dataclass(frozen=True)
class Programs:
    """Makes each program's process, and starts none."""

    toolbox: Toolbox
    folder: Path
    ports: Ports
    certificates: Certificates
    kubeconfig: Path
    raised_limits: bool
    node_address: str = ""
    """Where nodes and pods reach the API server, besides loopback. Empty: nowhere."""
    emulated_version: str = ""
    """The Kubernetes version that API server, controller-manager and scheduler emulate. Empty: their own."""

    @property
    def environment(self) -> dict[str, str]:
        """Home and temporary files are in the control plane's folder: kubectl's caches, Trainer's certificates."""
        places = {"HOME": str(self.folder), "TMPDIR": str(self.folder / "tmp"), "KUBECONFIG": str(self.kubeconfig)}
        # Loopback traffic must not go to a proxy that the machine uses.
        return {
            "PATH": os.environ.get("PATH", ""),
            "NO_PROXY": "127.0.0.1,localhost",
            "GOGC": GARBAGE_COLLECTION_PERCENT,
            **places,
        }

    def prepare_folder(self) -> None:
        """Trainer reads its webhook certificate only from controller-runtime's default folder below TMPDIR."""
        place = self.folder / "tmp" / "k8s-webhook-server" / "serving-certs"
        place.mkdir(parents=True)
        for path in (self.certificates.serving, self.certificates.serving_key):
            (place / path.name).symlink_to(path)
        (self.folder / "logs").mkdir()

    def etcd(self) -> ManagedProcess:
        client = f"http://127.0.0.1:{self.ports.etcd}"
        peer = f"http://127.0.0.1:{self.ports.etcd_peer}"
        return self._process(
            ETCD,
            "--name=tests",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=tests={peer}",
            "--log-level=warn",
            # The data are deleted with the test run, so there is no reason to wait for the disk.
            "--unsafe-no-fsync",
        )

    def apiserver(self) -> ManagedProcess:
        return self._apiserver(APISERVER, self.ports.apiserver)

    def second_apiserver(self) -> ManagedProcess:
        """It uses the same etcd, as in clusters with several control-plane nodes."""
        return self._apiserver(SECOND_APISERVER, self.ports.second_apiserver)

    def _apiserver(self, name: str, port: int) -> ManagedProcess:
        return self._process(
            name,
            f"--etcd-servers=http://127.0.0.1:{self.ports.etcd}",
            *self._reachability(),
            f"--secure-port={port}",
            *self._serving(),
            f"--client-ca-file={self.certificates.authority}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.certificates.service_account_public_key}",
            f"--service-account-signing-key-file={self.certificates.service_account_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            # Priority levels share the default of 400 and 200, and a thousand kubelet models need more than their part.
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1500",
            *self._emulates(),
            program=APISERVER,
        )

    def _reachability(self) -> tuple[str, ...]:
        """Only on loopback, unless there are real nodes."""
        if not self.node_address:
            return (
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                # Pods may be created before their namespace has its default ServiceAccount.
                "--disable-admission-plugins=ServiceAccount",
                # There are no nodes that could reach the apiserver through a Service.
                "--endpoint-reconciler-type=none",
            )
        return (
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.node_address}",
            f"--kubelet-client-certificate={self.certificates.client}",
            f"--kubelet-client-key={self.certificates.client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            # It calls webhooks of Services at their pods' addresses, because no kube-proxy runs beside the apiserver.
            "--enable-aggregator-routing=true",
        )

    def controller_manager(self) -> ManagedProcess:
        return self._process(
            CONTROLLER_MANAGER,
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.controller_manager}",
            *self._serving(),
            f"--root-ca-file={self.certificates.authority}",
            f"--service-account-private-key-file={self.certificates.service_account_key}",
            "--leader-elect=false",
            *self._emulates(),
            # Real nodes report each second, and count as lost after 8 s instead of 50.
            *(("--node-monitor-period=1s", "--node-monitor-grace-period=8s") if self.node_address else ()),
            *(_RAISED_LIMITS if self.raised_limits else ()),
        )

    def scheduler(self) -> ManagedProcess:
        return self._process(
            SCHEDULER,
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.scheduler}",
            *self._serving(),
            "--leader-elect=false",
            *self._emulates(),
            *(_RAISED_LIMITS if self.raised_limits else ()),
        )

    def jobset(self, gates: Mapping[str, bool]) -> ManagedProcess:
        """`gates`: feature gates that differ from their defaults."""
        text = jobset_configuration(
            self.toolbox.manifests("jobset") / "config" / "components" / _CONFIG_FILE,
            gates,
            webhook_port=self.ports.jobset_webhook,
            health_port=self.ports.jobset_health,
            certificates=self.certificates,
        )
        return self._process(JOBSET, f"--config={self._write('jobset.json', text)}")

    def trainer(self) -> ManagedProcess:
        text = trainer_configuration(
            self.toolbox.manifests("trainer") / "manifests" / "base" / _CONFIG_FILE,
            webhook_port=self.ports.trainer_webhook,
            health_port=self.ports.trainer_health,
        )
        return self._process(TRAINER, f"--config={self._write('trainer.json', text)}")

    def kueue(self, recovery_timeout: str) -> ManagedProcess:
        """`recovery_timeout`: as for `kueue_configuration`."""
        text = kueue_configuration(
            self.toolbox.manifests("kueue") / "config" / "components" / _CONFIG_FILE,
            webhook_port=self.ports.kueue_webhook,
            health_port=self.ports.kueue_health,
            certificates=self.certificates,
            recovery_timeout=recovery_timeout,
        )
        return self._process(
            KUEUE,
            f"--config={self._write('kueue.json', text)}",
            # This feature is an aggregated API server on a port that no flag sets.
            "--feature-gates=VisibilityOnDemand=false",
            variables={KUEUE_METRICS_CERTIFICATES: str(self.certificates.serving.parent)},
        )

    def _emulates(self) -> tuple[str, ...]:
        """All three of them: a scheduler that is newer than the API server waits for ever for kinds that are not
        served."""
        return (f"--emulated-version={self.emulated_version}",) if self.emulated_version else ()

    def _serving(self) -> tuple[str, str]:
        return (
            f"--tls-cert-file={self.certificates.serving}",
            f"--tls-private-key-file={self.certificates.serving_key}",
        )

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _process(
        self, name: str, *arguments: str, program: str = "", variables: Mapping[str, str] = MappingProxyType({})
    ) -> ManagedProcess:
        """`program` empty: it has the name of the process. `variables`: added to the environment."""
        command = [str(self.toolbox.binary(program or name)), *arguments]
        return ManagedProcess(name, command, self.folder / "logs" / f"{name}.log", {**self.environment, **variables})
