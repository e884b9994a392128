"""What the launch of a container shows about the program: whether its ranks form one collective that hangs together.

Most programs do: when a rank ends, the others wait for it until their own timeout, and no rank can join them. These
launches show another program, or another place where it starts:

- torchrun with `--max-restarts` above 0 restarts the ranks of all nodes when one fails, and with a range of nodes and a
  dynamic rendezvous it goes on with those that are left (torch/distributed/elastic/agent/server/api.py);
- torchft and `ft_launcher` of nvidia-resiliency-ext replace a lost rank themselves;
- mpirun starts and ends all ranks from one pod, and the other pods only run sshd;
- the nodes of a Ray cluster come and go one by one.

A wrong answer in favour of healing costs a delay, and a wrong one against it interrupts a program that heals itself. So
a script that is more than a list of simple commands is still searched, line by line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from recovery.launch.commands import TORCHRUN_MODULES, Torchrun, program_of, torchrun_flags, variable_of
from recovery.launch.shell import base_name, script_in
from recovery.launch.torchrun_settings import filled
from recovery.launch.views import Container

TRAINERS_HOSTFILE = "OMPI_MCA_orte_default_hostfile"
"""A variable that Trainer sets in the container that runs mpirun, and in no other."""
_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun"})
_NVRX = "ft_launcher"
_NVRX_PACKAGE = "nvidia_resiliency_ext.fault_tolerance.launcher"
_TORCHFT_VARIABLES = "TORCHFT_"
_TORCHTITAN_FLAG = re.compile(r"--fault[-_]tolerance\.enable(?:=.*)?")
_RAY = frozenset({("ray", "start"), ("ray", "job")})
_DYNAMIC = frozenset({"c10d", "etcd", "etcd-v2"})
"""The rendezvous backends that nodes can join later. The static one waits for the larger number of a range."""
_ABOVE_ZERO = re.compile(r"0*[1-9][0-9]{0,8}")
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_BEFORE_ASSIGNMENTS = frozenset({"export", "exec", "env"})

_Calls = Sequence[Sequence[str]]


class ShownCollective(StrEnum):
    """The values of the annotation `recovery.trainjob.dev/collective`."""

    REQUIRED = "Required"
    SELF_HEALING = "SelfHealing"
    INDEPENDENT = "Independent"


class ShownProgram(msgspec.Struct, frozen=True):
    """What a launch shows."""

    collective: ShownCollective
    by: str
    """The part of the launch that shows it: `torchrun --max-restarts=3`, `mpirun`."""
    starts_all: bool = False
    """It starts and ends the ranks of all pods, so only its own end and start count."""


MPI_LAUNCHER = ShownProgram(ShownCollective.REQUIRED, "mpirun", starts_all=True)


def shown_by(container: Container) -> ShownProgram | None:
    """What the command and the variables of the container that trains show. None: nothing."""
    calls = tuple(_calls(container))
    variables = _variables(container, calls)
    return (
        _mpi(calls, variables) or _ray(calls) or _replacing(calls, variables) or _torchrun(container, calls, variables)
    )


def _calls(container: Container) -> Iterator[Sequence[str]]:
    """The words of each command."""
    words = [*container.command, *container.args]
    script = script_in(words)
    if script is None:
        yield words
    elif script.pipelines:
        for pipeline in script.pipelines:
            yield from pipeline.calls
    else:
        yield from script.lines()


def _variables(container: Container, calls: _Calls) -> Mapping[str, str]:
    """The variables of the container, and those that its script sets. One whose value is not known here is empty."""
    found = {each.name: each.value or "" for each in container.env}
    for call in calls:
        for word in call:
            assigned = _ASSIGNMENT.fullmatch(word)
            if assigned:
                found[assigned[1]] = assigned[2]
            elif word not in _BEFORE_ASSIGNMENTS:
                break
    return found


def _mpi(calls: _Calls, variables: Mapping[str, str]) -> ShownProgram | None:
    programs = (program_of(call)[:1] for call in calls)
    named = next((program for words in programs for program in words if program in _MPI), None)
    if named is not None:
        return msgspec.structs.replace(MPI_LAUNCHER, by=named)
    return MPI_LAUNCHER if TRAINERS_HOSTFILE in variables else None


def _ray(calls: _Calls) -> ShownProgram | None:
    pairs = ((base_name(first), second) for call in calls for first, second in pairwise(call))
    found = next((pair for pair in pairs if pair in _RAY), None)
    return None if found is None else ShownProgram(ShownCollective.INDEPENDENT, " ".join(found))


def _replacing(calls: _Calls, variables: Mapping[str, str]) -> ShownProgram | None:
    """Programs that replace a lost rank themselves: torchft, and the launcher of nvidia-resiliency-ext."""
    words = [word for call in calls for word in call]
    by = next((name for name in variables if name.startswith(_TORCHFT_VARIABLES)), "")
    by = by or next((word.partition("=")[0] for word in words if _TORCHTITAN_FLAG.fullmatch(word)), "")
    by = by or next((_NVRX for word in words if base_name(word) == _NVRX or word == _NVRX_PACKAGE), "")
    return ShownProgram(ShownCollective.SELF_HEALING, by) if by else None


def _torchrun(container: Container, calls: _Calls, variables: Mapping[str, str]) -> ShownProgram | None:
    """A call that is not seen here, as in a script of the image, reads the variables too."""
    runs = [run for call in calls if (run := _torchrun_in(call)) is not None] or [Torchrun({})]
    return next((found for run in runs if (found := _healed_by(container, run, variables)) is not None), None)


def _torchrun_in(words: Sequence[str]) -> Torchrun | None:
    """The call of torchrun in these words, wherever it begins: profilers and `numactl` stand before it."""
    for number, word in enumerate(words):
        following = words[number + 1] if number + 1 < len(words) else ""
        if base_name(word) == "torchrun":
            return torchrun_flags(words[number + 1 :])
        if (word == "-m" and following in TORCHRUN_MODULES) or (base_name(word), following) == ("tune", "run"):
            return torchrun_flags(words[number + 2 :])
    return None


def _healed_by(container: Container, run: Torchrun, variables: Mapping[str, str]) -> ShownProgram | None:
    def setting(flag: str) -> tuple[str, str]:
        """The value that torchrun uses, and how it is written. A flag wins over its variable. Empty: not known here."""
        if flag in run.flags:
            value = filled(container, run.flags[flag]) or ""
            return value, f"torchrun --{flag}={value}"
        value = filled(container, variables.get(variable_of(flag), "")) or ""
        return value, f"{variable_of(flag)}={value}"

    restarts, written = setting("max-restarts")
    if _ABOVE_ZERO.fullmatch(restarts):
        return ShownProgram(ShownCollective.SELF_HEALING, written)
    (nodes, written), (backend, _) = setting("nnodes"), setting("rdzv-backend")
    if "standalone" in run.flags or backend not in _DYNAMIC:
        return None
    matched = _RANGE.fullmatch(nodes)
    if matched is None or int(matched[1]) >= int(matched[2]):
        return None
    return ShownProgram(ShownCollective.SELF_HEALING, f"{written} with {backend}")
