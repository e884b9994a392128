"""Checks whether the pods of torchrun form one group: how many there are, which rank each has, and where rank 0 is.

The static rendezvous, torchrun's default, takes the rank of a node from `--node-rank`, 0 by default, and the address of
rank 0 from `--master-addr`, 127.0.0.1 by default. Rank 0 serves the store there, and every other rank waits for it
(torch/distributed/run.py, elastic/rendezvous/static_tcp_rendezvous.py). `--nnodes` is 1 by default. The c10d rendezvous
assigns the ranks itself. JobSet's Jobs are Indexed, and in each Job the pod index begins at 0.
"""

import re
from collections.abc import Iterator

from recovery.launch.addresses import Whose, pod_of, whose
from recovery.launch.commands import Torchrun, run_by, variable_of
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, place_of_command
from recovery.launch.rendezvous import ENDPOINT_MISSING
from recovery.launch.shell import script_in
from recovery.launch.torch_env import MASTER_NOWHERE, PORT
from recovery.launch.torchrun_settings import OF_TRAINER, goes_by, trainer_sets

SAME_NODE_RANK = Code("same-node-rank", Severity.ERROR, "several pods have one node rank, and others are missing")
MASTER_DOUBTFUL = Code("master-doubtful", Severity.WARNING, "the address of rank 0 is not a pod of this job")
TRAINS_ALONE = Code("trains-alone", Severity.WARNING, "the launcher of each pod does not know the other pods")
CODES = (SAME_NODE_RANK, MASTER_DOUBTFUL, TRAINS_ALONE)

_RANGE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_INDEX = re.compile(r"\$[({]?JOB_COMPLETION_INDEX[)}]?")
_GROUP_FLAGS = frozenset({"node-rank", "master-addr", "rdzv-endpoint"})
"""Only a group of several nodes needs these."""
_LOCAL = re.compile(r"localhost|127\.[0-9.]+|\[?::1\]?|\[?0:0:0:0:0:0:0:1\]?", re.IGNORECASE)
_STATIC, _C10D = "static", "c10d"


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        run = run_by(member.main) if member.main is not None else None
        if not isinstance(run, Torchrun) or "standalone" in run.flags or launch.nodes < 2:
            continue
        nodes = _nodes(launch, member, run)
        if nodes is not None and nodes > 1:
            yield from _same_rank(launch, member, run, nodes)
            yield from _address(launch, member, run)
        elif nodes == 1:
            yield from _alone(launch, member, run)


def _nodes(launch: Launch, member: Member, run: Torchrun) -> int | None:
    """The smallest number of nodes that torchrun waits for. None: it is not known here."""
    matched = _RANGE.fullmatch(goes_by(launch, member, run, "nnodes") or "")
    return int(matched[1]) if matched is not None else None


def _same_rank(launch: Launch, member: Member, run: Torchrun, nodes: int) -> Iterator[LintFinding]:
    """Judges only a single ReplicatedJob, because each of several may have a rank of its own."""
    if len(launch.members) != 1 or member.pods < 2 or goes_by(launch, member, run, "rdzv-backend") != _STATIC:
        return
    per_job, jobs = member.pods // max(1, member.job.replicas or 1), member.job.replicas or 1
    rank, index = goes_by(launch, member, run, "node-rank"), run.flags.get("node-rank", "")
    if rank is not None and rank.isdecimal():
        flag = f"--node-rank={rank}" if "node-rank" in run.flags else f"no --node-rank, and its default is {rank}"
        message = f"torchrun has {flag} in each of the {member.pods} pods: they wait for the other ranks in vain"
    elif _INDEX.fullmatch(index) and jobs > 1 and per_job < nodes:
        message = (
            f"the completion index begins at 0 in each of the {jobs} Jobs of ReplicatedJob {member.job.name}: of the "
            f"{nodes} ranks only {per_job} are taken, by {jobs} pods each, and these wait for the others in vain"
        )
    else:
        return
    c10d = f"--rdzv-backend=c10d --rdzv-endpoint={_first_pod(launch, member)}:{PORT}, which gives out the ranks"
    fix = f"write {_index_in(member)} as --node-rank, or {c10d}" if jobs == 1 else f"write {c10d}"
    if trainer_sets(launch, member):
        fix = "remove --node-rank: Trainer sets PET_NODE_RANK"
    yield LintFinding(SAME_NODE_RANK, place_of_command(launch, member), message, fix)


