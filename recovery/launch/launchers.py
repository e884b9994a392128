"""A command that starts other processes than the settings say: no launcher, or flags of torchrun that win over PET_*.

A flag of torchrun wins over its variable (torch/distributed/argparse_util.py: `env`). Only commands that are plain are
judged.
"""

import re
from collections.abc import Iterator

from recovery.launch.commands import Script, Torchrun, run_by
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.places import Place
from recovery.launch.processes import CLAIM, CPU, Processes, processes_of, trained_by

NO_LAUNCHER = Code("no-launcher", Severity.WARNING, "the command starts one process where several are meant")
FLAGS_CONTRADICT = Code("flags-contradict", Severity.WARNING, "a flag of torchrun contradicts the TrainJob")
CODES = (NO_LAUNCHER, FLAGS_CONTRADICT)

_RANGE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_NUMBER = re.compile(r"[0-9]{1,9}")


def check(launch: Launch) -> Iterator[LintFinding]:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    member = trained_by(launch)
    if policy is None or policy.torch is None or member is None or member.main is None:
        return
    run, found = run_by(member.main), processes_of(launch)
    if isinstance(run, Script):
        yield from _no_launcher(launch, member, run, found)
    elif isinstance(run, Torchrun):
        yield from _nodes(launch, member, run)
        yield from _processes(launch, member, run, found)


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


def _nodes(launch: Launch, member: Member, run: Torchrun) -> Iterator[LintFinding]:
    if "standalone" in run.flags and member.pods > 1:
        message = f"torchrun --standalone makes each of the {member.pods} pods train by itself"
        yield LintFinding(FLAGS_CONTRADICT, place_of_command(launch, member), message, "remove --standalone")
        return
    asked = run.flags.get("nnodes", "")
    matched = _RANGE.fullmatch(asked)
    if matched is None:
        return
    least = int(matched[1])
    most = int(matched[2] or matched[1])
    if not least <= member.pods <= most:
        left_out = f"{member.pods - most} of the {member.pods} pods find no place in the group"
        waits = f"the {member.pods} pods wait for {least - member.pods} more that never come"
        follows = left_out if member.pods > most else waits
        message = f"torchrun goes by --nnodes={asked}, whatever numNodes says: {follows}"
        yield LintFinding(
            FLAGS_CONTRADICT, place_of_command(launch, member), message, "remove --nnodes: Trainer sets PET_NNODES"
        )


def _processes(launch: Launch, member: Member, run: Torchrun, found: Processes | None) -> Iterator[LintFinding]:
    asked = run.flags.get("nproc-per-node", "")
    if not _NUMBER.fullmatch(asked) or found is None or found.device in (CPU, CLAIM) or int(asked) == found.count:
        return
    message = f"torchrun --nproc-per-node={asked} wins over {found.rule}, which is {found.count}"
    if found.device:
        message = (
            f"torchrun --nproc-per-node={asked} starts {asked} on each node, which has {found.count} {found.device}"
        )
    mend = "remove --nproc-per-node: Trainer sets PET_NPROC_PER_NODE"
    yield LintFinding(FLAGS_CONTRADICT, place_of_command(launch, member), message, mend)


def place_of_command(launch: Launch, member: Member) -> Place:
    """In whichever object it is written."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and (trainer.command or trainer.args):
        return trainer.place / ("command" if trainer.command else "args")
    return member.main.place / "command" if member.main is not None else member.template.place
