"""Checks the options for an API server and a namespace, and converts them for the commands."""

from typing import TYPE_CHECKING

import typer

from recovery.cli.arguments import REQUEST_SECONDS, ServerOptions

if TYPE_CHECKING:
    from recovery.cli.manifests import RuntimeSource


def runtime_source(
    kubeconfig: str | None,
    context: str | None,
    request_timeout: float | None,
    namespace: str | None,
    *,
    asked: bool,
) -> "RuntimeSource | None":
    """Where `lint` and `explain-launch` read the runtimes that their files lack. None: no cluster is asked."""
    from recovery.cli.manifests import RuntimeSource  # noqa: PLC0415 - loads more than --help may wait for

    if asked:
        return RuntimeSource(server_options(kubeconfig, context, request_timeout), namespace)
    options = {
        "kubeconfig": kubeconfig,
        "context": context,
        "request-timeout": request_timeout,
        "namespace": namespace,
    }
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} goes with --cluster: without it no cluster is asked")
    return None


def server_options(kubeconfig: str | None, context: str | None, request_timeout: float | None) -> ServerOptions:
    """The API server of the options. `request_timeout` None: the default."""
    seconds = REQUEST_SECONDS if request_timeout is None else request_timeout
    return ServerOptions(kubeconfig, context, seconds)


def one_scope(namespace: str | None, *, all_namespaces: bool) -> None:
    """Refuse `--namespace` together with `--all-namespaces`."""
    if all_namespaces and namespace is not None:
        raise typer.BadParameter("--namespace and --all-namespaces exclude each other")
