"""The environment of each rank: exactly that of torchrun 2.13 with static rendezvous."""

import os
from collections.abc import Mapping

from .flags import LaunchOptions

MARKER = "_TRAINJOB_RECOVERY_RANK"
"""In the environment of a rank at its start. `sitecustomize` removes it before the script begins."""
PAGE = "_TRAINJOB_RECOVERY_PAGE"
"""In the environment of a rank at its start: the open file of its page, or nothing. `sitecustomize` removes it too."""
LAUNCHER = "_TRAINJOB_RECOVERY_LAUNCHER"
"""The path of the torchrun script that the agent has replaced. Without it, torchrun was started as a module."""
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""What stands first in PYTHONPATH, with the links that a volume may consist of."""
_OURS = ("RECOVERY_AGENT_", "_TRAINJOB_RECOVERY_")


def without_agent(environ: Mapping[str, str], folder: str = FOLDER) -> dict[str, str]:
    """The environment as it were had the agent never been added."""
    left = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    others = [path for path in left.pop("PYTHONPATH", folder).split(os.pathsep) if path != folder]
    if others:
        left["PYTHONPATH"] = os.pathsep.join(others)
    return left


def with_folder(environ: Mapping[str, str], folder: str = FOLDER) -> dict[str, str]:
    """The same environment, in which an interpreter finds the agent's package."""
    path = os.pathsep.join((folder, *((environ["PYTHONPATH"],) if "PYTHONPATH" in environ else ())))
    return {**environ, "PYTHONPATH": path}


def with_hook(environ: Mapping[str, str], folder: str = FOLDER) -> dict[str, str]:
    """The same environment, with what brings the hooks into the interpreter of a rank, or of the zygote."""
    return {**with_folder(environ, folder), MARKER: "1"}


def with_page(environ: Mapping[str, str], file: int | None) -> dict[str, str]:
    """The same environment, with the open file of the rank's page. None: it has none."""
    return {**environ, PAGE: "" if file is None else str(file)}


def sets_one_thread(options: LaunchOptions, environ: Mapping[str, str]) -> bool:
    """torchrun sets OMP_NUM_THREADS to 1, with a warning, where several ranks share a node and it is not set."""
    return options.ranks_per_node > 1 and "OMP_NUM_THREADS" not in environ


def launch_environment(options: LaunchOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """What all ranks of this node have in every epoch."""
    common = without_agent(environ)
    if sets_one_thread(options, environ):
        common["OMP_NUM_THREADS"] = "1"
    return {
        **common,
        "TORCHELASTIC_SIGNALS_TO_HANDLE": options.signals,
        "GROUP_RANK": str(options.node_rank),
        "ROLE_NAME": options.role,
        "LOCAL_WORLD_SIZE": str(options.ranks_per_node),
        "WORLD_SIZE": str(options.world_size),
        "GROUP_WORLD_SIZE": str(options.nodes),
        "ROLE_WORLD_SIZE": str(options.world_size),
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": str(options.master_port),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": options.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def rank_environment(
    options: LaunchOptions, environ: Mapping[str, str], *, epoch: int, local_rank: int, error_file: str
) -> dict[str, str]:
    """What one rank has in one epoch. `error_file` is empty where there is none."""
    rank = str(options.node_rank * options.ranks_per_node + local_rank)
    return {
        **launch_environment(options, environ),
        "RANK": rank,
        "ROLE_RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "TORCHELASTIC_RESTART_COUNT": str(epoch - 1),
        "TORCHELASTIC_ERROR_FILE": error_file,
    }
