"""Container images without a registry: archives of one layer, and a containerd folder with the imported images."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.processes import ControlPlaneError, die_with_parent
from tests.cluster.real_nodes.settings import PAUSE_IMAGE, init_settings, write_containerd

BUSYBOX = Path("/bin/busybox")
BUSYBOX_IMAGE = "tests.local/busybox:1"
"""Has a shell and the usual commands. Pods get Python through a hostPath volume."""
INIT = Path(__file__).parent / "init.py"
_APPLETS = (
    "sh sleep echo cat ls ps kill id hostname wget nc nslookup date env true false tail head touch test dd mkdir rm"
)
_FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "proc", "root", "sys", "tmp", "usr")
# containerd writes to these, so no two nodes may share them. All other files are only added or removed.
_DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)


def write_basic_images(folder: Path) -> tuple[Path, ...]:
    """The archives of the pause container and of busybox."""
    pause, busybox = folder / "pause.tar", folder / "busybox.tar"
    write_image(pause, PAUSE_IMAGE, ("sleep",), ("/bin/sleep", "infinity"))
    write_image(busybox, BUSYBOX_IMAGE, tuple(_APPLETS.split()), ("/bin/sh",))
    return pause, busybox


def write_image(archive: Path, tag: str, applets: Sequence[str], command: Sequence[str]) -> None:
    """A docker-archive. Its one layer has busybox under these names."""
    layer = _layer(applets)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(archive, "w") as made:
        for name, content in files.items():
            _add(made, name, content, 0o644)


def make_template(folder: Path, toolbox: Toolbox, archives: Sequence[Path]) -> Path:
    """Imports the images once. Returns a containerd folder that `lay_template` copies into each node."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    settings = folder / "init.json"
    commands = write_containerd(folder, toolbox)
    settings.write_text(json.dumps(init_settings(toolbox, logs, commands, tuple(archives))))
    result = subprocess.run(
        [*NODE_NAMESPACES, sys.executable, "-I", str(INIT), str(settings)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=die_with_parent(),
        check=False,
    )
    if result.returncode:
        raise ControlPlaneError(
            f"the images cannot be imported ({result.returncode}): {result.stderr or result.stdout}"
        )
    return folder / "containerd"


def lay_template(template: Path, node: Path) -> None:
    """Copies by hard links. This takes tenths of a second, where an import of the images takes ten seconds."""
    target = node / "containerd"
    subprocess.run(["cp", "--archive", "--link", str(template), str(target)], check=True)
    for database in _DATABASES:
        (target / database).unlink()
        shutil.copyfile(template / database, target / database)


NODE_NAMESPACES = ("unshare", "--mount", "--cgroup", "--pid", "--net", "--fork", "--mount-proc", "--kill-child")


def _layer(applets: Sequence[str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in applets:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
