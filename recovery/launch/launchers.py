"""Finds commands that start other processes than the settings say: no launcher, or torchrun flags that override PET_*.

A flag of torchrun wins over its variable (torch/distributed/argparse_util.py: `env`), and if a flag appears twice, the
last one wins. `--standalone` replaces any other rendezvous with one on localhost, and leaves the number of nodes as it
is (torch/distributed/run.py: `run`). Only plain commands are judged.
"""

import re
from collections.abc import Iterator

from recovery.launch.commands import Script, Torchrun, run_by
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, place_of_command
from recovery.launch.processes import CLAIM, CPU, PROCESSES_FLAG, Processes, processes_of, trained_by
from recovery.launch.torchrun_settings import goes_by

NO_LAUNCHER = Code("no-launcher", Severity.WARNING, "the command starts one process where several are meant")
FLAGS_CONTRADICT = Code(
    "flags-contradict", Severity.WARNING, "a flag of torchrun contradicts the TrainJob, or another flag"
)
CODES = (NO_LAUNCHER, FLAGS_CONTRADICT)

_RANGE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MEETING = ("rdzv-backend", "rdzv-endpoint", "rdzv-id")
"""The flags that `--standalone` replaces."""

Contradiction = tuple[str, str]
"""What contradicts what, and what to write instead."""


def check(launch: Launch) -> Iterator[LintFinding]:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    trained = trained_by(launch) if policy is not None and policy.torch is not None else None
    for member in launch.members:
        run = run_by(member.main) if member.main is not None else None
        if isinstance(run, Script) and member is trained:
            yield from _no_launcher(launch, member, run, processes_of(launch))
        elif isinstance(run, Torchrun):
            contradictions = [*_nodes(launch, member, run, of_trainer=member is trained), *_flags(run)]
            if member is trained:
                contradictions += _processes(run, processes_of(launch))
            yield from _one_finding(launch, member, contradictions)


def _one_finding(launch: Launch, member: Member, contradictions: list[Contradiction]) -> Iterator[LintFinding]:
    """One finding for the whole command line, because all of its contradictions have the same place."""
    if contradictions:
        message, fix = ("; ".join(dict.fromkeys(part)) for part in zip(*contradictions, strict=True))
        yield LintFinding(FLAGS_CONTRADICT, place_of_command(launch, member), message, fix)


def _no_launcher(launch: Launch, member: Member, run: Script, found: Processes | None) -> Iterator[LintFinding]:
    if found is None or found.count < 2 or found.device == CLAIM:
        return
    message = (
        f"`{run.text}` starts 1 process where {found.count} are meant on each node ({found.rule}), unless the script "
        "starts the others itself"
    )
    yield LintFinding(
        NO_LAUNCHER, place_of_command(launch, member), message, f"write torchrun in place of {run.text.split()[0]}"
    )


def _nodes(launch: Launch, member: Member, run: Torchrun, *, of_trainer: bool) -> Iterator[Contradiction]:
    """`of_trainer`: numNodes sets the number of the member's pods. Other pods may be several groups, so for them only a
    wait for more pods than exist is reported."""
    if "standalone" in run.flags:
        yield from _standalone(launch, member, run)
        return
    matched = _RANGE.fullmatch(run.flags.get("nnodes", ""))
    if matched is None:
        return
    asked, least, most = matched[0], int(matched[1]), int(matched[2] or matched[1])
    pods = member.pods if of_trainer else launch.nodes
    if least > pods > 0:
        follows = f"the {pods} pods wait for {least - pods} more that never come"
    elif of_trainer and pods > most:
        follows = f"{pods - most} of the {pods} pods find no place in the group"
    else:
        return
    if of_trainer:
        yield (
            f"torchrun goes by --nnodes={asked}, whatever numNodes says: {follows}",
            "remove --nnodes: Trainer sets PET_NNODES",
        )
    elif launch.runtime is None:
        yield f"with --nnodes={asked} {follows}", f"write --nnodes={pods}, or ask for {least} pods"


def _standalone(launch: Launch, member: Member, run: Torchrun) -> Iterator[Contradiction]:
    ignored = [flag for flag in _MEETING if flag in run.flags]
    if ignored:
        yield f"torchrun --standalone ignores {' and '.join(f'--{flag}' for flag in ignored)}", "remove --standalone"
    if launch.runtime is None or member.pods < 2:
        return  # the pods of a JobSet may be meant to train by themselves
    nodes = goes_by(launch, member, run, "nnodes")
    matched = _RANGE.fullmatch(nodes or "")
    if matched is not None and int(matched[1]) == 1:
        yield f"torchrun --standalone makes each of the {member.pods} pods train by itself", "remove --standalone"
    elif matched is not None:
        follows = f"each of the {member.pods} pods wait for {int(matched[1]) - 1} others in a rendezvous of its own"
        yield f"torchrun --standalone makes {follows}", "remove --standalone"


def _flags(run: Torchrun) -> Iterator[Contradiction]:
    """Reports a flag that appears twice, and two flags that disagree about where rank 0 is."""
    for flag, first in run.overruled.items():
        yield (
            f"--{flag}={first} has no effect, as --{flag}={run.flags[flag]} stands after it",
            f"remove one --{flag}",
        )
    host, endpoint = run.flags.get("master-addr"), run.flags.get("rdzv-endpoint")
    if host and endpoint and "standalone" not in run.flags and host != endpoint.rpartition(":")[0]:
        yield f"--master-addr={host} has no effect beside --rdzv-endpoint={endpoint}", "remove one of the two"


def _processes(run: Torchrun, found: Processes | None) -> Iterator[Contradiction]:
    asked = run.flags.get(PROCESSES_FLAG, "")
    if not _NUMBER.fullmatch(asked) or found is None or found.device in (CPU, CLAIM) or int(asked) == found.count:
        return
    message = f"torchrun --nproc-per-node={asked} wins over {found.rule}, which is {found.count}"
    if found.device:
        message = (
            f"torchrun --nproc-per-node={asked} starts {asked} on each node, which has {found.count} {found.device}"
        )
    yield message, "remove --nproc-per-node: Trainer sets PET_NPROC_PER_NODE"
