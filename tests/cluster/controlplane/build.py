"""Builds the programs of the cluster tests from their Go modules, once per version, into a cache outside the tree.

No package registry has prebuilt binaries, and a build takes minutes. So each tool is built into a folder named after
its version and a hash of the build's inputs, and a finished folder never changes. The CRDs, webhook manifests and
runtimes are in the same Go modules. They are copied beside the binaries, so that a control plane starts without Go.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.controlplane.processes import die_with_parent

MODULES = Path(__file__).resolve().parent.parent / "tools"
READY_MADE = "RECOVERY_CLUSTER_BIN"
CACHE = "RECOVERY_CLUSTER_CACHE"
KUBERNETES_VERSION = "RECOVERY_CLUSTER_KUBERNETES"
"""Environment variable: the Kubernetes version of the control plane, such as "1.37". Empty or unset: the usual
one, which nodes have too."""


class BuildError(Exception):
    """A tool cannot be built, or a ready-made one is missing. The text says how to fix it."""


@dataclass(frozen=True)
class Edit:
    """A replacement in a source file. `old` must occur there exactly once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Tool:
    """One Go module folder under tools/ and what is taken from it."""

    name: str
    module: str
    binaries: tuple[str, ...]
    # The name that `go build` gives a program -> its usual name.
    renamed: tuple[tuple[str, str], ...] = ()
    # Files and folders of the module that are kept beside the binaries.
    manifests: tuple[str, ...] = ()
    # Go package whose gitVersion variables the program reports as its version.
    version_package: str = ""
    # Go build tags. Not part of repr(), which names the build, because flags() has them already.
    tags: tuple[str, ...] = field(default=(), repr=False)
    # Changes to the module's sources, where the program has no flag for them.
    edits: tuple["Edit", ...] = field(default=(), repr=False)
    # The release of the module, where its folder is not that of the usual one. Not part of repr(): go.mod has it.
    release: str = field(default="", repr=False)

    @property
    def folder(self) -> Path:
        return MODULES / (f"{self.name}-{self.release}" if self.release else self.name)

    @property
    def version(self) -> str:
        found = re.search(rf"^(?:require)?\s*{re.escape(self.module)} (v\S+)", self.go_mod(), re.MULTILINE)
        if not found:
            raise BuildError(f"{self.folder / 'go.mod'} does not require {self.module}; add the requirement")
        return found.group(1)

    def flags(self) -> list[str]:
        """Arguments of `go build` for small binaries that do not depend on the path of the module cache."""
        linker = ["-s", "-w"]
        if self.version_package:
            major, minor = self.version.removeprefix("v").split(".")[:2]
            for variable, value in (("gitVersion", self.version), ("gitMajor", major), ("gitMinor", minor)):
                linker += ["-X", f"{self.version_package}.{variable}={value}"]
        tags = ["-tags", ",".join(self.tags)] if self.tags else []
        return ["-trimpath", "-buildvcs=false", *tags, "-ldflags", " ".join(linker)]

    def key(self) -> str:
        """The name of the build: the version is for people, and the hash changes with every input of the build."""
        digest = hashlib.sha256()
        own_sources = [path.read_text() for path in sorted(self.folder.glob("*.go"))]
        for part in (
            self.go_mod(),
            (self.folder / "go.sum").read_text(),
            repr(self),
            repr(self.flags()),
            *map(repr, self.edits),
            *own_sources,
        ):
            digest.update(part.encode() + b"\0")
        digest.update(f"{platform.system()} {platform.machine()}".encode())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def missing_from(self, folder: Path) -> list[Path]:
        """The files of a complete build that this folder lacks."""
        wanted = [folder / name for name in self.binaries]
        wanted += [folder / "manifests" / self.name / path for path in self.manifests]
        return [path for path in wanted if not path.exists()]

    def go_mod(self) -> str:
        return (self.folder / "go.mod").read_text()


KUBERNETES = Tool(
    "kubernetes",
    "k8s.io/kubernetes",
    ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    version_package="k8s.io/component-base/version",
)

CONTROL_PLANE = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", ("etcd",), renamed=(("server", "etcd"),)),
    KUBERNETES,
    Tool(
        "jobset",
        "sigs.k8s.io/jobset",
        ("jobset",),
        manifests=(
            "config/components/crd/bases",
            "config/components/webhook",
            "config/components/manager/controller_manager_config.yaml",
        ),
    ),
    Tool(
        "trainer",
        "github.com/kubeflow/trainer/v2",
        ("trainer-controller-manager",),
        manifests=(
            "manifests/base/crds",
            "manifests/base/webhook",
            "manifests/base/runtimes",
            "manifests/base/manager/controller_manager_config.yaml",
        ),
    ),
)

