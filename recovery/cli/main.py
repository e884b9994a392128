"""The entry point `recovery`: the options of every command, and nothing else.

The commands are imported when they are called: what talks to a cluster takes longer to load than `--help` may take.
"""
# ruff: noqa: PLC0415

from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

app = typer.Typer(
    name="recovery",
    help="Failure recovery for distributed TrainJobs on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogLevel(StrEnum):
    """Lines below it are dropped."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Output(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    JSON = "json"


class Address(NamedTuple):
    """Where a server listens. Port 0: the system chooses."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `[::1]:PORT`, or `:PORT` for all addresses. Raises typer.BadParameter."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare) != bracketed:
        raise typer.BadParameter(f"{text!r} is not an address like 127.0.0.1:8080, [::1]:8080 or :8080")
    return Address(bare or "0.0.0.0", int(port))  # noqa: S104 - scraped from outside the pod


Kubeconfig = Annotated[
    str | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NS", help="Default: the namespace of the context.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"recovery {version('trainjob-recovery')}")
        raise typer.Exit


@app.callback()
def recovery(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What every command has in common."""


@app.command("run")
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    metrics_address: Annotated[
        Address,
        typer.Option(parser=parse_address, metavar="HOST:PORT", help="For /metrics, /healthz and /readyz."),
    ] = "0.0.0.0:8080",  # type: ignore[assignment]
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Run the controller until it is told to stop."""
    from recovery.cli.run import run_controller

    run_controller(kubeconfig, context, metrics_address.host, metrics_address.port, log_level)


@app.command("status")
def status(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o")] = Output.TABLE,
) -> None:
    """List TrainJobs, and how they are."""
    from recovery.cli.status import show_status

    if all_namespaces and namespace is not None:
        raise typer.BadParameter("--namespace and --all-namespaces exclude each other")
    show_status(kubeconfig, context, namespace, all_namespaces=all_namespaces, as_json=output is Output.JSON)


@app.command("explain")
def explain(
    job: Annotated[str, typer.Argument(help="Name of the TrainJob.", show_default=False)],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    incident: Annotated[str | None, typer.Option(metavar="ID", help="Tell of this incident only.")] = None,
) -> None:
    """Tell what is decided about a TrainJob, and why."""
    from recovery.cli.explain import show_explanation

    show_explanation(kubeconfig, context, namespace, job, incident)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