def _address(launch: Launch, member: Member, run: Torchrun) -> Iterator[LintFinding]:
    backend, endpoint = goes_by(launch, member, run, "rdzv-backend"), goes_by(launch, member, run, "rdzv-endpoint")
    if backend not in (_STATIC, _C10D) or endpoint is None or (backend == _C10D and not endpoint):
        return  # `rendezvous` reports c10d without an endpoint
    flag = "rdzv-endpoint" if endpoint else "master-addr"
    variable = variable_of(flag)
    if flag not in run.flags and variable in OF_TRAINER and trainer_sets(launch, member):
        return  # `torch_env` reports what Trainer writes
    host = endpoint.rpartition(":")[0] or endpoint if endpoint else goes_by(launch, member, run, flag)
    if not host:
        return
    written = any(each.name == variable for each in member.main.env) if member.main is not None else False
    address_source = f"--{flag} is {host}" if flag in run.flags else f"{variable} is {host}" if written else ""
    address_source = address_source or f"torchrun has no --{flag}, and its default is {host}"
    found = wrong_address(launch, member, host, static=backend == _STATIC)
    if found is None:
        return
    code, why = found
    first = f"{_first_pod(launch, member)}{f':{PORT}' if endpoint else ''}"
    fix = f"write --{flag}={first}"
    if flag == "master-addr" and trainer_sets(launch, member):
        fix = "remove --master-addr: Trainer sets PET_MASTER_ADDR"
    yield LintFinding(code, place_of_command(launch, member), f"{address_source}, {why}", fix)


def wrong_address(launch: Launch, member: Member, host: str, *, static: bool) -> tuple[Code, str] | None:
    """What is wrong with that address of rank 0. None: nothing that is known here."""
    if _LOCAL.fullmatch(host):
        code = MASTER_NOWHERE if static else ENDPOINT_MISSING
        return code, f"which is each of the {launch.nodes} pods itself: none of them finds another"
    match whose(launch, host):
        case Whose.NO_POD:
            return MASTER_NOWHERE, "a name that no pod of the job will have: the rendezvous never finds rank 0"
        case Whose.WITHOUT_DOMAIN:
            return MASTER_DOUBTFUL, "and the name of a pod is found only with its domain behind it"
        case Whose.ANOTHER_JOB:
            return MASTER_DOUBTFUL, f"which is the name of a pod of another job than {launch.name}"
        case Whose.OURS if static and trainer_sets(launch, member) and pod_of(launch, host) != (member.job.name, 0, 0):
            return MASTER_NOWHERE, "and Trainer gives rank 0 to the first pod, so that the others wait at the wrong one"
    return None


def _alone(launch: Launch, member: Member, run: Torchrun) -> Iterator[LintFinding]:
    """The pods of a JobSet may be meant to train alone. Only pods with GPUs, or with a group's flags, are reported."""
    if launch.runtime is not None or member.pods < 2 or member.main is None:
        return
    words = (*member.main.command, *member.main.args)
    apart = "nnodes" in run.flags or any("JOB_COMPLETION_INDEX" in word for word in words)
    if not _GROUP_FLAGS & run.flags.keys() and (apart or not launch.gpus):
        return
    nodes = "--nnodes=1" if "nnodes" in run.flags else "no --nnodes, and its default is 1"
    message = f"torchrun has {nodes}: each of the {member.pods} pods takes itself for the only one, and trains alone"
    endpoint = f"--rdzv-backend=c10d --rdzv-endpoint={_first_pod(launch, member)}:{PORT}"
    fix = f"write --nnodes={launch.nodes} {endpoint}, if the pods are to train together"
    yield LintFinding(TRAINS_ALONE, place_of_command(launch, member), message, fix)


def _first_pod(launch: Launch, member: Member) -> str:
    """The host name that JobSet gives to the first pod. A runtime by itself does not know the job's name."""
    name = "<job>" if launch.train_job is None and launch.runtime is not None else launch.name
    return f"{name}-{member.job.name}-0-0.{launch.job_set.subdomain or name}"


def _index_in(member: Member) -> str:
    """The variable with the completion index, in the syntax of the shell, or of the kubelet if no shell runs."""
    words = [*member.main.command, *member.main.args] if member.main is not None else []
    return "$JOB_COMPLETION_INDEX" if script_in(words) is not None else "$(JOB_COMPLETION_INDEX)"
