"""The certificates and keys of one control plane. The openssl command makes them, which needs no Python dependency."""

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.processes import ControlPlaneError

_DAYS = "30"
# Without its own configuration, openssl would add whatever the machine's openssl.cnf says.
_CONFIGURATION = "[req]\ndistinguished_name = name\n[name]\n"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """The paths of all files that the control plane's programs and their clients need to trust each other."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def serving(self) -> Path:
        """Certificate of every server: apiserver, controller-manager, scheduler and both webhooks."""
        return self.folder / "serving" / "tls.crt"

    @property
    def serving_key(self) -> Path:
        return self.folder / "serving" / "tls.key"

    @property
    def client(self) -> Path:
        """Client certificate of group system:masters."""
        return self.folder / "admin.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "admin.key"

    @property
    def service_account_public_key(self) -> Path:
        return self.folder / "service-account.pub"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "service-account.key"

    def authority_base64(self) -> str:
        return base64.b64encode(self.authority.read_bytes()).decode()


def make_certificates(folder: Path, node_address: str = "") -> Certificates:
    """`node_address`: where real nodes reach the API server, besides loopback. Empty: nowhere."""
    names = ["IP:127.0.0.1", "DNS:localhost"]
    if node_address:
        # The last two belong to the Service `kubernetes`, which has the first address of the Service range.
        names += [f"IP:{node_address}", "IP:10.96.0.1", "DNS:kubernetes.default.svc"]
    made = Certificates(folder)
    made.serving.parent.mkdir(parents=True)
    configuration = folder / "openssl.cnf"
    configuration.write_text(_CONFIGURATION)
    authority_key = folder / "ca.key"
    request = ("req", "-x509", "-config", str(configuration), "-days", _DAYS, *_NEW_KEY)
    signed = ("-CA", str(made.authority), "-CAkey", str(authority_key), "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl(
        *request,
        *("-keyout", str(authority_key), "-out", str(made.authority), "-subj", "/CN=trainjob-recovery-tests"),
        *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    _openssl(
        *request,
        *signed,
        *("-keyout", str(made.serving_key), "-out", str(made.serving), "-subj", "/CN=localhost"),
        *("-addext", f"subjectAltName={','.join(names)}", "-addext", "extendedKeyUsage=serverAuth"),
    )
    _openssl(
        *request,
        *signed,
        *("-keyout", str(made.client_key), "-out", str(made.client), "-subj", "/O=system:masters/CN=admin"),
        *("-addext", "extendedKeyUsage=clientAuth"),
    )
    key = str(made.service_account_key)
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    _openssl("pkey", "-in", key, "-pubout", "-out", str(made.service_account_public_key))
    return made


def _openssl(*arguments: str) -> None:
    try:
        result = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ControlPlaneError("openssl is not installed; install version 3.0 or later") from None
    if result.returncode != 0:
        raise ControlPlaneError(
            f"`openssl {' '.join(arguments)}` ended with {result.returncode} (3.0 or later is needed): {result.stderr}"
        )
