"""Parses the shell script that a container runs with `-c`: simple commands, what joins them, and the shell's options.

A script with loops, functions, subshells, background jobs, comments or here-documents is not parsed.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_NOT_PLAIN = frozenset({"&", "(", ")", "for", "while", "if", "case", "until", "function", "{", "}"})
_SCRIPT_MAX = 20_000
"""Characters. Parsing a longer script would keep admission waiting for seconds, and no plain call is that long."""
_ENDS = frozenset({";", ";;"})
_JOINTS = frozenset({"&&", "||"}) | _ENDS
_PIPES = frozenset({"|", "|&"})
ERREXIT, PIPEFAIL = "errexit", "pipefail"
_LETTERS = {"e": ERREXIT}


class Pipeline(msgspec.Struct, frozen=True):
    """Commands with pipes between them. Most often it is a single command."""

    calls: tuple[tuple[str, ...], ...]
    """The words of each command."""
    joint: str
    """What follows the pipeline: `&&`, `||`, or `;` for anything that ends a command."""


class ShellScript(msgspec.Struct, frozen=True):
    """The script after `-c`."""

    pipelines: tuple[Pipeline, ...]
    """Empty: the script is more than a list of simple commands."""
    options: frozenset[str]
    """`errexit` and `pipefail`, if the shell's flags set them. The script may set them too."""
    text: str

    def lines(self) -> Iterator[tuple[str, ...]]:
        """The words of each line, for a search in a script whose commands are not known. None of one that is too long.

        Lines of a here-document or of a loop are among them, and a word may stand in another place than a command's.
        """
        text = self.text if len(self.text) <= _SCRIPT_MAX else ""
        for line in text.replace("\\\n", " ").splitlines():
            try:
                yield tuple(shlex.split(line, comments=True))
            except ValueError:  # a quote that another line closes
                yield tuple(line.split())


def script_in(words: Sequence[str]) -> ShellScript | None:
    """The shell script in a container's command line. None: it runs no shell."""
    if not words or base_name(words[0]) not in _SHELLS:
        return None
    text = next((word for before, word in pairwise(words) if _runs_next(before)), "")
    return ShellScript(_pipelines(text), _options(words), text)


def base_name(word: str) -> str:
    """The name of a program, without its directory."""
    return word.rpartition("/")[2]


def options_of(words: Sequence[str]) -> dict[str, bool]:
    """What the flags of a shell, or of its `set`, turn on (`-e`, `-o pipefail`) or off (`+e`)."""
    found: dict[str, bool] = {}
    named = turned_on = False
    for word in words:
        if named:
            found[word], named = turned_on, False
        elif re.fullmatch(r"[-+][a-zA-Z]+", word):
            turned_on = word.startswith("-")
            found.update({_LETTERS[letter]: turned_on for letter in word[1:] if letter in _LETTERS})
            named = "o" in word[1:]
    return found


def _options(words: Sequence[str]) -> frozenset[str]:
    number = next((number for number, word in enumerate(words) if _runs_next(word)), 0)
    return frozenset(name for name, on in options_of(words[1 : number + 1]).items() if on)


def _runs_next(word: str) -> bool:
    """Whether the word is a shell flag with `c` in it: `-c`, `-ec`, `-lc`."""
    return re.fullmatch(r"-[a-z]*c", word) is not None


@lru_cache(maxsize=32)  # every check parses the script of the container that it judges
def _pipelines(script: str) -> tuple[Pipeline, ...]:
    if "<<" in script or len(script) > _SCRIPT_MAX:
        return ()
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        return ()
    if _NOT_PLAIN.intersection(words) or any(word.startswith("#") for word in words):
        return ()
    found: list[Pipeline] = []
    calls: list[list[str]] = [[]]
    for word in (*words, ";"):
        if word in _PIPES:
            calls.append([])
        elif word not in _JOINTS:
            calls[-1].append(word)
        elif calls[-1]:  # else a line ends with a joint or a pipe, and the command continues
            found.append(Pipeline(tuple(tuple(call) for call in calls), ";" if word in _ENDS else word))
            calls = [[]]
    return tuple(found)
