"""Finds what a container runs if its command shows it plainly: torchrun with its flags, or a Python script.

Anything else (a shell script with loops, a wrapper, the entrypoint of an image) is not recognized, and the checks
conclude nothing from it.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from recovery.launch.shell import base_name, script_in
from recovery.launch.views import Container

_PYTHON = re.compile(r"python[0-9.]*")
_PYTHON_FLAGS_WITH_VALUE = frozenset({"-X", "-W"})
TORCHRUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_TORCHRUN_SWITCHES = frozenset({"--standalone", "--no-python", "--run-path", "--module", "-m", "--use-env"})
"""Flags of torchrun that take no value (torch/distributed/run.py); all others do."""


class Torchrun(msgspec.Struct, frozen=True):
    """A call of torchrun, or of `python -m torch.distributed.run`."""

    flags: dict[str, str]
    """The flags without leading dashes and with `-` for `_`: `nproc-per-node`. A switch has an empty value."""
    script: str = ""
    """The first word that is not a flag. A shell or Helm may expand `$FLAGS` to more flags. Empty: there are only
    flags."""
    overruled: dict[str, str] = {}
    """For each flag that appears twice with different values: the first value, which has no effect."""


class Script(msgspec.Struct, frozen=True):
    """`python train.py`, with no launcher around it."""

    text: str
    """The call without the script's own arguments: `python -u train.py`."""


def run_by(container: Container) -> Torchrun | Script | None:
    """The last command of the container, which is the one that trains. None: it is not recognized."""
    if "" in (*container.command, *container.args):
        return None  # a word that is not text is read as an empty string
    made_out = [_made_out(call) for call in calls_of(container)]
    if any(isinstance(each, Torchrun) for each in made_out[:-1]):
        return None
    return made_out[-1] if made_out else None


def variable_of(flag: str) -> str:
    """The variable that torchrun reads if the flag is not on its command line: `PET_NNODES` for `nnodes`."""
    return f"PET_{flag.replace('-', '_').upper()}"


def calls_of(container: Container) -> tuple[Sequence[str], ...]:
    """The simple commands that the container runs, in order. For a pipe it is the first command, because the others
    only read its output. Empty: there are none, or a shell script is more than a list of simple commands."""
    words = [*container.command, *container.args]
    script = script_in(words)
    if script is None:
        return (words,) if words else ()
    return tuple(pipeline.calls[0] for pipeline in script.pipelines)


def program_of(words: Sequence[str]) -> tuple[str, ...]:
    """A call without the `exec` and the variable assignments before its program, and with the program's base name."""
    rest = list(words)
    while rest and (rest[0] == "exec" or re.match(r"[A-Za-z_][A-Za-z0-9_]*=", rest[0])):
        rest.pop(0)
    return (base_name(rest[0]), *rest[1:]) if rest else ()


def _made_out(words: Sequence[str]) -> Torchrun | Script | None:
    program, *rest = program_of(words) or ("",)
    if program == "torchrun":
        return torchrun_flags(rest)
    if _PYTHON.fullmatch(program):
        return _python(words[len(words) - len(rest) - 1 :])
    return None


def _python(words: Sequence[str]) -> Torchrun | Script | None:
    number = 1
    while number < len(words) and words[number].startswith("-"):
        if words[number] == "-m":
            module = words[number + 1] if number + 1 < len(words) else ""
            return torchrun_flags(words[number + 2 :]) if module in TORCHRUN_MODULES else None
        if words[number] == "-c":
            return None
        number += 2 if words[number] in _PYTHON_FLAGS_WITH_VALUE else 1
    if number < len(words) and words[number].endswith(".py"):
        return Script(" ".join(words[: number + 1]))
    return None


def torchrun_flags(words: Iterable[str]) -> Torchrun:
    """Parses the words after the program's name. The words after the script belong to the script."""
    given: list[tuple[str, str]] = []
    waiting = script = ""
    for word in words:
        if waiting:
            given.append((waiting, word))
            waiting = ""
        elif not word.startswith("-"):
            script = word
            break
        else:
            flag, equals, value = word.partition("=")
            name = flag.replace("_", "-")
            if equals or name in _TORCHRUN_SWITCHES:
                given.append((name.lstrip("-"), value))
            else:
                waiting = name.lstrip("-")
    last = dict(given)
    overruled = {name: value for name, value in reversed(given) if value != last[name]}
    return Torchrun(last, script, overruled)
