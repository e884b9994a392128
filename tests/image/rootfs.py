"""The image's files in a folder, and its commands run as in a cluster: unprivileged, with a read-only root."""

import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.processes import die_with_parent

# In separate namespaces: nothing of it outlives the command. Only /tmp is writable, as in the Deployment.
_IN_ROOT = """
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
mount -o remount,bind,ro "$ROOT"
exec setpriv --no-new-privs chroot --userspec="$USERSPEC" --groups= "$ROOT" "$@"
"""
_TIMEOUT_SECONDS = 120

NAMELESS = "1000660000:0"
"""A user as OpenShift assigns them: without a passwd entry, in the root group."""


@dataclass(frozen=True)
class Rootfs:
    """An unpacked image."""

    folder: Path
    config: dict[str, Any]
    """The image's own `config`: Env, Entrypoint, User."""

    def run(
        self,
        *arguments: str,
        entrypoint: Sequence[str] | None = None,
        user: str | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """`entrypoint` and `user`: None for the image's own."""
        command = [*(entrypoint if entrypoint is not None else self.config["Entrypoint"]), *arguments]
        return subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
                # Only what the image sets, and what container runtimes add, reaches the command.
                *("sh", "-e", "-c", _IN_ROOT, "sh", "env", "-i", *self.config["Env"], "HOME=/", *command),
            ],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ROOT": str(self.folder), "USERSPEC": user or self.user},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            preexec_fn=die_with_parent(),
        )

    @property
    def user(self) -> str:
        return str(self.config["User"])


def unpack(archive: Path, folder: Path) -> Rootfs:
    """Unpacks like a container runtime, but without whiteouts: no layer removes a file of an earlier one."""
    with tarfile.open(archive) as opened:

        def read(name: str) -> Any:
            stream = opened.extractfile(name)
            assert stream is not None
            return json.load(stream)

        [image] = read("manifest.json")
        config = read(image["Config"])["config"]
    for layer in image["Layers"]:
        # Much faster than tarfile.
        with subprocess.Popen(["tar", "-xOf", archive, layer], stdout=subprocess.PIPE) as reading:
            subprocess.run(["tar", "-xpC", folder], stdin=reading.stdout, check=True)
        assert reading.returncode == 0
    assert not list(folder.rglob(".wh.*"))
    return Rootfs(folder, config)