KUEUE_METRICS_CERTIFICATES = "KUEUE_METRICS_CERTIFICATES"
"""Environment variable: the folder from which Kueue reads tls.crt and tls.key of its metrics. Kueue exits without them,
even if it serves no metrics. As shipped, it reads them from a fixed folder of the machine."""

KUEUE = Tool(
    "kueue",
    "sigs.k8s.io/kueue",
    ("kueue",),
    manifests=(
        "config/components/crd/bases",
        "config/components/webhook",
        "config/components/manager/controller_manager_config.yaml",
    ),
    edits=(Edit("cmd/kueue/main.go", '"/etc/kueue/metrics/certs"', f'os.Getenv("{KUEUE_METRICS_CERTIFICATES}")'),),
)

PROMETHEUS = Tool(
    "prometheus",
    "github.com/prometheus/prometheus",
    ("prometheus", "promtool"),
    # Static and file discovery only: the cloud SDKs have hundreds of megabytes.
    tags=("remove_all_sd", "netgo"),
)

MONITORING = (PROMETHEUS, Tool("kube-state-metrics", "k8s.io/kube-state-metrics/v2", ("kube-state-metrics",)))

# What a node runs, besides Debian's runc and CNI plugins, and the cluster's DNS.
REAL_NODES = (
    Tool(
        "kubernetes-node",
        "k8s.io/kubernetes",
        ("kubelet", "kube-proxy"),
        version_package="k8s.io/component-base/version",
    ),
    Tool(
        "containerd",
        "github.com/containerd/containerd/v2",
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        tags=("no_aufs", "no_btrfs", "no_devmapper", "no_zfs"),
    ),
    Tool("coredns", "github.com/coredns/coredns", ("coredns",)),
)

TOOLS = (*CONTROL_PLANE, *MONITORING, *REAL_NODES, KUEUE)


@dataclass(frozen=True)
class Toolbox:
    """Where every program and manifest is on this machine."""

    folders: dict[str, Path]

    def binary(self, name: str) -> Path:
        """Raises KeyError if its tool was not requested."""
        return next(self.folders[tool.name] / name for tool in TOOLS if name in tool.binaries)

    def manifests(self, tool_name: str) -> Path:
        return self.folders[tool_name] / "manifests" / tool_name


def provide(report: Callable[[str], None] = lambda _: None, tools: Sequence[Tool] = CONTROL_PLANE) -> Toolbox:
    """The ready-made programs in RECOVERY_CLUSTER_BIN, if it is set. Otherwise the cache, after building what it lacks.

    It covers only `tools`: most suites need a control plane and no Prometheus.
    """
    ready_made = os.environ.get(READY_MADE)
    if ready_made:
        return _ready_made(Path(ready_made), tools)
    folders: dict[str, Path] = {}
    for tool in map(_of_the_chosen_release, tools):
        began = time.monotonic()
        folders[tool.name], cached = _cached_or_built(tool, report)
        state = "cached" if cached else "built"
        report(f"{tool.name} {tool.version}: {state}, {time.monotonic() - began:.1f} s, {folders[tool.name]}")
    return Toolbox(folders)


def _of_the_chosen_release(tool: Tool) -> Tool:
    chosen = os.environ.get(KUBERNETES_VERSION)
    if tool != KUBERNETES or not chosen:
        return tool
    released = replace(tool, release=chosen)
    if not released.folder.is_dir():
        known = ", ".join(sorted(path.name.removeprefix("kubernetes-") for path in MODULES.glob("kubernetes-[0-9]*")))
        raise BuildError(f"{KUBERNETES_VERSION}={chosen} has no folder {released.folder}; there are: {known}")
    return released


def cache_folder() -> Path:
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "trainjob-recovery"


def _ready_made(folder: Path, tools: Sequence[Tool]) -> Toolbox:
    missing = [path for tool in tools for path in tool.missing_from(folder)]
    if missing:
        names = ", ".join(str(path.relative_to(folder)) for path in missing)
        raise BuildError(
            f"{READY_MADE}={folder} lacks: {names}. Put them there, or unset {READY_MADE} to have them built. "
            f"(All folders that `python -m tests.cluster.controlplane.build` prints, copied into one, make a whole.)"
        )
    return Toolbox({tool.name: folder.resolve() for tool in tools})


