"""What torchrun's command line and PET_* environment ask for, or why stock torchrun is executed instead.

The names, defaults and rules are those of torchrun 2.13 with static rendezvous. What is not listed here belongs to
stock torchrun, which then reports its own errors too.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import NoReturn

OUT, ERR = 1, 2
"""The bits of --redirects and --tee."""

_VALUES = (
    *(
        "nnodes",
        "nproc-per-node",
        "node-rank",
        "master-addr",
        "master-port",
        "rdzv-backend",
        "rdzv-endpoint",
        "rdzv-id",
    ),
    *("rdzv-conf", "max-restarts", "monitor-interval", "start-method", "event-log-handler", "role", "log-dir"),
    *("redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters", "local-addr"),
    *("logs-specs", "numa-binding", "signals-to-handle", "shutdown-timeout"),
)
_SWITCHES = ("standalone", "module", "no-python", "run-path", "virtual-local-rank")
_SHORT = {"redirects": "-r", "tee": "-t", "module": "-m"}
_NOT_FROM_ENVIRONMENT = ("logs-specs", "numa-binding")
_LEFT_TO_TORCHRUN = (
    *("rdzv-endpoint", "rdzv-conf", "duplicate-stdout-filters", "duplicate-stderr-filters", "logs-specs"),
    *("numa-binding", "standalone", "no-python", "run-path", "virtual-local-rank"),
)
_VARIABLES_LEFT_TO_TORCHRUN = (
    *("TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_HEALTH_CHECK_PORT"),
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",
)
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
_COUNT_TIMEOUT_SECONDS = 600
_COUNT = "import sys; from torch.distributed.run import determine_local_world_size as n; print(); print(n(sys.argv[1]))"


class LeftToTorchrunError(Exception):
    """Stock torchrun is to be executed. The text says why."""


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """One torchrun with static rendezvous and no restarts of its own."""

    nodes: int
    node_rank: int
    ranks_per_node: int
    master_addr: str
    master_port: int
    run_id: str
    role: str
    log_dir: str | None
    """None: a temporary folder."""
    redirects: tuple[int, ...]
    """For each local rank the streams that go to a file only."""
    tee: tuple[int, ...]
    """For each local rank the streams that go to a file and to the console."""
    local_ranks_shown: frozenset[int] | None
    """The local ranks whose output reaches the console. None: all."""
    line_prefix: str | None
    """The template of the prefix of lines on the console. None: torchrun's own."""
    signals: str
    """The names of the signals that end the launch, with commas between them."""
    shutdown_timeout_seconds: int
    python: str
    module: bool
    """The script is the name of a module, as after `python -m`."""
    script: str
    script_args: tuple[str, ...]

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def ending_signals(self) -> list[signal.Signals]:
        """Those of `signals` that this system knows."""
        names = (name.strip() for name in self.signals.split(","))
        return [signal.Signals[name] for name in names if name in signal.Signals.__members__]

    def command(self, local_rank: int) -> list[str]:
        """The command of one rank. torchrun replaces `${local_rank}` in it."""
        words = (*(("-m",) if self.module else ()), self.script, *self.script_args)
        return [self.python, "-u", *(Template(word).safe_substitute(local_rank=local_rank) for word in words)]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LeftToTorchrunError(message)


def launch_options(
    arguments: Sequence[str], environ: Mapping[str, str], count: "Callable[[str], int] | None" = None
) -> LaunchOptions:
    """Read the arguments of torchrun and its environment.

    `count` gives the number of ranks for values such as `auto`. None: torch is asked in a process of its own.

    Raises LeftToTorchrunError where stock torchrun is to be executed.
    """
    given, words = _given(arguments, environ)
    _leave_what_torchrun_does_better(given, environ)
    try:
        return _options(given, words, environ, count or _count_of_torch)
    except ValueError as error:
        raise LeftToTorchrunError(f"a value is not understood: {error}") from error


