"""Checks whether mpirun starts as many processes as Trainer gives it slots.

Trainer 2.3 lists every node in the hostfile with numProcPerNode slots (pkg/runtime/framework/plugins/mpi). Without -np
OpenMPI starts one process for each slot. A smaller number leaves slots idle, and a larger one is refused unless OpenMPI
may oversubscribe.
"""

import re
from collections.abc import Iterator, Sequence

from recovery.launch.commands import calls_of, program_of
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, place_of_command
from recovery.launch.mpi import LAUNCHER, NODE
from recovery.launch.processes import processes_of
from recovery.launch.torchrun_settings import filled

MPIRUN_PROCESSES = Code(
    "mpirun-processes", Severity.WARNING, "mpirun starts another number of processes than there are slots"
)
CODES = (MPIRUN_PROCESSES,)

_PROGRAMS = frozenset({"mpirun", "mpiexec"})
_COUNTS = frozenset({"-np", "--np", "-n", "--n", "-c", "--c"})
_OTHER_SLOTS = re.compile(
    r"--?(?:host|H|hostfile|machinefile|N|npernode|oversubscribe|map-by|cpus-per-proc|cpu-set)(?:=.*)?"
    r"|(?i:.*oversubscribe.*)"
)
"""Words that change which slots are used, or that start several programs."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_PROGRAM = re.compile(r"[^-].*(?:\.py|\.sh)|(?:.*/)?(?:python[0-9.]*|bash|sh)")


def check(launch: Launch) -> Iterator[LintFinding]:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    if policy is None or policy.mpi is None or launch.train_job is None:
        return
    both = bool(policy.mpi.run_launcher_as_node)
    trains = [each for each in launch.members if each.job.name == NODE or (both and each.job.name == LAUNCHER)]
    launcher = next((each for each in launch.members if each.job.name == LAUNCHER), None)
    found = processes_of(launch)
    if launcher is not None and found is not None and trains:
        yield from _processes(launch, launcher, trains, found.trainer_count)


def _processes(launch: Launch, launcher: Member, trains: Sequence[Member], slots: int) -> Iterator[LintFinding]:
    asked, pods = _asked(launcher), sum(each.pods for each in trains)
    if asked is None or asked == pods * slots:
        return
    asks = f"mpirun -np {asked} of {pods * slots} slots ({pods} pods with {slots} each)"
    if asked > pods * slots:
        message = f"{asks} is refused by OpenMPI, which starts no more than there are"
    elif any(each.gpus_per_pod for each in trains):
        message = f"{asks} leaves {pods * slots - asked} of them idle, and their accelerators with them"
    else:
        return
    fix = "remove -np: OpenMPI then starts one process for each slot"
    yield LintFinding(MPIRUN_PROCESSES, place_of_command(launch, launcher), message, fix)


def _asked(launcher: Member) -> int | None:
    """The number of processes that the command names. None: it names no number, or uses other slots than Trainer's."""
    calls = calls_of(launcher.main) if launcher.main is not None else ()
    program, *words = program_of(calls[-1]) if calls else ("",)
    if launcher.main is None or program not in _PROGRAMS:
        return None
    if any(variable.name.startswith("OMPI_MCA_rmaps") for variable in launcher.main.env):
        return None
    end = next((number for number, word in enumerate(words) if _PROGRAM.fullmatch(word)), len(words))
    if ":" in words or any(_OTHER_SLOTS.fullmatch(word) for word in words[:end]):
        return None
    at = next((number for number, word in enumerate(words[:end]) if word in _COUNTS), None)
    given = filled(launcher.main, words[at + 1]) if at is not None and at + 1 < len(words) else None
    return int(given) if given is not None and _NUMBER.fullmatch(given) else None
