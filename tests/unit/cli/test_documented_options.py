"""Each `recovery` command that the documentation names exists, with its options."""

import re
from collections.abc import Iterator
from functools import cache

from typer.core import TyperGroup
from typer.main import get_command

from recovery.cli.main import app
from tests.documentation.commands import PAGES, REPOSITORY, documented, within_text

GROUPS = ("chaos",)
"""Commands that have commands of their own."""
_COMMAND = re.compile(r"(?:^|\| *)(?:\$ )?(?:kubectl |\.venv/bin/)?recovery +([^|#;&\n]*)", re.MULTILINE)


def shown() -> Iterator[tuple[str, str]]:
    """Each command that the documentation shows: where it is, and the words after `recovery`."""
    for block in documented():
        for command in _COMMAND.findall(block.script.replace("\\\n", " ")):
            yield str(block), command
    for page in PAGES:
        for code in within_text(page.read_text(encoding="utf-8")):
            if found := _COMMAND.match(" ".join(code.split())):
                yield page.relative_to(REPOSITORY).as_posix(), found[1].rstrip("\\")


def unknown(command: str) -> str:
    """The first word that recovery does not know. Empty: it knows all of them."""
    name, *words = command.split() or [""]
    if name.startswith("-"):
        name, words = "", [name, *words]
    if name == "COMMAND":
        return ""
    if name in GROUPS:
        name, words = f"{name} {next(iter(words), '')}".rstrip(), words[1:]
    if name not in options():
        return name
    given = (word.partition("=")[0] for word in words if word.startswith("-") and word != "-")
    return next((option for option in given if option not in options()[name]), "")


@cache
def options() -> dict[str, set[str]]:
    """The options of each command. The empty name has the options of recovery itself."""
    recovery = get_command(app)
    assert isinstance(recovery, TyperGroup)
    found = {"": recovery, **recovery.commands}
    for group in GROUPS:
        commands = recovery.commands[group]
        assert isinstance(commands, TyperGroup)
        found |= {f"{group} {name}": command for name, command in commands.commands.items()}
    return {
        name: {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
        for name, command in found.items()
    }


def test_what_recovery_does_not_know_is_found() -> None:
    assert unknown("lint --fail-on warning -") == ""
    assert unknown("lint --fail-off warning") == "--fail-off"
    assert unknown("flint job.yaml") == "flint"
    assert unknown("--version") == ""
    assert unknown("COMMAND") == ""
    assert unknown("chaos run FILE --dry-run") == ""
    assert unknown("chaos run FILE --fail-on warning") == "--fail-on"
    assert unknown("chaos walk FILE") == "chaos walk"
    assert unknown("chaos") == ""


def test_every_command_and_option_in_the_documentation_exists() -> None:
    commands = list(shown())
    assert len(commands) > 200
    assert [(place, command, word) for place, command in commands if (word := unknown(command))] == []