def _given(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Each option that is given, by its name, and the arguments of the script. A switch has the value "1"."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name in (*_VALUES, *_SWITCHES):
        spellings = {*filter(None, (_SHORT.get(name), f"--{name}", f"--{name.replace('-', '_')}"))}
        if name in _SWITCHES:
            parser.add_argument(*spellings, dest=name, action="store_const", const="1")
        else:
            parser.add_argument(*spellings, dest=name)
    parser.add_argument("script")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parsed = vars(parser.parse_args(list(arguments)))
    words: list[str] = parsed.pop("words")
    given: dict[str, str] = {name: value for name, value in parsed.items() if value is not None}
    return _from_environment(environ) | given, words


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    known = {f"PET_{name.replace('-', '_').upper()}": name for name in (*_VALUES, *_SWITCHES)}
    found = {}
    for variable, value in environ.items():
        if not variable.startswith("PET_"):
            continue
        if variable not in known:
            raise LeftToTorchrunError(f"the variable {variable} is not known")
        name = known[variable]
        if name in _SWITCHES and value == "0":
            continue
        if name not in _NOT_FROM_ENVIRONMENT:
            found[name] = value
    return found


def _leave_what_torchrun_does_better(given: Mapping[str, str], environ: Mapping[str, str]) -> None:
    for name in _LEFT_TO_TORCHRUN:
        if given.get(name):
            raise LeftToTorchrunError(f"--{name} is given")
    for name in _VARIABLES_LEFT_TO_TORCHRUN:
        if environ.get(name):
            raise LeftToTorchrunError(f"the variable {name} is set")
    for name, only in (("rdzv-backend", "static"), ("max-restarts", "0"), ("event-log-handler", "null")):
        if given.get(name, only) != only:
            raise LeftToTorchrunError(f"--{name} is {given[name]}")
    if given.get("start-method", "spawn") not in {"spawn", "fork", "forkserver"}:
        raise LeftToTorchrunError(f"--start-method is {given['start-method']}")
    if given.get("rdzv-id") == "":
        raise LeftToTorchrunError("--rdzv-id is empty")
    if "node-rank" not in given:
        raise LeftToTorchrunError("the rank of the node is not given")
    if "hostname" in environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", ""):
        raise LeftToTorchrunError("the prefix of log lines has the host name")


def _options(
    given: Mapping[str, str], words: Sequence[str], environ: Mapping[str, str], count: Callable[[str], int]
) -> LaunchOptions:
    nodes = _nodes(given.get("nnodes", "1:1"))
    node_rank = int(given["node-rank"])
    if not 0 <= node_rank < nodes:
        raise LeftToTorchrunError(f"the rank of the node is {node_rank} of {nodes}")
    if "master-port" not in given and nodes == 1:
        raise LeftToTorchrunError("one node without a port: torchrun meets by c10d")
    float(given.get("monitor-interval", "0.1"))
    shutdown = int(given.get("shutdown-timeout", environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30")))
    port = int(given.get("master-port", "29500"))
    address = given.get("master-addr", "127.0.0.1").strip()
    if shutdown < 0 or not 0 < port < 2**16 or not re.fullmatch(r"[\w.:-]+|\[[\w.:-]+\]", address):
        raise LeftToTorchrunError("the shutdown timeout, the address or the port is not valid")
    wanted = given.get("nproc-per-node", "1")
    ranks = int(wanted) if re.fullmatch(r"\s*[0-9]+\s*", wanted) else count(wanted)
    if ranks < 1:
        raise LeftToTorchrunError(f"there are {ranks} ranks for this node")
    shown = given.get("local-ranks-filter")
    return LaunchOptions(
        nodes=nodes,
        node_rank=node_rank,
        ranks_per_node=ranks,
        master_addr=address.removeprefix("[").removesuffix("]"),
        master_port=port,
        run_id=given.get("rdzv-id", "none"),
        role=given.get("role", "default"),
        log_dir=given.get("log-dir"),
        redirects=_streams(given.get("redirects", "0"), ranks),
        tee=_streams(given.get("tee", "0"), ranks),
        local_ranks_shown=frozenset(map(int, shown.split(","))) if shown else None,
        line_prefix=environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE") or None,
        signals=given.get("signals-to-handle", _SIGNALS),
        shutdown_timeout_seconds=shutdown,
        python=environ.get("PYTHON_EXEC", sys.executable),
        module="module" in given,
        script=given["script"],
        script_args=tuple(words),
    )


def _nodes(text: str) -> int:
    least, _, most = text.partition(":")
    if int(least) != int(most or least) or int(least) < 1:
        raise LeftToTorchrunError(f"the number of nodes is {text}")
    return int(least)


def _streams(text: str, ranks: int) -> tuple[int, ...]:
    """What --redirects or --tee says for each local rank: `3` for all, or `0:1,1:2`."""
    if re.fullmatch(r"[0123]", text):
        return (int(text),) * ranks
    if not re.fullmatch(r"(\d:[0123],)*(\d:[0123])", text):
        raise LeftToTorchrunError(f"the streams are {text}")
    each = {int(part[0]): int(part[2]) for part in text.split(",")}
    return tuple(each.get(local_rank, 0) for local_rank in range(ranks))


def _count_of_torch(wanted: str) -> int:
    """Ask torch how many ranks `auto` or `gpu` means here. A process of its own keeps torch out of the agent."""
    command = [sys.executable, "-c", _COUNT, wanted]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=_COUNT_TIMEOUT_SECONDS, check=True, env=dict(os.environ)
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LeftToTorchrunError(f"the number of ranks for {wanted} is not known") from error
    return int(done.stdout.split()[-1])
