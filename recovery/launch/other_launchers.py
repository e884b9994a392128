"""Checks accelerate, deepspeed and torchtune's `tune run`: whether the processes that they start form one group.

The rules are those of their sources. accelerate 1.15 (commands/launch.py, utils/launch.py) passes --num_machines,
--machine_rank and --main_process_ip to torchrun. With one machine it sets none of them, so torchrun uses Trainer's
variables, but accelerate starts a single process without torchrun. deepspeed 0.19 (launcher/runner.py) knows the other
nodes only from its hostfile, /job/hostfile by default, and continues on its own node without one. `tune run` (torchtune
0.7, _cli/run.py) calls torchrun if it has a torchrun flag, and adds `--standalone` if it has no --rdzv-endpoint.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from recovery.launch.commands import Torchrun, calls_of, program_of, torchrun_flags
from recovery.launch.environment import NUM_NODES, TORCHTUNE
from recovery.launch.findings import LintFinding
from recovery.launch.launch import Launch, Member, place_of_command
from recovery.launch.launchers import FLAGS_CONTRADICT, NO_LAUNCHER
from recovery.launch.processes import processes_of, trained_by
from recovery.launch.ranks import SAME_NODE_RANK, TRAINS_ALONE, wrong_address
from recovery.launch.recoverability.effective import is_mpi
from recovery.launch.rendezvous import ENDPOINT_MISSING
from recovery.launch.torchrun_settings import filled, goes_by, trainer_sets
from recovery.launch.views import Container

_NUMBER = re.compile(r"[0-9]{1,9}")
_SCRIPT = re.compile(r".*\.(py|sh)|python[0-9.]*|bash|sh|-m|--module")
_SEVERAL = frozenset({"multi-gpu", "use-fsdp", "use-deepspeed", "use-megatron-lm", "config-file"})
"""Flags with which accelerate may call torchrun for a single process too."""
_STATIC = "static"
_HOSTFILE, _JOB_FOLDER, _HOSTFILE_OF_TRAINER = "hostfile", "/job", "/etc/mpi/hostfile"


class _Call(msgspec.Struct, frozen=True):
    """The words of a call, and the flags before its script: without leading dashes, with `-` for `_`. The next word
    counts as the value of a flag, though the flag may have none."""

    words: tuple[str, ...]
    flags: Mapping[str, str]


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        words = _last_call(member.main) if member.main is not None else ()
        program = tuple(words[:2])
        if program == ("accelerate", "launch"):
            yield from _accelerate(launch, member, _call(words[2:]))
        elif program == TORCHTUNE:
            yield from _tune(launch, member, words[2:])
        elif program[:1] == ("deepspeed",):
            yield from _deepspeed(launch, member, _call(words[1:]))


def _last_call(main: Container) -> tuple[str, ...]:
    """The words of the last command, with the base name of its program. Empty: it is not recognized."""
    calls = calls_of(main)
    return program_of(calls[-1]) if calls else ()


def _call(words: Sequence[str]) -> _Call:
    flags: dict[str, str] = {}
    for number, word in enumerate(words):
        if _SCRIPT.fullmatch(word):
            break
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            following = words[number + 1] if number + 1 < len(words) else ""
            flags[flag.lstrip("-").replace("_", "-")] = value if equals else following
    return _Call(tuple(words), flags)


# --- accelerate ------------------------------------------------------------------------------------------------------


def _accelerate(launch: Launch, member: Member, call: _Call) -> Iterator[LintFinding]:
    """Judges only the flags: for what they leave out, the image may have a config file."""
    machines = _number(member, call, "num-machines")
    if machines is None or member.pods < 2:
        return
    if machines == 1:
        yield from _one_machine(launch, member, call)
        return
    place = place_of_command(launch, member)
    missing = machines - launch.nodes
    if missing > 0:
        message = (
            f"accelerate goes by --num_machines={machines}: the {launch.nodes} pods wait for {missing} more that never "
            "come"
        )
        yield LintFinding(FLAGS_CONTRADICT, place, message, f"write --num_machines={launch.nodes}")
    if "use-deepspeed" in call.flags or call.flags.get("rdzv-backend", _STATIC) != _STATIC:
        return
    rank = _number(member, call, "machine-rank")
    if rank is not None and len(launch.members) == 1:
        message = (
            f"accelerate has --machine_rank={rank} in each of the {member.pods} pods: they wait for the others in vain"
        )
        index = "$PET_NODE_RANK" if trainer_sets(launch, member) else "$JOB_COMPLETION_INDEX"
        yield LintFinding(SAME_NODE_RANK, place, message, f"write --machine_rank={index}, in a shell")
    host = _value(member, call, "main-process-ip")
    wrong = wrong_address(launch, member, host, static=True) if host else None
    if wrong is not None:
        fix = f"write --main_process_ip={launch.name}-{member.job.name}-0-0.{launch.job_set.subdomain or launch.name}"
        yield LintFinding(wrong[0], place, f"--main_process_ip is {host}, {wrong[1]}", fix)


def _one_machine(launch: Launch, member: Member, call: _Call) -> Iterator[LintFinding]:
    assert member.main is not None, "it has a command"
    processes = _number(member, call, "num-processes")
    nodes = next((each for each in member.main.env if each.name == NUM_NODES), None)
    place = place_of_command(launch, member)
    if trainer_sets(launch, member):
        single = processes == 1 or ("num-processes" not in call.flags and member.gpus_per_pod == 1)
        if single and not _SEVERAL & call.flags.keys():
            message = (
                "accelerate with --num_machines=1 starts a single process without torchrun, which reads none of "
                f"Trainer's variables: each of the {member.pods} pods trains alone"
            )
            yield LintFinding(TRAINS_ALONE, place, message, "write torchrun in place of accelerate launch")
        elif processes is not None and processes > member.gpus_per_pod > 0:
            message = (
                f"with --num_machines=1 accelerate starts --num_processes={processes} in each pod, which has "
                f"{member.gpus_per_pod} accelerators"
            )
            yield LintFinding(FLAGS_CONTRADICT, place, message, f"write --num_processes={member.gpus_per_pod}")
    elif nodes is None and not member.main.has_env_from:
        message = f"accelerate has --num_machines=1: each of the {member.pods} pods trains alone"
        fix = (
            f"write --num_machines={launch.nodes} --machine_rank=$JOB_COMPLETION_INDEX --main_process_ip={launch.name}-"
            f"{member.job.name}-0-0.{launch.job_set.subdomain or launch.name}, if the pods are to train together"
        )
        yield LintFinding(TRAINS_ALONE, place, message, fix)


# --- deepspeed -------------------------------------------------------------------------------------------------------


def _deepspeed(launch: Launch, member: Member, call: _Call) -> Iterator[LintFinding]:
    """Reports a call without a hostfile, as far as the manifest shows: the command names none, and nothing is mounted
    at the default path."""
    main = member.main
    if main is None or launch.nodes < 2 or {"H", _HOSTFILE} & call.flags.keys():
        return
    words = (*main.command, *main.args)
    if any(_HOSTFILE in word for word in words) or any(each.path.startswith(_JOB_FOLDER) for each in main.mounts):
        return
    nodes = _number(member, call, "num-nodes") or 1
    follows = f"with --num_nodes={nodes} it fails" if nodes > 1 else "it trains on the devices of its own pod alone"
    message = (
        f"deepspeed finds the other nodes in a hostfile, by default {_JOB_FOLDER}/hostfile, and without one {follows}"
    )
    fix = "write torchrun in place of deepspeed, which initializes from torchrun's variables too"
    if is_mpi(launch):
        fix = f"add --hostfile={_HOSTFILE_OF_TRAINER}, which Trainer mounts"
    yield LintFinding(TRAINS_ALONE, place_of_command(launch, member), message, fix)


# --- torchtune -------------------------------------------------------------------------------------------------------


def _tune(launch: Launch, member: Member, words: Sequence[str]) -> Iterator[LintFinding]:
    """Skips a TrainJob whose command is `tune run` and nothing else, because Trainer completes it."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and trainer.command == TORCHTUNE:
        return
    run, place = torchrun_flags(words), place_of_command(launch, member)
    if run.flags:
        yield from _tune_distributed(launch, member, run)
        return
    found = processes_of(launch) if member is trained_by(launch) else None
    without = "`tune run` without a flag of torchrun starts"
    if member.pods > 1:
        message = f"{without} a single process: each of the {member.pods} pods trains alone"
        yield LintFinding(TRAINS_ALONE, place, message, f"write {_endpoint(launch, member)} behind tune run")
    elif found is not None and found.count > 1 and found.place is not None:
        message = f"{without} 1 process where {found.count} are meant ({found.rule})"
        yield LintFinding(NO_LAUNCHER, place, message, f"write --nproc-per-node={found.count} behind tune run")


