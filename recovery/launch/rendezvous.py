"""Checks how the pods of torchrun meet, and whether a range of nodes is elastic.

The static rendezvous is torchrun's default, and Trainer does not change it. It waits for the larger number of a range
(torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: `world_size = params.max_nodes`). Without an endpoint
c10d uses localhost (rendezvous/utils.py: parse_rendezvous_endpoint), so each pod waits in a rendezvous of its own.
"""

import re
from collections.abc import Iterator

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.fields import is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, place_of_command
from recovery.launch.torch_env import PORT

RANGE_WAITS = Code("range-waits", Severity.ERROR, "a range of nodes waits for more nodes than there are")
RANGE_NOT_ELASTIC = Code(
    "range-not-elastic", Severity.WARNING, "a range of nodes is not elastic without the c10d rendezvous"
)
ENDPOINT_MISSING = Code("endpoint-missing", Severity.ERROR, "c10d without an endpoint: each pod meets only itself")
CODES = (RANGE_WAITS, RANGE_NOT_ELASTIC, ENDPOINT_MISSING)

_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_VARIABLES = "PET_RDZV_"
_STATIC = "static"
_C10D = "c10d"


def check(launch: Launch) -> Iterator[LintFinding]:
    """Checks only a group whose pods are all alike. In other groups it is not known which pods meet."""
    if len(launch.members) != 1:
        return
    (member,) = launch.members
    run = run_by(member.main) if member.main is not None else None
    if member.main is None or not isinstance(run, Torchrun) or "standalone" in run.flags:
        return
    # A shell may set the variables itself, or have more flags in a variable of its own.
    if is_placeholder(run.script) or any(_VARIABLES in word for word in (*member.main.command, *member.main.args)):
        return
    backend = _setting(member, run, "rdzv-backend", _STATIC)
    if backend == _STATIC:
        # Trainer overrides PET_NNODES with the number of pods.
        asked = run.flags.get("nnodes", "") if launch.runtime is not None else _setting(member, run, "nnodes", "")
        yield from _static_range(launch, member, asked)
    elif backend == _C10D and member.pods > 1 and _setting(member, run, "rdzv-endpoint", "") == "":
        message = (
            f"--rdzv-backend=c10d without an endpoint takes localhost: each of the {member.pods} pods waits for the "
            "others in a rendezvous of its own"
        )
        place = place_of_command(launch, member)
        yield LintFinding(ENDPOINT_MISSING, place, message, f"add --rdzv-endpoint={_endpoint(launch, member)}")


def _static_range(launch: Launch, member: Member, asked: str | None) -> Iterator[LintFinding]:
    """`launchers` reports a number of pods outside the range."""
    matched = _RANGE.fullmatch(asked or "")
    if matched is None:
        return
    least, most = int(matched[1]), int(matched[2])
    if not least <= member.pods <= most or least == most:
        return
    fix = f"add --rdzv-backend=c10d --rdzv-endpoint={_endpoint(launch, member)}, or remove --nnodes"
    place = place_of_command(launch, member)
    why = "the static rendezvous, which is torchrun's default, takes a range for its larger number"
    if member.pods < most:
        message = (
            f"with --nnodes={asked} the {member.pods} pods wait for {most - member.pods} more that never come: {why}"
        )
        yield LintFinding(RANGE_WAITS, place, message, fix)
    else:
        message = f"with --nnodes={asked} the group never goes on with fewer than {most} nodes: {why}"
        yield LintFinding(RANGE_NOT_ELASTIC, place, message, fix)


def _setting(member: Member, run: Torchrun, flag: str, default: str) -> str | None:
    """The value that torchrun uses. A flag wins over its variable. None: the value is not known here."""
    if flag in run.flags:
        return run.flags[flag]
    name = f"PET_{flag.replace('-', '_').upper()}"
    variables = member.main.env if member.main is not None else ()
    elsewhere = member.main is not None and member.main.has_env_from
    return next((each.value for each in reversed(variables) if each.name == name), None if elsewhere else default)


def _endpoint(launch: Launch, member: Member) -> str:
    """The endpoint at the first pod, by JobSet's name for it. A runtime by itself does not know the job's name."""
    name = "<job>" if launch.train_job is None and launch.runtime is not None else launch.name
    return f"{name}-{member.job.name}-0-0.{launch.job_set.subdomain or name}:{PORT}"
