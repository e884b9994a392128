"""Checks whether a shell script ends with the exit code of the training.

The rules are those of POSIX and bash. A pipe has the exit code of its last command unless `pipefail` is on. A script
has the exit code of its last command, and `set -e` ends it early only at the last command of a chain of `&&` and `||`.
A container that exits with 0 has succeeded, whatever its log says: the Job counts the pod as complete, and nothing
restarts it.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, place_of_command
from recovery.launch.places import Place
from recovery.launch.shell import ERREXIT, PIPEFAIL, Pipeline, ShellScript, base_name, options_of, script_in
from recovery.launch.views import Container, VolcanoJob

FAILURE_HIDDEN = Code("failure-hidden", Severity.WARNING, "a program that fails ends its pod with success")
CODES = (FAILURE_HIDDEN,)

_LAUNCHERS = frozenset(
    {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "tune", "colossalai", "srun"}
)
_PYTHON = re.compile(r"python[0-9.]*")
_CAREFUL = re.compile(r"\$\?|\$\{\?\}|PIPESTATUS|pipestatus|\btrap\b|SHELLOPTS")
"""Signs that the script handles exit codes itself."""
_WORDS_MAX = 2
"""Words of a command that a message quotes."""
_UNSURE = frozenset({"test", "[", "[[", "!", "source", ".", "eval", "return", "cd"}) | _LAUNCHERS
"""As the last command, each of these may well fail if the training has failed."""


class _Hides(msgspec.Struct, frozen=True):
    """What replaces the exit code of the training."""

    training: str
    by: str
    """The command whose exit code counts, after its `|` or `||` if it has one."""


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        if member.main is not None:
            yield from _of(member.main, place_of_command(launch, member))


def check_volcano(job: VolcanoJob) -> Iterator[LintFinding]:
    for task in job.tasks:
        for container in task.pods.containers:
            yield from _of(container, container.place / ("command" if container.command else "args"))


def _of(container: Container, place: Place) -> Iterator[LintFinding]:
    script = script_in([*container.command, *container.args])
    hides = _hides(script) if script is not None else None
    if hides is None:
        return
    message = (
        f"the container ends with the exit code of `{hides.by}`, whatever {hides.training} ends with: a failure "
        "ends the pod as Succeeded, and nothing restarts it"
    )
    fix = f"let {hides.training} be the last command, or write set -e at the beginning of the script"
    if hides.by.startswith("||"):
        fix = f"remove {hides.by}"
    elif hides.by.startswith("|"):
        fix = "write set -o pipefail at the beginning of the script; bash has it"
    yield LintFinding(FAILURE_HIDDEN, place, message, fix)


def _hides(script: ShellScript) -> _Hides | None:
    """What hides the exit code of the training. None: nothing does, or it is unknown."""
    trains = [(number, turn) for number, each in enumerate(script.pipelines) for turn in _training_calls(each.calls)]
    if not trains or _CAREFUL.search(script.text):
        return None
    at, turn = trains[-1]
    status, by = _run(script, at, turn)
    return _Hides(base_name(_words(script.pipelines[at].calls[turn])[0]), by) if status == 0 and by else None


def _run(script: ShellScript, at: int, turn: int) -> tuple[int | None, str]:
    """The exit code of the script, and the command that sets it, if the training fails and everything else succeeds.
    The training is call `turn` of pipeline `at`. None: the exit code is unknown. Empty command: the training does not
    run, or nothing comes after it."""
    options, by, joint = set(script.options), "", ";"
    ended: int | None = 0
    for number, pipeline in enumerate(script.pipelines):
        if ended is None and joint != ";":
            return None, ""
        runs = joint == ";" or (joint == "&&") == (ended == 0)
        if number == at and not runs:
            return None, ""
        if runs and number == at:
            piped = turn < len(pipeline.calls) - 1
            ended = 0 if piped and PIPEFAIL not in options else 1
            by = f"| {_short(pipeline.calls[-1])}" if piped else ""
            if "exec" in pipeline.calls[turn] and not piped:
                return 1, ""
        elif runs:
            _set_options(options, pipeline.calls[0])
            ended = _ends_with(pipeline) if number > at else 0
            if number > at:
                by = f"{'|| ' if joint == '||' else ''}{_short(pipeline.calls[-1])}"
                if pipeline.calls[-1][0] == "exit":
                    return ended, by
        if runs and ended and pipeline.joint == ";" and ERREXIT in options:
            return ended, by
        joint = pipeline.joint
    return ended, by


def _set_options(options: set[str], call: Sequence[str]) -> None:
    if call[0] == "set":
        for name, on in options_of(call[1:]).items():
            (options.add if on else options.discard)(name)


def _ends_with(pipeline: Pipeline) -> int | None:
    """The exit code of a command after the training, if the command works as intended. None: it is unknown."""
    words = _words(pipeline.calls[-1])
    if not words:
        return 0
    name = base_name(words[0])
    if name == "exit":
        return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
    if name == "false":
        return 1
    unsure = name in _UNSURE or _PYTHON.fullmatch(name) or name.startswith("$") or name.endswith(".sh")
    return None if unsure else 0


def _training_calls(calls: Sequence[Sequence[str]]) -> Iterator[int]:
    for turn, call in enumerate(calls):
        words = _words(call)
        name = base_name(words[0]) if words else ""
        if name in _LAUNCHERS or (_PYTHON.fullmatch(name) and len(words) > 1 and "-c" not in words[:3]):
            yield turn


def _words(call: Sequence[str]) -> list[str]:
    """The call without what stands before its program, such as `exec` and variable assignments."""
    words = list(call)
    while words and (words[0] in ("exec", "time", "nohup") or re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0])):
        words.pop(0)
    return words


def _short(call: Sequence[str]) -> str:
    """The command without most of its arguments."""
    return " ".join(call[:_WORDS_MAX])
