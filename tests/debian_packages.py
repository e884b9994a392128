"""Installs the Debian packages needed for real nodes and the image, if root and apt are available.

`python -m tests.debian_packages`. Elsewhere the suites report what is missing.
"""

import os
import shutil
import subprocess
import sys

NODES = ("busybox-static", "containernetworking-plugins", "iproute2", "nftables", "runc")
IMAGE = ("buildah", "mmdebstrap")


def absent(packages: tuple[str, ...]) -> list[str]:
    """The packages that are not installed, according to dpkg."""
    asked = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *packages]
    printed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in printed.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def main() -> int:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return 0
    packages = absent((*NODES, *IMAGE))
    if not packages:
        return 0
    print(f"installing {' '.join(packages)}", flush=True)
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "--quiet"], install):
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            print(f"`{' '.join(command)}` failed:\n{result.stderr}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
