"""What a container runs, as far as its command plainly says: torchrun with its flags, or a Python script by itself.

Everything else, a shell script with loops, a wrapper, the entrypoint of an image, is not made out, and nothing is
concluded from it.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from recovery.launch.views import Container

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_PYTHON = re.compile(r"python[0-9.]*")
_PYTHON_FLAGS_WITH_VALUE = frozenset({"-X", "-W"})
_TORCHRUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_TORCHRUN_SWITCHES = frozenset({"--standalone", "--no-python", "--run-path", "--module", "-m", "--use-env"})
"""Flags of torchrun that take no value (torch/distributed/run.py); all others do."""
_NOT_PLAIN = frozenset({"&", "(", ")", "for", "while", "if", "case", "until", "function", "{", "}"})
_SCRIPT_MAX = 20_000
"""Characters. Taking a longer script apart would keep admission waiting for seconds, and none such is a plain call."""
_SEPARATORS = frozenset({";", "&&", "||", ";;"})


class Torchrun(msgspec.Struct, frozen=True):
    """A call of torchrun, or of `python -m torch.distributed.run`."""

    flags: dict[str, str]
    """As written, without the leading dashes and with `-` for `_`: `nproc-per-node`. A switch has an empty value."""
    script: str = ""
    """The first word that is no flag. A shell or Helm may make more flags of `$FLAGS`. Empty: only flags are there."""


class Script(msgspec.Struct, frozen=True):
    """`python train.py`, with no launcher around it."""

    text: str
    """The call without the script's own arguments: `python -u train.py`."""


def run_by(container: Container) -> Torchrun | Script | None:
    """What the container runs last, which is what trains. None: it cannot be made out."""
    words = [*container.command, *container.args]
    if not words:
        return None
    calls: Sequence[Sequence[str]] = (words,)
    if _name(words[0]) in _SHELLS:
        script = next((word for before, word in pairwise(words) if _runs_next(before)), None)
        calls = _calls(script) if script is not None else ()
    made_out = [_made_out(call) for call in calls]
    if any(isinstance(each, Torchrun) for each in made_out[:-1]):
        return None
    return made_out[-1] if made_out else None


def _runs_next(word: str) -> bool:
    """A flag of a shell with `c` in it: `-c`, `-ec`, `-lc`."""
    return re.fullmatch(r"-[a-z]*c", word) is not None


def _calls(script: str) -> list[list[str]]:
    """The simple commands of a shell script. Empty: it is more than a row of them."""
    if "<<" in script or len(script) > _SCRIPT_MAX:
        return []
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        return []
    if _NOT_PLAIN.intersection(words) or any(word.startswith("#") for word in words):
        return []
    calls: list[list[str]] = [[]]
    piped = False
    for word in words:
        if word in _SEPARATORS:
            calls.append([])
        # Of a pipe the first command is the one that trains; `tee` and the like only read it.
        piped = word == "|" or (piped and word not in _SEPARATORS)
        if word not in _SEPARATORS and not piped:
            calls[-1].append(word)
    return [call for call in calls if call]


def _made_out(words: Sequence[str]) -> Torchrun | Script | None:
    rest = list(words)
    while rest and (rest[0] == "exec" or re.match(r"[A-Za-z_][A-Za-z0-9_]*=", rest[0])):
        rest.pop(0)
    if not rest:
        return None
    if _name(rest[0]) == "torchrun":
        return _torchrun(rest[1:])
    if _PYTHON.fullmatch(_name(rest[0])):
        return _python(rest)
    return None


def _python(words: Sequence[str]) -> Torchrun | Script | None:
    number = 1
    while number < len(words) and words[number].startswith("-"):
        if words[number] == "-m":
            module = words[number + 1] if number + 1 < len(words) else ""
            return _torchrun(words[number + 2 :]) if module in _TORCHRUN_MODULES else None
        if words[number] == "-c":
            return None
        number += 2 if words[number] in _PYTHON_FLAGS_WITH_VALUE else 1
    if number < len(words) and words[number].endswith(".py"):
        return Script(" ".join(words[: number + 1]))
    return None


def _torchrun(words: Iterable[str]) -> Torchrun:
    """What follows the script is the script's own."""
    found: dict[str, str] = {}
    waiting = ""
    for word in words:
        if waiting:
            found[waiting], waiting = word, ""
        elif not word.startswith("-"):
            return Torchrun(found, word)
        else:
            flag, equals, value = word.partition("=")
            name = flag.replace("_", "-")
            if equals or name in _TORCHRUN_SWITCHES:
                found[name.lstrip("-")] = value
            else:
                waiting = name.lstrip("-")
    return Torchrun(found)


def _name(word: str) -> str:
    return word.rpartition("/")[2]
