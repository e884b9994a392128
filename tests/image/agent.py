"""`make agent-image`: the image of the agent as an OCI archive, without a registry, root or a container runtime.

It has the layer that `recovery/agent/Containerfile` describes: the files of the agent and nothing else. Two builds of
the same files are equal. `ctr image import`, `podman load` and `skopeo copy oci-archive:...` read it.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from recovery.generated_files import REPOSITORY

AGENT = REPOSITORY / "recovery" / "agent"
ARCHIVE = REPOSITORY / "build" / "image" / "trainjob-recovery-agent.tar"
EPOCH_SECONDS = 1767225600
"""Dates everything, so that builds are equal."""
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class AgentImageError(Exception):
    """The image cannot be built. The message says why."""


def copied(folder: Path = AGENT) -> list[str]:
    """The sources that the Containerfile copies, relative to the folder of the agent."""
    lines = (folder / "Containerfile").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("COPY ")]


def files(folder: Path = AGENT) -> list[Path]:
    """The files of the image, relative to the folder of the agent."""
    found: list[Path] = []
    for source in copied(folder):
        path = folder / source
        if not path.exists():
            raise AgentImageError(f"{path} is not there")
        found += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sorted(each.relative_to(folder) for each in found if "__pycache__" not in each.parts)


def build(target: Path = ARCHIVE, folder: Path = AGENT) -> str:
    """Write the archive. Returns the reference of the image, with its digest. Raises AgentImageError."""
    layer = _tar({str(name): (folder / name).read_bytes() for name in files(folder)})
    packed = gzip.compress(layer, mtime=0)
    config = {
        "architecture": "amd64",  # nothing in it depends on one
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_blob = _json(config)
    manifest_blob = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config_blob),
            "layers": [_descriptor(_LAYER, packed)],
        }
    )
    reference = f"docker.io/library/trainjob-recovery-agent:{_version()}"
    described = _descriptor(_MANIFEST, manifest_blob)
    described["annotations"] = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": _version()}
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (packed, config_blob, manifest_blob)}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(
        _tar(
            {
                "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
                "index.json": _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [described]}),
                **blobs,
            }
        )
    )
    return f"{reference}@{_digest(manifest_blob)}"


def _tar(content: dict[str, bytes]) -> bytes:
    """A tar archive of these files and the folders above them, readable by all users, without the name of one."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folders = {str(each) for name in content for each in Path(name).parents if str(each) != "."}
        for name in sorted(folders):
            archive.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
        for name, blob in sorted(content.items()):
            entry = _entry(name, tarfile.REGTYPE, 0o644)
            entry.size = len(blob)
            archive.addfile(entry, io.BytesIO(blob))
    return written.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, EPOCH_SECONDS
    return entry


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _version() -> str:
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])


def main() -> int:
    try:
        reference = build()
    except AgentImageError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{ARCHIVE.relative_to(REPOSITORY)}: {reference}, {ARCHIVE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