def _cached_or_built(tool: Tool, report: Callable[[str], None]) -> tuple[Path, bool]:
    cache = cache_folder()
    finished = cache / f"bin-{tool.key()}"
    if not tool.missing_from(finished):
        return finished, True
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one_builder(cache / f"{tool.name}.lock", tool, report):
        # The run that held the lock has probably built it.
        if not tool.missing_from(finished):
            return finished, True
        # This run has the lock, so these folders can only come from a run that was killed.
        unfinished = cache / f"unfinished-{tool.name}"
        for leftover in (unfinished, finished):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            unfinished.mkdir()
            report(f"{tool.name} {tool.version}: building; this takes minutes the first time")
            _build(tool, unfinished)
            unfinished.rename(finished)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return finished, False


@contextmanager
def _only_one_builder(path: Path, tool: Tool, report: Callable[[str], None]) -> Iterator[None]:
    """The kernel releases the lock when its holder dies, however it dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{tool.name} {tool.version}: another run is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(tool: Tool, target: Path) -> None:
    scratch = target / "scratch"
    scratch.mkdir()
    _go(tool, scratch, "build", *tool.flags(), *_edited(tool, scratch), "-o", f"{target}/", "tool")
    for built, name in tool.renamed:
        (target / built).rename(target / name)
    if tool.manifests:
        source = _source(tool, scratch)
        for path in tool.manifests:
            _copy(source / path, target / "manifests" / tool.name / path)
    shutil.rmtree(scratch)
    missing = tool.missing_from(target)
    if missing:
        raise BuildError(f"building {tool.name} made no {', '.join(path.name for path in missing)}; see {tool.folder}")


def _edited(tool: Tool, scratch: Path) -> list[str]:
    """Arguments with which `go build` builds an edited copy of the module."""
    if not tool.edits:
        return []
    copy, modfile = scratch / "edited", scratch / "edited.mod"
    _copy(_source(tool, scratch), copy)
    for edit in tool.edits:
        text = (copy / edit.path).read_text()
        if text.count(edit.old) != 1:
            raise BuildError(f"{edit.path} of {tool.module} {tool.version} has {edit.old} not once; adapt its Edit")
        (copy / edit.path).write_text(text.replace(edit.old, edit.new))
    modfile.write_text(f"{tool.go_mod()}\nreplace {tool.module} => {copy}\n")
    shutil.copyfile(tool.folder / "go.sum", modfile.with_suffix(".sum"))
    return [f"-modfile={modfile}"]


def source_folder(tool: Tool) -> Path:
    """Where Go keeps the sources of the tool's module. They contain its samples too, which no build uses."""
    with TemporaryDirectory() as scratch:
        return _source(tool, Path(scratch))


def _source(tool: Tool, scratch: Path) -> Path:
    _go(tool, scratch, "mod", "download", tool.module)  # `go list` names no folder of a module that is not there.
    return Path(_go(tool, scratch, "list", "-m", "-f", "{{.Dir}}", tool.module).strip())


def _copy(source: Path, target: Path) -> None:
    """Copies without permissions: the module cache is read-only, and a read-only copy could not be removed."""
    files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _go(tool: Tool, scratch: Path, *arguments: str) -> str:
    """Runs go in the tool's folder and returns what it prints."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTMPDIR": str(scratch)}
    messages = scratch / "messages.txt"
    with messages.open("w") as errors:
        try:
            go = subprocess.Popen(
                ["go", *arguments],
                cwd=tool.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 (see there)
            )
        except FileNotFoundError:
            raise BuildError(
                f"go is not installed: install Go 1.26 or later, or set {READY_MADE} to a folder of ready-made binaries"
            ) from None
        try:
            printed, _ = go.communicate()
        except BaseException:
            # Ctrl-C: also end the compilers that go started, before the folder that they write to is removed.
            os.killpg(go.pid, signal.SIGKILL)
            go.wait()
            raise
    if go.returncode != 0:
        tail = "\n".join(messages.read_text().splitlines()[-20:])
        raise BuildError(f"`go {arguments[0]}` in {tool.folder} ended with {go.returncode}. Its last messages:\n{tail}")
    return printed


def main() -> int:
    try:
        provide(lambda line: print(line, flush=True), TOOLS)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
