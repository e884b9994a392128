"""Completes names from the cluster for a shell, within two seconds. If that fails, it completes nothing, silently.

A person who presses Tab did not ask for an error. The client of the cluster is loaded only for names from the cluster.
"""
# ruff: noqa: PLC0415

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import typer

from recovery.cli.arguments import ServerOptions

if TYPE_CHECKING:
    from recovery.ports import ApiClient

SECONDS_MAX = 2.0


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """TrainJobs, and JobSets that nothing controls, of the namespace that the line names."""

    async def read(client: "ApiClient") -> Iterable[str]:
        from recovery.cli.connection import chosen_namespace
        from recovery.kube.cluster_reader import read_workloads

        where = await chosen_namespace(_server(context), context.params.get("namespace"))
        workloads, _ = await read_workloads(client, where)
        return [key.name for key in workloads]

    given = set(context.params.get("jobs") or ())
    return [name for name in _ask(context, read, incomplete) if name not in given]


def recorded_job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The jobs of the namespace that the line names, and those that are gone and have records."""

    async def read(client: "ApiClient") -> Iterable[str]:
        from recovery.cli.connection import chosen_namespace
        from recovery.kube.incident_records import read_records

        where = await chosen_namespace(_server(context), context.params.get("namespace"))
        return {record.job.name for record in (await read_records(client, where)).records}

    return sorted({*job_names(context, incomplete), *_ask(context, read, incomplete)})


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """All of the cluster, for those who may list them."""

    async def read(client: "ApiClient") -> Iterable[str]:
        from recovery import api_verbs
        from recovery.cli.job_lookup import NAMESPACES
        from recovery.decoding import name_of
        from recovery.kube.response_envelopes import read_page

        page = read_page(NAMESPACES, await api_verbs.list_page(client, NAMESPACES))
        return [name_of(raw) for raw in page.items or ()]

    return _ask(context, read, incomplete)


def drill_names(context: typer.Context, incomplete: str) -> list[str]:
    """The RecoveryDrills of the namespace that the line names."""

    async def read(client: "ApiClient") -> Iterable[str]:
        from recovery.chaos.abort import read_drills
        from recovery.cli.connection import chosen_namespace

        where = await chosen_namespace(_server(context), context.params.get("namespace"))
        return [drill.name for drill in await read_drills(client, where)]

    return _ask(context, read, incomplete)


def node_names(context: typer.Context, incomplete: str) -> list[str]:
    """All of the cluster."""

    async def read(client: "ApiClient") -> Iterable[str]:
        from recovery import api_verbs
        from recovery.decoding import name_of
        from recovery.kube.response_envelopes import read_page
        from recovery.ports import NODES

        page = read_page(NODES, await api_verbs.list_page(client, NODES))
        return [name_of(raw) for raw in page.items or ()]

    given = set(context.params.get("nodes") or ())
    return [name for name in _ask(context, read, incomplete) if name not in given]


def _server(context: typer.Context) -> ServerOptions:
    return ServerOptions(context.params.get("kubeconfig"), context.params.get("context"))


def _ask(context: typer.Context, read: Callable[["ApiClient"], Awaitable[Iterable[str]]], incomplete: str) -> list[str]:
    """The matching names, sorted. Empty if anything goes wrong."""
    import asyncio

    try:
        from recovery.cli.connection import CommandError, connect
        from recovery.kube.session import SessionError
        from recovery.ports import ApiError
    except ModuleNotFoundError:  # the base installation has no client of a cluster
        return []

    async def ask() -> Iterable[str]:
        async with asyncio.timeout(SECONDS_MAX), connect(_server(context)) as connection:
            return await read(connection.client)

    try:
        found = asyncio.run(ask())
    except (ApiError, CommandError, SessionError, TimeoutError, OSError, ValueError):
        return []
    return sorted(name for name in found if name and name.startswith(incomplete))
