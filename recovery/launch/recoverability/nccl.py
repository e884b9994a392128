"""Finds variables that make a rank that waits for a lost peer end late, never, or without a trace.

Source: PyTorch 2.x `ProcessGroupNCCL.hpp` and `.cpp`. Defaults: errors end the process (mode 3), collectives time out
after 600 s, the watchdog's own heartbeat times out after 480 s, and the flight recorder keeps 2,000 events.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.recoverability.words import span
from recovery.launch.views import Container, EnvVar

HANGS_FOR_EVER = Code("hangs-for-ever", Severity.WARNING, "ranks that wait for a lost peer never end")
WATCHDOG_UNWATCHED = Code("watchdog-unwatched", Severity.WARNING, "a rank whose NCCL watchdog is stuck hangs")
TIMEOUT_NOT_READ = Code("timeout-not-read", Severity.NOTE, "a variable that neither PyTorch nor NCCL reads")
NO_FLIGHT_RECORDER = Code("no-flight-recorder", Severity.NOTE, "a hang leaves no record of who did not join")
CODES = (HANGS_FOR_EVER, WATCHDOG_UNWATCHED, TIMEOUT_NOT_READ, NO_FLIGHT_RECORDER)

_ERROR_HANDLING = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
_BLOCKING_WAIT = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_MONITORING = ("TORCH_NCCL_ENABLE_MONITORING",)
_HEARTBEAT = ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",)
_NOT_READ = ("NCCL_TIMEOUT", "TORCH_NCCL_TIMEOUT")
_RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_DUMP = ("TORCH_NCCL_DUMP_ON_TIMEOUT",)
_HEARTBEAT_MAX_SECONDS = 1800
_YES = frozenset({"1", "y", "yes", "t", "true"})
_NO = frozenset({"0", "n", "no", "f", "false"})
"""The values that c10d's `getCvarBool` reads as true or false, in any case."""


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        if member.main is not None:
            yield from _of(member.main)


def _of(main: Container) -> Iterator[LintFinding]:
    yield from _hangs(main)
    yield from _watchdog(main)
    yield from _not_read(main)
    yield from _recorder(main)


def _hangs(main: Container) -> Iterator[LintFinding]:
    handling = _set(main, _ERROR_HANDLING)
    blocking = _set(main, _BLOCKING_WAIT)
    if handling is None or _value(handling) != "0" or (blocking is not None and _value(blocking) in _YES):
        return  # with a blocking wait the collective itself raises
    yield LintFinding(
        HANGS_FOR_EVER,
        handling.place,
        f"{handling.name}=0 turns the handling of NCCL errors off: when a peer is lost the other ranks neither time "
        "out nor exit, and hold their GPUs until a person ends them",
        f"remove {handling.name} (PyTorch's default, 3, ends the process)",
    )


def _watchdog(main: Container) -> Iterator[LintFinding]:
    monitoring = _set(main, _MONITORING)
    if monitoring is not None and _value(monitoring) in _NO:
        yield LintFinding(
            WATCHDOG_UNWATCHED,
            monitoring.place,
            f"{monitoring.name}={monitoring.value}: nothing ends a rank whose NCCL watchdog is stuck in a CUDA or NCCL "
            "call, and it hangs for ever",
            f"remove {monitoring.name}",
        )
        return
    heartbeat = _set(main, _HEARTBEAT)
    seconds = _value(heartbeat) if heartbeat is not None else ""
    if heartbeat is not None and seconds.isdecimal() and int(seconds) > _HEARTBEAT_MAX_SECONDS:
        yield LintFinding(
            WATCHDOG_UNWATCHED,
            heartbeat.place,
            f"{heartbeat.name}={heartbeat.value}: a rank whose NCCL watchdog is stuck in a CUDA or NCCL call hangs for "
            f"{span(int(seconds))} before it is ended",
            f"set {heartbeat.name} to 600, or remove it (PyTorch's default is 480)",
        )


def _not_read(main: Container) -> Iterator[LintFinding]:
    variable = _set(main, _NOT_READ)
    if variable is not None:
        yield LintFinding(
            TIMEOUT_NOT_READ,
            variable.place,
            f"neither PyTorch nor NCCL reads {variable.name}: unless your script does, collectives time out after "
            "PyTorch's default of 600 s",
            "pass the timeout to torch.distributed.init_process_group(timeout=...)",
        )


def _recorder(main: Container) -> Iterator[LintFinding]:
    size, dump = _set(main, _RECORDER), _set(main, _DUMP)
    if size is not None and _value(size) == "0":
        off = size
    elif dump is not None and _value(dump) in _NO:
        off = dump
    else:
        return
    yield LintFinding(
        NO_FLIGHT_RECORDER,
        off.place,
        f"{off.name}={off.value} turns PyTorch's flight recorder off: after a hang nothing shows which rank did not "
        "join which collective",
        f"remove {off.name}",
    )


def _set(main: Container, names: tuple[str, ...]) -> EnvVar | None:
    """The variable that applies. Of several names for it the first wins. Of two entries with one name the kubelet uses
    the last. None: it is not set, or set by a reference, whose value is not known here."""
    for name in names:
        found = [each for each in main.env if each.name == name]
        if found:
            return found[-1] if found[-1].value is not None else None
    return None


def _value(variable: EnvVar) -> str:
    return (variable.value or "").strip().lower()