def _tune_distributed(launch: Launch, member: Member, run: Torchrun) -> Iterator[LintFinding]:
    if member.pods < 2 or goes_by(launch, member, run, "rdzv-endpoint") != "":
        return
    nodes, without = goes_by(launch, member, run, "nnodes"), "`tune run` without --rdzv-endpoint is standalone"
    fix, place = f"add {_endpoint(launch, member)}", place_of_command(launch, member)
    if nodes in ("1", "1:1"):
        message = f"{without}: each of the {member.pods} pods trains alone"
        yield LintFinding(TRAINS_ALONE, place, message, f"{fix} and --nnodes={member.pods}")
    elif nodes is not None and _NUMBER.fullmatch(nodes):
        message = f"{without}: each of the {member.pods} pods waits for the others in a rendezvous of its own"
        yield LintFinding(ENDPOINT_MISSING, place, message, fix)


def _endpoint(launch: Launch, member: Member) -> str:
    name = "<job>" if launch.train_job is None and launch.runtime is not None else launch.name
    return f"--rdzv-endpoint={name}-{member.job.name}-0-0.{launch.job_set.subdomain or name}:29500"


def _value(member: Member, call: _Call, flag: str) -> str | None:
    """The value of that flag. None: it is not given, or not known here."""
    given = call.flags.get(flag)
    return filled(member.main, given) if given and member.main is not None else None


def _number(member: Member, call: _Call, flag: str) -> int | None:
    value = _value(member, call, flag)
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None
