"""The options of `recovery lint`, and those that it shares with `explain-launch`."""

from enum import StrEnum
from typing import Annotated

import typer

from recovery.cli.lint_codes import code_names, parse_codes, show_page

Manifests = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="Files, folders, and - for stdin; they are judged together.", show_default=False
    ),
]
FromCluster = Annotated[
    bool,
    typer.Option("--cluster", help="Read the runtimes that no FILE has from the cluster. Default: ask no cluster."),
]


class FailOn(StrEnum):
    """The mildest severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


FailingSeverity = Annotated[FailOn, typer.Option("--fail-on", help="The lowest severity that makes the exit code 1.")]
Ignored = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="CODE",
        help="Leave out findings of these codes, separated by commas. May be repeated.",
        show_default=False,
        callback=parse_codes,
        autocompletion=code_names,
    ),
]
SkipOthers = Annotated[
    bool, typer.Option("--skip-others", help="Skip a FILE in which nothing is judged, as in a folder.")
]
ExplainedCode = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="CODE",
        help="Print the page of this code, and exit.",
        show_default=False,
        callback=show_page,
        is_eager=True,
        autocompletion=code_names,
    ),
]
