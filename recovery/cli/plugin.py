"""`kubectl recovery`: the console scripts that kubectl looks for on the PATH.

kubectl runs `kubectl-recovery` with the arguments after the plugin's name. To complete a word it runs
`kubectl_complete-recovery` with the words so far. The last of them is the word to complete, empty for a new one.
kubectl reads one candidate a line, with an optional description after a tab. A last line `:NUMBER` is cobra's directive
for the shell (kubectl 1.36 `pkg/cmd/plugin/plugin_completion.go`). kubectl passes on stderr.
"""

import os
import shlex
import sys

from typer.main import get_command

from recovery.cli.main import app, plugin

PROGRAM = "kubectl recovery"
DIRECTIVE_FILES = 0
"""cobra's ShellCompDirectiveDefault: without candidates, the shell offers files."""
DIRECTIVE_NO_FILES = 4
"""cobra's ShellCompDirectiveNoFileComp."""

_FILE_OPTIONS = frozenset({"--kubeconfig", "--admission-certificates"})
_FILE_COMMANDS = (("lint",), ("explain-launch",), ("chaos", "run"))
"""Commands whose arguments are files."""
_INSTRUCTION = "_KUBECTL_RECOVERY_COMPLETE"


def main() -> None:
    """`kubectl-recovery`."""
    plugin(prog_name=PROGRAM)


def complete() -> None:
    """`kubectl_complete-recovery`. Uses typer's completion for fish, which writes the format that cobra reads."""
    *before, begun = sys.argv[1:] or [""]
    line = [PROGRAM, *before, *([begun] if begun else [])]
    os.environ |= {
        _INSTRUCTION: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": shlex.join(line) + ("" if begun else " "),
    }
    get_command(app)  # typer registers its shells when it builds a command that offers completion
    try:
        plugin(args=[], prog_name=PROGRAM, complete_var=_INSTRUCTION)
    except SystemExit:
        files = _is_file_option(before, begun) or any(tuple(before[: len(each)]) == each for each in _FILE_COMMANDS)
        print(f":{DIRECTIVE_FILES if files else DIRECTIVE_NO_FILES}")


def _is_file_option(before: list[str], begun: str) -> bool:
    name, given, _ = begun.partition("=")
    return (bool(given) and name in _FILE_OPTIONS) or (bool(before) and before[-1] in _FILE_OPTIONS)
