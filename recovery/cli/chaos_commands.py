"""The options of `recovery chaos`, and nothing else. As in `main`, each command is imported when it is called."""
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from recovery.cli.cluster_options import one_scope, server_options
from recovery.cli.completion import drill_names
from recovery.cli.extras import CommandGroup
from recovery.cli.formatting import ChaosOutput, DrillsOutput
from recovery.cli.options import AllNamespaces, Context, Kubeconfig, Namespace, RequestTimeout

chaos = typer.Typer(
    name="chaos",
    cls=CommandGroup,
    help="Make a job fail on purpose, to see whether it recovers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@chaos.command("run")
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The experiment, as in examples/chaos.", show_default=False)
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    yes: Annotated[
        str | None,
        typer.Option("--yes", metavar="CLUSTER", help="Do not ask. Name the cluster: its context or its host."),
    ] = None,
    output: Annotated[ChaosOutput, typer.Option("--output", "-o", help="Output format.")] = ChaosOutput.TABLE,
) -> None:
    """Run an experiment on a job, and judge its recovery. Ctrl-C takes everything back."""
    from recovery.cli.chaos import ChaosOptions, run_chaos

    run_chaos(server_options(kubeconfig, context, request_timeout), namespace, file, ChaosOptions(dry_run, yes, output))


@chaos.command("list")
def list_(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Annotated[DrillsOutput, typer.Option("--output", "-o", help="Output format.")] = DrillsOutput.TABLE,
) -> None:
    """List the runs and their verdicts."""
    from recovery.cli.chaos import list_chaos

    one_scope(namespace, all_namespaces=all_namespaces)
    list_chaos(server_options(kubeconfig, context, request_timeout), namespace, output, all_namespaces=all_namespaces)


@chaos.command("abort")
def abort(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name of a run.", show_default=False, autocompletion=drill_names),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    all_: Annotated[bool, typer.Option("--all", help="All runs, in all namespaces unless -n names one.")] = False,
) -> None:
    """End a run from any machine, and take back what it has changed on nodes."""
    from recovery.cli.chaos import abort_chaos

    if (name is None) is not all_:
        raise typer.BadParameter("name a run, or say --all")
    abort_chaos(server_options(kubeconfig, context, request_timeout), namespace, name)
