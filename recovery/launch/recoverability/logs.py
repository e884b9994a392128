"""Checks whether the output of each rank can be read separately.

Source: PyTorch `torch/distributed/run.py`: `--log-dir`, `--redirects` and `--tee`, or PET_LOG_DIR, PET_REDIRECTS and
PET_TEE; by default all ranks of a pod write to its one log, without a prefix.
"""

from collections.abc import Iterator

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.processes import PROCESSES_FLAG
from recovery.launch.recoverability.container import command_place
from recovery.launch.recoverability.effective import is_group
from recovery.launch.views import Container

NO_PER_RANK_LOGS = Code("no-per-rank-logs", Severity.NOTE, "all ranks of a pod write to one log, without their names")
CODES = (NO_PER_RANK_LOGS,)

_APART = frozenset({"log-dir", "redirects", "r", "tee", "t", "logs-specs"})
_DIGITS_MAX = 10
"""A number of processes has fewer digits."""
_APART_VARIABLES = frozenset({"PET_LOG_DIR", "PET_REDIRECTS", "PET_TEE", "TORCHELASTIC_ERROR_FILE"})


def check(launch: Launch) -> Iterator[LintFinding]:
    if not is_group(launch):
        return
    for member in launch.members:
        main = member.main
        ranks = _ranks(launch, member, main) if main is not None else 0
        if main is None or ranks < 2 or not _in_one_log(main):
            continue
        yield LintFinding(
            NO_PER_RANK_LOGS,
            command_place(launch, main),
            f"the {ranks} ranks of a pod write to its one log without their names: which of them failed first, and at "
            "what, is hard to find out afterwards",
            "pass torchrun --tee 3, which names the rank in each line, and --log-dir on a volume that outlives the pod",
        )


def _in_one_log(main: Container) -> bool:
    """Whether the command plainly is torchrun, and no flag or variable makes it keep the output of the ranks apart."""
    torchrun = run_by(main)
    if not isinstance(torchrun, Torchrun) or _APART & torchrun.flags.keys():
        return False
    return not any(each.name in _APART_VARIABLES for each in main.env)


def _ranks(launch: Launch, member: Member, main: Container) -> int:
    """Processes of one pod, as far as the manifest says: the number it names, else one for each GPU."""
    torchrun = run_by(main)
    flag = torchrun.flags.get(PROCESSES_FLAG, "") if isinstance(torchrun, Torchrun) else ""
    if flag.isascii() and flag.isdecimal() and len(flag) < _DIGITS_MAX:
        return int(flag)
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and isinstance(trainer.num_proc_per_node, int):
        return trainer.num_proc_per_node
    return member.gpus_per_pod
